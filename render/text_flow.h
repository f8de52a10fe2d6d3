/* text_flow.h - lays out the text of a table of tokens in lines of a given width, and draws each
 * piece with the look of its rows. */
#pragma once

#include "render/text_source.h"

/* A text that is laid out or drawn line by line. */
struct text_flow {
    struct canvas *c;
    double pt, width; /* font size; line width, mm */
    /* Returns the look of the rows [row0, row1). */
    struct text_look (*look)(const void *ctx, int64_t row0, int64_t row1);
    bool (*bold)(const void *ctx, int64_t row0, int64_t row1); /* may be NULL */
    /* Called for each drawn token of a line with the position of its letters, without surrounding
     * spaces, and the baseline; may be NULL. */
    void (*below)(const void *ctx, int64_t row0, int64_t row1, double x, double y, double w);
    const void *ctx;

    /* State: lines [0, at) are done. */
    int64_t at;
    struct text_source source;
    struct paragraph *p; /* current paragraph, or NULL */
    int line, used;      /* its lines: done; to do */
};

/* Starts the text of the rows [row0, row1); the caller sets the fields before `at` first. */
void text_flow_open(struct text_flow *f, const struct table *t, int64_t row0, int64_t row1);
void text_flow_close(struct text_flow *f); /* accepts a zeroed struct */

/* Advances to line `to` or to the end of the text.  draw: draws lines at x, `pitch` mm apart, the
 * first with its baseline at y.  Returns KVF_OK or KVF_E_NOMEM. */
int text_flow_run(struct text_flow *f, int64_t to, bool draw, double x, double y, double pitch);

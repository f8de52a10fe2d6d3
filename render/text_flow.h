/* text_flow.h - text of a table of tokens in lines of a width, each piece with the look of the
 * rows that it comes from. */
#ifndef KVF_RENDER_TEXT_FLOW_H
#define KVF_RENDER_TEXT_FLOW_H

#include "render/text_source.h"

struct text_flow {
    struct canvas *c;
    double pt, width; /* of the letters; of a line, mm */
    /* What the rows [row0, row1) look like. */
    struct text_look (*look)(const void *ctx, int64_t row0, int64_t row1);
    bool (*bold)(const void *ctx, int64_t row0, int64_t row1); /* NULL: none is */
    /* Called for each token of a line that was drawn, with the place of its letters, without the
     * spaces around them, and the line's baseline; NULL: is not. */
    void (*below)(const void *ctx, int64_t row0, int64_t row1, double x, double y, double w);
    const void *ctx;

    /* Where it stands: lines [0, at) are done. */
    int64_t at;
    struct text_source source;
    struct paragraph *p; /* at hand, or NULL */
    int line, used;      /* of it: done; to do */
};

/* Begins the text of the rows [row0, row1); the first fields are set by the caller. */
void text_flow_open(struct text_flow *f, const struct table *t, int64_t row0, int64_t row1);
void text_flow_close(struct text_flow *f); /* accepts a zeroed struct */

/* Goes on up to line `to` or the end of the text.  draw: lines are drawn at x below each other,
 * the first one's baseline at y.  KVF_OK or KVF_E_NOMEM. */
int text_flow_run(struct text_flow *f, int64_t to, bool draw, double x, double y, double pitch);

#endif

/* text_style.h - the options of the figure tokens: the column that colours tokens and how it
 * does. */
#pragma once

#include "render/canvas_text.h"
#include "render/figures.h"
#include "render/style.h"

/* The kind of a colouring, which sets its colours.  KIND_HALF: the half-life of a retention factor
 * in steps, on a logarithmic scale that is the same in every figure. */
enum text_kind {
    KIND_SHARE,
    KIND_FRACTION,
    KIND_STATE,
    KIND_RANGE,
    KIND_AGE,
    KIND_HALF,
    KIND_SIGNED,
    KIND_SKEWED
};

/* A column that can colour tokens. */
struct text_colouring {
    const char *column;
    const char *label, *of_head; /* label over several heads, and for one head */
    enum text_kind kind;
    const char *from; /* origin of the values */
};

/* The values of the keys of the figure tokens; text_style.c has the words of the keys. */
struct tokens_style {
    int by, mark;
    int64_t page, columns; /* 0: not set */
};
extern const struct opt text_style_keys[];
enum { TEXT_BY_EFFECT = 9 }; /* `by` of the first colouring of the figure effect-text */

/* The size and draw functions of the figure tokens and of other figures whose tables have a column
 * `text`. */
void text_figure_size(const struct table *t, const struct figure_style *s, double *w, double *h);
int text_figure_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                     struct kvf_diag *d);

/* The look of tokens, resolved for one table. */
struct text_style {
    const struct table *t;
    const struct text_colouring *by;
    int column, state; /* column numbers */
    bool fill;         /* colour the background instead of the letters */
    bool hatched;      /* protected tokens are hatched, without the colour of their value */
    bool one;          /* every panel is one head */
    const char *head;  /* that head; NULL: several */
    int page, columns; /* 0: not set */
    struct colours range;
    bool open; /* values above the range get the colour of its upper end, and the legend notes it */
    /* Counts: rows without a value, unused tokens, heads that differ, protected tokens. */
    int64_t unknown, never, mixed, guarded;
};

/* Reads the style, and the range of the colours from the table; the caller sets `one` and `head`
 * first.  Returns KVF_E_ARG with a message, also if no row has a value of the requested
 * colouring. */
int text_style_read(struct text_style *x, const struct table *t, const struct figure_style *s,
                    struct kvf_diag *d);

/* Returns the look of the rows [row0, row1), for text_flow. */
struct text_look text_style_look(const void *style, int64_t row0, int64_t row1);
/* Returns true if the rows [row0, row1) are bold. */
bool text_style_bold(const void *style, int64_t row0, int64_t row1);

/* Draws the legend of the colours from y down between left and right; its first row is `less` mm
 * narrower.  Returns its number of rows of LEGEND_PITCH mm.  draw false: only counts. */
#define LEGEND_PITCH 3.6
int text_style_legend(const struct text_style *x, struct canvas *c, double left, double right,
                      double less, double y, bool draw);

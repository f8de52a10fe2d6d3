/* text_style.h - by what tokens are coloured, and how: the options of the figure tokens. */
#ifndef KVF_RENDER_TEXT_STYLE_H
#define KVF_RENDER_TEXT_STYLE_H

#include "render/canvas_text.h"
#include "render/figures.h"
#include "render/style.h"

enum text_kind {
    KIND_SHARE,
    KIND_FRACTION,
    KIND_STATE,
    KIND_RANGE,
    KIND_AGE,
    KIND_SIGNED,
    KIND_SKEWED
};

struct text_colouring {
    const char *column;
    const char *label, *of_head; /* what it is over several heads, and in one */
    enum text_kind kind;
    const char *from; /* where its values come from */
};

/* What the keys of the figure tokens fill; the words of keys are in text_style.c. */
struct tokens_style {
    int by, mark;
    int64_t page, columns; /* 0: not said */
};
extern const struct opt text_style_keys[];
enum { TEXT_BY_EFFECT = 9 }; /* `by` of the first colouring of the figure effect-text */

/* The figure tokens, and others whose tables have a column `text`. */
void text_figure_size(const struct table *t, const struct figure_style *s, double *w, double *h);
int text_figure_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                     struct kvf_diag *d);

struct text_style {
    const struct table *t;
    const struct text_colouring *by;
    int column, state; /* numbers of columns */
    bool fill;         /* colours behind the text, not of the text */
    bool hatched;      /* what is protected is hatched, without a colour of its value */
    bool one;          /* every panel is one head */
    const char *head;  /* the same one; NULL: several */
    int page, columns; /* 0: not said */
    struct colours range;
    bool open; /* values above the range are the upper end, too, and the legend says so */
    /* Rows without a value; tokens of no use; heads that differ; protected tokens. */
    int64_t unknown, never, mixed, guarded;
};

/* Takes the style, and the table for the range of the colours; one and head are set before.
 * KVF_E_ARG with a sentence, also where colours are asked for of which no row has a value. */
int text_style_read(struct text_style *x, const struct table *t, const struct figure_style *s,
                    struct kvf_diag *d);

struct text_look text_style_look(const void *style, int64_t row0, int64_t row1);
bool text_style_bold(const void *style, int64_t row0, int64_t row1);

/* What the colours mean, from y down between left and right, `less` mm less in the first row;
 * returns the rows of LEGEND_PITCH mm that it takes.  draw false: only that. */
#define LEGEND_PITCH 3.6
int text_style_legend(const struct text_style *x, struct canvas *c, double left, double right,
                      double less, double y, bool draw);

#endif

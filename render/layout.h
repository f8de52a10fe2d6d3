/* layout.h - draws several figures on one page, as panels a, b, c, ... of a mosaic.
 *
 * The mosaic "ab/cc" has panels a and b in the first row and c below both.  Its columns have equal
 * widths, and its rows have the heights of their figures.  Plots with the same axes get the same
 * ranges.  Plots with the same lines share one key at the bottom.  Adjacent panels show the name of
 * a common axis once.  Maps of one figure with equal bar labels share their colours and one bar at
 * the right. */
#pragma once

#include "render/figure.h"

enum { LAYOUT_PANELS = 26, LAYOUT_SIDE = 16 }; /* panels; columns, and rows */

/* The figure and the table of one panel. */
struct layout_panel {
    const struct figure *f;
    const struct table *t;
    const char *option; /* the figure's keys; may be NULL */
};

/* The style of panel letters. */
enum layout_letters { LETTERS_SMALL, LETTERS_BRACKETS, LETTERS_CAPITAL, LETTERS_NONE };
extern const char *const layout_letters[]; /* their words; ends with NULL */

/* A page: its mosaic and its panels. */
struct layout {
    const char *mosaic;
    const struct layout_panel *panel; /* panel[0] is a */
    int n;
    enum layout_letters letters;
};

/* Draws the page into path, like figure_write.  Sizes, fonts, maps and ranges of s apply to all
 * panels; `option` of s is not used. */
int layout_write(const struct layout *l, const struct figure_style *s, const char *path,
                 struct kvf_diag *d);

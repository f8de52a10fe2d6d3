/* layout.h - several figures on one page, as panels a, b, c, ... of a mosaic: "ab/cc" has the
 * panels a and b in the first row and c below both.  Columns of the mosaic are equally wide; rows
 * are as high as their figures.  Plots with the same axes get the same ranges, those with the same
 * lines one key for all, below; between panels that adjoin, the name of a common axis stands once.
 * Maps of one figure whose bars say the same have the same colours, and one bar at the right. */
#ifndef KVF_RENDER_LAYOUT_H
#define KVF_RENDER_LAYOUT_H

#include "render/figure.h"

enum { LAYOUT_PANELS = 26, LAYOUT_SIDE = 16 }; /* panels; columns, and rows */

struct layout_panel {
    const struct figure *f;
    const struct table *t;
    const char *option; /* of the figure's keys; NULL: none */
};

/* How panels are lettered. */
enum layout_letters { LETTERS_SMALL, LETTERS_BRACKETS, LETTERS_CAPITAL, LETTERS_NONE };
extern const char *const layout_letters[]; /* their words; ends with NULL */

struct layout {
    const char *mosaic;
    const struct layout_panel *panel; /* panel[0] is a */
    int n;
    enum layout_letters letters;
};

/* Draws the page into path, as figure_write does.  Sizes, fonts, maps and ranges of s hold for all
 * panels; `option` of s is not used. */
int layout_write(const struct layout *l, const struct figure_style *s, const char *path,
                 struct kvf_diag *d);

#endif

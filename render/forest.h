/* forest.h - rows of a name, an interval and its middle beside a null: what a table of
 * tests looks like. */
#ifndef KVF_RENDER_FOREST_H
#define KVF_RENDER_FOREST_H

#include <stdbool.h>

#include "render/axis.h"
#include "render/marks.h"

struct forest_row {
    char name[96];           /* left of the axes */
    char note[96];           /* right of them */
    double value, low, high; /* NaN: no such part */
    struct rgb colour;
    enum mark mark;
    bool heading; /* the name alone, bold */
};

struct forest {
    const struct forest_row *row;
    int n;
    double null_low, null_high; /* band, or one line where they are equal; NaN: none */
    double names, notes;        /* mm that these columns have */
};

/* Measures the widths that names and notes take, at most `most` mm each. */
void forest_measure(struct canvas *c, struct forest *f, double most);
/* Draws the rows, which share the height of the box from the top; its y range is not used.  What
 * lies beyond the axis ends in an arrow at its rim. */
void forest_draw(struct canvas *c, const struct axis_box *a, const struct forest *f);

#endif

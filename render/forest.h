/* forest.h - draws forest plots: rows with a name, an estimate with its interval, and a null value,
 * as a table of tests needs them. */
#pragma once

#include <stdbool.h>

#include "render/axis.h"
#include "render/marks.h"

/* One row of a forest plot. */
struct forest_row {
    char name[96];           /* left of the axes */
    char note[96];           /* right of the axes */
    double value, low, high; /* NaN: not drawn */
    struct rgb colour;
    enum mark mark;
    bool heading; /* only the name, in bold */
};

/* The rows and the null value of a plot. */
struct forest {
    const struct forest_row *row;
    int n;
    double null_low, null_high; /* band, or one line if they are equal; NaN: not drawn */
    double names, notes;        /* widths of these columns, mm */
};

/* Measures the widths of names and notes, at most `most` mm each. */
void forest_measure(struct canvas *c, struct forest *f, double most);
/* Draws the rows with equal heights inside the box a, whose y range is not used.  Intervals beyond
 * the axis end in an arrow at its edge. */
void forest_draw(struct canvas *c, const struct axis_box *a, const struct forest *f);

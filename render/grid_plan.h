/* grid_plan.h - where the maps of a grid (figures.h) lie, and which tokens and steps they show. */
#ifndef KVF_RENDER_GRID_PLAN_H
#define KVF_RENDER_GRID_PLAN_H

#include "render/figures.h"

struct grid_window {
    int64_t n, first; /* tokens: first .. first + n - 1 */
    int64_t from, to; /* steps shown, counted from the first token */
};

/* Maps are in the order of the table: trace by trace, head by head. */
struct grid_plan {
    double margin;               /* right of each map */
    int64_t traces, n, per_head; /* traces; maps of all; rows of each */
    bool named;                  /* every map has its own name */
    bool matrix;                 /* a column for each trace, a row for each head */
    int cols, rows, blocks;      /* maps across in a block, rows, blocks */
    double top, left, label, gap_x, gap_y, gap_block, side, tall; /* tall: height of a map */
    double aspect;                                                /* tall / side */
};

enum { GRID_RIGHT = 20, GRID_BOTTOM = 10 }; /* mm */

/* The part of the steps that is shown: those of the key `steps`, else those of the tokens from
 * shortly before the event on. */
int grid_window_of(const struct grid *g, const struct figure_style *s, struct grid_window *ret,
                   struct kvf_diag *d);
/* The arrangement with the largest maps in width x height; a layer's heads stay in one row, the
 * heads of a trace in one column or block. */
struct grid_plan grid_plan_of(const struct grid *g, const struct grid_window *win, double width,
                              double height);
/* Widens or heightens the maps, at most threefold, to fill a canvas of other proportions. */
void grid_plan_fill(struct grid_plan *l, double width, double height);
double grid_plan_width(const struct grid_plan *l);
double grid_plan_height(const struct grid_plan *l);
/* The column and the row of a map, counted over all blocks, and its corner. */
void grid_plan_cell(const struct grid_plan *l, int64_t h, int64_t *col, int64_t *row);
void grid_plan_place(const struct grid_plan *l, int64_t h, double *x, double *y);

#endif

/* grid_plan.h - plans where the maps of a grid (figures.h) are drawn and which tokens and steps
 * they show. */
#ifndef KVF_RENDER_GRID_PLAN_H
#define KVF_RENDER_GRID_PLAN_H

#include "render/figures.h"

/* The tokens and steps that the maps show. */
struct grid_window {
    int64_t n, first; /* tokens: first .. first + n - 1 */
    int64_t from, to; /* steps, counted from the first token */
};

/* The arrangement of the maps, in the order of the table: trace by trace, head by head. */
struct grid_plan {
    double margin;               /* mm right of each map */
    int64_t traces, n, per_head; /* traces; all maps; rows per map */
    bool named;                  /* every map has its own name */
    bool matrix;                 /* one column per trace, one row per head */
    int cols, rows, blocks;      /* maps per row of a block, rows, blocks */
    /* mm; side, tall: width and height of a map */
    double top, left, label, gap_x, gap_y, gap_block, side, tall;
    double aspect; /* tall / side */
};

enum { GRID_RIGHT = 20, GRID_BOTTOM = 10 }; /* mm */

/* Finds the window of steps: from the key `steps`, else the steps of the tokens from shortly before
 * the first event on.  Returns KVF_OK or KVF_E_ARG with a message. */
int grid_window_of(const struct grid *g, const struct figure_style *s, struct grid_window *ret,
                   struct kvf_diag *d);
/* Returns the arrangement with the largest maps in width x height mm.  The heads of a layer stay in
 * one row, and the heads of a trace in one column or block. */
struct grid_plan grid_plan_of(const struct grid *g, const struct grid_window *win, double width,
                              double height);
/* Stretches the maps, at most threefold, to fill a canvas of another shape. */
void grid_plan_fill(struct grid_plan *l, double width, double height);
double grid_plan_width(const struct grid_plan *l);
double grid_plan_height(const struct grid_plan *l);
/* Set the column and the row of map h, counted over all blocks, or its top left corner. */
void grid_plan_cell(const struct grid_plan *l, int64_t h, int64_t *col, int64_t *row);
void grid_plan_place(const struct grid_plan *l, int64_t h, double *x, double *y);

#endif

/* cells.h - helpers of figures that read table cells and check the canvas size. */
#pragma once

#include "base/table.h"
#include "render/canvas.h"

enum { CELL_TEXT = 64 }; /* bytes for the text of a cell that a figure copies */

/* Returns KVF_OK, or KVF_E_ARG with a message about --size if the canvas is smaller than w x h
 * mm. */
int canvas_room(const struct canvas *c, const char *figure, double w, double h, struct kvf_diag *d);

/* Returns the cell as text, in out if the column has numbers.  Saved tables have no types, so names
 * of digits are read as numbers. */
const char *cell_text(const struct table *t, int col, int64_t row, char out[24]);

/* Returns the index of the numeric column `name`, or -1 if the table lacks it. */
int numeric_column(const struct table *t, const char *name);

/* Returns the steps after which a retention factor beta, from 0 to 1, has fallen to one half:
 * ln 0.5 / ln beta.  INFINITY for 1; NaN stays NaN. */
double half_life(double beta);

/* cells.h - what figures ask of the cells of a table, and of the room on a canvas. */
#ifndef KVF_RENDER_CELLS_H
#define KVF_RENDER_CELLS_H

#include "base/table.h"

enum { CELL_TEXT = 64 }; /* room for the text of a cell that a figure keeps */

struct canvas;

/* KVF_OK, or KVF_E_ARG with a sentence on --size when the canvas is less than w x h mm. */
int canvas_room(const struct canvas *c, const char *figure, double w, double h, struct kvf_diag *d);

/* The cell as text, also of a column of numbers (a saved table has no types, so that names
 * which are all digits come back as numbers). */
const char *cell_text(const struct table *t, int col, int64_t row, char out[24]);

/* The number of the column; -1 where the table has none of that name that holds numbers. */
int numeric_column(const struct table *t, const char *name);

#endif

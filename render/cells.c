/* cells.c - reads table cells as text, finds numeric columns and checks the canvas size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/axis.h"
#include "render/cells.h"
#include "render/figure.h"

int canvas_room(const struct canvas *c, const char *figure, double w, double h, struct kvf_diag *d)
{
    if (canvas_width(c) >= w - 1e-9 && canvas_height(c) >= h - 1e-9)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "--size: figure %s needs at least %.0f x %.0f mm here", figure,
                    ceil(fmax(w, FIGURE_MIN_WIDTH) - 1e-9),
                    ceil(fmax(h, FIGURE_MIN_HEIGHT) - 1e-9));
}

const char *cell_text(const struct table *t, int col, int64_t row, char out[24])
{
    if (table_col_type(t, col) == TABLE_STR)
        return table_str(t, col, row);
    tick_text(table_real(t, col, row), out);
    return out;
}

int numeric_column(const struct table *t, const char *name)
{
    int col = table_find(t, name);
    return col >= 0 && table_col_type(t, col) != TABLE_STR ? col : -1;
}

double half_life(double beta)
{
    return beta < 1 ? log(0.5) / log(fmax(beta, 0)) : beta + INFINITY;
}

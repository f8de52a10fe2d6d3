/* assign.h - the assignment of rows to columns of the least total cost. */
#pragma once

#include <stddef.h>

#include <kvf/err.h>

/* cost: [rows][columns], finite, rows <= columns.  column[r] becomes the column of row r, each
 * column being used at most once.  u [rows] and v [columns], which may be NULL, get the dual that
 * proves it: u[r] + v[c] <= cost[r][c], equal where r has c; v <= 0, 0 where no row has it.  By
 * shortest augmenting paths (Jonker and Volgenant 1987), O(rows^2 columns); with equal costs the
 * result depends only on the costs.  KVF_OK or KVF_E_NOMEM. */
int assign_least(const double *cost, size_t rows, size_t columns, size_t *column, double *u,
                 double *v);

/* test_assign.c - compares the best assignment with all permutations for small costs and with its
 * dual for large ones. */
#include "analyzers/assign.h"
#include "tests/suite.h"

/* Returns the minimum total over all injections of rows r.. into columns not in `used`. */
static double least(const double *cost, size_t rows, size_t columns, size_t r, unsigned used)
{
    double best = r == rows ? 0 : INFINITY;
    for (size_t c = 0; r < rows && c < columns; c++) {
        if (used >> c & 1)
            continue;
        double v = cost[r * columns + c] + least(cost, rows, columns, r + 1, used | 1u << c);
        best = v < best ? v : best;
    }
    return best;
}

static double total(const double *cost, size_t rows, size_t columns, const size_t *column)
{
    double sum = 0;
    for (size_t r = 0; r < rows; r++) {
        cr_assert(lt(sz, column[r], columns));
        for (size_t k = 0; k < r; k++)
            cr_assert(ne(sz, column[k], column[r]));
        sum += cost[r * columns + column[r]];
    }
    return sum;
}

Test(assign, finds_the_least_of_all_permutations)
{
    struct rng g = rng_seeded(3);
    for (int trial = 0; trial < 300; trial++) {
        size_t rows = (size_t)rng_below(&g, 7), columns = rows + (size_t)rng_below(&g, 3);
        double cost[8 * 8];
        size_t column[8];
        /* integers, with many ties; and negative values */
        for (size_t i = 0; i < rows * columns; i++)
            cost[i] = trial % 2 ? (double)rng_below(&g, 4) : rng_normal(&g);
        cr_assert(eq(int, assign_least(cost, rows, columns, column, NULL, NULL), KVF_OK));
        cr_expect(lt(dbl,
                     fabs(total(cost, rows, columns, column) - least(cost, rows, columns, 0, 0)),
                     1e-12));
    }
}

/* If u + v <= cost everywhere, no assignment costs less than the sum of u and v. */
Test(assign, proves_large_ones_by_the_dual)
{
    const size_t rows = 300, columns = 400;
    double *cost = MEM_NEW(double, (rows * columns)), u[300], v[400], dual = 0;
    size_t column[300];
    struct rng g = rng_seeded(4);
    for (size_t i = 0; i < rows * columns; i++)
        cost[i] = rng_uniform(&g);
    cr_assert(eq(int, assign_least(cost, rows, columns, column, u, v), KVF_OK));
    for (size_t c = 0; c < columns; c++) {
        cr_assert(le(dbl, v[c], 0));
        dual += v[c];
    }
    for (size_t r = 0; r < rows; r++) {
        dual += u[r];
        for (size_t c = 0; c < columns; c++)
            cr_assert(le(dbl, u[r] + v[c], cost[r * columns + c] + 1e-12));
    }
    cr_expect(lt(dbl, fabs(dual - total(cost, rows, columns, column)), 1e-9));
    mem_free(cost);
}

/* test_ranks.c - ranks, rank correlation and chance overlap compared with values computed by
 * hand. */
#include "base/ranks.h"
#include "tests/suite.h"

Test(ranks, equal_values_share_the_mean_of_their_ranks)
{
    /* In order 1 2 2 2 5 5: ranks 1, (2 + 3 + 4) / 3, (5 + 6) / 2. */
    const double v[6] = {5, 2, 1, 2, 5, 2}, want[6] = {5.5, 3, 1, 3, 5.5, 3};
    double rank[6];
    cr_assert(eq(int, ranks_average(v, 6, rank), KVF_OK));
    for (int i = 0; i < 6; i++)
        cr_expect(eq(dbl, rank[i], want[i]));
    cr_expect(eq(int, ranks_average(v, 0, rank), KVF_OK));
}

Test(ranks, infinities_have_ranks)
{
    double v[3] = {0, -INFINITY, INFINITY};
    cr_assert(eq(int, ranks_average(v, 3, v), KVF_OK)); /* in place */
    cr_expect(eq(dbl, v[0], 2));
    cr_expect(eq(dbl, v[1], 1));
    cr_expect(eq(dbl, v[2], 3));
}

Test(ranks, top_takes_the_larger_index_among_equals)
{
    const double v[5] = {7, 3, 3, 3, 1};
    const unsigned char want[6][5] = {{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {1, 0, 0, 1, 0},
                                      {1, 0, 1, 1, 0}, {1, 1, 1, 1, 0}, {1, 1, 1, 1, 1}};
    unsigned char mark[5];
    for (size_t k = 0; k <= 5; k++) {
        cr_assert(eq(int, ranks_top(v, 5, k, mark), KVF_OK));
        for (int i = 0; i < 5; i++)
            cr_expect(eq(int, mark[i], want[k][i]));
    }
}

Test(ranks, correlation)
{
    /* Deviations -2 -1 0 1 2 and -2 1 -1 0 2: products 4 - 1 + 0 + 0 + 4 = 7 of 10. */
    const double x[5] = {1, 2, 3, 4, 5}, y[5] = {1, 4, 2, 3, 5}, down[5] = {5, 4, 3, 2, 1};
    const double flat[5] = {.1, .1, .1, .1, .1};
    cr_expect(eq(dbl, ranks_correlation(x, y, 5), .7));
    cr_expect(eq(dbl, ranks_correlation(y, y, 5), 1));
    cr_expect(eq(dbl, ranks_correlation(x, down, 5), -1));
    cr_expect(isnan(ranks_correlation(x, flat, 5)));
    cr_expect(isnan(ranks_correlation(flat, x, 5)));
    cr_expect(isnan(ranks_correlation(x, y, 1)));
    cr_expect(isnan(ranks_correlation(x, y, 0)));
}

Test(ranks, what_is_constant_has_no_correlation_though_its_mean_is_rounded)
{
    double x[49], y[49];
    for (int n = 2; n <= 49; n++)
        for (int k = 1; k < 20; k++) {
            for (int i = 0; i < n; i++) {
                x[i] = i;
                y[i] = k * .1;
            }
            cr_expect(isnan(ranks_correlation(x, y, (size_t)n)), "%d of %g", n, k * .1);
            cr_expect(isnan(ranks_correlation(y, x, (size_t)n)), "%d of %g", n, k * .1);
        }
}

Test(ranks, chance_overlap)
{
    /* n = 4, k = 2: of 6 sets B, 1 shares both (1), 4 share one (1/3), 1 shares 0. */
    cr_expect(ieee_ulp_eq(dbl, ranks_chance_overlap(4, 2), (1 + 4. / 3) / 6, 64));
    /* n = 3, k = 2: 1 of 3 shares both, 2 share one. */
    cr_expect(ieee_ulp_eq(dbl, ranks_chance_overlap(3, 2), (1 + 2. / 3) / 3, 64));
    cr_expect(ieee_ulp_eq(dbl, ranks_chance_overlap(5, 5), 1., 64));
    cr_expect(ieee_ulp_eq(dbl, ranks_chance_overlap(10, 1), .1, 64));
    cr_expect(isnan(ranks_chance_overlap(4, 0)));
    /* Close to p / (2 - p) of large sets. */
    cr_expect(epsilon_eq(dbl, ranks_chance_overlap(100000, 10000), .1 / 1.9, 1e-4));
}

/* test_vmath.c - functions over arrays compared with the scalar functions in long double. */
#include "base/vmath.h"
#include "tests/suite.h"

enum { N = 1003 };

static void compare(const double *x)
{
    double out[N];
    vmath_expm1(x, out, N);
    for (int i = 0; i < N; i++) {
        double want = (double)expm1l(x[i]), unit = nextafter(fabs(want), INFINITY) - fabs(want);
        cr_assert(out[i] == want || fabs(out[i] - want) <= 2 * unit, "%a: %a, not %a", x[i], out[i],
                  want);
    }
}

/* Covers all magnitudes below 1: tiny x where the result is x, around the halves of ln 2, and where
 * the result is close to -1. */
Test(vmath, expm1_within_two_units_of_the_last_place)
{
    double x[N];
    struct rng r = rng_seeded(11);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < N; i++) {
            double u = rng_uniform(&r);
            x[i] = i % 3 == 0 ? -exp(60 * u - 56) : i % 3 == 1 ? -42 * u : 3 * u - 1.5;
        }
        compare(x);
    }
    for (int i = 0; i < N; i++)
        x[i] = (i - N / 2) * .34657359027997264 + (i % 7 - 3) * 1e-15;
    compare(x);
}

Test(vmath, expm1_of_what_is_no_usual_number)
{
    const double x[] = {0,    -0.,  NAN,   -INFINITY, INFINITY, -1e300, 1e300, -1e-310, 5e-324,
                        -708, -750, 709.7, 710,       700,      -40,    -39.9, 1};
    enum { SOME = sizeof x / sizeof *x };
    double out[SOME];
    vmath_expm1(x, out, SOME);
    for (int i = 0; i < SOME; i++) {
        double want = expm1(x[i]);
        cr_expect(isnan(want) ? isnan(out[i]) : out[i] == want || fabs(out[i] / want - 1) < 4e-16,
                  "%g: %g, not %g", x[i], out[i], want);
    }
    vmath_expm1(x, out, 0);
}

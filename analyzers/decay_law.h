/* decay_law.h - laws of decay fitted by maximum likelihood to lives in steps, some cut short.
 *
 * By a law the share exp(-u[m]) lives on past m steps, u[m] = lambda B[m]^shape, with B[0] =
 * 0 and B rising: the geometric law has B[m] = m and the shape 1, the discrete Weibull law
 * (Nakagawa and Osaki 1975) B[m] = m and any shape, a power law B[m] = log((a + m) / a) and the
 * shape 1, where lambda is its exponent. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct decay_data {
    int64_t n;
    const int64_t *died; /* [n] lives that reach m and not m + 1 */
    const int64_t *left; /* [n + 1] lives of which is known that they reach m, and no more */
};

struct decay_fit {
    double lambda, shape;
    double lambda_error, shape_error; /* standard errors of the logarithms */
    double log_likelihood;
    bool known; /* false: no deaths, all die at once, or no maximum with a shape of exp(-9) to
                   exp(9) */
};

/* log_b: [n + 1] logarithms of B, -INFINITY for m = 0. */
struct decay_fit decay_law_fit(const struct decay_data *x, const double *log_b, bool any_shape);

/* log of the probability to die in step m, and of reaching m. */
double decay_law_died(const struct decay_fit *f, const double *log_b, int64_t m);
double decay_law_left(const struct decay_fit *f, const double *log_b, int64_t m);

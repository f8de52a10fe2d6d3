/* stats.h - sums and order statistics used by several rooms. */
#ifndef KVF_BASE_STATS_H
#define KVF_BASE_STATS_H

#include <stddef.h>

/* Neumaier's compensated sum: zero-initialise, add, read. */
struct sum {
    double s, c;
};
void sum_add(struct sum *a, double x);
double sum_get(const struct sum *a);

/* Quantile q in [0, 1] of n > 0 values by linear interpolation (type 7 of
 * Hyndman and Fan 1996).  Sorts v in place.  NaN if any value is NaN. */
double stats_quantile(double *v, size_t n, double q);
double stats_mean(const double *v, size_t n); /* NaN for n == 0 */

#endif

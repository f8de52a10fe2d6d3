/* stats.h - sums and order statistics used by several rooms. */
#ifndef KVF_BASE_STATS_H
#define KVF_BASE_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

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

/* The sum of exp(k x) for whole k from 0 to n - 1, x <= 0 (-INFINITY too), n >= 0:
 * expm1(n x) / expm1(x), or n for x = 0.  Exact to a few ulp for every x and n. */
double stats_geometric(double x, double n);

/* 95 % interval of a share of yes in n > 0 (Wilson 1927): exactly 0 below for none, 1 above
 * for all. */
void stats_wilson(int64_t yes, int64_t n, double *ret_low, double *ret_high);

/* Share of the beta distribution of a, b > 0 below x, and the x below which the share q lies:
 * good to 1e-9 for a and b up to 1e8. */
double stats_beta_cdf(double x, double a, double b);
double stats_beta_quantile(double q, double a, double b);

/* 95 % interval of the mean by the percentile bootstrap: quantiles 0.025 and 0.975 of
 * the means of `replicates` samples of n values drawn with replacement.  Which are
 * drawn depends on n, replicates and seed alone.  NaN for n < 2.  KVF_OK or
 * KVF_E_NOMEM. */
int stats_bootstrap_mean(const double *v, size_t n, int replicates, uint64_t seed,
                         double *ret_low, double *ret_high);

#endif

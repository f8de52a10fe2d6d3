/* stats.h - sums and order statistics used by several rooms. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

/* Neumaier's compensated sum: zero-initialise, add, read. */
struct sum {
    double s, c;
};
static inline void sum_add(struct sum *a, double x)
{
    double t = a->s + x;
    a->c += fabs(a->s) >= fabs(x) ? (a->s - t) + x : (x - t) + a->s;
    a->s = t;
}
double sum_get(const struct sum *a);
/* Adds another compensated sum to this one. */
void sum_merge(struct sum *a, const struct sum *b);
/* Adds the values that are no NaN, and returns their number.  Eight parallel compensated sums
 * depend only on n and the values; then they are added into *a in order. */
int64_t sum_add_known(struct sum *a, const double *v, int64_t n);

/* Quantile q in [0, 1] of n > 0 values by linear interpolation (type 7 of
 * Hyndman and Fan 1996).  Sorts v in place.  NaN if any value is NaN. */
double stats_quantile(double *v, size_t n, double q);
double stats_mean(const double *v, size_t n); /* NaN for n == 0 */

/* The sum of exp(k x) for integers k from 0 to n - 1, x <= 0 (-INFINITY too), n >= 0:
 * expm1(n x) / expm1(x), or n for x = 0.  Exact to a few ulp for every x and n. */
double stats_geometric(double x, double n);

/* Quantile 0.975 of the normal distribution: the half width of a 95 % CI in standard errors. */
#define STATS_Z975 1.959963984540054

/* 95 % interval of a share of yes in n > 0 (Wilson 1927): the low end is exactly 0 for yes = 0, the
 * high end 1 for yes = n. */
void stats_wilson(int64_t yes, int64_t n, double *ret_low, double *ret_high);

/* Share of the beta distribution of a, b > 0 below x, and the x with the share q below it:
 * good to 1e-9 for a and b up to 1e8. */
double stats_beta_cdf(double x, double a, double b);
double stats_beta_quantile(double q, double a, double b);
/* As above for n quantiles, four side by side; each has the same bits as a single call. */
void stats_beta_quantiles(const double *q, const double *a, const double *b, size_t n, double *out);

/* Intervals over few units, such as documents: with fewer than STATS_LEAST units there is no
 * interval, with fewer than STATS_FEW one by Student's t, otherwise one by the bootstrap. */
enum { STATS_LEAST = 4, STATS_FEW = 10 };

/* 95 % interval of the mean of n values: NaN for n < STATS_LEAST, stats_t_interval for n <
 * STATS_FEW, else the quantiles stats_tail(n) and 1 - stats_tail(n) of the means of `replicates`
 * samples of n values drawn with replacement.  The samples depend only on n, replicates and seed.
 * KVF_OK or KVF_E_NOMEM. */
int stats_mean_interval(const double *v, size_t n, int replicates, uint64_t seed, double *ret_low,
                        double *ret_high);

/* The quantile of a bootstrap distribution of n > 1 units that is the lower end of a 95 % interval:
 * Phi(-t(0.975, n - 1) sqrt(n / (n - 1))), the expanded percentile interval of Hesterberg (2015).
 * 0.025 for n without bound, 0.0086 for n = 10: the plain percentiles cover 90 % there. */
double stats_tail(size_t n);

/* Quantile 0.975 of Student's t with df > 0 degrees of freedom. */
double stats_t(double df);

/* 95 % interval of the mean by Student's t (1908): mean +- t(0.975, n - 1) s / sqrt(n), which
 * covers at small n, too, where the values are near normal.  NaN for n < 2. */
void stats_t_interval(const double *v, size_t n, double *ret_low, double *ret_high);

/* The radius of a 95 % interval by the jackknife (Tukey 1958): t(0.975, n - 1) times the root of
 * (n - 1) / n times the sum of squares of left_out[i] - their mean, where left_out[i] is the
 * statistic of all units but the i-th.  For a mean this is the radius of stats_t_interval.  NaN for
 * n < 2. */
double stats_jackknife(const double *left_out, size_t n);

/* Two-sided p of the paired permutation test: under the hypothesis that each of the n differences
 * is as likely to have the opposite sign, the share of sign patterns with a mean at least as far
 * from 0 as the observed one.  All 2^n patterns up to n = STATS_ALL_SIGNS; above, of `samples` >= 1
 * random ones the share (1 + as far) / (1 + samples), a valid p too (Phipson and Smyth 2010), which
 * depends only on the values, their order, samples and seed.  Means that differ by less than 1e-12
 * of mean |v| are equally far: sums are rounded.  NaN for n = 0 and when a difference is NaN or
 * infinite. */
enum { STATS_ALL_SIGNS = 14 };
double stats_sign_flips(const double *v, size_t n, int samples, uint64_t seed);

/* Benjamini and Hochberg (1995): q[i] = the least m p_(j) / j over the ranks j at and above
 * that of p[i] of the m values that are no NaN, at most 1; NaN stays.  Rejecting all with q <= Q
 * keeps the expected share of false ones at Q or less when the tests are independent or
 * positively dependent.  q may be p.  KVF_OK or KVF_E_NOMEM. */
int stats_fdr(const double *p, size_t n, double *q);

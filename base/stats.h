/* stats.h - sums, order statistics, confidence intervals and tests. */
#ifndef KVF_BASE_STATS_H
#define KVF_BASE_STATS_H

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
/* Returns the value of the sum. */
double sum_get(const struct sum *a);
/* Adds another compensated sum to this sum. */
void sum_merge(struct sum *a, const struct sum *b);
/* Adds the values of v [n] that are not NaN, and returns their number. Uses eight interleaved
 * compensated sums that depend only on n and the values, and then adds them to *a in order. */
int64_t sum_add_known(struct sum *a, const double *v, int64_t n);

/* Returns the quantile q in [0, 1] of n > 0 values by linear interpolation (type 7 of Hyndman and
 * Fan 1996). Sorts v in place. NaN if any value is NaN. */
double stats_quantile(double *v, size_t n, double q);
double stats_mean(const double *v, size_t n); /* NaN for n == 0 */

/* Returns the sum of exp(k x) for integers k from 0 to n - 1, x <= 0 (also -INFINITY), n >= 0:
 * expm1(n x) / expm1(x), or n for x = 0. Exact to a few ulp for every x and n. */
double stats_geometric(double x, double n);

/* Quantile 0.975 of the normal distribution: the half width of a 95 % CI in standard errors. */
#define STATS_Z975 1.959963984540054

/* Computes the 95 % CI of a proportion, yes of n > 0 (Wilson 1927). The lower end is exactly 0 for
 * yes = 0, and the upper end exactly 1 for yes = n. */
void stats_wilson(int64_t yes, int64_t n, double *ret_low, double *ret_high);

/* Return the cumulative distribution of the beta distribution with a, b > 0 at x, and its quantile
 * q, accurate to 1e-9 for a and b up to 1e8. */
double stats_beta_cdf(double x, double a, double b);
double stats_beta_quantile(double q, double a, double b);
/* Computes n beta quantiles, four at a time, each with the bits of stats_beta_quantile(). */
void stats_beta_quantiles(const double *q, const double *a, const double *b, size_t n, double *out);

/* CI over few units, such as documents: fewer than STATS_LEAST units have none, fewer than
 * STATS_FEW use Student's t, and others use the bootstrap. */
enum { STATS_LEAST = 4, STATS_FEW = 10 };

/* Computes the 95 % CI of the mean of n values: NaN for n < STATS_LEAST, and stats_t_interval()
 * for n < STATS_FEW. Otherwise it is the quantiles stats_tail(n) and 1 - stats_tail(n) of the
 * means of `replicates` samples of n values drawn with replacement. The samples depend only on n,
 * replicates and seed. Returns KVF_OK or KVF_E_NOMEM. */
int stats_mean_interval(const double *v, size_t n, int replicates, uint64_t seed, double *ret_low,
                        double *ret_high);

/* Returns the quantile of a bootstrap distribution of n > 1 units that is the lower end of a 95 %
 * CI: Phi(-t(0.975, n - 1) sqrt(n / (n - 1))), the expanded percentile interval of Hesterberg
 * (2015). It is 0.0086 for n = 10, where plain percentiles cover 90 %, and tends to 0.025 for
 * large n. */
double stats_tail(size_t n);

/* Returns the quantile 0.975 of Student's t with df > 0 degrees of freedom. */
double stats_t(double df);

/* Computes the 95 % CI of the mean by Student's t (1908): mean +- t(0.975, n - 1) s / sqrt(n). It
 * has the right coverage also for small n if the values are nearly normal. NaN for n < 2. */
void stats_t_interval(const double *v, size_t n, double *ret_low, double *ret_high);

/* Returns the half width of a 95 % CI by the jackknife (Tukey 1958): t(0.975, n - 1) times the
 * root of (n - 1) / n times the sum of squares of left_out[i] minus their mean, where left_out[i]
 * is the statistic of all units except the i-th. For a mean it equals the half width of
 * stats_t_interval(). NaN for n < 2. */
double stats_jackknife(const double *left_out, size_t n);

/* Returns the two-sided p of the paired permutation test. Under the hypothesis that each of the n
 * differences has either sign with equal probability, p is the fraction of sign patterns with a
 * mean at least as far from 0 as the observed mean. All 2^n patterns are used up to n =
 * STATS_ALL_SIGNS. Above, p is (1 + as far) / (1 + samples) of `samples` >= 1 random patterns,
 * which is a valid p, too (Phipson and Smyth 2010). It depends only on the values, their order,
 * samples and seed. Means that differ by less than 1e-12 of mean |v| count as equal, because sums
 * are rounded. NaN for n = 0 and if a difference is NaN or infinite. */
enum { STATS_ALL_SIGNS = 14 };
double stats_sign_flips(const double *v, size_t n, int samples, uint64_t seed);

/* Computes q values by Benjamini and Hochberg (1995): q[i] is the smallest m p_(j) / j over the
 * ranks j at and above that of p[i], of the m values that are not NaN, at most 1. NaN stays NaN.
 * Rejecting all with q <= Q keeps the expected fraction of false rejections at Q or less if the
 * tests are independent or positively dependent. q may be p. Returns KVF_OK or KVF_E_NOMEM. */
int stats_fdr(const double *p, size_t n, double *q);

#endif

/* stats.c - sums, quantiles, intervals and tests (stats.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "base/rng.h"
#include "base/stats.h"

double sum_get(const struct sum *a)
{
    return isfinite(a->s) ? a->s + a->c : a->s; /* with infinities c is NaN and not needed */
}

void sum_merge(struct sum *a, const struct sum *b)
{
    sum_add(a, b->s);
    a->c += b->c;
}

/* Adds v[0 .. n), n a multiple of 8, to eight sums side by side, in vectors of so many; returns how
 * many are NaN, which count as 0.  The error of an addition is as exact as that of sum_add, without
 * asking which of the two is larger (Knuth 1969). */
enum { SUMS = 8 };
#define ADD_EIGHT(name, width, attribute)                                                          \
    attribute static int64_t name(struct sum *to, const double *v, int64_t n)                      \
    {                                                                                              \
        typedef double lanes __attribute__((vector_size(width * sizeof(double))));                 \
        typedef int64_t masks __attribute__((vector_size(width * sizeof(int64_t))));               \
        lanes s[SUMS / width] = {{0}}, c[SUMS / width] = {{0}}, x;                                 \
        masks unknown = {0};                                                                       \
        int64_t n_unknown = 0;                                                                     \
        for (int64_t i = 0; i < n; i += SUMS)                                                      \
            for (int k = 0; k < SUMS / width; k++) {                                               \
                memcpy(&x, v + i + width * k, sizeof x);                                           \
                masks nan = x != x;                                                                \
                x = (lanes)((masks)x & ~nan);                                                      \
                lanes t = s[k] + x, of_x = t - s[k];                                               \
                c[k] += (s[k] - (t - of_x)) + (x - of_x);                                          \
                s[k] = t;                                                                          \
                unknown -= nan; /* of all ones: -1 */                                              \
            }                                                                                      \
        for (int k = 0; k < SUMS; k++)                                                             \
            to[k] = (struct sum){s[k / width][k % width], c[k / width][k % width]};                \
        for (int side = 0; side < width; side++)                                                   \
            n_unknown += unknown[side];                                                            \
        return n_unknown;                                                                          \
    }
ADD_EIGHT(add_pairs, 2, )
#if defined(__x86_64__)
ADD_EIGHT(add_fours, 4, __attribute__((target("avx2"))))
#endif
#undef ADD_EIGHT

int64_t sum_add_known(struct sum *a, const double *v, int64_t n)
{
    int64_t (*add_eight)(struct sum *, const double *, int64_t) = add_pairs;
    struct sum eight[SUMS];
    int64_t whole = n - n % SUMS;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        add_eight = add_fours;
#endif
    int64_t known = n - add_eight(eight, v, whole);
    for (int k = 0; k < SUMS; k++)
        sum_merge(a, &eight[k]);
    for (int64_t i = whole; i < n; i++)
        if (isnan(v[i]))
            known--;
        else
            sum_add(a, v[i]);
    return known;
}

double stats_quantile(double *v, size_t n, double q)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(v[i]))
            return NAN;
    qsort(v, n, sizeof *v, order_double);
    double at = q * (double)(n - 1);
    size_t lo = (size_t)at, hi = lo + 1 < n ? lo + 1 : lo;
    return v[lo] + (at - (double)lo) * (v[hi] - v[lo]);
}

double stats_mean(const double *v, size_t n)
{
    struct sum s = {0};
    for (size_t i = 0; i < n; i++)
        sum_add(&s, v[i]);
    return n ? sum_get(&s) / (double)n : NAN;
}

double stats_tail(size_t n)
{
    double df = (double)n - 1, z = stats_t(df) * sqrt((double)n / df);
    return erfc(z / sqrt(2)) / 2;
}

static int bootstrap_mean(const double *v, size_t n, int replicates, uint64_t seed, double *ret_low,
                          double *ret_high)
{
    struct rng r;
    double *mean = MEM_NEW(double, (size_t)replicates);
    if (!mean)
        return KVF_E_NOMEM;
    rng_init(&r, seed);
    for (int i = 0; i < replicates; i++) {
        struct sum s = {0};
        for (size_t k = 0; k < n; k++)
            sum_add(&s, v[rng_below(&r, n)]);
        mean[i] = sum_get(&s) / (double)n;
    }
    *ret_low = stats_quantile(mean, (size_t)replicates, stats_tail(n));
    *ret_high = stats_quantile(mean, (size_t)replicates, 1 - stats_tail(n));
    mem_free(mean);
    return KVF_OK;
}

int stats_mean_interval(const double *v, size_t n, int replicates, uint64_t seed, double *ret_low,
                        double *ret_high)
{
    *ret_low = *ret_high = NAN;
    if (n >= STATS_FEW)
        return bootstrap_mean(v, n, replicates, seed, ret_low, ret_high);
    if (n >= STATS_LEAST)
        stats_t_interval(v, n, ret_low, ret_high);
    return KVF_OK;
}

double stats_geometric(double x, double n)
{
    if (x == 0 || n <= 1) /* n = 0 with x = -INFINITY, too */
        return isnan(x) ? x : n;
    return expm1(n * x) / expm1(x);
}

void stats_wilson(int64_t yes, int64_t n, double *ret_low, double *ret_high)
{
    const double z = STATS_Z975;
    double N = (double)n, p = (double)yes / N, centre = p + z * z / (2 * N);
    double radius = z * sqrt(p * (1 - p) / N + z * z / (4 * N * N)), scale = 1 + z * z / N;
    *ret_low = yes == 0 ? 0 : (centre - radius) / scale;
    *ret_high = yes == n ? 1 : (centre + radius) / scale;
}

/* P(|T| > t) is the beta distribution of df / 2 and 1 / 2 at df / (df + t^2). */
double stats_t(double df)
{
    double x = stats_beta_quantile(.05, df / 2, .5);
    return sqrt(df * (1 - x) / x);
}

static double squares_of(const double *v, size_t n, double mean)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    return squares;
}

void stats_t_interval(const double *v, size_t n, double *ret_low, double *ret_high)
{
    double mean = stats_mean(v, n), df = (double)n - 1;
    *ret_low = *ret_high = NAN;
    if (n < 2)
        return;
    double radius = stats_t(df) * sqrt(squares_of(v, n, mean) / df / (double)n);
    *ret_low = mean - radius;
    *ret_high = mean + radius;
}

double stats_jackknife(const double *left_out, size_t n)
{
    double df = (double)n - 1;
    if (n < 2)
        return NAN;
    return stats_t(df) * sqrt(df / (double)n * squares_of(left_out, n, stats_mean(left_out, n)));
}

/* Patterns in Gray code: each differs from its predecessor in one sign, at the place of the lowest
 * bit of the count.  Recomputed at every 64th, so that rounding does not grow. */
static double all_signs(const double *v, size_t n, double far)
{
    int64_t as_far = 0, patterns = (int64_t)1 << n;
    uint64_t minus = 0;
    double s = 0;
    for (int64_t k = 0; k < patterns; k++) {
        size_t place = 0;
        while (k && !((uint64_t)k >> place & 1))
            place++;
        if (k) {
            minus ^= (uint64_t)1 << place;
            s += minus >> place & 1 ? -2 * v[place] : 2 * v[place];
        }
        if (k % 64 == 0) {
            s = 0;
            for (size_t i = 0; i < n; i++)
                s += minus >> i & 1 ? -v[i] : v[i];
        }
        as_far += fabs(s) >= far;
    }
    return (double)as_far / (double)patterns;
}

static double some_signs(const double *v, size_t n, int samples, uint64_t seed, double far)
{
    struct rng r;
    int64_t as_far = 1;
    rng_init(&r, seed);
    for (int k = 0; k < samples; k++) {
        double s = 0;
        uint64_t bits = 0;
        for (size_t i = 0; i < n; i++, bits >>= 1) {
            if (i % 64 == 0)
                bits = rng_next(&r);
            s += bits & 1 ? -v[i] : v[i];
        }
        as_far += fabs(s) >= far;
    }
    return (double)as_far / ((double)samples + 1);
}

double stats_sign_flips(const double *v, size_t n, int samples, uint64_t seed)
{
    struct sum s = {0}, size = {0};
    for (size_t i = 0; i < n; i++) {
        sum_add(&s, v[i]);
        sum_add(&size, fabs(v[i]));
    }
    double far = fabs(sum_get(&s)) - 1e-12 * sum_get(&size);
    if (n == 0 || !isfinite(far))
        return NAN;
    return n <= STATS_ALL_SIGNS ? all_signs(v, n, far) : some_signs(v, n, samples, seed, far);
}

static int by_pointed(const void *a, const void *b)
{
    const double *x = *(const double *const *)a, *y = *(const double *const *)b;
    return (*x > *y) - (*x < *y);
}

int stats_fdr(const double *p, size_t n, double *q)
{
    const double **order = MEM_NEW(const double *, n);
    size_t m = 0;
    double least = 1;
    if (!order)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        if (isnan(p[i]))
            q[i] = NAN;
        else
            order[m++] = &p[i];
    qsort((void *)order, m, sizeof *order, by_pointed);
    for (size_t j = m; j > 0; j--) { /* with q = p each value is read before its place is written */
        least = fmin(least, *order[j - 1] * (double)m / (double)j);
        q[order[j - 1] - p] = least;
    }
    mem_free((void *)order);
    return KVF_OK;
}

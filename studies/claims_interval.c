/* claims_interval.c - the number of a sample of units, its 95 % interval, and the p of the null. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/ranks.h"
#include "base/rng.h"
#include "base/stats.h"
#include "studies/claims.h"

static const uint64_t SEED = 1;
enum { MOST_LEFT_OUT = 1000 }; /* above, the acceleration of BCa, of order n^-1/2, is taken as 0 */

/* ---- samples */

int claim_sample_create(int64_t count, struct claim_sample *ret)
{
    size_t n = (size_t)count;
    *ret = (struct claim_sample){.n = count,
                                 .value = MEM_NEW(double, n),
                                 .with = MEM_NEW(double, n),
                                 .a = MEM_NEW(double, n),
                                 .b = MEM_NEW(double, n),
                                 .which = MEM_NEW(int64_t, n)};
    bool all = ret->value && ret->with && ret->a && ret->b && ret->which;
    return all ? KVF_OK : KVF_E_NOMEM;
}

void claim_sample_free(struct claim_sample *s)
{
    mem_free(s->value);
    mem_free(s->with);
    mem_free(s->a);
    mem_free(s->b);
    mem_free(s->which);
    *s = (struct claim_sample){0};
}

/* The claim's number of n values; changes the order of v.  with: for spearman. */
static double reduce(const struct claim *c, double *v, double *with, int64_t n)
{
    double yes = 0;
    switch (c->reduce) {
    case CLAIM_MEDIAN:
        return stats_quantile(v, (size_t)n, 0.5);
    case CLAIM_LEAST:
        return stats_quantile(v, (size_t)n, 0);
    case CLAIM_LARGEST:
        return stats_quantile(v, (size_t)n, 1);
    case CLAIM_SPREAD:
        return stats_quantile(v, (size_t)n, 0.9) - stats_quantile(v, (size_t)n, 0.1);
    case CLAIM_SHARE:
        for (int64_t i = 0; i < n; i++)
            yes += c->at_than == CLAIM_ABOVE ? v[i] > c->at : v[i] < c->at;
        return yes / (double)n;
    case CLAIM_SPEARMAN:
        if (ranks_average(v, (size_t)n, v) || ranks_average(with, (size_t)n, with))
            return NAN; /* out of memory: undecided rather than wrong */
        return ranks_correlation(with, v, (size_t)n);
    default:
        return stats_mean(v, (size_t)n);
    }
}

/* The number of n of the units, less that of the same units of s->less. */
static double of_units(const struct claim *c, struct claim_sample *s, const int64_t *which,
                       int64_t n)
{
    double x = 0;
    for (int side = 0; side < (s->less ? 2 : 1); side++) {
        const struct claim_sample *from = side ? s->less : s;
        for (int64_t i = 0; i < n; i++) {
            s->a[i] = from->value[which[i]];
            s->b[i] = from->with[which[i]];
        }
        x = side ? x - reduce(c, s->a, s->b, n) : reduce(c, s->a, s->b, n);
    }
    return x;
}

double claims_statistic(const struct claim *c, struct claim_sample *s)
{
    for (int64_t i = 0; i < s->n; i++)
        s->which[i] = i;
    return of_units(c, s, s->which, s->n);
}

/* Of units that the generator draws with replacement. */
static double of_draw(const struct claim *c, struct claim_sample *s, struct rng *r)
{
    for (int64_t i = 0; i < s->n; i++)
        s->which[i] = (int64_t)rng_below(r, (uint64_t)s->n);
    return of_units(c, s, s->which, s->n);
}

static double of_all_but(const struct claim *c, struct claim_sample *s, int64_t out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (i != out)
            s->which[n++] = i;
    return of_units(c, s, s->which, n);
}

/* ---- the normal law */

static double normal_below(double z)
{
    return erfc(-z / sqrt(2)) / 2;
}

/* The z below which the share p in (0, 1) lies, by halving. */
static double normal_quantile(double p)
{
    double low = -10, high = 10;
    for (int k = 0; k < 60; k++) {
        double mid = (low + high) / 2;
        *(normal_below(mid) < p ? &low : &high) = mid;
    }
    return (low + high) / 2;
}

double claims_p_of_z(double z)
{
    return erfc(fabs(z) / sqrt(2));
}

/* ---- Student's t: a p has the beta distribution of (n - 1) / 2 and 1 / 2 at df / (df + t^2) */

static double t_p(const struct claim_sample *s, double null)
{
    double mean = stats_mean(s->value, (size_t)s->n), squares = 0, df = (double)s->n - 1;
    for (int64_t i = 0; i < s->n; i++)
        squares += (s->value[i] - mean) * (s->value[i] - mean);
    double variance = squares / df / (double)s->n, far = mean - null;
    if (!(variance > 0))
        return far == 0 ? 1 : 0;
    return stats_beta_cdf(df / (df + far * far / variance), df / 2, 0.5);
}

/* ---- BCa (Efron 1987): the percentiles of the bootstrap, moved by bias and acceleration */

struct bca {
    double *v; /* [n] replicates, sorted */
    size_t n;
    double bias, acceleration;
};

/* The share of replicates below x, equal ones by half, never 0 or 1. */
static double share_below(const struct bca *b, double x)
{
    double below = 0;
    for (size_t i = 0; i < b->n; i++)
        below += b->v[i] < x ? 1 : 0.5 * (b->v[i] == x);
    return fmin(fmax(below, 0.5), (double)b->n - 0.5) / (double)b->n;
}

static double acceleration(const struct claim *c, struct claim_sample *s)
{
    double *v = MEM_NEW(double, (size_t)s->n), squares = 0, cubes = 0;
    if (!v || s->n > MOST_LEFT_OUT) {
        mem_free(v);
        return 0;
    }
    for (int64_t i = 0; i < s->n; i++)
        v[i] = of_all_but(c, s, i);
    double mean = stats_mean(v, (size_t)s->n);
    for (int64_t i = 0; i < s->n; i++) {
        double x = mean - v[i];
        squares += x * x;
        cubes += x * x * x;
    }
    mem_free(v);
    return squares > 0 && isfinite(cubes) ? cubes / (6 * pow(squares, 1.5)) : 0;
}

static double bca_end(const struct bca *b, double share)
{
    double z = b->bias + normal_quantile(share), bent = 1 - b->acceleration * z;
    double at = bent > 0 ? normal_below(b->bias + z / bent) : (z > 0);
    return stats_quantile(b->v, b->n, at);
}

/* The share whose interval ends at the null, inverted. */
static double bca_p(const struct bca *b, double null)
{
    double w = normal_quantile(share_below(b, null)) - b->bias, bent = 1 + b->acceleration * w;
    double z = bent > 0 ? w / bent - b->bias : copysign(10, w);
    return fmax(claims_p_of_z(z), 1.0 / (double)b->n);
}

static int bca(const struct claim *c, struct claim_sample *s, struct claim_result *r, double *ret_p,
               double *ret_p_high)
{
    struct rng g;
    struct bca b = {.v = MEM_NEW(double, CLAIM_REPLICATES)};
    if (!b.v)
        return KVF_E_NOMEM;
    rng_init(&g, SEED);
    for (int k = 0; k < CLAIM_REPLICATES; k++) {
        double x = of_draw(c, s, &g);
        if (!isnan(x)) /* a correlation with one rank alone has none */
            b.v[b.n++] = x;
    }
    if (b.n >= CLAIM_REPLICATES / 2) {
        b.bias = normal_quantile(share_below(&b, r->value));
        b.acceleration = acceleration(c, s);
        r->low = bca_end(&b, CLAIM_LEVEL / 2);
        r->high = bca_end(&b, 1 - CLAIM_LEVEL / 2);
        *ret_p = bca_p(&b, c->null);
        *ret_p_high = bca_p(&b, c->null_high);
    }
    mem_free(b.v);
    return KVF_OK;
}

/* ---- permutations */

/* Two-sided p that the order of the values has nothing to do with `with`. */
static int shuffle_p(struct claim_sample *s, double *ret)
{
    struct rng g;
    int64_t as_far = 0;
    int err = ranks_average(s->value, (size_t)s->n, s->a);
    if (err)
        return err;
    err = ranks_average(s->with, (size_t)s->n, s->b);
    if (err)
        return err;
    double seen = fabs(ranks_correlation(s->b, s->a, (size_t)s->n));
    if (isnan(seen))
        return KVF_OK;
    rng_init(&g, SEED);
    for (int k = 0; k < CLAIM_SAMPLES; k++) {
        for (int64_t i = s->n - 1; i > 0; i--) {
            int64_t j = (int64_t)rng_below(&g, (uint64_t)i + 1);
            double keep = s->a[i];
            s->a[i] = s->a[j];
            s->a[j] = keep;
        }
        as_far += fabs(ranks_correlation(s->b, s->a, (size_t)s->n)) >= seen - 1e-12;
    }
    *ret = (1 + (double)as_far) / (1 + CLAIM_SAMPLES);
    return KVF_OK;
}

static int permute(const struct claim *c, struct claim_sample *s, double *ret)
{
    if (c->reduce == CLAIM_SPEARMAN)
        return shuffle_p(s, ret);
    for (int64_t i = 0; i < s->n; i++)
        s->a[i] = s->value[i] - c->null;
    *ret = stats_sign_flips(s->a, (size_t)s->n, CLAIM_SAMPLES, SEED);
    return KVF_OK;
}

/* ---- together */

/* p of the score test of a share, of which Wilson's interval is the inversion. */
static double share_p(double share, double null, int64_t n)
{
    double variance = null * (1 - null) / (double)n;
    if (!(variance > 0))
        return share == null ? 1 : 0;
    return claims_p_of_z((share - null) / sqrt(variance));
}

double claims_p_between(const struct claim *c, double value, double low, double high)
{
    if (c->than != CLAIM_BETWEEN)
        return low;
    if (value < c->null)
        return low;
    return value > c->null_high ? high : fmax(low, high);
}

int claims_interval(const struct claim *c, struct claim_sample *s, struct claim_result *r)
{
    double p = NAN, high = NAN;
    int err = KVF_OK;
    if (c->interval == CLAIM_NONE || s->n < 2)
        return KVF_OK;
    if (c->interval == CLAIM_WILSON) {
        stats_wilson((int64_t)llround(r->value * (double)s->n), s->n, &r->low, &r->high);
        p = share_p(r->value, c->null, s->n);
        high = share_p(r->value, c->null_high, s->n);
    } else if (c->reduce == CLAIM_MEAN && c->interval != CLAIM_BCA) {
        stats_t_interval(s->value, (size_t)s->n, &r->low, &r->high);
        p = t_p(s, c->null);
        high = t_p(s, c->null_high);
    } else {
        err = bca(c, s, r, &p, &high);
    }
    if (!err && c->interval == CLAIM_PERMUTATION)
        err = permute(c, s, &p);
    r->p = claims_p_between(c, r->value, p, high);
    return err;
}

int claims_difference(const struct claim *c, struct claim_sample *s, struct claim_difference *r)
{
    struct claim zero = *c;
    struct claim_result x = {.value = r->value, .low = NAN, .high = NAN, .p = NAN};
    const struct claim_sample *less = s->less;
    zero.than = CLAIM_ABOVE;
    zero.null = 0;
    if (c->reduce == CLAIM_MEAN) { /* of the differences, by the claim's own kind of interval */
        for (int64_t i = 0; i < s->n; i++)
            s->value[i] -= less->value[i];
        s->less = NULL;
    } else if (c->interval != CLAIM_NONE) {
        zero.interval = CLAIM_BCA;
    }
    int err = claims_interval(&zero, s, &x);
    s->less = NULL;
    r->low = x.low;
    r->high = x.high;
    r->p = x.p;
    return err;
}

/* claims_coverage.c - how often the interval of a claim covers the truth at the claim's own n:
 * drawn anew from populations of 2,001 values, the quantiles of a law, whose own number is the
 * truth. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "studies/claims.h"

enum { POPULATION = 2001, DRAWS_OF_T = 2000, DRAWS_OF_BCA = 200 };
static const uint64_t SEED = 2;
const char *const claim_law_names[CLAIM_LAWS] = {"normal", "exponential", "t3"};

/* Quantile u of Student's t of df degrees of freedom, as in stats_t_interval. */
static double student(double u, double df)
{
    double x = stats_beta_quantile(2 * fmin(u, 1 - u), df / 2, 0.5);
    return copysign(sqrt(df * (1 - x) / x), u - 0.5);
}

static double quantile_of(enum claim_law law, double u)
{
    if (law == CLAIM_LAW_EXPONENTIAL)
        return -log1p(-u);
    return student(u, law == CLAIM_LAW_NORMAL ? 1e6 : 3);
}

static bool resampled(const struct claim *c)
{
    return c->reduce != CLAIM_ONE && c->reduce != CLAIM_SHARE && c->reduce != CLAIM_SPEARMAN
           && c->interval != CLAIM_NONE;
}

static int cover(const struct claim *c, struct claim_sample *all, struct claim_sample *s,
                 double *ret)
{
    /* The interval beside a permutation is its own; the p would only take time. */
    struct claim interval = *c;
    interval.interval = c->interval == CLAIM_PERMUTATION ? CLAIM_T : c->interval;
    double truth = claims_statistic(c, all);
    int draws = interval.interval == CLAIM_T ? DRAWS_OF_T : DRAWS_OF_BCA, covered = 0;
    struct rng g;
    rng_init(&g, SEED);
    for (int k = 0; k < draws; k++) {
        struct claim_result r = {.low = NAN, .high = NAN};
        for (int64_t i = 0; i < s->n; i++) {
            s->value[i] = all->value[rng_below(&g, POPULATION)];
            s->with[i] = 0;
        }
        r.value = claims_statistic(c, s);
        int err = claims_interval(&interval, s, &r);
        if (err)
            return err;
        covered += r.low <= truth && truth <= r.high;
    }
    *ret = (double)covered / draws;
    return KVF_OK;
}

int claims_coverage(const struct claim *c, int64_t n, enum claim_law law, double *ret)
{
    struct claim_sample all = {0}, s = {0};
    double covered = NAN;
    if (n < 2 || !resampled(c)) {
        *ret = NAN;
        return KVF_OK;
    }
    int err = claim_sample_create(POPULATION, &all);
    if (!err)
        err = claim_sample_create(n, &s);
    if (err)
        goto done;
    for (int i = 0; i < POPULATION; i++) {
        all.value[i] = quantile_of(law, (i + 0.5) / POPULATION);
        all.with[i] = 0;
    }
    err = cover(c, &all, &s, &covered);
    if (!err)
        *ret = covered;

done:
    claim_sample_free(&all);
    claim_sample_free(&s);
    return err;
}

/* saliency_rho.c - computes Spearman's rank correlation and its CI. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/ranks.h"
#include "base/rng.h"
#include "base/stats.h"
#include "engine/experiment/saliency.h"

enum { REPLICATES = 500, OVER_HEADS = 2000, SEED = 1 };

/* A value and its index. */
struct pair {
    double v;
    int at;
};

static int by_value(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->v != y->v ? (x->v > y->v) - (x->v < y->v) : x->at - y->at;
}

/* The sorted order of n values, and marks for values equal to the preceding one. */
struct order {
    int *at;
    unsigned char *tied;
};

static void sort_values(const double *v, int n, struct pair *p, struct order *o)
{
    for (int i = 0; i < n; i++)
        p[i] = (struct pair){v[i], i};
    qsort(p, (size_t)n, sizeof *p, by_value);
    for (int k = 0; k < n; k++) {
        o->at[k] = p[k].at;
        o->tied[k] = k > 0 && p[k].v == p[k - 1].v;
    }
}

/* Computes mean ranks in a sample that contains value i count[i] times. */
static void ranks(const struct order *o, const int *count, int n, double *rank)
{
    double before = 0;
    for (int k = 0, end; k < n; k = end) {
        double here = 0;
        for (end = k; end < n && (end == k || o->tied[end]); end++)
            here += count[o->at[end]];
        for (int i = k; i < end; i++)
            rank[o->at[i]] = before + (here + 1) / 2;
        before += here;
    }
}

/* Returns Pearson's correlation with weights; NaN if one side is constant. */
static double correlate(const double *x, const double *y, const int *count, int n)
{
    double w = 0, mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < n; i++) {
        w += count[i];
        mx += count[i] * x[i];
        my += count[i] * y[i];
    }
    for (int i = 0; i < n; i++) {
        double a = x[i] - mx / w, b = y[i] - my / w;
        xx += count[i] * a * a;
        yy += count[i] * b * b;
        xy += count[i] * a * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

/* Scratch memory for one head with up to n entries. */
struct room {
    double *x, *y, *rx, *ry, *sample;
    struct pair *pair;
    struct order ox, oy;
    int *count;
};

static void scratch_finish(struct room *r)
{
    mem_free(r->x);
    mem_free(r->pair);
    mem_free(r->ox.at);
    mem_free(r->ox.tied);
}

static int scratch_create(struct room *r, size_t n)
{
    r->x = MEM_NEW(double, 4 * n + REPLICATES);
    r->pair = MEM_NEW(struct pair, n);
    r->ox.at = MEM_NEW(int, 3 * n);
    r->ox.tied = MEM_NEW(unsigned char, 2 * n);
    if (!r->x || !r->pair || !r->ox.at || !r->ox.tied)
        return KVF_E_NOMEM;
    r->y = r->x + n;
    r->rx = r->y + n;
    r->ry = r->rx + n;
    r->sample = r->ry + n;
    r->oy.at = r->ox.at + n;
    r->count = r->oy.at + n;
    r->oy.tied = r->ox.tied + n;
    return KVF_OK;
}

static double rho(struct room *r, int n)
{
    ranks(&r->ox, r->count, n, r->rx);
    ranks(&r->oy, r->count, n, r->ry);
    return correlate(r->rx, r->ry, r->count, n);
}

/* Computes rho of the n pairs in r->x and r->y, with a bootstrap CI. */
static struct saliency_rho spearman(struct room *r, int n, uint64_t seed)
{
    struct rng rng;
    struct saliency_rho out = {NAN, NAN, NAN};
    int drawn = 0;
    if (n < 3)
        return out;
    sort_values(r->x, n, r->pair, &r->ox);
    sort_values(r->y, n, r->pair, &r->oy);
    for (int i = 0; i < n; i++)
        r->count[i] = 1;
    out.rho = rho(r, n);
    rng_init(&rng, seed);
    for (int k = 0; k < REPLICATES && !isnan(out.rho); k++) {
        for (int i = 0; i < n; i++)
            r->count[i] = 0;
        for (int i = 0; i < n; i++)
            r->count[rng_below(&rng, (uint64_t)n)]++;
        double v = rho(r, n);
        if (!isnan(v))
            r->sample[drawn++] = v;
    }
    if (drawn > 1) {
        out.low = stats_quantile(r->sample, (size_t)drawn, .025);
        out.high = stats_quantile(r->sample, (size_t)drawn, .975);
    }
    return out;
}

/* The correlations of all heads. */
struct job {
    const struct saliency *s;
    enum saliency_side side;
    const double *of;
    struct saliency_rho *out;
    struct room *room; /* [threads] */
};

/* Copies the pairs of row k: entries that reach a prediction and have a value in `of`. Returns
 * their number. */
static int pairs_of(const struct saliency *s, enum saliency_side side, const double *of, int k,
                    double *x, double *y)
{
    size_t at = (size_t)k * (size_t)s->T;
    int n = 0;
    for (int i = 0; i < s->T - 1 - s->window; i++) {
        if (isnan(of[at + (size_t)i]))
            continue;
        double v = (double)s->value[at + (size_t)i];
        x[n] = side == SALIENCY_SIZE ? fabs(v) : v;
        y[n++] = of[at + (size_t)i];
    }
    return n;
}

static void head_task(void *ctx, int k, int thread)
{
    struct job *j = ctx;
    struct room *r = &j->room[thread];
    int n = pairs_of(j->s, j->side, j->of, k, r->x, r->y);
    j->out[k] = spearman(r, n, rng_hash(SEED, (uint64_t)j->s->head[k], 0, 0));
}

/* Sets the CI of the mean over heads by resampling layers, because heads of one layer are
 * correlated. sum and count are given per layer. draw: scratch of [OVER_HEADS]. */
static void bootstrap_layers(const double *sum, const double *count, int L, double *draw,
                             struct saliency_rho *ret)
{
    struct rng rng;
    size_t drawn = 0;
    rng_init(&rng, SEED);
    for (int k = 0; k < OVER_HEADS; k++) {
        double all = 0, n = 0;
        for (int l = 0; l < L; l++) {
            size_t at = (size_t)rng_below(&rng, (uint64_t)L);
            all += sum[at];
            n += count[at];
        }
        draw[drawn++] = all / n;
    }
    ret->low = stats_quantile(draw, drawn, .025);
    ret->high = stats_quantile(draw, drawn, .975);
}

/* Computes the mean over the heads that have a rho, and its CI. */
static int pool_heads(const struct saliency *s, const struct saliency_rho *each,
                      struct saliency_rho *ret)
{
    double *room = MEM_NEW(double, 2 * (size_t)s->n + OVER_HEADS), all = 0, n = 0;
    int layers = -1, last = -1;
    if (!room)
        return KVF_E_NOMEM;
    double *sum = room, *count = room + s->n;
    for (int i = 0; i < s->n; i++) {
        if (isnan(each[i].rho))
            continue;
        layers += s->head[i] / s->H != last;
        last = s->head[i] / s->H;
        sum[layers] += each[i].rho;
        count[layers]++;
        all += each[i].rho;
        n++;
    }
    *ret = (struct saliency_rho){n > 0 ? all / n : NAN, NAN, NAN};
    if (layers > 0)
        bootstrap_layers(sum, count, layers + 1, room + 2 * s->n, ret);
    mem_free(room);
    return KVF_OK;
}

int saliency_rhos(const struct saliency *s, enum saliency_side side, const double *of,
                  struct par *pool, const struct progress_callback *progress,
                  struct saliency_rho *ret, struct saliency_rho *ret_all)
{
    int threads = par_threads(pool), heads = s->n, err = KVF_OK;
    struct job j = {s, side, of, ret, MEM_NEW(struct room, (size_t)threads)};
    if (!j.room)
        return KVF_E_NOMEM;
    for (int i = 0; i < threads; i++) {
        err = scratch_create(&j.room[i], (size_t)s->T);
        if (err)
            goto done;
    }
    par_run_watched(pool, heads, head_task, &j, progress);
    err = pool_heads(s, ret, ret_all);

done:
    for (int i = 0; i < threads; i++)
        scratch_finish(&j.room[i]);
    mem_free(j.room);
    return err;
}

int saliency_rho_pooled(const struct saliency *s, enum saliency_side side, const double *of,
                        double *ret_rho)
{
    size_t n = 0, most = (size_t)s->n * (size_t)s->T;
    double *x = MEM_NEW(double, most), *y = MEM_NEW(double, most);
    int err = KVF_E_NOMEM;
    if (!x || !y)
        goto done;
    for (int k = 0; k < s->n; k++)
        n += (size_t)pairs_of(s, side, of, k, x + n, y + n);
    err = ranks_average(x, n, x);
    if (err)
        goto done;
    err = ranks_average(y, n, y);
    if (err)
        goto done;
    *ret_rho = ranks_correlation(x, y, n);

done:
    mem_free(x);
    mem_free(y);
    return err;
}

/* predict_judge.c - rank correlation of one candidate with the effects, given the layer or the
 * position, with tests whose units are what a null hypothesis may exchange. */
#include "studies/predict_judge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/ranks.h"
#include "base/rng.h"
#include "base/stats.h"

/* Which line a series loses before its circular shifts.  Without the one of least squares two
 * trends correlate; without the one from the first to the last value a random walk ends where it
 * begins, as a circle does.  A test takes the larger p of both. */
enum line { LEAST_SQUARES, ENDS, LINES };

/* The ranks of a statistic (0) and of the effect (1) in one pair. */
struct pair {
    double *v[2];             /* [n] values, then residuals of their ranks, of length 1 */
    double *series[LINES][2]; /* [length] means of layers, or ranks of entries, without a line */
    double *moment[3];        /* [groups] of a group v0 v1, v0 v0, v1 v1 */
    int64_t n;
    int of; /* which pair of the arguments */
    int64_t length;
    bool partial, shifts; /* whether both residuals vary; whether both series do */
};

/* Heads are the same in all pairs: value k of each is of one head.  Entries of one text are not
 * those of another. */
struct predict_sample {
    bool heads;
    int pairs, n_groups; /* layers that have a head; of entries groups are not used */
    struct pair pair[PREDICT_MOST];
    int *group;      /* [units] of value k, heads only */
    int64_t *first;  /* [groups + 1] first value of each group */
    double *place;   /* [units] number of the layer of a group, or the position of an entry */
    double *rank[2]; /* [units] */
    int64_t *pick;   /* [units] */
    double *draw;    /* [replicates] */
};

struct predict_sample *predict_sample_create(const struct predict_values *v)
{
    size_t n = (size_t)v->units;
    struct predict_sample *s = MEM_NEW(struct predict_sample, 1);
    if (!s)
        return NULL;
    s->heads = !v->entries;
    bool all = true;
    for (int p = 0; p < v->args->n_pairs; p++) {
        struct pair *x = &s->pair[p];
        for (int k = 0; k < 2; k++) {
            all = (x->v[k] = MEM_NEW(double, n)) != NULL && all;
            for (int line = 0; line < LINES; line++)
                all = (x->series[line][k] = MEM_NEW(double, n)) != NULL && all;
        }
        for (int k = 0; k < 3; k++)
            all = (x->moment[k] = MEM_NEW(double, n)) != NULL && all;
    }
    s->group = MEM_NEW(int, n);
    s->first = MEM_NEW(int64_t, n + 1);
    s->place = MEM_NEW(double, n);
    s->rank[0] = MEM_NEW(double, n);
    s->rank[1] = MEM_NEW(double, n);
    s->pick = MEM_NEW(int64_t, n);
    s->draw = MEM_NEW(double, PREDICT_REPLICATES);
    if (all && s->group && s->first && s->place && s->rank[0] && s->rank[1] && s->pick && s->draw)
        return s;
    predict_sample_destroy(s);
    return NULL;
}

void predict_sample_destroy(struct predict_sample *s)
{
    if (!s)
        return;
    for (int p = 0; p < PREDICT_MOST; p++) {
        for (int k = 0; k < 2; k++) {
            mem_free(s->pair[p].v[k]);
            for (int line = 0; line < LINES; line++)
                mem_free(s->pair[p].series[line][k]);
        }
        for (int k = 0; k < 3; k++)
            mem_free(s->pair[p].moment[k]);
    }
    mem_free(s->group);
    mem_free(s->first);
    mem_free(s->place);
    mem_free(s->rank[0]);
    mem_free(s->rank[1]);
    mem_free(s->pick);
    mem_free(s->draw);
    mem_free(s);
}

/* ---- which values take part */

static bool varies(const double *v, int64_t n)
{
    for (int64_t k = 1; k < n; k++)
        if (v[k] != v[0])
            return true;
    return false;
}

bool predict_both(const struct predict_values *v, const struct candidate *c, int pair, int64_t u)
{
    int64_t at = (int64_t)pair * v->units + u;
    return !isnan(c->v[at]) && !isnan(v->effect[at]);
}

static bool any(const struct predict_values *v, const struct candidate *c, int pair)
{
    for (int64_t u = 0; u < v->units; u++)
        if (predict_both(v, c, pair, u))
            return true;
    return false;
}

/* Of heads those with both numbers in each pair that has them at all. */
static bool counts(const struct predict_values *v, const struct candidate *c, const bool *present,
                   int pair, int64_t u)
{
    if (v->entries)
        return predict_both(v, c, pair, u);
    for (int p = 0; p < v->args->n_pairs; p++)
        if (present[p] && !predict_both(v, c, p, u))
            return false;
    return true;
}

/* Heads: which layer each value is of. */
static void group(struct predict_sample *s, const struct predict_values *v, int64_t u, int64_t k)
{
    double layer = (double)(u / v->heads);
    if (k == 0 || s->place[s->n_groups - 1] != layer) {
        s->first[s->n_groups] = k;
        s->place[s->n_groups++] = layer;
    }
    s->group[k] = s->n_groups - 1;
    s->first[s->n_groups] = k + 1;
}

static void gather(struct predict_sample *s, const struct predict_values *v,
                   const struct candidate *c)
{
    bool present[PREDICT_MOST];
    s->pairs = 0;
    for (int p = 0; p < v->args->n_pairs; p++)
        present[p] = any(v, c, p);
    s->n_groups = 0;
    for (int p = 0; p < v->args->n_pairs; p++) {
        struct pair *x = &s->pair[s->pairs];
        if (!present[p])
            continue;
        x->n = s->n_groups = 0;
        x->of = p;
        for (int64_t u = 0; u < v->units; u++) {
            if (!counts(v, c, present, p, u))
                continue;
            if (s->heads)
                group(s, v, u, x->n);
            x->v[0][x->n] = c->v[(int64_t)p * v->units + u];
            x->v[1][x->n++] = v->effect[(int64_t)p * v->units + u];
        }
        s->pairs += varies(x->v[0], x->n) && varies(x->v[1], x->n);
    }
}

/* ---- residuals */

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += a[k] * b[k];
    return sum;
}

/* Makes the length of v 1; false where v is 0 but for rounding: `scale` is the size of what it was
 * before something was subtracted. */
static bool normalise(double *v, int64_t n, double scale)
{
    double size = sqrt(dot(v, v, n));
    if (!(size > 1e-9 * scale))
        return false;
    for (int64_t k = 0; k < n; k++)
        v[k] /= size;
    return true;
}

/* Subtracts a line over place, and the mean. */
static void subtract_line(double *v, const double *place, int64_t n, enum line line)
{
    double mean = stats_mean(v, (size_t)n), middle = stats_mean(place, (size_t)n);
    double slope = v[n - 1] - v[0], square = place[n - 1] - place[0];
    for (int64_t k = 0; line == LEAST_SQUARES && k < n; k++) {
        double x = place[k] - middle;
        slope = (k ? slope : 0) + x * (v[k] - mean);
        square = (k ? square : 0) + x * x;
    }
    slope = square > 0 ? slope / square : 0;
    for (int64_t k = 0; k < n; k++)
        v[k] -= mean + slope * (place[k] - middle);
}

/* The ranks less the mean of each layer to v, and these means to both series. */
static void split(struct predict_sample *s, struct pair *x, int side)
{
    const double *rank = s->rank[side];
    for (int g = 0; g < s->n_groups; g++) {
        int64_t from = s->first[g], n = s->first[g + 1] - from;
        double mean = stats_mean(rank + from, (size_t)n);
        for (int64_t k = from; k < from + n; k++)
            x->v[side][k] = rank[k] - mean;
        for (int line = 0; line < LINES; line++)
            x->series[line][side][g] = mean;
    }
    x->length = s->n_groups;
}

/* Of entries: the ranks to v and to both series. */
static void copy(const struct predict_sample *s, struct pair *x, int side)
{
    double *const to[] = {x->v[side], x->series[LEAST_SQUARES][side], x->series[ENDS][side]};
    for (int k = 0; k < 3; k++)
        memcpy(to[k], s->rank[side], (size_t)x->n * sizeof **to);
    x->length = x->n;
}

static void put_moments(const struct predict_sample *s, struct pair *x)
{
    for (int g = 0; g < s->n_groups; g++) {
        int64_t from = s->first[g], n = s->first[g + 1] - from;
        x->moment[0][g] = dot(x->v[0] + from, x->v[1] + from, n);
        x->moment[1][g] = dot(x->v[0] + from, x->v[0] + from, n);
        x->moment[2][g] = dot(x->v[1] + from, x->v[1] + from, n);
    }
}

/* The residuals of one side; its values become the first of them. */
static void reduce(struct predict_sample *s, struct pair *x, int side)
{
    double scale = (double)x->n * (double)x->n;
    if (s->heads) {
        split(s, x, side);
    } else {
        copy(s, x, side);
        subtract_line(x->v[side], s->place, x->n, LEAST_SQUARES);
    }
    for (int line = 0; line < LINES; line++) {
        subtract_line(x->series[line][side], s->place, x->length, (enum line)line);
        x->shifts = normalise(x->series[line][side], x->length, scale) && x->shifts;
    }
    x->partial = normalise(x->v[side], x->n, scale) && x->partial;
}

/* rho of a pair; its values become residuals. */
static int prepare(struct predict_sample *s, struct pair *x, double *ret)
{
    for (int k = 0; k < 2; k++) {
        int err = ranks_average(x->v[k], (size_t)x->n, s->rank[k]);
        if (err)
            return err;
    }
    *ret = ranks_correlation(s->rank[0], s->rank[1], (size_t)x->n);
    x->partial = x->shifts = true;
    for (int k = 0; k < 2; k++)
        reduce(s, x, k);
    if (s->heads) {
        put_moments(s, x);
        x->shifts = x->shifts && s->n_groups >= PREDICT_LEAST_LAYERS;
    }
    return KVF_OK;
}

static double mean_partial(const struct predict_sample *s)
{
    double sum = 0;
    int n = 0;
    for (int p = 0; p < s->pairs; p++)
        if (s->pair[p].partial) {
            sum += dot(s->pair[p].v[0], s->pair[p].v[1], s->pair[p].n);
            n++;
        }
    return n ? sum / n : NAN;
}

/* ---- the interval of the partial correlation */

/* Layers were drawn: the correlation of their heads. */
static double of_layers(const struct predict_sample *s, const struct pair *x)
{
    double sum[3] = {0, 0, 0};
    for (int g = 0; g < s->n_groups; g++)
        for (int k = 0; k < 3; k++)
            sum[k] += x->moment[k][s->pick[g]];
    return sum[0] / sqrt(sum[1] * sum[2]); /* NaN: layers in which nothing varies */
}

/* Blocks of neighbouring entries are drawn, as long as the root of their number; after the last
 * entry comes the first. */
static double of_blocks(const struct pair *x, struct rng *r)
{
    int64_t length = (int64_t)ceil(sqrt((double)x->n)), at = 0;
    double sum[5] = {0, 0, 0, 0, 0}, n = (double)x->n;
    for (int64_t k = 0; k < x->n; k++, at++) {
        if (k % length == 0)
            at = (int64_t)rng_below(r, (uint64_t)x->n);
        double a = x->v[0][at % x->n], b = x->v[1][at % x->n];
        sum[0] += a;
        sum[1] += b;
        sum[2] += a * b;
        sum[3] += a * a;
        sum[4] += b * b;
    }
    double va = sum[3] - sum[0] * sum[0] / n, vb = sum[4] - sum[1] * sum[1] / n;
    return va > 0 && vb > 0 ? (sum[2] - sum[0] * sum[1] / n) / sqrt(va * vb) : NAN;
}

/* Documents are drawn with replacement, and units too: layers once for all documents (Owen 2007),
 * blocks of entries anew for each that was drawn. */
static void bootstrap(struct predict_sample *s, const int *known, int n_known, double *low,
                      double *high)
{
    struct rng r;
    size_t n = 0;
    rng_init(&r, 0);
    *low = *high = NAN;
    for (int k = 0; n_known && k < PREDICT_REPLICATES; k++) {
        double sum = 0;
        for (int g = 0; s->heads && g < s->n_groups; g++)
            s->pick[g] = (int64_t)rng_below(&r, (uint64_t)s->n_groups);
        for (int j = 0; j < n_known; j++) {
            int at = n_known > 1 ? (int)rng_below(&r, (uint64_t)n_known) : 0;
            const struct pair *x = &s->pair[known[at]];
            sum += s->heads ? of_layers(s, x) : of_blocks(x, &r);
        }
        if (!isnan(sum))
            s->draw[n++] = sum / n_known;
    }
    if (n) {
        *low = stats_quantile(s->draw, n, 0.025);
        *high = stats_quantile(s->draw, n, 0.975);
    }
}

/* ---- tests: p = (1 + as far) / (1 + permutations), two-sided (Phipson and Smyth 2010) */

/* Another order of the heads of each layer, each as likely. */
static void shuffle_layers(struct predict_sample *s, struct rng *r)
{
    for (int g = 0; g < s->n_groups; g++)
        for (int64_t k = s->first[g]; k < s->first[g + 1]; k++) {
            int64_t at = s->first[g] + (int64_t)rng_below(r, (uint64_t)(k - s->first[g]) + 1);
            s->pick[k] = s->pick[at];
            s->pick[at] = k;
        }
}

static double shifted(const double *a, const double *b, int64_t n, int64_t by)
{
    return dot(a, b + by, n - by) + dot(a + (n - by), b, by);
}

/* Heads are permuted within their layers, alike in all documents. */
static double permutation_p(struct predict_sample *s, const int *known, int n_known, double seen)
{
    struct rng r;
    int64_t as_far = 1;
    rng_init(&r, 1);
    for (int k = 0; k < PREDICT_PERMUTATIONS; k++) {
        double sum = 0;
        shuffle_layers(s, &r);
        for (int j = 0; j < n_known; j++) {
            const struct pair *x = &s->pair[known[j]];
            for (int64_t u = 0; u < x->n; u++)
                sum += x->v[0][s->pick[u]] * x->v[1][u];
        }
        as_far += fabs(sum / n_known) >= fabs(seen) - 1e-12;
    }
    return (double)as_far / (1 + PREDICT_PERMUTATIONS);
}

/* Shifts one series of each pair in a circle: layers alike in all documents, entries of each
 * document by a number of their own.  Every shift is tried where there is one number and it has few
 * values, else as many random ones as there are permutations. */
static double shift_p(const struct predict_sample *s, const int *known, int n_known, enum line line,
                      double *ret_seen)
{
    struct rng r;
    int64_t as_far = 0, length = s->pair[known[0]].length, orders = PREDICT_PERMUTATIONS + 1;
    bool all = (s->heads || n_known == 1) && length <= orders;
    double seen = NAN;
    rng_init(&r, 1);
    orders = all ? length : orders;
    for (int64_t k = 0; k < orders; k++) {
        double sum = 0;
        for (int j = 0; j < n_known; j++) {
            const struct pair *x = &s->pair[known[j]];
            int64_t by = all || k == 0 ? k : (int64_t)rng_below(&r, (uint64_t)x->length);
            sum += shifted(x->series[line][0], x->series[line][1], x->length, by);
        }
        seen = k ? seen : sum / n_known;
        as_far += fabs(sum / n_known) >= fabs(seen) - 1e-12;
    }
    *ret_seen = seen;
    return (double)as_far / (double)orders;
}

static void judge_shifts(const struct predict_sample *s, struct predict_judged *ret)
{
    int known[PREDICT_MOST], n = 0;
    double seen = NAN, other, p = NAN;
    for (int k = 0; k < s->pairs; k++)
        if (s->pair[k].shifts)
            known[n++] = k;
    if (n)
        p = fmax(shift_p(s, known, n, LEAST_SQUARES, &seen), shift_p(s, known, n, ENDS, &other));
    if (s->heads)
        ret->depth_rho = seen;
    *(s->heads ? &ret->depth_p : &ret->p) = p;
}

/* The positions of the entries of a pair, as gather() took them. */
static void put_places(struct predict_sample *s, const struct predict_values *v,
                       const struct candidate *c, int pair)
{
    int64_t n = 0;
    for (int64_t u = 0; u < v->units; u++)
        if (predict_both(v, c, pair, u))
            s->place[n++] = (double)u;
}

/* Mean of rho over the pairs, all of which become residuals. */
static int prepare_all(struct predict_sample *s, const struct predict_values *v,
                       const struct candidate *c, double *ret)
{
    struct sum sum = {0, 0};
    for (int p = 0; p < s->pairs; p++) {
        double rho = NAN;
        if (!s->heads)
            put_places(s, v, c, s->pair[p].of);
        int err = prepare(s, &s->pair[p], &rho);
        if (err)
            return err;
        sum_add(&sum, rho);
    }
    *ret = s->pairs ? sum_get(&sum) / s->pairs : NAN;
    return KVF_OK;
}

int predict_judge(struct predict_sample *s, const struct predict_values *v,
                  const struct candidate *c, struct predict_judged *ret)
{
    int known[PREDICT_MOST], n_known = 0;
    struct predict_judged x = {.p = NAN, .depth_rho = NAN, .depth_p = NAN};
    gather(s, v, c);
    for (int p = 0; p < s->pairs; p++)
        x.n = s->heads ? s->pair[p].n : x.n + s->pair[p].n;
    x.documents = s->pairs;
    int err = prepare_all(s, v, c, &x.rho);
    if (err)
        return err;
    for (int p = 0; p < s->pairs; p++)
        if (s->pair[p].partial)
            known[n_known++] = p;
    x.partial = mean_partial(s);
    bootstrap(s, known, n_known, &x.low, &x.high);
    if (s->heads && n_known)
        x.p = permutation_p(s, known, n_known, x.partial);
    judge_shifts(s, &x);
    *ret = x;
    return KVF_OK;
}

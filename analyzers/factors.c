/* factors.c - analysis of variance with one or two factors (factors.h). */
#include "analyzers/factors.h"

#include <math.h>

#include "base/mem.h"
#include "base/stats.h"

enum { MOST_SWEEPS = 1000 };
static const double settled = 1e-13; /* of the standard deviation */

static int32_t level_of(const struct factor *f, size_t c)
{
    return f->level[c / f->block % f->count];
}

static bool counts(const double *y, const struct factor *f, size_t c)
{
    return !isnan(y[c]) && level_of(f, c) >= 0;
}

/* Sums of one factor's levels. */
struct levels {
    struct sum *sum;
    int64_t *n;
    double *mean;
};

static int levels_create(struct levels *l, const struct factor *f)
{
    l->sum = MEM_NEW(struct sum, (size_t)f->n_levels);
    l->n = MEM_NEW(int64_t, (size_t)f->n_levels);
    l->mean = MEM_NEW(double, (size_t)f->n_levels);
    return l->sum && l->n && l->mean ? KVF_OK : KVF_E_NOMEM;
}

static void levels_finish(struct levels *l)
{
    mem_free_all(l->sum, l->n, l->mean);
}

/* Statistics of all values of a fit: their mean, and the sum of squares about it. */
struct total {
    int64_t n;
    double mean, squares;
    bool constant;
};

/* g: a second factor that a value must have a level of, or NULL. */
static struct total total_of(const double *y, size_t n, const struct factor *f,
                             const struct factor *g)
{
    struct total t = {0, NAN, 0, false};
    struct sum s = {0}, squares = {0};
    double low = INFINITY, high = -INFINITY;
    for (size_t c = 0; c < n; c++) {
        if (!counts(y, f, c) || (g && !counts(y, g, c)))
            continue;
        t.n++;
        sum_add(&s, y[c]);
        low = fmin(low, y[c]);
        high = fmax(high, y[c]);
    }
    t.mean = t.n ? sum_get(&s) / (double)t.n : NAN;
    for (size_t c = 0; c < n; c++)
        if (counts(y, f, c) && (!g || counts(y, g, c)))
            sum_add(&squares, (y[c] - t.mean) * (y[c] - t.mean));
    t.squares = sum_get(&squares);
    t.constant = t.n < 2 || low == high; /* exactly: the mean of equal values is rounded */
    return t;
}

/* From the residual sum of squares. */
static void conclude(const struct total *t, double within, struct effect *e)
{
    double free = (double)(e->n - e->levels);
    if (e->levels < 2) /* exactly 0 */
        within = t->squares;
    e->eta2 = t->constant ? NAN : 1 - within / t->squares;
    e->epsilon2 = t->constant || free < 1 ? NAN
                                          : 1 - within / free / (t->squares / (double)(t->n - 1));
}

/* Mean of y - other's mean at each level of f; other may be NULL.  Returns how far a mean
 * moved. */
static double take_means(const double *y, size_t n, const struct factor *f, struct levels *l,
                         const struct factor *g, const struct levels *other, double centre)
{
    double moved = 0;
    for (int32_t k = 0; k < f->n_levels; k++) {
        l->sum[k] = (struct sum){0, 0};
        l->n[k] = 0;
    }
    for (size_t c = 0; c < n; c++) {
        if (!counts(y, f, c) || (g && !counts(y, g, c)))
            continue;
        int32_t k = level_of(f, c);
        sum_add(&l->sum[k], y[c] - centre - (other ? other->mean[level_of(g, c)] : 0));
        l->n[k]++;
    }
    for (int32_t k = 0; k < f->n_levels; k++) {
        double mean = l->n[k] ? sum_get(&l->sum[k]) / (double)l->n[k] : 0;
        moved = fmax(moved, fabs(mean - l->mean[k]));
        l->mean[k] = mean;
    }
    return moved;
}

static int64_t levels_used(const struct levels *l, const struct factor *f)
{
    int64_t used = 0;
    for (int32_t k = 0; k < f->n_levels; k++)
        used += l->n[k] > 0;
    return used;
}

int factor_effect(const double *y, size_t n, const struct factor *f, struct effect *ret)
{
    struct levels l;
    struct sum within = {0};
    struct total t = total_of(y, n, f, NULL);
    int err = levels_create(&l, f);
    *ret = (struct effect){.n = t.n, .converged = true};
    if (!err) {
        take_means(y, n, f, &l, NULL, NULL, t.mean);
        ret->levels = levels_used(&l, f);
        for (size_t c = 0; c < n; c++) {
            if (!counts(y, f, c))
                continue;
            double rest = y[c] - t.mean - l.mean[level_of(f, c)];
            sum_add(&within, rest * rest);
        }
        conclude(&t, sum_get(&within), ret);
    }
    levels_finish(&l);
    return err;
}

/* Means move by a decreasing fraction of their first move. */
static void tell_settling(const struct analyzer_args *args, double first, double moved,
                          double least)
{
    const int64_t fine = 100;
    double share = moved > least ? log(first / moved) / log(first / least) : 1;
    analyzer_tell(args, share > 0 ? (int64_t)((double)fine * share) : 0, fine);
}

int factor_additive(const double *y, size_t n, const struct factor *f, const struct factor *g,
                    const struct analyzer_args *args, struct effect *ret)
{
    struct levels a, b = {NULL, NULL, NULL};
    struct sum within = {0};
    struct total t = total_of(y, n, f, g);
    double least = settled * sqrt(t.squares / (double)(t.n ? t.n : 1)), first = 0;
    int err = levels_create(&a, f);
    *ret = (struct effect){.n = t.n, .converged = t.constant};
    if (!err)
        err = levels_create(&b, g);
    for (int k = 0; !err && !ret->converged && k < MOST_SWEEPS; k++) {
        double moved = take_means(y, n, f, &a, g, &b, t.mean);
        moved = fmax(moved, take_means(y, n, g, &b, f, &a, t.mean));
        first = k ? first : moved;
        ret->converged = moved <= least;
        tell_settling(args, first, moved, least);
    }
    if (!err) {
        int64_t used = levels_used(&a, f) + levels_used(&b, g);
        ret->levels = used > 0 ? used - 1 : 0;
        for (size_t c = 0; c < n; c++) {
            if (!counts(y, f, c) || !counts(y, g, c))
                continue;
            double rest = y[c] - t.mean - a.mean[level_of(f, c)] - b.mean[level_of(g, c)];
            sum_add(&within, rest * rest);
        }
        conclude(&t, sum_get(&within), ret);
    }
    levels_finish(&a);
    levels_finish(&b);
    return err;
}

/* corpus_curve.c - survival curves of pooled counts, their intervals and half-lives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "studies/corpus_view.h"

struct chain { /* of the rows from `first` on */
    const struct curves *of;
    size_t first;
    double x0, s; /* the last age of the product s */
    double half;  /* the half-life of the curve and of its interval's ends; INFINITY: not reached */
    double known; /* the last age at which the product is defined */
    double end[2], end_half[2]; /* the interval at the row before */
    double *product;            /* [replicates] their products */
    /* The documents, as long as they are few, and the product without each. */
    int64_t id[STATS_FEW];
    double left_out[STATS_FEW];
    size_t n;
    bool few;
};

/* The number of last keys that identify the rows of a curve. */
static int curve_keys(const struct analyzer_measure *m)
{
    return m->bins ? 2 : 1;
}

/* Whether two rows are of one curve. */
static bool same_curve(const struct curves *of, uint32_t a, uint32_t b)
{
    const struct corpus *c = of->c;
    int k = c->n_keys - curve_keys(&c->a->pool->measures[of->m]);
    const char *x = corpus_field(c, a, 0), *y = corpus_field(c, b, 0);
    size_t n = (size_t)(corpus_field(c, a, k) - x);
    return n == (size_t)(corpus_field(c, b, k) - y) && memcmp(x, y, n) == 0;
}

/* The first integer age at which a curve is below one half that is s0 at x0 and s at x and falls by
 * equal factors between them (to 0: at once); INFINITY when it is not below at x. */
static double half_between(double x0, double s0, double x, double s)
{
    if (!(s < .5))
        return INFINITY;
    double part = s > 0 ? log(s0 / .5) / log(s0 / s) : 0;
    return fmin(floor(x0 + (x - x0) * part) + 1, x);
}

/* The part of `before` that is left after `steps` in which a of b at risk die. */
static double product_of(double before, int64_t a, int64_t b, double steps)
{
    if (b <= 0 || isnan(before))
        return before == 0 ? 0 : NAN; /* unknown */
    return before * pow(1 - (double)a / (double)b, steps);
}

/* ---- the documents of a short list */

static size_t find_document(struct chain *x, int64_t id)
{
    size_t i = 0;
    while (i < x->n && x->id[i] != id)
        i++;
    if (i == x->n && x->n < STATS_FEW - 1) { /* no row so far had it */
        x->id[x->n] = id;
        x->left_out[x->n++] = x->s;
    }
    return i;
}

/* Takes the products without each document over the events of a row. */
static void leave_out(struct chain *x, const struct view *v, double steps)
{
    int64_t a[STATS_FEW] = {0}, b[STATS_FEW] = {0}, n = v->sum[WORD_N];
    x->few = x->few && v->few && n < STATS_FEW;
    for (int64_t i = 0; x->few && i < n; i++) {
        const int64_t *own = v->few + i * N_WORDS;
        size_t at = find_document(x, own[WORD_N]);
        x->few = at < STATS_FEW - 1;
        a[at] = own[WORD_A];
        b[at] = own[WORD_B];
    }
    for (size_t i = 0; i < x->n; i++)
        x->left_out[i] = product_of(x->left_out[i], v->sum[WORD_A] - a[i], v->sum[WORD_B] - b[i],
                                    steps);
}

/* ---- intervals */

static double log_log(double s)
{
    return log(-log(s));
}

static bool inside(double s)
{
    return s > 0 && s < 1;
}

/* The interval around log(-log s) with that radius, as values of s. */
static void put_log_log(double s, double radius, double *ret_low, double *ret_high)
{
    *ret_low = exp(-exp(log_log(s) + radius));
    *ret_high = exp(-exp(log_log(s) - radius));
}

/* By the documents, on the scale log(-log s) where all products have a place there. */
static void interval_few(const struct chain *x, double *ret_low, double *ret_high)
{
    double v[STATS_FEW];
    bool all = inside(x->s);
    for (size_t i = 0; i < x->n; i++)
        all &= inside(x->left_out[i]);
    for (size_t i = 0; i < x->n; i++)
        v[i] = all ? log_log(x->left_out[i]) : x->left_out[i];
    double radius = stats_jackknife(v, x->n);
    if (all) {
        put_log_log(x->s, radius, ret_low, ret_high);
    } else {
        *ret_low = isnan(radius) ? NAN : fmax(0, x->s - radius);
        *ret_high = isnan(radius) ? NAN : fmin(1, x->s + radius);
    }
}

/* Few documents at the end of a curve of many: the spread of the replicates on the scale
 * log(-log s), in units of Student's t. */
static void interval_spread(const struct chain *x, size_t n, double *scratch, double *ret_low,
                            double *ret_high)
{
    size_t known = 0, R = (size_t)x->of->c->set.replicates;
    double squares = 0;
    for (size_t k = 0; k < R; k++)
        if (inside(x->product[k]))
            scratch[known++] = log_log(x->product[k]);
    if (!inside(x->s) || known < 2)
        return;
    double mean = stats_mean(scratch, known);
    for (size_t k = 0; k < known; k++)
        squares += (scratch[k] - mean) * (scratch[k] - mean);
    double df = (double)n - 1, spread = squares / (double)(known - 1) * (double)n / df;
    put_log_log(x->s, stats_t(df) * sqrt(spread), ret_low, ret_high);
}

static void interval_at(struct chain *x, const struct view *v, double *scratch, int64_t *undefined,
                        double *ret_low, double *ret_high)
{
    size_t R = v->n_replicates, known = 0, n = (size_t)v->sum[WORD_N];
    *ret_low = *ret_high = NAN;
    if (!v->replicate || n < STATS_LEAST || isnan(x->s))
        return;
    if (n < STATS_FEW && x->few) {
        interval_few(x, ret_low, ret_high);
        return;
    }
    if (n < STATS_FEW) {
        interval_spread(x, n, scratch, ret_low, ret_high);
        return;
    }
    for (size_t k = 0; k < R; k++)
        if (!isnan(x->product[k]))
            scratch[known++] = x->product[k];
    if (known) {
        *ret_low = stats_quantile(scratch, known, stats_tail(n));
        *ret_high = stats_quantile(scratch, known, 1 - stats_tail(n));
    }
    *undefined += (int64_t)(R - known);
}

/* ---- the rows */

/* Takes all products over the events of a row, up to an age. */
static void advance(struct chain *x, const struct view *v, double age)
{
    double before = x->s, steps = age - x->x0;
    size_t R = v->n_replicates;
    leave_out(x, v, steps);
    x->s = product_of(before, v->sum[WORD_A], v->sum[WORD_B], steps);
    if (isinf(x->half))
        x->half = half_between(x->x0, before, age, x->s);
    x->known = isnan(x->s) ? x->known : age;
    for (size_t k = 0; k < R && v->replicate; k++)
        x->product[k] = product_of(x->product[k], v->replicate[k], v->replicate[k + R], steps);
    x->x0 = age;
}

/* Value and interval at the row at place i: of a row of bins at its low end, else at its age. */
static void chain_step(struct chain *x, size_t i, double *scratch, int64_t *undefined)
{
    const struct curves *of = x->of;
    struct view v = corpus_view(of->c, of->order[i], of->m);
    double age = strtod(corpus_field(of->c, of->order[i], of->c->n_keys - 1), NULL);
    double x0 = x->x0, *const end[2] = {&of->low[i], &of->high[i]};
    if (!v.m->bins)
        advance(x, &v, age);
    of->real[i] = v.sum[WORD_B] > 0 ? x->s : product_of(x->s, 0, 0, 0);
    interval_at(x, &v, scratch, undefined, end[0], end[1]);
    for (int k = 0; k < 2; k++) {
        if (isinf(x->end_half[k]))
            x->end_half[k] = half_between(x0, x->end[k], age, *end[k]);
        x->end[k] = *end[k];
    }
    if (v.m->bins)
        advance(x, &v, fmax(age, x->x0));
}

/* Writes the half-life of the rows from x->first to end - 1.  An end of the interval beyond the
 * curve's interval is NaN. */
static void chain_end(const struct chain *x, size_t end)
{
    size_t n = x->of->c->rows.n;
    const double to[4] = {x->half, x->end_half[0], x->end_half[1], isinf(x->half) ? x->known : -1};
    for (int k = 0; k < 4; k++)
        for (size_t i = x->first; i < end; i++)
            x->of->half[(size_t)k * n + i] = isfinite(to[k]) ? to[k] : NAN;
}

int curve_values(const struct curves *of, double *scratch, int64_t *undefined)
{
    size_t n = of->c->rows.n, R = (size_t)of->c->set.replicates;
    double *product = MEM_NEW(double, R);
    struct chain x = {0};
    if (!product)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || !same_curve(of, of->order[i - 1], of->order[i])) {
            if (i)
                chain_end(&x, i);
            x = (struct chain){.of = of,
                               .first = i,
                               .x0 = -1,
                               .s = 1,
                               .half = INFINITY,
                               .known = -1,
                               .end = {1, 1},
                               .end_half = {INFINITY, INFINITY},
                               .product = product,
                               .few = true};
            for (size_t k = 0; k < R; k++)
                product[k] = 1;
        }
        chain_step(&x, i, scratch, undefined);
    }
    if (n)
        chain_end(&x, n);
    mem_free(product);
    return KVF_OK;
}

/* stats_beta.c - the beta distribution and its quantiles (stats.h). */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/stats.h"

static const double TINY = 1e-300;

/* Evaluates the continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's
 * method. It converges fast for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double x, double a, double b)
{
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < TINY ? TINY : d);
    double h = d;
    for (int m = 1; m < 100000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < TINY ? TINY : d);
        h *= d * (fabs(c) < TINY ? TINY : c);
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < TINY ? TINY : d);
        double delta = d * (fabs(c) < TINY ? TINY : c);
        h *= delta;
        if (fabs(delta - 1) < 1e-15)
            break;
    }
    return h;
}

static double beta_log(double a, double b) /* ln(1 / B(a, b)) */
{
    int sign; /* lgamma() would write it to a global variable */
    return lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign);
}

/* Returns true if the fraction is evaluated at x, and false for 1 - x. */
static bool is_low(double x, double a, double b)
{
    return x < (a + 1) / (a + b + 2);
}

double stats_beta_cdf(double x, double a, double b)
{
    if (!(x > 0))
        return isnan(x) ? x : 0;
    if (x >= 1)
        return 1;
    double front = exp(beta_log(a, b) + a * log(x) + b * log1p(-x));
    if (is_low(x, a, b))
        return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

/* ---- several quantiles at a time
 *
 * A vector division takes no longer than a scalar one, and the latency of one fraction is hidden
 * by others. The steps of each fraction are those above without the substitution of TINY. A value
 * smaller than TINY, as a sum of 1 and another term, is 0. It makes h zero, infinite or NaN, and
 * then the function above is used.
 */
typedef double pair __attribute__((vector_size(2 * sizeof(double))));
typedef int64_t bits __attribute__((vector_size(2 * sizeof(int64_t))));
enum { PAIRS = 2, LANES = 2 * PAIRS, LAST = 100000, AHEAD = 8 };

struct fraction {
    pair x, a, b, sum; /* a + b */
    pair m, c, d, h;
    pair found; /* h at convergence */
    bits done;
};

struct terms {
    pair even, odd;
};

static void fraction_start(struct fraction *f, int side, double x, double a, double b)
{
    f->x[side] = x;
    f->a[side] = a;
    f->b[side] = b;
    f->sum[side] = a + b;
    f->m[side] = f->c[side] = 1;
    f->h[side] = f->d[side] = 1 / (1 - (a + b) * x / (a + 1));
    f->done[side] = 0;
}

static inline struct terms fraction_terms(const struct fraction *f, double ahead)
{
    pair a = f->a, x = f->x, m = f->m + ahead, twice = a + 2 * m;
    return (struct terms){m * (f->b - m) * x / ((twice - 1) * twice),
                          -(a + m) * (f->sum + m) * x / (twice * (twice + 1))};
}

static inline void fraction_step(struct fraction *f, const struct terms *by)
{
    const bits positive = {INT64_MAX, INT64_MAX};
    pair d = 1 / (1 + by->even * f->d), c = 1 + by->even / f->c;
    f->h *= d * c;
    f->d = 1 / (1 + by->odd * d);
    f->c = 1 + by->odd / c;
    pair delta = f->d * f->c;
    f->h *= delta;
    f->found = (pair)(((bits)f->found & f->done) | ((bits)f->h & ~f->done));
    f->done |= ~((pair)((bits)(delta - 1) & positive) >= 1e-15); /* also for NaN */
}

/* Makes AHEAD steps of all fractions. Returns nonzero if any has converged. */
static bool fractions_go(struct fraction f[PAIRS])
{
    struct terms by[AHEAD][PAIRS]; /* computed first, because they do not depend on earlier steps */
    bits any = {0, 0};
    for (int i = 0; i < AHEAD; i++)
        for (int k = 0; k < PAIRS; k++)
            by[i][k] = fraction_terms(&f[k], i);
    for (int i = 0; i < AHEAD; i++)
        for (int k = 0; k < PAIRS; k++)
            fraction_step(&f[k], &by[i][k]);
    for (int k = 0; k < PAIRS; k++) {
        f[k].m += AHEAD;
        any |= f[k].done | (f[k].m >= LAST - AHEAD);
    }
    return any[0] | any[1];
}

/* The search for one quantile. */
struct search {
    double q, a, b, log_scale, lo, hi, x;
    double log_x, log_rest; /* log(x) and log(1 - x) */
    double *out;            /* NULL if idle */
    int steps;
};

/* Makes a Newton step within a shrinking bracket. Bisects if the step leaves the bracket. */
static void search_step(struct search *s, double below)
{
    double x = s->x, miss = below - s->q;
    double slope = exp(s->log_scale + (s->a - 1) * s->log_x + (s->b - 1) * s->log_rest);
    *(miss < 0 ? &s->lo : &s->hi) = x;
    s->x = x - miss / slope;
    if (!(s->x > s->lo && s->x < s->hi))
        s->x = s->lo + (s->hi - s->lo) / 2;
    bool close = fabs(s->x - x) <= 1e-15 * x;
    if (close || ++s->steps == 200 || !(s->hi - s->lo > 1e-16 * s->hi)) {
        *s->out = s->x;
        s->out = NULL;
    }
}

static void search_end(struct search *s, const struct fraction *f, int side)
{
    double a = s->a, b = s->b, h = f->found[side];
    double front = exp(s->log_scale + a * s->log_x + b * s->log_rest);
    if (!f->done[side] || h == 0 || !isfinite(h))
        h = beta_fraction(f->x[side], f->a[side], f->b[side]);
    search_step(s, is_low(s->x, a, b) ? front * h / a : 1 - front * h / b);
}

/* The quantiles to compute. */
struct queue {
    const double *q, *a, *b;
    double *out, log_scale;
    size_t n, next;
};

static void search_start(struct search *s, struct queue *w)
{
    size_t i = w->next++;
    double a = w->a[i], b = w->b[i];
    if (i == 0 || a != w->a[i - 1] || b != w->b[i - 1])
        w->log_scale = beta_log(a, b);
    *s = (struct search){.q = w->q[i],
                         .a = a,
                         .b = b,
                         .log_scale = w->log_scale,
                         .hi = 1,
                         .x = a / (a + b),
                         .out = &w->out[i]};
}

/* Starts the next fraction that the search needs, or one that converges at once. */
static void search_ask(struct search *s, struct queue *w, struct fraction *f, int side)
{
    while (s->out || w->next < w->n) {
        if (!s->out)
            search_start(s, w);
        s->log_x = log(s->x);
        s->log_rest = log1p(-s->x);
        if (s->x > 0 && s->x < 1) {
            bool low = is_low(s->x, s->a, s->b);
            fraction_start(f, side, low ? s->x : 1 - s->x, low ? s->a : s->b, low ? s->b : s->a);
            return;
        }
        search_step(s, isnan(s->x) ? s->x : s->x >= 1);
    }
    fraction_start(f, side, 0, 1, 1);
}

void stats_beta_quantiles(const double *q, const double *a, const double *b, size_t n, double *out)
{
    struct queue w = {q, a, b, out, 0, n, 0};
    struct search s[LANES] = {{.out = NULL}};
    struct fraction f[PAIRS] = {{.done = {0, 0}}};
    int busy = 0;
    for (int k = 0; k < LANES; k++) {
        search_ask(&s[k], &w, &f[k / 2], k % 2);
        busy += s[k].out != NULL;
    }
    while (busy) {
        if (!fractions_go(f))
            continue;
        busy = 0;
        for (int k = 0; k < LANES; k++) {
            struct fraction *mine = &f[k / 2];
            if (s[k].out && (mine->done[k % 2] || mine->m[k % 2] >= LAST - AHEAD)) {
                search_end(&s[k], mine, k % 2);
                search_ask(&s[k], &w, mine, k % 2);
            }
            busy += s[k].out != NULL;
        }
    }
}

double stats_beta_quantile(double q, double a, double b)
{
    double x;
    stats_beta_quantiles(&q, &a, &b, 1, &x);
    return x;
}

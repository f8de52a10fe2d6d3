/* an_sparsity.c - sparsity of a head: 1 - 2 / (T (T + 1)) * sum_{i <= t} m_ti (TRIM-KV).
 * kind alpha: m_ti = [i <= t < evict_step_i].  kind last-use: the same with
 * evict_step := i + last_selected + 1, never selected = 0 steps.  kind beta: beta_i^(t - i)
 * of retention gates.  Only of tokens [a, b): the same share of their cells t >= i. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/selected.h"
#include "base/stats.h"

enum kind { ALPHA, BETA, LAST_USE };
static const char *const kinds[] = {"alpha", "beta", "last-use", NULL};
static const char *const triangles[] = {"le", "lt", NULL};

#define CRITERION "top64" /* default */

struct options {
    int kind, triangle;
    const char *criterion;
};

struct plan {
    enum kind kind;
    bool lt;
    int64_t T, a, b; /* steps; tokens [a, b) */
    double *value;   /* [heads] */
};

struct scratch { /* of one thread */
    double *v;   /* [tokens] of the head at hand */
};

/* The sum of m_ti over t >= i, with v: evict_step, log beta or last use of token i. */
static double held(const struct plan *p, double i, double v)
{
    double T = (double)p->T;
    if (p->kind == BETA)
        return stats_geometric(v, T - i);
    if (p->kind == ALPHA)
        return fmin(v, T) - i;
    return (v < 0 ? i : i + v + 1) - i;
}

/* Of all cells of tokens [a, b) the share that is not kept. */
static double share_left(const struct plan *p, double kept)
{
    double cells = 0.5 * (double)((p->b - p->a) * (2 * p->T - p->a - p->b + 1));
    return cells > 0 ? 1.0 - kept / cells : NAN;
}

/* v: of tokens a, a + 1, ... */
static double sparsity_of(const double *v, const struct plan *p)
{
    double kept = 0;
    for (int64_t k = 0; k < p->b - p->a; k++) {
        double i = (double)(p->a + k), n = held(p, i, v[k]);
        n -= p->lt && n > 0;   /* the diagonal */
        kept += n < 0 ? 0 : n; /* NaN stays */
    }
    return share_left(p, kept);
}

enum { BLOCK = 128 }; /* of lengths up to 2^24: their sum fits 32 bits */

/* The same from evict_step as integers. */
static double sparsity_of_steps(const uint32_t *v, const struct plan *p)
{
    int32_t T = (int32_t)p->T, n = (int32_t)(p->b - p->a);
    int64_t kept = 0, cells = 0;
    for (int32_t k0 = 0; k0 < n; k0 += BLOCK) {
        uint32_t sum = 0, some = 0;
        for (int32_t k = k0; k < n && k < k0 + BLOCK; k++) {
            int32_t end = v[k] < (uint32_t)T ? (int32_t)v[k] : T, life = end - (int32_t)p->a - k;
            sum += life > 0 ? (uint32_t)life : 0;
            some += life > 0;
        }
        kept += sum;
        cells += some;
    }
    return share_left(p, (double)(kept - (p->lt ? cells : 0)));
}

/* The same of ages of 16 bits, of which all ones are "never". */
static double sparsity_of_ages(const uint16_t *v, const struct plan *p)
{
    int64_t kept = 0, cells = 0;
    for (int64_t k0 = 0; k0 < p->b - p->a; k0 += BLOCK) {
        uint32_t sum = 0, some = 0;
        for (int64_t k = k0; k < p->b - p->a && k < k0 + BLOCK; k++) {
            uint16_t life = (uint16_t)(v[k] + 1);
            sum += life;
            some += life > 0;
        }
        kept += sum;
        cells += some;
    }
    return share_left(p, (double)(kept - (p->lt ? cells : 0)));
}

static void thread(struct frame *f, void *scratch)
{
    ((struct scratch *)scratch)->v = FRAME_NEW(f, double, (size_t)(f->b - f->a));
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    const struct kvf_column *c = kvf_column(f->t, f->column[0]);
    int layer = x->head->layer, index = x->head->index, err = KVF_OK;
    uint32_t a = (uint32_t)p->a, n = (uint32_t)(p->b - p->a);
    bool steps = p->kind == ALPHA && c->dtype == KVF_U32 && !(c->flags & KVF_COL_AGE);
    bool ages = p->kind == LAST_USE && c->dtype == KVF_U16 && c->flags & KVF_COL_AGE;
    double *v = ((struct scratch *)x->scratch)->v;
    const void *raw;
    if (n && (steps || ages)) {
        err = kvf_view(x->t, f->column[0], layer, index, a, n, &raw, d);
        if (!err)
            p->value[x->h] = steps ? sparsity_of_steps(raw, p) : sparsity_of_ages(raw, p);
        return err;
    }
    /* ALIVE is the largest number of its type: no step reaches it */
    if (n)
        err = kvf_read_f64(x->t, f->column[0], layer, index, a, n, v, d);
    if (!err)
        p->value[x->h] = sparsity_of(v, p);
    return err;
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    char name[KVF_NAME_MAX + 16];
    *p = (struct plan){(enum kind)o->kind, o->triangle == 1, f->T, f->a, f->b, NULL};
    if (p->kind != LAST_USE && strcmp(o->criterion, CRITERION) != 0)
        return kvf_fail(d, KVF_E_ARG, "--criterion has an effect only with --kind last-use");
    f->space = p->kind == LAST_USE ? KVF_SPACE_QUERY : KVF_SPACE_KV;
    if (p->kind == BETA)
        return log_beta_need(f->t, &f->column[0], d);
    if (p->kind == ALPHA)
        return column_need(f->t, "evict_step", &f->column[0], d);
    snprintf(name, sizeof name, "last_selected.%.40s", o->criterion);
    return column_need(f->t, name, &f->column[0], d);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    (void)d;
    p->value = FRAME_NEW(f, double, (size_t)f->heads.n);
    f->n_rows = f->heads.n;
    return KVF_OK;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct plan *p = f->state;
    const struct options *o = f->options;
    table_meta_str(out, "kind", kinds[p->kind]);
    if (p->kind == LAST_USE)
        table_meta_str(out, "criterion", o->criterion);
    put_tokens(out, f->a, f->b, f->T);
    table_meta_str(out, "triangle", p->lt ? "i < t" : "i <= t");
    put_heads(out, &f->heads);
    table_cycle_str(out, "kind", "", &kinds[p->kind], 1);
    table_dense_real(out, "sparsity", "", p->value);
    return KVF_OK;
}

static void describe(const struct table *t, struct buf *out)
{
    int col = table_find(t, "sparsity"), name = table_find(t, "head");
    int64_t n = table_rows(t), lo = 0, hi = 0;
    double sum = 0;
    for (int64_t r = 0; r < n; r++) {
        double v = table_real(t, col, r);
        sum += v;
        if (v < table_real(t, col, lo))
            lo = r;
        if (v > table_real(t, col, hi))
            hi = r;
    }
    buf_printf(out, "sparsity (%s, %s): mean %.4f over %lld heads\n", table_meta(t, "kind"),
               table_meta(t, "triangle"), n ? sum / (double)n : NAN, (long long)n);
    buf_printf(out, "least %s %.4f, most %s %.4f\n", table_str(t, name, lo), table_real(t, col, lo),
               table_str(t, name, hi), table_real(t, col, hi));
}

const struct analyzer an_sparsity = {
    .name = "sparsity",
    .summary = "fraction of the attention map that was evicted or not used",
    .example = "kvfate size --as sparsity run.kvf -o sparsity.png",
    OPTIONS({OPT_WORD, 0, "kind", offsetof(struct options, kind), "K",
             "evictions, retention gates, or the last use by a query", "alpha", .words = kinds},
            {OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "selected set of kind last-use", CRITERION},
            {OPT_WORD, 0, "triangle", offsetof(struct options, triangle), "T",
             "sum over i <= t (le) or, as printed in the paper, i < t (lt)", "le",
             .words = triangles}),
    COLUMNS({"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--kind alpha, the default"},
            {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--kind beta"},
            {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,
             "--kind last-use, of --criterion"}),
    HEADS(FRAME_USUAL(struct plan, struct scratch)),
    .describe = describe,
    POOL(KEYS("kind", "layer", "index", "head"), {"sparsity"}),
};

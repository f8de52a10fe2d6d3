/* an_regret.c - attention mass that a method gave away at a step.  Of the weights
 * that query t of a query head puts on all entries, kept or evicted so far:
 *   kept_mass    share on the n entries that it still sees
 *   oracle_mass  share on the n largest
 *   regret       oracle_mass - kept_mass
 * Rows of a head `all` are means over the heads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "analyzers/heads_par.h"
#include "analyzers/pools.h"
#include "base/mem.h"
#include "base/stats.h"

enum { OPT_EVERY, OPT_MEAN, N_VALUES = 3, MOST_STEPS = 512 };
static const struct analyzer_option options[] = {
    {"every", "N", NULL, "every N-th step (default: at most 512 steps)"},
    {"mean", NULL, NULL, "one row per head: its mean over the steps"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_regret;

struct means {
    struct sum value[N_VALUES]; /* kept, oracle, regret */
    int64_t n;
};

struct plan {
    int column[2];
    int64_t a, b;     /* steps [a, b) */
    int64_t every, n; /* every how many steps; rows per head */
    bool mean;
    int threads;
    double *value[N_VALUES]; /* [(heads + 1) * n]; block `all` is the last */
    struct means *head;      /* [heads + 1] over all steps, shown or not */
    const struct head_list *heads;
    double *scratch; /* [threads][3][b - a] */
};

static void add(struct means *m, double kept, double oracle)
{
    sum_add(&m->value[0], kept);
    sum_add(&m->value[1], oracle);
    sum_add(&m->value[2], oracle - kept);
    m->n++;
}

static double mean_of(const struct means *m, int k)
{
    return m->n ? sum_get(&m->value[k]) / (double)m->n : NAN;
}

/* Rows of head h from its two columns of steps [a, b), and its means. */
static void take_head(struct plan *p, int h, double *kept, double *oracle, double *regret)
{
    struct means *m = &p->head[h];
    int64_t n = p->b - p->a;
    for (int64_t k = 0; k < n; k++)
        regret[k] = oracle[k] - kept[k];
    for (int64_t r = 0; !p->mean && r < p->n; r++) {
        p->value[0][h * p->n + r] = kept[r * p->every];
        p->value[1][h * p->n + r] = oracle[r * p->every];
        p->value[2][h * p->n + r] = regret[r * p->every];
    }
    for (int64_t k = 0; k < n; k++) { /* known is what both columns have */
        bool known = !isnan(kept[k]) && !isnan(oracle[k]);
        kept[k] = known ? kept[k] : NAN;
        oracle[k] = known ? oracle[k] : NAN;
        regret[k] = known ? regret[k] : NAN;
    }
    m->n = sum_add_known(&m->value[0], kept, n);
    sum_add_known(&m->value[1], oracle, n);
    sum_add_known(&m->value[2], regret, n);
}

static int do_head(void *ctx, struct kvf_trace *t, int item, int h, int thread, struct kvf_diag *d)
{
    struct plan *p = ctx;
    const struct head *x = &p->heads->head[h];
    uint32_t a = (uint32_t)p->a, n = (uint32_t)(p->b - p->a);
    double *kept = p->scratch + 3 * (size_t)thread * n, *oracle = kept + n;
    (void)item;
    int err = kvf_read_f64(t, p->column[0], x->layer, x->index, a, n, kept, d);
    if (!err)
        err = kvf_read_f64(t, p->column[1], x->layer, x->index, a, n, oracle, d);
    if (!err)
        take_head(p, h, kept, oracle, oracle + n);
    return err;
}

/* Over the heads, in their order: at each step shown, and over all steps. */
static void add_heads(struct plan *p, int n_heads, struct means *step)
{
    for (int h = 0; h < n_heads; h++) {
        struct means *all = &p->head[n_heads];
        for (int k = 0; k < N_VALUES; k++)
            sum_merge(&all->value[k], &p->head[h].value[k]);
        all->n += p->head[h].n;
        for (int64_t r = 0; !p->mean && r < p->n; r++) {
            double kept = p->value[0][h * p->n + r], oracle = p->value[1][h * p->n + r];
            if (!isnan(kept) && !isnan(oracle))
                add(&step[r], kept, oracle);
        }
    }
}

static void take_means(struct plan *p, int n_heads, const struct means *step)
{
    for (int k = 0; k < N_VALUES; k++) {
        for (int h = 0; p->mean && p->n && h <= n_heads; h++)
            p->value[k][h] = mean_of(&p->head[h], k);
        for (int64_t r = 0; !p->mean && r < p->n; r++)
            p->value[k][n_heads * p->n + r] = mean_of(&step[r], k);
    }
}

static int fill(struct kvf_trace *t, const struct head_list *heads, struct plan *p,
                struct kvf_diag *d)
{
    struct heads_par *par = NULL;
    size_t n = (size_t)(p->b - p->a);
    struct means *step = MEM_NEW(struct means, (size_t)p->n);
    int err = heads_par_create(t, p->threads, 2 * (int64_t)n * heads->n, &par);
    p->heads = heads;
    if (!err)
        p->scratch = mem_alloc(3 * (size_t)heads_par_threads(par), n * sizeof(double));
    if (!err && !(step && p->scratch))
        err = KVF_E_NOMEM;
    if (!err && n)
        err = heads_par_run(par, heads, 1, do_head, p, d);
    if (!err) {
        add_heads(p, heads->n, step);
        take_means(p, heads->n, step);
    }
    heads_par_destroy(par);
    mem_free(p->scratch);
    mem_free(step);
    return err;
}

static void put_summary(struct table *out, const struct head_list *heads, const struct plan *p)
{
    static const char *const keys[N_VALUES] = {"mean_kept_mass", "mean_oracle_mass", "mean_regret"};
    int worst = -1;
    for (int h = 0; h < heads->n; h++)
        if (p->head[h].n && (worst < 0 || mean_of(&p->head[h], 2) > mean_of(&p->head[worst], 2)))
            worst = h;
    for (int k = 0; k < N_VALUES && worst >= 0; k++)
        table_meta_num(out, keys[k], mean_of(&p->head[heads->n], k));
    if (worst >= 0) {
        table_meta_str(out, "worst_head", heads->name[worst]);
        table_meta_num(out, "worst_regret", mean_of(&p->head[worst], 2));
    }
}

static int build(struct kvf_trace *t, const struct head_list *heads, const struct plan *p,
                 struct table *out)
{
    int err = put_heads_all(out, heads);
    put_provenance(out, t);
    put_tokens(out, p->a, p->b, kvf_n_steps(t));
    if (!p->mean)
        table_meta_num(out, "every", (double)p->every);
    put_summary(out, heads, p);
    table_affine(out, "step", "step", p->mean ? -1 : p->a, p->mean ? 0 : p->every, p->n);
    table_dense_real(out, "kept_mass", "", p->value[0]);
    table_dense_real(out, "oracle_mass", "", p->value[1]);
    table_dense_real(out, "regret", "", p->value[2]);
    return err ? err : table_err(out);
}

static int columns(const struct kvf_trace *t, struct plan *p, struct kvf_diag *d)
{
    static const char *const names[2] = {"shadow.kept_mass", "shadow.oracle_mass"};
    for (int k = 0; k < 2; k++) {
        p->column[k] = kvf_find(t, names[k]);
        if (p->column[k] < 0)
            return kvf_fail(d, KVF_E_NOTFOUND,
                            "this trace has no column %s; record it with "
                            "'kvfate run --shadow entries'",
                            names[k]);
        const struct kvf_column *c = kvf_column(t, p->column[k]);
        if (c->space != KVF_SPACE_QUERY || c->axis != KVF_AXIS_STEP)
            return kvf_fail(d, KVF_E_FORMAT,
                            "the column %s must hold a value for each query head "
                            "and step",
                            names[k]);
    }
    return KVF_OK;
}

static int parse(const struct analyzer_args *args, struct plan *p, struct kvf_diag *d)
{
    const char *text = option_text(&an_regret, args, OPT_EVERY);
    int64_t T = p->b - p->a;
    char *end = NULL;
    p->mean = option_text(&an_regret, args, OPT_MEAN) != NULL;
    p->every = text ? strtoll(text, &end, 10) : (T + MOST_STEPS - 1) / MOST_STEPS;
    if (text && (p->every < 1 || *end))
        return kvf_fail(d, KVF_E_ARG, "--every needs a whole number of steps, not '%s'", text);
    if (text && p->mean)
        return kvf_fail(d, KVF_E_ARG,
                        "--every and --mean exclude each other: a mean is over all "
                        "steps");
    if (p->every < 1)
        p->every = 1;
    p->n = p->mean ? T > 0 : T / p->every + (T % p->every != 0);
    return KVF_OK;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct head_list heads = {0};
    struct plan p = {.every = 1, .threads = args->threads};
    struct table *out = NULL;
    (void)n_traces;
    int err = tokens_select(t, args, &p.a, &p.b, d);
    if (!err)
        err = parse(args, &p, d);
    if (!err)
        err = columns(t, &p, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &heads, d);
    if (err)
        return err;
    size_t rows = ((size_t)heads.n + 1) * (size_t)p.n;
    p.head = MEM_NEW(struct means, (size_t)heads.n + 1);
    for (int k = 0; k < N_VALUES; k++)
        if (!(p.value[k] = MEM_NEW(double, rows)))
            err = KVF_E_NOMEM;
    out = table_create("regret", (int64_t)rows);
    if (!out || !p.head)
        err = KVF_E_NOMEM;
    if (!err)
        err = fill(t, &heads, &p, d);
    if (!err)
        err = build(t, &heads, &p, out);
    for (int k = 0; k < N_VALUES; k++)
        mem_free(p.value[k]);
    mem_free(p.head);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    if (!table_meta(t, "mean_regret")) {
        buf_printf(out, "no step with evicted entries to compare with\n");
        return;
    }
    buf_printf(out,
               "mean over heads and steps: kept %.4f of the attention mass, the best entries "
               "of that number %.4f: regret %.4f\n",
               table_meta_real(t, "mean_kept_mass", NAN),
               table_meta_real(t, "mean_oracle_mass", NAN), table_meta_real(t, "mean_regret", NAN));
    buf_printf(out, "worst head %s: regret %.4f\n", table_meta(t, "worst_head"),
               table_meta_real(t, "worst_regret", NAN));
}

const struct analyzer an_regret = {
    .name = "regret",
    .summary = "attention mass given away against the best entries of that number",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool_regret,
};

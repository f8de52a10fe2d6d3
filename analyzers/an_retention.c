/* an_retention.c - how long each token is worth keeping, as retention gates say, or was of
 * use.  Source gate: log beta of every entry as recorded, and what follows from it.  Source
 * last-use, without gates: the largest age at which the token was in the selected set of a
 * query.  That is an observation, not a learned retention score: beta stays NaN. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "analyzers/selected.h"
#include "base/mem.h"
#include "base/par.h"

enum { OPT_CRITERION, OPT_SOURCE };
static const struct analyzer_option options[] = {
    {"criterion", "C", "top64", "selected set: top64 ... top512, mass.90 ... mass.99"},
    {"source", "S", NULL, "gate or last-use (default: gate where the trace has gates)"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_retention;

/* What the columns of the table are read from: log beta as recorded, the rest follows. */
struct source {
    int64_t a, n, T; /* tokens [a, a + n) of each head */
    float *lb;       /* per head and token; NULL without gates */
    int32_t *last;   /* the same; NULL: no ages */
};

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    const char *criterion;
    bool gate;
    int log_beta, age; /* columns, or -1 */
    struct source *s;
    double *row;       /* [n] */
};

static void source_destroy(void *ctx)
{
    struct source *s = ctx;
    mem_free(s->lb);
    mem_free(s->last);
    mem_free(s);
}

static void read_log_beta(void *ctx, int64_t row0, int64_t n, double *out)
{
    const struct source *s = ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)s->lb[row0 + i];
}

static void read_beta(void *ctx, int64_t row0, int64_t n, double *out)
{
    const struct source *s = ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = exp((double)s->lb[row0 + i]);
}

static void read_mean(void *ctx, int64_t row0, int64_t n, double *out)
{
    const struct source *s = ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = mean_retention((double)s->lb[row0 + i], s->a + (row0 + i) % s->n, s->T);
}

static void read_last(void *ctx, int64_t row0, int64_t n, double *out)
{
    const struct source *s = ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = s->last[row0 + i];
}

static void put_columns(struct table *out, const struct data *x)
{
    static const double nan_value[1] = {NAN};
    static const int64_t none[1] = {-1};
    static const char *const names[2] = {"last-use", "gate"};
    int64_t one = table_rows(out) > 0;
    const char *const source[1] = {names[x->gate]};
    put_provenance(out, x->t);
    if (x->age >= 0)
        table_meta_str(out, "criterion", x->criterion);
    table_meta_str(out, "source", source[0]);
    table_cycle_str(out, "source", "", source, one);
    put_heads(out, &x->heads);
    table_affine(out, "token", "", x->s->a, 1, x->s->n);
    table_affine(out, "birth", "step", x->s->a, 1, x->s->n);
    if (x->gate) {
        table_lazy(out, "log_beta", "nat", TABLE_REAL, read_log_beta, x->s);
        table_lazy(out, "beta", "", TABLE_REAL, read_beta, x->s);
        table_lazy(out, "mean_retention", "", TABLE_REAL, read_mean, x->s);
    } else {
        table_cycle_real(out, "log_beta", "nat", nan_value, one);
        table_cycle_real(out, "beta", "", nan_value, one);
        table_cycle_real(out, "mean_retention", "", nan_value, one);
    }
    if (x->age >= 0)
        table_lazy(out, "last_use_age", "step", TABLE_INT, read_last, x->s);
    else
        table_cycle_int(out, "last_use_age", "step", none, one);
}

/* last becomes the largest age of the query heads [first, first + share) of a layer. */
static int read_ages(struct data *x, int layer, int first, int share, int32_t *last,
                     struct kvf_diag *d)
{
    const struct source *s = x->s;
    int err = KVF_OK;
    for (int64_t i = 0; i < s->n; i++)
        last[i] = -1;
    for (int g = first; !err && g < first + share; g++) {
        err = kvf_read_f64(x->t, x->age, layer, g, (uint32_t)s->a, (uint32_t)s->n, x->row, d);
        for (int64_t i = 0; !err && i < s->n; i++)
            last[i] = x->row[i] > last[i] ? (int32_t)x->row[i] : last[i];
    }
    return err;
}

static int read_gates(struct data *x, const struct head *h, float *lb, struct kvf_diag *d)
{
    const struct source *s = x->s;
    int err = kvf_read_f64(x->t, x->log_beta, h->layer, h->index, (uint32_t)s->a, (uint32_t)s->n,
                           x->row, d);
    for (int64_t i = 0; !err && i < s->n; i++)
        lb[i] = (float)x->row[i]; /* as it was recorded */
    return err;
}

static int read_heads(struct data *x, struct kvf_diag *d)
{
    int err = KVF_OK;
    int64_t n = x->s->n;
    for (int h = 0; !err && n && h < x->heads.n; h++) {
        const struct head *head = &x->heads.head[h];
        int G = kvf_n_heads(x->t, head->layer, KVF_SPACE_QUERY);
        int H = kvf_n_heads(x->t, head->layer, KVF_SPACE_KV), share = x->gate ? G / H : 1;
        if (x->gate)
            err = read_gates(x, head, x->s->lb + h * n, d);
        if (!err && x->s->last)
            err = read_ages(x, head->layer, head->index * share, share, x->s->last + h * n, d);
    }
    return err;
}

static int alloc(struct data *x, size_t rows)
{
    x->row = MEM_NEW(double, (size_t)x->s->n);
    x->s->lb = x->gate ? MEM_NEW(float, rows) : NULL;
    x->s->last = x->age >= 0 ? MEM_NEW(int32_t, rows) : NULL;
    return x->row && (!x->gate || x->s->lb) && (x->age < 0 || x->s->last) ? KVF_OK : KVF_E_NOMEM;
}

static int make(struct data *x, int64_t a, int64_t n, struct table **ret_table,
                struct kvf_diag *d)
{
    size_t rows = (size_t)x->heads.n * (size_t)n;
    struct table *out = table_create("retention", (int64_t)rows);
    x->s = MEM_NEW(struct source, 1);
    if (!out || !x->s) {
        table_destroy(out);
        mem_free(x->s);
        return KVF_E_NOMEM;
    }
    *x->s = (struct source){a, n, kvf_n_steps(x->t), NULL, NULL};
    table_own(out, x->s, source_destroy);
    int err = table_err(out) ? table_err(out) : alloc(x, rows);
    if (!err)
        err = read_heads(x, d);
    if (!err) {
        put_columns(out, x);
        err = table_err(out);
    }
    mem_free(x->row);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

/* The columns that there are, and those that there must be. */
static int find_columns(struct data *x, const char *source, struct kvf_diag *d)
{
    char name[KVF_NAME_MAX + 16];
    snprintf(name, sizeof name, "last_selected.%.40s", x->criterion);
    x->age = kvf_find(x->t, name);
    x->log_beta = kvf_find(x->t, "log_beta");
    x->gate = source ? strcmp(source, "gate") == 0 : x->log_beta >= 0;
    if (source && !x->gate && strcmp(source, "last-use") != 0)
        return kvf_fail(d, KVF_E_ARG, "--source is gate or last-use, not '%s'", source);
    return x->gate ? log_beta_need(x->t, &x->log_beta, d)
                   : column_need(x->t, name, criterion_probe(x->criterion), &x->age, d);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {.t = traces[0], .criterion = option_text(&an_retention, args, OPT_CRITERION)};
    int64_t a, b;
    (void)n_traces;
    int err = find_columns(&x, option_text(&an_retention, args, OPT_SOURCE), d);
    if (!err)
        err = tokens_select(x.t, args, &a, &b, d);
    if (!err)
        err = heads_select(x.t, x.gate ? KVF_SPACE_KV : KVF_SPACE_QUERY, args->heads, &x.heads, d);
    if (err)
        return err;
    err = make(&x, a, b - a, ret_table, d);
    heads_free(&x.heads);
    return err;
}

/* Sums of beta and mean retention over parts of the table, on all cores; added in order, so
 * that threads change nothing. */
enum { PART = 1 << 15 };
struct sums {
    const struct table *t;
    struct part {
        int64_t known;
        double beta, mean;
    } *part;
};

static void sum_part(void *ctx, int task, int thread)
{
    const struct sums *x = ctx;
    const struct table *t = x->t;
    struct part *p = &x->part[task];
    int64_t rows = table_rows(t), end = (int64_t)(task + 1) * PART, n;
    double beta[1024], mean[1024];
    (void)thread;
    for (int64_t r = (int64_t)task * PART; r < rows && r < end; r += n) {
        n = rows - r < 1024 ? rows - r : 1024;
        table_get(t, table_find(t, "beta"), r, n, beta);
        table_get(t, table_find(t, "mean_retention"), r, n, mean);
        for (int64_t i = 0; i < n; i++) {
            p->known += !isnan(beta[i]);
            p->beta += isnan(beta[i]) ? 0 : beta[i];
            p->mean += isnan(beta[i]) ? 0 : mean[i];
        }
    }
}

static void describe_gates(const struct table *t, struct buf *out)
{
    int64_t n = table_rows(t), parts = (n + PART - 1) / PART;
    struct sums x = {t, MEM_NEW(struct part, (size_t)parts)};
    struct part all = {0, 0, 0};
    struct par *pool = NULL;
    if (!x.part || parts > INT_MAX || par_create(parts > 1 ? 0 : 1, &pool)) {
        mem_free(x.part);
        out->err = KVF_E_NOMEM;
        return;
    }
    par_run(pool, (int)parts, sum_part, &x);
    for (int64_t i = 0; i < parts; i++) {
        all.known += x.part[i].known;
        all.beta += x.part[i].beta;
        all.mean += x.part[i].mean;
    }
    buf_printf(out, "retention of gates: %lld head-token pairs", (long long)n);
    if (all.known)
        buf_printf(out, "; mean beta %.4f, mean retention %.4f", all.beta / (double)all.known,
                   all.mean / (double)all.known);
    buf_str(out, "\n");
    par_destroy(pool);
    mem_free(x.part);
}

static void describe(const struct table *t, struct buf *out)
{
    const char *source = table_meta(t, "source");
    int age = table_find(t, "last_use_age");
    int64_t n = table_rows(t), never = 0;
    double sum = 0;
    if (source && strcmp(source, "gate") == 0) {
        describe_gates(t, out);
        return;
    }
    for (int64_t r = 0; r < n; r++) {
        double v = table_real(t, age, r);
        never += v < 0;
        sum += v > 0 ? v : 0;
    }
    buf_printf(out, "last-use map (criterion %s): an observation, no retention score of gates\n",
               table_meta(t, "criterion"));
    buf_printf(
        out, "%lld head-token pairs; never selected: %.1f %%; mean last-use age %.1f steps\n",
        (long long)n, n ? 100.0 * (double)never / (double)n : 0.0, n ? sum / (double)n : 0.0);
}

const struct analyzer an_retention = {
    .name = "retention",
    .summary = "what gates say tokens are worth, or how long they were used",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
};

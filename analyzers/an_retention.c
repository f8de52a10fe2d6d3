/* an_retention.c - how long each token is worth keeping, as retention gates say, or was of
 * use.  Source gate: log beta of every entry as recorded, and what follows from it.  Source
 * last-use, without gates: the largest age at which the token was in the selected set of a
 * query.  That is an observation, not a learned retention score: beta stays NaN. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "analyzers/selected.h"
#include "base/mem.h"

enum { OPT_CRITERION, OPT_SOURCE };
static const struct analyzer_option options[] = {
    {"criterion", "C", "top64", "selected set: top64 ... top512, mass.90 ... mass.99"},
    {"source", "S", NULL, "gate or last-use (default: gate where the trace has gates)"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_retention;

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    const char *criterion;
    bool gate;
    int log_beta, age; /* columns, or -1 */
    int64_t a, n;      /* tokens [a, a + n) */
    /* One value per head and token; those of gates only where there are some. */
    double *lb, *beta, *mean;
    int64_t *last;
    double *row; /* [n] */
};

static void put_columns(struct table *out, const struct data *x)
{
    static const double nan_value[1] = {NAN};
    static const char *const names[2] = {"last-use", "gate"};
    int64_t one = table_rows(out) > 0;
    const char *const source[1] = {names[x->gate]};
    put_provenance(out, x->t);
    if (x->age >= 0)
        table_meta_str(out, "criterion", x->criterion);
    table_meta_str(out, "source", source[0]);
    table_cycle_str(out, "source", "", source, one);
    put_heads(out, &x->heads);
    table_affine(out, "token", "", x->a, 1, x->n);
    table_affine(out, "birth", "step", x->a, 1, x->n);
    if (x->gate) {
        table_dense_real(out, "log_beta", "nat", x->lb);
        table_dense_real(out, "beta", "", x->beta);
        table_dense_real(out, "mean_retention", "", x->mean);
    } else {
        table_cycle_real(out, "log_beta", "nat", nan_value, one);
        table_cycle_real(out, "beta", "", nan_value, one);
        table_cycle_real(out, "mean_retention", "", nan_value, one);
    }
    table_dense_int(out, "last_use_age", "step", x->last);
}

/* last becomes the largest age of the query heads [first, first + share) of a layer. */
static int read_ages(struct data *x, int layer, int first, int share, int64_t *last,
                     struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int64_t i = 0; i < x->n; i++)
        last[i] = -1;
    for (int g = first; !err && g < first + share; g++) {
        err = kvf_read_f64(x->t, x->age, layer, g, (uint32_t)x->a, (uint32_t)x->n, x->row, d);
        for (int64_t i = 0; !err && i < x->n; i++)
            last[i] = x->row[i] > (double)last[i] ? (int64_t)x->row[i] : last[i];
    }
    return err;
}

static int read_gates(struct data *x, const struct head *h, int64_t at, struct kvf_diag *d)
{
    int64_t T = kvf_n_steps(x->t);
    int err = kvf_read_f64(x->t, x->log_beta, h->layer, h->index, (uint32_t)x->a, (uint32_t)x->n,
                           x->lb + at, d);
    for (int64_t i = 0; !err && i < x->n; i++) {
        x->beta[at + i] = exp(x->lb[at + i]);
        x->mean[at + i] = mean_retention(x->lb[at + i], x->a + i, T);
    }
    return err;
}

static int read_heads(struct data *x, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int h = 0; !err && x->n && h < x->heads.n; h++) {
        const struct head *head = &x->heads.head[h];
        int G = kvf_n_heads(x->t, head->layer, KVF_SPACE_QUERY);
        int H = kvf_n_heads(x->t, head->layer, KVF_SPACE_KV), share = x->gate ? G / H : 1;
        if (x->gate)
            err = read_gates(x, head, h * x->n, d);
        if (!err)
            err = read_ages(x, head->layer, head->index * share, x->age < 0 ? 0 : share,
                            x->last + h * x->n, d);
    }
    return err;
}

static int make(struct data *x, struct table **ret_table, struct kvf_diag *d)
{
    size_t rows = (size_t)x->heads.n * (size_t)x->n, gates = x->gate ? rows : 0;
    struct table *out = table_create("retention", (int64_t)rows);
    x->lb = MEM_NEW(double, gates);
    x->beta = MEM_NEW(double, gates);
    x->mean = MEM_NEW(double, gates);
    x->last = MEM_NEW(int64_t, rows);
    x->row = MEM_NEW(double, (size_t)x->n);
    int err = out && x->lb && x->beta && x->mean && x->last && x->row ? read_heads(x, d)
                                                                      : KVF_E_NOMEM;
    if (!err) {
        put_columns(out, x);
        err = table_err(out);
    }
    mem_free(x->lb);
    mem_free(x->beta);
    mem_free(x->mean);
    mem_free(x->last);
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
    int64_t b;
    (void)n_traces;
    int err = find_columns(&x, option_text(&an_retention, args, OPT_SOURCE), d);
    if (!err)
        err = tokens_select(x.t, args, &x.a, &b, d);
    if (!err)
        err = heads_select(x.t, x.gate ? KVF_SPACE_KV : KVF_SPACE_QUERY, args->heads, &x.heads, d);
    if (err)
        return err;
    x.n = b - x.a;
    err = make(&x, ret_table, d);
    heads_free(&x.heads);
    return err;
}

static void describe_gates(const struct table *t, struct buf *out)
{
    int beta = table_find(t, "beta"), mean = table_find(t, "mean_retention");
    int64_t n = table_rows(t), known = 0;
    double b = 0, m = 0;
    for (int64_t r = 0; r < n; r++) {
        double v = table_real(t, beta, r);
        if (isnan(v))
            continue;
        known++;
        b += v;
        m += table_real(t, mean, r);
    }
    buf_printf(out, "retention of gates: %lld head-token pairs", (long long)n);
    if (known)
        buf_printf(out, "; mean beta %.4f, mean retention %.4f", b / (double)known,
                   m / (double)known);
    buf_str(out, "\n");
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

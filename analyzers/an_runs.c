/* an_runs.c - whether the entries that a head holds lie in blocks or scattered: how many runs of
 * neighbours they form, against a random choice of as many (Wald and Wolfowitz 1940). */
#include <math.h>
#include <stdio.h>

#include "analyzers/common.h"
#include "base/mem.h"
#include "base/opt.h"

enum { OPT_STEP };
static const struct analyzer_option options[] = {
    {"step", "N", "end", "what query N sees (default: what is left at the end)"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_runs;

/* Of each head, then of all: integers as counted, then what follows from them. */
enum { TOKENS, KEPT, RUNS, ALONE, LONGEST, CHANGES, COUNTS };
enum { MEAN_RUN, EXPECTED_RUNS, CLUSTERING, EXPECTED_CHANGES, Z, REALS };

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    int evict;
    int64_t a, b, step; /* tokens [a, b) of those that are born at the step */
    int64_t *count[COUNTS];
    double *real[REALS];
    int64_t undefined; /* heads without z */
};

static void count_head(struct data *x, int h, const double *evict)
{
    int64_t run = 0, end = x->step < x->b ? x->step + 1 : x->b;
    for (int64_t i = x->a; i <= end && end > x->a; i++) {
        bool kept = i < end && evict[i] > (double)x->step;
        if (i < end) {
            x->count[TOKENS][h]++;
            x->count[KEPT][h] += kept;
            x->count[CHANGES][h] += i == x->a || kept != (run > 0);
        }
        if (kept) {
            run++;
            continue;
        }
        x->count[RUNS][h] += run > 0;
        x->count[ALONE][h] += run == 1;
        if (run > x->count[LONGEST][h])
            x->count[LONGEST][h] = run;
        run = 0;
    }
}

/* k of n places chosen at random: k (n - k + 1) / n runs of them are expected, and of both kinds
 * together 1 + 2 k (n - k) / n, with the variance 2 k (n - k) (2 k (n - k) - n) / (n^2 (n - 1)). */
static void expect(struct data *x, int h)
{
    double n = (double)x->count[TOKENS][h], k = (double)x->count[KEPT][h];
    double runs = (double)x->count[RUNS][h], both = 2 * k * (n - k);
    double variance = n > 1 ? both * (both - n) / (n * n * (n - 1)) : 0;
    x->real[MEAN_RUN][h] = runs > 0 ? k / runs : NAN;
    x->real[EXPECTED_RUNS][h] = n > 0 ? k * (n - k + 1) / n : NAN;
    x->real[CLUSTERING][h] = runs > 0 ? x->real[EXPECTED_RUNS][h] / runs : NAN;
    x->real[EXPECTED_CHANGES][h] = n > 0 ? 1 + both / n : NAN;
    x->real[Z][h] = variance > 0 ? ((double)x->count[CHANGES][h] - x->real[EXPECTED_CHANGES][h])
                                       / sqrt(variance)
                                 : NAN;
    x->undefined += !(variance > 0);
}

/* Sums over the heads; the longest of them, and the mean of z where it is defined. */
static void add_up(struct data *x)
{
    int all = x->heads.n;
    double z = 0, expected = 0, changes = 0;
    for (int h = 0; h < all; h++) {
        for (int c = 0; c < COUNTS; c++)
            if (c != LONGEST)
                x->count[c][all] += x->count[c][h];
            else if (x->count[c][h] > x->count[c][all])
                x->count[c][all] = x->count[c][h];
        z += isnan(x->real[Z][h]) ? 0 : x->real[Z][h];
        expected += x->real[EXPECTED_RUNS][h];
        changes += x->real[EXPECTED_CHANGES][h];
    }
    double runs = (double)x->count[RUNS][all];
    bool any = x->count[TOKENS][all] > 0;
    x->real[MEAN_RUN][all] = runs > 0 ? (double)x->count[KEPT][all] / runs : NAN;
    x->real[EXPECTED_RUNS][all] = any ? expected : NAN;
    x->real[CLUSTERING][all] = runs > 0 ? expected / runs : NAN;
    x->real[EXPECTED_CHANGES][all] = any ? changes : NAN;
    x->real[Z][all] = all > x->undefined ? z / (double)(all - x->undefined) : NAN;
}

static int read_heads(struct data *x, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(x->t);
    double *evict = MEM_NEW(double, T);
    int err = evict ? KVF_OK : KVF_E_NOMEM;
    for (int h = 0; !err && h < x->heads.n; h++) {
        if (T)
            err = read_evict(x->t, x->evict, &x->heads.head[h], T, evict, d);
        if (!err) {
            count_head(x, h, evict);
            expect(x, h);
        }
    }
    if (!err)
        add_up(x);
    mem_free(evict);
    return err;
}

static int build(const struct data *x, struct table *out)
{
    static const char *const counts[COUNTS] = {"tokens", "kept",    "runs",
                                               "alone",  "longest", "changes"};
    static const char *const reals[REALS] = {"mean_run", "expected_runs", "clustering",
                                             "expected_changes", "z"};
    put_provenance(out, x->t);
    put_tokens(out, x->a, x->b, kvf_n_steps(x->t));
    table_meta_num(out, "step", (double)x->step);
    table_meta_num(out, "undefined", (double)x->undefined);
    int err = put_heads_all(out, &x->heads);
    for (int c = 0; c < COUNTS; c++)
        table_dense_int(out, counts[c], c == RUNS || c == CHANGES ? "" : "tokens", x->count[c]);
    for (int c = 0; c < REALS; c++)
        table_dense_real(out, reals[c], c == MEAN_RUN ? "tokens" : "", x->real[c]);
    return err ? err : table_err(out);
}

static int prepare(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    int err = step_select(option_text(&an_runs, args, OPT_STEP), kvf_n_steps(x->t), &x->step, d);
    if (!err)
        err = tokens_select(x->t, args, &x->a, &x->b, d);
    if (!err)
        err = column_need(x->t, "evict_step", "evict", &x->evict, d);
    if (!err)
        err = heads_select(x->t, KVF_SPACE_KV, args->heads, &x->heads, d);
    size_t rows = (size_t)x->heads.n + 1;
    for (int c = 0; !err && c < COUNTS; c++)
        err = (x->count[c] = MEM_NEW(int64_t, rows)) ? KVF_OK : KVF_E_NOMEM;
    for (int c = 0; !err && c < REALS; c++)
        err = (x->real[c] = MEM_NEW(double, rows)) ? KVF_OK : KVF_E_NOMEM;
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {.t = traces[0]};
    struct table *out = NULL;
    (void)n_traces;
    int err = prepare(&x, args, d);
    if (!err)
        err = (out = table_create("runs", x.heads.n + 1)) ? read_heads(&x, d) : KVF_E_NOMEM;
    if (!err)
        err = build(&x, out);
    for (int c = 0; c < COUNTS; c++)
        mem_free(x.count[c]);
    for (int c = 0; c < REALS; c++)
        mem_free(x.real[c]);
    heads_free(&x.heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int64_t heads = table_rows(t) - 1, below = 0, above = 0;
    int z = table_find(t, "z");
    for (int64_t h = 0; h < heads; h++) {
        below += table_real(t, z, h) < -1.96;
        above += table_real(t, z, h) > 1.96;
    }
    long long kept = (long long)table_int(t, table_find(t, "kept"), heads);
    buf_printf(out, "%lld entries of %lld heads held at step %s in %lld runs\n", kept,
               (long long)heads, table_meta(t, "step"),
               (long long)table_int(t, table_find(t, "runs"), heads));
    if (!kept)
        return;
    buf_printf(out, "mean run %.3f; as many at random give %.3f\n",
               table_real(t, table_find(t, "mean_run"), heads),
               (double)kept / table_real(t, table_find(t, "expected_runs"), heads));
    buf_printf(out, "%.1f %% stand alone, longest run %lld\n",
               100 * (double)table_int(t, table_find(t, "alone"), heads) / (double)kept,
               (long long)table_int(t, table_find(t, "longest"), heads));
    buf_printf(out,
               "fewer runs than at random (z < -1.96): %lld heads, more (z > 1.96): %lld, "
               "undefined: %s\n",
               (long long)below, (long long)above, table_meta(t, "undefined"));
}

static const char *const keys[] = {"head", "layer", "index", NULL};
static const struct analyzer_measure measures[] = {
    {"mean_run", "kept", "runs"}, {"alone_share", "alone", "kept"},
    {"clustering", NULL, NULL},   {"z", NULL, NULL},
    {NULL, NULL, NULL},
};
static const struct analyzer_pool pool = {keys, measures};

const struct analyzer an_runs = {
    .name = "runs",
    .summary = "whether what is held lies in blocks or scattered",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};

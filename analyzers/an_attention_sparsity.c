/* an_attention_sparsity.c - the share of tokens whose score is under p times the largest one
 * (G-KV, appendix B and figure 9).  form=window: the score is what the last 16 queries gave
 * an entry; form=step: the weights of each query by themselves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/windows.h"
#include "base/mem.h"
#include "base/stats.h"

enum { OPT_FORM, OPT_P, OPT_ENTRIES, OPT_MAX, MOST_P = 64 };
enum { SPAN = KVF_WINDOWS * KVF_WINDOW_QUERIES }; /* the last 512 tokens */
static const struct analyzer_option options[] = {
    {"form", "F", "window", "window: the last 16 queries together; step: each query (window)"},
    {"p", "LIST", NULL,
     "shares of the largest score (0.0001,0.001,0.01,0.1; window: 0.02,0.05, too)"},
    {"entries", "E", NULL,
     "last: of the last 512 tokens; kept: of all (last; kept where any was evicted)"},
    {"max", "M", NULL, "the largest score of: counted, the tokens that are counted; all (counted)"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_attention_sparsity;

struct plan {
    bool step, kept, all; /* form; entries; max */
    double p[MOST_P];
    int n_p;
    int64_t a, b; /* tokens, or queries, [a, b) */
    struct windows w;
    int column[KVF_N_UNDER + 1]; /* of each p; the last: seen */
};

struct cell { /* of a group of heads and a p */
    int64_t under, tokens, queries;
    struct sum share; /* of under / tokens, over queries */
};

struct work {                  /* of one head; doubles [T] */
    double *evict, *score;     /* form=window */
    double *seen, *under;      /* form=step; the same memory */
    int64_t left_out, evicted; /* of all heads */
};

/* ---- what is asked for */

static const char *const under_names[] = {
#define X(name, p) "under." #name,
    KVF_UNDER_MAP(X)
#undef X
        "under.seen"};

static const double under_shares[] = {
#define X(name, p) p,
    KVF_UNDER_MAP(X)
#undef X
};

static int column_of_steps(const struct kvf_trace *t, const char *name, int *ret,
                           struct kvf_diag *d)
{
    *ret = kvf_find(t, name);
    if (*ret < 0)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "this trace has no column %s; record it with "
                        "'kvfate run --probes paper,under' (or full)",
                        name);
    const struct kvf_column *c = kvf_column(t, *ret);
    if (c->space != KVF_SPACE_QUERY || c->axis != KVF_AXIS_STEP)
        return kvf_fail(d, KVF_E_FORMAT,
                        "the column %s must hold a value for each query head and "
                        "step",
                        name);
    return KVF_OK;
}

static int choose_steps(const struct kvf_trace *t, struct plan *x, struct kvf_diag *d)
{
    int err = column_of_steps(t, under_names[KVF_N_UNDER], &x->column[x->n_p], d);
    for (int p = 0; !err && p < x->n_p; p++) {
        int k = 0;
        while (k < KVF_N_UNDER && under_shares[k] != x->p[p])
            k++;
        if (k == KVF_N_UNDER)
            return kvf_fail(d, KVF_E_ARG,
                            "--p: --form step knows 0.0001, 0.001, 0.01 and 0.1, "
                            "which is what is recorded, not %g",
                            x->p[p]);
        err = column_of_steps(t, under_names[k], &x->column[p], d);
    }
    return err;
}

/* One of two words, or neither. */
static int choose(const char *option, const char *text, const char *no, const char *yes, bool *ret,
                  struct kvf_diag *d)
{
    *ret = text && strcmp(text, yes) == 0;
    if (text && !*ret && strcmp(text, no) != 0)
        return kvf_fail(d, KVF_E_ARG, "--%s is %s or %s, not '%s'", option, no, yes, text);
    return KVF_OK;
}

static int parse(const struct kvf_trace *t, const struct analyzer_args *args, struct plan *x,
                 struct kvf_diag *d)
{
    const struct analyzer *me = &an_attention_sparsity;
    const char *p = option_text(me, args, OPT_P), *entries = option_text(me, args, OPT_ENTRIES);
    const char *max = option_text(me, args, OPT_MAX);
    int err = choose("form", option_text(me, args, OPT_FORM), "window", "step", &x->step, d);
    if (!err)
        err = choose("entries", entries, "last", "kept", &x->kept, d);
    if (!err)
        err = choose("max", max, "counted", "all", &x->all, d);
    if (!err && x->step && (entries || max))
        return kvf_fail(d, KVF_E_ARG,
                        "--%s speaks of --form window; a step counts all that its "
                        "query saw",
                        entries ? "entries" : "max");
    if (!p)
        p = x->step ? "0.0001,0.001,0.01,0.1" : "0.0001,0.001,0.01,0.02,0.05,0.1";
    if (!err)
        err = windows_shares("p", p, 1, x->p, MOST_P, &x->n_p, d);
    if (!err)
        err = x->step ? choose_steps(t, x, d) : windows_open(t, KVF_WINDOW_BLOCK, &x->w, d);
    return err ? err : tokens_select(t, args, &x->a, &x->b, d);
}

/* Where nothing was said, the entries of a run that evicted are those that it kept. */
static int choose_entries(struct kvf_trace *t, const struct analyzer_args *args,
                          const struct head_list *heads, struct plan *x, struct work *k,
                          struct kvf_diag *d)
{
    int err = KVF_OK;
    bool asked = option_text(&an_attention_sparsity, args, OPT_ENTRIES) != NULL;
    for (int h = 0; !err && !asked && !x->kept && x->w.T && h < heads->n; h++) {
        err = read_evict(t, x->w.evict, &heads->head[h], (uint32_t)x->w.T, k->evict, d);
        for (int64_t i = 0; !err && i < x->w.T; i++)
            x->kept = x->kept || k->evict[i] < (double)x->w.T;
    }
    return err;
}

/* ---- counting */

static void add_share(struct cell *c, int64_t under, int64_t tokens)
{
    c->under += under;
    c->tokens += tokens;
    if (tokens) {
        c->queries++;
        sum_add(&c->share, (double)under / (double)tokens);
    }
}

/* The groups that a head counts in. */
static void add_all(const struct plan *x, const struct head_groups *g, struct cell *cell, int h,
                    int p, int64_t under, int64_t tokens)
{
    add_share(&cell[h * x->n_p + p], under, tokens);
    add_share(&cell[g->layer_of[h] * x->n_p + p], under, tokens);
    add_share(&cell[(g->n - 1) * x->n_p + p], under, tokens);
}

static bool counted(const struct plan *x, const struct work *k, int64_t i)
{
    return i >= x->a && i < x->b && (x->kept || i >= x->w.end - SPAN)
           && k->evict[i] >= (double)x->w.T;
}

/* Counted scores to the front of k->score; returns their number. */
static int64_t gather(const struct plan *x, struct work *k, double *ret_most)
{
    int64_t n = 0;
    *ret_most = 0;
    for (int64_t i = 0; i < x->w.end; i++) {
        double v = k->score[i];
        bool mine = counted(x, k, i);
        if ((mine || x->all) && v > *ret_most) /* false for NaN */
            *ret_most = v;
        k->evicted += k->evict[i] < (double)x->w.T;
        k->left_out += mine && isnan(v);
        if (mine && !isnan(v))
            k->score[n++] = v;
    }
    return n;
}

static int count_window(struct kvf_trace *t, const struct plan *x, const struct head_list *heads,
                        const struct head_groups *g, struct work *k, struct cell *cell,
                        struct kvf_diag *d)
{
    int err = KVF_OK, column = x->w.column[KVF_WINDOWS - 1];
    uint32_t n = (uint32_t)x->w.end;
    for (int h = 0; !err && n && h < heads->n; h++) {
        const struct head *head = &heads->head[h];
        double most;
        err = read_evict(t, x->w.evict, head, n, k->evict, d);
        if (!err)
            err = kvf_read_f64(t, column, head->layer, head->index, 0, n, k->score, d);
        int64_t m = err ? 0 : gather(x, k, &most);
        for (int p = 0; !err && p < x->n_p; p++) {
            int64_t under = 0;
            for (int64_t i = 0; i < m; i++)
                under += k->score[i] < x->p[p] * most;
            add_all(x, g, cell, h, p, under, m);
        }
    }
    return err;
}

static int count_steps(struct kvf_trace *t, const struct plan *x, const struct head_list *heads,
                       const struct head_groups *g, struct work *k, struct cell *cell,
                       struct kvf_diag *d)
{
    int err = KVF_OK;
    uint32_t from = (uint32_t)x->a, n = (uint32_t)(x->b - x->a);
    for (int h = 0; !err && n && h < heads->n; h++) {
        const struct head *head = &heads->head[h];
        err = kvf_read_f64(t, x->column[x->n_p], head->layer, head->index, from, n, k->seen, d);
        for (int p = 0; !err && p < x->n_p; p++) {
            err = kvf_read_f64(t, x->column[p], head->layer, head->index, from, n, k->under, d);
            for (uint32_t i = 0; !err && i < n; i++) {
                bool known = k->under[i] >= 0 && k->under[i] <= k->seen[i]
                             && k->seen[i] <= (double)kvf_n_steps(t);
                k->left_out += p == 0 && (!known || k->seen[i] == 0);
                if (known)
                    add_all(x, g, cell, h, p, (int64_t)k->under[i], (int64_t)k->seen[i]);
            }
        }
    }
    return err;
}

/* ---- the table */

static int put_cells(struct table *out, const struct cell *cell, size_t n)
{
    double *r = MEM_NEW(double, 2 * n);
    int64_t *v = MEM_NEW(int64_t, 3 * n);
    int64_t undefined = 0;
    for (size_t i = 0; r && v && i < n; i++) {
        const struct cell *c = &cell[i];
        r[i] = c->queries ? sum_get(&c->share) / (double)c->queries : NAN;
        r[n + i] = c->tokens ? (double)c->under / (double)c->tokens : NAN;
        v[i] = c->under;
        v[n + i] = c->tokens;
        v[2 * n + i] = c->queries;
        undefined += c->queries == 0;
    }
    if (r && v) {
        table_dense_real(out, "sparsity", "", r);
        table_dense_real(out, "share", "", r + n);
        table_dense_int(out, "under", "", v);
        table_dense_int(out, "tokens", "", v + n);
        table_dense_int(out, "n", "", v + 2 * n);
        table_meta_num(out, "undefined", (double)undefined);
    }
    int err = r && v ? KVF_OK : KVF_E_NOMEM;
    mem_free(r);
    mem_free(v);
    return err;
}

static int build(const struct kvf_trace *t, const struct plan *x, const struct head_groups *g,
                 const struct work *k, const struct cell *cell, struct table **ret)
{
    int64_t T = kvf_n_steps(t);
    size_t rows = (size_t)g->n * (size_t)x->n_p;
    struct table *out = table_create("attention-sparsity", T ? (int64_t)rows : 0);
    const char *form = x->step ? "step" : "window";
    if (!out)
        return KVF_E_NOMEM;
    put_provenance(out, t);
    put_groups(out, g);
    table_cycle_str(out, "form", "", &form, 1);
    table_cycle_real(out, "p", "", x->p, x->n_p);
    int err = put_cells(out, cell, T ? rows : 0);
    put_tokens(out, x->a, x->b, T);
    table_meta_str(out, "form", form);
    if (!x->step) {
        table_meta_str(out, "entries", x->kept ? "all kept to the end" : "the last 512, if kept");
        table_meta_str(out, "max", x->all ? "of all entries" : "of the entries counted");
        table_meta_num(out, "end", (double)x->w.end);
        table_meta_num(out, "evicted", (double)k->evicted);
    }
    table_meta_num(out, "left_out", (double)k->left_out);
    *ret = out;
    return err ? err : table_err(out);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct plan x = {.step = false};
    struct head_list heads;
    struct head_groups g = {0};
    struct table *out = NULL;
    size_t T = kvf_n_steps(t);
    (void)n_traces;
    int err = parse(t, args, &x, d);
    enum kvf_space space = x.step ? KVF_SPACE_QUERY : KVF_SPACE_KV;
    if (!err)
        err = heads_select(t, space, args->heads, &heads, d);
    if (err)
        return err;
    double *memory = MEM_NEW(double, 2 * T);
    struct work k = {.evict = memory, .seen = memory};
    struct cell *cell = NULL;
    k.score = k.under = memory ? memory + T : NULL;
    err = groups_create(&heads, space, &g);
    if (!err && (!memory || !(cell = mem_alloc((size_t)g.n * (size_t)x.n_p, sizeof *cell))))
        err = KVF_E_NOMEM;
    if (!err && !x.step)
        err = choose_entries(t, args, &heads, &x, &k, d);
    if (!err)
        err = (x.step ? count_steps : count_window)(t, &x, &heads, &g, &k, cell, d);
    if (!err)
        err = build(t, &x, &g, &k, cell, &out);
    mem_free(cell);
    mem_free(memory);
    head_groups_free(&g);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

/* ---- for people */

static void describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head"), p = table_find(t, "p"), value = table_find(t, "sparsity");
    bool step = strcmp(table_meta(t, "form"), "step") == 0;
    if (table_rows(t) == 0) {
        buf_str(out, "no tokens\n");
        return;
    }
    if (step)
        buf_str(out, "share of the entries seen whose weight is under p times the query's largest, "
                     "mean over queries\n");
    else
        buf_printf(out,
                   "share of tokens with a score under p times the largest; score: what the "
                   "last 16 queries gave\nentries: %s; largest: %s\n",
                   table_meta(t, "entries"), table_meta(t, "max"));
    for (int64_t r = 0; r < table_rows(t); r++)
        if (strcmp(table_str(t, head, r), "all") == 0)
            buf_printf(out, "  p = %-7g %.4f\n", table_real(t, p, r), table_real(t, value, r));
    if (table_meta_real(t, "left_out", 0) > 0)
        buf_printf(out, "%s %s left out: there is no number for them\n", table_meta(t, "left_out"),
                   step ? "queries" : "tokens");
}

static const char *const pool_keys[] = {"head", "layer", "index", "form", "p", NULL};
static const struct analyzer_measure pool_measures[] = {
    {"sparsity", NULL, NULL},
    {"share", "under", "tokens"},
    {NULL, NULL, NULL},
};
static const struct analyzer_pool pool = {pool_keys, pool_measures};

const struct analyzer an_attention_sparsity = {
    .name = "attention-sparsity",
    .summary = "share of tokens with less than p times the largest score",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};

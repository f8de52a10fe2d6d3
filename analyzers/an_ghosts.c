/* an_ghosts.c - entries that queries missed, one row per (query head, token): when the
 * entry left, how many queries would have had it among as many largest weights as they
 * saw entries, the first of them, and the weight that all who missed it would have given. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/common.h"
#include "base/mem.h"
#include "base/stats.h"

enum { HITS, FIRST, MASS, STEP, KEPT, N_COLUMNS };
static const struct analyzer_option options[] = {
    {"hits", "N", "0", "only entries with at least N hits"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_ghosts;

_Static_assert(sizeof(char *) == 8 && sizeof(double) == 8, "grow() widens 8 bytes");

struct rows {
    int64_t n, room;
    int64_t *layer, *index, *token, *step, *first, *hits;
    const char **head;
    double *mass;
};

struct data {
    int column[N_COLUMNS];
    int64_t a, b, least; /* tokens [a, b); hits of a row */
    double *value[KEPT]; /* [b - a] of one head */
    int64_t missed, hit; /* entries that somebody missed; with a hit */
    struct sum mass;     /* of tokens [a, b), from all queries */
    struct rows rows;
};

static int grow(struct rows *r)
{
    size_t old = (size_t)r->room, room = old ? 2 * old : 1024;
    void *const columns[] = {&r->layer, &r->index, &r->token,        &r->step,
                             &r->first, &r->hits,  (void *)&r->head, &r->mass};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        void *p; /* pointers of several types, all to 8 bytes */
        memcpy(&p, columns[i], sizeof p);
        p = mem_grow(p, old, room, 8);
        if (!p)
            return KVF_E_NOMEM;
        memcpy(columns[i], &p, sizeof p);
    }
    r->room = (int64_t)room;
    return KVF_OK;
}

static void release(struct data *x)
{
    const struct rows *r = &x->rows;
    void *const all[] = {r->layer,       r->index,        r->token,        r->step,
                         r->first,       r->hits,         (void *)r->head, r->mass,
                         x->value[HITS], x->value[FIRST], x->value[MASS],  x->value[STEP]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static int64_t step_or_none(double v)
{
    return v == (double)KVF_NEVER ? -1 : (int64_t)v;
}

static int put_row(struct data *x, const struct head_list *heads, int h, int64_t i)
{
    struct rows *r = &x->rows;
    int err = r->n == r->room ? grow(r) : KVF_OK;
    if (err)
        return err;
    r->head[r->n] = heads->name[h];
    r->layer[r->n] = heads->layer[h];
    r->index[r->n] = heads->index[h];
    r->token[r->n] = x->a + i;
    r->step[r->n] = step_or_none(x->value[STEP][i]);
    r->first[r->n] = step_or_none(x->value[FIRST][i]);
    r->hits[r->n] = (int64_t)x->value[HITS][i];
    r->mass[r->n++] = x->value[MASS][i];
    return KVF_OK;
}

/* An entry was missed when it left, or when pages with it were not read. */
static int take_head(struct kvf_trace *t, const struct head_list *heads, int h, struct data *x,
                     struct kvf_diag *d)
{
    const struct head *q = &heads->head[h];
    int G = kvf_n_heads(t, q->layer, KVF_SPACE_QUERY), H = kvf_n_heads(t, q->layer, KVF_SPACE_KV);
    int kv = q->index / (G / H > 0 ? G / H : 1), err = KVF_OK;
    for (int c = 0; !err && c < KEPT; c++)
        err = kvf_read_f64(t, x->column[c], q->layer, c == STEP ? kv : q->index, (uint32_t)x->a,
                           (uint32_t)(x->b - x->a), x->value[c], d);
    for (int64_t i = 0; !err && i < x->b - x->a; i++) {
        bool missed = x->value[STEP][i] != (double)KVF_ALIVE || x->value[MASS][i] > 0;
        sum_add(&x->mass, x->value[MASS][i]);
        x->missed += missed;
        x->hit += x->value[HITS][i] > 0;
        if (missed && x->value[HITS][i] >= (double)x->least)
            err = put_row(x, heads, h, i);
    }
    return err;
}

/* Mean of 1 - kept_mass over the queries from step t0 on; NaN: none. */
static int mean_missed(struct kvf_trace *t, int column, const struct head_list *heads, int64_t t0,
                       double *ret, struct kvf_diag *d)
{
    int64_t T = kvf_n_steps(t), n = 0;
    double *kept = MEM_NEW(double, (size_t)T);
    struct sum sum = {0};
    int err = kept ? KVF_OK : KVF_E_NOMEM;
    for (int h = 0; !err && T > t0 && h < heads->n; h++) {
        const struct head *q = &heads->head[h];
        err = kvf_read_f64(t, column, q->layer, q->index, (uint32_t)t0, (uint32_t)(T - t0), kept,
                           d);
        for (int64_t i = 0; !err && i < T - t0; i++)
            if (!isnan(kept[i])) {
                sum_add(&sum, 1 - kept[i]);
                n++;
            }
    }
    mem_free(kept);
    *ret = n ? sum_get(&sum) / (double)n : NAN;
    return err;
}

static struct table *build(struct kvf_trace *t, const struct data *x)
{
    const struct rows *r = &x->rows;
    struct table *out = table_create("ghosts", r->n);
    if (!out)
        return NULL;
    put_provenance(out, t);
    put_tokens(out, x->a, x->b, kvf_n_steps(t));
    table_meta_num(out, "entries_missed", (double)x->missed);
    table_meta_num(out, "entries_hit", (double)x->hit);
    table_meta_num(out, "mass", sum_get(&x->mass));
    table_dense_str(out, "head", "", r->head);
    table_dense_int(out, "layer", "", r->layer);
    table_dense_int(out, "index", "", r->index);
    table_dense_int(out, "token", "", r->token);
    table_dense_int(out, "evict_step", "step", r->step);
    table_dense_int(out, "first_hit", "step", r->first);
    table_dense_int(out, "hits", "", r->hits);
    table_dense_real(out, "mass", "", r->mass);
    return out;
}

/* What was missed per query, over all steps and after the prompt. */
static int put_missed(struct kvf_trace *t, const struct head_list *heads, int column,
                      struct table *out, struct kvf_diag *d)
{
    const char *prompt = table_meta(out, "prompt_tokens");
    double all, after;
    int err = mean_missed(t, column, heads, 0, &all, d);
    if (!err && !isnan(all))
        table_meta_num(out, "missed_mass", all);
    if (!err && prompt)
        err = mean_missed(t, column, heads, strtoll(prompt, NULL, 10), &after, d);
    if (!err && prompt && !isnan(after))
        table_meta_num(out, "missed_mass_after_prompt", after);
    return err;
}

static int columns(const struct kvf_trace *t, struct data *x, struct kvf_diag *d)
{
    static const char *const names[] = {"shadow.ghost_hits", "shadow.first_hit",
                                        "shadow.ghost_mass", NULL, "shadow.kept_mass"};
    int err = column_need(t, "evict_step", "evict", &x->column[STEP], d);
    for (int c = 0; !err && c < N_COLUMNS; c++) {
        if (!names[c])
            continue;
        x->column[c] = kvf_find(t, names[c]);
        if (x->column[c] < 0)
            err = kvf_fail(d, KVF_E_NOTFOUND,
                           "this trace has no column %s; record it with "
                           "'kvfate run --shadow entries'",
                           names[c]);
    }
    return err;
}

static int prepare(const struct kvf_trace *t, const struct analyzer_args *args, struct data *x,
                   struct kvf_diag *d)
{
    const char *text = option_text(&an_ghosts, args, 0);
    char *end;
    int err = columns(t, x, d);
    x->least = strtoll(text, &end, 10);
    if (!err && (x->least < 0 || end == text || *end))
        err = kvf_fail(d, KVF_E_ARG, "--hits needs a number of hits, not '%s'", text);
    if (!err)
        err = tokens_select(t, args, &x->a, &x->b, d);
    for (int c = 0; !err && c < KEPT; c++)
        if (!(x->value[c] = MEM_NEW(double, (size_t)(x->b - x->a))))
            err = KVF_E_NOMEM;
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct head_list heads = {0};
    struct data x = {0};
    (void)n_traces;
    int err = prepare(t, args, &x, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &heads, d);
    for (int h = 0; !err && x.b > x.a && h < heads.n; h++)
        err = take_head(t, &heads, h, &x, d);
    struct table *out = err ? NULL : build(t, &x);
    if (!err && !out)
        err = KVF_E_NOMEM;
    if (!err)
        err = put_missed(t, &heads, x.column[KEPT], out, d);
    if (!err)
        err = table_err(out);
    release(&x);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static double number(const struct table *t, const char *key)
{
    const char *text = table_meta(t, key);
    return text ? strtod(text, NULL) : NAN;
}

static void describe(const struct table *t, struct buf *out)
{
    double missed = number(t, "entries_missed"), hit = number(t, "entries_hit");
    buf_printf(out, "method %s, budget %s, %s tokens\n",
               table_meta(t, "method") ? table_meta(t, "method") : "?",
               table_meta(t, "budget") ? table_meta(t, "budget") : "?", table_meta(t, "T"));
    if (!(missed > 0)) {
        buf_str(out, "no query missed an entry\n");
        return;
    }
    buf_printf(out,
               "%.0f head-token pairs were missed; %.1f %% of them would have been among the "
               "largest weights of a query\n",
               missed, 100 * hit / missed);
    buf_printf(out, "mean mass missed by a query: %.4f", number(t, "missed_mass"));
    if (!isnan(number(t, "missed_mass_after_prompt")))
        buf_printf(out, ", after the prompt %.4f", number(t, "missed_mass_after_prompt"));
    buf_str(out, "\n");
}

const struct analyzer an_ghosts = {
    .name = "ghosts",
    .summary = "evicted entries that later queries would have used",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
};

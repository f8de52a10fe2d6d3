/* an_eviction.c - one row per (KV head, token): when it was evicted and why; and in the metadata
 * how many went for which reason, how old, and how many in a step. */
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "analyzers/pools.h"
#include "base/mem.h"

enum { STEP, REASON, SCORE, MARGIN, TIE, N_COLUMNS };

struct data {
    int64_t *birth, *step, *age, *tie;
    double *value, *score, *margin;
    const char **reason;
    int64_t of_reason[KVF_REASON_PLAN + 1]; /* entries */
};

static int alloc(struct data *x, size_t n, size_t T)
{
    x->birth = MEM_NEW(int64_t, T);
    x->value = MEM_NEW(double, T);
    x->step = MEM_NEW(int64_t, n);
    x->age = MEM_NEW(int64_t, n);
    x->tie = MEM_NEW(int64_t, n);
    x->score = MEM_NEW(double, n);
    x->margin = MEM_NEW(double, n);
    x->reason = MEM_NEW(const char *, n);
    return x->birth && x->value && x->step && x->age && x->tie && x->score && x->margin && x->reason
           ? KVF_OK : KVF_E_NOMEM;
}

static void release(struct data *x)
{
    void *const all[] = {x->birth, x->value, x->step, x->age, x->tie, x->score, x->margin,
                         (void *)x->reason};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static int read_head(struct kvf_trace *t, const int *col, const struct head *h, int64_t a,
                     int64_t n, struct data *x, int64_t at, struct kvf_diag *d)
{
    for (int c = 0; c < N_COLUMNS; c++) {
        int err =
            kvf_read_f64(t, col[c], h->layer, h->index, (uint32_t)a, (uint32_t)n, x->value, d);
        if (err)
            return err;
        for (int64_t i = 0; i < n; i++) {
            double v = x->value[i];
            bool alive = c == STEP && v == (double)KVF_ALIVE;
            if (c == STEP) {
                x->step[at + i] = alive ? -1 : (int64_t)v;
                x->age[at + i] = alive ? -1 : (int64_t)v - (a + i);
            } else if (c == REASON) {
                x->reason[at + i] = reason_name(v);
                if (v >= 0 && v < KVF_REASON_PLAN + 1)
                    x->of_reason[(int)v]++;
            } else if (c == TIE) {
                x->tie[at + i] = (int64_t)v;
            } else {
                (c == SCORE ? x->score : x->margin)[at + i] = v;
            }
        }
    }
    return KVF_OK;
}

/* ---- what the rows say together */

struct churn {
    int64_t evicted, life; /* entries; steps in the cache of all of them, evicted or not */
    int64_t *of_age;       /* [T + 1] evictions; those below birth count as age 0 */
    int64_t *at_step;      /* [T + 1] */
};

static void count_churn(const struct data *x, int64_t n, int64_t a, int64_t per_head, int64_t T,
                        struct churn *c)
{
    for (int64_t r = 0; r < n; r++) {
        int64_t birth = a + r % per_head, age = x->step[r] < 0 ? T - birth : x->age[r];
        age = age < 0 ? 0 : age > T - birth ? T - birth : age;
        c->life += age;
        if (x->step[r] < 0)
            continue;
        c->evicted++;
        c->of_age[age]++;
        c->at_step[birth + age]++;
    }
}

/* The least age that at least a share q of the evictions do not exceed. */
static double age_quantile(const struct churn *c, double q)
{
    int64_t sum = 0, age = 0;
    while ((double)(sum += c->of_age[age]) < q * (double)c->evicted || sum == 0)
        age++;
    return (double)age;
}

static void put_reasons(struct table *out, const struct data *x)
{
    char key[64];
    for (int code = KVF_REASON_BUDGET; code <= KVF_REASON_PLAN; code++) {
        snprintf(key, sizeof key, "evicted_%s", reason_name(code));
        table_meta_num(out, key, (double)x->of_reason[code]);
    }
}

static void put_churn(struct table *out, const struct churn *c, int64_t n, int64_t heads, int64_t T)
{
    static const struct {
        const char *key;
        double q;
    } ages[] = {{"age_least", 0}, {"age_p25", .25}, {"age_median", .5}, {"age_p75", .75},
                {"age_most", 1}};
    int64_t most = 0, busy = 0, later = 0, P = (int64_t)table_meta_real(out, "prompt_tokens", -1);
    for (int64_t t = 0; t <= T; t++) {
        most = c->at_step[t] > c->at_step[most] ? t : most;
        busy += c->at_step[t] > 0;
        later += P >= 0 && t > P ? c->at_step[t] : 0;
    }
    table_meta_num(out, "entries", (double)n);
    table_meta_num(out, "evicted", (double)c->evicted);
    if (n)
        table_meta_num(out, "mean_life", (double)c->life / (double)n);
    for (size_t k = 0; c->evicted && k < sizeof ages / sizeof *ages; k++)
        table_meta_num(out, ages[k].key, age_quantile(c, ages[k].q));
    table_meta_num(out, "steps_with_evictions", (double)busy);
    table_meta_num(out, "most_in_a_step", (double)c->at_step[most]);
    table_meta_num(out, "step_of_most", c->evicted ? (double)most : -1);
    if (P >= 0 && P < T) {
        table_meta_num(out, "evicted_after_prompt", (double)later);
        table_meta_num(out, "per_head_and_step", (double)later / (double)(heads * (T - P)));
    }
}

static int put_summary(struct table *out, const struct data *x, int64_t heads, int64_t a,
                       int64_t per_head, int64_t T)
{
    struct churn c = {0, 0, MEM_NEW(int64_t, (size_t)T + 1), MEM_NEW(int64_t, (size_t)T + 1)};
    int err = c.of_age && c.at_step ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        count_churn(x, heads * per_head, a, per_head, T, &c);
        put_churn(out, &c, heads * per_head, heads, T);
        put_reasons(out, x);
    }
    mem_free(c.of_age);
    mem_free(c.at_step);
    return err;
}

static struct table *build(struct kvf_trace *t, const struct head_list *heads, const struct data *x,
                           int64_t n)
{
    struct table *out = table_create("eviction", heads->n * n);
    if (!out)
        return NULL;
    put_provenance(out, t);
    put_heads(out, heads);
    table_cycle_int(out, "token", "", x->birth, n);
    table_cycle_int(out, "birth", "step", x->birth, n);
    table_dense_int(out, "evict_step", "step", x->step);
    table_dense_int(out, "age", "step", x->age);
    table_dense_str(out, "reason", "", x->reason);
    table_dense_real(out, "score", "", x->score);
    table_dense_real(out, "margin", "", x->margin);
    table_dense_int(out, "tie", "", x->tie);
    return out;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    static const char *const names[N_COLUMNS] = {"evict_step", "evict_reason", "evict_score",
                                                 "evict_margin", "evict_tie"};
    struct kvf_trace *t = traces[0];
    struct head_list heads;
    struct data x = {0};
    int col[N_COLUMNS], err = KVF_OK;
    int64_t a, b;
    (void)n_traces;
    for (int c = 0; !err && c < N_COLUMNS; c++)
        err = column_need(t, names[c], "evict", &col[c], d);
    if (!err)
        err = tokens_select(t, args, &a, &b, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_KV, args->heads, &heads, d);
    if (err)
        return err;
    err = alloc(&x, (size_t)heads.n * (size_t)(b - a), (size_t)(b - a));
    for (int64_t i = 0; !err && i < b - a; i++)
        x.birth[i] = a + i;
    for (int h = 0; !err && h < heads.n && b > a; h++)
        err = read_head(t, col, &heads.head[h], a, b - a, &x, h * (b - a), d);
    struct table *out = err ? NULL : build(t, &heads, &x, b - a);
    if (!err && out)
        err = put_summary(out, &x, heads.n, a, b - a, kvf_n_steps(t));
    if (!err)
        err = out ? table_err(out) : KVF_E_NOMEM;
    release(&x);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static void describe_churn(const struct table *t, struct buf *out)
{
    const char *sep = "reasons: ";
    char key[64];
    for (int code = KVF_REASON_BUDGET; code <= KVF_REASON_PLAN; code++) {
        snprintf(key, sizeof key, "evicted_%s", reason_name(code));
        if (table_meta_real(t, key, 0) <= 0)
            continue;
        buf_printf(out, "%s%s %s", sep, reason_name(code), table_meta(t, key));
        sep = ", ";
    }
    buf_printf(out, "\nage at eviction: %s to %s, quartiles %s %s %s; an entry lives %.1f steps in "
               "the mean\n", table_meta(t, "age_least"), table_meta(t, "age_most"),
               table_meta(t, "age_p25"), table_meta(t, "age_median"), table_meta(t, "age_p75"),
               table_meta_real(t, "mean_life", 0));
    buf_printf(out, "evictions at %s steps, most at step %s: %s",
               table_meta(t, "steps_with_evictions"), table_meta(t, "step_of_most"),
               table_meta(t, "most_in_a_step"));
    if (table_meta(t, "per_head_and_step"))
        buf_printf(out, "; after the prompt %.3f in each head and step",
                   table_meta_real(t, "per_head_and_step", 0));
    buf_str(out, "\n");
}

static void describe(const struct table *t, struct buf *out)
{
    int64_t n = table_rows(t), gone = 0, ties = 0;
    int step = table_find(t, "evict_step"), age = table_find(t, "age"), tie = table_find(t, "tie");
    double sum = 0;
    for (int64_t r = 0; r < n; r++)
        if (table_int(t, step, r) >= 0) {
            gone++;
            sum += table_real(t, age, r);
            ties += table_int(t, tie, r);
        }
    buf_printf(out, "method %s, budget %s, %s tokens\n",
               table_meta(t, "method") ? table_meta(t, "method") : "?",
               table_meta(t, "budget") ? table_meta(t, "budget") : "?", table_meta(t, "T"));
    buf_printf(out, "%lld of %lld entries evicted (%.1f %%)\n", (long long)gone, (long long)n,
               n ? 100.0 * (double)gone / (double)n : 0.0);
    if (gone)
        buf_printf(out, "mean age at eviction %.1f steps; %lld decided by the tie rule\n",
                   sum / (double)gone, (long long)ties);
    if (gone)
        describe_churn(t, out);
}

const struct analyzer an_eviction = {
    .name = "eviction",
    .summary = "when each entry was evicted, and why",
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool_eviction,
};

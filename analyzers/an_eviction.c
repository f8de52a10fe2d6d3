/* an_eviction.c - one row per (KV head, token): when it was evicted and why; and in the metadata
 * how many went for which reason, how old, and how many in a step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "analyzers/pools.h"
#include "base/mem.h"

enum { STEP, REASON, SCORE, MARGIN, TIE, N_COLUMNS, N_REASONS = KVF_REASON_PLAN + 1 };

/* What the columns of the table are read from.  Steps and reasons are held; the rest, which no
 * figure needs, is read from the trace once more as it is asked for, by one thread at a time. */
struct source {
    struct kvf_trace *t;
    int col[N_COLUMNS];
    struct head_list heads;
    int64_t a, n;            /* tokens [a, a + n) of each head */
    uint32_t *step;          /* per head and token */
    uint8_t *reason;         /* the same; N_REASONS: unknown */
    double *value[N_COLUMNS]; /* [n] of the head last read */
    int64_t head[N_COLUMNS]; /* which one that is */
};

static void source_destroy(void *ctx)
{
    struct source *s = ctx;
    for (int c = 0; c < N_COLUMNS; c++)
        mem_free(s->value[c]);
    mem_free(s->step);
    mem_free(s->reason);
    heads_free(&s->heads);
    mem_free(s);
}

static void read_step(void *ctx, int64_t row0, int64_t n, double *out)
{
    const struct source *s = ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = s->step[row0 + i] == KVF_ALIVE ? -1 : (double)s->step[row0 + i];
}

static void read_age(void *ctx, int64_t row0, int64_t n, double *out)
{
    const struct source *s = ctx;
    int64_t birth = s->a + row0 % s->n;
    for (int64_t i = 0; i < n; i++, birth++) {
        birth = birth == s->a + s->n ? s->a : birth;
        out[i] = s->step[row0 + i] == KVF_ALIVE ? -1
                                                : (double)((int64_t)s->step[row0 + i] - birth);
    }
}

/* All of a head at once, since rows are asked for in order; read_head found it to be whole. */
static void read_value(struct source *s, int c, int64_t row0, int64_t n, double *out)
{
    for (int64_t k; n > 0; row0 += k, out += k, n -= k) {
        int64_t head = row0 / s->n, i = row0 % s->n;
        const struct head *h = &s->heads.head[head];
        struct kvf_diag d;
        k = s->n - i < n ? s->n - i : n;
        if (head != s->head[c]
            && kvf_read_f64(s->t, s->col[c], h->layer, h->index, (uint32_t)s->a, (uint32_t)s->n,
                            s->value[c], &d))
            for (int64_t r = 0; r < s->n; r++)
                s->value[c][r] = NAN;
        s->head[c] = head;
        memcpy(out, s->value[c] + i, (size_t)k * sizeof *out);
    }
}

static void read_score(void *ctx, int64_t row0, int64_t n, double *out)
{
    read_value(ctx, SCORE, row0, n, out);
}

static void read_margin(void *ctx, int64_t row0, int64_t n, double *out)
{
    read_value(ctx, MARGIN, row0, n, out);
}

static void read_tie(void *ctx, int64_t row0, int64_t n, double *out)
{
    read_value(ctx, TIE, row0, n, out);
}

/* ---- what the rows say together */

struct churn {
    int64_t evicted, life; /* entries; steps in the cache of all of them, evicted or not */
    int64_t *of_age;       /* [T + 1] evictions; those below birth count as age 0 */
    int64_t *at_step;      /* [T + 1] */
    int64_t of_reason[N_REASONS + 1]; /* entries */
};

static int count_steps(struct source *s, const double *value, int64_t T, uint32_t *step,
                       struct churn *c, struct kvf_diag *d)
{
    for (int64_t i = 0; i < s->n; i++) {
        int64_t birth = s->a + i, age = T - birth;
        if (!(value[i] >= 0 && value[i] <= (double)UINT32_MAX))
            return kvf_fail(d, KVF_E_FORMAT, "evict_step of token %lld is %g, no step",
                            (long long)birth, value[i]);
        step[i] = (uint32_t)value[i];
        if (step[i] != KVF_ALIVE) {
            int64_t at = (int64_t)step[i] - birth;
            age = at < 0 ? 0 : at > age ? age : at;
            c->evicted++;
            c->of_age[age]++;
            c->at_step[birth + age]++;
        }
        c->life += age;
    }
    return KVF_OK;
}

static void count_reasons(const struct source *s, const double *value, uint8_t *reason,
                          struct churn *c)
{
    for (int64_t i = 0; i < s->n; i++) {
        reason[i] = value[i] >= 0 && value[i] < N_REASONS ? (uint8_t)value[i] : N_REASONS;
        c->of_reason[reason[i]]++;
    }
}

static int read_head(struct source *s, int h, int64_t T, struct churn *c, struct kvf_diag *d)
{
    const struct head *at = &s->heads.head[h];
    uint32_t a = (uint32_t)s->a, n = (uint32_t)s->n;
    double *value = s->value[STEP];
    const void *raw;
    int err = kvf_read_f64(s->t, s->col[STEP], at->layer, at->index, a, n, value, d);
    if (!err)
        err = count_steps(s, value, T, s->step + h * s->n, c, d);
    if (!err)
        err = kvf_read_f64(s->t, s->col[REASON], at->layer, at->index, a, n, value, d);
    if (!err)
        count_reasons(s, value, s->reason + h * s->n, c);
    for (int k = SCORE; !err && k < N_COLUMNS; k++)
        err = kvf_view(s->t, s->col[k], at->layer, at->index, a, n, &raw, d);
    return err;
}

/* The least age that at least a share q of the evictions do not exceed. */
static double age_quantile(const struct churn *c, double q)
{
    int64_t sum = 0, age = 0;
    while ((double)(sum += c->of_age[age]) < q * (double)c->evicted || sum == 0)
        age++;
    return (double)age;
}

static void put_reasons(struct table *out, const struct churn *c)
{
    char key[64];
    for (int code = KVF_REASON_BUDGET; code <= KVF_REASON_PLAN; code++) {
        snprintf(key, sizeof key, "evicted_%s", reason_name(code));
        table_meta_num(out, key, (double)c->of_reason[code]);
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

static void put_columns(struct table *out, struct source *s)
{
    const char *reasons[N_REASONS + 1];
    for (int code = 0; code <= N_REASONS; code++)
        reasons[code] = reason_name(code);
    put_provenance(out, s->t);
    put_heads(out, &s->heads);
    table_affine(out, "token", "", s->a, 1, s->n);
    table_affine(out, "birth", "step", s->a, 1, s->n);
    table_lazy(out, "evict_step", "step", TABLE_INT, read_step, s);
    table_lazy(out, "age", "step", TABLE_INT, read_age, s);
    table_coded_str(out, "reason", "", s->reason, reasons, N_REASONS + 1);
    table_lazy(out, "score", "", TABLE_REAL, read_score, s);
    table_lazy(out, "margin", "", TABLE_REAL, read_margin, s);
    table_lazy(out, "tie", "", TABLE_INT, read_tie, s);
}

static int alloc(struct source *s, struct churn *c, int64_t T)
{
    size_t rows = (size_t)s->heads.n * (size_t)s->n;
    bool whole = true;
    s->step = MEM_NEW(uint32_t, rows);
    s->reason = MEM_NEW(uint8_t, rows);
    for (int k = 0; k < N_COLUMNS; k++) {
        s->value[k] = MEM_NEW(double, (size_t)s->n);
        s->head[k] = -1;
        whole &= s->value[k] != NULL;
    }
    c->of_age = MEM_NEW(int64_t, (size_t)T + 1);
    c->at_step = MEM_NEW(int64_t, (size_t)T + 1);
    return whole && s->step && s->reason && c->of_age && c->at_step ? KVF_OK : KVF_E_NOMEM;
}

/* Takes s. */
static int make(struct source *s, struct table **ret_table, struct kvf_diag *d)
{
    struct table *out = table_create("eviction", s->heads.n * s->n);
    int64_t T = kvf_n_steps(s->t);
    struct churn c = {0};
    if (!out) {
        source_destroy(s);
        return KVF_E_NOMEM;
    }
    table_own(out, s, source_destroy);
    int err = table_err(out) ? table_err(out) : alloc(s, &c, T);
    for (int h = 0; !err && s->n && h < s->heads.n; h++)
        err = read_head(s, h, T, &c, d);
    if (!err) {
        put_columns(out, s);
        put_churn(out, &c, s->heads.n * s->n, s->heads.n, T);
        put_reasons(out, &c);
        err = table_err(out);
    }
    mem_free(c.of_age);
    mem_free(c.at_step);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    static const char *const names[N_COLUMNS] = {"evict_step", "evict_reason", "evict_score",
                                                 "evict_margin", "evict_tie"};
    struct source *s = MEM_NEW(struct source, 1);
    int64_t b = 0;
    int err = s ? KVF_OK : KVF_E_NOMEM;
    (void)n_traces;
    if (!err)
        s->t = traces[0];
    for (int c = 0; !err && c < N_COLUMNS; c++)
        err = column_need(s->t, names[c], "evict", &s->col[c], d);
    if (!err)
        err = tokens_select(s->t, args, &s->a, &b, d);
    if (!err)
        err = heads_select(s->t, KVF_SPACE_KV, args->heads, &s->heads, d);
    if (err) {
        mem_free(s);
        return err;
    }
    s->n = b - s->a;
    return make(s, ret_table, d);
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
    int64_t n = table_rows(t), gone = 0, ties = 0, k;
    double sum = 0, step[1024], age[1024], tie[1024];
    for (int64_t r = 0; r < n; r += k) {
        k = n - r < 1024 ? n - r : 1024;
        table_get(t, table_find(t, "evict_step"), r, k, step);
        table_get(t, table_find(t, "age"), r, k, age);
        table_get(t, table_find(t, "tie"), r, k, tie);
        for (int64_t i = 0; i < k; i++) {
            gone += step[i] >= 0;
            sum += step[i] >= 0 ? age[i] : 0;
            ties += step[i] >= 0 ? (int64_t)tie[i] : 0;
        }
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

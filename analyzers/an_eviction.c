/* an_eviction.c - one row per (KV head, token): when it was evicted and why, and where a shadow
 * recorded it, how often later queries would have used it; and in the metadata how many went for
 * which reason, how old, and how many in a step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/frame.h"
#include "analyzers/head_budgets.h"
#include "base/mem.h"
#include "base/whole.h"

enum { STEP, REASON, SCORE, MARGIN, TIE, HITS, FIRST, N_COLUMNS, N_REASONS = KVF_REASON_PLAN + 1 };

/* The source of the table's columns.  Steps and reasons stay in memory; the rest, which no
 * figure needs, is read from the trace once more as it is asked for, by one thread at a time. */
struct source {
    struct kvf_trace *t;
    int col[N_COLUMNS];
    struct head_list heads;
    int64_t a, n;    /* tokens [a, a + n) of each head */
    uint32_t *step;  /* per head and token */
    uint8_t *reason; /* the same; N_REASONS: unknown, one more: not recorded */
    struct lazy {    /* a column that is read as it is asked for, from SCORE on */
        struct source *s;
        double *value; /* [n] of the head last read */
        int64_t head;  /* its number, or -1 */
    } lazy[N_COLUMNS];
};

static void source_destroy(void *ctx)
{
    struct source *s = ctx;
    if (!s)
        return;
    for (int c = 0; c < N_COLUMNS; c++)
        mem_free(s->lazy[c].value);
    mem_free_all(s->step, s->reason);
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
        out[i] = s->step[row0 + i] == KVF_ALIVE ? -1 : (double)((int64_t)s->step[row0 + i] - birth);
    }
}

/* Column c of all tokens of a KV head.  In a column of query heads, the hits of the heads that read
 * the KV head are added; the first hit is the least of theirs, -1: none. */
static int read_head(struct kvf_trace *t, const struct source *s, int c, const struct head *h,
                     double *out, struct kvf_diag *d)
{
    uint32_t a = (uint32_t)s->a, n = (uint32_t)s->n;
    if (c < HITS)
        return kvf_read_f64(t, s->col[c], h->layer, h->index, a, n, out, d);
    int share = kvf_n_heads(t, h->layer, KVF_SPACE_QUERY) / kvf_n_heads(t, h->layer, KVF_SPACE_KV);
    double *value = MEM_RAW(double, (size_t)s->n);
    int err = value ? KVF_OK : KVF_E_NOMEM;
    for (int64_t i = 0; i < s->n; i++)
        out[i] = c == HITS ? 0 : -1;
    for (int g = h->index * share; !err && g < (h->index + 1) * share; g++) {
        err = kvf_read_f64(t, s->col[c], h->layer, g, a, n, value, d);
        for (int64_t i = 0; !err && i < s->n; i++)
            if (c == HITS)
                out[i] += value[i];
            else if (value[i] != (double)KVF_NEVER && (out[i] < 0 || value[i] < out[i]))
                out[i] = value[i];
    }
    mem_free(value);
    return err;
}

/* All of a head at once, since rows are asked for in order; head() has checked that the column is
 * complete. */
static void read_value(void *ctx, int64_t row0, int64_t n, double *out)
{
    struct lazy *lazy = ctx;
    const struct source *s = lazy->s;
    int c = (int)(lazy - s->lazy);
    for (int64_t k; n > 0; row0 += k, out += k, n -= k) {
        int64_t head = row0 / s->n, i = row0 % s->n;
        const struct head *h = &s->heads.head[head];
        struct kvf_diag d;
        k = s->n - i < n ? s->n - i : n;
        if (head != lazy->head && (s->col[c] < 0 || read_head(s->t, s, c, h, lazy->value, &d)))
            for (int64_t r = 0; r < s->n; r++)
                lazy->value[r] = NAN;
        lazy->head = head;
        memcpy(out, lazy->value + i, (size_t)k * sizeof *out);
    }
}

/* ---- sums over the rows */

/* Of one thread, then of all: sums of integers, which do not depend on threads. */
struct churn {
    int64_t evicted, life; /* entries; steps in the cache of all of them, evicted or not */
    int64_t age, ties;     /* of those evicted: ages as the rows give them, and tie rules */
    int64_t *of_age;       /* [T + 2] evictions; those below birth count as age 0, the last: none */
    int64_t *at_step;      /* [T + 1] */
    int64_t of_reason[N_REASONS + 1]; /* entries */
    double *value;                    /* [n] scratch */
};

struct data {
    struct source *s; /* NULL once the table owns it */
};

/* The values of a head where they were decoded; NULL where they are of another type. */
static int view_whole(struct kvf_trace *t, int column, enum kvf_dtype dtype, const struct head *h,
                      const struct source *s, const void **ret, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    *ret = NULL;
    return c->dtype != dtype || c->flags & KVF_COL_AGE
               ? KVF_OK
               : kvf_view(t, column, h->layer, h->index, (uint32_t)s->a, (uint32_t)s->n, ret, d);
}

static int read_steps(struct kvf_trace *t, const struct source *s, const struct head *h,
                      uint32_t *step, double *value, struct kvf_diag *d)
{
    const void *whole;
    int err = view_whole(t, s->col[STEP], KVF_U32, h, s, &whole, d);
    if (!err && whole) {
        memcpy(step, whole, (size_t)s->n * sizeof *step);
        return KVF_OK;
    }
    if (!err)
        err = kvf_read_f64(t, s->col[STEP], h->layer, h->index, (uint32_t)s->a, (uint32_t)s->n,
                           value, d);
    for (int64_t i = 0; !err && i < s->n; i++) {
        if (!(value[i] >= 0 && value[i] <= (double)UINT32_MAX))
            return kvf_fail(d, KVF_E_FORMAT, "evict_step of token %lld is %g, no step",
                            (long long)(s->a + i), value[i]);
        step[i] = (uint32_t)value[i];
    }
    return err;
}

/* Without branches, which would be guessed wrong often: cached entries count with age T + 1 and
 * with step T; both are subtracted again later. */
static void count_steps(const struct source *s, int64_t T, const uint32_t *step, struct churn *c)
{
    int64_t *restrict of_age = c->of_age, *restrict at_step = c->at_step;
    int64_t alive = 0, life = 0, sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t birth = s->a + i, most = T - birth, age = (int64_t)step[i] - birth;
        int64_t held = step[i] == KVF_ALIVE;
        alive += held;
        sum += age & (held - 1);
        age = age < most ? age : most;
        age &= ~(age >> 63); /* not below 0 */
        life += age;
        of_age[age + held * (T + 1 - age)]++;
        at_step[birth + age]++;
    }
    at_step[T] -= alive;
    c->evicted += s->n - alive;
    c->life += life;
    c->age += sum;
}

static int count_reasons(struct kvf_trace *t, const struct source *s, const struct head *h,
                         uint8_t *reason, struct churn *c, struct kvf_diag *d)
{
    const void *whole;
    if (s->col[REASON] < 0) {
        memset(reason, N_REASONS + 1, (size_t)s->n);
        return KVF_OK;
    }
    int err = view_whole(t, s->col[REASON], KVF_U8, h, s, &whole, d);
    const uint8_t *restrict code = whole;
    uint8_t *restrict to = reason;
    if (!err && !code)
        err = kvf_read_f64(t, s->col[REASON], h->layer, h->index, (uint32_t)s->a, (uint32_t)s->n,
                           c->value, d);
    for (int64_t i = 0; !err && code && i < s->n; i++)
        to[i] = code[i] < N_REASONS ? code[i] : N_REASONS;
    for (int64_t i = 0; !err && !code && i < s->n; i++)
        to[i] = c->value[i] >= 0 && c->value[i] < N_REASONS ? (uint8_t)c->value[i] : N_REASONS;
    for (int k = 0; !err && k <= N_REASONS; k++) { /* a pass for each: vector instructions */
        int32_t n = 0;
        for (int64_t i = 0; i < s->n; i++)
            n += to[i] == k;
        c->of_reason[k] += n;
    }
    return err;
}

static int count_ties(struct kvf_trace *t, const struct source *s, const struct head *h,
                      const uint32_t *step, struct churn *c, struct kvf_diag *d)
{
    const void *whole;
    if (s->col[TIE] < 0)
        return KVF_OK;
    int err = view_whole(t, s->col[TIE], KVF_U8, h, s, &whole, d);
    const uint8_t *tie = whole;
    if (!err && !tie)
        err = kvf_read_f64(t, s->col[TIE], h->layer, h->index, (uint32_t)s->a, (uint32_t)s->n,
                           c->value, d);
    uint32_t sum = 0; /* at most 255 of each of KVF_MAX_STEPS */
    for (int64_t i = 0; !err && tie && i < s->n; i++)
        sum += tie[i] & -(uint32_t)(step[i] != KVF_ALIVE);
    for (int64_t i = 0; !err && !tie && i < s->n; i++)
        c->ties += step[i] != KVF_ALIVE ? whole_within(c->value[i], 0, UINT8_MAX, 0) : 0;
    c->ties += sum;
    return err;
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct source *s = ((const struct data *)f->state)->s;
    struct churn *c = y->scratch;
    const struct head *at = y->head;
    uint32_t *step = s->step + y->h * s->n;
    const void *raw;
    int err = read_steps(y->t, s, at, step, c->value, d);
    if (err)
        return err;
    count_steps(s, f->T, step, c);
    err = count_reasons(y->t, s, at, s->reason + y->h * s->n, c, d);
    for (int k = SCORE; !err && k <= MARGIN; k++)
        if (s->col[k] >= 0)
            err = kvf_view(y->t, s->col[k], at->layer, at->index, (uint32_t)s->a, (uint32_t)s->n,
                           &raw, d);
    for (int k = HITS; !err && k <= FIRST; k++)
        if (s->col[k] >= 0)
            err = read_head(y->t, s, k, at, c->value, d);
    return err ? err : count_ties(y->t, s, at, step, c, d);
}

static void merge(struct churn *to, const struct churn *c, int64_t T)
{
    to->evicted += c->evicted;
    to->life += c->life;
    to->age += c->age;
    to->ties += c->ties;
    for (int64_t k = 0; k <= T; k++) {
        to->of_age[k] += c->of_age[k];
        to->at_step[k] += c->at_step[k];
    }
    for (int k = 0; k <= N_REASONS; k++)
        to->of_reason[k] += c->of_reason[k];
}

static void thread(struct frame *f, void *scratch)
{
    struct churn *c = scratch;
    c->of_age = FRAME_NEW(f, int64_t, (size_t)f->T + 2);
    c->at_step = FRAME_NEW(f, int64_t, (size_t)f->T + 1);
    c->value = FRAME_NEW(f, double, (size_t)(f->b - f->a));
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    (void)d;
    for (int i = 1; i < f->n_threads; i++)
        merge(frame_scratch(f, 0), frame_scratch(f, i), f->T);
    return KVF_OK;
}

/* The least age that at least a share q of the evictions do not exceed. */
static double age_quantile(const struct churn *c, double q)
{
    int64_t age = 0, sum = c->of_age[0];
    while ((double)sum < q * (double)c->evicted || sum == 0)
        sum += c->of_age[++age];
    return (double)age;
}

/* Runs of consecutive entries that a head caches at the end. */
static int64_t stretches(const uint32_t *step, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += step[i] == KVF_ALIVE && (i == 0 || step[i - 1] != KVF_ALIVE);
    return count;
}

/* The head with the most such runs: few in a window, many where it chooses. */
static void put_scattered(struct table *out, const struct source *s)
{
    int64_t most = 0;
    const char *name = NULL;
    for (int h = 0; h < s->heads.n; h++) {
        int64_t n = stretches(s->step + h * s->n, s->n);
        name = n > most ? s->heads.head[h].name : name;
        most = n > most ? n : most;
    }
    if (name)
        table_meta_str(out, "scattered_head", name);
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
    } ages[] = {
        {"age_least", 0}, {"age_p25", .25}, {"age_median", .5}, {"age_p75", .75}, {"age_most", 1}};
    int64_t most = 0, busy = 0, later = 0, P = table_meta_int(out, "prompt_tokens", -1);
    int64_t first = -1;
    for (int64_t t = 0; t <= T; t++) {
        first = first < 0 && c->at_step[t] > 0 ? t : first;
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
    table_keep(out, "age", (double)c->age);
    table_meta_num(out, "steps_with_evictions", (double)busy);
    table_meta_num(out, "first_eviction", (double)first);
    table_meta_num(out, "most_in_a_step", (double)c->at_step[most]);
    table_meta_num(out, "step_of_most", c->evicted ? (double)most : -1);
    if (P >= 0 && P < T) {
        table_meta_num(out, "evicted_after_prompt", (double)later);
        table_meta_num(out, "per_head_and_step", (double)later / (double)(heads * (T - P)));
    }
}

/* Entries of a head that the queries after the prompt see, on average over heads: the mean over
 * these queries, and the most of one. */
static void put_cached(struct table *out, const struct churn *c, const struct source *s, int64_t T)
{
    int64_t P = table_meta_int(out, "prompt_tokens", -1), heads = s->heads.n, gone = 0;
    double sum = 0, most = 0;
    for (int64_t t = 0; t < T; t++) {
        int64_t born = t < s->a ? 0 : t + 1 - s->a;
        gone += c->at_step[t];
        double seen = (double)((born < s->n ? born : s->n) * heads - gone) / (double)heads;
        sum += t < P ? 0 : seen;
        most = t < P ? 0 : fmax(most, seen);
    }
    if (P < 0 || P >= T || heads == 0)
        return;
    table_meta_num(out, "cached_mean", sum / (double)(T - P));
    table_meta_num(out, "cached_peak", most);
}

static void put_columns(struct table *out, struct source *s, const struct head_list *heads)
{
    const char *reasons[N_REASONS + 2];
    for (int code = 0; code <= N_REASONS; code++)
        reasons[code] = reason_name(code);
    reasons[N_REASONS + 1] = "";
    put_heads(out, heads);
    table_affine(out, "token", "", s->a, 1, s->n);
    table_affine(out, "birth", "step", s->a, 1, s->n);
    table_lazy(out, "evict_step", "step", TABLE_INT, read_step, s);
    table_lazy(out, "age", "step", TABLE_INT, read_age, s);
    table_coded_str(out, "reason", "", s->reason, reasons, N_REASONS + 2);
    table_lazy(out, "score", "", TABLE_REAL, read_value, &s->lazy[SCORE]);
    table_lazy(out, "margin", "", TABLE_REAL, read_value, &s->lazy[MARGIN]);
    table_lazy(out, "tie", "", s->col[TIE] < 0 ? TABLE_REAL : TABLE_INT, read_value, &s->lazy[TIE]);
    if (s->col[HITS] >= 0)
        table_lazy(out, "hits", "", TABLE_INT, read_value, &s->lazy[HITS]);
    if (s->col[FIRST] >= 0)
        table_lazy(out, "first_hit", "step", TABLE_INT, read_value, &s->lazy[FIRST]);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct source *s = MEM_NEW(struct source, 1);
    (void)d;
    if (!s)
        return KVF_E_NOMEM;
    ((struct data *)f->state)->s = s;
    s->t = f->t;
    s->a = f->a;
    s->n = f->b - f->a;
    f->items = s->n > 0;
    f->n_rows = f->heads.n * s->n;
    s->step = MEM_RAW(uint32_t, (size_t)f->n_rows);
    s->reason = MEM_RAW(uint8_t, (size_t)f->n_rows);
    bool whole = s->step && s->reason;
    for (int k = 0; k < N_COLUMNS; k++) {
        s->col[k] = f->column[k];
        s->lazy[k] = (struct lazy){s, k < SCORE ? NULL : MEM_RAW(double, (size_t)s->n), -1};
        whole &= k < SCORE || s->lazy[k].value;
    }
    return whole ? KVF_OK : KVF_E_NOMEM;
}

/* The table owns the source of its columns, with the list of heads. */
static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    struct data *x = f->state;
    struct source *s = x->s;
    const struct churn *c = frame_scratch(f, 0);
    put_columns(out, s, &f->heads);
    int err = put_head_budgets(out, f->t, &f->heads, false, d);
    put_churn(out, c, f->n_rows, f->heads.n, f->T);
    if (s->col[REASON] >= 0)
        put_reasons(out, c);
    if (s->col[TIE] >= 0)
        table_keep(out, "ties", (double)c->ties);
    x->s = NULL;
    s->heads = f->heads;
    put_cached(out, c, s, f->T);
    if (c->evicted)
        put_scattered(out, s);
    f->heads = (struct head_list){0};
    table_own(out, s, source_destroy);
    return err;
}

static void close(struct frame *f)
{
    source_destroy(((struct data *)f->state)->s);
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
    if (*sep == ',')
        buf_char(out, '\n');
    buf_printf(out,
               "age at eviction: %s to %s, quartiles %s %s %s; an entry lives %.1f steps in "
               "the mean\n",
               table_meta(t, "age_least"), table_meta(t, "age_most"), table_meta(t, "age_p25"),
               table_meta(t, "age_median"), table_meta(t, "age_p75"),
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
    double n = (double)table_rows(t), gone = table_meta_real(t, "evicted", 0);
    const char *method = table_meta(t, "method"), *budget = table_meta(t, "budget");
    bool has = budget && strcmp(budget, "0") != 0; /* 0: a method without one */
    const char *protocol = table_meta(t, "protocol");
    buf_printf(out, "method %s%s%s%s%s, %s tokens\n", method ? method : "?", has ? ", budget " : "",
               has ? budget : "", protocol ? ", " : "", protocol ? protocol : "",
               table_meta(t, "T"));
    buf_printf(out, "%.0f of %.0f entries evicted (%.1f %%)\n", gone, n,
               n > 0 ? 100.0 * gone / n : 0.0);
    if (gone > 0) {
        double ties = table_kept(t, "ties", -1);
        buf_printf(out, "mean age at eviction %.1f steps", table_kept(t, "age", 0) / gone);
        if (ties >= 0)
            buf_printf(out, "; %.0f decided by the tie rule", ties);
        buf_char(out, '\n');
        describe_churn(t, out);
    }
}

const struct analyzer an_eviction = {
    .name = "eviction",
    .summary = "heatmap of evictions: when and why each entry was evicted",
    .example = "kvfate eviction run.kvf -o eviction.png",
    COLUMNS([STEP] = COLUMN_EVICT_STEP,
            [REASON] = {"evict_reason", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_CAN_LACK,
                        "reason, and the counts of each"},
            [SCORE] = {"evict_score", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_CAN_LACK, "score"},
            [MARGIN] = {"evict_margin", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_CAN_LACK, "margin"},
            [TIE] = {"evict_tie", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_CAN_LACK, "tie"},
            [HITS] = {"shadow.ghost_hits", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_HELPS, "hits"},
            [FIRST] = {"shadow.first_hit", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_HELPS,
                       "first_hit"}),
    HEADS(.space = KVF_SPACE_KV, FRAME_TYPES(struct data, struct churn), .prepare = prepare,
          .thread = thread, .head = head, .finish = finish, .rows = rows, .close = close),
    .describe = describe,
    /* Of the entries that left a head for a reason; age -1 for entries that are alive. */
    POOL(KEYS("layer", "index", "head", "reason"), {"age"}, {"tie"}),
};

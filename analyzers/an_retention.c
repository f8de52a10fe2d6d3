/* an_retention.c - how long each token is worth keeping, as retention gates say, or was of
 * use.  Source gate: log beta of every entry as recorded, and what follows from it.  Source
 * last-use, without gates: the largest age at which the token was in the selected set of a
 * query.  That is an observation, not a learned retention score: beta stays NaN. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/heads_par.h"
#include "analyzers/selected.h"
#include "base/mem.h"
#include "base/par.h"
#include "base/vmath.h"

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
    struct hand {       /* of one thread */
        double *row;    /* [n] */
        uint16_t *next; /* [n] */
    } * hand;
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

/* The largest age + 1 of u16 columns, of which all ones are "never". */
static void raise_narrow(const uint16_t *restrict age, int64_t n, uint16_t *restrict next)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t v = (uint16_t)(age[i] + 1);
        next[i] = v > next[i] ? v : next[i];
    }
}

/* last becomes the largest age of the query heads [first, first + share) of a layer. */
static int read_ages(const struct data *x, struct kvf_trace *t, int layer, int first, int share,
                     struct hand *w, int32_t *last, struct kvf_diag *d)
{
    const struct source *s = x->s;
    const struct kvf_column *c = kvf_column(t, x->age);
    bool narrow = c->dtype == KVF_U16 && c->flags & KVF_COL_AGE;
    uint32_t a = (uint32_t)s->a, n = (uint32_t)s->n;
    int err = KVF_OK;
    memset(w->next, 0, n * sizeof *w->next);
    for (uint32_t i = 0; i < n && !narrow; i++)
        last[i] = -1;
    for (int g = first; !err && g < first + share; g++) {
        const void *age;
        err = narrow ? kvf_view(t, x->age, layer, g, a, n, &age, d)
                     : kvf_read_f64(t, x->age, layer, g, a, n, w->row, d);
        if (!err && narrow)
            raise_narrow(age, n, w->next);
        for (uint32_t i = 0; !err && !narrow && i < n; i++)
            last[i] = w->row[i] > last[i] ? (int32_t)w->row[i] : last[i];
    }
    for (uint32_t i = 0; i < n && narrow; i++)
        last[i] = w->next[i] - 1;
    return err;
}

static int read_gates(const struct data *x, struct kvf_trace *t, const struct head *h,
                      struct hand *w, float *lb, struct kvf_diag *d)
{
    const struct source *s = x->s;
    uint32_t a = (uint32_t)s->a, n = (uint32_t)s->n;
    if (kvf_column(t, x->log_beta)->dtype == KVF_F32)
        return kvf_read(t, x->log_beta, h->layer, h->index, a, n, lb, d);
    int err = kvf_read_f64(t, x->log_beta, h->layer, h->index, a, n, w->row, d);
    for (uint32_t i = 0; !err && i < n; i++)
        lb[i] = (float)w->row[i];
    return err;
}

static int do_head(void *ctx, struct kvf_trace *t, int item, int h, int thread, struct kvf_diag *d)
{
    const struct data *x = ctx;
    const struct head *head = &x->heads.head[h];
    int64_t n = x->s->n;
    int G = kvf_n_heads(t, head->layer, KVF_SPACE_QUERY);
    int H = kvf_n_heads(t, head->layer, KVF_SPACE_KV), share = x->gate ? G / H : 1, err = KVF_OK;
    (void)item;
    if (x->gate)
        err = read_gates(x, t, head, &x->hand[thread], x->s->lb + h * n, d);
    if (!err && x->s->last)
        err = read_ages(x, t, head->layer, head->index * share, share, &x->hand[thread],
                        x->s->last + h * n, d);
    return err;
}

static int alloc(struct data *x, size_t rows)
{
    x->s->lb = x->gate ? MEM_RAW(float, rows) : NULL;
    x->s->last = x->age >= 0 ? MEM_RAW(int32_t, rows) : NULL;
    return (!x->gate || x->s->lb) && (x->age < 0 || x->s->last) ? KVF_OK : KVF_E_NOMEM;
}

static int alloc_hands(struct data *x, int threads)
{
    size_t n = (size_t)x->s->n;
    x->hand = MEM_NEW(struct hand, (size_t)threads);
    for (int i = 0; x->hand && i < threads; i++) {
        x->hand[i].row = MEM_RAW(double, n);
        x->hand[i].next = MEM_RAW(uint16_t, n);
        if (!x->hand[i].row || !x->hand[i].next)
            return KVF_E_NOMEM;
    }
    return x->hand ? KVF_OK : KVF_E_NOMEM;
}

static int read_heads(struct data *x, int threads, struct kvf_diag *d)
{
    struct heads_par *par = NULL;
    int n = 0, err = heads_par_create(x->t, threads, 2 * x->heads.n * x->s->n, &par);
    if (!err) {
        n = heads_par_threads(par);
        err = alloc_hands(x, n);
    }
    if (!err && x->s->n)
        err = heads_par_run(par, &x->heads, 1, do_head, x, d);
    for (int i = 0; x->hand && i < n; i++) {
        mem_free(x->hand[i].row);
        mem_free(x->hand[i].next);
    }
    mem_free(x->hand);
    heads_par_destroy(par);
    return err;
}

static int make(struct data *x, int64_t a, int64_t n, int threads, struct table **ret_table,
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
        err = read_heads(x, threads, d);
    if (!err) {
        put_columns(out, x);
        table_keep(out, "threads", threads);
        err = table_err(out);
    }
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
    err = make(&x, a, b - a, args->threads, ret_table, d);
    heads_free(&x.heads);
    return err;
}

/* ---- sums over parts of the table, on all threads; added in order, so that these change none */

enum { PART = 1 << 15, ROWS = 1024 };
struct sums {
    const struct table *t;
    bool gate;
    struct part {
        int64_t known, never;
        double beta, mean, last;
    } * part;
};

/* Eight sums side by side of those that are no NaN; returns how many they are. */
static int64_t add_known(const double *v, int64_t n, double *to)
{
    enum { LANES = 8 };
    double sum[LANES] = {0};
    int64_t known = 0, whole = n - n % LANES;
    for (int64_t i = 0; i < n; i++)
        known += !isnan(v[i]);
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += isnan(v[i + k]) ? 0 : v[i + k];
    for (int64_t i = whole; i < n; i++)
        sum[0] += isnan(v[i]) ? 0 : v[i];
    for (int k = 0; k < LANES; k++)
        *to += sum[k];
    return known;
}

/* Sums are rounded to four digits: exp and expm1 need not be those of the table to the last. */
static void sum_gates(const struct table *t, int64_t r, int64_t n, struct part *p)
{
    double x[ROWS], less[ROWS], steps[ROWS], nx[ROWS], rest[ROWS];
    double T = table_meta_real(t, "T", 0);
    table_get(t, table_find(t, "log_beta"), r, n, x);
    table_get(t, table_find(t, "birth"), r, n, steps);
    for (int64_t i = 0; i < n; i++) {
        steps[i] = T - steps[i];
        nx[i] = steps[i] * x[i];
    }
    vmath_expm1(x, less, n);
    vmath_expm1(nx, rest, n);
    for (int64_t i = 0; i < n; i++) {
        double mean = rest[i] / (less[i] * steps[i]);
        rest[i] = x[i] == 0 ? 1 : mean;
        less[i] += 1; /* beta */
    }
    p->known += add_known(less, n, &p->beta);
    add_known(rest, n, &p->mean);
}

static void sum_last(const struct table *t, int64_t r, int64_t n, struct part *p)
{
    double v[ROWS];
    table_get(t, table_find(t, "last_use_age"), r, n, v);
    for (int64_t i = 0; i < n; i++) {
        p->never += v[i] < 0;
        p->last += v[i] > 0 ? v[i] : 0;
    }
}

static void sum_part(void *ctx, int task, int thread)
{
    const struct sums *x = ctx;
    int64_t rows = table_rows(x->t), end = (int64_t)(task + 1) * PART, n;
    struct part p = {0};
    (void)thread;
    for (int64_t r = (int64_t)task * PART; r < rows && r < end; r += n) {
        n = rows - r < ROWS ? rows - r : ROWS;
        (x->gate ? sum_gates : sum_last)(x->t, r, n, &p);
    }
    x->part[task] = p;
}

static int sum_up(const struct table *t, bool gate, struct part *all)
{
    int64_t parts = (table_rows(t) + PART - 1) / PART;
    struct sums x = {t, gate, MEM_NEW(struct part, (size_t)parts)};
    struct par *pool = NULL;
    int threads = (int)table_kept(t, "threads", 1);
    int err = x.part && parts <= INT_MAX ? par_create(parts > 1 ? threads : 1, &pool) : KVF_E_NOMEM;
    *all = (struct part){0};
    if (!err)
        par_run(pool, (int)parts, sum_part, &x);
    for (int64_t i = 0; !err && i < parts; i++) {
        all->known += x.part[i].known;
        all->never += x.part[i].never;
        all->beta += x.part[i].beta;
        all->mean += x.part[i].mean;
        all->last += x.part[i].last;
    }
    par_destroy(pool);
    mem_free(x.part);
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    const char *source = table_meta(t, "source");
    bool gate = source && strcmp(source, "gate") == 0;
    int64_t n = table_rows(t);
    struct part all;
    int err = sum_up(t, gate, &all);
    if (err) {
        out->err = err;
        return;
    }
    if (gate) {
        buf_printf(out, "retention of gates: %lld head-token pairs", (long long)n);
        if (all.known)
            buf_printf(out, "; mean beta %.4f, mean retention %.4f", all.beta / (double)all.known,
                       all.mean / (double)all.known);
        buf_str(out, "\n");
        return;
    }
    buf_printf(out, "last-use map (criterion %s): an observation, no retention score of gates\n",
               table_meta(t, "criterion"));
    buf_printf(out,
               "%lld head-token pairs; never selected: %.1f %%; mean last-use age %.1f steps\n",
               (long long)n, n ? 100.0 * (double)all.never / (double)n : 0.0,
               n ? all.last / (double)n : 0.0);
}

const struct analyzer an_retention = {
    .name = "retention",
    .summary = "what gates say tokens are worth, or how long they were used",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
};

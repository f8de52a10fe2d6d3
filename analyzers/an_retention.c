/* an_retention.c - how long each token is worth keeping according to retention gates, or was of
 * use.  Source gate: log beta of every entry as recorded, and derived values.  Source last-use,
 * without gates: the largest age at which the token was in the selected set of a query.  That is an
 * observation, not a learned retention score: beta stays NaN. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/selected.h"
#include "base/mem.h"
#include "base/par.h"
#include "base/vmath.h"

enum { AUTO, GATE, LAST_USE };
static const char *const sources[] = {"auto", "gate", "last-use", NULL};
struct options {
    const char *criterion;
    int source;
};

/* The source of the table's columns: log beta as recorded, the rest follows. */
struct source {
    int64_t a, n, T; /* tokens [a, a + n) of each head */
    float *lb;       /* per head and token; NULL without gates */
    int32_t *last;   /* the same; NULL: no ages */
};

enum { LOG_BETA, AGE }; /* columns */
struct data {
    bool gate;
    const char *criterion; /* of last uses */
    struct source *s;      /* NULL once the table owns it */
};

struct scratch {    /* of one thread */
    double *row;    /* [n] */
    uint16_t *next; /* [n] */
};

static void source_destroy(void *ctx)
{
    struct source *s = ctx;
    if (!s)
        return;
    mem_free_all(s->lb, s->last, s);
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

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    struct data *x = f->state;
    struct source *s = x->s;
    bool ages = f->column[AGE] >= 0;
    static const double nan_value[1] = {NAN};
    static const int64_t none[1] = {-1};
    static const char *const names[2] = {"last-use", "gate"};
    int64_t one = table_rows(out) > 0;
    const char *const source[1] = {names[x->gate]};
    (void)d;
    x->s = NULL;
    table_own(out, s, source_destroy);
    if (ages)
        table_meta_str(out, "criterion", x->criterion);
    table_meta_str(out, "source", source[0]);
    table_cycle_str(out, "source", "", source, one);
    put_heads(out, &f->heads);
    table_affine(out, "token", "", s->a, 1, s->n);
    table_affine(out, "birth", "step", s->a, 1, s->n);
    if (x->gate) {
        table_lazy(out, "log_beta", "nat", TABLE_REAL, read_log_beta, s);
        table_lazy(out, "beta", "", TABLE_REAL, read_beta, s);
        table_lazy(out, "mean_retention", "", TABLE_REAL, read_mean, s);
    } else {
        table_cycle_real(out, "log_beta", "nat", nan_value, one);
        table_cycle_real(out, "beta", "", nan_value, one);
        table_cycle_real(out, "mean_retention", "", nan_value, one);
    }
    if (ages)
        table_lazy(out, "last_use_age", "step", TABLE_INT, read_last, s);
    else
        table_cycle_int(out, "last_use_age", "step", none, one);
    table_keep(out, "threads", f->args->threads);
    return KVF_OK;
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
static int read_ages(const struct source *s, int column, struct kvf_trace *t, int layer, int first,
                     int share, const struct scratch *w, int32_t *last, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    bool narrow = c->dtype == KVF_U16 && c->flags & KVF_COL_AGE;
    uint32_t a = (uint32_t)s->a, n = (uint32_t)s->n;
    int err = KVF_OK;
    memset(w->next, 0, n * sizeof *w->next);
    if (c->space == KVF_SPACE_KV) {
        const struct unit u = {layer, first, 0, 1, 1};
        return ages_read(t, column, &u, 0, s->a, s->n, w->row, last, d);
    }
    for (uint32_t i = 0; i < n && !narrow; i++)
        last[i] = -1;
    for (int g = first; !err && g < first + share; g++) {
        const void *age;
        err = narrow ? kvf_view(t, column, layer, g, a, n, &age, d)
                     : kvf_read_f64(t, column, layer, g, a, n, w->row, d);
        if (!err && narrow)
            raise_narrow(age, n, w->next);
        for (uint32_t i = 0; !err && !narrow && i < n; i++)
            last[i] = w->row[i] > last[i] ? (int32_t)w->row[i] : last[i];
    }
    for (uint32_t i = 0; i < n && narrow; i++)
        last[i] = w->next[i] - 1;
    return err;
}

static int read_gates(const struct source *s, int column, const struct frame_head *y, float *lb,
                      struct kvf_diag *d)
{
    const struct head *h = y->head;
    double *row = ((const struct scratch *)y->scratch)->row;
    uint32_t a = (uint32_t)s->a, n = (uint32_t)s->n;
    if (kvf_column(y->t, column)->dtype == KVF_F32)
        return kvf_read(y->t, column, h->layer, h->index, a, n, lb, d);
    int err = kvf_read_f64(y->t, column, h->layer, h->index, a, n, row, d);
    for (uint32_t i = 0; !err && i < n; i++)
        lb[i] = (float)row[i];
    return err;
}

static void thread(struct frame *f, void *scratch)
{
    size_t n = (size_t)(f->b - f->a);
    *(struct scratch *)scratch = (struct scratch){FRAME_NEW(f, double, n),
                                                  FRAME_NEW(f, uint16_t, n)};
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const struct source *s = x->s;
    int layer = y->head->layer, err = KVF_OK;
    int G = kvf_n_heads(y->t, layer, KVF_SPACE_QUERY), H = kvf_n_heads(y->t, layer, KVF_SPACE_KV);
    bool held = s->last && kvf_column(y->t, f->column[AGE])->space == KVF_SPACE_KV;
    int share = x->gate && H && !held ? G / H : 1;
    if (x->gate)
        err = read_gates(s, f->column[LOG_BETA], y, s->lb + y->h * s->n, d);
    if (!err && s->last)
        err = read_ages(s, f->column[AGE], y->t, layer, y->head->index * share, share, y->scratch,
                        s->last + y->h * s->n, d);
    return err;
}

/* Finds the columns that the trace has, and fails if a required one is missing. */
static int choose(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = f->options;
    char name[KVF_NAME_MAX + 16];
    struct lacks l = {.n = 0};
    x->criterion = o->criterion;
    snprintf(name, sizeof name, "last_selected.%.40s", o->criterion);
    f->column[AGE] = kvf_find(f->t, name);
    f->column[LOG_BETA] = kvf_find(f->t, "log_beta");
    x->gate = o->source == AUTO ? f->column[LOG_BETA] >= 0 : o->source == GATE;
    bool held = strcmp(o->criterion, criterion_table[CRITERION_HELD].name) == 0;
    if (!x->gate && !held && o->source == AUTO && f->column[AGE] < 0 && criterion_else(f->t)) {
        frame_lacks(f, "log_beta");
        frame_lacks(f, name);
        x->criterion = criterion_table[CRITERION_HELD].name;
        held = true;
    }
    int err = KVF_OK;
    if (held)
        err = criterion_column(f->t, "last_selected", CRITERION_HELD, &l, &f->column[AGE], d);
    f->space = x->gate || held ? KVF_SPACE_KV : KVF_SPACE_QUERY;
    if (x->gate ? f->column[LOG_BETA] < 0 : f->column[AGE] < 0 && !held)
        lacks_add(&l, f->t, x->gate ? "log_beta" : name);
    return columns_refuse(&l, x->gate ? NULL : criterion_else(f->t), err, d);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    bool ages = f->column[AGE] >= 0;
    (void)d;
    f->items = f->b > f->a;
    f->n_rows = f->heads.n * (f->b - f->a);
    x->s = MEM_NEW(struct source, 1);
    if (!x->s)
        return KVF_E_NOMEM;
    *x->s = (struct source){f->a, f->b - f->a, f->T, NULL, NULL};
    x->s->lb = x->gate ? MEM_RAW(float, (size_t)f->n_rows) : NULL;
    x->s->last = ages ? MEM_RAW(int32_t, (size_t)f->n_rows) : NULL;
    return (x->gate && !x->s->lb) || (ages && !x->s->last) ? KVF_E_NOMEM : KVF_OK;
}

static void close(struct frame *f)
{
    source_destroy(((struct data *)f->state)->s);
}

/* ---- sums over parts of the table, on all threads; added in order, so that threads do not change
 * the result */

enum { PART = 1 << 15, ROWS = 1024 };
struct sums {
    const struct table *t;
    bool gate;
    struct part {
        int64_t known, never;
        double beta, mean, last;
    } * part;
};

/* Eight parallel sums of the values that are no NaN; returns how many they are. */
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

/* Sums are rounded to four digits: exp and expm1 may differ from the table in the last bit. */
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
    int err = x.part && parts <= INT_MAX ? KVF_OK : KVF_E_NOMEM;
    *all = (struct part){0};
    if (!err)
        err = par_create(parts > 1 ? threads : 1, &pool);
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
    .summary = "heatmap of the retention of each token: gate scores, or observed use",
    .example = "kvfate retention run.kvf -o retention.png",
    OPTIONS({OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "selected set: top64 ... top512, mass.90 ... mass.99, contrib64 or held", "top64"},
            {OPT_WORD, 0, "source", offsetof(struct options, source), "S",
             "rows: gates or last uses; auto: gates if the trace has them", "auto",
             .words = sources}),
    COLUMNS([LOG_BETA] = {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED,
                          "one of it and last_selected.*; --source gate"},
            [AGE] = {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,
                     "of --criterion, without log_beta; --source last-use"}),
    HEADS(FRAME_USUAL(struct data, struct scratch), .close = close),
    .describe = describe,
};

/* an_ghosts.c - entries that queries missed, one row per (query head, token): the eviction step,
 * the number of queries that needed it later (its weight would be one of the n largest, n being the
 * number of entries that the query saw), the first of these queries, and the sum of the weights
 * that they would have given it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/selected.h"
#include "base/stats.h"
#include "base/whole.h"

enum { HITS, FIRST, MASS, STEP, KEPT }; /* columns */
struct options {
    int64_t hits;
};

struct row {
    struct row_head of;
    int64_t token, step, first, hits;
    double mass;
};

struct data {
    double *value[KEPT]; /* [b - a] of one head */
    double *reason;      /* [b - a] enum kvf_reason */
    int why;             /* its column, or -1: the trace lacks the reasons of evictions */
    double *kept;        /* [T] */
    int64_t missed, hit; /* entries that somebody missed; with a hit */
    struct sum mass;     /* of tokens [a, b), from all queries */
};

/* Reads a step of the trace, or T, into *ret; -1 if there is no step. */
static int take_step(const struct frame *f, double v, const char *name, const struct head *q,
                     int64_t token, int64_t *ret, struct kvf_diag *d)
{
    int64_t step = v == (double)KVF_NEVER ? -1 : whole_within(v, 0, f->T, -2);
    if (step == -2)
        return kvf_fail(d, KVF_E_FORMAT, "%s of token %lld of %s is %.15g, no step of this trace",
                        name, (long long)token, q->name, v);
    *ret = step;
    return KVF_OK;
}

static int take_row(struct frame *f, int h, int64_t i, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const struct head *q = &f->heads.head[h];
    int64_t step = -1, first = -1;
    int err = take_step(f, x->value[STEP][i], "evict_step", q, f->a + i, &step, d);
    if (!err)
        err = take_step(f, x->value[FIRST][i], "shadow.first_hit", q, f->a + i, &first, d);
    struct row *r = err ? NULL : frame_add_row(f);
    if (!r)
        return err ? err : KVF_E_NOMEM;
    *r = (struct row){frame_row_head(f, h),           f->a + i,         step, first,
                      whole_of(x->value[HITS][i], 0), x->value[MASS][i]};
    return KVF_OK;
}

/* An entry was missed when it left, or when pages with it were not read; not if it was outside of
 * the layer's own window, which later queries never see. */
static int take_head(struct frame *f, int h, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = f->options;
    const struct head *q = &f->heads.head[h];
    struct unit u;
    int err = unit_of(f->t, SPACE_QUERY, q, &u, d);
    for (int c = 0; !err && c < KEPT; c++)
        err = kvf_read_f64(f->t, f->column[c], q->layer, c == STEP ? u.kv : q->index,
                           (uint32_t)f->a, (uint32_t)(f->b - f->a), x->value[c], d);
    if (!err && x->why >= 0)
        err = kvf_read_f64(f->t, x->why, q->layer, u.kv, (uint32_t)f->a, (uint32_t)(f->b - f->a),
                           x->reason, d);
    for (int64_t i = 0; !err && i < f->b - f->a; i++) {
        double step = x->value[STEP][i], mass = x->value[MASS][i], hits = x->value[HITS][i];
        bool outside = x->why >= 0 && x->reason[i] == (double)KVF_REASON_ARCHITECTURE;
        bool missed = (step != (double)KVF_ALIVE && !outside) || mass > 0;
        sum_add(&x->mass, mass);
        x->missed += missed;
        x->hit += hits > 0;
        if (missed && hits >= (double)o->hits)
            err = take_row(f, h, i, d);
    }
    return err;
}

/* Mean of 1 - kept_mass over the queries from step t0 on; NaN: none. */
static int mean_missed(const struct frame *f, int64_t t0, double *ret, struct kvf_diag *d)
{
    const struct data *x = f->state;
    int64_t n = 0;
    struct sum sum = {0};
    int err = KVF_OK;
    for (int h = 0; !err && f->T > t0 && h < f->heads.n; h++) {
        const struct head *q = &f->heads.head[h];
        err = kvf_read_f64(f->t, f->column[KEPT], q->layer, q->index, (uint32_t)t0,
                           (uint32_t)(f->T - t0), x->kept, d);
        for (int64_t i = 0; !err && i < f->T - t0; i++)
            if (!isnan(x->kept[i])) {
                sum_add(&sum, 1 - x->kept[i]);
                n++;
            }
    }
    *ret = n ? sum_get(&sum) / (double)n : NAN;
    return err;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    (void)d;
    f->items = 0; /* finish reads the heads in their order */
    x->kept = FRAME_NEW(f, double, (size_t)f->T);
    for (int c = 0; c < KEPT; c++)
        x->value[c] = FRAME_NEW(f, double, (size_t)(f->b - f->a));
    x->reason = FRAME_NEW(f, double, (size_t)(f->b - f->a));
    x->why = kvf_find(f->t, "evict_reason");
    return KVF_OK;
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int h = 0; !err && f->b > f->a && h < f->heads.n; h++)
        err = take_head(f, h, d);
    return err;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const char *prompt = table_meta(out, "prompt_tokens");
    double all, after = NAN;
    int err = mean_missed(f, 0, &all, d);
    if (!err && prompt)
        err = mean_missed(f, strtoll(prompt, NULL, 10), &after, d);
    if (err)
        return err;
    put_tokens(out, f->a, f->b, f->T);
    table_meta_num(out, "entries_missed", (double)x->missed);
    table_meta_num(out, "entries_hit", (double)x->hit);
    table_meta_num(out, "mass", sum_get(&x->mass));
    if (!isnan(all))
        table_meta_num(out, "missed_mass", all);
    if (!isnan(after))
        table_meta_num(out, "missed_mass_after_prompt", after);
    return KVF_OK;
}

static double number(const struct table *t, const char *key)
{
    const char *text = table_meta(t, key);
    return text ? strtod(text, NULL) : NAN;
}

static void describe(const struct table *t, struct buf *out)
{
    double missed = number(t, "entries_missed"), hit = number(t, "entries_hit");
    const char *protocol = table_meta(t, "protocol");
    buf_printf(out, "method %s, budget %s%s%s, ",
               table_meta(t, "method") ? table_meta(t, "method") : "?",
               table_meta(t, "budget") ? table_meta(t, "budget") : "?", protocol ? ", " : "",
               protocol ? protocol : "");
    describe_tokens(t, out);
    buf_str(out, "\n");
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

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of),
    {"token", "", TABLE_INT, AT(token)},
    {"evict_step", "step", TABLE_INT, AT(step)},
    {"first_hit", "step", TABLE_INT, AT(first)},
    {"hits", "", TABLE_INT, AT(hits)},
    {"mass", "", TABLE_REAL, AT(mass)},
};

const struct analyzer an_ghosts = {
    .name = "ghosts",
    .summary = "evicted entries that later queries would have attended to",
    .example = "kvfate missed run.kvf -o ghosts.png",
    OPTIONS({OPT_INT, 0, "hits", offsetof(struct options, hits), "N",
             "only entries with at least N hits", "0", .max = INT32_MAX}),
    COLUMNS([HITS] = {"shadow.ghost_hits", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ALWAYS, NULL},
            [FIRST] = {"shadow.first_hit", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ALWAYS, NULL},
            [MASS] = {"shadow.ghost_mass", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ALWAYS, NULL},
            [STEP] = COLUMN_EVICT_STEP,
            [KEPT] = {"shadow.kept_mass", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ALWAYS, NULL},
            {"evict_reason", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS,
             "do not mark entries outside of the layer's own window"}),
    HEADS(.space = KVF_SPACE_QUERY, .state_size = sizeof(struct data), FRAME_RECORDS(struct row),
          .prepare = prepare, .finish = finish, .rows = rows),
    .describe = describe,
};

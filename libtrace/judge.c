/* judge.c - checks that the content of a trace is possible: every value there and written once,
 * columns of the shape and range that <kvf/schema.h> gives them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_tape.h"
#include "base/mem.h"
#include "libtrace/copying.h"
#include "libtrace/schema_rules.h"

enum { BLOCK = 1 << 16, VALUES_OF_ANY = 1 << 26, VALUES_OF_A_BYTE = 1024, WORK_OF_ANY = 1 << 26 };
enum { PARTS = 2 }; /* the trace, and the tail of one that was not closed */

struct judge {
    struct kvf_trace *t;
    kvf_finding_fn say;
    void *ctx;
    int n;        /* findings reported */
    int64_t work; /* comparisons of records that are left */
    double *value;
    bool gaps;       /* it notes that it lacks values */
    double from, of; /* its first step in its source, and the steps of the source */
};

static bool full(const struct judge *j)
{
    return j->n >= KVF_MAX_FINDINGS;
}

KVF_PRINTF(2, 3) static void found(struct judge *j, const char *fmt, ...)
{
    struct kvf_diag d = {""};
    char text[sizeof d.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (full(j))
        return;
    kvf_fail(&d, KVF_OK, "%s", text); /* names as they may be shown */
    j->say(j->ctx, d.text);
    j->n++;
}

/* ---- whether all is there, once */

/* Records first .. end - 1 of one part, of one column and layer, of the epoch that counts. */
struct group {
    const struct kvf_trace *part; /* NULL: no such part, and no records */
    int column, layer, heads;
    size_t first, end;
};

static uint32_t epoch_of(const struct kvf_trace *t, int column)
{
    return t->column[column].flags & KVF_COL_SNAPSHOT ? t->epoch : 0;
}

static uint32_t end_of(const struct record *r)
{
    return r->t0 + r->n;
}

static bool overlap(const struct record *a, const struct record *b)
{
    return a->head0 < b->head0 + b->n_heads && b->head0 < a->head0 + a->n_heads && a->t0 < end_of(b)
           && b->t0 < end_of(a);
}

/* Whether records may still be compared with each other: the records of a run hardly need it. */
static bool work(struct judge *j, uint64_t n)
{
    bool before = j->work > 0;
    j->work -= n < (uint64_t)INT64_MAX ? (int64_t)n : INT64_MAX;
    if (before && j->work <= 0)
        found(j, "its records are too entangled to be judged");
    return j->work > 0;
}

/* The record after a that has a value of it too; 0: none.  They are in the order of head0, then
 * of t0. */
static size_t partner_of(struct judge *j, const struct group *g, size_t a)
{
    const struct record *r = g->part->rec;
    bool alike = r[g->end - 1].head0 == r[g->first].head0 || r[a].n_heads == 1;
    for (size_t b = a + 1; b < g->end && r[b].head0 < r[a].head0 + r[a].n_heads && work(j, 1);
         b++) {
        if (overlap(&r[a], &r[b]))
            return b;
        if (alike && r[b].t0 >= end_of(&r[a]))
            return 0;
    }
    return 0;
}

/* The first pair of records of a part with a common value. */
static void find_overlap(struct judge *j, const struct group *g)
{
    const struct record *r = g->part ? g->part->rec : NULL;
    size_t b = 0;
    for (size_t a = g->first; a < g->end && !b && j->work > 0; a++) {
        b = partner_of(j, g, a);
        if (b)
            found(j, "the records at byte %llu and %llu both have %s of layer %d at %u",
                  (unsigned long long)r[a].offset, (unsigned long long)r[b].offset,
                  j->t->column[g->column].name, g->layer, r[a].t0 > r[b].t0 ? r[a].t0 : r[b].t0);
    }
}

/* The end of the values of a head that exist from 0 to `have`, with the values of one part. */
static uint32_t reach_in(const struct group *g, int head, uint32_t have)
{
    const struct record *r = g->part ? g->part->rec : NULL;
    for (size_t i = g->first; i < g->end; i++)
        if (head >= r[i].head0 && head < r[i].head0 + r[i].n_heads && r[i].t0 <= have
            && end_of(&r[i]) > have)
            have = end_of(&r[i]);
    return have;
}

/* How many values of a head are there from 0 on, without a gap. */
static uint32_t reach(struct judge *j, const struct group g[PARTS], int head)
{
    uint32_t have = 0, before = UINT32_MAX;
    uint64_t n = g[0].end - g[0].first + (g[1].end - g[1].first);
    while (have != before && work(j, n)) {
        before = have;
        for (int p = 0; p < PARTS; p++)
            have = reach_in(&g[p], head, have);
    }
    return have;
}

/* The number of values within the steps, by the records of a part. */
static uint64_t count_in(const struct group *g, uint64_t T)
{
    uint64_t n = 0;
    for (size_t i = g->first; i < g->end; i++) {
        const struct record *r = &g->part->rec[i];
        uint64_t end = end_of(r) < T ? end_of(r) : T;
        n += r->t0 < end ? (end - r->t0) * r->n_heads : 0;
    }
    return n;
}

/* A stream may be in both parts, in which case the values are not counted. */
static void find_gap(struct judge *j, const struct group g[PARTS])
{
    const char *name = j->t->column[g->column].name;
    uint64_t T = j->t->n_steps, all = T * (uint64_t)g->heads;
    uint64_t there[PARTS] = {count_in(&g[0], T), count_in(&g[1], T)};
    bool both = there[0] && there[1];
    if (!both && there[0] + there[1] >= all)
        return;
    int head = 0;
    while (head < g->heads && j->work > 0 && reach(j, g, head) >= T)
        head++;
    if (j->work <= 0 || (both && head == g->heads))
        return;
    head = head < g->heads ? head : g->heads - 1;
    if (both)
        found(j, "%s lacks values of layer %d, the first of head %d at %u", name, g->layer, head,
              reach(j, g, head));
    else
        found(j, "%s lacks %llu of the %llu values of layer %d, the first of head %d at %u", name,
              (unsigned long long)(all - there[0] - there[1]), (unsigned long long)all, g->layer,
              head, reach(j, g, head));
}

/* The group of a part. */
static struct group next_group(struct judge *j, int part, int column, int layer)
{
    const struct kvf_trace *t = part ? j->t->tail : j->t;
    enum kvf_space space = (enum kvf_space)j->t->column[column].space;
    struct group g = {NULL, column, layer, kvf_n_heads(j->t, layer, space), 0, 0};
    if (!t || (!part && trace_in_tail(t, column)))
        return g;
    struct record key = {.type = trace_type_of(&j->t->column[column]),
                         .column = (uint32_t)column,
                         .layer = (uint16_t)layer,
                         .epoch = epoch_of(t, column)};
    g.part = t;
    g.first = g.end = trace_lower_bound(t, &key);
    while (g.end < t->n_rec && trace_same_group(&t->rec[g.end], &key))
        g.end++;
    return g;
}

static void find_beyond(struct judge *j, const struct group *g)
{
    for (size_t i = g->first; i < g->end && g->part->clean; i++)
        if (end_of(&g->part->rec[i]) > j->t->n_steps) {
            found(j, "%s of layer %d has values up to %u, and the trace has %u steps",
                  j->t->column[g->column].name, g->layer, end_of(&g->part->rec[i]), j->t->n_steps);
            return;
        }
}

/* ---- values */

static double bound_at(const struct rule_bound *b, double i, double T)
{
    return b->c + b->of_i * i + b->of_T * T;
}

static bool allowed(const struct rule *rule, const struct kvf_column *c, double v, double i,
                    double T)
{
    static const double ones[] = {0, UINT8_MAX, UINT16_MAX, UINT32_MAX, -1, -1, -1, 0x1p64};
    if (isnan(v))
        return rule->nan;
    if (rule->never && v == (c->flags & KVF_COL_AGE ? -1 : ones[c->dtype]))
        return true;
    return v >= bound_at(&rule->least, i, T) && v <= bound_at(&rule->most, i, T);
}

/* A value with the numbers of the source. */
static double in_whole(const struct judge *j, const struct kvf_column *c, double v)
{
    return holds_steps(c) && v != (double)UINT32_MAX ? v + j->from : v;
}

static int judge_head(struct judge *j, const struct rule *rule, const struct group *g, int head)
{
    const struct kvf_column *c = &j->t->column[g->column];
    uint32_t T = j->t->n_steps;
    for (uint32_t at = 0, n; at < T; at += n) {
        struct kvf_diag d = {""};
        n = T - at < BLOCK ? T - at : BLOCK;
        int err = kvf_read_f64(j->t, g->column, g->layer, head, at, n, j->value, &d);
        if (err)
            return err == KVF_E_NOMEM ? err : KVF_OK; /* damage, which kvf_verify reports */
        for (uint32_t i = 0; i < n; i++)
            if (!allowed(rule, c, in_whole(j, c, j->value[i]), j->from + at + i, j->of)) {
                found(j, "%s of layer %d, head %d is %.9g at %u, which cannot be", c->name,
                      g->layer, head, j->value[i], at + i);
                return KVF_OK;
            }
    }
    return KVF_OK;
}

/* One column: its shape, then its records layer by layer, and if asked its values, of which the
 * first wrong one of each column is reported. */
static int judge_column(struct judge *j, int column, bool values)
{
    const struct kvf_column *c = &j->t->column[column];
    const struct rule *rule = schema_rule(c->name);
    static const char *const spaces[] = {"", "KV head and ", "query head and "};
    static const char *const axes[] = {"token", "step"};
    int layers = c->space == KVF_SPACE_RUN ? 1 : j->t->n_layers, before = j->n, err = KVF_OK;
    values = values && !(c->flags & KVF_COL_INTERVALS); /* reading them has judged those */
    bool shape = !rule || ((rule->spaces >> c->space & 1) && rule->axis == c->axis);
    if (!shape)
        found(j, "%s must not have a value for each %s%s", c->name, spaces[c->space],
              axes[c->axis]);
    for (int layer = 0; !err && layer < layers && j->n == before; layer++) {
        struct group g[PARTS];
        for (int p = 0; p < PARTS; p++) {
            g[p] = next_group(j, p, column, layer);
            find_overlap(j, &g[p]);
            find_beyond(j, &g[p]);
        }
        if (!j->gaps)
            find_gap(j, g);
        for (int h = 0; !err && rule && values && j->n == before && h < g->heads; h++)
            err = judge_head(j, rule, g, h);
    }
    return err;
}

/* ---- the trace */

/* The content of a record of this type; 0: there is none. */
static uint64_t length_of(const struct kvf_trace *t, enum record_type type)
{
    for (size_t i = 0; i < t->n_rec; i++)
        if (t->rec[i].type == type)
            return t->rec[i].stored_len;
    return 0;
}

/* Run header and notes, which others read as JSON. */
static void judge_texts(struct judge *j)
{
    const struct kvf_trace *t = j->t;
    size_t n = strlen(t->meta);
    if (n != length_of(t, REC_META) || !json_check_object(t->meta, n))
        found(j, "the run header is no JSON object");
    for (int i = 0; i < t->n_notes && !full(j); i++) {
        const char *json = t->note[i] + strlen(t->note[i]) + 1;
        if (!json_check(json, strlen(json)))
            found(j, "the note %s is no JSON", t->note[i]);
    }
}

/* The first blob with a name that is neither defined nor a user's own. */
static int judge_blobs(struct judge *j)
{
    for (int i = 0, before = j->n; i < kvf_n_blobs(j->t) && j->n == before; i++) {
        struct kvf_blob b;
        struct kvf_diag d = {""};
        int err = kvf_blob(j->t, i, &b, &d);
        if (err == KVF_E_NOMEM)
            return err;
        if (err)
            found(j, "%s", d.text);
        else if (!blob_name_known(b.name))
            found(
                j,
                "a blob of layer %d, head %d is called %s, which is neither q, k, v nor attention "
                "and does not begin with x-",
                b.layer, b.head, b.name);
    }
    return KVF_OK;
}

static void judge_shape(struct judge *j)
{
    const struct kvf_trace *t = j->t;
    for (int l = 0; l < t->n_layers; l++)
        if (t->n_kv[l] == 0 || t->n_query[l] % t->n_kv[l]) {
            found(j, "layer %d has %d query heads for %d KV heads", l, t->n_query[l], t->n_kv[l]);
            break;
        }
    for (int i = 0; i < t->n_columns; i++)
        if (kvf_find(t, t->column[i].name) != i)
            found(j, "two columns have the name %s", t->column[i].name);
}

/* Whether the values may be looked at: a file of a few bytes can declare more than anybody reads.
 */
static bool within_work(struct judge *j)
{
    uint64_t values = 0, bytes = kvf_bytes(j->t);
    for (int i = 0; i < j->t->n_columns; i++)
        values += kvf_held(j->t, i);
    if (values <= VALUES_OF_ANY || values / VALUES_OF_A_BYTE <= bytes)
        return true;
    found(j, "%llu values in a file of %llu bytes are no record of a run, and were not looked at",
          (unsigned long long)values, (unsigned long long)bytes);
    return false;
}

int kvf_judge(struct kvf_trace *t, int values, kvf_finding_fn say, void *ctx, int *ret_n)
{
    struct judge j = {.t = t, .say = say, .ctx = ctx, .value = MEM_NEW(double, BLOCK)};
    j.work = 64 * (int64_t)(t->n_rec + (t->tail ? t->tail->n_rec : 0)) + WORK_OF_ANY;
    struct kvf_part part = {.of = t->n_steps};
    kvf_part(t, &part); /* stays as it is where t is no piece */
    j.from = part.from;
    j.of = part.of;
    j.gaps = kvf_note(t, "repaired") != NULL;
    int err = j.value ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        judge_texts(&j);
        judge_shape(&j);
        err = judge_blobs(&j);
    }
    /* a piece of a piece does not record the length of the run */
    values = !err && values && !kvf_note(t, "part.2") && within_work(&j);
    for (int i = 0; !err && i < t->n_columns && !full(&j); i++)
        err = judge_column(&j, i, values);
    mem_free(j.value);
    if (!err)
        *ret_n = j.n;
    return err;
}

/* an_survival.c - survival at horizon n (DBTrimKV, figures 2 and 9): the share of
 * tokens that are still selected at age n or later, among those at risk (a query
 * at i + n exists), or among all tokens.  half_life: the first n of all whose
 * share is under one half, whatever horizons are listed.  Rows of a gap are the
 * share of one criterion less that of another (the caption of figure 9). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/survival_curve.h"

enum { MAX_HORIZONS = 256, MAX_GAPS = 16, MAX_JOBS = N_CRITERION_TABLE + MAX_GAPS };
struct options {
    struct selection_options selection;
    const char *horizons, *gap;
    int denominator;
    bool skip_trivial;
    int64_t follow_up;
};
static const char *const denominators[] = {"at-risk", "all", NULL};
static const struct opt options[] = {
    {OPT_STR, 0, "criterion", offsetof(struct options, selection.criterion), "LIST",
     "top64 ... top512, mass.90 ... mass.99, a list, or all", "all"},
    {OPT_STR, 0, "horizons", offsetof(struct options, horizons), "LIST",
     "ages in steps, separated by commas", .absent = "about 40 up to T"},
    {OPT_WORD, 0, "denominator", offsetof(struct options, denominator), "D",
     "tokens of which the share is", "at-risk", .words = denominators},
    {OPT_WORD, 0, "space", offsetof(struct options, selection.space), "S",
     "heads; kv-union: any of the group", "query", .words = space_words},
    {OPT_FLAG, 0, "skip-trivial", offsetof(struct options, skip_trivial), NULL,
     "leave out queries that saw no more than K entries"},
    {OPT_INT, 0, "follow-up", offsetof(struct options, follow_up), "F",
     "only tokens with F later queries or more", "0", .max = INT32_MAX},
    {OPT_STR, 0, "gap", offsetof(struct options, gap), "A,B",
     "rows B-A too: how much more of B survives; more pairs may follow"},
    {OPT_GROUP, .offset = offsetof(struct options, selection.groups), .group = token_group_options},
    {.type = OPT_END},
};

struct job {
    struct curve_job curve;
    int top;
    char name[32];
};

struct plan {
    struct selection of;
    struct curve_plan curve;
    struct unit *unit; /* [heads] */
    struct job job[MAX_JOBS];
    int n_jobs;
    int64_t horizon[MAX_HORIZONS], follow_up;
    int n_horizons;
    bool skip;
};

struct row {
    struct row_head of;
    const char *criterion, *class;
    int64_t horizon, at_risk, alive, undecided;
    double fraction, half_life;
};

/* ---- what is asked for */

static void default_horizons(struct plan *p)
{
    p->horizon[p->n_horizons++] = 0; /* then about ten per decade, rounded, each once */
    for (double x = 1; x < (double)p->curve.T && p->n_horizons < MAX_HORIZONS;
         x *= 1.2589254117941673) {
        int64_t n = (int64_t)(x + 0.5);
        if (n < p->curve.T && n != p->horizon[p->n_horizons - 1])
            p->horizon[p->n_horizons++] = n;
    }
}

/* Pairs A,B of criteria: jobs B less A.  Trivial are the queries of the larger K, for both. */
static int choose_gaps(const struct kvf_trace *t, const char *list, struct plan *p,
                       struct kvf_diag *d)
{
    int of[2], n = 0, first = p->n_jobs, err = KVF_OK;
    for (const char *s = list ? list : ""; !err && *s; s += strcspn(s, ","), s += *s == ',') {
        of[n % 2] = criterion_find(s, strcspn(s, ","));
        if (of[n % 2] < 0 || p->n_jobs == first + MAX_GAPS)
            return kvf_fail(d, KVF_E_ARG,
                            "--gap: '%s' is not up to %d pairs of criteria such as "
                            "top64,mass.90",
                            list, MAX_GAPS);
        if (++n % 2)
            continue;
        const struct criterion *a = &criterion_table[of[0]], *b = &criterion_table[of[1]];
        struct job *j = &p->job[p->n_jobs++];
        j->top = a->top > b->top ? a->top : b->top;
        snprintf(j->name, sizeof j->name, "%s-%s", b->name, a->name);
        err = criterion_column(t, "last_selected", of[1], "survival", &j->curve.column, d);
        if (!err)
            err = criterion_column(t, "last_selected", of[0], "survival", &j->curve.minus, d);
    }
    if (!err && list && (n % 2 || !n))
        return kvf_fail(d, KVF_E_ARG, "--gap: '%s' is not pairs of criteria such as top64,mass.90",
                        list);
    return err;
}

static int choose_jobs(const struct kvf_trace *t, const char *gaps, struct plan *p,
                       struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int c = 0; !err && c < p->of.n_criteria; c++) {
        const struct criterion *of = &criterion_table[p->of.criterion[c]];
        struct job *j = &p->job[p->n_jobs++];
        *j = (struct job){.curve.minus = -1, .top = of->top};
        snprintf(j->name, sizeof j->name, "%s", of->name);
        err = criterion_column(t, "last_selected", p->of.criterion[c], "survival", &j->curve.column,
                               d);
    }
    return err ? err : choose_gaps(t, gaps, p, d);
}

static int choose_evictions(const struct kvf_trace *t, struct plan *p, struct kvf_diag *d)
{
    int err = column_need(t, "evict_step", "evict", &p->curve.evict, d);
    if (!err && kvf_find(t, "read.count") >= 0)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "--skip-trivial: the queries of this run read a choice "
                        "of pages, and how many entries each saw is not recorded");
    return err;
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    int64_t b = f->T - o->follow_up < f->b ? f->T - o->follow_up : f->b;
    f->b = b < f->a ? f->a : b;
    p->follow_up = o->follow_up;
    p->skip = o->skip_trivial;
    p->curve = (struct curve_plan){.T = f->T,
                                   .a = f->a,
                                   .b = f->b,
                                   .all = o->denominator == 1,
                                   .groups = &p->of.groups,
                                   .skips = o->skip_trivial};
    int err = selection_choose(f, &o->selection, &p->of, d);
    if (!err && o->horizons)
        err = numbers_parse("horizons", o->horizons, false, MAX_HORIZONS, p->horizon,
                            &p->n_horizons, d);
    if (!o->horizons)
        default_horizons(p);
    if (!err)
        err = choose_jobs(f->t, o->gap, p, d);
    return !err && p->skip ? choose_evictions(f->t, p, d) : err;
}

static int64_t rows_of_head(const struct plan *p)
{
    return (int64_t)p->of.groups.n * p->n_horizons;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    f->items = p->n_jobs;
    f->n_rows = f->items * (f->heads.n + 1) * rows_of_head(p);
    p->unit = FRAME_NEW(f, struct unit, (size_t)f->heads.n);
    int err = p->unit ? curve_plan_init(f, &p->curve) : KVF_E_NOMEM;
    for (int h = 0; !err && h < f->heads.n; h++)
        err = unit_of(f->t, p->of.space, &f->heads.head[h], &p->unit[h], d);
    return err;
}

/* ---- rows */

static double half_life(const struct curve *c, const struct curve_plan *p, int g)
{
    for (int64_t n = 0; n < p->T; n++)
        if (2 * c->alive[g * p->T + n] < curve_at_risk(c, p, g, n)) /* false when nobody is */
            return (double)n;
    return NAN;
}

/* Rows of a head, or of all of them (h = f->heads.n). */
static void put_rows(const struct frame *f, int item, int h, const struct curve *c)
{
    const struct plan *p = f->state;
    const struct job *j = &p->job[item];
    struct row *r = (struct row *)f->row + (item * (f->heads.n + 1) + h) * rows_of_head(p);
    int64_t T = p->curve.T;
    for (int g = 0; g < p->of.groups.n; g++) {
        double half = j->curve.minus < 0 ? half_life(c, &p->curve, g) : NAN;
        /* beyond T nobody is at risk, or all are that were asked for */
        int64_t beyond = p->curve.all && T ? curve_at_risk(c, &p->curve, g, T - 1) : 0;
        for (int k = 0; k < p->n_horizons; k++, r++) {
            int64_t n = p->horizon[k], at = g * T + n;
            *r = (struct row){.of = frame_row_head(f, h),
                              .criterion = j->name,
                              .class = p->of.groups.name[g],
                              .horizon = n,
                              .at_risk = beyond,
                              .fraction = NAN,
                              .half_life = half};
            if (n < T) {
                r->at_risk = curve_at_risk(c, &p->curve, g, n);
                r->alive = c->alive[at];
                r->undecided = c->any_open ? c->open[at] : 0;
            }
            if (r->at_risk)
                r->fraction = (double)r->alive / (double)r->at_risk;
        }
    }
}

/* ---- heads in parallel */

struct work { /* of one thread */
    struct curve_scratch *scratch;
    struct curve mine;    /* of the head at hand */
    struct curve *pooled; /* [jobs] of all heads that this thread had */
};

static void thread(struct frame *f, void *scratch)
{
    struct work *w = scratch;
    const struct curve_plan *p = &((const struct plan *)f->state)->curve;
    w->scratch = curve_scratch_create(f, p);
    w->mine = curve_create(f, p);
    w->pooled = FRAME_NEW(f, struct curve, (size_t)f->items);
    for (int j = 0; w->pooled && j < f->items; j++)
        w->pooled[j] = curve_create(f, p);
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    const struct job *j = &p->job[x->item];
    struct work *w = x->scratch;
    const struct reading r = {x->t, &p->curve, w->scratch, p->skip ? j->top : 0};
    curve_clear(&w->mine, &p->curve);
    int err = curve_count(&r, &j->curve, &p->unit[x->h], &w->mine, d);
    if (err)
        return err;
    curve_add(&w->pooled[x->item], &w->mine, &p->curve);
    put_rows(f, x->item, x->h, &w->mine);
    return KVF_OK;
}

/* The curves of all threads, which are whole numbers: their order does not matter. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    struct work *w = frame_scratch(f, 0);
    (void)d;
    for (int j = 0; j < f->items; j++) {
        for (int i = 1; i < f->n_threads; i++)
            curve_add(&w->pooled[j], &((struct work *)frame_scratch(f, i))->pooled[j], &p->curve);
        put_rows(f, j, f->heads.n, &w->pooled[j]);
    }
    return KVF_OK;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of),
    {"criterion", "", TABLE_STR, AT(criterion)},
    {"horizon", "step", TABLE_INT, AT(horizon)},
    {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"alive", "", TABLE_INT, AT(alive)},
    {"fraction", "", TABLE_REAL, AT(fraction)},
    {"half_life", "step", TABLE_REAL, AT(half_life)},
    {"undecided", "", TABLE_INT, AT(undecided)},
    {"class", "", TABLE_STR, AT(class)},
};

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct plan *p = f->state;
    const struct row *row = f->row;
    int64_t undecided = 0;
    table_meta_str(out, "denominator",
                   p->curve.all ? "all tokens" : "tokens at risk (i + horizon < T)");
    table_meta_str(out, "space", space_name(p->of.space));
    if (p->skip)
        table_meta_str(out, "left_out", "queries that saw no more than K entries");
    if (p->follow_up)
        table_meta_num(out, "follow_up", (double)p->follow_up);
    put_tokens(out, f->a, f->b, f->T);
    token_groups_note(&p->of.groups, out);
    for (int64_t r = 0; r < f->n_rows; r++)
        undecided += row[r].undecided > 0;
    if (p->skip)
        table_meta_num(out, "undecided_rows", (double)undecided);
    return KVF_OK;
}

static void close(struct frame *f)
{
    token_groups_free(&((struct plan *)f->state)->of.groups);
}

static void describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head"), crit = table_find(t, "criterion");
    int half = table_find(t, "half_life"), class = table_find(t, "class");
    const char *current = "";
    buf_printf(out, "survival over %s tokens, denominator: %s\n", table_meta(t, "T"),
               table_meta(t, "denominator"));
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_str(t, crit, r);
        if (strcmp(table_str(t, head, r), "all") != 0 || strcmp(current, name) == 0
            || strcmp(table_str(t, class, r), "all") != 0)
            continue;
        current = name;
        double n = table_real(t, half, r);
        if (strchr(name, '-'))
            continue; /* a gap */
        if (isnan(n))
            buf_printf(out, "  %-8s at least half at every horizon\n", current);
        else
            buf_printf(out, "  %-8s half-life %.0f steps\n", current, n);
    }
}

static const struct analyzer_measure measures[] = {
    {"fraction", "alive", "at_risk"},
    {"half_life", NULL, NULL},
    {NULL, NULL, NULL},
};
static const char *const keys[] = {"head", "layer", "index", "criterion", "class", "horizon", NULL};
static const struct analyzer_pool pool = {keys, measures};

static const struct head_analysis heads = {
    .state_size = sizeof(struct plan),
    .scratch_size = sizeof(struct work),
    .members = members,
    .n_members = sizeof members / sizeof *members,
    .row_size = sizeof(struct row),
    .choose = choose,
    .prepare = prepare,
    .thread = thread,
    .head = head,
    .finish = finish,
    .rows = rows,
    .close = close,
};

const struct analyzer an_survival = {
    .name = "survival",
    .summary = "share of tokens still selected at a horizon",
    .example = "kvfate survival run.kvf -o survival.png",
    .options = options,
    .max_traces = 1,
    .heads = &heads,
    .describe = describe,
    .pool = &pool,
};

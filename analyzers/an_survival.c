/* an_survival.c - survival at horizon n (DBTrimKV, figures 2 and 9): the share of
 * tokens that are still selected at age n or later, among those at risk (a query
 * at i + n exists), or among all tokens.  half_life: the first n of all whose
 * share is under one half, whatever horizons are listed.  Rows of a gap are the
 * share of one criterion less that of another (the caption of figure 9). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/heads_par.h"
#include "analyzers/records.h"
#include "analyzers/survival_curve.h"
#include "base/mem.h"

enum {
    OPT_CRITERION,
    OPT_HORIZONS,
    OPT_DENOMINATOR,
    OPT_SPACE,
    OPT_SKIP,
    OPT_FOLLOW_UP,
    OPT_GAP,
    OPT_BY,
    OPT_CLASSES
};
enum { MAX_HORIZONS = 256, MAX_GAPS = 16, MAX_JOBS = N_CRITERION_TABLE + MAX_GAPS };
static const struct analyzer_option options[] = {
    {"criterion", "LIST", "all", "top64 ... top512, mass.90 ... mass.99, a list, or all"},
    {"horizons", "LIST", NULL, "ages in steps, separated by commas (default: about 40 up to T)"},
    {"denominator", "D", "at-risk", "at-risk or all"},
    {"space", "S", "query", "heads: query, kv-union (any of the group) or kv-mean"},
    {"skip-trivial", NULL, NULL, "leave out queries that saw no more than K entries"},
    {"follow-up", "F", NULL, "only tokens with F later queries or more (default: 0)"},
    {"gap", "A,B", NULL, "rows B-A too: how much more of B survives; more pairs may follow"},
    GROUPS_OPTIONS,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_survival;

struct job {
    struct curve_job curve;
    int top;
    char name[32];
};

struct plan {
    struct curve_plan curve;
    struct token_groups groups;
    struct head_list heads;
    struct unit *unit; /* [heads] */
    enum selected_space space;
    struct job job[MAX_JOBS];
    int n_jobs;
    int64_t horizon[MAX_HORIZONS], follow_up;
    int n_horizons, threads;
    bool skip;
};

struct row {
    const char *head, *criterion, *class;
    int64_t layer, index, horizon, at_risk, alive, undecided;
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

static int choose_jobs(const struct kvf_trace *t, const struct analyzer_args *args, struct plan *p,
                       struct kvf_diag *d)
{
    int of[N_CRITERION_TABLE], n;
    int err = criteria_choose(option_text(&an_survival, args, OPT_CRITERION), of, &n, d);
    for (int c = 0; !err && c < n; c++) {
        struct job *j = &p->job[p->n_jobs++];
        *j = (struct job){.curve.minus = -1, .top = criterion_table[of[c]].top};
        snprintf(j->name, sizeof j->name, "%s", criterion_table[of[c]].name);
        err = criterion_column(t, "last_selected", of[c], "survival", &j->curve.column, d);
    }
    return err ? err : choose_gaps(t, option_text(&an_survival, args, OPT_GAP), p, d);
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

static int parse(struct kvf_trace *t, const struct analyzer_args *args, struct plan *p,
                 struct kvf_diag *d)
{
    const struct analyzer *me = &an_survival;
    const char *denominator = option_text(me, args, OPT_DENOMINATOR);
    const char *horizons = option_text(me, args, OPT_HORIZONS);
    struct curve_plan *c = &p->curve;
    c->T = kvf_n_steps(t);
    p->threads = args->threads;
    c->all = strcmp(denominator, "all") == 0;
    p->skip = c->skips = option_text(me, args, OPT_SKIP) != NULL;
    if (!c->all && strcmp(denominator, "at-risk") != 0)
        return kvf_fail(d, KVF_E_ARG, "--denominator is at-risk or all, not '%s'", denominator);
    int err = space_parse(option_text(me, args, OPT_SPACE), false, &p->space, d);
    if (!err)
        err = number_parse("follow-up", option_text(me, args, OPT_FOLLOW_UP), &p->follow_up, d);
    if (!err && horizons)
        err = numbers_parse("horizons", horizons, false, MAX_HORIZONS, p->horizon, &p->n_horizons,
                            d);
    if (!err && !horizons)
        default_horizons(p);
    if (!err)
        err = choose_jobs(t, args, p, d);
    if (!err && p->skip)
        err = choose_evictions(t, p, d);
    if (!err)
        err = tokens_select(t, args, &c->a, &c->b, d);
    c->b = c->T - p->follow_up < c->b ? c->T - p->follow_up : c->b;
    c->b = c->b < c->a ? c->a : c->b;
    if (!err)
        err = token_groups_make(t, option_text(me, args, OPT_BY),
                                option_text(me, args, OPT_CLASSES), &p->groups, d);
    return err ? err : space_heads(t, p->space, args->heads, &p->heads, d);
}

static int prepare(struct kvf_trace *t, const struct analyzer_args *args, struct plan *p,
                   struct kvf_diag *d)
{
    int err = parse(t, args, p, d);
    if (err)
        return err;
    p->curve.groups = &p->groups;
    p->unit = MEM_NEW(struct unit, (size_t)p->heads.n);
    err = p->unit ? curve_plan_init(&p->curve) : KVF_E_NOMEM;
    for (int h = 0; !err && h < p->heads.n; h++)
        err = unit_of(t, p->space, &p->heads.head[h], &p->unit[h], d);
    return err;
}

static void free_plan(struct plan *p)
{
    curve_plan_free(&p->curve);
    token_groups_free(&p->groups);
    heads_free(&p->heads);
    mem_free(p->unit);
}

/* ---- rows */

static int64_t rows_of_unit(const struct plan *p)
{
    return (int64_t)p->groups.n * p->n_horizons;
}

static double half_life(const struct curve *c, const struct curve_plan *p, int g)
{
    for (int64_t n = 0; n < p->T; n++)
        if (2 * c->alive[g * p->T + n] < curve_at_risk(c, p, g, n)) /* false when nobody is */
            return (double)n;
    return NAN;
}

/* Rows of one head, or of all together (head NULL). */
static void put_rows(const struct plan *p, const struct job *j, const struct head *head,
                     const struct curve *c, struct row *r)
{
    int64_t T = p->curve.T;
    for (int g = 0; g < p->groups.n; g++) {
        double half = j->curve.minus < 0 ? half_life(c, &p->curve, g) : NAN;
        /* beyond T nobody is at risk, or all are that were asked for */
        int64_t beyond = p->curve.all && T ? curve_at_risk(c, &p->curve, g, T - 1) : 0;
        for (int k = 0; k < p->n_horizons; k++, r++) {
            int64_t n = p->horizon[k], at = g * T + n;
            *r = (struct row){head ? head->name : "all",
                              j->name,
                              p->groups.name[g],
                              head ? head->layer : -1,
                              head ? head->index : -1,
                              n,
                              beyond,
                              0,
                              0,
                              NAN,
                              half};
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

struct worker { /* of one thread */
    struct curve_scratch *scratch;
    struct curve mine;    /* of the head at hand */
    struct curve *pooled; /* [jobs] of all heads that this thread had */
};

struct crew {
    const struct plan *p;
    struct row *row;
    struct worker *worker;
    int n;
};

static int64_t rows_of_job(const struct plan *p)
{
    return (p->heads.n + 1) * rows_of_unit(p);
}

static int count_head(void *ctx, struct kvf_trace *t, int job, int h, int thread,
                      struct kvf_diag *d)
{
    struct crew *c = ctx;
    struct worker *w = &c->worker[thread];
    const struct plan *p = c->p;
    const struct job *j = &p->job[job];
    const struct reading r = {t, &p->curve, w->scratch, p->skip ? j->top : 0};
    curve_clear(&w->mine, &p->curve);
    int err = curve_count(&r, &j->curve, &p->unit[h], &w->mine, d);
    if (err)
        return err;
    curve_add(&w->pooled[job], &w->mine, &p->curve);
    put_rows(p, j, &p->heads.head[h], &w->mine,
             c->row + job * rows_of_job(p) + h * rows_of_unit(p));
    return KVF_OK;
}

static int alloc_crew(struct crew *c)
{
    c->worker = MEM_NEW(struct worker, (size_t)c->n);
    for (int i = 0; c->worker && i < c->n; i++) {
        struct worker *w = &c->worker[i];
        w->scratch = curve_scratch_create(&c->p->curve);
        w->pooled = MEM_NEW(struct curve, (size_t)c->p->n_jobs);
        if (!w->scratch || !w->pooled || curve_alloc(&w->mine, &c->p->curve))
            return KVF_E_NOMEM;
        for (int j = 0; j < c->p->n_jobs; j++)
            if (curve_alloc(&w->pooled[j], &c->p->curve))
                return KVF_E_NOMEM;
    }
    return c->worker ? KVF_OK : KVF_E_NOMEM;
}

static void free_crew(struct crew *c)
{
    for (int i = 0; c->worker && i < c->n; i++) {
        struct worker *w = &c->worker[i];
        curve_scratch_destroy(w->scratch);
        curve_free(&w->mine);
        for (int j = 0; w->pooled && j < c->p->n_jobs; j++)
            curve_free(&w->pooled[j]);
        mem_free(w->pooled);
    }
    mem_free(c->worker);
}

/* Sums of all threads, which are integers: their order does not matter. */
static void put_pooled(struct crew *c)
{
    const struct plan *p = c->p;
    for (int j = 0; j < p->n_jobs; j++) {
        for (int i = 1; i < c->n; i++)
            curve_add(&c->worker[0].pooled[j], &c->worker[i].pooled[j], &p->curve);
        put_rows(p, &p->job[j], NULL, &c->worker[0].pooled[j],
                 c->row + j * rows_of_job(p) + p->heads.n * rows_of_unit(p));
    }
}

static int fill(struct kvf_trace *t, const struct plan *p, struct row *row, struct kvf_diag *d)
{
    struct heads_par *par = NULL;
    struct crew c = {.p = p, .row = row};
    int err = heads_par_create(t, p->threads, p->curve.T * p->heads.n * p->n_jobs, &par);
    if (!err) {
        c.n = heads_par_threads(par);
        err = alloc_crew(&c);
    }
    if (!err)
        err = heads_par_run(par, &p->heads, p->n_jobs, count_head, &c, d);
    if (!err)
        put_pooled(&c);
    free_crew(&c);
    heads_par_destroy(par);
    return err;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"head", "", TABLE_STR, AT(head)},
    {"layer", "", TABLE_INT, AT(layer)},
    {"index", "", TABLE_INT, AT(index)},
    {"criterion", "", TABLE_STR, AT(criterion)},
    {"horizon", "step", TABLE_INT, AT(horizon)},
    {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"alive", "", TABLE_INT, AT(alive)},
    {"fraction", "", TABLE_REAL, AT(fraction)},
    {"half_life", "step", TABLE_REAL, AT(half_life)},
    {"undecided", "", TABLE_INT, AT(undecided)},
    {"class", "", TABLE_STR, AT(class)},
};

static void put_meta(struct table *out, const struct kvf_trace *t, const struct plan *p)
{
    put_provenance(out, t);
    table_meta_str(out, "denominator",
                   p->curve.all ? "all tokens" : "tokens at risk (i + horizon < T)");
    table_meta_str(out, "space", space_name(p->space));
    if (p->skip)
        table_meta_str(out, "left_out", "queries that saw no more than K entries");
    if (p->follow_up)
        table_meta_num(out, "follow_up", (double)p->follow_up);
    put_tokens(out, p->curve.a, p->curve.b, p->curve.T);
    token_groups_note(&p->groups, out);
}

static int build(struct kvf_trace *t, const struct plan *p, struct table **ret, struct kvf_diag *d)
{
    int64_t n = (int64_t)p->n_jobs * (p->heads.n + 1) * rows_of_unit(p), undecided = 0;
    struct row *row = MEM_NEW(struct row, (size_t)n);
    struct table *out = table_create("survival", n);
    int err = row && out ? fill(t, p, row, d) : KVF_E_NOMEM;
    if (!err) {
        put_meta(out, t, p);
        for (int64_t r = 0; r < n; r++)
            undecided += row[r].undecided > 0;
        if (p->skip)
            table_meta_num(out, "undecided_rows", (double)undecided);
        err = records_put(out, row, sizeof *row, members, sizeof members / sizeof *members);
    }
    mem_free(row);
    if (err)
        table_destroy(out);
    else
        *ret = out;
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct plan p = {.skip = false};
    (void)n_traces;
    int err = prepare(traces[0], args, &p, d);
    if (!err)
        err = build(traces[0], &p, ret_table, d);
    free_plan(&p);
    return err;
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

const struct analyzer an_survival = {
    .name = "survival",
    .summary = "share of tokens still selected at a horizon",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};

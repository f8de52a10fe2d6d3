/* an_survival.c - survival at horizon n (DBTrimKV, figures 2 and 9), in two ways.  `fraction` is
 * tokens selected at age n or later, divided by the tokens at risk (a query at i + n
 * exists) or by all tokens.  `survival` is the product-limit estimate of the share with the last
 * selection at age n or later (lives.h).  It treats tokens alike, whether their text ends early or
 * continues.  Half-life and restricted mean are derived from `survival`.  Rows of a gap are the
 * share of one criterion less that of another (the caption of figure 9). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/life.h"
#include "analyzers/survival_curve.h"

enum { MEAN_TO = 256, MAX_HORIZONS = 256, MAX_GAPS = 16, MAX_JOBS = N_CRITERION_TABLE + MAX_GAPS };
enum { FEWEST = 8 }; /* tokens of a class that has a curve without an option */
struct options {
    struct life_options life;
    const char *horizons, *gap;
    int denominator;
    bool skip_trivial;
    int64_t mean_to;
};
static const char *const denominators[] = {"at-risk", "all", NULL};
struct job {
    struct curve_job curve;
    int top;
    char name[32];
};

struct plan {
    struct life life;
    struct curve_plan curve;
    struct unit *unit; /* [heads] */
    struct job job[MAX_JOBS];
    int n_jobs;
    int64_t horizon[MAX_HORIZONS], before[MAX_HORIZONS]; /* the next smaller one, or -1 */
    int64_t mean_to;
    int n_horizons;
    bool skip;
};

struct row {
    struct life_row of;
    int64_t horizon, at_risk, alive, undecided, events, exposure, half_life_over;
    double fraction, survival, survival_low, survival_high, half_life, rmst, rmst_error;
    double half_life_low, half_life_high;
};

struct estimate {            /* the room of a thread */
    double *S, *G;           /* [T + 2] base/product_limit.h */
    int64_t *died, *exposed; /* [T + 2] deaths and steps at risk in the cells before */
    int64_t followed, known; /* the last age that enough tokens could show, and the last one
                              * with a survival; below 0: none */
    struct curve_scratch *scratch;
};

/* ---- options */

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

/* The largest horizon below n, or -1. */
static int64_t horizon_before(const struct plan *p, int64_t n)
{
    int64_t before = -1;
    for (int k = 0; k < p->n_horizons; k++)
        if (p->horizon[k] < n && p->horizon[k] > before)
            before = p->horizon[k];
    return before;
}

/* Pairs A,B of criteria: jobs B less A.  Trivial are the queries of the larger K, for both. */
static int choose_gaps(const struct kvf_trace *t, const char *list, struct plan *p, struct lacks *l,
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
        err = criterion_column(t, "last_selected", of[1], l, &j->curve.column, d);
        if (!err)
            err = criterion_column(t, "last_selected", of[0], l, &j->curve.minus, d);
    }
    if (!err && list && (n % 2 || !n))
        return kvf_fail(d, KVF_E_ARG, "--gap: '%s' is not pairs of criteria such as top64,mass.90",
                        list);
    return err;
}

static int choose_jobs(const struct kvf_trace *t, const char *gaps, struct plan *p,
                       struct kvf_diag *d)
{
    struct lacks l = {.n = 0};
    int err = KVF_OK;
    for (int c = 0; !err && c < p->life.of.n_criteria; c++) {
        const struct criterion *of = &criterion_table[p->life.of.criterion[c]];
        struct job *j = &p->job[p->n_jobs++];
        *j = (struct job){.curve.minus = -1, .top = of->top};
        snprintf(j->name, sizeof j->name, "%s", of->name);
        err = criterion_column(t, "last_selected", p->life.of.criterion[c], &l, &j->curve.column,
                               d);
    }
    if (!err)
        err = choose_gaps(t, gaps, p, &l, d);
    if (!err && p->skip)
        err = columns_find(t, "evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, &l, &p->curve.evict, d);
    return columns_refuse(&l, criterion_else(t), err, d);
}

/* How many entries a query saw must be known. */
static int check_trivial(const struct kvf_trace *t, struct kvf_diag *d)
{
    return kvf_find(t, "read.count") < 0
               ? KVF_OK
               : kvf_fail(d, KVF_E_NOTFOUND,
                          "--skip-trivial: the queries of this run read a choice of pages, and how "
                          "many entries each saw is not recorded");
}

static int64_t mean_to(int64_t steps, int64_t T)
{
    int64_t quarter = T / 4 < MEAN_TO ? T / 4 : MEAN_TO;
    return steps < 0 ? quarter : steps;
}

static void of_length(void *asked, int64_t T)
{
    struct options *o = asked;
    life_of_length(asked, T);
    o->mean_to = mean_to(o->mean_to, T);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    int err = life_choose(f, &o->life, &p->life, d);
    p->skip = o->skip_trivial;
    p->curve = (struct curve_plan){.T = f->T,
                                   .a = f->a,
                                   .b = f->b,
                                   .all = o->denominator == 1,
                                   .groups = &p->life.of.groups,
                                   .skips = o->skip_trivial,
                                   .lives = &p->life.plan[0]};
    p->mean_to = mean_to(o->mean_to, f->T);
    if (!err) {
        selection_recorded(f, o->life.selection.criterion, &p->life.of);
        err = life_set_grace(&p->life, &o->life, f->T, d);
    }
    if (!err && o->horizons)
        err = numbers_parse("horizons", o->horizons, false, MAX_HORIZONS, p->horizon,
                            &p->n_horizons, d);
    if (!o->horizons)
        default_horizons(p);
    if (!err)
        err = choose_jobs(f->t, o->gap, p, d);
    return !err && p->skip ? check_trivial(f->t, d) : err;
}

/* ---- rows */

/* How many tokens of group g must be able to reach an age.  A class of a few, such as a small
 * picture's patches, has a curve too, which ends where the first of them is followed no longer. */
static int64_t fewest(const struct plan *p, int g)
{
    int64_t n = p->curve.before[g * (p->curve.T + 1) + p->curve.T];
    if (p->life.at_least > 0)
        return p->life.at_least;
    return n < FEWEST || n > LIVES_AT_LEAST ? LIVES_AT_LEAST : n;
}

/* The estimates of group g. Undefined for a gap, and if some tokens are undecided. */
static void estimate(const struct plan *p, const struct curve *c, int g, bool defined,
                     struct estimate *e)
{
    int64_t T = p->curve.T, at = g * (T + 1);
    e->known = e->followed = defined ? lives_end(&p->life.plan[0], g, c->end, fewest(p, g)) : -2;
    if (e->known < 0)
        return;
    product_limit(c->lives.died + at, c->lives.censored + at, T + 1, e->S, e->G);
    while (e->known >= 0 && isnan(e->S[e->known + 1]))
        e->known--;
    lives_sums(&p->life.plan[0], &c->lives, g, e->died, e->exposed);
}

/* The interval of survival at age n. */
static void interval_at(const struct estimate *e, int64_t n, double *ret_low, double *ret_high)
{
    product_limit_interval(e->S[n + 1], e->G[n + 1], e->exposed[n + 1] - e->exposed[n], ret_low,
                           ret_high);
}

/* The first ages at which the two ends of the interval are below one half; NaN: not so far. */
static void half_interval(const struct estimate *e, double *ret_low, double *ret_high)
{
    double low, high;
    *ret_low = *ret_high = NAN;
    for (int64_t n = 0; n <= e->known && isnan(*ret_high); n++) {
        interval_at(e, n, &low, &high);
        if (isnan(*ret_low) && low < .5)
            *ret_low = (double)n;
        if (high < .5 || e->S[n + 1] == 0)
            *ret_high = (double)n;
    }
}

/* The values that are equal in all rows of a curve. */
static void put_whole(const struct plan *p, const struct curve *c, int g, const struct estimate *e,
                      struct row *r)
{
    int64_t T = p->curve.T, at = g * (T + 1), half = -1;
    r->half_life = r->rmst = r->rmst_error = r->half_life_low = r->half_life_high = NAN;
    r->half_life_over = -1;
    if (e->known < 0)
        return;
    half = product_limit_half(e->S, 1, e->known + 2);
    if (half >= 0)
        r->half_life = (double)(half - 1);
    else
        r->half_life_over = e->known;
    half_interval(e, &r->half_life_low, &r->half_life_high);
    if (p->mean_to > 0 && p->mean_to <= e->known + 1)
        r->rmst = product_limit_mean(c->lives.died + at, c->lives.censored + at, T + 1, e->S, 1,
                                     p->mean_to + 1, &r->rmst_error);
}

/* Survival at horizon n, and the events since the horizon `before`. */
static void put_survival(const struct estimate *e, int64_t before, int64_t n, struct row *r)
{
    r->survival = r->survival_low = r->survival_high = NAN;
    if (n <= e->followed) {
        r->events = e->died[n + 1] - e->died[before + 1];
        r->exposure = e->exposed[n + 1] - e->exposed[before + 1];
    }
    if (n > e->known)
        return;
    r->survival = e->S[n + 1];
    interval_at(e, n, &r->survival_low, &r->survival_high);
}

/* The share at horizon n, of tokens that are at risk there: beyond T no token, or all tokens of the
 * range. */
static void put_fraction(const struct plan *p, const struct curve *c, int g, int64_t n,
                         struct row *r)
{
    int64_t T = p->curve.T, at = g * T + n;
    if (n < T) {
        r->at_risk = curve_at_risk(c, &p->curve, g, n);
        r->alive = c->alive[at];
        r->undecided = c->any_open ? c->open[at] : 0;
    } else if (p->curve.all && T) {
        r->at_risk = curve_at_risk(c, &p->curve, g, T - 1);
    }
    if (r->at_risk && curve_tokens(c, &p->curve, g, n) >= fewest(p, g))
        r->fraction = (double)r->alive / (double)r->at_risk;
}

static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room)
{
    const struct plan *p = f->state;
    const struct job *j = &p->job[item];
    const struct curve *c = counts;
    struct estimate *e = room;
    struct row *r = life_rows_at(f, item, h);
    for (int g = 0; g < p->life.of.groups.n; g++) {
        struct row of_class = {.of = {frame_row_head(f, h), j->name, p->life.of.groups.name[g]},
                               .fraction = NAN};
        estimate(p, c, g, j->curve.minus < 0 && !c->any_open, e);
        put_whole(p, c, g, e, &of_class);
        for (int k = 0; k < p->n_horizons; k++, r++) {
            *r = of_class;
            r->horizon = p->horizon[k];
            put_survival(e, p->before[k], r->horizon, r);
            put_fraction(p, c, g, r->horizon, r);
        }
    }
}

/* ---- heads in parallel */

static void create(struct frame *f, int item, void *counts)
{
    (void)item;
    *(struct curve *)counts = curve_create(f, &((const struct plan *)f->state)->curve);
}

static void clear(const struct frame *f, int item, void *counts)
{
    (void)item;
    curve_clear(counts, &((const struct plan *)f->state)->curve);
}

static void add(const struct frame *f, int item, const void *counts, void *to)
{
    (void)item;
    curve_add(to, counts, &((const struct plan *)f->state)->curve);
}

static int count_head(const struct frame *f, const struct frame_head *x, void *room, void *counts,
                      struct kvf_diag *d)
{
    const struct plan *p = f->state;
    const struct job *j = &p->job[x->item];
    const struct estimate *e = room;
    const struct reading r = {x->t, &p->curve, e->scratch, p->skip ? j->top : 0};
    return curve_count(&r, &j->curve, &p->unit[x->h], counts, d);
}

static const struct life_counts kind = {.size = sizeof(struct curve),
                                        .create = create,
                                        .clear = clear,
                                        .add = add,
                                        .count_head = count_head};

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    for (int k = 0; k < p->n_horizons; k++)
        p->before[k] = horizon_before(p, p->horizon[k]);
    p->life.counts = &kind;
    p->life.rows_of = rows_of;
    p->life.room = sizeof(struct estimate);
    p->unit = FRAME_NEW(f, struct unit, (size_t)f->heads.n);
    int err = p->unit ? curve_plan_init(f, &p->curve) : KVF_E_NOMEM;
    for (int h = 0; !err && h < f->heads.n; h++)
        err = unit_of(f->t, p->life.of.space, &f->heads.head[h], &p->unit[h], d);
    return err ? err : life_prepare(f, p->n_jobs, p->n_horizons);
}

static void thread(struct frame *f, void *scratch)
{
    const struct plan *p = f->state;
    size_t n = (size_t)f->T + 2;
    struct estimate *e = life_room(f, scratch);
    if (e)
        *e = (struct estimate){.S = FRAME_NEW(f, double, n),
                               .G = FRAME_NEW(f, double, n),
                               .died = FRAME_NEW(f, int64_t, n),
                               .exposed = FRAME_NEW(f, int64_t, n),
                               .scratch = curve_scratch_create(f, &p->curve)};
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of.of),
    {"criterion", "", TABLE_STR, AT(of.criterion)},
    {"horizon", "step", TABLE_INT, AT(horizon)},
    {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"alive", "", TABLE_INT, AT(alive)},
    {"fraction", "", TABLE_REAL, AT(fraction)},
    {"half_life", "step", TABLE_REAL, AT(half_life)},
    {"undecided", "", TABLE_INT, AT(undecided)},
    {"class", "", TABLE_STR, AT(of.class)},
    {"survival", "", TABLE_REAL, AT(survival)},
    {"survival_low", "", TABLE_REAL, AT(survival_low)},
    {"survival_high", "", TABLE_REAL, AT(survival_high)},
    {"events", "", TABLE_INT, AT(events)},
    {"exposure", "step", TABLE_INT, AT(exposure)},
    {"half_life_over", "step", TABLE_INT, AT(half_life_over)},
    {"rmst", "step", TABLE_REAL, AT(rmst)},
    {"rmst_error", "step", TABLE_REAL, AT(rmst_error)},
    {"half_life_low", "step", TABLE_REAL, AT(half_life_low)},
    {"half_life_high", "step", TABLE_REAL, AT(half_life_high)},
};

static int put_metadata(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct plan *p = f->state;
    const struct row *row = f->row;
    int64_t undecided = 0;
    table_meta_str(out, "denominator",
                   p->curve.all ? "all tokens" : "tokens at risk (i + horizon < T)");
    selection_warn(&p->life.of, out);
    table_meta_str(out, "space", space_name(p->life.of.space));
    table_meta_num(out, "grace", (double)p->life.plan[0].grace);
    table_meta_num(out, "at_least",
                   (double)(p->life.at_least > 0 ? p->life.at_least : LIVES_AT_LEAST));
    table_meta_num(out, "mean_to", (double)p->mean_to);
    if (p->skip)
        table_meta_str(out, "left_out", "queries that saw no more than K entries");
    if (p->life.follow_up)
        table_meta_num(out, "follow_up", (double)p->life.follow_up);
    put_tokens(out, f->a, f->b, f->T);
    token_groups_note(&p->life.of.groups, out);
    for (int64_t r = 0; r < f->n_rows; r++)
        undecided += row[r].undecided > 0;
    if (p->skip)
        table_meta_num(out, "undecided_rows", (double)undecided);
    return KVF_OK;
}

/* "half-life 32 steps", "half-life > 412 steps"; then the mean. */
static void describe_curve(const struct table *t, int64_t r, struct buf *out)
{
    double half = table_row_real(t, r, "half_life");
    int64_t over = table_row_int(t, r, "half_life_over");
    double mean = table_row_real(t, r, "rmst");
    buf_printf(out, "  %-8s half-life ", table_row_str(t, r, "criterion"));
    double low = table_row_real(t, r, "half_life_low");
    double high = table_row_real(t, r, "half_life_high");
    if (!isnan(half) && !isnan(low) && !isnan(high))
        buf_printf(out, "%.0f steps (%.0f to %.0f)", half, low, high);
    else if (!isnan(half))
        buf_printf(out, "%.0f steps", half);
    else if (over >= 0)
        buf_printf(out, "> %lld steps", (long long)over);
    else
        buf_str(out, "unknown: too few tokens are followed for long enough");
    bool held = strcmp(table_row_str(t, r, "criterion"), "held") == 0;
    if (!isnan(mean))
        buf_printf(out, "; %s for %.1f of the first %s", held ? "cached" : "in use", mean,
                   table_meta(t, "mean_to"));
    buf_str(out, "\n");
}

static void describe(const struct table *t, struct buf *out)
{
    int crit = table_find(t, "criterion");
    const char *current = "";
    buf_str(out, "survival over ");
    describe_tokens(t, out);
    if (table_rows(t) == 0 || strcmp(table_str(t, crit, 0), "held") != 0)
        buf_printf(out, "; in use: selected again within %s steps", table_meta(t, "grace"));
    buf_str(out, "\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_str(t, crit, r);
        if (!life_row_is_all(t, r) || strcmp(current, name) == 0)
            continue;
        current = name;
        if (!strchr(name, '-')) /* no gap */
            describe_curve(t, r, out);
    }
}

const struct analyzer an_survival = {
    .name = "survival",
    .summary = "survival curves: how long tokens stay in use",
    .example = "kvfate survival run.kvf -o survival.png",
    OPTIONS(LIFE_OPTION_CRITERION(CRITERION_LIST, "all"),
            {OPT_STR, 0, "horizons", offsetof(struct options, horizons), "LIST",
             "ages in steps, separated by commas", .absent = "about 40 up to T"},
            {OPT_WORD, 0, "denominator", offsetof(struct options, denominator), "D",
             "tokens of which the share is", "at-risk", .words = denominators},
            LIFE_OPTION_SPACE,
            {OPT_FLAG, 0, "skip-trivial", offsetof(struct options, skip_trivial), NULL,
             "omit queries that saw no more than K entries"},
            LIFE_OPTION_FOLLOW_UP, LIFE_OPTION_GRACE,
            {OPT_INT, 0, "at-least", offsetof(struct options, life.at_least), "N",
             "end curves at the age that fewer tokens could reach", "-1",
             .absent = "20, or all of a class of 8 to 19", .min = 1, .max = INT32_MAX},
            {OPT_INT, 0, "mean-to", offsetof(struct options, mean_to), "H",
             "horizon of the restricted mean", "-1", .absent = "256, or T / 4 if less",
             .max = INT32_MAX},
            {OPT_STR, 0, "gap", offsetof(struct options, gap), "A,B",
             "rows B-A too: how much more of B survives; more pairs may follow"},
            LIFE_OPTION_GROUPS),
    COLUMNS(COLUMN_SELECTED, {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED,
                              "--skip-trivial, --criterion held"}),
    HEADS(LIFE_ANALYSIS(struct plan, put_metadata)),
    .describe = describe,
    .of_length = of_length,
    POOL(KEYS(LIFE_KEYS, "horizon"), {"fraction", "alive", "at_risk"},
         {"survival", "events", "exposure", .product = true, .half_life = "half_life"}, {"rmst"}),
};

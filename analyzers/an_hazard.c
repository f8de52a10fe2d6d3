/* an_hazard.c - the risk that a selection at age a is a token's last: hazard by bins of age,
 * and the Kaplan-Meier estimate of survival, both with tokens whose text ends too early to
 * tell left out from there on.
 *
 * lives.h says which tokens die at an age and which are censored, base/product_limit.h how
 * survival is estimated from it.  Rows end with the last age that --at-least tokens could show. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/lives.h"

enum { MAX_BINS = 256 };
struct options {
    struct selection_options selection;
    const char *bins;
    int64_t grace, at_least;
};
static const struct opt options[] = {
    {OPT_STR, 0, "criterion", offsetof(struct options, selection.criterion), "LIST", CRITERION_LIST,
     "all"},
    {OPT_STR, 0, "bins", offsetof(struct options, bins), "LIST", "ages at which bins begin",
     .absent = "0, 1, 2, 4, 8, ..."},
    {OPT_GROUP, .offset = offsetof(struct options, grace), .group = lives_grace_option},
    {OPT_INT, 0, "at-least", offsetof(struct options, at_least), "N",
     "estimate nothing at ages that fewer tokens could reach", "20", .min = 1, .max = INT32_MAX},
    {OPT_WORD, 0, "space", offsetof(struct options, selection.space), "S",
     "heads; kv-union: any of the group", "query", .words = space_words},
    {OPT_GROUP, .offset = offsetof(struct options, selection.groups), .group = token_group_options},
    {.type = OPT_END},
};

struct plan {
    struct selection of;
    int column[N_CRITERION_TABLE];
    struct lives_plan lives;
    int64_t T, at_least;
    int64_t edge[MAX_BINS + 2], last_high; /* bins [edge[k], edge[k + 1]), the last to last_high */
    int n_bins;
};

struct row {
    struct row_head of;
    const char *criterion, *class;
    int64_t low, high, at_risk, events, censored, exposure;
    double hazard, actuarial, survival, survival_low, survival_high;
};

/* ---- what is asked for */

/* -1 is the bin of tokens that not even the query of their birth selected. */
static int choose_bins(const char *list, struct plan *p, struct kvf_diag *d)
{
    int n = 0, err = KVF_OK;
    p->edge[0] = -1;
    p->last_high = -1;
    if (list)
        err = numbers_parse("bins", list, true, MAX_BINS, p->edge + 1, &n, d);
    for (int64_t x = 0; !list && (x == 0 || x < p->T); x = x ? 2 * x : 1) {
        p->edge[++n] = x;
        p->last_high = x ? 2 * x : 1;
    }
    p->n_bins = n + 1;
    return err;
}

static void of_length(void *asked, int64_t T)
{
    struct options *o = asked;
    o->grace = lives_grace(o->grace, T);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    *p = (struct plan){.T = f->T, .at_least = o->at_least};
    p->lives = (struct lives_plan){.T = f->T,
                                   .a = f->a,
                                   .b = f->b,
                                   .grace = lives_grace(o->grace, f->T),
                                   .groups = &p->of.groups};
    int err = selection_choose(f, &o->selection, &p->of, d);
    if (!err)
        selection_recorded(f, o->selection.criterion, &p->of);
    struct lacks l = {.n = 0};
    for (int k = 0; !err && k < p->of.n_criteria; k++)
        err = criterion_column(f->t, "last_selected", p->of.criterion[k], &l, &p->column[k], d);
    err = columns_refuse(&l, criterion_else(f->t), err, d);
    return err ? err : choose_bins(o->bins, p, d);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    (void)d;
    f->items = p->T ? p->of.n_criteria : 0;
    f->n_rows = (int64_t)f->items * (f->heads.n + 1) * p->of.groups.n * p->n_bins;
    return KVF_OK;
}

/* ---- estimates */

struct estimate {  /* of a thread, [T + 2] cells each */
    double *S, *G; /* base/product_limit.h */
    int64_t *risk; /* at risk */
};

static void put_survival(const struct estimate *e, int64_t cell, struct row *r)
{
    r->survival = e->S[cell];
    product_limit_interval(e->S[cell], e->G[cell], cell ? e->risk[cell - 1] : 0, &r->survival_low,
                           &r->survival_high);
}

/* The counts of a bin whose first and last ages are those of the cells k and stop - 1; estimates
 * where the bin begins at an age that enough tokens could show. */
static void put_bin(const int64_t *died, const struct estimate *e, int64_t k, int64_t stop,
                    bool enough, struct row *r)
{
    r->at_risk = e->risk[k];
    for (int64_t x = k; x < stop; x++) {
        r->exposure += e->risk[x];
        r->events += died[x];
    }
    r->censored = r->at_risk - e->risk[stop] - r->events;
    if (!enough)
        return;
    double half = (double)r->at_risk - (double)r->censored / 2; /* who leaves is there for half */
    put_survival(e, k, r);
    if (r->exposure)
        r->hazard = (double)r->events / (double)r->exposure;
    if (r->at_risk)
        r->actuarial = (double)r->events / half;
}

/* Rows of a head, or of all of them (h = f->heads.n). */
static void put_rows(const struct frame *f, int item, int h, const struct lives *c,
                     struct estimate *e)
{
    const struct plan *p = f->state;
    int64_t first = ((int64_t)item * (f->heads.n + 1) + h) * p->of.groups.n * p->n_bins;
    struct row *r = (struct row *)f->row + first;
    for (int g = 0; g < p->of.groups.n; g++) {
        const int64_t *died = c->died + g * (p->T + 1), *cut = c->censored + g * (p->T + 1);
        int64_t end = lives_end(&p->lives, g, p->T, p->at_least);
        product_limit(died, cut, p->T + 1, e->S, e->G);
        e->risk[p->T + 1] = 0;
        for (int64_t k = p->T; k >= 0; k--)
            e->risk[k] = e->risk[k + 1] + died[k] + cut[k];
        for (int k = 0; k < p->n_bins; k++, r++) {
            int64_t low = p->edge[k], high = k + 1 < p->n_bins ? p->edge[k + 1] : p->last_high;
            if (k == 0)
                high = 0;
            *r = (struct row){.of = frame_row_head(f, h),
                              .criterion = criterion_table[p->of.criterion[item]].name,
                              .class = p->of.groups.name[g],
                              .low = low,
                              .high = high,
                              .hazard = NAN,
                              .actuarial = NAN,
                              .survival = NAN,
                              .survival_low = NAN,
                              .survival_high = NAN};
            int64_t stop = high < 0 || high > p->T ? p->T + 1 : high + 1;
            if (low < p->T)
                put_bin(died, e, low + 1, stop, low <= end, r);
        }
    }
}

/* ---- the heads */

struct work {                /* of one thread */
    struct lives mine, *all; /* of the head at hand; [criteria] of all that it had */
    struct ages_of ages;
    struct estimate estimate;
};

static void thread(struct frame *f, void *scratch)
{
    struct work *w = scratch;
    const struct lives_plan *p = &((const struct plan *)f->state)->lives;
    w->mine = lives_create(f, p);
    w->all = FRAME_NEW(f, struct lives, (size_t)f->items);
    for (int k = 0; w->all && k < f->items; k++)
        w->all[k] = lives_create(f, p);
    w->ages = ages_room(f);
    w->estimate = (struct estimate){FRAME_NEW(f, double, (size_t)f->T + 2),
                                    FRAME_NEW(f, double, (size_t)f->T + 2),
                                    FRAME_NEW(f, int64_t, (size_t)f->T + 2)};
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    struct work *w = x->scratch;
    int column = p->column[x->item];
    bool plain = !p->of.groups.of && kvf_column(x->t, column)->flags & KVF_COL_AGE;
    struct unit u;
    lives_clear(&w->mine, &p->lives);
    int err = unit_of(x->t, p->of.space, x->head, &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const uint16_t *narrow = NULL;
        if (plain)
            err = member_view(x->t, column, &u, m, f->a, f->b - f->a, &narrow, d);
        if (!err && !narrow)
            err = member_read(x->t, column, &u, m, &w->ages, d);
        if (!err && narrow)
            lives_count_narrow(&p->lives, narrow, &w->mine);
        else if (!err)
            lives_count(&p->lives, w->ages.age, p->T, &w->mine);
    }
    if (err)
        return err;
    lives_add(&p->lives, &w->mine, &w->all[x->item]);
    put_rows(f, x->item, x->h, &w->mine, &w->estimate);
    return KVF_OK;
}

/* The counts of all threads, which are whole numbers: their order does not matter. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    struct work *w = frame_scratch(f, 0);
    (void)d;
    for (int k = 0; k < f->items; k++) {
        for (int i = 1; i < f->n_threads; i++)
            lives_add(&p->lives, &((struct work *)frame_scratch(f, i))->all[k], &w->all[k]);
        put_rows(f, k, f->heads.n, &w->all[k], &w->estimate);
    }
    return KVF_OK;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of),
    {"criterion", "", TABLE_STR, AT(criterion)},
    {"class", "", TABLE_STR, AT(class)},
    {"low", "step", TABLE_INT, AT(low)},
    {"high", "step", TABLE_INT, AT(high)},
    {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"events", "", TABLE_INT, AT(events)},
    {"censored", "", TABLE_INT, AT(censored)},
    {"exposure", "step", TABLE_INT, AT(exposure)},
    {"hazard", "1/step", TABLE_REAL, AT(hazard)},
    {"actuarial", "", TABLE_REAL, AT(actuarial)},
    {"survival", "", TABLE_REAL, AT(survival)},
    {"survival_low", "", TABLE_REAL, AT(survival_low)},
    {"survival_high", "", TABLE_REAL, AT(survival_high)},
};

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct plan *p = f->state;
    selection_note(f, &p->of, "grace", p->lives.grace, out);
    table_meta_num(out, "at_least", (double)p->at_least);
    return KVF_OK;
}

static void close(struct frame *f)
{
    token_groups_free(&((struct plan *)f->state)->of.groups);
}

static void describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head"), class = table_find(t, "class");
    const char *current = "";
    if (table_rows(t) == 0)
        buf_str(out, "no tokens\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_str(t, table_find(t, "criterion"), r);
        int64_t low = table_int(t, table_find(t, "low"), r);
        int64_t risk = table_int(t, table_find(t, "at_risk"), r);
        if (strcmp(table_str(t, head, r), "all") != 0 || strcmp(table_str(t, class, r), "all") != 0)
            continue;
        if (strcmp(current, name) != 0)
            buf_printf(out, "%s: risk per step %s, by age\n", name,
                       strcmp(name, "held") == 0 ? "of being evicted"
                                                 : "that a selection is the last");
        current = name;
        if (low >= 0 && risk)
            buf_printf(out, "  from %-6lld %8.5f  (%lld at risk, survival %.4f)\n", (long long)low,
                       table_real(t, table_find(t, "hazard"), r), (long long)risk,
                       table_real(t, table_find(t, "survival"), r));
    }
}

static const struct analyzer_measure measures[] = {
    {"hazard", "events", "exposure"},
    {"survival", "events", "exposure", .product = true, .bins = true},
    {NULL, NULL, NULL},
};
static const char *const keys[] = {"head",  "layer", "index", "criterion",
                                   "class", "low",   "high",  NULL};
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

static const struct column_use columns[] = {
    COLUMN_SELECTED,
    {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--criterion held"},
    {.name = NULL},
};

const struct analyzer an_hazard = {
    .name = "hazard",
    .summary = "risk that a selection at an age is the token's last",
    .example = "kvfate hazard run.kvf --criterion top64",
    .options = options,
    .columns = columns,
    .max_traces = 1,
    .heads = &heads,
    .of_length = of_length,
    .describe = describe,
    .pool = &pool,
};

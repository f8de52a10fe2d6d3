/* an_hazard.c - the risk that a selection at age a is a token's last: hazard by bins of age,
 * and the Kaplan-Meier estimate of survival, both with tokens whose text ends too early to
 * tell left out from there on.
 *
 * Token i has f = T - 1 - i later queries and a = last_selected (-1: never).  With a grace of
 * W steps it dies at a if a < c, c = f - W; else it is censored at c.  At risk at age x are
 * tokens with a >= x and c > x, r(x); d(x) of them die at x.
 *   S(n) = prod_{x < n} (1 - d(x) / r(x))                Kaplan and Meier 1958
 *   Var S(n) = S(n)^2 sum_{x < n} d / (r (r - d))        Greenwood 1926 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/selected.h"

enum { MAX_BINS = 256 };
struct options {
    struct selection_options selection;
    const char *bins;
    int64_t grace;
};
static const struct opt options[] = {
    {OPT_STR, 0, "criterion", offsetof(struct options, selection.criterion), "LIST",
     "top64 ... top512, mass.90 ... mass.99, a list, or all", "all"},
    {OPT_STR, 0, "bins", offsetof(struct options, bins), "LIST", "ages at which bins begin",
     .absent = "0, 1, 2, 4, 8, ..."},
    {OPT_INT, 0, "grace", offsetof(struct options, grace), "W",
     "steps without a selection that a death takes", "0", .max = INT32_MAX},
    {OPT_WORD, 0, "space", offsetof(struct options, selection.space), "S",
     "heads; kv-union: any of the group", "query", .words = space_words},
    {OPT_GROUP, .offset = offsetof(struct options, selection.groups), .group = token_group_options},
    {.type = OPT_END},
};

struct plan {
    struct selection of;
    int column[N_CRITERION_TABLE];
    int64_t T, a, b, grace;
    int64_t edge[MAX_BINS + 2], last_high; /* bins [edge[k], edge[k + 1]), the last to last_high */
    int n_bins;
};

/* Counts at ages -1, 0, ..., T - 1: index age + 1; [groups][T + 1]. */
struct counts {
    int64_t *died;     /* tokens that die: at risk for the last time */
    int64_t *censored; /* the others, where they are at risk for the last time */
    int64_t most;      /* died is 0 from here on */
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

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    *p = (struct plan){.T = f->T, .a = f->a, .b = f->b, .grace = o->grace};
    int err = selection_choose(f, &o->selection, &p->of, d);
    for (int k = 0; !err && k < p->of.n_criteria; k++)
        err = criterion_column(f->t, "last_selected", p->of.criterion[k], "survival", &p->column[k],
                               d);
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

/* ---- counts */

static size_t cells(const struct plan *p)
{
    return (size_t)p->of.groups.n * ((size_t)p->T + 1);
}

static struct counts new_counts(struct frame *f)
{
    const struct plan *p = f->state;
    return (struct counts){FRAME_NEW(f, int64_t, cells(p)), FRAME_NEW(f, int64_t, cells(p)), 0};
}

static void clear(struct counts *c, const struct plan *p)
{
    for (int g = 0; g < p->of.groups.n; g++)
        memset(c->died + g * (p->T + 1), 0, (size_t)c->most * sizeof *c->died);
    memset(c->censored, 0, cells(p) * sizeof *c->censored);
    c->most = 0;
}

static void count(const struct plan *p, const int32_t *age, struct counts *out)
{
    out->most = p->T + 1;
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t c = p->T - 1 - i - p->grace, a = age[i - p->a];
        if (c < 0)
            continue; /* nothing can be said of it */
        int group = p->of.groups.of ? p->of.groups.of[i] : 0;
        for (int g = 0; g <= group; g += group ? group : 1) { /* all, and its class */
            int64_t at = g * (p->T + 1);
            if (a < c)
                out->died[at + a + 1]++;
            else
                out->censored[at + c]++;
        }
    }
}

/* The same of ages of 16 bits, of which all ones are "never", without groups. */
static void count_narrow(const struct plan *p, const uint16_t *age, struct counts *out)
{
    int64_t end = p->T - p->grace < p->b ? p->T - p->grace : p->b;
    uint16_t top = 0;
    for (int64_t i = p->a; i < end; i++) {
        uint16_t next = (uint16_t)(age[i - p->a] + 1); /* -1 is 0 */
        top = next > top ? next : top;
    }
    int64_t most = top < p->T ? top + 1 : p->T + 1;
    out->most = most > out->most ? most : out->most;
    int64_t *died = out->died, *censored = out->censored;
    int64_t c = p->T - 1 - p->grace - p->a, n = end - p->a;
    for (int64_t k = 0; k < n; k++, c--) {
        int64_t next = (uint16_t)(age[k] + 1);
        if (next <= c)
            died[next]++;
        else
            censored[c]++;
    }
}

static void add(const struct plan *p, const struct counts *x, struct counts *to)
{
    for (int g = 0; g < p->of.groups.n; g++)
        for (int64_t k = g * (p->T + 1), end = k + x->most; k < end; k++)
            to->died[k] += x->died[k];
    for (size_t k = 0; k < cells(p); k++)
        to->censored[k] += x->censored[k];
    to->most = x->most > to->most ? x->most : to->most;
}

/* ---- estimates */

struct estimate {               /* up to an age */
    int64_t risk;               /* at risk at it */
    double survival, greenwood; /* S, and the sum in Var S */
};

/* Nobody is at risk any more. */
static void run_out(struct estimate *e)
{
    if (e->survival != 0)
        e->survival = NAN; /* nobody could tell */
    e->greenwood = NAN;
}

/* An age at which x > 0 of r at risk died. */
static void die(struct estimate *e, int64_t risk, int64_t died)
{
    double r = (double)risk, x = (double)died;
    if (died == risk)
        e->survival = 0;
    else
        e->survival *= (r - x) / r;
    e->greenwood += risk > died ? x / (r * (r - x)) : NAN;
}

struct death {
    int64_t risk, died;
};

struct sums {
    int64_t events, censored, exposure;
};

/* Goes on over the ages [low, stop): their sums, and all ages at which somebody died: died is 0
 * from `most` on.  death: room for all. */
static struct sums walk(const int64_t *died, const int64_t *censored, int64_t most, int64_t low,
                        int64_t stop, struct death *death, struct estimate *e)
{
    struct sums s = {0, 0, 0};
    int64_t risk = e->risk, last = risk, n = 0, quiet = most - 1 < stop ? most - 1 : stop;
    quiet = quiet > low ? quiet : low;
    for (int64_t x = low; x < quiet; x++) {
        int64_t some = died[x + 1];
        death[n] = (struct death){risk, some}; /* no branch: it would be guessed wrong often */
        n += some > 0;
        s.exposure += risk;
        s.events += some;
        s.censored += censored[x + 1];
        last = risk;
        risk -= some + censored[x + 1];
    }
    int64_t before = risk;
    for (int64_t x = quiet; x < stop; x++) {
        last = risk;
        s.exposure += risk;
        risk -= censored[x + 1];
    }
    s.censored += before - risk;
    for (int64_t k = 0; k < n; k++)
        die(e, death[k].risk, death[k].died);
    if (stop > low && last == 0)
        run_out(e);
    e->risk = risk;
    return s;
}

static void put_survival(const struct estimate *e, struct row *r)
{
    double radius = 1.959963984540054 * e->survival * sqrt(e->greenwood);
    r->survival = e->survival;
    if (e->survival > 0 && !isnan(radius)) {
        r->survival_low = fmax(0, e->survival - radius);
        r->survival_high = fmin(1, e->survival + radius);
    }
}

/* Ages of a bin one by one, each of those that are at risk there. */
static void put_bin(const struct plan *p, const int64_t *died, const int64_t *censored,
                    int64_t most, int64_t low, int64_t high, struct death *death,
                    struct estimate *e, struct row *r)
{
    int64_t stop = high < 0 || high > p->T ? p->T : high;
    r->at_risk = e->risk;
    put_survival(e, r);
    struct sums s = walk(died, censored, most, low, stop, death, e);
    r->events = s.events;
    r->censored = s.censored;
    r->exposure = s.exposure;
    double half = (double)r->at_risk - (double)r->censored / 2; /* who leaves is there for half */
    if (r->exposure)
        r->hazard = (double)r->events / (double)r->exposure;
    if (r->at_risk)
        r->actuarial = (double)r->events / half;
}

/* Rows of a head, or of all of them (h = f->heads.n). */
static void put_rows(const struct frame *f, int item, int h, const struct counts *c,
                     struct death *death)
{
    const struct plan *p = f->state;
    int64_t first = ((int64_t)item * (f->heads.n + 1) + h) * p->of.groups.n * p->n_bins;
    struct row *r = (struct row *)f->row + first;
    for (int g = 0; g < p->of.groups.n; g++) {
        const int64_t *died = c->died + g * (p->T + 1);
        const int64_t *censored = c->censored + g * (p->T + 1);
        struct estimate e = {0, 1, 0};
        int64_t age = -1;
        for (int64_t x = 0; x < c->most; x++)
            e.risk += died[x];
        for (int64_t x = 0; x <= p->T; x++)
            e.risk += censored[x];
        for (int k = 0; k < p->n_bins; k++, r++) {
            int64_t low = p->edge[k], high = k + 1 < p->n_bins ? p->edge[k + 1] : p->last_high;
            if (k == 0)
                high = 0;
            int64_t before = low < p->T ? low : p->T; /* between the bins -1 and the first */
            walk(died, censored, c->most, age, before, death, &e);
            age = age > before ? age : before;
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
            if (low < p->T) {
                put_bin(p, died, censored, c->most, low, high, death, &e, r);
                age = high < 0 ? p->T : high;
            }
        }
    }
}

/* ---- the heads */

struct work {                 /* of one thread */
    struct counts mine, *all; /* of the head at hand; [criteria] of all that it had */
    struct ages_of ages;
    struct death *death; /* [T + 1] */
};

static void thread(struct frame *f, void *scratch)
{
    struct work *w = scratch;
    w->mine = new_counts(f);
    w->all = FRAME_NEW(f, struct counts, (size_t)f->items);
    for (int k = 0; w->all && k < f->items; k++)
        w->all[k] = new_counts(f);
    w->ages = ages_room(f);
    w->death = FRAME_NEW(f, struct death, (size_t)f->T + 1);
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    struct work *w = x->scratch;
    int column = p->column[x->item];
    bool plain = !p->of.groups.of && kvf_column(x->t, column)->flags & KVF_COL_AGE;
    struct unit u;
    clear(&w->mine, p);
    int err = unit_of(x->t, p->of.space, x->head, &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const uint16_t *narrow = NULL;
        if (plain)
            err = member_view(x->t, column, &u, m, p->a, p->b - p->a, &narrow, d);
        if (!err && !narrow)
            err = member_read(x->t, column, &u, m, &w->ages, d);
        if (!err && narrow)
            count_narrow(p, narrow, &w->mine);
        else if (!err)
            count(p, w->ages.age, &w->mine);
    }
    if (err)
        return err;
    add(p, &w->mine, &w->all[x->item]);
    put_rows(f, x->item, x->h, &w->mine, w->death);
    return KVF_OK;
}

/* The counts of all threads, which are whole numbers: their order does not matter. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    struct work *w = frame_scratch(f, 0);
    (void)d;
    for (int k = 0; k < f->items; k++) {
        for (int i = 1; i < f->n_threads; i++)
            add(f->state, &((struct work *)frame_scratch(f, i))->all[k], &w->all[k]);
        put_rows(f, k, f->heads.n, &w->all[k], w->death);
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
    selection_note(f, &p->of, "grace", p->grace, out);
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
            buf_printf(out, "%s: risk per step that a selection is the last, by age\n",
                       current = name);
        if (low >= 0 && risk)
            buf_printf(out, "  from %-6lld %8.5f  (%lld at risk, survival %.4f)\n", (long long)low,
                       table_real(t, table_find(t, "hazard"), r), (long long)risk,
                       table_real(t, table_find(t, "survival"), r));
    }
}

static const struct analyzer_measure measures[] = {
    {"hazard", "events", "exposure"},
    {"survival", NULL, NULL},
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

const struct analyzer an_hazard = {
    .name = "hazard",
    .summary = "risk that a selection at an age is the token's last",
    .example = "kvfate hazard run.kvf --criterion top64",
    .options = options,
    .max_traces = 1,
    .heads = &heads,
    .describe = describe,
    .pool = &pool,
};

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

#include "analyzers/analyzer.h"
#include "analyzers/heads_par.h"
#include "analyzers/records.h"
#include "analyzers/selected.h"
#include "base/mem.h"

enum { OPT_CRITERION, OPT_BINS, OPT_GRACE, OPT_SPACE, OPT_BY, OPT_CLASSES, MAX_BINS = 256 };
static const struct analyzer_option options[] = {
    {"criterion", "LIST", "all", "top64 ... top512, mass.90 ... mass.99, a list, or all"},
    {"bins", "LIST", NULL, "ages at which bins begin (default: 0, 1, 2, 4, 8, ...)"},
    {"grace", "W", NULL, "steps without a selection that a death takes (default: 0)"},
    {"space", "S", "query", "heads: query, kv-union (any of the group) or kv-mean"},
    GROUPS_OPTIONS,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_hazard;

struct plan {
    enum selected_space space;
    struct token_groups groups;
    struct head_list heads;
    int criterion[N_CRITERION_TABLE], n_criteria;
    int64_t T, a, b, grace;
    int64_t edge[MAX_BINS + 2], last_high; /* bins [edge[k], edge[k + 1]), the last to last_high */
    int n_bins, threads;
};

/* Counts at ages -1, 0, ..., T - 1: index age + 1; [groups][T + 1]. */
struct counts {
    int64_t *died;     /* tokens that die: at risk for the last time */
    int64_t *censored; /* the others, where they are at risk for the last time */
    int64_t most;      /* died is 0 from here on */
};

struct row {
    const char *head, *criterion, *class;
    int64_t layer, index, low, high, at_risk, events, censored, exposure;
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

static int parse(struct kvf_trace *t, const struct analyzer_args *args, struct plan *p,
                 struct kvf_diag *d)
{
    const struct analyzer *me = &an_hazard;
    p->T = kvf_n_steps(t);
    p->threads = args->threads;
    int err = space_parse(option_text(me, args, OPT_SPACE), false, &p->space, d);
    if (!err)
        err = criteria_choose(option_text(me, args, OPT_CRITERION), p->criterion, &p->n_criteria,
                              d);
    if (!err)
        err = number_parse("grace", option_text(me, args, OPT_GRACE), &p->grace, d);
    if (!err)
        err = choose_bins(option_text(me, args, OPT_BINS), p, d);
    if (!err)
        err = tokens_select(t, args, &p->a, &p->b, d);
    if (!err)
        err = token_groups_make(t, option_text(me, args, OPT_BY),
                                option_text(me, args, OPT_CLASSES), &p->groups, d);
    return err ? err : space_heads(t, p->space, args->heads, &p->heads, d);
}

/* ---- counts */

static size_t cells(const struct plan *p)
{
    return (size_t)p->groups.n * ((size_t)p->T + 1);
}

static int alloc_counts(struct counts *c, const struct plan *p)
{
    *c = (struct counts){MEM_NEW(int64_t, cells(p)), MEM_NEW(int64_t, cells(p)), 0};
    return c->died && c->censored ? KVF_OK : KVF_E_NOMEM;
}

static void free_counts(struct counts *c)
{
    mem_free(c->died);
    mem_free(c->censored);
}

static void clear(struct counts *c, const struct plan *p)
{
    for (int g = 0; g < p->groups.n; g++)
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
        int group = p->groups.of ? p->groups.of[i] : 0;
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
    for (int g = 0; g < p->groups.n; g++)
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

static void put_rows(const struct plan *p, int criterion, const struct head *head,
                     const struct counts *c, struct death *death, struct row *r)
{
    for (int g = 0; g < p->groups.n; g++) {
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
            *r = (struct row){head ? head->name : "all",
                              criterion_table[criterion].name,
                              p->groups.name[g],
                              head ? head->layer : -1,
                              head ? head->index : -1,
                              low,
                              high,
                              0,
                              0,
                              0,
                              0,
                              NAN,
                              NAN,
                              NAN,
                              NAN,
                              NAN};
            if (low < p->T) {
                put_bin(p, died, censored, c->most, low, high, death, &e, r);
                age = high < 0 ? p->T : high;
            }
        }
    }
}

struct work {                 /* of one thread */
    struct counts mine, *all; /* of the head at hand; [criteria] of all that it had */
    struct ages_of ages;
    struct death *death; /* [T + 1] */
};

struct crew {
    const struct plan *p;
    struct row *row;
    struct work *work;
    int n, column[N_CRITERION_TABLE];
};

static struct row *rows_at(const struct crew *c, int criterion, int head)
{
    const struct plan *p = c->p;
    return c->row + ((int64_t)criterion * (p->heads.n + 1) + head) * p->groups.n * p->n_bins;
}

static int do_head(void *ctx, struct kvf_trace *t, int item, int h, int thread, struct kvf_diag *d)
{
    const struct crew *c = ctx;
    const struct plan *p = c->p;
    struct work *w = &c->work[thread];
    const struct head *head = &p->heads.head[h];
    int column = c->column[item];
    bool plain = !p->groups.of && kvf_column(t, column)->flags & KVF_COL_AGE;
    struct unit u;
    clear(&w->mine, p);
    int err = unit_of(t, p->space, head, &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const uint16_t *narrow = NULL;
        if (plain)
            err = member_view(t, column, &u, m, p->a, p->b - p->a, &narrow, d);
        if (!err && !narrow)
            err = member_read(t, column, &u, m, &w->ages, d);
        if (!err && narrow)
            count_narrow(p, narrow, &w->mine);
        else if (!err)
            count(p, w->ages.age, &w->mine);
    }
    if (err)
        return err;
    add(p, &w->mine, &w->all[item]);
    put_rows(p, p->criterion[item], head, &w->mine, w->death, rows_at(c, item, h));
    return KVF_OK;
}

static int alloc_crew(struct crew *c)
{
    const struct plan *p = c->p;
    c->work = MEM_NEW(struct work, (size_t)c->n);
    for (int i = 0; c->work && i < c->n; i++) {
        struct work *w = &c->work[i];
        w->all = MEM_NEW(struct counts, (size_t)p->n_criteria);
        w->death = MEM_NEW(struct death, (size_t)p->T + 1);
        if (!w->all || !w->death || alloc_counts(&w->mine, p)
            || ages_alloc(&w->ages, p->a, p->b, p->T))
            return KVF_E_NOMEM;
        for (int k = 0; k < p->n_criteria; k++)
            if (alloc_counts(&w->all[k], p))
                return KVF_E_NOMEM;
    }
    return c->work ? KVF_OK : KVF_E_NOMEM;
}

static void free_crew(struct crew *c)
{
    for (int i = 0; c->work && i < c->n; i++) {
        struct work *w = &c->work[i];
        for (int k = 0; w->all && k < c->p->n_criteria; k++)
            free_counts(&w->all[k]);
        mem_free(w->all);
        mem_free(w->death);
        free_counts(&w->mine);
        ages_free(&w->ages);
    }
    mem_free(c->work);
}

static void put_all(struct crew *c)
{
    const struct plan *p = c->p;
    for (int k = 0; k < p->n_criteria; k++) {
        for (int i = 1; i < c->n; i++)
            add(p, &c->work[i].all[k], &c->work[0].all[k]);
        put_rows(p, p->criterion[k], NULL, &c->work[0].all[k], c->work[0].death,
                 rows_at(c, k, p->heads.n));
    }
}

static int fill(struct kvf_trace *t, const void *plan, void *rows, struct kvf_diag *d)
{
    const struct plan *p = plan;
    struct heads_par *par = NULL;
    struct crew c = {.p = p, .row = rows};
    int err = KVF_OK;
    for (int k = 0; !err && k < p->n_criteria; k++)
        err = criterion_column(t, "last_selected", p->criterion[k], "survival", &c.column[k], d);
    if (!err)
        err = heads_par_create(t, p->threads, p->T * p->heads.n * p->n_criteria, &par);
    if (!err) {
        c.n = heads_par_threads(par);
        err = alloc_crew(&c);
    }
    if (!err)
        err = heads_par_run(par, &p->heads, p->n_criteria, do_head, &c, d);
    if (!err)
        put_all(&c);
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

static int build(struct kvf_trace *t, const struct plan *p, struct table **ret, struct kvf_diag *d)
{
    int64_t n = p->T ? (int64_t)p->n_criteria * (p->heads.n + 1) * p->groups.n * p->n_bins : 0;
    const struct selected_table table = {
        "hazard",
        n,
        sizeof(struct row),
        members,
        sizeof members / sizeof *members,
        fill,
        p,
        p->space,
        "grace",
        p->grace,
        p->a,
        p->b,
        p->T,
        &p->groups,
    };
    return selected_table(t, &table, ret, d);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct plan p = {.n_bins = 0};
    int column;
    (void)n_traces;
    int err = parse(traces[0], args, &p, d);
    for (int c = 0; !err && c < p.n_criteria; c++) /* before the work, and without tokens too */
        err = criterion_column(traces[0], "last_selected", p.criterion[c], "survival", &column, d);
    if (!err)
        err = build(traces[0], &p, ret_table, d);
    token_groups_free(&p.groups);
    heads_free(&p.heads);
    return err;
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

const struct analyzer an_hazard = {
    .name = "hazard",
    .summary = "risk that a selection at an age is the token's last",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};

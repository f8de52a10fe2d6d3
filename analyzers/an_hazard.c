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

#include "analyzers/analyzers.h"
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
    int n_bins;
};

/* Counts at ages -1, 0, ..., T - 1: index age + 1; [groups][T + 1]. */
struct counts {
    int64_t *end;  /* tokens that are at risk for the last time */
    int64_t *died; /* those of them that die */
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
    *c = (struct counts){MEM_NEW(int64_t, cells(p)), MEM_NEW(int64_t, cells(p))};
    return c->end && c->died ? KVF_OK : KVF_E_NOMEM;
}

static void free_counts(struct counts *c)
{
    mem_free(c->end);
    mem_free(c->died);
}

static void clear(struct counts *c, const struct plan *p)
{
    memset(c->end, 0, cells(p) * sizeof *c->end);
    memset(c->died, 0, cells(p) * sizeof *c->died);
}

static void count(const struct plan *p, const int32_t *age, struct counts *out)
{
    int64_t last_asked = p->T - 1 - p->grace < p->b - 1 ? p->T - 1 - p->grace : p->b - 1;
    if (!p->groups.of) {
        for (int64_t i = p->a; i <= last_asked; i++) {
            int64_t c = p->T - 1 - i - p->grace, a = age[i - p->a];
            int64_t last = a < c ? a : c - 1;
            out->end[last + 1]++;
            out->died[last + 1] += a < c;
        }
        return;
    }
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t c = p->T - 1 - i - p->grace, a = age[i - p->a];
        if (c < 0)
            continue; /* nothing can be said of it */
        int group = p->groups.of ? p->groups.of[i] : 0;
        int64_t last = a < c ? a : c - 1;
        for (int g = 0; g <= group; g += group ? group : 1) { /* all, and its class */
            out->end[g * (p->T + 1) + last + 1]++;
            out->died[g * (p->T + 1) + last + 1] += a < c;
        }
    }
}

static void add(const struct plan *p, const struct counts *x, struct counts *to)
{
    for (size_t k = 0; k < cells(p); k++) {
        to->end[k] += x->end[k];
        to->died[k] += x->died[k];
    }
}

/* ---- estimates */

struct estimate { /* up to an age */
    int64_t risk; /* at risk at it */
    double survival, greenwood; /* S, and the sum in Var S */
};

/* Goes on to the next age, at which `end` were at risk for the last time. */
static void step(struct estimate *e, int64_t died, int64_t end)
{
    if (died == 0 && e->risk > 0) { /* as below: times 1, plus 0 */
        e->risk -= end;
        return;
    }
    double r = (double)e->risk, x = (double)died;
    if (e->risk == 0 && e->survival != 0)
        e->survival = NAN; /* nobody could tell */
    else if (died == e->risk)
        e->survival = 0;
    else
        e->survival *= (r - x) / r;
    e->greenwood += e->risk > died ? x / (r * (r - x)) : NAN;
    e->risk -= end;
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
static void put_bin(const struct plan *p, const int64_t *end, const int64_t *died, int64_t low,
                    int64_t high, struct estimate *e, struct row *r)
{
    int64_t stop = high < 0 || high > p->T ? p->T : high, events = 0, ends = 0, exposure = 0;
    struct estimate now = *e;
    r->at_risk = now.risk;
    put_survival(&now, r);
    for (int64_t x = low; x < stop; x++) {
        events += died[x + 1];
        ends += end[x + 1];
        exposure += now.risk;
        step(&now, died[x + 1], end[x + 1]);
    }
    r->events = events;
    r->censored = ends - events;
    r->exposure = exposure;
    *e = now;
    double half = (double)r->at_risk - (double)r->censored / 2; /* who leaves is there for half */
    if (r->exposure)
        r->hazard = (double)r->events / (double)r->exposure;
    if (r->at_risk)
        r->actuarial = (double)r->events / half;
}

static void put_rows(const struct plan *p, int criterion, const struct head *head,
                     const struct counts *c, struct row *r)
{
    for (int g = 0; g < p->groups.n; g++) {
        const int64_t *end = c->end + g * (p->T + 1), *died = c->died + g * (p->T + 1);
        struct estimate e = {0, 1, 0};
        int64_t age = -1;
        for (int64_t x = 0; x <= p->T; x++)
            e.risk += end[x];
        for (int k = 0; k < p->n_bins; k++, r++) {
            int64_t low = p->edge[k], high = k + 1 < p->n_bins ? p->edge[k + 1] : p->last_high;
            if (k == 0)
                high = 0;
            for (; age < low && age < p->T; age++) /* between the bins -1 and the first */
                step(&e, died[age + 1], end[age + 1]);
            *r = (struct row){head ? head->name : "all", criterion_table[criterion].name,
                              p->groups.name[g], head ? head->layer : -1, head ? head->index : -1,
                              low, high, 0, 0, 0, 0, NAN, NAN, NAN, NAN, NAN};
            if (low < p->T) {
                put_bin(p, end, died, low, high, &e, r);
                age = high < 0 ? p->T : high;
            }
        }
    }
}

static int fill(struct kvf_trace *t, const void *plan, void *rows, struct kvf_diag *d)
{
    const struct plan *p = plan;
    struct row *row = rows;
    struct counts mine = {0}, all = {0};
    struct ages_of x = {0};
    int64_t each = (int64_t)p->groups.n * p->n_bins;
    int column, err = alloc_counts(&mine, p);
    if (!err)
        err = alloc_counts(&all, p);
    if (!err)
        err = ages_alloc(&x, p->a, p->b, p->T);
    for (int c = 0; !err && c < p->n_criteria; c++) {
        err = criterion_column(t, "last_selected", p->criterion[c], "survival", &column, d);
        clear(&all, p);
        for (int h = 0; !err && h < p->heads.n; h++, row += each) {
            const struct head *head = &p->heads.head[h];
            struct unit u;
            clear(&mine, p);
            err = unit_of(t, p->space, head, &u, d);
            for (int m = 0; !err && m < u.members; m++) {
                err = member_read(t, column, &u, m, &x, d);
                if (!err)
                    count(p, x.age, &mine);
            }
            if (err)
                break;
            add(p, &mine, &all);
            put_rows(p, p->criterion[c], head, &mine, row);
        }
        if (!err)
            put_rows(p, p->criterion[c], NULL, &all, row);
        row += each;
    }
    free_counts(&mine);
    free_counts(&all);
    ages_free(&x);
    return err;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"head", "", TABLE_STR, AT(head)}, {"layer", "", TABLE_INT, AT(layer)},
    {"index", "", TABLE_INT, AT(index)}, {"criterion", "", TABLE_STR, AT(criterion)},
    {"class", "", TABLE_STR, AT(class)}, {"low", "step", TABLE_INT, AT(low)},
    {"high", "step", TABLE_INT, AT(high)}, {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"events", "", TABLE_INT, AT(events)}, {"censored", "", TABLE_INT, AT(censored)},
    {"exposure", "step", TABLE_INT, AT(exposure)}, {"hazard", "1/step", TABLE_REAL, AT(hazard)},
    {"actuarial", "", TABLE_REAL, AT(actuarial)}, {"survival", "", TABLE_REAL, AT(survival)},
    {"survival_low", "", TABLE_REAL, AT(survival_low)},
    {"survival_high", "", TABLE_REAL, AT(survival_high)},
};

static int build(struct kvf_trace *t, const struct plan *p, struct table **ret,
                 struct kvf_diag *d)
{
    int64_t n = p->T ? (int64_t)p->n_criteria * (p->heads.n + 1) * p->groups.n * p->n_bins : 0;
    const struct selected_table table = {
        "hazard", n, sizeof(struct row), members, sizeof members / sizeof *members, fill, p,
        p->space, "grace", p->grace, p->a, p->b, p->T, &p->groups,
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
    {"hazard", "events", "exposure"}, {"survival", NULL, NULL}, {NULL, NULL, NULL},
};
static const char *const keys[] = {"head", "layer", "index", "criterion", "class", "low", "high",
                                   NULL};
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

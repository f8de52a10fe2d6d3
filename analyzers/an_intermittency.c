/* an_intermittency.c - how attention to tokens comes and goes (G-KV, section 3, calls it
 * intermittent): how many queries selected a token, how often it returned after a query that
 * did not, its longest gap between two selections, and the age of its first exit.  Shares over
 * thresholds, means and quantiles, from the columns of the probes returns and calibration. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/heads_par.h"
#include "analyzers/records.h"
#include "analyzers/selected.h"
#include "base/mem.h"

enum { OPT_CRITERION, OPT_ABOVE, OPT_FOLLOW_UP, OPT_SPACE, OPT_BY, OPT_CLASSES, MOST_ABOVE = 64 };
static const struct analyzer_option options[] = {
    {"criterion", "LIST", "top64,mass.95", "top64, mass.95 or both"},
    {"above", "LIST", NULL, "thresholds of the shares (default: 0, 1, 4, 16, ... below T)"},
    {"follow-up", "F", NULL, "only tokens with F later queries or more (default: 0)"},
    {"space", "S", "query", "heads: query, or kv-mean (all of the group together)"},
    GROUPS_OPTIONS,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_intermittency;

enum { SELECTED, RETURNS, LONGEST_GAP, FIRST_EXIT, N_QUANTITIES, MOST_CRITERIA = 2 };
static const struct {
    const char *name, *family, *probe;
} quantity[N_QUANTITIES] = {
    {"selected", "n_selected", "returns"},
    {"returns", "n_returns", "returns"},
    {"longest-gap", "longest_gap", "returns"},
    {"first-exit", "first_unselected", "calibration"},
};

struct plan {
    enum selected_space space;
    struct token_groups groups;
    struct head_list heads;
    int criterion[N_CRITERION_TABLE], n_criteria;
    int column[MOST_CRITERIA][N_QUANTITIES];
    int64_t T, a, b, follow_up, above[MOST_ABOVE];
    int n_above, threads;
    int64_t *asked; /* [groups][T + 1] tokens of one member whose queries have the ages below k */
};

/* Of one quantity, [groups][T + 1] each. */
struct counts {
    int64_t *value;  /* tokens with the value; of first exits, those that have one */
    int64_t *never;  /* first exits: tokens selected at all k ages that they have */
    int64_t most;    /* value is 0 from here on */
    int64_t members; /* how often the plan's `asked` counts */
    bool any_never;
};

struct row {
    const char *head, *criterion, *class, *quantity;
    int64_t layer, index, above, tokens, over, defined, total, most;
    double share, mean, q50, q90, q99;
};

/* ---- what is asked for */

static int choose_columns(const struct kvf_trace *t, struct plan *p, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int c = 0; c < p->n_criteria; c++)
        if (strcmp(criterion_table[p->criterion[c]].name, "top64") != 0
            && strcmp(criterion_table[p->criterion[c]].name, "mass.95") != 0)
            return kvf_fail(d, KVF_E_ARG,
                            "--criterion: returns are recorded for top64 and mass.95");
    for (int c = 0; !err && c < p->n_criteria; c++)
        for (int k = 0; !err && k < N_QUANTITIES; k++)
            err = criterion_column(t, quantity[k].family, p->criterion[c],
                                   k == FIRST_EXIT ? "returns,calibration" : "returns",
                                   &p->column[c][k], d);
    return err;
}

static int parse(struct kvf_trace *t, const struct analyzer_args *args, struct plan *p,
                 struct kvf_diag *d)
{
    const struct analyzer *me = &an_intermittency;
    const char *above = option_text(me, args, OPT_ABOVE);
    p->T = kvf_n_steps(t);
    p->threads = args->threads;
    int err = space_parse(option_text(me, args, OPT_SPACE), true, &p->space, d);
    if (!err)
        err = criteria_choose(option_text(me, args, OPT_CRITERION), p->criterion, &p->n_criteria,
                              d);
    if (!err && above)
        err = numbers_parse("above", above, true, MOST_ABOVE, p->above, &p->n_above, d);
    for (int64_t n = 0; !above && (n == 0 || n < p->T); n = n ? 4 * n : 1)
        p->above[p->n_above++] = n;
    if (!err)
        err = number_parse("follow-up", option_text(me, args, OPT_FOLLOW_UP), &p->follow_up, d);
    if (!err)
        err = choose_columns(t, p, d);
    if (!err)
        err = tokens_select(t, args, &p->a, &p->b, d);
    p->b = p->T - p->follow_up < p->b ? p->T - p->follow_up : p->b;
    p->b = p->b < p->a ? p->a : p->b;
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
    *c = (struct counts){.value = MEM_NEW(int64_t, cells(p)), .never = MEM_NEW(int64_t, cells(p))};
    return c->value && c->never ? KVF_OK : KVF_E_NOMEM;
}

static void free_counts(struct counts *c)
{
    mem_free(c->value);
    mem_free(c->never);
}

static void clear(struct counts *c, const struct plan *p)
{
    for (int g = 0; g < p->groups.n; g++)
        memset(c->value + g * (p->T + 1), 0, (size_t)c->most * sizeof *c->value);
    if (c->any_never)
        memset(c->never, 0, cells(p) * sizeof *c->never);
    c->most = c->members = 0;
    c->any_never = false;
}

/* A token that never left (-1) was selected at all its ages 0 .. T - 1 - i, and nobody asked it
 * at more; all others are asked whether they are over any n. */
static int count_asked(struct plan *p)
{
    p->asked = MEM_NEW(int64_t, cells(p));
    for (int64_t i = p->a; p->asked && i < p->b; i++) {
        int group = p->groups.of ? p->groups.of[i] : 0;
        for (int g = 0; g <= group; g += group ? group : 1) /* all, and its class */
            p->asked[g * (p->T + 1) + p->T - i]++;
    }
    return p->asked ? KVF_OK : KVF_E_NOMEM;
}

/* Values are at most T. */
static void count(const struct plan *p, const int32_t *v, struct counts *out)
{
    out->members++;
    out->most = p->T + 1;
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t x = v[i - p->a], life = p->T - i;
        int group = p->groups.of ? p->groups.of[i] : 0;
        x = x > p->T ? p->T : x;                              /* a damaged column's */
        for (int g = 0; g <= group; g += group ? group : 1) { /* all, and its class */
            int64_t at = g * (p->T + 1);
            if (x >= 0)
                out->value[at + x]++;
            else
                out->never[at + life]++;
        }
        out->any_never |= x < 0;
    }
}

/* The same of values of 16 bits without groups; of ages all ones are "never". */
static void count_narrow(const struct plan *p, const uint16_t *v, bool age, struct counts *out)
{
    int64_t n = p->b - p->a, life = p->T - p->a, *value = out->value, *never = out->never;
    uint32_t T = (uint32_t)p->T;
    uint16_t top = 0, one = age; /* so that "never" is no large age */
    for (int64_t k = 0; k < n; k++) {
        uint16_t x = (uint16_t)(v[k] + one);
        top = x > top ? x : top;
    }
    int64_t most = top < T ? (int64_t)top + 1 : (int64_t)T + 1;
    out->most = most > out->most ? most : out->most;
    out->members++;
    for (int64_t k = 0; !age && k < n; k++)
        value[v[k] < T ? v[k] : T]++;
    for (int64_t k = 0; age && k < n; k++) {
        if (v[k] != UINT16_MAX) {
            value[v[k] < T ? v[k] : T]++;
            continue;
        }
        never[life - k]++;
        out->any_never = true;
    }
}

static void add(const struct plan *p, const struct counts *x, struct counts *to)
{
    for (int g = 0; g < p->groups.n; g++)
        for (int64_t k = g * (p->T + 1), end = k + x->most; k < end; k++)
            to->value[k] += x->value[k];
    for (size_t k = 0; x->any_never && k < cells(p); k++)
        to->never[k] += x->never[k];
    to->most = x->most > to->most ? x->most : to->most;
    to->members += x->members;
    to->any_never |= x->any_never;
}

/* ---- rows */

/* The least value that a share q of all n tokens does not exceed; NaN where that is in none. */
static double quantile(const int64_t *value, int64_t most, int64_t n, double q)
{
    int64_t below = 0, want = (int64_t)ceil(q * (double)n);
    for (int64_t x = 0; n && x < most; x++) {
        below += value[x];
        if (below >= want && below)
            return (double)x;
    }
    return NAN;
}

static void put_moments(const int64_t *value, int64_t most, int64_t n, struct row *r)
{
    r->most = -1;
    for (int64_t x = 0; x < most; x++) {
        r->defined += value[x];
        r->total += x * value[x];
        r->most = value[x] ? x : r->most;
    }
    if (r->defined)
        r->mean = (double)r->total / (double)r->defined;
    r->q50 = quantile(value, most, n, .5);
    r->q90 = quantile(value, most, n, .9);
    r->q99 = quantile(value, most, n, .99);
}

/* Adds to ret those of a histogram at index k > n for each n of p->above; returns all.  It is 0
 * from `most` on. */
static int64_t above(const struct plan *p, const int64_t *x, int64_t most, int64_t ret[MOST_ABOVE])
{
    int64_t sum = 0, k = most - 1;
    for (int i = p->n_above - 1; i >= 0; i--) {
        for (; k > p->above[i]; k--)
            sum += x[k];
        ret[i] += sum;
    }
    for (; k >= 0; k--)
        sum += x[k];
    return sum;
}

/* Rows of a head, or of all with head NULL. */
static void put_rows(const struct plan *p, int criterion, int what, const struct head *head,
                     const struct counts *c, struct row *r)
{
    for (int g = 0; g < p->groups.n; g++) {
        int64_t at = g * (p->T + 1), over[MOST_ABOVE] = {0}, asked[MOST_ABOVE] = {0};
        int64_t n = above(p, c->value + at, c->most, over);
        if (c->any_never) /* over every n below their number of ages */
            n += above(p, c->never + at, p->T + 1, over);
        if (what == FIRST_EXIT)
            above(p, p->asked + at, p->T + 1, asked);
        struct row mine = {head ? head->name : "all",
                           criterion_table[criterion].name,
                           p->groups.name[g],
                           quantity[what].name,
                           head ? head->layer : -1,
                           head ? head->index : -1,
                           0,
                           0,
                           0,
                           0,
                           0,
                           0,
                           NAN,
                           NAN,
                           NAN,
                           NAN,
                           NAN};
        put_moments(c->value + at, c->most, n, &mine);
        for (int k = 0; k < p->n_above; k++, r++) {
            *r = mine;
            r->above = p->above[k];
            r->tokens = what == FIRST_EXIT ? c->members * asked[k] : n;
            r->over = over[k];
            if (r->tokens)
                r->share = (double)r->over / (double)r->tokens;
        }
    }
}

struct work {                 /* of one thread */
    struct counts mine, *all; /* of the head at hand; [criteria and quantities] of all it had */
    struct ages_of ages;
};

struct crew {
    const struct plan *p;
    struct row *row;
    struct work *work;
    int n, items;
};

static struct row *rows_at(const struct crew *c, int item, int head)
{
    const struct plan *p = c->p;
    return c->row + ((int64_t)item * (p->heads.n + 1) + head) * p->groups.n * p->n_above;
}

static int do_head(void *ctx, struct kvf_trace *t, int item, int h, int thread, struct kvf_diag *d)
{
    const struct crew *c = ctx;
    const struct plan *p = c->p;
    struct work *w = &c->work[thread];
    int criterion = item / N_QUANTITIES, what = item % N_QUANTITIES;
    int column = p->column[criterion][what];
    bool age = kvf_column(t, column)->flags & KVF_COL_AGE;
    struct unit u;
    clear(&w->mine, p);
    int err = unit_of(t, p->space, &p->heads.head[h], &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const uint16_t *narrow = NULL;
        if (!p->groups.of)
            err = member_view(t, column, &u, m, p->a, p->b - p->a, &narrow, d);
        if (!err && !narrow)
            err = member_read(t, column, &u, m, &w->ages, d);
        if (!err && narrow)
            count_narrow(p, narrow, age, &w->mine);
        else if (!err)
            count(p, w->ages.age, &w->mine);
    }
    if (err)
        return err;
    add(p, &w->mine, &w->all[item]);
    put_rows(p, p->criterion[criterion], what, &p->heads.head[h], &w->mine, rows_at(c, item, h));
    return KVF_OK;
}

static int alloc_crew(struct crew *c)
{
    const struct plan *p = c->p;
    c->work = MEM_NEW(struct work, (size_t)c->n);
    for (int i = 0; c->work && i < c->n; i++) {
        struct work *w = &c->work[i];
        w->all = MEM_NEW(struct counts, (size_t)c->items);
        if (!w->all || alloc_counts(&w->mine, p) || ages_alloc(&w->ages, p->a, p->b, p->T))
            return KVF_E_NOMEM;
        for (int k = 0; k < c->items; k++)
            if (alloc_counts(&w->all[k], p))
                return KVF_E_NOMEM;
    }
    return c->work ? KVF_OK : KVF_E_NOMEM;
}

static void free_crew(struct crew *c)
{
    for (int i = 0; c->work && i < c->n; i++) {
        struct work *w = &c->work[i];
        for (int k = 0; w->all && k < c->items; k++)
            free_counts(&w->all[k]);
        mem_free(w->all);
        free_counts(&w->mine);
        ages_free(&w->ages);
    }
    mem_free(c->work);
}

static void put_all(struct crew *c)
{
    const struct plan *p = c->p;
    for (int k = 0; k < c->items; k++) {
        for (int i = 1; i < c->n; i++)
            add(p, &c->work[i].all[k], &c->work[0].all[k]);
        put_rows(p, p->criterion[k / N_QUANTITIES], k % N_QUANTITIES, NULL, &c->work[0].all[k],
                 rows_at(c, k, p->heads.n));
    }
}

static int fill(struct kvf_trace *t, const void *plan, void *rows, struct kvf_diag *d)
{
    const struct plan *p = plan;
    struct heads_par *par = NULL;
    struct crew c = {.p = p, .row = rows, .items = p->n_criteria * N_QUANTITIES};
    int err = heads_par_create(t, p->threads, p->T * p->heads.n * c.items, &par);
    if (!err) {
        c.n = heads_par_threads(par);
        err = alloc_crew(&c);
    }
    if (!err)
        err = heads_par_run(par, &p->heads, c.items, do_head, &c, d);
    if (!err)
        put_all(&c);
    free_crew(&c);
    heads_par_destroy(par);
    return err;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"head", "", TABLE_STR, AT(head)},       {"layer", "", TABLE_INT, AT(layer)},
    {"index", "", TABLE_INT, AT(index)},     {"criterion", "", TABLE_STR, AT(criterion)},
    {"class", "", TABLE_STR, AT(class)},     {"quantity", "", TABLE_STR, AT(quantity)},
    {"above", "", TABLE_INT, AT(above)},     {"tokens", "", TABLE_INT, AT(tokens)},
    {"over", "", TABLE_INT, AT(over)},       {"share", "", TABLE_REAL, AT(share)},
    {"defined", "", TABLE_INT, AT(defined)}, {"total", "", TABLE_INT, AT(total)},
    {"mean", "", TABLE_REAL, AT(mean)},      {"q50", "", TABLE_REAL, AT(q50)},
    {"q90", "", TABLE_REAL, AT(q90)},        {"q99", "", TABLE_REAL, AT(q99)},
    {"most", "", TABLE_INT, AT(most)},
};

static int build(struct kvf_trace *t, const struct plan *p, struct table **ret, struct kvf_diag *d)
{
    int64_t n = p->T ? (int64_t)p->n_criteria * N_QUANTITIES * (p->heads.n + 1) * p->groups.n
                           * p->n_above
                     : 0;
    const struct selected_table table = {
        "intermittency",
        n,
        sizeof(struct row),
        members,
        sizeof members / sizeof *members,
        fill,
        p,
        p->space,
        "follow_up",
        p->follow_up,
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
    struct plan p = {.n_above = 0};
    (void)n_traces;
    int err = parse(traces[0], args, &p, d);
    if (!err)
        err = count_asked(&p);
    if (!err)
        err = build(traces[0], &p, ret_table, d);
    mem_free(p.asked);
    token_groups_free(&p.groups);
    heads_free(&p.heads);
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    const char *criterion = "", *what = "";
    if (table_rows(t) == 0)
        buf_str(out, "no tokens\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *c = table_str(t, table_find(t, "criterion"), r);
        const char *q = table_str(t, table_find(t, "quantity"), r);
        if (strcmp(table_str(t, table_find(t, "head"), r), "all") != 0
            || strcmp(table_str(t, table_find(t, "class"), r), "all") != 0)
            continue;
        if (strcmp(c, criterion) == 0 && strcmp(q, what) == 0)
            continue; /* the first threshold is enough */
        if (strcmp(c, criterion) != 0)
            buf_printf(out, "%s:\n", c);
        criterion = c;
        what = q;
        buf_printf(out, "  %-12s mean %.2f, median %.0f, 90 %% %.0f, most %lld; over %lld: %.4f\n",
                   q, table_real(t, table_find(t, "mean"), r),
                   table_real(t, table_find(t, "q50"), r), table_real(t, table_find(t, "q90"), r),
                   (long long)table_int(t, table_find(t, "most"), r),
                   (long long)table_int(t, table_find(t, "above"), r),
                   table_real(t, table_find(t, "share"), r));
    }
}

static const struct analyzer_measure measures[] = {
    {"share", "over", "tokens"}, {"mean", "total", "defined"}, {"q50", NULL, NULL},
    {"q90", NULL, NULL},         {"q99", NULL, NULL},          {NULL, NULL, NULL},
};
static const char *const keys[] = {"head",  "layer",    "index", "criterion",
                                   "class", "quantity", "above", NULL};
static const struct analyzer_pool pool = {keys, measures};

const struct analyzer an_intermittency = {
    .name = "intermittency",
    .summary = "how attention to tokens comes and goes: returns, gaps, first exits",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};

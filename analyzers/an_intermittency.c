/* an_intermittency.c - how attention to tokens comes and goes (G-KV, section 3, calls it
 * intermittent): how many queries selected a token, how often it returned after a query that
 * did not, its longest gap between two selections, and the age of its first exit.  Shares over
 * thresholds, means and quantiles, from the columns of the probes returns and calibration. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/analyzers.h"
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
    int n_above;
};

/* Of one quantity, [groups][T + 1] each. */
struct counts {
    int64_t *value;  /* tokens with the value; of first exits, those that have one */
    int64_t *beyond; /* tokens that are over all n < k: value k, or no exit up to age k - 1 */
    int64_t *asked;  /* of first exits: tokens that have a query of age n for all n < k */
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
    *c = (struct counts){MEM_NEW(int64_t, cells(p)), MEM_NEW(int64_t, cells(p)),
                         MEM_NEW(int64_t, cells(p))};
    return c->value && c->beyond && c->asked ? KVF_OK : KVF_E_NOMEM;
}

static void free_counts(struct counts *c)
{
    mem_free(c->value);
    mem_free(c->beyond);
    mem_free(c->asked);
}

static void clear(struct counts *c, const struct plan *p, bool exits)
{
    memset(c->value, 0, cells(p) * sizeof *c->value);
    memset(c->beyond, 0, cells(p) * sizeof *c->beyond);
    if (exits)
        memset(c->asked, 0, cells(p) * sizeof *c->asked);
}

/* Values are at most T.  A token that never left (-1) was selected at all its ages 0 .. T - 1 -
 * i, and nobody asked it at more; all others are asked whether they are over any n. */
static void count(const struct plan *p, const int32_t *v, bool exits, struct counts *out)
{
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t x = v[i - p->a], life = p->T - i;
        int group = p->groups.of ? p->groups.of[i] : 0;
        x = x > p->T ? p->T : x; /* a damaged column's */
        for (int g = 0; g <= group; g += group ? group : 1) { /* all, and its class */
            int64_t at = g * (p->T + 1);
            if (x >= 0)
                out->value[at + x]++;
            out->beyond[at + (x >= 0 ? x : life)]++;
            out->asked[at + life] += exits;
        }
    }
}

static void add(const struct plan *p, const struct counts *x, bool exits, struct counts *to)
{
    for (size_t k = 0; k < cells(p); k++) {
        to->value[k] += x->value[k];
        to->beyond[k] += x->beyond[k];
    }
    for (size_t k = 0; exits && k < cells(p); k++)
        to->asked[k] += x->asked[k];
}

/* ---- rows */

/* The least value that a share q of all n tokens does not exceed; NaN where that is in none. */
static double quantile(const int64_t *value, int64_t T, int64_t n, double q)
{
    int64_t below = 0, want = (int64_t)ceil(q * (double)n);
    for (int64_t x = 0; n && x <= T; x++) {
        below += value[x];
        if (below >= want && below)
            return (double)x;
    }
    return NAN;
}

static void put_moments(const struct plan *p, const int64_t *value, int64_t n, struct row *r)
{
    r->most = -1;
    for (int64_t x = 0; x <= p->T; x++) {
        r->defined += value[x];
        r->total += x * value[x];
        r->most = value[x] ? x : r->most;
    }
    if (r->defined)
        r->mean = (double)r->total / (double)r->defined;
    r->q50 = quantile(value, p->T, n, .5);
    r->q90 = quantile(value, p->T, n, .9);
    r->q99 = quantile(value, p->T, n, .99);
}

/* Of a histogram those at index k > n for each n of p->above; returns all. */
static int64_t above(const struct plan *p, const int64_t *x, int64_t ret[MOST_ABOVE])
{
    int64_t sum = 0, k = p->T;
    for (int i = p->n_above - 1; i >= 0; i--) {
        for (; k > p->above[i]; k--)
            sum += x[k];
        ret[i] = sum;
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
        int64_t at = g * (p->T + 1), over[MOST_ABOVE], asked[MOST_ABOVE];
        int64_t n = above(p, c->beyond + at, over);
        if (what == FIRST_EXIT)
            above(p, c->asked + at, asked);
        struct row mine = {head ? head->name : "all", criterion_table[criterion].name,
                           p->groups.name[g], quantity[what].name, head ? head->layer : -1,
                           head ? head->index : -1, 0, 0, 0, 0, 0, 0, NAN, NAN, NAN, NAN, NAN};
        put_moments(p, c->value + at, n, &mine);
        for (int k = 0; k < p->n_above; k++, r++) {
            *r = mine;
            r->above = p->above[k];
            r->tokens = what == FIRST_EXIT ? asked[k] : n;
            r->over = over[k];
            if (r->tokens)
                r->share = (double)r->over / (double)r->tokens;
        }
    }
}

struct work {
    struct counts mine, all;
    struct ages_of x;
};

static int fill_quantity(struct kvf_trace *t, const struct plan *p, int c, int what,
                         struct work *w, struct row *row, struct kvf_diag *d)
{
    int64_t each = (int64_t)p->groups.n * p->n_above;
    int err = KVF_OK;
    clear(&w->all, p, what == FIRST_EXIT);
    for (int h = 0; !err && h < p->heads.n; h++, row += each) {
        struct unit u;
        clear(&w->mine, p, what == FIRST_EXIT);
        err = unit_of(t, p->space, &p->heads.head[h], &u, d);
        for (int m = 0; !err && m < u.members; m++) {
            err = member_read(t, p->column[c][what], &u, m, &w->x, d);
            if (!err)
                count(p, w->x.age, what == FIRST_EXIT, &w->mine);
        }
        if (err)
            return err;
        add(p, &w->mine, what == FIRST_EXIT, &w->all);
        put_rows(p, p->criterion[c], what, &p->heads.head[h], &w->mine, row);
    }
    put_rows(p, p->criterion[c], what, NULL, &w->all, row);
    return KVF_OK;
}

static int fill(struct kvf_trace *t, const void *plan, void *rows, struct kvf_diag *d)
{
    const struct plan *p = plan;
    struct row *row = rows;
    struct work w = {.x = {0}};
    int64_t each = (int64_t)(p->heads.n + 1) * p->groups.n * p->n_above;
    int err = alloc_counts(&w.mine, p);
    if (!err)
        err = alloc_counts(&w.all, p);
    if (!err)
        err = ages_alloc(&w.x, p->a, p->b, p->T);
    for (int k = 0; !err && k < p->n_criteria * N_QUANTITIES; k++)
        err = fill_quantity(t, p, k / N_QUANTITIES, k % N_QUANTITIES, &w, row + k * each, d);
    free_counts(&w.mine);
    free_counts(&w.all);
    ages_free(&w.x);
    return err;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"head", "", TABLE_STR, AT(head)}, {"layer", "", TABLE_INT, AT(layer)},
    {"index", "", TABLE_INT, AT(index)}, {"criterion", "", TABLE_STR, AT(criterion)},
    {"class", "", TABLE_STR, AT(class)}, {"quantity", "", TABLE_STR, AT(quantity)},
    {"above", "", TABLE_INT, AT(above)}, {"tokens", "", TABLE_INT, AT(tokens)},
    {"over", "", TABLE_INT, AT(over)}, {"share", "", TABLE_REAL, AT(share)},
    {"defined", "", TABLE_INT, AT(defined)}, {"total", "", TABLE_INT, AT(total)},
    {"mean", "", TABLE_REAL, AT(mean)}, {"q50", "", TABLE_REAL, AT(q50)},
    {"q90", "", TABLE_REAL, AT(q90)}, {"q99", "", TABLE_REAL, AT(q99)},
    {"most", "", TABLE_INT, AT(most)},
};

static int build(struct kvf_trace *t, const struct plan *p, struct table **ret,
                 struct kvf_diag *d)
{
    int64_t n = p->T ? (int64_t)p->n_criteria * N_QUANTITIES * (p->heads.n + 1) * p->groups.n
                           * p->n_above : 0;
    const struct selected_table table = {
        "intermittency", n, sizeof(struct row), members, sizeof members / sizeof *members, fill, p,
        p->space, "follow_up", p->follow_up, p->a, p->b, p->T, &p->groups,
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
        err = build(traces[0], &p, ret_table, d);
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
    {"q90", NULL, NULL}, {"q99", NULL, NULL}, {NULL, NULL, NULL},
};
static const char *const keys[] = {"head", "layer", "index", "criterion", "class", "quantity",
                                   "above", NULL};
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

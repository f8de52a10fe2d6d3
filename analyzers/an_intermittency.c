/* an_intermittency.c - how attention to tokens comes and goes (G-KV, section 3, calls it
 * intermittent): how many queries selected a token, how often it returned after a query that
 * did not, its longest gap between two selections, and the age of its first exit.  Shares over
 * thresholds, means and quantiles, from the columns of the probes returns and calibration. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/selected.h"

enum { MOST_ABOVE = 64 };
static const char *const spaces[] = {"query", "kv-mean", NULL};
struct options {
    struct selection_options selection; /* its space is filled in by choose */
    int space;
    const char *above;
    int64_t follow_up, at_least;
};
static const struct opt options[] = {
    {OPT_STR, 0, "criterion", offsetof(struct options, selection.criterion), "LIST",
     "top64, mass.95 or both", "top64,mass.95"},
    {OPT_STR, 0, "above", offsetof(struct options, above), "LIST", "thresholds of the shares",
     .absent = "0, 1, 4, 16, ... below T"},
    {OPT_INT, 0, "follow-up", offsetof(struct options, follow_up), "F",
     "only tokens with F later queries or more", "0", .max = INT32_MAX},
    {OPT_INT, 0, "at-least", offsetof(struct options, at_least), "N",
     "give no share of fewer tokens", "20", .min = 1, .max = INT32_MAX},
    {OPT_WORD, 0, "space", offsetof(struct options, space), "S",
     "heads; kv-mean: all of the group together", "query", .words = spaces},
    {OPT_GROUP, .offset = offsetof(struct options, selection.groups), .group = token_group_options},
    {.type = OPT_END},
};

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
    struct selection of;
    int column[MOST_CRITERIA][N_QUANTITIES];
    int64_t T, a, b, follow_up, at_least, above[MOST_ABOVE];
    int n_above;
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
    struct row_head of;
    const char *criterion, *class, *quantity;
    int64_t above, tokens, over, defined, total, most;
    double share, mean, q50, q90, q99;
};

/* ---- what is asked for */

static int choose_columns(const struct kvf_trace *t, struct plan *p, struct kvf_diag *d)
{
    struct lacks l = {.n = 0};
    int err = KVF_OK;
    for (int c = 0; c < p->of.n_criteria; c++)
        if (strcmp(criterion_table[p->of.criterion[c]].name, "top64") != 0
            && strcmp(criterion_table[p->of.criterion[c]].name, "mass.95") != 0)
            return kvf_fail(d, KVF_E_ARG,
                            "--criterion: returns are recorded for top64 and mass.95");
    for (int c = 0; !err && c < p->of.n_criteria; c++)
        for (int k = 0; !err && k < N_QUANTITIES; k++)
            err = criterion_column(t, quantity[k].family, p->of.criterion[c], &l, &p->column[c][k],
                                   d);
    return columns_refuse(&l, NULL, err, d);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    struct selection_options asked = o->selection;
    asked.space = o->space ? SPACE_KV_MEAN : SPACE_QUERY;
    *p = (struct plan){
        .T = f->T, .a = f->a, .b = f->b, .follow_up = o->follow_up, .at_least = o->at_least};
    int err = selection_choose(f, &asked, &p->of, d);
    if (!err && o->above)
        err = numbers_parse("above", o->above, true, MOST_ABOVE, p->above, &p->n_above, d);
    for (int64_t n = 0; !o->above && (n == 0 || n < p->T); n = n ? 4 * n : 1)
        p->above[p->n_above++] = n;
    p->b = p->T - p->follow_up < p->b ? p->T - p->follow_up : p->b;
    p->b = p->b < p->a ? p->a : p->b;
    f->b = p->b;
    return err ? err : choose_columns(f->t, p, d);
}

/* ---- counts */

static size_t cells(const struct plan *p)
{
    return (size_t)p->of.groups.n * ((size_t)p->T + 1);
}

static struct counts new_counts(struct frame *f)
{
    const struct plan *p = f->state;
    return (struct counts){.value = FRAME_NEW(f, int64_t, cells(p)),
                           .never = FRAME_NEW(f, int64_t, cells(p))};
}

static void clear(struct counts *c, const struct plan *p)
{
    for (int g = 0; g < p->of.groups.n; g++)
        memset(c->value + g * (p->T + 1), 0, (size_t)c->most * sizeof *c->value);
    if (c->any_never)
        memset(c->never, 0, cells(p) * sizeof *c->never);
    c->most = c->members = 0;
    c->any_never = false;
}

/* A token that never left (-1) was selected at all its ages 0 .. T - 1 - i, and nobody asked it
 * at more; all others are asked whether they are over any n. */
static void count_asked(struct plan *p)
{
    for (int64_t i = p->a; i < p->b; i++) {
        int group = p->of.groups.of ? p->of.groups.of[i] : 0;
        for (int g = 0; g <= group; g += group ? group : 1) /* all, and its class */
            p->asked[g * (p->T + 1) + p->T - i]++;
    }
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    (void)d;
    f->items = p->T ? p->of.n_criteria * N_QUANTITIES : 0;
    f->n_rows = (int64_t)f->items * (f->heads.n + 1) * p->of.groups.n * p->n_above;
    p->asked = FRAME_NEW(f, int64_t, cells(p));
    if (!p->asked)
        return KVF_E_NOMEM;
    count_asked(p);
    return KVF_OK;
}

/* Values are at most T. */
static void count(const struct plan *p, const int32_t *v, struct counts *out)
{
    out->members++;
    out->most = p->T + 1;
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t x = v[i - p->a], life = p->T - i;
        int group = p->of.groups.of ? p->of.groups.of[i] : 0;
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
    for (int g = 0; g < p->of.groups.n; g++)
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

/* Rows of a head, or of all of them (h = f->heads.n). */
static void put_rows(const struct frame *f, int item, int h, const struct counts *c)
{
    const struct plan *p = f->state;
    int what = item % N_QUANTITIES;
    int64_t first = ((int64_t)item * (f->heads.n + 1) + h) * p->of.groups.n * p->n_above;
    struct row *r = (struct row *)f->row + first;
    for (int g = 0; g < p->of.groups.n; g++) {
        int64_t at = g * (p->T + 1), over[MOST_ABOVE] = {0}, asked[MOST_ABOVE] = {0};
        int64_t n = above(p, c->value + at, c->most, over);
        if (c->any_never) /* over every n below their number of ages */
            n += above(p, c->never + at, p->T + 1, over);
        if (what == FIRST_EXIT)
            above(p, p->asked + at, p->T + 1, asked);
        struct row mine = {.of = frame_row_head(f, h),
                           .criterion = criterion_table[p->of.criterion[item / N_QUANTITIES]].name,
                           .class = p->of.groups.name[g],
                           .quantity = quantity[what].name,
                           .share = NAN,
                           .mean = NAN};
        put_moments(c->value + at, c->most, n, &mine);
        for (int k = 0; k < p->n_above; k++, r++) {
            *r = mine;
            r->above = p->above[k];
            r->tokens = what == FIRST_EXIT ? c->members * asked[k] : n;
            r->over = over[k];
            /* each token once, however many query heads it is counted in */
            if (r->tokens && r->tokens >= p->at_least * c->members)
                r->share = (double)r->over / (double)r->tokens;
        }
    }
}

struct work {                 /* of one thread */
    struct counts mine, *all; /* of the head at hand; [criteria and quantities] of all it had */
    struct ages_of ages;
};

static void thread(struct frame *f, void *scratch)
{
    struct work *w = scratch;
    w->mine = new_counts(f);
    w->all = FRAME_NEW(f, struct counts, (size_t)f->items);
    for (int k = 0; w->all && k < f->items; k++)
        w->all[k] = new_counts(f);
    w->ages = ages_room(f);
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    struct work *w = x->scratch;
    int column = p->column[x->item / N_QUANTITIES][x->item % N_QUANTITIES];
    bool age = kvf_column(x->t, column)->flags & KVF_COL_AGE;
    struct unit u;
    clear(&w->mine, p);
    int err = unit_of(x->t, p->of.space, x->head, &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const uint16_t *narrow = NULL;
        if (!p->of.groups.of)
            err = member_view(x->t, column, &u, m, p->a, p->b - p->a, &narrow, d);
        if (!err && !narrow)
            err = member_read(x->t, column, &u, m, &w->ages, d);
        if (!err && narrow)
            count_narrow(p, narrow, age, &w->mine);
        else if (!err)
            count(p, w->ages.age, &w->mine);
    }
    if (err)
        return err;
    add(p, &w->mine, &w->all[x->item]);
    put_rows(f, x->item, x->h, &w->mine);
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
        put_rows(f, k, f->heads.n, &w->all[k]);
    }
    return KVF_OK;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of),
    {"criterion", "", TABLE_STR, AT(criterion)},
    {"class", "", TABLE_STR, AT(class)},
    {"quantity", "", TABLE_STR, AT(quantity)},
    {"above", "", TABLE_INT, AT(above)},
    {"tokens", "", TABLE_INT, AT(tokens)},
    {"over", "", TABLE_INT, AT(over)},
    {"share", "", TABLE_REAL, AT(share)},
    {"defined", "", TABLE_INT, AT(defined)},
    {"total", "", TABLE_INT, AT(total)},
    {"mean", "", TABLE_REAL, AT(mean)},
    {"q50", "", TABLE_REAL, AT(q50)},
    {"q90", "", TABLE_REAL, AT(q90)},
    {"q99", "", TABLE_REAL, AT(q99)},
    {"most", "", TABLE_INT, AT(most)},
};

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct plan *p = f->state;
    selection_note(f, &p->of, "follow_up", p->follow_up, out);
    table_meta_num(out, "at_least", (double)p->at_least);
    return KVF_OK;
}

static void close(struct frame *f)
{
    token_groups_free(&((struct plan *)f->state)->of.groups);
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
    {"n_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
    {"n_returns.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
    {"longest_gap.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
    {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
    {"first_unselected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
    {.name = NULL},
};

const struct analyzer an_intermittency = {
    .name = "intermittency",
    .summary = "how attention to tokens comes and goes: returns, gaps, first exits",
    .example = "kvfate intermittency run.kvf -o intermittency.png",
    .options = options,
    .columns = columns,
    .max_traces = 1,
    .heads = &heads,
    .describe = describe,
    .pool = &pool,
};

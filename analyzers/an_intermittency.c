/* an_intermittency.c - how intermittent attention to tokens is (G-KV, section 3): how many queries
 * selected a token, how often it returned after a query that did not, its longest gap between two
 * selections, and the age of its first exit.  Shares over thresholds, means and quantiles, from the
 * columns of the probes returns and calibration. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/life.h"

enum { MOST_ABOVE = 64 };
struct options {
    struct life_options life;
    const char *above;
};

enum { SELECTED, RETURNS, LONGEST_GAP, FIRST_EXIT, N_QUANTITIES };
static const char *const quantity_names[] = {"selected", "returns", "longest-gap", "first-exit"};
static const char *const families[] = {"n_selected", "n_returns", "longest_gap",
                                       "first_unselected"}; /* of columns */

struct plan {
    struct life life;
    int64_t T, a, b, above[MOST_ABOVE];
    int n_above;
    int64_t *asked; /* [groups][T + 1] tokens of one member with queries at all ages below k */
};

/* Of one quantity, [groups][T + 1] each. */
struct counts {
    int64_t *value;  /* tokens with the value; first-exit: tokens that have one */
    int64_t *never;  /* first exits: tokens selected at all k ages that they have */
    int64_t most;    /* value is 0 from here on */
    int64_t members; /* how often the plan's `asked` counts */
    bool any_never;
};

struct row {
    struct life_row of;
    const char *quantity;
    int64_t above, tokens, over, defined, total, most;
    double share, mean, q50, q90, q99;
};

/* ---- options */

static int choose_columns(const struct frame *f, struct plan *p, struct kvf_diag *d)
{
    for (int c = 0; c < p->life.of.n_criteria; c++)
        if (strcmp(criterion_table[p->life.of.criterion[c]].name, "top64") != 0
            && strcmp(criterion_table[p->life.of.criterion[c]].name, "mass.95") != 0)
            return kvf_fail(d, KVF_E_ARG,
                            "--criterion: returns are recorded for top64 and mass.95");
    return life_columns(f, &p->life, families, N_QUANTITIES, NULL, d);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    int err = life_choose(f, &o->life, &p->life, d);
    p->T = f->T;
    p->a = f->a;
    p->b = f->b;
    if (!err && o->above)
        err = numbers_parse("above", o->above, true, MOST_ABOVE, p->above, &p->n_above, d);
    for (int64_t n = 0; !o->above && (n == 0 || n < p->T); n = n ? 4 * n : 1)
        p->above[p->n_above++] = n;
    return err ? err : choose_columns(f, p, d);
}

/* ---- counts */

static size_t cells(const struct plan *p)
{
    return (size_t)p->life.of.groups.n * ((size_t)p->T + 1);
}

static void create(struct frame *f, int item, void *counts)
{
    const struct plan *p = f->state;
    (void)item;
    *(struct counts *)counts = (struct counts){.value = FRAME_NEW(f, int64_t, cells(p)),
                                               .never = FRAME_NEW(f, int64_t, cells(p))};
}

static void clear(const struct frame *f, int item, void *counts)
{
    const struct plan *p = f->state;
    struct counts *c = counts;
    (void)item;
    for (int g = 0; g < p->life.of.groups.n; g++)
        memset(c->value + g * (p->T + 1), 0, (size_t)c->most * sizeof *c->value);
    if (c->any_never)
        memset(c->never, 0, cells(p) * sizeof *c->never);
    c->most = c->members = 0;
    c->any_never = false;
}

/* A token that never left (-1) was selected at all its ages 0 ..  T - 1 - i, and no query exists at
 * larger ages; all others are asked whether they are over any n. */
static void count_asked(struct plan *p)
{
    for (int64_t i = p->a; i < p->b; i++) {
        int group = p->life.of.groups.of ? p->life.of.groups.of[i] : 0;
        for (int g = 0; g <= group; g += group ? group : 1) /* all, and its class */
            p->asked[g * (p->T + 1) + p->T - i]++;
    }
}

/* Values are at most T. */
static void count(const struct frame *f, int item, int32_t *v, void *counts)
{
    const struct plan *p = f->state;
    struct counts *out = counts;
    (void)item;
    out->members++;
    out->most = p->T + 1;
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t x = v[i - p->a], life = p->T - i;
        int group = p->life.of.groups.of ? p->life.of.groups.of[i] : 0;
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
static void count_narrow(const struct frame *f, int item, const uint16_t *v, bool age, void *counts)
{
    const struct plan *p = f->state;
    struct counts *out = counts;
    (void)item;
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

static bool takes_narrow(const struct frame *f, const struct kvf_column *column)
{
    (void)f;
    (void)column;
    return true;
}

static void add(const struct frame *f, int item, const void *counts, void *sum)
{
    const struct plan *p = f->state;
    const struct counts *x = counts;
    struct counts *to = sum;
    (void)item;
    for (int g = 0; g < p->life.of.groups.n; g++)
        for (int64_t k = g * (p->T + 1), end = k + x->most; k < end; k++)
            to->value[k] += x->value[k];
    for (size_t k = 0; x->any_never && k < cells(p); k++)
        to->never[k] += x->never[k];
    to->most = x->most > to->most ? x->most : to->most;
    to->members += x->members;
    to->any_never |= x->any_never;
}

static const struct life_counts kind = {.size = sizeof(struct counts),
                                        .create = create,
                                        .clear = clear,
                                        .add = add,
                                        .count = count,
                                        .count_narrow = count_narrow,
                                        .takes_narrow = takes_narrow};

/* ---- rows */

/* The least value that a share q of all n tokens does not exceed; NaN if no value reaches it. */
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

/* Adds to ret the counts of a histogram at index k > n for each n of p->above; returns all.  It is
 * 0 from `most` on. */
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
static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room)
{
    const struct plan *p = f->state;
    const struct counts *c = counts;
    int what = item % N_QUANTITIES;
    struct row *r = life_rows_at(f, item, h);
    (void)room;
    for (int g = 0; g < p->life.of.groups.n; g++) {
        int64_t at = g * (p->T + 1), over[MOST_ABOVE] = {0}, asked[MOST_ABOVE] = {0};
        int64_t n = above(p, c->value + at, c->most, over);
        if (c->any_never) /* over every n below their number of ages */
            n += above(p, c->never + at, p->T + 1, over);
        if (what == FIRST_EXIT)
            above(p, p->asked + at, p->T + 1, asked);
        struct row mine = {.of = life_row_of(f, item, h, g),
                           .quantity = quantity_names[what],
                           .share = NAN,
                           .mean = NAN};
        put_moments(c->value + at, c->most, n, &mine);
        for (int k = 0; k < p->n_above; k++, r++) {
            *r = mine;
            r->above = p->above[k];
            r->tokens = what == FIRST_EXIT ? c->members * asked[k] : n;
            r->over = over[k];
            /* each token once, however many query heads it is counted in */
            if (r->tokens && r->tokens >= p->life.at_least * c->members)
                r->share = (double)r->over / (double)r->tokens;
        }
    }
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    (void)d;
    p->life.counts = &kind;
    p->life.rows_of = rows_of;
    p->asked = FRAME_NEW(f, int64_t, cells(p));
    if (!p->asked)
        return KVF_E_NOMEM;
    count_asked(p);
    return life_prepare(f, p->T ? p->life.of.n_criteria * N_QUANTITIES : 0, p->n_above);
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    LIFE_ROW_MEMBERS,
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

static int put_metadata(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    (void)d;
    selection_note(f, &p->life.of, "follow_up", p->life.follow_up, out);
    table_meta_num(out, "at_least", (double)p->life.at_least);
    return KVF_OK;
}

static void describe(const struct table *t, struct buf *out)
{
    const char *criterion = "", *what = "";
    if (table_rows(t) == 0)
        buf_str(out, "no tokens\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *c = table_row_str(t, r, "criterion");
        const char *q = table_row_str(t, r, "quantity");
        if (!life_row_is_all(t, r))
            continue;
        if (strcmp(c, criterion) == 0 && strcmp(q, what) == 0)
            continue; /* the first threshold is enough */
        if (strcmp(c, criterion) != 0)
            buf_printf(out, "%s:\n", c);
        criterion = c;
        what = q;
        buf_printf(out, "  %-12s mean %.2f, median %.0f, 90 %% %.0f, most %lld; over %lld: %.4f\n",
                   q, table_row_real(t, r, "mean"), table_row_real(t, r, "q50"),
                   table_row_real(t, r, "q90"), (long long)table_row_int(t, r, "most"),
                   (long long)table_row_int(t, r, "above"), table_row_real(t, r, "share"));
    }
}

static void thread(struct frame *f, void *scratch)
{
    life_thread(f, scratch);
}

const struct analyzer an_intermittency = {
    .name = "intermittency",
    .summary = "how attention to tokens stops and returns: gaps, returns, first exits",
    .example = "kvfate survival --as intermittency run.kvf -o intermittency.png",
    OPTIONS(LIFE_OPTION_CRITERION("top64, mass.95 or both", "top64,mass.95"),
            {OPT_STR, 0, "above", offsetof(struct options, above), "LIST",
             "thresholds of the shares", .absent = "0, 1, 4, 16, ... below T"},
            LIFE_OPTION_FOLLOW_UP, LIFE_OPTION_AT_LEAST("give no share of fewer tokens"),
            LIFE_OPTION_MEAN_SPACE, LIFE_OPTION_GROUPS),
    COLUMNS(
        {"n_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
        {"n_returns.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
        {"longest_gap.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"},
        {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,
         "always, of --criterion"},
        {"first_unselected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,
         "always, of --criterion"}),
    HEADS(LIFE_ANALYSIS(struct plan, put_metadata)),
    .describe = describe,
    POOL(KEYS(LIFE_KEYS, "quantity", "above"), {"share", "over", "tokens"},
         {"mean", "total", "defined"}, {"q50"}, {"q90"}, {"q99"}),
};

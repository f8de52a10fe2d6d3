/* an_variance.c - the factors of a retention pattern: the share of the variance of y over
 * (layer, head, token) that the means of one factor explain, for all heads together and
 * within each head; y is log(-log_beta), log_beta, or the rank of the gate values. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/classes.h"
#include "analyzers/factors.h"
#include "analyzers/frame.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/ranks.h"
#include "base/stats.h"

enum { SCALE_AUTO, SCALE_RATE, SCALE_LOG_BETA, SCALE_RANK };
static const char *const scale_words[] = {"auto", "rate", "log-beta", "rank", NULL};
enum { MOST_BINS = 1 << 20 };
struct options {
    int scale;
    int64_t bins[2]; /* of positions and of key norms */
    const char *classes;
};

/* The factors in the order of rows; those from TOKEN on also within a head. */
enum { LAYER, HEAD, TOKEN, CLASS, ROLE, POSITION, KEY_NORM, N_FACTORS, N_JOINT = 2 };
static const char *const factor_names[N_FACTORS] = {"layer", "head",     "token",   "class",
                                                    "role",  "position", "key_norm"};

enum { VALUE, IDS, ROLES, NORMS }; /* columns; NORMS: -1 where not recorded */

struct row {
    struct row_head of;
    const char *factor;
    int64_t levels, n;
    double eta2, epsilon2, within;
};

struct data {
    const struct frame *f;
    const struct options *o;
    struct classes *classes;
    int64_t a, n; /* tokens [a, a + n) */
    int n_heads, scale;
    int64_t clamped, left_out; /* values */
    bool diverged;
    double *y;                 /* [heads][n] */
    double *row;               /* [n] */
    int32_t *level[N_FACTORS]; /* LAYER, HEAD: [heads]; KEY_NORM: [heads][n]; else [n] */
    int32_t n_levels[N_FACTORS];
};

static size_t level_count(const struct data *x, int f)
{
    size_t n = (size_t)x->n, heads = (size_t)x->n_heads;
    if (f == LAYER || f == HEAD)
        return heads;
    return f == KEY_NORM ? heads * n : n;
}

/* ---- the values */

/* From gate values; NaN: left out. */
static double value_of(struct data *x, double v)
{
    double rate = -v;
    if (x->scale == SCALE_RATE) {
        if (rate >= 0 && rate < (double)FLT_MIN) { /* the column has floats */
            x->clamped++;
            rate = (double)FLT_MIN;
        }
        v = rate > 0 ? log(rate) : NAN;
    }
    if (isnan(v) || (x->scale != SCALE_RANK && isinf(v))) {
        x->left_out++;
        return NAN;
    }
    return v;
}

/* Replaces values by their ranks. */
static int rank_values(struct data *x)
{
    size_t n = (size_t)x->n_heads * (size_t)x->n, m = 0;
    double *known = MEM_NEW(double, n);
    if (!known)
        return KVF_E_NOMEM;
    for (size_t c = 0; c < n; c++)
        if (!isnan(x->y[c]))
            known[m++] = x->y[c];
    int err = ranks_average(known, m, known);
    m = 0;
    for (size_t c = 0; !err && c < n; c++)
        if (!isnan(x->y[c]))
            x->y[c] = known[m++];
    mem_free(known);
    return err;
}

static int read_values(struct data *x, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int h = 0; !err && h < x->n_heads; h++) {
        const struct head *head = &x->f->heads.head[h];
        double *y = x->y + h * x->n;
        err = kvf_read_f64(x->f->t, x->f->column[VALUE], head->layer, head->index, (uint32_t)x->a,
                           (uint32_t)x->n, y, d);
        for (int64_t i = 0; !err && i < x->n; i++)
            y[i] = value_of(x, y[i]);
        analyzer_tell(x->f->args, h + 1, x->n_heads);
    }
    return !err && x->scale == SCALE_RANK ? rank_values(x) : err;
}

/* ---- the levels */

/* Level of a number: its place in the sorted list of distinct values; NaN, which only a damaged
 * column has, has no place. */
static int level_distinct(struct data *x, int f)
{
    size_t n = (size_t)x->n, known = 0, m = 0;
    double *sorted = MEM_NEW(double, n);
    if (!sorted)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        if (!isnan(x->row[i]))
            sorted[known++] = x->row[i];
    qsort(sorted, known, sizeof *sorted, order_double);
    for (size_t i = 0; i < known; i++)
        if (m == 0 || sorted[i] != sorted[m - 1])
            sorted[m++] = sorted[i];
    for (size_t i = 0; i < n; i++) {
        const double *at = isnan(x->row[i])
                               ? NULL
                               : bsearch(&x->row[i], sorted, m, sizeof *sorted, order_double);
        x->level[f][i] = at ? (int32_t)(at - sorted) : -1;
    }
    x->n_levels[f] = (int32_t)m;
    mem_free(sorted);
    return KVF_OK;
}

static int read_distinct(struct data *x, int column, int f, struct kvf_diag *d)
{
    int err = kvf_read_f64(x->f->t, x->f->column[column], 0, 0, (uint32_t)x->a, (uint32_t)x->n,
                           x->row, d);
    return err ? err : level_distinct(x, f);
}

static void level_heads(struct data *x)
{
    for (int h = 0; h < x->n_heads; h++) {
        x->level[LAYER][h] = x->f->heads.head[h].layer;
        x->level[HEAD][h] = h;
    }
    x->n_levels[LAYER] = kvf_n_layers(x->f->t);
    x->n_levels[HEAD] = x->n_heads;
}

static int level_tokens(struct data *x, struct kvf_diag *d)
{
    uint8_t *class = MEM_NEW(uint8_t, kvf_n_steps(x->f->t));
    int err = class ? classes_of_trace(x->classes, x->f->t, class, d) : KVF_E_NOMEM;
    x->n_levels[CLASS] = classes_count(x->classes);
    x->n_levels[POSITION] = (int32_t)x->o->bins[0];
    for (int64_t i = 0; !err && i < x->n; i++) {
        x->level[CLASS][i] = class[x->a + i];
        x->level[POSITION][i] = (int32_t)(i * x->o->bins[0] / x->n);
    }
    mem_free(class);
    return err;
}

/* Bins by rank within the head: equal norms share one. */
static int level_norms(struct data *x, int h, struct kvf_diag *d)
{
    const struct head *head = &x->f->heads.head[h];
    int32_t *level = x->level[KEY_NORM] + h * x->n;
    int64_t m = 0;
    int err = kvf_read_f64(x->f->t, x->f->column[NORMS], head->layer, head->index, (uint32_t)x->a,
                           (uint32_t)x->n, x->row, d);
    for (int64_t i = 0; !err && i < x->n; i++) {
        level[i] = isnan(x->row[i]) ? -1 : 0;
        if (level[i] == 0)
            x->row[m++] = x->row[i];
    }
    if (!err)
        err = ranks_average(x->row, (size_t)m, x->row);
    for (int64_t i = 0, k = 0; !err && i < x->n; i++)
        if (level[i] == 0)
            level[i] = (int32_t)((x->row[k++] - .5) * (double)x->o->bins[1] / (double)m);
    return err;
}

static int read_levels(struct data *x, struct kvf_diag *d)
{
    int err = read_distinct(x, IDS, TOKEN, d);
    if (!err && x->f->column[ROLES] >= 0)
        err = read_distinct(x, ROLES, ROLE, d);
    x->n_levels[KEY_NORM] = (int32_t)x->o->bins[1];
    for (int h = 0; !err && x->f->column[NORMS] >= 0 && h < x->n_heads; h++) {
        err = level_norms(x, h, d);
        analyzer_tell(x->f->args, h + 1, x->n_heads);
    }
    level_heads(x);
    return err ? err : level_tokens(x, d);
}

/* ---- the rows */

/* The factor over all heads, or over the values of one head. */
static struct factor factor_of(const struct data *x, int f, int head)
{
    struct factor out = {factor_names[f], x->level[f], f < TOKEN ? (size_t)x->n : 1,
                         level_count(x, f), x->n_levels[f]};
    if (f == KEY_NORM && head >= 0) {
        out.level = out.level ? out.level + head * x->n : NULL;
        out.count = (size_t)x->n;
    }
    return out;
}

/* A row of a head, or of all (-1). */
static int add_row(struct frame *f, int head, const char *name, const struct effect *e)
{
    struct row *r = frame_add_row(f);
    if (!r)
        return KVF_E_NOMEM;
    *r = (struct row){frame_row_head(f, head < 0 ? f->heads.n : head),
                      name,
                      e->levels,
                      e->n,
                      e->eta2,
                      e->epsilon2,
                      NAN};
    return KVF_OK;
}

/* Rows of one head, or of all (-1). */
static int take_effects(struct frame *f, int head)
{
    const struct data *x = f->state;
    struct effect e;
    size_t n = head < 0 ? (size_t)x->n_heads * (size_t)x->n : (size_t)x->n;
    const double *y = head < 0 ? x->y : x->y + head * x->n;
    int err = KVF_OK;
    for (int k = head < 0 ? LAYER : TOKEN; !err && k < N_FACTORS; k++) {
        struct factor factor = factor_of(x, k, head);
        if (!x->level[k])
            continue;
        err = factor_effect(y, n, &factor, &e);
        if (!err)
            err = add_row(f, head, factor.name, &e);
        if (head < 0)
            analyzer_tell(f->args, k - LAYER + 1, N_FACTORS - LAYER);
    }
    return err;
}

/* Rows of heads and token ids together: the sum of two terms, and one for each pair. */
static int take_joint(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    struct effect e;
    size_t n = (size_t)x->n_heads * (size_t)x->n;
    struct factor head = factor_of(x, HEAD, -1), token = factor_of(x, TOKEN, -1);
    int err = factor_additive(x->y, n, &head, &token, f->args, &e);
    x->diverged = !e.converged;
    if (!err)
        err = add_row(f, -1, "head+token", &e);
    if (err)
        return err;
    if (token.n_levels > INT32_MAX / head.n_levels)
        return kvf_fail(d, KVF_E_LIMIT,
                        "%d heads and %d token ids are too many; choose some with "
                        "--head",
                        head.n_levels, token.n_levels);
    int32_t *pair = FRAME_NEW(f, int32_t, n);
    if (!pair)
        return KVF_E_NOMEM;
    for (size_t c = 0; c < n; c++) {
        int32_t id = token.level[c % token.count];
        pair[c] = id < 0 ? -1 : head.level[c / head.block] * token.n_levels + id;
    }
    const struct factor each = {"head*token", pair, 1, n, head.n_levels * token.n_levels};
    err = factor_effect(x->y, n, &each, &e);
    return err ? err : add_row(f, -1, each.name, &e);
}

/* ---- the table */

/* Of the rows of all heads: mean over the heads of the same factor's epsilon2. */
static double mean_within(const struct frame *f, const struct row *all)
{
    const struct row *row = f->row;
    struct sum s = {0};
    int64_t n = 0;
    for (int64_t r = 0; r < f->n_rows; r++) {
        if (row[r].of.layer < 0 || isnan(row[r].epsilon2)
            || strcmp(row[r].factor, all->factor) != 0)
            continue;
        sum_add(&s, row[r].epsilon2);
        n++;
    }
    return n ? sum_get(&s) / (double)n : NAN;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct data *x = f->state;
    struct row *row = f->row;
    int64_t undefined = 0;
    (void)d;
    for (int64_t r = 0; r < f->n_rows; r++) {
        undefined += isnan(row[r].eta2) || isnan(row[r].epsilon2);
        row[r].within = row[r].of.layer < 0 ? mean_within(f, &row[r]) : NAN;
    }
    put_tokens(out, f->a, f->b, f->T);
    table_meta_str(out, "value", kvf_column(f->t, f->column[VALUE])->name);
    table_meta_str(out, "scale", scale_words[x->scale]);
    table_meta_num(out, "values", (double)x->n_heads * (double)x->n);
    table_meta_num(out, "heads", x->n_heads);
    table_meta_num(out, "position_bins", (double)x->o->bins[0]);
    table_meta_num(out, "norm_bins", (double)x->o->bins[1]);
    table_meta_num(out, "clamped", (double)x->clamped);
    table_meta_num(out, "left_out", (double)x->left_out);
    table_meta_num(out, "undefined", (double)undefined);
    if (f->column[NORMS] < 0)
        table_meta_str(out, "without", "key_norm: not recorded, see 'kvfate run --probes keys'");
    if (x->diverged)
        table_meta_str(out, "unsettled", "the means of head+token did not settle");
    classes_note(x->classes, out);
    return KVF_OK;
}

/* ---- the frame */

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = f->options;
    int err = gate_column_need(f->t, &f->column[VALUE], d);
    if (err)
        return err;
    const char *value = kvf_column(f->t, f->column[VALUE])->name;
    bool retention = strcmp(value, "log_beta") == 0;
    *x = (struct data){.f = f, .o = o, .a = f->a, .n = f->b - f->a, .scale = o->scale};
    if (o->scale == SCALE_AUTO)
        x->scale = retention ? SCALE_RATE : SCALE_RANK;
    if (x->scale != SCALE_RANK && !retention)
        return kvf_fail(d, KVF_E_ARG,
                        "--scale %s needs log_beta; this trace has %s: use --scale rank",
                        scale_words[x->scale], value);
    return classes_open(o->classes, &x->classes, d);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    size_t n = (size_t)x->n, heads = (size_t)f->heads.n;
    (void)d;
    f->items = 0; /* finish reads the heads: ranks and factors are of all of them */
    x->n_heads = f->heads.n;
    for (int k = 0; k < N_FACTORS; k++)
        if ((k != KEY_NORM || f->column[NORMS] >= 0) && (k != ROLE || f->column[ROLES] >= 0))
            x->level[k] = FRAME_NEW(f, int32_t, level_count(x, k));
    x->y = frame_alloc(f, heads * n, sizeof *x->y);
    x->row = FRAME_NEW(f, double, n);
    return KVF_OK;
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    if (!x->n)
        return KVF_OK;
    int err = read_values(x, d);
    if (!err)
        err = read_levels(x, d);
    for (int h = 0; !err && h < f->heads.n; h++) {
        err = take_effects(f, h);
        analyzer_tell(f->args, h + 1, f->heads.n);
    }
    if (!err)
        err = take_effects(f, -1);
    return err ? err : take_joint(f, d);
}

static void close(struct frame *f)
{
    classes_close(((struct data *)f->state)->classes);
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of),
    {"factor", "", TABLE_STR, AT(factor)},
    {"levels", "", TABLE_INT, AT(levels)},
    {"n", "", TABLE_INT, AT(n)},
    {"eta2", "", TABLE_REAL, AT(eta2)},
    {"epsilon2", "", TABLE_REAL, AT(epsilon2)},
    {"within", "", TABLE_REAL, AT(within)},
};

/* ---- for people */

static void describe_notes(const struct table *t, struct buf *out)
{
    long long clamped = table_meta_int(t, "clamped", 0);
    long long left_out = table_meta_int(t, "left_out", 0);
    long long undefined = table_meta_int(t, "undefined", 0);
    buf_str(out, "factors overlap: their shares do not add up\n");
    if (clamped)
        buf_printf(out,
                   "%lld values of log_beta are 0 or nearly 0: they are set to log(%.3g) and may "
                   "outweigh other values; compare with --scale rank\n",
                   clamped, (double)FLT_MIN);
    if (left_out)
        buf_printf(out, "%lld values left out: not finite%s\n", left_out,
                   strcmp(table_meta(t, "scale"), "rate") == 0 ? ", or a log_beta above 0" : "");
    if (undefined)
        buf_printf(out,
                   "undefined in %lld rows: all values are equal, fewer than two, or no level "
                   "has two\n",
                   undefined);
    if (table_meta(t, "without"))
        buf_printf(out, "without %s\n", table_meta(t, "without"));
    if (table_meta(t, "unsettled"))
        buf_printf(out, "%s\n", table_meta(t, "unsettled"));
}

static void describe(const struct table *t, struct buf *out)
{
    int name = table_find(t, "factor"), layer = table_find(t, "layer");
    int64_t rows = table_rows(t);
    if (rows == 0) {
        buf_str(out, "no tokens\n");
        return;
    }
    buf_printf(out, "variance of %s, scale %s, over %s values of %s heads\n",
               table_meta(t, "value"), table_meta(t, "scale"), table_meta(t, "values"),
               table_meta(t, "heads"));
    buf_printf(out, "  %-11s %7s %9s %9s   %s\n", "factor", "levels", "eta^2", "epsilon^2",
               "epsilon^2 within a head, mean");
    for (int64_t r = 0; r < rows; r++) {
        if (table_int(t, layer, r) >= 0)
            continue;
        const char *factor = table_str(t, name, r);
        double within = table_row_real(t, r, "within");
        buf_printf(out, "  %-11s %7lld %9.4f %9.4f", factor,
                   (long long)table_row_int(t, r, "levels"), table_row_real(t, r, "eta2"),
                   table_row_real(t, r, "epsilon2"));
        if (!isnan(within))
            buf_printf(out, "   %9.4f", within);
        buf_str(out, "\n");
    }
    describe_notes(t, out);
}

const struct analyzer an_variance = {
    .name = "variance",
    .summary = "variance of gate scores explained by head, token, position or key",
    .example = "kvfate retention --as variance run.kvf -o variance.png",
    OPTIONS({OPT_WORD, 0, "scale", offsetof(struct options, scale), "S",
             "y; auto: rate, or rank where gates are of another kind than retention", "auto",
             .words = scale_words},
            {OPT_INT, 0, "position-bins", offsetof(struct options, bins[0]), "N",
             "bins of equal numbers of positions", "16", .min = 1, .max = MOST_BINS},
            {OPT_INT, 0, "norm-bins", offsetof(struct options, bins[1]), "N",
             "bins of equal numbers of key norms of each head", "16", .min = 1, .max = MOST_BINS},
            CLASSES_OPTION(struct options, classes)),
    COLUMNS([VALUE] = {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "one of the three"},
            [IDS] = {"tokens.id", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_ALWAYS, NULL},
            [ROLES] = {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_CAN_LACK,
                       "the factor role"},
            [NORMS] = {"key_norm", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS,
                       "the factor key length"},
            {"write_gate", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "one of the three"},
            {"importance", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "one of the three"}),
    HEADS(.space = KVF_SPACE_KV, .state_size = sizeof(struct data), FRAME_RECORDS(struct row),
          .choose = choose, .prepare = prepare, .finish = finish, .rows = rows, .close = close),
    .describe = describe,
    POOL(KEYS("head", "layer", "index", "factor"), {"epsilon2"}, {"eta2"}, {"within"}),
};

/* an_variance.c - what a retention pattern is made of: the share of the variance of y over
 * (layer, head, token) that the means of one factor explain, for all heads together and
 * within each head; y is log(-log_beta), log_beta, or the rank of what gates gave. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/classes.h"
#include "analyzers/common.h"
#include "analyzers/factors.h"
#include "analyzers/pools.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/ranks.h"
#include "base/stats.h"

enum { OPT_SCALE, OPT_POSITION_BINS, OPT_NORM_BINS, OPT_CLASSES, MOST_BINS = 1 << 20 };
static const struct analyzer_option options[] = {
    {"scale", "S", NULL, "y: rate, log-beta or rank (rate; of other gates than retention: rank)"},
    {"position-bins", "N", "16", "bins of equal numbers of positions (16)"},
    {"norm-bins", "N", "16", "bins of equal numbers of key norms of each head (16)"},
    CLASSES_OPTION,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_variance;

enum scale { SCALE_RATE, SCALE_LOG_BETA, SCALE_RANK, N_SCALES };
static const char *const scale_names[N_SCALES] = {"rate", "log-beta", "rank"};

/* The factors in the order of rows; those from TOKEN on also within a head. */
enum { LAYER, HEAD, TOKEN, CLASS, ROLE, POSITION, KEY_NORM, N_FACTORS, N_JOINT = 2 };
static const char *const factor_names[N_FACTORS] = {"layer", "head",     "token",   "class",
                                                    "role",  "position", "key_norm"};

struct data {
    struct kvf_trace *t;
    struct classes *classes;
    struct head_list heads;
    int64_t a, n;                  /* tokens [a, a + n) */
    int column, ids, roles, norms; /* norms: -1 where not recorded */
    enum scale scale;
    int64_t bins[2];           /* of positions and of key norms */
    int64_t clamped, left_out; /* values */
    bool diverged;
    double *y;                 /* [heads][n] */
    double *row;               /* [n] */
    int32_t *level[N_FACTORS]; /* LAYER, HEAD: [heads]; KEY_NORM: [heads][n]; else [n] */
    int32_t n_levels[N_FACTORS];
    /* rows of the table */
    int64_t rows;
    const char **head, **factor;
    int64_t *layer, *index;
    struct effect *effect;
};

static size_t level_count(const struct data *x, int f)
{
    size_t n = (size_t)x->n, heads = (size_t)x->heads.n;
    return f == LAYER || f == HEAD ? heads : f == KEY_NORM ? heads * n : n;
}

static int allocate(struct data *x)
{
    size_t n = (size_t)x->n, heads = (size_t)x->heads.n, rows = (size_t)x->rows;
    bool ok = true;
    for (int f = 0; f < N_FACTORS; f++)
        if (f != KEY_NORM || x->norms >= 0)
            ok = (x->level[f] = MEM_NEW(int32_t, level_count(x, f))) && ok;
    x->y = mem_alloc(heads * n, sizeof(double));
    x->row = MEM_NEW(double, n);
    x->head = MEM_NEW(const char *, rows);
    x->factor = MEM_NEW(const char *, rows);
    x->layer = MEM_NEW(int64_t, rows);
    x->index = MEM_NEW(int64_t, rows);
    x->effect = MEM_NEW(struct effect, rows);
    return ok && x->y && x->row && x->head && x->factor && x->layer && x->index && x->effect
               ? KVF_OK
               : KVF_E_NOMEM;
}

static void release(struct data *x)
{
    for (int f = 0; f < N_FACTORS; f++)
        mem_free(x->level[f]);
    mem_free(x->y);
    mem_free(x->row);
    mem_free((void *)x->head);
    mem_free((void *)x->factor);
    mem_free(x->layer);
    mem_free(x->index);
    mem_free(x->effect);
    heads_free(&x->heads);
    classes_close(x->classes);
}

/* ---- the values */

/* From what gates gave; NaN: left out. */
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

/* Values to their ranks among all of them. */
static int rank_values(struct data *x)
{
    size_t n = (size_t)x->heads.n * (size_t)x->n, m = 0;
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
    for (int h = 0; !err && h < x->heads.n; h++) {
        const struct head *head = &x->heads.head[h];
        double *y = x->y + h * x->n;
        err = kvf_read_f64(x->t, x->column, head->layer, head->index, (uint32_t)x->a,
                           (uint32_t)x->n, y, d);
        for (int64_t i = 0; !err && i < x->n; i++)
            y[i] = value_of(x, y[i]);
    }
    return !err && x->scale == SCALE_RANK ? rank_values(x) : err;
}

/* ---- the levels */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Level of a number: its place among the different ones, as a sorted list has them; NaN, which
 * only a damaged column has, has none. */
static int level_distinct(struct data *x, int f)
{
    size_t n = (size_t)x->n, known = 0, m = 0;
    double *sorted = MEM_NEW(double, n);
    if (!sorted)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        if (!isnan(x->row[i]))
            sorted[known++] = x->row[i];
    qsort(sorted, known, sizeof *sorted, by_value);
    for (size_t i = 0; i < known; i++)
        if (m == 0 || sorted[i] != sorted[m - 1])
            sorted[m++] = sorted[i];
    for (size_t i = 0; i < n; i++) {
        const double *at = isnan(x->row[i])
                               ? NULL
                               : bsearch(&x->row[i], sorted, m, sizeof *sorted, by_value);
        x->level[f][i] = at ? (int32_t)(at - sorted) : -1;
    }
    x->n_levels[f] = (int32_t)m;
    mem_free(sorted);
    return KVF_OK;
}

static int read_distinct(struct data *x, int column, int f, struct kvf_diag *d)
{
    int err = kvf_read_f64(x->t, column, 0, 0, (uint32_t)x->a, (uint32_t)x->n, x->row, d);
    return err ? err : level_distinct(x, f);
}

static void level_heads(struct data *x)
{
    for (int h = 0; h < x->heads.n; h++) {
        x->level[LAYER][h] = x->heads.head[h].layer;
        x->level[HEAD][h] = h;
    }
    x->n_levels[LAYER] = kvf_n_layers(x->t);
    x->n_levels[HEAD] = x->heads.n;
}

static int level_tokens(struct data *x, struct kvf_diag *d)
{
    uint8_t *class = MEM_NEW(uint8_t, kvf_n_steps(x->t));
    int err = class ? classes_of_trace(x->classes, x->t, class, d) : KVF_E_NOMEM;
    x->n_levels[CLASS] = classes_count(x->classes);
    x->n_levels[POSITION] = (int32_t)x->bins[0];
    for (int64_t i = 0; !err && i < x->n; i++) {
        x->level[CLASS][i] = class[x->a + i];
        x->level[POSITION][i] = (int32_t)(i * x->bins[0] / x->n);
    }
    mem_free(class);
    return err;
}

/* Bins by rank within the head: equal norms share one. */
static int level_norms(struct data *x, int h, struct kvf_diag *d)
{
    const struct head *head = &x->heads.head[h];
    int32_t *level = x->level[KEY_NORM] + h * x->n;
    int64_t m = 0;
    int err = kvf_read_f64(x->t, x->norms, head->layer, head->index, (uint32_t)x->a, (uint32_t)x->n,
                           x->row, d);
    for (int64_t i = 0; !err && i < x->n; i++) {
        level[i] = isnan(x->row[i]) ? -1 : 0;
        if (level[i] == 0)
            x->row[m++] = x->row[i];
    }
    if (!err)
        err = ranks_average(x->row, (size_t)m, x->row);
    for (int64_t i = 0, k = 0; !err && i < x->n; i++)
        if (level[i] == 0)
            level[i] = (int32_t)((x->row[k++] - .5) * (double)x->bins[1] / (double)m);
    return err;
}

static int read_levels(struct data *x, struct kvf_diag *d)
{
    int err = read_distinct(x, x->ids, TOKEN, d);
    if (!err)
        err = read_distinct(x, x->roles, ROLE, d);
    x->n_levels[KEY_NORM] = (int32_t)x->bins[1];
    for (int h = 0; !err && x->norms >= 0 && h < x->heads.n; h++)
        err = level_norms(x, h, d);
    level_heads(x);
    return err ? err : level_tokens(x, d);
}

/* ---- the rows */

/* The factor as it lies over all heads, or over the values of one. */
static struct factor factor_of(const struct data *x, int f, int head)
{
    struct factor out = {factor_names[f], x->level[f], f < TOKEN ? (size_t)x->n : 1,
                         level_count(x, f), x->n_levels[f]};
    if (f == KEY_NORM && head >= 0) {
        out.level += head * x->n;
        out.count = (size_t)x->n;
    }
    return out;
}

static struct effect *add_row(struct data *x, int head, const char *name)
{
    int64_t r = x->rows++;
    x->head[r] = head < 0 ? "all" : x->heads.name[head];
    x->layer[r] = head < 0 ? -1 : x->heads.layer[head];
    x->index[r] = head < 0 ? -1 : x->heads.index[head];
    x->factor[r] = name;
    return &x->effect[r];
}

/* Rows of one head, or of all (-1). */
static int take_effects(struct data *x, int head)
{
    size_t n = head < 0 ? (size_t)x->heads.n * (size_t)x->n : (size_t)x->n;
    const double *y = head < 0 ? x->y : x->y + head * x->n;
    int err = KVF_OK;
    for (int f = head < 0 ? LAYER : TOKEN; !err && f < N_FACTORS; f++) {
        struct factor factor = factor_of(x, f, head);
        if (x->level[f])
            err = factor_effect(y, n, &factor, add_row(x, head, factor.name));
    }
    return err;
}

/* Rows of heads and token ids together: the sum of two terms, and one for each pair. */
static int take_joint(struct data *x, struct kvf_diag *d)
{
    size_t n = (size_t)x->heads.n * (size_t)x->n;
    struct factor head = factor_of(x, HEAD, -1), token = factor_of(x, TOKEN, -1);
    struct effect *e = add_row(x, -1, "head+token");
    int err = factor_additive(x->y, n, &head, &token, e);
    x->diverged = !e->converged;
    if (err)
        return err;
    if (token.n_levels > INT32_MAX / head.n_levels)
        return kvf_fail(d, KVF_E_LIMIT,
                        "%d heads and %d token ids are too many; choose some with "
                        "--head",
                        head.n_levels, token.n_levels);
    int32_t *pair = MEM_NEW(int32_t, n);
    for (size_t c = 0; pair && c < n; c++) {
        int32_t id = token.level[c % token.count];
        pair[c] = id < 0 ? -1 : head.level[c / head.block] * token.n_levels + id;
    }
    const struct factor each = {"head*token", pair, 1, n, head.n_levels * token.n_levels};
    err = pair ? factor_effect(x->y, n, &each, add_row(x, -1, each.name)) : KVF_E_NOMEM;
    mem_free(pair);
    return err;
}

/* ---- the table */

static void put_notes(const struct data *x, struct table *out)
{
    int64_t undefined = 0;
    for (int64_t r = 0; r < x->rows; r++)
        undefined += isnan(x->effect[r].eta2) || isnan(x->effect[r].epsilon2);
    table_meta_str(out, "value", kvf_column(x->t, x->column)->name);
    table_meta_str(out, "scale", scale_names[x->scale]);
    table_meta_num(out, "values", (double)x->heads.n * (double)x->n);
    table_meta_num(out, "heads", x->heads.n);
    table_meta_num(out, "position_bins", (double)x->bins[0]);
    table_meta_num(out, "norm_bins", (double)x->bins[1]);
    table_meta_num(out, "clamped", (double)x->clamped);
    table_meta_num(out, "left_out", (double)x->left_out);
    table_meta_num(out, "undefined", (double)undefined);
    if (x->norms < 0)
        table_meta_str(out, "without", "key_norm: not recorded, see 'kvfate run --probes keys'");
    if (x->diverged)
        table_meta_str(out, "unsettled", "the means of head+token did not settle");
}

/* Of the rows of all heads: mean over the heads of the same factor's epsilon2. */
static double mean_within(const struct data *x, size_t row)
{
    struct sum s = {0};
    int64_t n = 0;
    for (int64_t r = 0; x->layer[row] < 0 && r < x->rows; r++) {
        double v = x->effect[r].epsilon2;
        if (x->layer[r] < 0 || isnan(v) || strcmp(x->factor[r], x->factor[row]) != 0)
            continue;
        sum_add(&s, v);
        n++;
    }
    return n ? sum_get(&s) / (double)n : NAN;
}

static int build(const struct data *x, struct table *out)
{
    size_t rows = (size_t)x->rows;
    int64_t *count = MEM_NEW(int64_t, 2 * rows);
    double *share = MEM_NEW(double, 3 * rows);
    int err = count && share ? KVF_OK : KVF_E_NOMEM;
    for (size_t r = 0; !err && r < rows; r++) {
        count[r] = x->effect[r].levels;
        count[rows + r] = x->effect[r].n;
        share[r] = x->effect[r].eta2;
        share[rows + r] = x->effect[r].epsilon2;
        share[2 * rows + r] = mean_within(x, r);
    }
    if (!err) {
        put_provenance(out, x->t);
        put_tokens(out, x->a, x->a + x->n, kvf_n_steps(x->t));
        put_notes(x, out);
        classes_note(x->classes, out);
        table_dense_str(out, "head", "", x->head);
        table_dense_int(out, "layer", "", x->layer);
        table_dense_int(out, "index", "", x->index);
        table_dense_str(out, "factor", "", x->factor);
        table_dense_int(out, "levels", "", count);
        table_dense_int(out, "n", "", count + rows);
        table_dense_real(out, "eta2", "", share);
        table_dense_real(out, "epsilon2", "", share + rows);
        table_dense_real(out, "within", "", share + 2 * rows);
        err = table_err(out);
    }
    mem_free(count);
    mem_free(share);
    return err;
}

/* ---- what is asked for */

static int choose_scale(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    const char *text = option_text(&an_variance, args, OPT_SCALE);
    bool retention = strcmp(kvf_column(x->t, x->column)->name, "log_beta") == 0;
    int s = 0;
    x->scale = retention ? SCALE_RATE : SCALE_RANK;
    if (!text)
        return KVF_OK;
    while (s < N_SCALES && strcmp(text, scale_names[s]) != 0)
        s++;
    if (s == N_SCALES)
        return kvf_fail(d, KVF_E_ARG, "--scale is rate, log-beta or rank, not '%s'", text);
    if (s != SCALE_RANK && !retention)
        return kvf_fail(d, KVF_E_ARG, "--scale %s is of log_beta; this trace has %s: say rank",
                        text, kvf_column(x->t, x->column)->name);
    x->scale = (enum scale)s;
    return KVF_OK;
}

static int choose_bins(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    for (int k = 0; k < 2; k++) {
        int option = k ? OPT_NORM_BINS : OPT_POSITION_BINS;
        const char *text = option_text(&an_variance, args, option);
        if (!opt_int(text, &x->bins[k]) || x->bins[k] < 1 || x->bins[k] > MOST_BINS)
            return kvf_fail(d, KVF_E_ARG, "--%s needs a number of bins from 1 to %d, not '%s'",
                            options[option].name, MOST_BINS, text);
    }
    return KVF_OK;
}

static int find_columns(struct data *x, struct kvf_diag *d)
{
    int err = gate_column_need(x->t, &x->column, d);
    x->norms = kvf_find(x->t, "key_norm");
    if (!err)
        err = column_need(x->t, "tokens.id", "lean", &x->ids, d);
    if (!err)
        err = column_need(x->t, "tokens.role", "lean", &x->roles, d);
    if (!err && x->norms >= 0)
        err = column_of_heads(x->t, x->norms, KVF_SPACE_KV, d);
    return err;
}

static int prepare(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    int64_t end = 0;
    int err = find_columns(x, d);
    if (!err)
        err = choose_scale(x, args, d);
    if (!err)
        err = choose_bins(x, args, d);
    if (!err)
        err = tokens_select(x->t, args, &x->a, &end, d);
    x->n = end - x->a;
    return err ? err : heads_select(x->t, KVF_SPACE_KV, args->heads, &x->heads, d);
}

static int compute(struct data *x, struct kvf_diag *d)
{
    int err = allocate(x);
    x->rows = 0; /* counts those that there are from here on */
    if (err || !x->n)
        return err;
    err = read_values(x, d);
    if (!err)
        err = read_levels(x, d);
    for (int h = 0; !err && h < x->heads.n; h++)
        err = take_effects(x, h);
    if (!err)
        err = take_effects(x, -1);
    return err ? err : take_joint(x, d);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {.t = traces[0]};
    struct table *out = NULL;
    (void)n_traces;
    int err = prepare(&x, args, d);
    if (err)
        return err;
    x.rows = ((int64_t)x.heads.n + 1) * (N_FACTORS + N_JOINT); /* room */
    err = classes_open(option_text(&an_variance, args, OPT_CLASSES), &x.classes, d);
    if (!err)
        err = compute(&x, d);
    if (!err)
        err = (out = table_create("variance", x.rows)) ? build(&x, out) : KVF_E_NOMEM;
    release(&x);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

/* ---- for people */

static void describe_notes(const struct table *t, struct buf *out)
{
    long long clamped = (long long)table_meta_real(t, "clamped", 0);
    long long left_out = (long long)table_meta_real(t, "left_out", 0);
    long long undefined = (long long)table_meta_real(t, "undefined", 0);
    buf_str(out, "factors overlap: their shares do not add up\n");
    if (clamped)
        buf_printf(out,
                   "%lld values of log_beta are 0 or nearly: they stand at log(%.3g) and may "
                   "outweigh the others, compare --scale rank\n",
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
        double within = table_real(t, table_find(t, "within"), r);
        buf_printf(out, "  %-11s %7lld %9.4f %9.4f", factor,
                   (long long)table_int(t, table_find(t, "levels"), r),
                   table_real(t, table_find(t, "eta2"), r),
                   table_real(t, table_find(t, "epsilon2"), r));
        if (!isnan(within))
            buf_printf(out, "   %9.4f", within);
        buf_str(out, "\n");
    }
    describe_notes(t, out);
}

const struct analyzer an_variance = {
    .name = "variance",
    .summary = "what the numbers of gates follow: heads, tokens, positions or keys",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool_variance,
};

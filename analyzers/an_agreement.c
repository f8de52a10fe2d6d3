/* an_agreement.c - whether gates of different trainings agree about the same tokens: for each pair
 * of traces and each KV head Spearman's rank correlation over the tokens, and the overlap |A and B|
 * / |A or B| of the tokens that each would keep longest, compared with the overlap of random sets.
 * Rows of a head `all` are means over the heads; they also have the rank correlation over the heads
 * of the heads' mean values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/common.h"
#include "analyzers/protocol.h"
#include "base/mem.h"
#include "base/ranks.h"
#include "base/stats.h"
#include "libtrace/run_header.h"

enum { MOST_TRACES = 16 };

struct options {
    double top;
    int64_t skip;
};

struct data {
    struct kvf_trace *const *t;
    int n_traces, n_pairs;
    int column[MOST_TRACES];
    struct head_list heads;
    int64_t a, n; /* tokens [a, a + n) */
    int64_t skip;
    double top;
    /* rows [(heads + 1) * n_pairs], the rows of `all` last */
    double *rho, *overlap, *chance, *over_heads, *within;
    int64_t *tokens, *kept, *n_heads;
    double *value;              /* [n_traces][n] of one head */
    double *mean;               /* [n_traces][heads] */
    double *x, *y;              /* [n or heads] of a pair: values that both have */
    unsigned char *in_x, *in_y; /* [n] */
};

static int allocate(struct data *d)
{
    size_t n = (size_t)d->n, H = (size_t)d->heads.n, traces = (size_t)d->n_traces;
    size_t rows = (H + 1) * (size_t)d->n_pairs, most = n > H ? n : H;
    d->rho = MEM_NEW(double, rows);
    d->overlap = MEM_NEW(double, rows);
    d->chance = MEM_NEW(double, rows);
    d->over_heads = MEM_NEW(double, rows);
    d->within = MEM_NEW(double, rows);
    d->tokens = MEM_NEW(int64_t, rows);
    d->kept = MEM_NEW(int64_t, rows);
    d->n_heads = MEM_NEW(int64_t, rows);
    d->value = mem_alloc(traces * n, sizeof(double));
    d->mean = MEM_NEW(double, (traces * H));
    d->x = MEM_NEW(double, most);
    d->y = MEM_NEW(double, most);
    d->in_x = MEM_NEW(unsigned char, n);
    d->in_y = MEM_NEW(unsigned char, n);
    for (size_t r = 0; d->over_heads && d->within && d->n_heads && r < rows; r++) {
        d->over_heads[r] = d->within[r] = NAN;
        d->n_heads[r] = -1;
    }
    return d->rho && d->overlap && d->chance && d->over_heads && d->within && d->tokens && d->kept
                   && d->n_heads && d->value && d->mean && d->x && d->y && d->in_x && d->in_y
               ? KVF_OK
               : KVF_E_NOMEM;
}

static void release(struct data *d)
{
    void *const all[] = {d->within, d->rho,  d->overlap, d->chance, d->over_heads,
                         d->tokens, d->kept, d->n_heads, d->value,  d->mean,
                         d->x,      d->y,    d->in_x,    d->in_y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    heads_free(&d->heads);
}

/* Values of both traces where neither is NaN, into d->x and d->y; returns how many. */
static size_t common_values(struct data *d, const double *x, const double *y, int64_t n)
{
    size_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) || isnan(y[i]))
            continue;
        d->x[m] = x[i];
        d->y[m++] = y[i];
    }
    return m;
}

/* Overlap of the k of m tokens that each side would keep longest. */
static int top_overlap(struct data *d, size_t m, size_t k, double *ret)
{
    size_t both = 0, either = 0;
    int err = ranks_top(d->x, m, k, d->in_x);
    if (!err)
        err = ranks_top(d->y, m, k, d->in_y);
    for (size_t i = 0; !err && i < m; i++) {
        both += d->in_x[i] && d->in_y[i];
        either += d->in_x[i] || d->in_y[i];
    }
    *ret = either ? (double)both / (double)either : NAN;
    return err;
}

/* Rank correlation of the m values in d->x and d->y, which become ranks. */
static int correlate(struct data *d, size_t m, double *ret)
{
    int err = ranks_average(d->x, m, d->x);
    if (!err)
        err = ranks_average(d->y, m, d->y);
    *ret = err ? NAN : ranks_correlation(d->x, d->y, m);
    return err;
}

/* Partial rank correlation given the layer, of the m ranks in d->x and d->y: less the means of
 * their layers.  The heads are those whose x and y are no NaN. */
static double within_layers(struct data *d, const double *x, const double *y, size_t m)
{
    double size[2] = {0, 0}, most = (double)m * (double)m;
    size_t at = 0, n = 0;
    for (int h = 0; h < d->heads.n; h++) {
        int layer = d->heads.head[h].layer;
        n += !isnan(x[h]) && !isnan(y[h]);
        if (h + 1 < d->heads.n && d->heads.head[h + 1].layer == layer)
            continue;
        double mean_x = stats_mean(d->x + at, n - at), mean_y = stats_mean(d->y + at, n - at);
        for (; at < n; at++) {
            d->x[at] -= mean_x;
            d->y[at] -= mean_y;
            size[0] += d->x[at] * d->x[at];
            size[1] += d->y[at] * d->y[at];
        }
    }
    return fmin(size[0], size[1]) > 1e-18 * most ? ranks_correlation(d->x, d->y, m) : NAN;
}

static int compare(struct data *d, int first, int second, size_t row)
{
    size_t m = common_values(d, d->value + first * d->n, d->value + second * d->n, d->n);
    size_t k = (size_t)(d->top * (double)m + .5);
    if (k < 1)
        k = 1;
    if (k > m)
        k = m;
    int err = top_overlap(d, m, k, &d->overlap[row]);
    d->chance[row] = ranks_chance_overlap(m, k);
    d->tokens[row] = (int64_t)m;
    d->kept[row] = (int64_t)k;
    return err ? err : correlate(d, m, &d->rho[row]);
}

static double mean_known(const double *v, int64_t n)
{
    struct sum s = {0};
    int64_t known = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(v[i]))
            continue;
        sum_add(&s, v[i]);
        known++;
    }
    return known ? sum_get(&s) / (double)known : NAN;
}

static int compare_head(struct data *d, int h, struct kvf_diag *diag)
{
    const struct head *head = &d->heads.head[h];
    size_t row = (size_t)h * (size_t)d->n_pairs;
    int err = KVF_OK;
    for (int k = 0; !err && k < d->n_traces; k++) {
        double *v = d->value + k * d->n;
        err = kvf_read_f64(d->t[k], d->column[k], head->layer, head->index, (uint32_t)d->a,
                           (uint32_t)d->n, v, diag);
        d->mean[k * d->heads.n + h] = err ? NAN : mean_known(v, d->n);
    }
    for (int i = 0; !err && i < d->n_traces; i++)
        for (int j = i + 1; !err && j < d->n_traces; j++)
            err = compare(d, i, j, row++);
    return err;
}

/* The rows of `all`. */
static int pool(struct data *d)
{
    int H = d->heads.n, P = d->n_pairs, err = KVF_OK;
    double *column = MEM_NEW(double, (size_t)H);
    double *const values[3] = {d->rho, d->overlap, d->chance};
    for (int p = 0; column && p < P; p++) {
        for (int c = 0; c < 3; c++) {
            for (int h = 0; h < H; h++)
                column[h] = values[c][h * P + p];
            values[c][H * P + p] = mean_known(column, H);
        }
        for (int h = 0; h < H; h++) {
            d->tokens[H * P + p] += d->tokens[h * P + p];
            d->kept[H * P + p] += d->kept[h * P + p];
        }
    }
    mem_free(column);
    if (!column)
        return KVF_E_NOMEM;
    for (int i = 0, row = H * P; !err && i < d->n_traces; i++)
        for (int j = i + 1; !err && j < d->n_traces; j++, row++) {
            size_t m = common_values(d, d->mean + i * H, d->mean + j * H, H);
            d->n_heads[row] = (int64_t)m;
            err = correlate(d, m, &d->over_heads[row]);
            d->within[row] = err ? NAN : within_layers(d, d->mean + i * H, d->mean + j * H, m);
        }
    return err;
}

/* Numbers of the traces of each pair, as given from 1 on. */
static int put_pairs(struct table *out, const struct data *d)
{
    int64_t *first = MEM_NEW(int64_t, 2 * (size_t)d->n_pairs);
    if (!first)
        return KVF_E_NOMEM;
    int64_t *second = first + d->n_pairs;
    for (int i = 0, p = 0; i < d->n_traces; i++)
        for (int j = i + 1; j < d->n_traces; j++, p++) {
            first[p] = i + 1;
            second[p] = j + 1;
        }
    int64_t n = d->n ? d->n_pairs : 0;
    table_cycle_int(out, "a", "", first, n);
    table_cycle_int(out, "b", "", second, n);
    mem_free(first);
    return KVF_OK;
}

/* Notes the method of a trace and its compared column. */
static int put_trace(struct table *out, const struct data *d, int k, struct kvf_diag *diag)
{
    char key[24], label[LABEL_TEXT], value[LABEL_TEXT + 128];
    struct json *root = NULL;
    int err = run_header(d->t[k], &root, diag);
    if (err)
        return err;
    snprintf(key, sizeof key, "trace_%d", k + 1);
    const char *hash = json_str(json_get(json_get(root, "gates"), "hash"), NULL);
    run_label(label, root, "");
    snprintf(value, sizeof value, "%s of %s%s%.16s", kvf_column(d->t[k], d->column[k])->name, label,
             hash ? ", gates " : "", hash ? hash : "");
    table_meta_str(out, key, value);
    json_free(root);
    return KVF_OK;
}

static int build(const struct data *d, struct table *out, struct kvf_diag *diag)
{
    int64_t undefined = 0, rows = table_rows(out);
    int err = put_heads_all(out, &d->heads);
    if (!err)
        err = put_provenance_all(out, d->t, d->n_traces, diag);
    for (int k = 0; !err && k < d->n_traces; k++)
        err = put_trace(out, d, k, diag);
    put_tokens(out, d->a, d->a + d->n, kvf_n_steps(d->t[0]));
    table_meta_num(out, "top", d->top);
    table_meta_num(out, "skip", (double)d->skip);
    for (int64_t r = 0; r < rows - d->n_pairs; r++)
        undefined += isnan(d->rho[r]);
    table_meta_num(out, "undefined", (double)undefined);
    if (!err)
        err = put_pairs(out, d);
    table_dense_int(out, "tokens", "", d->tokens);
    table_dense_real(out, "rho", "", d->rho);
    table_dense_int(out, "kept", "", d->kept);
    table_dense_real(out, "overlap", "", d->overlap);
    table_dense_real(out, "chance", "", d->chance);
    table_dense_real(out, "rho_over_heads", "", d->over_heads);
    table_dense_real(out, "rho_within_layers", "", d->within);
    table_dense_int(out, "heads", "", d->n_heads);
    return err ? err : table_err(out);
}

static int same_shape(const struct data *x, struct kvf_diag *d)
{
    int L = kvf_n_layers(x->t[0]);
    for (int k = 1; k < x->n_traces; k++) {
        if (kvf_n_layers(x->t[k]) != L)
            return kvf_fail(d, KVF_E_ARG,
                            "trace 1 has %d layers and trace %d has %d: agreement "
                            "needs equal heads",
                            L, k + 1, kvf_n_layers(x->t[k]));
        for (int l = 0; l < L; l++) {
            int a = kvf_n_heads(x->t[0], l, KVF_SPACE_KV);
            int b = kvf_n_heads(x->t[k], l, KVF_SPACE_KV);
            if (a != b)
                return kvf_fail(d, KVF_E_ARG,
                                "layer %d has %d KV heads in trace 1 and %d in trace "
                                "%d: agreement needs equal heads",
                                l, a, b, k + 1);
        }
    }
    return KVF_OK;
}

/* Compares the ids of the first n tokens of traces k and 1. */
static int same_ids(const struct data *x, int k, uint32_t n, double *a, double *b,
                    struct kvf_diag *d)
{
    int column[2], err = column_need(x->t[0], "tokens.id", &column[0], d);
    if (!err)
        err = column_need(x->t[k], "tokens.id", &column[1], d);
    if (!err && n)
        err = kvf_read_f64(x->t[0], column[0], 0, 0, 0, n, a, d);
    if (!err && n)
        err = kvf_read_f64(x->t[k], column[1], 0, 0, 0, n, b, d);
    for (uint32_t i = 0; !err && i < n; i++)
        if (a[i] != b[i])
            err = kvf_fail(d, KVF_E_ARG,
                           "token %u has the id %.0f in trace 1 and %.0f in trace "
                           "%d: agreement compares gates on equal tokens",
                           i, a[i], b[i], k + 1);
    return err;
}

/* The traces must have the same tokens up to the last one compared: the gate value of a token
 * depends on the tokens before it. */
static int same_tokens(const struct data *x, const struct analyzer_args *args, int64_t end,
                       struct kvf_diag *d)
{
    int64_t T = kvf_n_steps(x->t[0]);
    double *ids = MEM_NEW(double, 2 * (size_t)end);
    int err = ids ? KVF_OK : KVF_E_NOMEM;
    for (int k = 1; !err && k < x->n_traces; k++) {
        int64_t other = kvf_n_steps(x->t[k]);
        err = same_ids(x, k, (uint32_t)(other < end ? other : end), ids, ids + end, d);
        if (!err && (other < end || (args->token1 < 0 && other != T)))
            err = kvf_fail(d, KVF_E_ARG,
                           "trace 1 has %lld tokens and trace %d has %lld: only one has token "
                           "%lld; both have the tokens '--tokens 0:%lld'",
                           (long long)T, k + 1, (long long)other,
                           (long long)(other < T ? other : T), (long long)(other < T ? other : T));
    }
    mem_free(ids);
    return err;
}

static int parse(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    const struct options *o = args->options;
    x->top = o->top;
    x->skip = o->skip;
    if (!(o->top > 0 && o->top <= 1))
        return kvf_fail(d, KVF_E_ARG, "--top needs a share above 0 and up to 1, not %g", o->top);
    return KVF_OK;
}

/* Checks the traces; sets heads and tokens. */
static int prepare(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    int64_t end = 0;
    int err = parse(x, args, d);
    for (int k = 0; !err && k < x->n_traces; k++)
        err = gate_column_need(x->t[k], &x->column[k], d);
    if (!err)
        err = tokens_select(x->t[0], args, &x->a, &end, d);
    if (!err)
        err = same_shape(x, d);
    if (!err)
        err = same_tokens(x, args, end, d);
    if (err)
        return err;
    x->a = x->a < x->skip ? x->skip : x->a;
    x->a = x->a > end ? end : x->a;
    x->n = end - x->a;
    x->n_pairs = x->n_traces * (x->n_traces - 1) / 2;
    return heads_select(x->t[0], KVF_SPACE_KV, args->heads, &x->heads, d);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {.t = traces, .n_traces = n_traces};
    struct table *out = NULL;
    int err = prepare(&x, args, d);
    if (err)
        goto done;
    out = table_create("agreement", x.n ? ((int64_t)x.heads.n + 1) * x.n_pairs : 0);
    err = out ? allocate(&x) : KVF_E_NOMEM;
    for (int h = 0; !err && x.n && h < x.heads.n; h++) {
        err = compare_head(&x, h, d);
        analyzer_tell(args, h + 1, x.heads.n);
    }
    if (!err)
        err = pool(&x);
    if (!err)
        err = build(&x, out, d);

done:
    release(&x);
    return table_deliver(out, err, ret_table);
}

/* For pair p and its row `all`: median of the heads that are defined, and the
 * least and the most of them.  Returns how many there are. */
static size_t describe_heads(const struct table *t, int64_t p, int64_t pairs, int64_t all,
                             double *v, struct buf *out)
{
    int rho = table_find(t, "rho"), head = table_find(t, "head");
    int64_t heads = all / pairs, least = -1, most = -1;
    char of[32] = "";
    size_t n = 0;
    for (int64_t r = p; r < all; r += pairs) {
        double x = table_real(t, rho, r);
        if (isnan(x))
            continue;
        v[n++] = x;
        least = least < 0 || x < table_real(t, rho, least) ? r : least;
        most = most < 0 || x > table_real(t, rho, most) ? r : most;
    }
    if ((int64_t)n < heads)
        snprintf(of, sizeof of, " of %lld", (long long)heads);
    buf_str(out, "rank correlation ");
    if (heads == 1 && n)
        buf_printf(out, "%.4f in %s\n", v[0], table_str(t, head, 0));
    else if (heads == 1)
        buf_printf(out, "undefined in %s\n", table_str(t, head, 0));
    else if (n == 0)
        buf_printf(out, "undefined in all %lld heads\n", (long long)heads);
    else
        buf_printf(out, "over %zu%s heads: median %.4f, mean %.4f; least %s %.4f, most %s %.4f\n",
                   n, of, stats_quantile(v, n, .5), table_real(t, rho, all),
                   table_str(t, head, least), table_real(t, rho, least), table_str(t, head, most),
                   table_real(t, rho, most));
    return n;
}

static void describe_pair(const struct table *t, int64_t p, int64_t pairs, double *v,
                          struct buf *out)
{
    int64_t heads = table_rows(t) / pairs - 1, all = heads * pairs + p;
    double over = table_row_real(t, all, "rho_over_heads");
    buf_printf(out, "traces %lld and %lld: ", (long long)table_row_int(t, all, "a"),
               (long long)table_row_int(t, all, "b"));
    if (describe_heads(t, p, pairs, all, v, out) == 0)
        return;
    buf_printf(out, "  top %.4g %%: overlap %.4f, by chance %.4f",
               100 * table_meta_real(t, "top", NAN), table_row_real(t, all, "overlap"),
               table_row_real(t, all, "chance"));
    if (heads > 1 && isnan(over)) /* one head needs no question */
        buf_str(out, "; which heads retain long: rank correlation undefined");
    else if (heads > 1)
        buf_printf(out, "; which heads retain long: rank correlation %.4f over %lld heads", over,
                   (long long)table_row_int(t, all, "heads"));
    double within = table_row_real(t, all, "rho_within_layers");
    if (!isnan(within))
        buf_printf(out, ", %.4f given the layer", within);
    buf_char(out, '\n');
}

static void describe(const struct table *t, struct buf *out)
{
    int64_t undefined = table_meta_int(t, "undefined", 0);
    int64_t rows = table_rows(t), pairs = 0;
    double *v = MEM_NEW(double, (size_t)rows);
    for (int k = 1; k <= MOST_TRACES; k++) {
        char key[24];
        snprintf(key, sizeof key, "trace_%d", k);
        if (table_meta(t, key))
            buf_printf(out, "trace %d: %s\n", k, table_meta(t, key));
    }
    if (rows == 0)
        buf_str(out, "no tokens\n");
    while (pairs < rows && strcmp(table_str(t, 0, pairs), table_str(t, 0, 0)) == 0)
        pairs++;
    for (int64_t p = 0; v && p < pairs; p++)
        describe_pair(t, p, pairs, v, out);
    if (undefined)
        buf_printf(out,
                   "undefined in %lld cases: fewer than two tokens, or all values of a head "
                   "are equal\n",
                   (long long)undefined);
    mem_free(v);
}

const struct analyzer an_agreement = {
    .name = "agreement",
    .summary = "agreement between the retention scores of different gates",
    .example = "kvfate retention --as agreement seed1.kvf seed2.kvf -o agreement.tsv",
    OPTIONS({OPT_REAL, 0, "top", offsetof(struct options, top), "P",
             "fraction of the tokens for which the overlap is counted, above 0 and up to 1", "0.1"},
            {OPT_INT, 0, "skip", offsetof(struct options, skip), "N", "skip the first N tokens",
             "0", .max = KVF_MAX_STEPS}),
    .min_traces = 2,
    COLUMNS({"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "one of the three"},
            {"write_gate", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "one of the three"},
            {"importance", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "one of the three"},
            {"tokens.id", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_ALWAYS, NULL}),
    .max_traces = MOST_TRACES,
    .run = run,
    .describe = describe,
};

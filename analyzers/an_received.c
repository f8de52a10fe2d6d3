/* an_received.c - the attention a_ti that chosen tokens i received from each later query t of
 * chosen query heads (WG-KV, Figure 3), with beta_i^(t - i) of its gate; with --spread how all
 * that was received spreads. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/common.h"
#include "analyzers/heads.h"
#include "analyzers/records.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/utf8.h"

/* ---- with m_gi the attention that token i received in query head g (mass.sum):
 *   shares   m_gi / sum_g m_gi
 *   tokens   of each token, how its mass spreads over the heads
 *   heads    of each head, how its mass spreads over the tokens
 * entropy H = -sum s ln s of the shares s, exp(H) that many equal parts. */

enum spread { SPREAD_SHARES, SPREAD_TOKENS, SPREAD_HEADS, N_SPREADS };

enum { BLOCK = 4096 }; /* tokens with masses of all heads in memory at once */

static const char *const spread_names[N_SPREADS] = {"shares", "tokens", "heads"};

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    int column, norm; /* norm -1: only weights */
    double *norms;    /* [T] of one head */
    int64_t a, n;     /* tokens a .. a + n - 1 */
    double part;
    int64_t undefined; /* rows without mass */
    int64_t bad;       /* masses that are NaN or below 0, taken for 0 */
};

/* The statistics of one vector of masses. */
struct spread_of {
    double sum, entropy, gini, top_share;
    int64_t top, needed; /* the place of the largest, or -1; how many carry the part */
};

static int down(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Of n values of 0 or more, sorted in place, the largest first: 0 = all equal, (n - 1) / n = one
 * has all; NaN when their sum is 0. */
static double gini(double *v, int64_t n)
{
    struct sum sum = {0}, weighted = {0};
    qsort(v, (size_t)n, sizeof *v, down);
    for (int64_t k = 0; k < n; k++) {
        sum_add(&sum, v[k]);
        sum_add(&weighted, (double)(n - 1 - 2 * k) * v[k]); /* the smallest has rank 1 */
    }
    double total = sum_get(&sum);
    return total > 0 ? sum_get(&weighted) / ((double)n * total) : NAN;
}

/* v is sorted. */
static struct spread_of spread_of(double *v, int64_t n, double part)
{
    struct spread_of s = {0, NAN, NAN, NAN, -1, 0};
    struct sum sum = {0}, plogp = {0}, upto = {0};
    for (int64_t k = 0; k < n; k++) {
        sum_add(&sum, v[k]);
        if (v[k] > 0 && (s.top < 0 || v[k] > v[s.top]))
            s.top = k;
    }
    s.sum = sum_get(&sum);
    if (!(s.sum > 0))
        return s;
    s.gini = gini(v, n);
    s.top_share = v[0] / s.sum;
    for (int64_t k = 0; k < n && v[k] > 0; k++) {
        double p = v[k] / s.sum;
        sum_add(&plogp, -p * log(p));
        if (sum_get(&upto) < part * s.sum)
            s.needed++;
        sum_add(&upto, v[k]);
    }
    s.entropy = fmax(sum_get(&plogp), 0);
    return s;
}

/* Masses of tokens a0 .. a0 + n - 1 of a head, without NaN or negative values. */
static int read_mass(struct data *x, int h, int64_t a0, int64_t n, double *out, struct kvf_diag *d)
{
    const struct head *q = &x->heads.head[h];
    int err = kvf_read_f64(x->t, x->column, q->layer, q->index, (uint32_t)a0, (uint32_t)n, out, d);
    if (!err && x->norm >= 0) /* which does not change with t: it is a factor of the sum */
        err = kvf_read_f64(x->t, x->norm, q->layer, q->index, (uint32_t)a0, (uint32_t)n, x->norms,
                           d);
    for (int64_t i = 0; !err && x->norm >= 0 && i < n; i++)
        out[i] *= x->norms[i];
    for (int64_t i = 0; !err && i < n; i++)
        if (!(out[i] >= 0)) {
            out[i] = 0;
            x->bad++;
        }
    return err;
}

static int of_shares(struct data *x, struct table *out, struct kvf_diag *d)
{
    size_t n = (size_t)x->n, heads = (size_t)x->heads.n;
    double *mass = MEM_NEW(double, (n * heads)), *share = MEM_NEW(double, (n * heads));
    double *sum = MEM_NEW(double, n);
    int err = mass && share && sum ? KVF_OK : KVF_E_NOMEM;
    for (size_t h = 0; !err && n && h < heads; h++) {
        err = read_mass(x, (int)h, x->a, x->n, mass + h * n, d);
        for (size_t i = 0; !err && i < n; i++)
            sum[i] += mass[h * n + i];
    }
    for (size_t r = 0; !err && r < n * heads; r++)
        share[r] = sum[r % n] > 0 ? mass[r] / sum[r % n] : NAN;
    for (size_t i = 0; !err && i < n; i++)
        x->undefined += !(sum[i] > 0);
    if (!err) {
        put_heads(out, &x->heads);
        table_affine(out, "token", "", x->a, 1, x->n);
        table_dense_real(out, "mass", "", mass);
        table_dense_real(out, "share", "", share);
    }
    mem_free_all(mass, share, sum);
    return err;
}

enum { ENTROPY, EFFECTIVE, GINI, TOP_SHARE, MASS, NEEDED_SHARE, N_REALS };
enum { TOP, NEEDED, ITEMS, FOLLOW, N_INTS };

/* Rows of one spread each. */
struct rows {
    double *real[N_REALS];
    int64_t *whole[N_INTS];
};

static int make_rows(struct rows *r, int64_t n)
{
    for (int k = 0; k < N_REALS; k++)
        r->real[k] = MEM_NEW(double, (size_t)n);
    for (int k = 0; k < N_INTS; k++)
        r->whole[k] = MEM_NEW(int64_t, (size_t)n);
    bool whole = true;
    for (int k = 0; k < N_REALS; k++)
        whole &= r->real[k] != NULL;
    for (int k = 0; k < N_INTS; k++)
        whole &= r->whole[k] != NULL;
    return whole ? KVF_OK : KVF_E_NOMEM;
}

static void free_rows(struct rows *r)
{
    for (int k = 0; k < N_REALS; k++)
        mem_free(r->real[k]);
    for (int k = 0; k < N_INTS; k++)
        mem_free(r->whole[k]);
}

static void put_row(struct data *x, struct rows *r, int64_t row, struct spread_of s, int64_t items)
{
    x->undefined += s.top < 0;
    r->real[ENTROPY][row] = s.entropy;
    r->real[EFFECTIVE][row] = exp(s.entropy);
    r->real[GINI][row] = s.gini;
    r->real[TOP_SHARE][row] = s.top_share;
    r->real[MASS][row] = s.sum;
    r->real[NEEDED_SHARE][row] = s.top < 0 ? NAN : (double)s.needed / (double)items;
    r->whole[TOP][row] = s.top;
    r->whole[NEEDED][row] = s.top < 0 ? -1 : s.needed;
    r->whole[ITEMS][row] = items;
}

static int fill_tokens(struct data *x, struct rows *r, struct kvf_diag *d)
{
    size_t heads = (size_t)x->heads.n;
    double *v = MEM_NEW(double, (heads * BLOCK)), *one = MEM_NEW(double, heads);
    int err = v && one ? KVF_OK : KVF_E_NOMEM;
    for (int64_t i0 = 0; !err && i0 < x->n; i0 += BLOCK) {
        int64_t m = x->n - i0 < BLOCK ? x->n - i0 : BLOCK;
        for (size_t h = 0; !err && h < heads; h++)
            err = read_mass(x, (int)h, x->a + i0, m, v + h * BLOCK, d);
        for (int64_t i = 0; !err && i < m; i++) {
            for (size_t h = 0; h < heads; h++)
                one[h] = v[h * BLOCK + (size_t)i];
            put_row(x, r, i0 + i, spread_of(one, (int64_t)heads, x->part), (int64_t)heads);
            r->whole[FOLLOW][i0 + i] = (int64_t)kvf_n_steps(x->t) - (x->a + i0 + i);
        }
    }
    mem_free_all(v, one);
    return err;
}

static int of_tokens(struct data *x, struct table *out, struct kvf_diag *d)
{
    struct rows r = {{0}, {0}};
    const char **top = MEM_NEW(const char *, (size_t)x->n);
    int err = top ? make_rows(&r, x->n) : KVF_E_NOMEM;
    if (!err)
        err = fill_tokens(x, &r, d);
    for (int64_t i = 0; !err && i < x->n; i++)
        top[i] = r.whole[TOP][i] < 0 ? "" : x->heads.name[r.whole[TOP][i]];
    if (!err) {
        table_affine(out, "token", "", x->a, 1, 0);
        table_dense_int(out, "queries", "", r.whole[FOLLOW]);
        table_dense_int(out, "heads", "", r.whole[ITEMS]);
        table_dense_real(out, "mass", "", r.real[MASS]);
        table_dense_real(out, "entropy", "nat", r.real[ENTROPY]);
        table_dense_real(out, "effective_heads", "", r.real[EFFECTIVE]);
        table_dense_real(out, "gini", "", r.real[GINI]);
        table_dense_str(out, "top_head", "", top);
        table_dense_real(out, "top_share", "", r.real[TOP_SHARE]);
        table_dense_int(out, "heads_needed", "", r.whole[NEEDED]);
        table_dense_real(out, "heads_share", "", r.real[NEEDED_SHARE]);
    }
    free_rows(&r);
    mem_free((void *)top);
    return err;
}

static int of_heads(struct data *x, struct table *out, struct kvf_diag *d)
{
    struct rows r = {{0}, {0}};
    double *v = MEM_NEW(double, (size_t)x->n);
    int err = v ? make_rows(&r, x->heads.n) : KVF_E_NOMEM;
    for (int h = 0; !err && h < x->heads.n; h++) {
        if (x->n)
            err = read_mass(x, h, x->a, x->n, v, d);
        put_row(x, &r, h, spread_of(v, x->n, x->part), x->n);
        r.whole[TOP][h] += r.whole[TOP][h] < 0 ? 0 : x->a;
    }
    if (!err) {
        put_heads(out, &x->heads);
        table_dense_int(out, "tokens", "", r.whole[ITEMS]);
        table_dense_real(out, "mass", "", r.real[MASS]);
        table_dense_real(out, "entropy", "nat", r.real[ENTROPY]);
        table_dense_real(out, "effective_tokens", "", r.real[EFFECTIVE]);
        table_dense_real(out, "gini", "", r.real[GINI]);
        table_dense_int(out, "top_token", "", r.whole[TOP]);
        table_dense_real(out, "top_share", "", r.real[TOP_SHARE]);
        table_dense_int(out, "tokens_needed", "", r.whole[NEEDED]);
        table_dense_real(out, "tokens_share", "", r.real[NEEDED_SHARE]);
    }
    free_rows(&r);
    mem_free(v);
    return err;
}

static int find_columns(struct data *x, bool contrib, struct kvf_diag *d)
{
    struct lacks l = {.n = 0};
    int err = columns_find(x->t, "mass.sum", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, &l, &x->column, d);
    if (!err && contrib)
        err = columns_find(x->t, "out_norm", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, &l, &x->norm, d);
    err = columns_refuse(&l, NULL, err, d);
    if (err || !contrib)
        return err;
    x->norms = MEM_NEW(double, (size_t)kvf_n_steps(x->t));
    return x->norms ? KVF_OK : KVF_E_NOMEM;
}

static int received_spread(struct kvf_trace *t, enum spread kind, double mass, bool contrib,
                           const struct analyzer_args *args, struct table **ret_table,
                           struct kvf_diag *d)
{
    static int (*const of[N_SPREADS])(struct data *, struct table *,
                                      struct kvf_diag *) = {of_shares, of_tokens, of_heads};
    struct data x = {.t = t, .part = mass, .norm = -1};
    struct table *out = NULL;
    int64_t b = 0;
    int err = find_columns(&x, contrib, d);
    if (!err)
        err = tokens_select(t, args, &x.a, &b, d);
    x.n = b - x.a;
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &x.heads, d);
    if (err)
        goto done;
    const int64_t rows[N_SPREADS] = {x.heads.n * x.n, x.n, x.heads.n};
    out = table_create("received", rows[kind]);
    err = out ? put_provenance(out, t, d) : KVF_E_NOMEM;
    if (err)
        goto done;
    table_meta_str(out, "spread", spread_names[kind]);
    table_meta_str(out, "weight", contrib ? "contrib" : "mass");
    put_tokens(out, x.a, b, kvf_n_steps(t));
    err = of[kind](&x, out, d);
    if (err)
        goto done;
    table_meta_num(out, "part", mass);
    table_meta_num(out, "undefined", (double)x.undefined);
    table_meta_num(out, "not_a_mass", (double)x.bad);
    err = table_err(out);

done:
    heads_free(&x.heads);
    mem_free(x.norms);
    return table_deliver(out, err, ret_table);
}

/* Median and ends of a column, NaN left out. */
static void describe_column(const struct table *t, const char *name, const char *text,
                            struct buf *out)
{
    int64_t n = 0, rows = table_rows(t);
    double *v = MEM_NEW(double, (size_t)rows);
    for (int64_t r = 0; v && r < rows; r++) {
        double x = table_row_real(t, r, name);
        if (!isnan(x))
            v[n++] = x;
    }
    if (n) {
        double median = stats_quantile(v, (size_t)n, .5); /* sorts */
        buf_printf(out, "  %-34s median %.4g, from %.4g to %.4g\n", text, median, v[0], v[n - 1]);
    }
    mem_free(v);
}

static void received_describe_spread(const struct table *t, struct buf *out)
{
    double part = 100 * table_meta_real(t, "part", NAN);
    char text[64];
    bool heads = strcmp(table_meta(t, "spread"), "heads") == 0;
    buf_printf(out, "attention received (%s), %s: %lld rows\n",
               strcmp(table_meta(t, "weight"), "contrib") == 0 ? "mass.sum |W_O v|" : "mass.sum",
               table_meta(t, "spread"), (long long)table_rows(t));
    if (strcmp(table_meta(t, "spread"), "shares") == 0) {
        describe_column(t, "share", "share of a token's mass", out);
    } else {
        snprintf(text, sizeof text, "share of %s with %g %% of it", heads ? "tokens" : "heads",
                 part);
        describe_column(t, heads ? "tokens_share" : "heads_share", text, out);
        describe_column(t, heads ? "effective_tokens" : "effective_heads",
                        heads ? "effective tokens, exp(entropy)" : "effective heads, exp(entropy)",
                        out);
        describe_column(t, "gini", "Gini coefficient", out);
        describe_column(t, "top_share", "share of the first", out);
    }
    if (table_meta_real(t, "undefined", 0) > 0)
        buf_printf(out, "undefined for %s without mass\n", table_meta(t, "undefined"));
    if (table_meta_real(t, "not_a_mass", 0) > 0)
        buf_printf(out, "%s values that are no mass count as 0\n", table_meta(t, "not_a_mass"));
}

enum { TEXT_MOST = 64 }; /* bytes of a token's text and a NUL */

static const char *const spread_options[] = {"none", "shares", "tokens", "heads", NULL};
static const char *const weights[] = {"mass", "contrib", NULL};
#define MASS 0.9 /* default */

struct options {
    bool cumulative;
    int64_t every;
    int spread; /* 0: none; else 1 + enum spread */
    double mass;
    int weight;
};

struct pair {
    int column, layer, head, token;
};

struct row {
    const char *head, *text;
    int64_t layer, index, token, step, seen;
    double attention, sum, retention;
};

struct pairs_data {
    struct kvf_trace *t;
    int64_t T, every, n_rows;
    struct pair *pair; /* [n] heads rising, tokens rising */
    int n;
    int64_t unborn, unseen, unknown;       /* pairs; steps */
    double *value;                         /* [T] of one column */
    char (*name)[32], (*shown)[TEXT_MOST]; /* [n] of the pairs */
    struct row *row;
};

static int compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer - y->layer;
    return x->head != y->head ? x->head - y->head : x->token - y->token;
}

/* "received.L10H19.383" */
static bool parse_name(const char *name, struct pair *p)
{
    int end = 0;
    return sscanf(name, "received.L%dH%d.%d%n", &p->layer, &p->head, &p->token, &end) == 3
           && !name[end] && p->layer >= 0 && p->head >= 0 && p->token >= 0;
}

/* The columns there are, of chosen heads and tokens. */
static int find_pairs(struct pairs_data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    int n_columns = kvf_n_columns(x->t), recorded = 0;
    int per_layer = kvf_n_layers(x->t) ? kvf_n_heads(x->t, 0, KVF_SPACE_QUERY) : 0;
    unsigned char *mask = NULL;
    int64_t a, b;
    x->pair = MEM_NEW(struct pair, (size_t)n_columns);
    int err = x->pair ? tokens_select(x->t, args, &a, &b, d) : KVF_E_NOMEM;
    if (!err)
        err = heads_mask(x->t, KVF_SPACE_QUERY, args->heads, &mask, d);
    for (int c = 0; !err && c < n_columns; c++) {
        const struct kvf_column *col = kvf_column(x->t, c);
        struct pair p = {.column = c};
        if (!parse_name(col->name, &p))
            continue;
        recorded++;
        if (col->space != KVF_SPACE_RUN || col->axis != KVF_AXIS_STEP
            || p.layer >= kvf_n_layers(x->t) || p.head >= per_layer)
            err = kvf_fail(d, KVF_E_FORMAT,
                           "the column %s must have a value for each step, and name a query head "
                           "of this trace",
                           col->name);
        else if (mask[p.layer * per_layer + p.head] && p.token >= x->T)
            x->unborn++;
        else if (mask[p.layer * per_layer + p.head] && p.token >= a && p.token < b)
            x->pair[x->n++] = p;
    }
    mem_free(mask);
    if (!err && !recorded)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "%s has no columns received.LxHy.i; record them with 'kvfate run "
                        "--watch TOKENS@HEADS' or kvfate.capture with watch=\"TOKENS@HEADS\", or "
                        "give kvfate import columns of these names "
                        "(or ask for --spread)",
                        kvf_path(x->t));
    if (!err && !x->n && x->T > 0 && !x->unborn)
        return kvf_fail(d, KVF_E_ARG,
                        "no pair of the %d recorded pairs is in the heads and tokens chosen",
                        recorded);
    qsort(x->pair, (size_t)x->n, sizeof *x->pair, compare);
    return err;
}

static int allocate(struct pairs_data *x)
{
    for (int k = 0; k < x->n; k++)
        x->n_rows += (x->T - x->pair[k].token + x->every - 1) / x->every;
    x->value = MEM_NEW(double, (size_t)x->T);
    x->name = mem_alloc((size_t)x->n, sizeof *x->name);
    x->shown = mem_alloc((size_t)x->n, sizeof *x->shown);
    x->row = MEM_NEW(struct row, (size_t)x->n_rows);
    return x->value && x->name && x->shown && x->row ? KVF_OK : KVF_E_NOMEM;
}

static void release(struct pairs_data *x)
{
    mem_free_all(x->pair, x->value, x->name, x->shown, x->row);
}

/* The token's text, cut at a character. */
static int show_text(const struct pairs_data *x, int k)
{
    struct buf b = {0};
    size_t len = 0;
    if (kvf_texts(x->t) != KVF_OK)
        return KVF_E_NOMEM;
    const char *s = kvf_token(x->t, (uint32_t)x->pair[k].token, &len);
    utf8_show(&b, s ? s : "", s ? len : 0);
    size_t n = b.data ? strlen(b.data) : 0;
    if (n >= TEXT_MOST)
        for (n = TEXT_MOST - 1; n > 0 && ((unsigned char)b.data[n] & 0xc0) == 0x80;)
            n--;
    if (n)
        memcpy(x->shown[k], b.data, n); /* the rest is 0 */
    int err = b.err;
    buf_finish(&b);
    return err;
}

/* log beta of a pair's entry in the KV head that its head reads; NaN without gates. */
static int gate_of(const struct pairs_data *x, const struct pair *p, double *ret,
                   struct kvf_diag *d)
{
    int column = kvf_find(x->t, "log_beta"), kv = kvf_n_heads(x->t, p->layer, KVF_SPACE_KV);
    int per = kv > 0 ? kvf_n_heads(x->t, p->layer, KVF_SPACE_QUERY) / kv : 0;
    *ret = NAN;
    if (column < 0 || per < 1)
        return KVF_OK;
    return kvf_read_f64(x->t, column, p->layer, p->head / per, (uint32_t)p->token, 1, ret, d);
}

static int take_pair(struct pairs_data *x, int k, int64_t *row, struct kvf_diag *d)
{
    const struct pair *p = &x->pair[k];
    uint32_t n = (uint32_t)(x->T - p->token);
    struct sum sum = {0};
    double log_beta = NAN;
    int err = kvf_read_f64(x->t, p->column, 0, 0, (uint32_t)p->token, n, x->value, d);
    if (!err)
        err = gate_of(x, p, &log_beta, d);
    snprintf(x->name[k], sizeof x->name[k], "L%dH%d", p->layer, p->head);
    err = err ? err : show_text(x, k);
    for (uint32_t i = 0; !err && i < n; i++) {
        double v = x->value[i];
        x->unseen += v < 0;
        x->unknown += isnan(v);
        if (v >= 0)
            sum_add(&sum, v);
        if (i % x->every)
            continue;
        x->row[(*row)++] = (struct row){.head = x->name[k],
                                        .text = x->shown[k],
                                        .layer = p->layer,
                                        .index = p->head,
                                        .token = p->token,
                                        .step = p->token + i,
                                        .attention = v >= 0 ? v : NAN,
                                        .seen = isnan(v) ? -1 : v >= 0,
                                        .sum = sum_get(&sum),
                                        .retention = exp(log_beta * i)};
    }
    return err;
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"head", "", TABLE_STR, AT(head)},     {"layer", "", TABLE_INT, AT(layer)},
    {"index", "", TABLE_INT, AT(index)},   {"token", "", TABLE_INT, AT(token)},
    {"step", "step", TABLE_INT, AT(step)}, {"attention", "", TABLE_REAL, AT(attention)},
    {"seen", "", TABLE_INT, AT(seen)},     {"cumulative", "", TABLE_REAL, AT(sum)},
    {"text", "", TABLE_STR, AT(text)},     {"retention", "", TABLE_REAL, AT(retention)},
};
enum { CUMULATIVE = 7, N_MEMBERS = sizeof members / sizeof *members };

static int build(const struct pairs_data *x, bool cumulative, struct table *out, struct kvf_diag *d)
{
    int err = put_provenance(out, x->t, d);
    if (!err)
        err = put_sampled(out, x->t, "received", d);
    if (err)
        return err;
    table_meta_num(out, "pairs", x->n);
    table_meta_num(out, "steps_unseen", (double)x->unseen);
    if (x->unknown)
        table_meta_num(out, "steps_unknown", (double)x->unknown);
    if (x->unborn)
        table_meta_num(out, "pairs_unborn", (double)x->unborn);
    if (cumulative)
        return records_put(out, x->row, sizeof *x->row, members, N_MEMBERS);
    err = records_put(out, x->row, sizeof *x->row, members, CUMULATIVE);
    return err ? err
               : records_put(out, x->row, sizeof *x->row, members + CUMULATIVE + 1,
                             N_MEMBERS - CUMULATIVE - 1);
}

static int run_steps(struct kvf_trace *t, const struct analyzer_args *args,
                     struct table **ret_table, struct kvf_diag *d)
{
    const struct options *o = args->options;
    struct pairs_data x = {.t = t, .T = kvf_n_steps(t), .every = o->every};
    struct table *out = NULL;
    int64_t row = 0;
    int err = find_pairs(&x, args, d);
    if (!err)
        err = allocate(&x);
    for (int k = 0; !err && k < x.n; k++) {
        err = take_pair(&x, k, &row, d);
        analyzer_tell(args, k + 1, x.n);
    }
    if (err)
        goto done;
    out = table_create("received", x.n_rows);
    err = out ? build(&x, o->cumulative, out, d) : KVF_E_NOMEM;

done:
    release(&x);
    return table_deliver(out, err, ret_table);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    const struct options *o = args->options;
    (void)n_traces;
    if (!(o->mass > 0) || o->mass > 1)
        return kvf_fail(d, KVF_E_ARG, "--mass needs a part above 0 and at most 1, not %g", o->mass);
    if (o->weight && !o->spread)
        return kvf_fail(d, KVF_E_ARG, "--weight contrib belongs to --spread");
    if (o->mass != MASS && !o->spread)
        return kvf_fail(d, KVF_E_ARG, "--mass belongs to --spread");
    if ((o->cumulative || o->every != 1) && o->spread)
        return kvf_fail(d, KVF_E_ARG,
                        "--cumulative and --every have no effect with --spread; leave them out");
    if (!o->spread)
        return run_steps(traces[0], args, ret_table, d);
    return received_spread(traces[0], (enum spread)(o->spread - 1), o->mass, o->weight == 1, args,
                           ret_table, d);
}

/* The attention that a pair received, for the rows from r on; returns the first row of the next. */
static int64_t describe_pair(const struct table *t, int64_t r, struct buf *out)
{
    int token = table_find(t, "token"), layer = table_find(t, "layer");
    int index = table_find(t, "index"), value = table_find(t, "attention");
    int64_t end = r, n = 0;
    double sum = 0, top = 0;
    for (; end < table_rows(t) && table_int(t, token, end) == table_int(t, token, r)
           && table_int(t, layer, end) == table_int(t, layer, r)
           && table_int(t, index, end) == table_int(t, index, r);
         end++) {
        double v = table_real(t, value, end);
        if (isnan(v))
            continue;
        n++;
        sum += v;
        top = v > top ? v : top;
    }
    if (out)
        buf_printf(out,
                   "  %-7s token %-6lld seen by %lld of %lld queries: mean %.4g, largest "
                   "%.4g\n",
                   table_row_str(t, r, "head"), (long long)table_int(t, token, r), (long long)n,
                   (long long)(end - r), n ? sum / (double)n : NAN, n ? top : NAN);
    return end;
}

static void describe(const struct table *t, struct buf *out)
{
    enum { MOST = 12 };
    int64_t r = 0, k = 0;
    if (table_meta(t, "spread")) {
        received_describe_spread(t, out);
        return;
    }
    buf_printf(out, "attention received by %s pairs of a query head and a token\n",
               table_meta(t, "pairs"));
    for (; r < table_rows(t); k++)
        r = describe_pair(t, r, k < MOST ? out : NULL);
    if (k > MOST)
        buf_printf(out, "  and %lld more\n", (long long)(k - MOST));
    if (table_meta(t, "pairs_unborn"))
        buf_printf(out, "%s pairs have a token that the run did not reach\n",
                   table_meta(t, "pairs_unborn"));
}

const struct analyzer an_received = {
    .name = "received",
    .summary = "attention that tokens receive from later queries",
    .example = "kvfate attention --as received run.kvf --spread heads -o received.tsv",
    OPTIONS({OPT_FLAG, 0, "cumulative", offsetof(struct options, cumulative), NULL,
             "add a column with the sum up to each step"},
            {OPT_INT, 0, "every", offsetof(struct options, every), "N",
             "every N-th step from birth on", "1", .min = 1, .max = KVF_MAX_STEPS},
            {OPT_WORD, 0, "spread", offsetof(struct options, spread), "KIND",
             "distribution of the received attention, from mass.sum", "none",
             .words = spread_options},
            {OPT_REAL, 0, "mass", offsetof(struct options, mass), "P",
             "part of the mass that --spread counts up to", OPT_TEXT(MASS)},
            {OPT_WORD, 0, "weight", offsetof(struct options, weight), "W",
             "of --spread; contrib: mass times |W_O v|", "mass", .words = weights}),
    COLUMNS(
        {"received.*", KVF_SPACE_RUN, KVF_AXIS_STEP, COLUMN_ASKED, "without --spread"},
        {"mass.sum", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "--spread"},
        {"out_norm", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "--spread --weight contrib"},
        {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS, "whether a query saw the entry"},
        {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS, "retention"}),
    .run = run,
    .describe = describe,
    /* Of --spread heads. */
    POOL(KEYS("head", "layer", "index"), {"tokens_share", "tokens_needed", "tokens"}, {"gini"},
         {"effective_tokens"}),
};

/* received_spread.c - with m_gi the attention that token i received in query head g (mass.sum):
 *   shares   m_gi / sum_g m_gi
 *   tokens   of each token, how its mass spreads over the heads
 *   heads    of each head, how its mass spreads over the tokens
 * entropy H = -sum s ln s of the shares s, exp(H) that many equal parts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/common.h"
#include "analyzers/received.h"
#include "base/mem.h"
#include "base/stats.h"

enum { BLOCK = 4096 }; /* tokens whose masses in all heads are held together */

const char *const spread_names[N_SPREADS] = {"shares", "tokens", "heads"};

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    int column, norm; /* norm -1: weights alone */
    double *norms;    /* [T] of one head */
    int64_t a, n;     /* tokens a .. a + n - 1 */
    double part;
    int64_t undefined; /* rows without mass */
    int64_t bad;       /* masses that are NaN or below 0, taken for 0 */
};

/* What is said of one vector of masses. */
struct spread_of {
    double sum, entropy, gini, top_share;
    int64_t top, needed; /* where the largest is, -1: nowhere; how many carry the part */
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

/* Masses of tokens a0 .. a0 + n - 1 of a head, none of them NaN or negative. */
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
    mem_free(mass);
    mem_free(share);
    mem_free(sum);
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
    mem_free(v);
    mem_free(one);
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

int received_spread(struct kvf_trace *t, enum spread kind, double mass, bool contrib,
                    const struct analyzer_args *args, struct table **ret_table, struct kvf_diag *d)
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
    if (!out) {
        err = KVF_E_NOMEM;
        goto done;
    }
    put_provenance(out, t);
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

void received_describe_spread(const struct table *t, struct buf *out)
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

/* fingerprint.c - the features of a head; fingerprint.h defines them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/fingerprint.h"
#include "base/mem.h"
#include "base/stats.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
enum { S = 4, N_AGES = 11, N_CRITERIA = 5, N_QUERIES = 6, N_PLACES = 8, N_QUANTILES = 7 };

static const int ages[N_AGES] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 384};
static const char *const criteria[N_CRITERIA] = {"top64", "top128", "mass.90", "mass.95",
                                                 "mass.99"};
static const int queries[N_QUERIES + 1] = {4, 16, 64, 128, 256, 512, 1024};
static const int places[N_PLACES + 1] = {0, 1, 4, 16, 64, 128, 256, 512, 1024};
static const double quantiles[N_QUANTILES] = {.05, .1, .25, .5, .75, .9, .95};
static const char *const of_steps[] = {"entropy", "lse"};
static const char *const of_mass[] = {"largest", "received", "width"};
static const char *const of_gates[] = {"log_beta", "write_gate", "importance", "key_norm"};
static const char *const of_group[] = {"mean", "least", "largest"};

_Static_assert(FINGERPRINT_QUERY
                   == N_CRITERIA * N_AGES + 4 * N_QUERIES + N_PLACES + 3 * N_QUANTILES,
               "features of a query head");
_Static_assert(FINGERPRINT_KV == 3 * FINGERPRINT_QUERY + 4 * N_QUANTILES + N_AGES,
               "features of a KV head");

/* ---- names, in the order in which the features are computed */

static void name_of_query(int k, char ret[FINGERPRINT_NAME])
{
    const size_t room = FINGERPRINT_NAME;
    if (k < N_CRITERIA * N_AGES) {
        snprintf(ret, room, "survival.%s.%d", criteria[k / N_AGES], ages[k % N_AGES]);
        return;
    }
    k -= N_CRITERIA * N_AGES;
    if (k < 4 * N_QUERIES) {
        int range = k / 2 % N_QUERIES;
        snprintf(ret, room, "%s.%s.%d-%d", of_steps[k / (2 * N_QUERIES)],
                 k % 2 ? "deviation" : "mean", queries[range], queries[range + 1]);
        return;
    }
    k -= 4 * N_QUERIES;
    if (k < N_PLACES) {
        snprintf(ret, room, "received.%d-%d", places[k], places[k + 1]);
        return;
    }
    k -= N_PLACES;
    snprintf(ret, room, "%s.q%g", of_mass[k % 3], quantiles[k / 3]);
}

void fingerprint_name(enum kvf_space space, int k, char ret[FINGERPRINT_NAME])
{
    const int grouped = 3 * FINGERPRINT_QUERY;
    if (space == KVF_SPACE_QUERY) {
        name_of_query(k, ret);
    } else if (k < grouped) {
        name_of_query(k / 3, ret);
        size_t n = strlen(ret);
        snprintf(ret + n, FINGERPRINT_NAME - n, ".%s", of_group[k % 3]);
    } else if (k < grouped + 4 * N_QUANTILES) {
        snprintf(ret, FINGERPRINT_NAME, "%s.q%g", of_gates[(k - grouped) / N_QUANTILES],
                 quantiles[(k - grouped) % N_QUANTILES]);
    } else {
        snprintf(ret, FINGERPRINT_NAME, "held.%d", ages[k - grouped - 4 * N_QUANTILES]);
    }
}

/* ---- numbers of one column */

/* The part of a text that is used, and room for columns of one head. */
struct text {
    struct kvf_trace *t;
    int64_t T, a, b;   /* tokens in all, and tokens that count */
    double *x, *y, *z; /* [T] each */
};

static int64_t larger(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

static int64_t smaller(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static void fill_nan(double *f, int n)
{
    for (int k = 0; k < n; k++)
        f[k] = NAN;
}

/* Share of the tokens S <= i < T - n with v[i] >= n (or, `past`, v[i] - i > n), for each age n. */
static void shares_by_age(const struct text *x, const double *v, bool past, double *f)
{
    for (int k = 0; k < N_AGES; k++) {
        int64_t n = 0, alive = 0, end = smaller(x->b, x->T - ages[k]);
        for (int64_t i = larger(S, x->a); i < end; i++) {
            alive += past ? v[i] - (double)i > ages[k] : v[i] >= ages[k];
            n++;
        }
        f[k] = n ? (double)alive / (double)n : NAN;
    }
}

/* The part of [from, to) that counts; false where the text does not reach its middle. */
static bool range_of(const struct text *x, int64_t from, int64_t to, int64_t *a, int64_t *b)
{
    *a = larger(from, x->a);
    *b = smaller(smaller(to, x->b), x->T);
    return x->T >= from + (to - from) / 2 && *a < *b;
}

static void mean_and_deviation(const double *v, int64_t a, int64_t b, double f[2])
{
    double mean = 0, squares = 0, n = (double)(b - a);
    for (int64_t i = a; i < b; i++)
        mean += v[i] / n;
    for (int64_t i = a; i < b; i++)
        squares += (v[i] - mean) * (v[i] - mean) / n;
    f[0] = mean;
    f[1] = sqrt(squares);
}

/* Quantile k of v[0..n), which is sorted by it, to f[k * stride]; NaN of no values. */
static void quantiles_of(double *v, int64_t n, bool logs, double *f, int stride)
{
    for (int k = 0; k < N_QUANTILES; k++) {
        double q = n > 0 ? stats_quantile(v, (size_t)n, quantiles[k]) : NAN;
        f[k * stride] = logs ? log(q + 1e-9) : q;
    }
}

/* ---- a query head */

static int read_ages(struct text *x, const struct head *h, double *f, struct kvf_diag *d)
{
    for (int c = 0; c < N_CRITERIA; c++) {
        char name[KVF_NAME_MAX + 1];
        snprintf(name, sizeof name, "last_selected.%s", criteria[c]);
        int column = kvf_find(x->t, name);
        if (column < 0)
            continue;
        int err = kvf_read_f64(x->t, column, h->layer, h->index, 0, (uint32_t)x->T, x->x, d);
        if (err)
            return err;
        shares_by_age(x, x->x, false, f + (ptrdiff_t)c * N_AGES);
    }
    return KVF_OK;
}

static int read_steps(struct text *x, const struct head *h, double *f, struct kvf_diag *d)
{
    for (int c = 0; c < COUNT(of_steps); c++) {
        int column = kvf_find(x->t, of_steps[c]);
        if (column < 0)
            continue;
        int err = kvf_read_f64(x->t, column, h->layer, h->index, 0, (uint32_t)x->T, x->x, d);
        if (err)
            return err;
        for (int k = 0; k < N_QUERIES; k++) {
            int64_t a, b;
            if (range_of(x, queries[k], queries[k + 1], &a, &b))
                mean_and_deviation(x->x, a, b, f + (ptrdiff_t)2 * (c * N_QUERIES + k));
        }
    }
    return KVF_OK;
}

/* Quantiles of the three of_mass, with the masses in x->x and the largest weights in x->y; both are
 * sorted by it. */
static void mass_quantiles(struct text *x, double *f)
{
    int64_t a = larger(S, x->a), all = smaller(x->b, x->T) - a;
    int64_t early = smaller(x->b, x->T - x->T / 8) - a;
    for (int64_t i = 0; i < early; i++)
        x->z[i] = x->x[a + i] / fmax(x->y[a + i], 1e-9);
    quantiles_of(x->y + a, all, true, f, 3);
    quantiles_of(x->x + a, early, true, f + 1, 3);
    quantiles_of(x->z, early, true, f + 2, 3);
}

static int read_mass(struct text *x, const struct head *h, double *f, struct kvf_diag *d)
{
    int sum = kvf_find(x->t, "mass.sum"), max = kvf_find(x->t, "mass.max"), err = KVF_OK;
    if (sum < 0 || max < 0)
        return KVF_OK;
    err = kvf_read_f64(x->t, sum, h->layer, h->index, 0, (uint32_t)x->T, x->x, d);
    if (!err)
        err = kvf_read_f64(x->t, max, h->layer, h->index, 0, (uint32_t)x->T, x->y, d);
    for (int k = 0; !err && k < N_PLACES; k++) {
        int64_t a, b;
        double both[2];
        if (!range_of(x, places[k], places[k + 1], &a, &b))
            continue;
        mean_and_deviation(x->x, a, b, both);
        f[k] = log(both[0] + 1e-9);
    }
    if (!err)
        mass_quantiles(x, f + N_PLACES);
    return err;
}

static int text_open(struct kvf_trace *t, int64_t a, int64_t b, struct text *ret)
{
    *ret = (struct text){.t = t, .T = kvf_n_steps(t), .a = a, .b = b};
    ret->x = MEM_NEW(double, (size_t)ret->T);
    ret->y = MEM_NEW(double, (size_t)ret->T);
    ret->z = MEM_NEW(double, (size_t)ret->T);
    return ret->x && ret->y && ret->z ? KVF_OK : KVF_E_NOMEM;
}

static void text_close(struct text *x)
{
    mem_free_all(x->x, x->y, x->z);
}

static void drop_infinite(double *f, int n)
{
    for (int k = 0; k < n; k++)
        if (isinf(f[k]))
            f[k] = NAN;
}

int fingerprint_query(struct kvf_trace *t, const struct head_list *heads, int64_t a, int64_t b,
                      double *f, struct kvf_diag *d)
{
    const int of_steps_at = N_CRITERIA * N_AGES, of_mass_at = of_steps_at + 4 * N_QUERIES;
    struct text x;
    int err = text_open(t, a, b, &x);
    for (int h = 0; !err && h < heads->n; h++) {
        double *to = f + (ptrdiff_t)h * FINGERPRINT_QUERY;
        fill_nan(to, FINGERPRINT_QUERY);
        err = read_ages(&x, &heads->head[h], to, d);
        if (!err)
            err = read_steps(&x, &heads->head[h], to + of_steps_at, d);
        if (!err)
            err = read_mass(&x, &heads->head[h], to + of_mass_at, d);
        drop_infinite(to, FINGERPRINT_QUERY);
    }
    text_close(&x);
    return err;
}

/* ---- a KV head */

/* The place in the list of the first query head of the group, which follow each other there, or -1
 * where the list lacks one; *ret_n: how many they are. */
static int group_of(const struct kvf_trace *t, const struct head_list *query, const struct head *kv,
                    int *ret_n)
{
    int G = kvf_n_heads(t, kv->layer, KVF_SPACE_QUERY), H = kvf_n_heads(t, kv->layer, KVF_SPACE_KV);
    int each = H && G >= H ? G / H : 0, n = 0, first = -1;
    for (int k = 0; k < query->n; k++) {
        const struct head *q = &query->head[k];
        if (each && q->layer == kv->layer && q->index / each == kv->index) {
            first = first < 0 ? k : first;
            n++;
        }
    }
    *ret_n = n;
    return each && n == each ? first : -1;
}

static void keep_head(struct head_list *l, int from)
{
    int k = l->n++;
    l->head[k] = l->head[from];
    l->layer[k] = l->layer[from];
    l->index[k] = l->index[from];
    l->name[k] = l->head[k].name;
}

int fingerprint_kv_heads(const struct kvf_trace *t, const struct head_list *query,
                         struct head_list *ret, struct kvf_diag *d)
{
    int members, err = heads_select(t, KVF_SPACE_KV, NULL, ret, d), all = ret->n;
    if (err)
        return err;
    ret->n = 0;
    for (int k = 0; k < all; k++)
        if (group_of(t, query, &ret->head[k], &members) >= 0)
            keep_head(ret, k);
    return KVF_OK;
}

static void join_group(const double *query, int n, double *f)
{
    for (int k = 0; k < FINGERPRINT_QUERY; k++) {
        double sum = 0, least = INFINITY, largest = -INFINITY;
        for (int g = 0; g < n; g++) {
            double v = query[(ptrdiff_t)g * FINGERPRINT_QUERY + k];
            sum += v;
            least = v < least ? v : least;
            largest = v > largest ? v : largest;
        }
        f[3 * k] = sum / n; /* NaN when one is, and then the rest does not count either */
        f[3 * k + 1] = isnan(sum) ? NAN : least;
        f[3 * k + 2] = isnan(sum) ? NAN : largest;
    }
}

static int read_kv(struct text *x, const struct head *h, double *f, struct kvf_diag *d)
{
    int64_t a = larger(S, x->a), n = smaller(x->b, x->T) - a, born = 0;
    for (int c = 0; c < COUNT(of_gates); c++) {
        int column = kvf_find(x->t, of_gates[c]);
        if (column < 0 || kvf_column(x->t, column)->space != KVF_SPACE_KV)
            continue;
        int err = kvf_read_f64(x->t, column, h->layer, h->index, 0, (uint32_t)x->T, x->x, d);
        if (err)
            return err;
        for (int64_t i = 0; i < n; i++)
            born += isnan(x->x[a + i]);
        if (born == 0)
            quantiles_of(x->x + a, n, false, f + (ptrdiff_t)c * N_QUANTILES, 1);
    }
    int evict = kvf_find(x->t, "evict_step");
    if (evict < 0)
        return KVF_OK;
    int err = read_evict(x->t, evict, h, (uint32_t)x->T, x->x, d);
    if (!err)
        shares_by_age(x, x->x, true, f + (ptrdiff_t)COUNT(of_gates) * N_QUANTILES);
    return err;
}

int fingerprint_kv(struct kvf_trace *t, const struct head_list *query_heads, const double *query,
                   const struct head_list *heads, int64_t a, int64_t b, double *f,
                   struct kvf_diag *d)
{
    struct text x;
    int err = text_open(t, a, b, &x);
    for (int h = 0; !err && h < heads->n; h++) {
        double *to = f + (ptrdiff_t)h * FINGERPRINT_KV;
        int members, first = group_of(t, query_heads, &heads->head[h], &members);
        fill_nan(to, FINGERPRINT_KV);
        join_group(query + (ptrdiff_t)first * FINGERPRINT_QUERY, members, to);
        err = read_kv(&x, &heads->head[h], to + (ptrdiff_t)3 * FINGERPRINT_QUERY, d);
        drop_infinite(to, FINGERPRINT_KV);
    }
    text_close(&x);
    return err;
}

/* corpus_pairs.c - paired differences between two corpora (corpus_pairs.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/room.h"
#include "studies/corpus_pairs.h"
#include "studies/corpus_rows.h"

static const size_t MOST_BYTES = (size_t)2 << 30;

struct corpus_pairs {
    const struct corpus *c;
    const uint64_t *id;
    size_t n;
    struct corpus keys; /* only rows: their order is that of corpus_table */
    double **value;     /* [rows][2 n] owned: of each of two corpora; NaN: none */
    size_t cap;
};

int pairs_create(const struct corpus *c, const uint64_t *id, size_t n, struct corpus_pairs **ret)
{
    struct corpus_pairs *p = MEM_NEW(struct corpus_pairs, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->c = c;
    p->id = id;
    p->n = n;
    p->keys.a = c->a;
    p->keys.n_keys = c->n_keys;
    p->keys.rows.stride = 1;
    *ret = p;
    return KVF_OK;
}

void pairs_destroy(struct corpus_pairs *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->keys.rows.n; i++)
        mem_free(p->value[i]);
    mem_free(p->value);
    rows_finish(&p->keys.rows);
    mem_free(p);
}

static int row_of(struct corpus_pairs *p, const char *key, size_t len, size_t *ret,
                  struct kvf_diag *d)
{
    struct rows *rows = &p->keys.rows;
    size_t before = rows->n;
    if (!mem_room(&p->value, before, &p->cap, 256, sizeof *p->value))
        return KVF_E_NOMEM;
    int err = rows_put(rows, key, len, ret);
    if (err || rows->n == before)
        return err;
    p->value[*ret] = NULL; /* pairs_destroy looks at it */
    if (rows->n > MOST_BYTES / sizeof(double) / 2 / (p->n + 1))
        return kvf_fail(d, KVF_E_LIMIT,
                        "the values of %zu documents in more than %zu rows need "
                        "over 2 GiB: ask for fewer rows",
                        p->n, rows->n - 1);
    double *v = MEM_NEW(double, 2 * p->n);
    if (!v)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < 2 * p->n; i++)
        v[i] = NAN;
    p->value[*ret] = v;
    return KVF_OK;
}

/* The first measure of one row of one document. */
static double value_of(const struct corpus *c, const int64_t *v)
{
    double whole = (double)v[WORD_A];
    if (v[WORD_N] == 0)
        return NAN;
    if (measure_kind(&c->a->pool->measures[0]) == MEASURE_QUOTIENT)
        return whole / (double)v[WORD_B];
    return (whole + ldexp((double)v[WORD_B], -CORPUS_FRACTION_BITS)) / (double)v[WORD_C];
}

int pairs_add(struct corpus_pairs *p, size_t i, const struct corpus_document *a,
              const struct corpus_document *b, struct kvf_diag *d)
{
    const struct corpus_document *const both[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        const struct corpus_document *x = both[k];
        for (size_t r = 0; r < x->rows.n; r++) {
            const struct row *row = &x->rows.row[r];
            size_t at;
            if (!row->interval || !rows_has(&x->rows, r))
                continue;
            int err = row_of(p, x->rows.key.data + row->key_at, row->key_len, &at, d);
            if (err)
                return err;
            p->value[at][(size_t)k * p->n + i] = value_of(p->c, rows_sum(&x->rows, r));
        }
        for (int t = 0; x->entry.traces && t < CORPUS_MOST_KEYS; t++)
            p->keys.type[t] = x->type[t];
    }
    return KVF_OK;
}

/* ---- the table */

enum { FIRST, SECOND, DIFFERENCE, LOW, HIGH, P, Q, N_REALS };
static const char *const names[N_REALS] = {"first", "second", "difference", "low",
                                           "high",  "p",      "q"};

struct result { /* rows in the order of the table */
    uint32_t *order;
    size_t n;
    double *real[N_REALS];
    int64_t *documents, *whole;
    const char **text;
    double *difference, *means; /* scratch: [documents], [replicates] */
    size_t *of;                 /* [documents] of the differences */
    uint8_t *weight;            /* [replicates][documents] */
};

/* The interval of the mean of n differences: of few by Student's t, of more by weighted means with
 * the weights that a corpus gives its documents. */
static void interval_of(const struct corpus_pairs *p, struct result *r, size_t n, double *low,
                        double *high)
{
    size_t known = 0;
    *low = *high = NAN;
    if (n < STATS_LEAST || p->c->set.replicates == 0)
        return;
    if (n < STATS_FEW) {
        stats_t_interval(r->difference, n, low, high);
        return;
    }
    for (int k = 0; k < p->c->set.replicates; k++) {
        struct sum s = {0};
        int64_t weights = 0;
        for (size_t i = 0; i < n; i++) {
            int w = r->weight[(size_t)k * p->n + r->of[i]];
            sum_add(&s, w * r->difference[i]);
            weights += w;
        }
        if (weights)
            r->means[known++] = sum_get(&s) / (double)weights;
    }
    if (known) {
        *low = stats_quantile(r->means, known, stats_tail(n));
        *high = stats_quantile(r->means, known, 1 - stats_tail(n));
    }
}

static void compare(const struct corpus_pairs *p, struct result *r, size_t at)
{
    const double *a = p->value[r->order[at]], *b = a + p->n;
    struct sum sa = {0}, sb = {0};
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (isnan(a[i]) || isnan(b[i]))
            continue;
        sum_add(&sa, a[i]);
        sum_add(&sb, b[i]);
        r->of[n] = i;
        r->difference[n++] = a[i] - b[i];
    }
    r->documents[at] = (int64_t)n;
    r->real[FIRST][at] = n ? sum_get(&sa) / (double)n : NAN;
    r->real[SECOND][at] = n ? sum_get(&sb) / (double)n : NAN;
    r->real[DIFFERENCE][at] = stats_mean(r->difference, n);
    r->real[P][at] = stats_sign_flips(r->difference, n, PAIRS_SAMPLES, p->c->set.seed);
    interval_of(p, r, n, &r->real[LOW][at], &r->real[HIGH][at]);
}

/* The name of the family of a row: its keys except the keys of the head; `all` is one apart. */
static void put_family(const struct corpus_pairs *p, uint32_t row, struct buf *b)
{
    const char *s = p->keys.rows.key.data + p->keys.rows.row[row].key_at;
    for (int k = 0; k < p->c->n_keys; k++, s += strlen(s) + 1) {
        const char *key = p->c->a->pool->keys[k];
        bool head = strcmp(key, "head") == 0;
        bool place = strcmp(key, "layer") == 0 || strcmp(key, "index") == 0;
        const char *text = place || (head && strcmp(s, "all") != 0) ? "" : s;
        buf_add(b, text, strlen(text) + 1);
    }
}

/* q over the heads of each family: of its p in a list of their own. */
static int put_q(const struct corpus_pairs *p, struct result *r)
{
    struct rows family = {.stride = 1};
    size_t *of = MEM_NEW(size_t, r->n);
    double *v = MEM_NEW(double, r->n);
    struct buf key = {0};
    int err = KVF_E_NOMEM;
    if (!of || !v)
        goto done;
    for (size_t i = 0; i < r->n; i++) {
        buf_clear(&key);
        put_family(p, r->order[i], &key);
        err = key.err ? key.err : rows_put(&family, key.data, key.len, &of[i]);
        if (err)
            goto done;
    }
    for (size_t f = 0; f < family.n; f++) {
        size_t m = 0;
        for (size_t i = 0; i < r->n; i++)
            if (of[i] == f)
                v[m++] = r->real[P][i];
        err = stats_fdr(v, m, v);
        if (err)
            goto done;
        m = 0;
        for (size_t i = 0; i < r->n; i++)
            if (of[i] == f)
                r->real[Q][i] = v[m++];
    }
    err = KVF_OK;

done:
    rows_finish(&family);
    buf_finish(&key);
    mem_free_all(of, v);
    return err;
}

static void put_keys(const struct corpus_pairs *p, struct result *r, struct table *t)
{
    for (int k = 0; k < p->c->n_keys; k++) {
        const char *name = p->c->a->pool->keys[k];
        for (size_t i = 0; i < r->n; i++) {
            const char *s = p->keys.rows.key.data + p->keys.rows.row[r->order[i]].key_at;
            for (int j = 0; j < k; j++)
                s += strlen(s) + 1;
            r->text[i] = s;
            r->whole[i] = p->keys.type[k] == 'i' ? strtoll(s, NULL, 10) : 0;
        }
        if (p->keys.type[k] == 'i')
            table_dense_int(t, name, "", r->whole);
        else
            table_dense_str(t, name, "", r->text);
    }
}

static int alloc_result(const struct corpus_pairs *p, struct result *r)
{
    size_t n = p->keys.rows.n;
    bool ok = (r->order = corpus_order(&p->keys)) != NULL;
    r->n = n;
    for (int k = 0; k < N_REALS; k++)
        ok &= (r->real[k] = MEM_NEW(double, n)) != NULL;
    ok &= (r->documents = MEM_NEW(int64_t, n)) != NULL;
    ok &= (r->whole = MEM_NEW(int64_t, n)) != NULL;
    ok &= (r->text = MEM_NEW(const char *, n)) != NULL;
    ok &= (r->difference = MEM_NEW(double, p->n)) != NULL;
    ok &= (r->means = MEM_NEW(double, (size_t)p->c->set.replicates)) != NULL;
    ok &= (r->of = MEM_NEW(size_t, p->n)) != NULL;
    ok &= (r->weight = mem_alloc((size_t)p->c->set.replicates, p->n)) != NULL;
    for (int k = 0; ok && k < p->c->set.replicates; k++)
        for (size_t i = 0; i < p->n; i++)
            r->weight[(size_t)k * p->n + i] = (uint8_t)rng_poisson1(
                rng_hash(p->c->set.seed, p->id[i], (uint64_t)k, 0));
    return ok ? KVF_OK : KVF_E_NOMEM;
}

static void free_result(struct result *r)
{
    for (int k = 0; k < N_REALS; k++)
        mem_free(r->real[k]);
    void *const rest[] = {r->order,      r->documents, r->whole, (void *)r->text,
                          r->difference, r->means,     r->of,    r->weight};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        mem_free(rest[i]);
}

int pairs_table(const struct corpus_pairs *p, struct table **ret)
{
    struct result r = {0};
    struct table *t = table_create("differences", (int64_t)p->keys.rows.n);
    int err = t ? alloc_result(p, &r) : KVF_E_NOMEM;
    if (err)
        goto done;
    for (size_t i = 0; i < r.n; i++)
        compare(p, &r, i);
    err = put_q(p, &r);
    if (err)
        goto done;
    table_meta_str(t, "analysis", p->c->a->name);
    table_meta_str(t, "value", p->c->a->pool->measures[0].value);
    table_meta_num(t, "documents", (double)p->n);
    table_meta_num(t, "replicates", p->c->set.replicates);
    table_meta_num(t, "seed", (double)p->c->set.seed);
    table_meta_num(t, "sign_patterns",
                   p->n > STATS_ALL_SIGNS ? PAIRS_SAMPLES : ldexp(1, (int)p->n));
    put_keys(p, &r, t);
    for (int k = 0; k < N_REALS; k++)
        table_dense_real(t, names[k], "", r.real[k]);
    table_dense_int(t, "documents", "", r.documents);
    err = table_err(t);
    if (err)
        goto done;
    *ret = t;
    t = NULL;

done:
    free_result(&r);
    table_destroy(t);
    return err;
}

void pairs_describe(const struct table *t, struct buf *out)
{
    int q = table_find(t, "q"), p = table_find(t, "p");
    int64_t low = 0, found = 0;
    for (int64_t r = 0; r < table_rows(t); r++) {
        low += table_real(t, p, r) <= 0.05;
        found += table_real(t, q, r) <= 0.05;
    }
    buf_printf(out,
               "%s (%s) of %s documents in both: %lld rows, %lld with p <= 0.05, %lld with "
               "q <= 0.05\n",
               table_meta(t, "analysis"), table_meta(t, "value"), table_meta(t, "documents"),
               (long long)table_rows(t), (long long)low, (long long)found);
}

/* corpus_table.c - the sums as a table, with intervals over documents. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/selected.h"
#include "base/mem.h"
#include "base/order.h"
#include "studies/corpus_view.h"

/* ---- the order of the rows */

static int compare_numbers(const char *a, const char *b)
{
    double x = strtod(a, NULL), y = strtod(b, NULL);
    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x > y) - (x < y);
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* L2H1 before L10H0: runs of digits as numbers. */
static int compare_texts(const char *a, const char *b)
{
    while (*a && *b) {
        if (digit(*a) && digit(*b)) {
            while (*a == '0')
                a++;
            while (*b == '0')
                b++;
            size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
            int order = n != m ? (n > m) - (n < m) : memcmp(a, b, n);
            if (order)
                return order;
            a += n;
            b += m;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (*a != 0) - (*b != 0);
}

struct place {
    const struct corpus *c;
    uint32_t row;
};

static int by_key(const void *a, const void *b)
{
    const struct corpus *c = ((const struct place *)a)->c;
    const struct row *rx = &c->rows.row[((const struct place *)a)->row];
    const struct row *ry = &c->rows.row[((const struct place *)b)->row];
    const char *x = c->rows.key.data + rx->key_at, *y = c->rows.key.data + ry->key_at;
    for (int k = 0; k < c->n_keys; k++) {
        int order = strcmp(c->a->pool->keys[k], "criterion") == 0 ? criterion_compare(x, y) : 0;
        if (!order)
            order = c->type[k] == 's' ? compare_texts(x, y) : compare_numbers(x, y);
        if (!order)
            order = strcmp(x, y);
        if (order)
            return order;
        x += strlen(x) + 1;
        y += strlen(y) + 1;
    }
    return 0;
}

uint32_t *corpus_order(const struct corpus *c)
{
    struct place *place = MEM_NEW(struct place, c->rows.n);
    uint32_t *order = MEM_NEW(uint32_t, c->rows.n);
    for (size_t i = 0; place && order && i < c->rows.n; i++)
        place[i] = (struct place){c, (uint32_t)i};
    if (place && order) {
        qsort(place, c->rows.n, sizeof *place, by_key);
        for (size_t i = 0; i < c->rows.n; i++)
            order[i] = place[i].row;
    } else {
        mem_free(order);
        order = NULL;
    }
    mem_free(place);
    return order;
}

/* ---- columns */

struct build {
    const struct corpus *c;
    const uint32_t *order;
    struct table *out;
    int64_t *whole;
    double *real, *low, *high, *scratch;
    const char **text;
    int64_t undefined; /* replicates without a value */
};

static void put_keys(struct build *b)
{
    const struct corpus *c = b->c;
    for (int k = 0; k < c->n_keys; k++) {
        const char *name = c->a->pool->keys[k];
        for (size_t i = 0; i < c->rows.n; i++) {
            const char *s = corpus_field(c, b->order[i], k);
            b->text[i] = s;
            b->whole[i] = c->type[k] == 'i' ? strtoll(s, NULL, 10) : 0;
            b->real[i] = c->type[k] == 'r' ? strtod(s, NULL) : 0;
        }
        if (c->type[k] == 'i')
            table_dense_int(b->out, name, "", b->whole);
        else if (c->type[k] == 'r')
            table_dense_real(b->out, name, "", b->real);
        else
            table_dense_str(b->out, name, "", b->text);
    }
}

static void put_word(struct build *b, int m, int word, const char *name)
{
    if (table_find(b->out, name) >= 0) /* a denominator that another measure has, too */
        return;
    for (size_t i = 0; i < b->c->rows.n; i++)
        b->whole[i] = corpus_view(b->c, b->order[i], m).sum[word];
    table_dense_int(b->out, name, "", b->whole);
}

static void put_half_life(struct build *b, const char *name, const double *half)
{
    static const char *const ends[] = {"", "_low", "_high", "_over"};
    size_t n = b->c->rows.n;
    char full[96];
    for (int k = 0; k < 4; k++) {
        snprintf(full, sizeof full, "%s%s", name, ends[k]);
        for (size_t i = 0; k == 3 && i < n; i++)
            b->whole[i] = (int64_t)half[3 * n + i];
        if (k == 3)
            table_dense_int(b->out, full, "", b->whole);
        else
            table_dense_real(b->out, full, "", half + (size_t)k * n);
    }
}

/* ---- measures */

static void find_values(struct build *b, int m)
{
    for (size_t i = 0; i < b->c->rows.n; i++) {
        struct view v = corpus_view(b->c, b->order[i], m);
        b->real[i] = view_value(&v);
        b->undefined += view_interval(&v, b->scratch, &b->low[i], &b->high[i]);
    }
}

/* Returns true if a document has a value of the measure. */
static bool has_values(const struct build *b, int m)
{
    int64_t n = 0;
    for (size_t i = 0; i < b->c->rows.n; i++)
        n += corpus_view(b->c, b->order[i], m).sum[WORD_N];
    return n > 0;
}

static int put_measure(struct build *b, int m)
{
    const struct analyzer_measure *p = &b->c->a->pool->measures[m];
    if (p->optional && !has_values(b, m))
        return KVF_OK;
    static const char *const ends[] = {"low", "high", "documents", "sum"};
    char name[4][96];
    for (int k = 0; k < 4; k++) { /* the first measure's are plain, unless a key has the name */
        bool plain = m == 0 && k != 3 && table_find(b->out, ends[k]) < 0;
        snprintf(name[k], sizeof name[k], "%s%s%s", plain ? "" : p->value, plain ? "" : "_",
                 ends[k]);
    }
    double *half = p->product ? MEM_NEW(double, 4 * b->c->rows.n) : NULL;
    if (p->product && !half)
        return KVF_E_NOMEM;
    int err = KVF_OK;
    if (p->product)
        err = curve_values(&(struct curves){b->c, b->order, m, b->real, b->low, b->high, half},
                           b->scratch, &b->undefined);
    else
        find_values(b, m);
    if (err) {
        mem_free(half);
        return err;
    }
    table_dense_real(b->out, p->value, "", b->real);
    table_dense_real(b->out, name[0], "", b->low);
    table_dense_real(b->out, name[1], "", b->high);
    put_word(b, m, WORD_N, name[2]);
    if (measure_kind(p) == MEASURE_QUOTIENT) {
        put_word(b, m, WORD_A, p->numerator);
        put_word(b, m, WORD_B, p->denominator);
        if (half && p->half_life)
            put_half_life(b, p->half_life, half);
        mem_free(half);
        return KVF_OK;
    }
    for (size_t i = 0; i < b->c->rows.n; i++) {
        struct view v = corpus_view(b->c, b->order[i], m);
        b->real[i] = view_real_sum(&v);
    }
    table_dense_real(b->out, name[3], "", b->real);
    if (measure_kind(p) == MEASURE_WEIGHTED)
        put_word(b, m, WORD_C, p->denominator);
    return KVF_OK;
}

/* ---- metadata */

/* Metadata that all tables share; metadata of some tables, with their number; the keys that
 * differ. */
static int put_common(const struct corpus *c, struct table *out)
{
    struct buf differ = {0}, text = {0};
    for (int i = 0; i < c->n_meta; i++) {
        const struct corpus_meta *m = &c->meta[i];
        if (!m->value) {
            buf_printf(&differ, "%s%s", differ.len ? ", " : "", m->key);
        } else if (m->n == c->tables) {
            table_meta_str(out, m->key, m->value);
        } else {
            buf_clear(&text);
            buf_printf(&text, "%s (%llu of %llu traces)", m->value, (unsigned long long)m->n,
                       (unsigned long long)c->tables);
            table_meta_str(out, m->key, text.err ? "" : text.data);
        }
    }
    if (differ.len)
        table_meta_str(out, "differ", differ.err ? "" : differ.data);
    int err = differ.err ? differ.err : text.err;
    buf_finish(&differ);
    buf_finish(&text);
    return err;
}

static int put_meta(struct corpus *c, struct table *out, int64_t undefined)
{
    struct corpus_count n = corpus_counted(c);
    if (c->n_meta)
        qsort(c->meta, (size_t)c->n_meta, sizeof *c->meta, order_text);
    int err = put_common(c, out);
    if (c->most_T >= 0) {
        table_meta_num(out, "T", (double)c->most_T);
        table_meta_num(out, "T_least", (double)c->least_T);
    }
    table_meta_num(out, "documents", (double)n.counted);
    table_meta_num(out, "traces", (double)n.traces);
    table_meta_num(out, "traces_left_out", (double)n.missed + (double)c->plan.unreadable);
    table_meta_num(out, "values_undefined", (double)c->undefined);
    table_meta_str(out, "interval",
                   "95 % over documents: Student's t (jackknife) for 4 to 9 documents, for more a "
                   "Poisson bootstrap with expanded percentiles; none for fewer than 4");
    table_meta_num(out, "replicates", c->set.replicates);
    table_meta_num(out, "replicates_undefined", (double)undefined);
    table_meta_num(out, "seed", (double)c->set.seed);
    return err;
}

static int fill(struct build *b)
{
    const struct corpus *c = b->c;
    size_t n = c->rows.n;
    b->whole = MEM_NEW(int64_t, n);
    b->real = MEM_NEW(double, n);
    b->low = MEM_NEW(double, n);
    b->high = MEM_NEW(double, n);
    b->scratch = MEM_NEW(double, (size_t)c->set.replicates);
    b->text = MEM_NEW(const char *, n);
    if (!b->whole || !b->real || !b->low || !b->high || !b->scratch || !b->text)
        return KVF_E_NOMEM;
    put_keys(b);
    int err = KVF_OK;
    for (int m = 0; !err && m < c->n_measures; m++)
        err = put_measure(b, m);
    return err ? err : table_err(b->out);
}

int corpus_table(struct corpus *c, struct table **ret, struct kvf_diag *d)
{
    uint32_t *order = corpus_order(c);
    struct build b = {.c = c, .order = order, .out = table_create(c->a->name, (int64_t)c->rows.n)};
    (void)d;
    int err = order && b.out ? fill(&b) : KVF_E_NOMEM;
    if (!err)
        err = put_meta(c, b.out, b.undefined);
    if (!err)
        err = table_err(b.out);
    if (err)
        goto done;
    *ret = b.out;
    b.out = NULL;

done:
    table_destroy(b.out);
    void *const all[] = {order, b.whole, b.real, b.low, b.high, b.scratch, (void *)b.text};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    return err;
}

/* ---- for people */

static void describe_row(const struct corpus *c, const struct table *t, int64_t r, struct buf *out)
{
    const char *value = c->a->pool->measures[0].value;
    buf_str(out, " ");
    for (int k = 0; k < c->n_keys; k++) {
        const char *name = c->a->pool->keys[k];
        if (c->type[k] == 's')
            buf_printf(out, " %s", table_str(t, k, r));
        else if (strcmp(name, "layer") != 0 && strcmp(name, "index") != 0)
            buf_printf(out, " %s %g", name, table_real(t, k, r));
    }
    int at = table_find(t, value); /* its interval follows */
    buf_printf(out, ": %s %.4f", value, table_real(t, at, r));
    if (!isnan(table_real(t, at + 1, r)))
        buf_printf(out, " (%.4f to %.4f)", table_real(t, at + 1, r), table_real(t, at + 2, r));
    buf_printf(out, ", n = %lld\n", (long long)table_int(t, at + 3, r));
}

void corpus_describe(const struct corpus *c, const struct table *t, struct buf *out)
{
    enum { MOST_SHOWN = 12 };
    struct corpus_count n = corpus_counted(c);
    int64_t with = 0, shown = 0;
    int low = table_find(t, c->a->pool->measures[0].value) + 1;
    buf_printf(out, "%s of %lld documents (%lld traces): %lld rows\n", c->a->name,
               (long long)n.counted, (long long)n.traces, (long long)table_rows(t));
    for (int64_t r = 0; r < table_rows(t); r++)
        with += !isnan(table_real(t, low, r));
    int64_t every = with / MOST_SHOWN + 1, at = 0;
    for (int64_t r = 0; r < table_rows(t) && shown < MOST_SHOWN; r++)
        if (!isnan(table_real(t, low, r)) && at++ % every == 0) {
            describe_row(c, t, r, out);
            shown++;
        }
    if (shown < with)
        buf_printf(out, "  ... %lld rows more with intervals\n", (long long)(with - shown));
}

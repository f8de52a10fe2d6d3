/* table_minus.c - matches the rows of two tables and subtracts them. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"
#include "cli/table_minus.h"

/* Columns that identify a row. */
static const char *const key_names[] = {"head",      "layer",   "index",      "kind",
                                        "criterion", "horizon", "event",      "source",
                                        "factor",    "age",     "denominator"};
enum { KEYS = sizeof key_names / sizeof *key_names };

/* A row and its key. */
struct keyed {
    const char *key; /* pointer into the text of the side, set when that text is complete */
    size_t at;
    int64_t row;
};

/* The selected rows of a table, by key. */
struct side {
    const struct table *t;
    int value;
    struct buf text;
    struct keyed *row; /* [n] */
    int64_t n;
};

static void put_cell(struct buf *b, const struct table *t, int col, int64_t row)
{
    if (table_col_type(t, col) == TABLE_STR)
        buf_str(b, table_str(t, col, row));
    else
        buf_printf(b, "%.17g", table_real(t, col, row));
}

static bool chosen(const struct table *t, int64_t row, const char *where)
{
    char key[64], value[64];
    struct buf cell = {0};
    bool same = true;
    while (same && where && opt_pair(&where, key, value, sizeof key) == 1) {
        double number;
        int col = table_find(t, key);
        buf_clear(&cell);
        put_cell(&cell, t, col, row);
        same = cell.data && strcmp(cell.data, value) == 0;
        if (!same && table_col_type(t, col) != TABLE_STR && opt_real(value, &number))
            same = table_real(t, col, row) == number;
    }
    buf_finish(&cell);
    return same;
}

/* Sets the message for a selection that matches no row. If a value is missing, it names the
 * nearest value in the table. */
static int none_chosen(const struct table *t, const char *where, struct kvf_diag *d)
{
    char key[64], value[64];
    while (where && opt_pair(&where, key, value, sizeof key) == 1) {
        double number, other;
        int col = table_find(t, key);
        if (table_col_type(t, col) == TABLE_STR || !opt_real(value, &number))
            continue;
        other = table_nearest(t, col, number);
        if (!isnan(other) && other != number)
            return kvf_fail(d, KVF_E_ARG, "--style: table %s has no %s=%s; the nearest is %g",
                            table_name(t), key, value, other);
    }
    return kvf_fail(d, KVF_E_ARG, "--style: no row of table %s is as chosen", table_name(t));
}

static int check_where(const struct table *t, const char *where, struct kvf_diag *d)
{
    char key[64], value[64];
    int more = where ? opt_pair(&where, key, value, sizeof key) : 0;
    for (; more == 1; more = opt_pair(&where, key, value, sizeof key))
        if (table_find(t, key) < 0)
            return kvf_fail(d, KVF_E_ARG, "--style %s=%s: the table has no column '%s'", key, value,
                            key);
    return more < 0 ? kvf_fail(d, KVF_E_ARG, "--style needs key=value pairs") : KVF_OK;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct keyed *)a)->key, ((const struct keyed *)b)->key);
}

static int collect(struct side *s, const struct table *t, const struct table_minus *q,
                   struct kvf_diag *d)
{
    int layer = table_find(t, "layer"), err = check_where(t, q->where, d);
    s->t = t;
    s->value = table_find(t, q->value);
    if (err)
        return err;
    if (s->value < 0 || table_col_type(t, s->value) == TABLE_STR)
        return kvf_fail(d, KVF_E_ARG, "table %s has no column of numbers '%s'", table_name(t),
                        q->value);
    s->row = MEM_NEW(struct keyed, (size_t)table_rows(t));
    if (!s->row)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (table_int(t, layer, r) < 0 || !chosen(t, r, q->where))
            continue;
        s->row[s->n++] = (struct keyed){NULL, s->text.len, r};
        for (int k = 0; k < KEYS; k++) {
            int col = table_find(t, key_names[k]);
            if (col >= 0 && col != s->value)
                put_cell(&s->text, t, col, r);
            buf_char(&s->text, '\037');
        }
        buf_add(&s->text, "", 1);
    }
    if (s->n == 0 && q->where)
        return none_chosen(t, q->where, d);
    for (int64_t i = 0; i < s->n && !s->text.err; i++)
        s->row[i].key = s->text.data + s->row[i].at;
    return s->text.err;
}

/* Rejects several rows for one head, because a map would show only the last of them. */
static int check_unique(const struct side *s, struct kvf_diag *d)
{
    int head = table_find(s->t, "head");
    struct keyed *by_head = MEM_NEW(struct keyed, (size_t)s->n);
    int err = by_head ? KVF_OK : KVF_E_NOMEM;
    for (int64_t i = 0; !err && i < s->n; i++)
        by_head[i] = (struct keyed){table_str(s->t, head, s->row[i].row), 0, 0};
    if (!err)
        qsort(by_head, (size_t)s->n, sizeof *by_head, compare);
    for (int64_t i = 1; !err && i < s->n; i++)
        if (strcmp(by_head[i].key, by_head[i - 1].key) == 0)
            err = kvf_fail(d, KVF_E_ARG,
                           "head %s has several rows: choose one of each head by "
                           "its columns, as in --style criterion=top64,horizon=64",
                           by_head[i].key);
    mem_free(by_head);
    return err;
}

static int build(const struct side *a, const struct side *b, struct table **ret, int64_t *ret_alone,
                 struct kvf_diag *d)
{
    static const char *const names[] = {"layer", "index"};
    size_t most = (size_t)a->n;
    const char **head = MEM_NEW(const char *, most);
    int64_t *whole = MEM_NEW(int64_t, 2 * most), n = 0;
    double *real = MEM_NEW(double, 3 * most);
    int err = head && whole && real ? KVF_OK : KVF_E_NOMEM;
    for (int64_t i = 0; !err && i < a->n; i++) {
        const struct keyed *r = &a->row[i];
        const struct keyed *p = bsearch(r, b->row, (size_t)b->n, sizeof *r, compare);
        if (!p)
            continue;
        double x = table_real(a->t, a->value, r->row), y = table_real(b->t, b->value, p->row);
        head[n] = table_str(a->t, table_find(a->t, "head"), r->row);
        for (size_t k = 0; k < 2; k++)
            whole[k * most + (size_t)n] = table_int(a->t, table_find(a->t, names[k]), r->row);
        real[n] = x;
        real[most + (size_t)n] = y;
        real[2 * most + (size_t)n++] = x - y;
    }
    if (!err && n == 0)
        err = kvf_fail(d, KVF_E_ARG,
                       "the two tables have no common row: their heads or their units differ");
    struct table *t = err ? NULL : table_create("difference", n);
    if (t) {
        table_dense_str(t, "head", "", head);
        table_dense_int(t, "layer", "", whole);
        table_dense_int(t, "index", "", whole + most);
        table_dense_real(t, "minuend", "", real);
        table_dense_real(t, "subtrahend", "", real + most);
        table_dense_real(t, "difference", "", real + 2 * most);
        *ret = t;
        *ret_alone = a->n + b->n - 2 * n;
    }
    mem_free((void *)head);
    mem_free(whole);
    mem_free(real);
    if (err)
        return err;
    return t ? table_err(t) : KVF_E_NOMEM;
}

/* Copies metadata. An entry that is equal in both tables is copied once; otherwise both are copied
 * with a prefix. */
static void add_meta(struct table *t, const struct table *a, const struct table *b)
{
    const struct table *side[] = {a, b};
    static const char *const prefix[] = {"minuend", "subtrahend"};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < table_meta_count(side[s]); i++) {
            const char *key = table_meta_key(side[s], i), *v = table_meta(side[s], key);
            const char *other = table_meta(side[1 - s], key);
            struct buf name = {0};
            buf_printf(&name, "%s.%s", prefix[s], key);
            if (other && strcmp(other, v) == 0)
                table_meta_str(t, key, v);
            else if (!name.err)
                table_meta_str(t, name.data, v);
            buf_finish(&name);
        }
}

int table_minus(const struct table *a, const struct table *b, const struct table_minus *q,
                struct table **ret, int64_t *ret_alone, struct kvf_diag *d)
{
    static const char *const must[] = {"head", "layer", "index"};
    struct side x = {0}, y = {0};
    struct table *t = NULL;
    for (int i = 0; i < 3; i++)
        if (table_find(a, must[i]) < 0 || table_find(b, must[i]) < 0)
            return kvf_fail(d, KVF_E_ARG,
                            "--minus draws maps of layers and heads, and a table "
                            "lacks the column %s",
                            must[i]);
    int err = collect(&x, a, q, d);
    if (err)
        goto done;
    err = collect(&y, b, q, d);
    if (err)
        goto done;
    err = check_unique(&x, d);
    if (!err)
        err = check_unique(&y, d);
    if (err)
        goto done;
    qsort(y.row, (size_t)y.n, sizeof *y.row, compare);
    err = build(&x, &y, &t, ret_alone, d);
    if (err)
        goto done;
    table_meta_str(t, "value", q->value);
    add_meta(t, a, b);
    err = table_err(t);
done:
    buf_finish(&x.text);
    buf_finish(&y.text);
    mem_free(x.row);
    mem_free(y.row);
    if (err)
        table_destroy(t);
    else
        *ret = t;
    return err;
}

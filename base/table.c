/* table.c - tables of named columns in memory (table.h). */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/room.h"
#include "base/table.h"
#include "base/whole.h"

enum kind { DENSE, BLOCK, CYCLE, AFFINE, LAZY, CODED };

struct column {
    char *name, *unit;
    enum table_type type;
    enum kind kind;
    int64_t n;   /* stored values (dense, block, cycle) */
    int64_t per; /* rows per value (block), period (affine) */
    int64_t start, step;
    int64_t *i; /* owned, one of the three */
    double *r;
    char **s;            /* [n] into the texts */
    char **text;         /* owned, and each of them */
    const uint8_t *code; /* of coded: which of s, by row */
    size_t n_texts, cap_texts;
    table_read_fn read;
    void *ctx;
};

struct meta {
    char *key, *value;
};

struct kept {
    char *key;
    double value;
};

struct owned {
    void *ctx;
    void (*destroy)(void *ctx);
};

struct table {
    char *name;
    int64_t rows;
    int err;
    struct column *col;
    int n_cols;
    struct meta *meta;
    int n_meta;
    struct kept *kept;
    int n_kept;
    struct owned *owned;
    int n_owned;
};

struct table *table_create(const char *name, int64_t n_rows)
{
    struct table *t = n_rows >= 0 ? MEM_NEW(struct table, 1) : NULL;
    if (!t)
        return NULL;
    t->rows = n_rows;
    t->name = mem_strdup(name);
    if (!t->name) {
        mem_free(t);
        return NULL;
    }
    return t;
}

void table_rename(struct table *t, const char *name)
{
    char *copy = mem_strdup(name);
    if (!copy) {
        t->err = t->err ? t->err : KVF_E_NOMEM;
        return;
    }
    mem_free(t->name);
    t->name = copy;
}

void table_destroy(struct table *t)
{
    if (!t)
        return;
    for (int c = 0; c < t->n_cols; c++) {
        struct column *k = &t->col[c];
        for (size_t i = 0; i < k->n_texts; i++)
            mem_free(k->text[i]);
        mem_free_all(k->text, k->s, k->i, k->r, k->name, k->unit);
    }
    for (int i = 0; i < t->n_meta; i++) {
        mem_free_all(t->meta[i].key, t->meta[i].value);
    }
    for (int i = 0; i < t->n_kept; i++)
        mem_free(t->kept[i].key);
    for (int i = 0; i < t->n_owned; i++)
        t->owned[i].destroy(t->owned[i].ctx);
    mem_free_all(t->col, t->meta, t->kept, t->owned, t->name, t);
}

static void fail(struct table *t, int err)
{
    if (!t->err)
        t->err = err;
}

/* Whether n values of this kind fill `rows` rows. */
static bool fits(enum kind kind, int64_t n, int64_t rows)
{
    if (kind == DENSE)
        return n == rows;
    if (kind == BLOCK || kind == CYCLE)
        return n > 0 ? rows % n == 0 : rows == 0;
    return true;
}

/* A new column, or NULL after setting the sticky error. */
static struct column *add(struct table *t, const char *name, const char *unit, enum table_type type,
                          enum kind kind, int64_t n)
{
    if (t->err)
        return NULL;
    struct column *list = mem_grow(t->col, (size_t)t->n_cols, (size_t)t->n_cols + 1, sizeof *list);
    if (!list) {
        fail(t, KVF_E_NOMEM);
        return NULL;
    }
    t->col = list;
    struct column *c = &list[t->n_cols++];
    *c = (struct column){.name = mem_strdup(name),
                         .unit = mem_strdup(unit),
                         .type = type,
                         .kind = kind,
                         .n = n,
                         .per = 1};
    if (!c->name || !c->unit) { /* no column is without a name */
        mem_free_all(c->name, c->unit);
        t->n_cols--;
        fail(t, KVF_E_NOMEM);
        return NULL;
    }
    if (table_find(t, name) != t->n_cols - 1)
        fail(t, KVF_E_ARG);
    if (!fits(kind, n, t->rows))
        fail(t, KVF_E_ARG);
    if (kind == BLOCK && n > 0)
        c->per = t->rows / n > 0 ? t->rows / n : 1;
    return t->err ? NULL : c;
}

static void add_ints(struct table *t, const char *name, const char *unit, enum kind kind,
                     const int64_t *data, int64_t n)
{
    struct column *c = add(t, name, unit, TABLE_INT, kind, n);
    if (!c)
        return;
    c->i = MEM_NEW(int64_t, (size_t)n);
    if (!c->i)
        fail(t, KVF_E_NOMEM);
    else if (n)
        memcpy(c->i, data, (size_t)n * sizeof *data);
}

static void add_reals(struct table *t, const char *name, const char *unit, enum kind kind,
                      const double *data, int64_t n)
{
    struct column *c = add(t, name, unit, TABLE_REAL, kind, n);
    if (!c)
        return;
    c->r = MEM_NEW(double, (size_t)n);
    if (!c->r)
        fail(t, KVF_E_NOMEM);
    else if (n)
        memcpy(c->r, data, (size_t)n * sizeof *data);
}

static char *add_text(struct column *c, const char *s)
{
    if (!mem_room(&c->text, c->n_texts, &c->cap_texts, 16, sizeof *c->text))
        return NULL;
    char *copy = mem_strdup(s);
    if (copy)
        c->text[c->n_texts++] = copy;
    return copy;
}

/* Texts of the same address are copied once, as long as no other one takes their place. */
static void add_strs(struct table *t, const char *name, const char *unit, enum kind kind,
                     const char *const *data, int64_t n)
{
    struct column *c = add(t, name, unit, TABLE_STR, kind, n);
    if (!c)
        return;
    c->s = MEM_NEW(char *, (size_t)n);
    if (!c->s) {
        fail(t, KVF_E_NOMEM);
        return;
    }
    enum { PLACES = 64 };
    const char *from[PLACES] = {NULL};
    char *to[PLACES];
    for (int64_t i = 0; i < n; i++) {
        size_t k = ((uintptr_t)data[i] >> 3 ^ (uintptr_t)data[i] >> 9 ^ (uintptr_t)data[i])
                   % PLACES;
        if (from[k] != data[i]) {
            to[k] = add_text(c, data[i]);
            from[k] = to[k] ? data[i] : NULL;
        }
        c->s[i] = to[k];
        if (!to[k]) {
            fail(t, KVF_E_NOMEM);
            break;
        }
    }
}

#define ADDERS(kind_name, KIND)                                                                    \
    void table_##kind_name##_int(struct table *t, const char *name, const char *unit,              \
                                 const int64_t *data, int64_t n)                                   \
    {                                                                                              \
        add_ints(t, name, unit, KIND, data, n);                                                    \
    }                                                                                              \
    void table_##kind_name##_real(struct table *t, const char *name, const char *unit,             \
                                  const double *data, int64_t n)                                   \
    {                                                                                              \
        add_reals(t, name, unit, KIND, data, n);                                                   \
    }                                                                                              \
    void table_##kind_name##_str(struct table *t, const char *name, const char *unit,              \
                                 const char *const *data, int64_t n)                               \
    {                                                                                              \
        add_strs(t, name, unit, KIND, data, n);                                                    \
    }
ADDERS(block, BLOCK)
ADDERS(cycle, CYCLE)
#undef ADDERS

void table_dense_int(struct table *t, const char *name, const char *unit, const int64_t *data)
{
    add_ints(t, name, unit, DENSE, data, t->rows);
}

void table_dense_real(struct table *t, const char *name, const char *unit, const double *data)
{
    add_reals(t, name, unit, DENSE, data, t->rows);
}

void table_dense_str(struct table *t, const char *name, const char *unit, const char *const *data)
{
    add_strs(t, name, unit, DENSE, data, t->rows);
}

void table_coded_str(struct table *t, const char *name, const char *unit, const uint8_t *code,
                     const char *const *text, int n_texts)
{
    add_strs(t, name, unit, CODED, text, n_texts);
    if (!t->err)
        t->col[t->n_cols - 1].code = code;
}

void table_affine(struct table *t, const char *name, const char *unit, int64_t start, int64_t step,
                  int64_t period)
{
    struct column *c = add(t, name, unit, TABLE_INT, AFFINE, 0);
    if (c) {
        c->start = start;
        c->step = step;
        c->per = period;
    }
}

void table_lazy(struct table *t, const char *name, const char *unit, enum table_type type,
                table_read_fn read, void *ctx)
{
    struct column *c = add(t, name, unit, type, LAZY, 0);
    if (c) {
        c->read = read;
        c->ctx = ctx;
    }
}

void table_own(struct table *t, void *ctx, void (*destroy)(void *ctx))
{
    struct owned *list = mem_grow(t->owned, (size_t)t->n_owned, (size_t)t->n_owned + 1,
                                  sizeof *list);
    if (!list) {
        fail(t, KVF_E_NOMEM);
        destroy(ctx);
        return;
    }
    t->owned = list;
    list[t->n_owned++] = (struct owned){ctx, destroy};
}

void table_meta_str(struct table *t, const char *key, const char *value)
{
    char *copy = mem_strdup(value);
    if (!copy) {
        fail(t, KVF_E_NOMEM);
        return;
    }
    for (int i = 0; i < t->n_meta; i++)
        if (strcmp(t->meta[i].key, key) == 0) {
            mem_free(t->meta[i].value);
            t->meta[i].value = copy;
            return;
        }
    struct meta *list = mem_grow(t->meta, (size_t)t->n_meta, (size_t)t->n_meta + 1, sizeof *list);
    char *name = mem_strdup(key);
    if (list)
        t->meta = list;
    if (!list || !name) {
        mem_free_all(copy, name);
        fail(t, KVF_E_NOMEM);
        return;
    }
    t->meta[t->n_meta++] = (struct meta){name, copy};
}

void table_meta_num(struct table *t, const char *key, double value)
{
    struct buf b = {0};
    json_put_num(&b, value);
    if (b.err)
        fail(t, b.err);
    else
        table_meta_str(t, key, b.data);
    buf_finish(&b);
}

const char *table_meta(const struct table *t, const char *key)
{
    for (int i = 0; i < t->n_meta; i++)
        if (strcmp(t->meta[i].key, key) == 0)
            return t->meta[i].value;
    return NULL;
}

double table_meta_real(const struct table *t, const char *key, double otherwise)
{
    const char *v = table_meta(t, key);
    char *end;
    double x = v ? strtod(v, &end) : 0;
    return v && end != v && !*end ? x : otherwise;
}

int64_t table_meta_int(const struct table *t, const char *key, int64_t otherwise)
{
    return whole_of(table_meta_real(t, key, NAN), otherwise);
}

void table_keep(struct table *t, const char *key, double value)
{
    struct kept *list = mem_grow(t->kept, (size_t)t->n_kept, (size_t)t->n_kept + 1, sizeof *list);
    char *name = mem_strdup(key);
    if (list)
        t->kept = list;
    if (!list || !name) {
        mem_free(name);
        fail(t, KVF_E_NOMEM);
        return;
    }
    list[t->n_kept++] = (struct kept){name, value};
}

double table_kept(const struct table *t, const char *key, double otherwise)
{
    for (int i = t->n_kept - 1; i >= 0; i--) /* the later wins */
        if (strcmp(t->kept[i].key, key) == 0)
            return t->kept[i].value;
    return otherwise;
}

int table_meta_count(const struct table *t)
{
    return t->n_meta;
}
const char *table_meta_key(const struct table *t, int i)
{
    return t->meta[i].key;
}
int table_err(const struct table *t)
{
    return t->err;
}

struct table *table_made(struct table *t, int err)
{
    if (!err && t && table_err(t) == KVF_OK)
        return t;
    table_destroy(t);
    return NULL;
}

int table_deliver(struct table *t, int err, struct table **ret)
{
    if (err)
        table_destroy(t);
    else
        *ret = t;
    return err;
}

const char *table_name(const struct table *t)
{
    return t->name;
}
int64_t table_rows(const struct table *t)
{
    return t->rows;
}
int table_cols(const struct table *t)
{
    return t->n_cols;
}
const char *table_col_name(const struct table *t, int col)
{
    return t->col[col].name;
}
const char *table_col_unit(const struct table *t, int col)
{
    return t->col[col].unit;
}
enum table_type table_col_type(const struct table *t, int col)
{
    return t->col[col].type;
}

int table_find(const struct table *t, const char *name)
{
    for (int i = 0; i < t->n_cols; i++)
        if (strcmp(t->col[i].name, name) == 0)
            return i;
    return -1;
}

double table_nearest(const struct table *t, int col, double want)
{
    double best = NAN;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double v = table_real(t, col, r);
        if (!isnan(v) && !(fabs(best - want) <= fabs(v - want)))
            best = v;
    }
    return best;
}

/* The first of the rows from `row` on that share a stored value, or are adjacent. */
struct run {
    int64_t from, n;
    bool same; /* n times value `from`, else from .. from+n-1 */
};

static struct run run_at(const struct column *c, int64_t row, int64_t n)
{
    struct run r = {row, n, false};
    if (c->kind == BLOCK) {
        int64_t left = c->per - row % c->per;
        r = (struct run){row / c->per, left < n ? left : n, true};
    } else if (c->kind == CYCLE) {
        r.from = row % c->n;
        r.n = c->n - r.from < n ? c->n - r.from : n;
    }
    return r;
}

static void get_affine(const struct column *c, int64_t row0, int64_t n, double *out)
{
    int64_t at = c->per ? row0 % c->per : row0;
    for (int64_t k = 0; k < n; k++, at++) {
        if (at == c->per && c->per)
            at = 0;
        out[k] = (double)(c->start + c->step * at);
    }
}

void table_get(const struct table *t, int col, int64_t row0, int64_t n, double *out)
{
    const struct column *c = &t->col[col];
    if (c->kind == LAZY) {
        c->read(c->ctx, row0, n, out);
        return;
    }
    if (c->type == TABLE_STR) {
        for (int64_t k = 0; k < n; k++)
            out[k] = NAN;
        return;
    }
    if (c->kind == AFFINE) {
        get_affine(c, row0, n, out);
        return;
    }
    while (n > 0) {
        struct run r = run_at(c, row0, n);
        if (r.same) {
            double v = c->i ? (double)c->i[r.from] : c->r[r.from];
            for (int64_t k = 0; k < r.n; k++)
                out[k] = v;
        } else if (c->i) {
            for (int64_t k = 0; k < r.n; k++)
                out[k] = (double)c->i[r.from + k];
        } else {
            memcpy(out, c->r + r.from, (size_t)r.n * sizeof *out);
        }
        row0 += r.n;
        out += r.n;
        n -= r.n;
    }
}

void table_get_str(const struct table *t, int col, int64_t row0, int64_t n, const char **out)
{
    const struct column *c = &t->col[col];
    for (int64_t k = 0; c->type != TABLE_STR && k < n; k++)
        out[k] = "";
    for (int64_t k = 0; c->kind == CODED && k < n; k++)
        out[k] = c->s[c->code[row0 + k]];
    while (c->kind != CODED && c->type == TABLE_STR && n > 0) {
        struct run r = run_at(c, row0, n);
        for (int64_t k = 0; k < r.n; k++)
            out[k] = c->s[r.from + (r.same ? 0 : k)];
        row0 += r.n;
        out += r.n;
        n -= r.n;
    }
}

double table_real(const struct table *t, int col, int64_t row)
{
    double v;
    table_get(t, col, row, 1, &v);
    return v;
}

int64_t table_int(const struct table *t, int col, int64_t row)
{
    static const int64_t most = INT64_MAX / 2;
    return whole_within(table_real(t, col, row), -most, most, -1);
}

const char *table_str(const struct table *t, int col, int64_t row)
{
    const char *s;
    table_get_str(t, col, row, 1, &s);
    return s;
}

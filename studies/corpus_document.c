/* corpus_document.c - the tables of one document, reduced to rows by their keys. */
#include <math.h>
#include <string.h>

#include <kvf/schema.h>

#include "base/mem.h"
#include "base/rng.h"
#include "studies/corpus_rows.h"
#include "libtrace/run_header.h"

enum { BLOCK = 512, MOST_VALUES = 1 << 22 }; /* values of one row in one document */

/* ---- which document a trace is of */

static int read_tokens(struct kvf_trace *t, int32_t **ret, struct kvf_diag *d)
{
    uint32_t n = kvf_n_steps(t);
    int column = kvf_find(t, "tokens.id");
    int32_t *id = MEM_NEW(int32_t, n);
    if (!id)
        return KVF_E_NOMEM;
    int err = column >= 0 && n ? kvf_read_i32(t, column, 0, 0, 0, n, id, d) : KVF_OK;
    if (err) {
        mem_free(id);
        return err;
    }
    *ret = id;
    return KVF_OK;
}

/* Counts the tokens of the prompt and of a question after it; all tokens if no role is known. */
static int count_prompt(struct kvf_trace *t, const struct json *run, uint32_t *ret,
                        struct kvf_diag *d)
{
    uint32_t n = kvf_n_steps(t);
    int64_t said = json_int(json_get(run, "prompt_tokens"), -1);
    int64_t question = json_int(json_get(run, "question_tokens"), 0);
    int column = kvf_find(t, "tokens.role");
    if (said >= 0 && said < n)
        said += question > 0 && question < n ? question : 0;
    *ret = said >= 0 && said < n ? (uint32_t)said : n;
    if (said >= 0 || column < 0 || n == 0)
        return KVF_OK;
    double *role = MEM_NEW(double, n);
    if (!role)
        return KVF_E_NOMEM;
    int err = kvf_read_f64(t, column, 0, 0, 0, n, role, d);
    for (uint32_t i = 0; !err && i < *ret; i++)
        if (!KVF_IN_PROMPT(role[i]) && role[i] != KVF_ROLE_QUESTION)
            *ret = i;
    mem_free(role);
    return err;
}

/* run.document, a text or an integer, as a hash. */
static bool named(const struct json *run, uint64_t *ret)
{
    const struct json *name = json_get(run, "document");
    const char *text = json_str(name, NULL);
    int64_t number = json_int(name, INT64_MIN);
    if (text)
        *ret = rng_hash_bytes(1, text, strlen(text));
    else if (number != INT64_MIN)
        *ret = rng_hash(2, (uint64_t)number, 0, 0);
    return text || number != INT64_MIN;
}

static uint64_t hash_ids(uint64_t seed, const int32_t *id, size_t n)
{
    uint64_t h = rng_hash(seed, n, 0, 0);
    for (size_t i = 0; i < n; i++)
        h = rng_hash(h, (uint32_t)id[i], 0, 0);
    return h;
}

int corpus_identify(struct kvf_trace *t, uint64_t *ret_document, uint64_t *ret_print,
                    struct kvf_diag *d)
{
    const char *meta = kvf_meta(t);
    struct json *root = NULL;
    int32_t *id = NULL;
    uint32_t n_prompt = 0;
    int err = run_header(t, &root, d);
    if (err)
        return err;
    const struct json *run = json_get(root, "run");
    bool known = named(run, ret_document);
    if (!known && kvf_find(t, "tokens.id") < 0) {
        err = kvf_fail(d, KVF_E_NOTFOUND,
                       "%s has neither a column tokens.id nor run.document in its header, "
                       "so that its document is unknown",
                       kvf_path(t));
        goto done;
    }
    err = read_tokens(t, &id, d);
    if (err)
        goto done;
    if (!known) {
        err = count_prompt(t, run, &n_prompt, d);
        if (err)
            goto done;
        *ret_document = hash_ids(4, id, n_prompt);
    }
    *ret_print = hash_ids(rng_hash_bytes(3, meta, strlen(meta)), id, kvf_n_steps(t));

done:
    mem_free(id);
    json_free(root);
    return err;
}

/* ---- the document */

int corpus_document_create(const struct corpus *c, struct corpus_document **ret)
{
    struct corpus_document *x = MEM_NEW(struct corpus_document, 1);
    size_t columns = (size_t)c->n_keys + 3 * (size_t)c->n_measures;
    if (!x)
        return KVF_E_NOMEM;
    x->c = c;
    x->rows.stride = c->rows.stride;
    x->number = MEM_NEW(double, (columns * BLOCK));
    if (!x->number) {
        corpus_document_destroy(x);
        return KVF_E_NOMEM;
    }
    *ret = x;
    return KVF_OK;
}

static void forget_meta(struct corpus_document *x)
{
    corpus_meta_free(x->meta, x->n_meta);
    x->meta = NULL;
    x->n_meta = 0;
}

void corpus_document_destroy(struct corpus_document *x)
{
    if (!x)
        return;
    rows_finish(&x->rows);
    forget_meta(x);
    buf_finish(&x->key);
    mem_free_all(x->number, x);
}

void corpus_document_begin(struct corpus_document *x, uint64_t id)
{
    rows_next_round(&x->rows);
    forget_meta(x);
    memset(x->type, 0, sizeof x->type);
    x->entry = (struct corpus_entry){.id = id};
    x->least_T = x->most_T = -1;
    x->undefined = 0;
}

void corpus_document_miss(struct corpus_document *x)
{
    x->entry.missed++;
}

/* ---- a table */

struct columns { /* of a table; -1: none */
    int key[CORPUS_MOST_KEYS];
    int value[CORPUS_MOST_MEASURES], numerator[CORPUS_MOST_MEASURES],
        denominator[CORPUS_MOST_MEASURES];
    int head;     /* which key names heads */
    bool has_all; /* a row of a head `all` */
};

static int find(const struct table *t, const char *name, bool number, int *ret, struct kvf_diag *d)
{
    *ret = name ? table_find(t, name) : -1;
    if (name && (*ret < 0 || (number && table_col_type(t, *ret) == TABLE_STR)))
        return kvf_fail(d, KVF_E_FORMAT, "the table has no %scolumn %s", number ? "numeric " : "",
                        name);
    return KVF_OK;
}

static int find_columns(struct corpus_document *x, const struct table *t, struct columns *c,
                        struct kvf_diag *d)
{
    static const char letters[] = {[TABLE_INT] = 'i', [TABLE_REAL] = 'r', [TABLE_STR] = 's'};
    const struct analyzer_pool *pool = x->c->a->pool;
    c->head = -1;
    c->has_all = false;
    for (int k = 0; k < x->c->n_keys; k++) {
        int err = find(t, pool->keys[k], false, &c->key[k], d);
        if (err)
            return err;
        x->type[k] = letters[table_col_type(t, c->key[k])];
        if (strcmp(pool->keys[k], "head") == 0 && x->type[k] == 's')
            c->head = k;
    }
    for (int m = 0; m < x->c->n_measures; m++) {
        const struct analyzer_measure *p = &pool->measures[m];
        /* a quotient is made of its counts: the table need not have it */
        const char *value = measure_kind(p) == MEASURE_QUOTIENT ? NULL : p->value;
        if (value && p->optional && table_find(t, value) < 0)
            value = NULL;
        int err = find(t, value, true, &c->value[m], d);
        if (!err)
            err = find(t, p->numerator, true, &c->numerator[m], d);
        if (!err)
            err = find(t, p->denominator, true, &c->denominator[m], d);
        if (err)
            return err;
    }
    for (int64_t r = 0; c->head >= 0 && !c->has_all && r < table_rows(t); r++)
        c->has_all = strcmp(table_str(t, c->key[c->head], r), "all") == 0;
    return KVF_OK;
}

/* As buf_add; most are a few bytes that fit. */
static void append(struct buf *b, const char *s, size_t n)
{
    if (b->err || b->cap - b->len <= n) {
        buf_add(b, s, n);
        return;
    }
    memcpy(b->data + b->len, s, n);
    b->len += n;
}

static void put_int(struct buf *b, int64_t v)
{
    char text[24];
    size_t at = sizeof text;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        text[--at] = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0)
        text[--at] = '-';
    append(b, text + at, sizeof text - at);
}

/* Row r0 + i of a block as a key. */
static void put_key(struct corpus_document *x, const struct table *t, const struct columns *c,
                    int64_t r0, int i)
{
    buf_clear(&x->key);
    for (int k = 0; k < x->c->n_keys; k++) {
        double v = x->number[k * BLOCK + i];
        if (x->type[k] == 's') {
            const char *s = table_str(t, c->key[k], r0 + i);
            append(&x->key, s, strlen(s));
        } else if (x->type[k] == 'i') {
            put_int(&x->key, (int64_t)v);
        } else if (isfinite(v)) {
            json_put_num(&x->key, v);
        } else if (isnan(v)) {
            buf_str(&x->key, "nan");
        } else {
            buf_str(&x->key, v > 0 ? "inf" : "-inf");
        }
        append(&x->key, "", 1);
    }
}

/* A real number as an integer and 2^-40, rounded to the nearest. */
static void add_real(int64_t *sum, double v)
{
    double whole = floor(v);
    sum[WORD_A] += (int64_t)whole;
    sum[WORD_B] += llround(ldexp(v - whole, CORPUS_FRACTION_BITS));
}

static int too_large(const char *name, double v, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_LIMIT, "%s = %g: sums over documents take values below 2^%d", name, v,
                    CORPUS_WORD_BITS);
}

/* Whether a value counts; v has its weight b already. */
static bool is_defined(enum measure_kind kind, double v, double a, double b)
{
    if (kind == MEASURE_QUOTIENT)
        return b > 0 && a >= 0;
    return isfinite(v) && (kind != MEASURE_WEIGHTED || b > 0);
}

/* One value; with a, b of the quotient, or the weight b. */
static int add_value(struct corpus_document *x, int64_t *sum, const struct analyzer_measure *m,
                     double v, double a, double b, struct kvf_diag *d)
{
    const double most = ldexp(1, CORPUS_WORD_BITS);
    enum measure_kind kind = measure_kind(m);
    if (kind == MEASURE_WEIGHTED)
        v *= b;
    if (!is_defined(kind, v, a, b)) {
        x->undefined++;
        return KVF_OK;
    }
    if (kind == MEASURE_QUOTIENT ? a >= most : fabs(v) >= most)
        return too_large(m->value, kind == MEASURE_QUOTIENT ? a : v, d);
    if (kind != MEASURE_MEAN && b >= most)
        return too_large(m->denominator, b, d);
    double top = kind == MEASURE_QUOTIENT ? a : fabs(v);
    if (sum[WORD_N] >= MOST_VALUES
        || (kind != MEASURE_MEAN
            && (fabs((double)sum[WORD_A]) + top >= most
                || (double)sum[kind == MEASURE_QUOTIENT ? WORD_B : WORD_C] + b >= most)))
        return kvf_fail(d, KVF_E_LIMIT, "%s: too many values in one document", m->value);
    sum[WORD_N]++;
    if (kind == MEASURE_QUOTIENT) {
        sum[WORD_A] += (int64_t)a;
        sum[WORD_B] += (int64_t)b;
        return KVF_OK;
    }
    add_real(sum, v);
    sum[WORD_C] += kind == MEASURE_WEIGHTED ? (int64_t)b : 1;
    return KVF_OK;
}

static int take_row(struct corpus_document *x, const struct table *t, const struct columns *c,
                    int64_t r0, int i, struct kvf_diag *d)
{
    const double *v = x->number + (size_t)x->c->n_keys * BLOCK + i;
    size_t row;
    put_key(x, t, c, r0, i);
    int err = x->key.err ? x->key.err : rows_put(&x->rows, x->key.data, x->key.len, &row);
    if (err)
        return err;
    if (x->rows.fresh) {
        bool all = c->head < 0 || !c->has_all
                   || strcmp(table_str(t, c->key[c->head], r0 + i), "all") == 0;
        x->rows.row[row].interval = x->c->set.intervals == CORPUS_EVERY
                                    || (x->c->set.intervals == CORPUS_AUTO && all);
    }
    int64_t *sum = rows_sum(&x->rows, row);
    for (int m = 0; m < x->c->n_measures; m++, sum += N_WORDS, v += 3 * BLOCK) {
        const struct analyzer_measure *p = &x->c->a->pool->measures[m];
        if (!p->optional || c->value[m] >= 0)
            err = add_value(x, sum, p, v[0], v[BLOCK], v[2 * BLOCK], d);
        if (err)
            return err;
    }
    return KVF_OK;
}

static void read_block(struct corpus_document *x, const struct table *t, const struct columns *c,
                       int64_t r0, int n)
{
    double *to = x->number;
    for (int k = 0; k < x->c->n_keys; k++, to += BLOCK)
        if (x->type[k] != 's')
            table_get(t, c->key[k], r0, n, to);
    for (int m = 0; m < x->c->n_measures; m++) {
        const int column[3] = {c->value[m], c->numerator[m], c->denominator[m]};
        for (int k = 0; k < 3; k++, to += BLOCK)
            if (column[k] >= 0)
                table_get(t, column[k], r0, n, to);
    }
}

static int take_meta(struct corpus_document *x, const struct table *t)
{
    int64_t T = table_meta_int(t, "T", -1);
    if (T >= 0) {
        x->least_T = x->least_T < 0 || T < x->least_T ? T : x->least_T;
        x->most_T = T > x->most_T ? T : x->most_T;
    }
    for (int i = 0; i < table_meta_count(t); i++) {
        const char *key = table_meta_key(t, i);
        if (strcmp(key, "T") == 0)
            continue;
        int err = corpus_meta_put(&x->meta, &x->n_meta, key, table_meta(t, key), 1);
        if (err)
            return err;
    }
    return KVF_OK;
}

int corpus_document_take(struct corpus_document *x, const struct table *t, struct kvf_diag *d)
{
    struct columns c;
    int err = find_columns(x, t, &c, d);
    if (err)
        return err;
    for (int64_t r0 = 0; r0 < table_rows(t); r0 += BLOCK) {
        int n = table_rows(t) - r0 < BLOCK ? (int)(table_rows(t) - r0) : BLOCK;
        read_block(x, t, &c, r0, n);
        for (int i = 0; i < n; i++) {
            err = take_row(x, t, &c, r0, i, d);
            if (err)
                return err;
        }
    }
    err = take_meta(x, t);
    if (err)
        return err;
    x->entry.traces++;
    return KVF_OK;
}

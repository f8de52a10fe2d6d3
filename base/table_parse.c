/* table_parse.c - tables from the bytes of TSV and JSON. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/table_read.h"
#include "base/table_seal.h"
#include "base/utf8.h"

/* ---- numbers: only the forms that table_write prints (strtod takes hex and "infinity" too) */

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

static bool whole_number(const char *s, int64_t *ret)
{
    char *end;
    size_t n = digits(s + (*s == '-'));
    if (n == 0 || s[(*s == '-') + n])
        return false;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    *ret = v;
    return errno == 0;
}

static bool number(const char *s, double *ret)
{
    static const struct {
        const char *text;
        double value;
    } words[] = {{"nan", (double)NAN}, {"inf", (double)INFINITY}, {"-inf", -(double)INFINITY}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i].text) == 0) {
            *ret = words[i].value;
            return true;
        }
    const char *p = s + (*s == '-');
    size_t n = digits(p);
    p += n;
    if (*p == '.') {
        size_t more = digits(p + 1);
        n = more ? n + more : 0; /* "1." is not written by us */
        p += 1 + more;
    }
    if (n && (*p == 'e' || *p == 'E')) {
        p += p[1] == '-' || p[1] == '+' ? 2 : 1;
        size_t power = digits(p);
        n = power ? n : 0;
        p += power;
    }
    if (n == 0 || *p)
        return false;
    *ret = strtod(s, NULL);
    return true;
}

/* ---- TSV */

struct tsv {
    table_text_fn is_text;
    char *at, *end; /* the rest of the text; cells are cut in place */
    int64_t line;   /* number of the last line taken */
    struct table *t;
    char **key, **value; /* [n_meta] borrowed */
    int n_meta;
    char *name;
    char **column; /* [n_columns] names */
    int n_columns;
    char **cell; /* [rows * columns] in rows */
    int64_t rows;
};

/* The next line without its newline, NUL-terminated; NULL at the end. */
static char *next_line(struct tsv *x)
{
    if (x->at == x->end)
        return NULL;
    char *line = x->at, *stop = memchr(line, '\n', (size_t)(x->end - line));
    *stop = 0; /* the text ends with a newline */
    x->at = stop + 1;
    x->line++;
    return line;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Undoes \t \n \r \\ and \xNN in place. */
static bool unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s != '\\') {
            *to++ = *s;
            continue;
        }
        if (s[1] == 'x' && hex_digit(s[2]) >= 0 && hex_digit(s[3]) >= 0
            && (s[2] != '0' || s[3] != '0')) {
            *to++ = (char)(16 * hex_digit(s[2]) + hex_digit(s[3]));
            s += 3;
            continue;
        }
        const char *from = "tnr\\", *which = s[1] ? strchr(from, s[1]) : NULL;
        if (!which)
            return false;
        *to++ = "\t\n\r\\"[which - from];
        s++;
    }
    *to = 0;
    return true;
}

/* Cuts a line at its tabs into at most `most` cells; their number, or -1 - number. */
static int cut(struct tsv *x, char *line, char **cell, int most, struct kvf_diag *d)
{
    int n = 0;
    for (char *next; line; line = next) {
        next = strchr(line, '\t');
        if (next)
            *next++ = 0;
        if (n < most)
            cell[n] = line;
        n++;
        if (!unescape(line)) {
            kvf_fail(d, KVF_E_FORMAT, "line %lld: a backslash must be followed by t, n, r or \\",
                     (long long)x->line);
            return -1;
        }
        if (n > TABLE_MOST_COLUMNS)
            return n;
    }
    return n;
}

static int take_meta(struct tsv *x, char *line, struct kvf_diag *d)
{
    char *colon = strstr(line, ": ");
    if (line[1] != ' ' || !colon)
        return kvf_fail(d, KVF_E_FORMAT, "line %lld: not \"# key: value\"", (long long)x->line);
    *colon = 0;
    if (!unescape(colon + 2))
        return kvf_fail(d, KVF_E_FORMAT, "line %lld: a backslash must be followed by t, n, r or \\",
                        (long long)x->line);
    if (strcmp(line + 2, "table") == 0) {
        x->name = colon + 2;
        return KVF_OK;
    }
    if (strcmp(line + 2, SEAL_KEY) == 0) /* of this file, not of the table */
        return KVF_OK;
    if (x->n_meta == TABLE_MOST_META)
        return kvf_fail(d, KVF_E_LIMIT, "more than %d lines of metadata", TABLE_MOST_META);
    x->key[x->n_meta] = line + 2;
    x->value[x->n_meta++] = colon + 2;
    return KVF_OK;
}

static int take_head(struct tsv *x, struct kvf_diag *d)
{
    char *line = next_line(x);
    for (; line && *line == '#'; line = next_line(x)) {
        int err = take_meta(x, line, d);
        if (err)
            return err;
    }
    if (!line)
        return kvf_fail(d, KVF_E_FORMAT, "there is no row of column names");
    int n = cut(x, line, x->column, TABLE_MOST_COLUMNS, d);
    if (n < 0)
        return KVF_E_FORMAT;
    if (n > TABLE_MOST_COLUMNS)
        return kvf_fail(d, KVF_E_LIMIT, "more than %d columns", TABLE_MOST_COLUMNS);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i || (k == i && !x->column[i][0]); k++)
            if (k == i || strcmp(x->column[i], x->column[k]) == 0)
                return kvf_fail(d, KVF_E_FORMAT, "line %lld: %s column name \"%.80s\"",
                                (long long)x->line, k == i ? "an empty" : "a repeated",
                                x->column[i]);
    x->n_columns = n;
    return KVF_OK;
}

static int take_rows(struct tsv *x, struct kvf_diag *d)
{
    int64_t lines = 0;
    for (char *p = x->at; p < x->end; p++)
        lines += *p == '\n';
    if (lines > TABLE_MOST_CELLS / x->n_columns)
        return kvf_fail(d, KVF_E_LIMIT, "%lld rows of %d columns are more than %d cells",
                        (long long)lines, x->n_columns, TABLE_MOST_CELLS);
    x->cell = MEM_NEW(char *, (size_t)lines *(size_t)x->n_columns);
    if (!x->cell)
        return KVF_E_NOMEM;
    for (char *line = next_line(x); line; line = next_line(x), x->rows++) {
        int n = cut(x, line, x->cell + x->rows * x->n_columns, x->n_columns, d);
        if (n < 0)
            return KVF_E_FORMAT;
        if (n != x->n_columns)
            return kvf_fail(d, KVF_E_FORMAT, "line %lld: %s cells than the %d columns",
                            (long long)x->line, n < x->n_columns ? "fewer" : "more", x->n_columns);
    }
    return KVF_OK;
}

/* One column of cells as numbers or text. */
static int put_column(struct tsv *x, int c)
{
    size_t n = (size_t)x->rows;
    int64_t *whole = MEM_NEW(int64_t, n);
    double *real = MEM_NEW(double, n);
    const char **text = MEM_NEW(const char *, n);
    bool is_text = x->is_text && x->is_text(x->column[c]);
    bool is_whole = n > 0 && !is_text, is_real = is_whole || n == 0;
    int err = whole && real && text ? KVF_OK : KVF_E_NOMEM;
    for (size_t r = 0; !err && r < n; r++) {
        text[r] = x->cell[r * (size_t)x->n_columns + (size_t)c];
        is_whole = is_whole && whole_number(text[r], &whole[r]);
        is_real = is_real && number(text[r], &real[r]);
    }
    if (!err && is_whole)
        table_dense_int(x->t, x->column[c], "", whole);
    else if (!err && is_real)
        table_dense_real(x->t, x->column[c], "", real);
    else if (!err)
        table_dense_str(x->t, x->column[c], "", text);
    mem_free_all(whole, real, (void *)text);
    return err ? err : table_err(x->t);
}

static int build(struct tsv *x, struct table **ret)
{
    x->t = table_create(x->name ? x->name : "", x->rows);
    int err = x->t ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < x->n_meta; i++)
        table_meta_str(x->t, x->key[i], x->value[i]);
    for (int c = 0; !err && c < x->n_columns; c++)
        err = put_column(x, c);
    if (!err)
        err = table_err(x->t);
    if (err)
        table_destroy(x->t);
    else
        *ret = x->t;
    return err;
}

static int check_text(const char *text, size_t n, struct kvf_diag *d)
{
    if (n == 0)
        return kvf_fail(d, KVF_E_FORMAT, "the file is empty");
    if (n > TABLE_MOST_BYTES)
        return kvf_fail(d, KVF_E_LIMIT, "%zu bytes are over the limit of %d", n, TABLE_MOST_BYTES);
    if (memchr(text, 0, n) || !utf8_valid(text, n))
        return kvf_fail(d, KVF_E_FORMAT, "the text is not UTF-8, or contains a NUL");
    if (text[n - 1] != '\n')
        return kvf_fail(d, KVF_E_FORMAT, "the last line is cut off: it has no newline");
    return KVF_OK;
}

int table_parse_tsv(const char *text, size_t n, table_text_fn is_text, struct table **ret,
                    struct kvf_diag *d)
{
    struct tsv x = {.is_text = is_text};
    int err = check_text(text, n, d);
    if (err)
        return err;
    char *copy = MEM_NEW(char, n);
    x.key = MEM_NEW(char *, TABLE_MOST_META);
    x.value = MEM_NEW(char *, TABLE_MOST_META);
    x.column = MEM_NEW(char *, TABLE_MOST_COLUMNS);
    err = copy && x.key && x.value && x.column ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        memcpy(copy, text, n);
        x.at = copy;
        x.end = copy + n;
        err = take_head(&x, d);
    }
    if (!err)
        err = take_rows(&x, d);
    if (!err)
        err = build(&x, ret);
    mem_free_all(copy, x.key, x.value, x.column, x.cell);
    return err;
}

/* ---- JSON */

/* A number, or null if it is not defined. */
static bool json_real(const struct json *v, double *ret)
{
    bool truth = json_bool(v, false) || !json_bool(v, true);
    *ret = json_num(v, NAN);
    return !isnan(*ret)
           || (!json_str(v, NULL) && !json_is_object(v) && !json_is_array(v) && !truth);
}

static int put_json(struct table *t, const struct json *column, const struct json *cells,
                    struct kvf_diag *d)
{
    static const char *const types[] = {"int", "real", "str"};
    const char *name = json_str(json_get(column, "name"), "");
    const char *unit = json_str(json_get(column, "unit"), "");
    const char *type = json_str(json_get(column, "type"), "");
    size_t n = (size_t)table_rows(t), r = 0;
    int kind = 0, err = KVF_OK;
    while (kind < 3 && strcmp(type, types[kind]) != 0)
        kind++;
    int64_t *whole = MEM_NEW(int64_t, n);
    double *real = MEM_NEW(double, n);
    const char **text = MEM_NEW(const char *, n);
    if (!whole || !real || !text)
        err = KVF_E_NOMEM;
    if (!err && kind == 3)
        err = kvf_fail(d, KVF_E_FORMAT, "column \"%.80s\": the type must be int, real or str",
                       name);
    for (const struct json *v = json_first(cells); !err && v; v = json_next(v), r++) {
        whole[r] = json_int(v, INT64_MIN);
        text[r] = json_str(v, NULL);
        bool fits[] = {whole[r] != INT64_MIN, json_real(v, &real[r]), text[r] != NULL};
        if (!fits[kind])
            err = kvf_fail(d, KVF_E_FORMAT, "column \"%.80s\": row %zu is no %s", name, r, type);
    }
    if (!err && kind == 0)
        table_dense_int(t, name, unit, whole);
    else if (!err && kind == 1)
        table_dense_real(t, name, unit, real);
    else if (!err)
        table_dense_str(t, name, unit, text);
    mem_free_all(whole, real, (void *)text);
    return err ? err : table_err(t);
}

static int json_shape(const struct json *root, int64_t *ret_rows, struct kvf_diag *d)
{
    const struct json *columns = json_get(root, "columns"), *data = json_get(root, "data");
    int n = json_len(columns), rows = -1;
    if (!json_is_array(columns) || !json_is_object(data))
        return kvf_fail(d, KVF_E_FORMAT, "this JSON has no \"columns\" and \"data\" of a table");
    if (n == 0 || n > TABLE_MOST_COLUMNS || json_len(data) != n)
        return kvf_fail(d, KVF_E_FORMAT, "%d columns and data of %d; 1 to %d are allowed", n,
                        json_len(data), TABLE_MOST_COLUMNS);
    for (const struct json *c = json_first(columns); c; c = json_next(c)) {
        const char *name = json_str(json_get(c, "name"), "");
        const struct json *cells = json_get(data, name);
        if (!*name || !json_is_array(cells))
            return kvf_fail(d, KVF_E_FORMAT, "column \"%.80s\" has no array of data", name);
        if (rows >= 0 && json_len(cells) != rows)
            return kvf_fail(d, KVF_E_FORMAT, "column \"%.80s\" has %d rows, others have %d", name,
                            json_len(cells), rows);
        for (const struct json *k = json_first(columns); k != c; k = json_next(k))
            if (strcmp(json_str(json_get(k, "name"), ""), name) == 0)
                return kvf_fail(d, KVF_E_FORMAT, "column \"%.80s\" is there twice", name);
        rows = json_len(cells);
    }
    if (rows > TABLE_MOST_CELLS / n)
        return kvf_fail(d, KVF_E_LIMIT, "%d rows of %d columns are more than %d cells", rows, n,
                        TABLE_MOST_CELLS);
    *ret_rows = rows;
    return KVF_OK;
}

static int put_json_meta(struct table *t, const struct json *meta, struct kvf_diag *d)
{
    if (json_len(meta) > TABLE_MOST_META)
        return kvf_fail(d, KVF_E_LIMIT, "more than %d members of metadata", TABLE_MOST_META);
    for (const struct json *m = json_first(meta); m; m = json_next(m)) {
        if (!json_key(m))
            return kvf_fail(d, KVF_E_FORMAT, "\"meta\" is no object");
        if (json_str(m, NULL))
            table_meta_str(t, json_key(m), json_str(m, ""));
        else if (!isnan(json_num(m, NAN)))
            table_meta_num(t, json_key(m), json_num(m, NAN));
    }
    return table_err(t);
}

/* True if the columns are equal to the table's, in their order. */
static bool same_columns(const struct table *t, const struct json *columns)
{
    int c = 0;
    if (!json_is_array(columns) || json_len(columns) != table_cols(t))
        return false;
    for (const struct json *k = json_first(columns); k; k = json_next(k), c++)
        if (strcmp(json_str(json_get(k, "name"), ""), table_col_name(t, c)) != 0)
            return false;
    return true;
}

int table_parse_about(struct table *t, const char *text, size_t n, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = json_parse(text, n, &root, d);
    if (err)
        return err;
    if (same_columns(t, json_get(root, "columns"))) {
        table_rename(t, json_str(json_get(root, "name"), ""));
        err = put_json_meta(t, json_get(root, "meta"), d);
    } else {
        err = kvf_fail(d, KVF_E_FORMAT, "it describes other columns than the table has");
    }
    json_free(root);
    return err;
}

int table_parse_json(const char *text, size_t n, struct table **ret, struct kvf_diag *d)
{
    struct json *root = NULL;
    struct table *t = NULL;
    int64_t rows = 0;
    int err = json_parse(text, n, &root, d);
    if (err)
        return err;
    err = json_shape(root, &rows, d);
    if (err)
        goto done;
    t = table_create(json_str(json_get(root, "name"), ""), rows);
    err = t ? put_json_meta(t, json_get(root, "meta"), d) : KVF_E_NOMEM;
    for (const struct json *c = json_first(json_get(root, "columns")); !err && c; c = json_next(c))
        err = put_json(t, c, json_get(json_get(root, "data"), json_str(json_get(c, "name"), "")),
                       d);
done:
    json_free(root);
    if (err)
        table_destroy(t);
    else
        *ret = t;
    return err;
}

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zip.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/table_io.h"
#include "base/utf8.h"

enum { FLUSH_BYTES = 1 << 20 };

enum table_format table_format_of(const char *path)
{
    static const char *const ext[] = {".tsv", ".csv", ".json", ".npz"};
    const char *dot = strrchr(path, '.');
    for (int i = 0; dot && i < 4; i++)
        if (strcasecmp(dot, ext[i]) == 0)
            return (enum table_format)i;
    return TABLE_FORMAT_NONE;
}

struct sink {
    FILE *f;
    struct buf b;
    bool bad;
};

static void flush(struct sink *s, size_t above)
{
    if (s->b.len > above) {
        s->bad |= s->b.err || fwrite(s->b.data, 1, s->b.len, s->f) != s->b.len;
        buf_clear(&s->b);
    }
}

static void put_number(struct buf *b, double v)
{
    if (isnan(v))
        buf_str(b, "nan");
    else if (isinf(v))
        buf_str(b, v > 0 ? "inf" : "-inf");
    else
        json_put_num(b, v);
}

static void put_tsv_text(struct buf *b, const char *s)
{
    for (; *s; s++) {
        const char *esc = *s == '\t' ? "\\t" : *s == '\n' ? "\\n" : *s == '\r' ? "\\r"
                        : *s == '\\' ? "\\\\" : NULL;
        if (esc)
            buf_str(b, esc);
        else
            buf_char(b, *s);
    }
}

static void put_csv_text(struct buf *b, const char *s)
{
    if (!s[strcspn(s, ",\"\r\n")]) {
        buf_str(b, s);
        return;
    }
    buf_char(b, '"');
    for (; *s; s++) {
        if (*s == '"')
            buf_char(b, '"');
        buf_char(b, *s);
    }
    buf_char(b, '"');
}

static void put_text(struct buf *b, enum table_format f, const char *s)
{
    if (f == TABLE_CSV)
        put_csv_text(b, s);
    else
        put_tsv_text(b, s);
}

static void write_lines(const struct table *t, enum table_format f, struct sink *s)
{
    char gap = f == TABLE_CSV ? ',' : '\t';
    buf_printf(&s->b, "# table: %s\n", table_name(t));
    for (int i = 0; i < table_meta_count(t); i++) {
        buf_printf(&s->b, "# %s: ", table_meta_key(t, i));
        put_tsv_text(&s->b, table_meta(t, table_meta_key(t, i)));
        buf_char(&s->b, '\n');
    }
    for (int c = 0; c < table_cols(t); c++) {
        if (c)
            buf_char(&s->b, gap);
        put_text(&s->b, f, table_col_name(t, c));
    }
    buf_char(&s->b, '\n');
    for (int64_t r = 0; r < table_rows(t); r++) {
        for (int c = 0; c < table_cols(t); c++) {
            if (c)
                buf_char(&s->b, gap);
            if (table_col_type(t, c) == TABLE_STR)
                put_text(&s->b, f, table_str(t, c, r));
            else
                put_number(&s->b, table_real(t, c, r));
        }
        buf_char(&s->b, '\n');
        flush(s, FLUSH_BYTES);
    }
}

static void json_text(struct buf *b, const char *s)
{
    json_put_str(b, s, strlen(s));
}

static void write_json(const struct table *t, struct sink *s)
{
    static const char *const types[] = {"int", "real", "str"};
    struct buf *b = &s->b;
    buf_str(b, "{\"name\":");
    json_text(b, table_name(t));
    buf_str(b, ",\"meta\":{");
    for (int i = 0; i < table_meta_count(t); i++) {
        json_put_key(b, table_meta_key(t, i));
        json_text(b, table_meta(t, table_meta_key(t, i)));
    }
    buf_str(b, "},\"columns\":[");
    for (int c = 0; c < table_cols(t); c++) {
        buf_str(b, c ? ",{\"name\":" : "{\"name\":");
        json_text(b, table_col_name(t, c));
        buf_str(b, ",\"unit\":");
        json_text(b, table_col_unit(t, c));
        buf_printf(b, ",\"type\":\"%s\"}", types[table_col_type(t, c)]);
    }
    buf_str(b, "],\"data\":{");
    for (int c = 0; c < table_cols(t); c++) {
        if (c)
            buf_char(b, ',');
        json_text(b, table_col_name(t, c));
        buf_str(b, ":[");
        for (int64_t r = 0; r < table_rows(t); r++) {
            if (r)
                buf_char(b, ',');
            if (table_col_type(t, c) == TABLE_STR)
                json_text(b, table_str(t, c, r));
            else
                json_put_num(b, table_real(t, c, r));
            flush(s, FLUSH_BYTES);
        }
        buf_char(b, ']');
    }
    buf_str(b, "}}\n");
}

static int write_text(const struct table *t, enum table_format f, FILE *out)
{
    struct sink s = {.f = out};
    if (f == TABLE_JSON)
        write_json(t, &s);
    else
        write_lines(t, f, &s);
    flush(&s, 0);
    buf_finish(&s.b);
    return s.bad || fflush(out) != 0 ? KVF_E_IO : KVF_OK;
}

static void npy_header(struct buf *b, const char *descr, int64_t n)
{
    char dict[118];
    int len = snprintf(dict, sizeof dict,
                       "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,), }", descr,
                       (long long)n);
    memset(dict + len, ' ', sizeof dict - (size_t)len);
    dict[sizeof dict - 1] = '\n';
    buf_add(b, "\x93NUMPY\x01\x00", 8);
    buf_le16(b, sizeof dict);
    buf_add(b, dict, sizeof dict);
}

/* Text as NumPy's fixed-width UTF-32. */
static void npy_text(struct buf *b, const struct table *t, int c)
{
    int64_t n = table_rows(t);
    size_t width = 1;
    for (int64_t r = 0; r < n; r++) {
        const char *s = table_str(t, c, r);
        size_t left = strlen(s), len = 0;
        while (left) { /* ill-formed bytes count one each, as below */
            uint32_t cp;
            size_t k = utf8_decode(s, left, &cp);
            s += k ? k : 1;
            left -= k ? k : 1;
            len++;
        }
        width = len > width ? len : width;
    }
    char descr[32];
    snprintf(descr, sizeof descr, "<U%zu", width);
    npy_header(b, descr, n);
    for (int64_t r = 0; r < n; r++) {
        const char *s = table_str(t, c, r);
        size_t left = strlen(s), k = 0;
        while (left && k < width) {
            uint32_t cp = 0xfffd;
            size_t len = utf8_decode(s, left, &cp);
            len = len ? len : 1;
            buf_le32(b, cp);
            s += len;
            left -= len;
            k++;
        }
        for (; k < width; k++)
            buf_le32(b, 0);
    }
}

static void npy_numbers(struct buf *b, const struct table *t, int c)
{
    bool whole = table_col_type(t, c) == TABLE_INT;
    npy_header(b, whole ? "<i8" : "<f8", table_rows(t));
    for (int64_t r = 0; r < table_rows(t); r++) {
        double v = table_real(t, c, r);
        uint64_t bits;
        int64_t i = whole ? (int64_t)v : 0;
        memcpy(&bits, whole ? (const void *)&i : (const void *)&v, 8);
        buf_le64(b, bits);
    }
}

static int write_npz(const struct table *t, const char *path, struct kvf_diag *d)
{
    int code, err = KVF_OK;
    zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!z)
        return kvf_fail(d, KVF_E_IO, "%s: cannot create: %s", path, strerror(errno));
    for (int c = 0; !err && c < table_cols(t); c++) {
        struct buf b = {.max = (size_t)4 << 30};
        char name[128];
        if (table_col_type(t, c) == TABLE_STR)
            npy_text(&b, t, c);
        else
            npy_numbers(&b, t, c);
        void *copy = b.err ? NULL : malloc(b.len); /* libzip frees it with free() */
        if (copy)
            memcpy(copy, b.data, b.len);
        snprintf(name, sizeof name, "%s.npy", table_col_name(t, c));
        zip_source_t *src = copy ? zip_source_buffer(z, copy, b.len, 1) : NULL;
        zip_int64_t i = src ? zip_file_add(z, name, src, ZIP_FL_ENC_UTF_8) : -1;
        if (i < 0)
            err = KVF_E_NOMEM;
        else /* 1980-01-01: equal tables give equal bytes */
            zip_file_set_dostime(z, (zip_uint64_t)i, 0, 33, 0);
        buf_finish(&b);
    }
    if (err)
        zip_discard(z);
    else if (zip_close(z) != 0) {
        err = kvf_fail(d, KVF_E_IO, "%s: cannot write: %s", path, zip_strerror(z));
        zip_discard(z);
    }
    return err;
}

int table_write(const struct table *t, enum table_format f, const char *path, struct kvf_diag *d)
{
    if (table_err(t))
        return kvf_fail(d, table_err(t), "%s: the table %s is not complete: %s", path,
                        table_name(t), kvf_strerror(table_err(t)));
    if (strcmp(path, "-") == 0 && f != TABLE_NPZ)
        return write_text(t, f, stdout)
                   ? kvf_fail(d, KVF_E_IO, "standard output: %s", strerror(errno))
                   : KVF_OK;
    struct buf part = {0};
    buf_printf(&part, "%s.part", path);
    if (part.err)
        return part.err;
    int err;
    if (f == TABLE_NPZ) {
        err = write_npz(t, part.data, d);
    } else {
        FILE *out = fopen(part.data, "wb");
        err = out ? write_text(t, f, out) : KVF_E_IO;
        if (out && fclose(out) != 0)
            err = KVF_E_IO;
        if (err)
            kvf_fail(d, err, "%s: cannot write: %s", path, strerror(errno));
    }
    if (!err && rename(part.data, path) != 0)
        err = kvf_fail(d, KVF_E_IO, "%s: cannot write: %s", path, strerror(errno));
    if (err)
        unlink(part.data);
    buf_finish(&part);
    return err;
}

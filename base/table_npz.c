#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <zip.h>

#include "base/mem.h"
#include "base/table_npz.h"
#include "base/utf8.h"

/* LEVEL: of deflate; docs/performance.md compares them.  PLACES: texts kept coded. */
enum { ROWS = 1024, PLACES = 64, LEVEL = 1 };

/* One column as the bytes of a .npy file, made as libzip asks for them. */
struct npy {
    const struct table *t;
    int col;
    enum table_type type;
    size_t width;             /* of a text, in code points */
    int64_t row;              /* the next to be made */
    zip_uint64_t size;        /* of all bytes */
    struct buf head;
    struct buf ready;         /* made; read up to `at` */
    size_t at;
    const char *from[PLACES]; /* of the text in coded */
    struct buf coded[PLACES];
    zip_error_t error;
};

static void npy_free(struct npy *x)
{
    buf_finish(&x->head);
    buf_finish(&x->ready);
    for (int k = 0; k < PLACES; k++)
        buf_finish(&x->coded[k]);
    zip_error_fini(&x->error);
    mem_free(x);
}

/* The place of a text that is known by its address, which the table shares where it can. */
static size_t place_of(const char *s)
{
    uintptr_t at = (uintptr_t)s;
    return (at >> 3 ^ at >> 9 ^ at) % PLACES;
}

/* Code points; bytes that are no UTF-8 count one each, as in code_text. */
static size_t length_of(const char *s)
{
    size_t left = strlen(s), n = 0;
    for (; left; n++) {
        uint32_t cp;
        size_t k = utf8_decode(s, left, &cp);
        s += k ? k : 1;
        left -= k ? k : 1;
    }
    return n;
}

/* Text as numpy's fixed-width UTF-32. */
static void code_text(struct buf *b, const char *s, size_t width)
{
    size_t left = strlen(s), n = 0;
    for (; left && n < width; n++) {
        uint32_t cp = 0xfffd;
        size_t k = utf8_decode(s, left, &cp);
        buf_le32(b, k ? cp : 0xfffd);
        s += k ? k : 1;
        left -= k ? k : 1;
    }
    for (; n < width; n++)
        buf_le32(b, 0);
}

static int64_t rows_from(const struct npy *x, int64_t row)
{
    int64_t left = table_rows(x->t) - row;
    return left < ROWS ? left : ROWS;
}

static size_t widest(const struct npy *x)
{
    const char *s[ROWS], *seen[PLACES] = {NULL};
    size_t width = 1;
    for (int64_t row = 0; row < table_rows(x->t); row += ROWS) {
        int64_t n = rows_from(x, row);
        table_get_str(x->t, x->col, row, n, s);
        for (int64_t i = 0; i < n; i++) {
            size_t k = place_of(s[i]);
            size_t len = s[i] == seen[k] ? 0 : length_of(s[i]);
            seen[k] = s[i];
            width = len > width ? len : width;
        }
    }
    return width;
}

static void make_texts(struct npy *x, int64_t n)
{
    const char *s[ROWS];
    table_get_str(x->t, x->col, x->row, n, s);
    for (int64_t i = 0; i < n; i++) {
        size_t k = place_of(s[i]);
        if (x->from[k] != s[i]) {
            x->from[k] = s[i];
            buf_clear(&x->coded[k]);
            code_text(&x->coded[k], s[i], x->width);
        }
        if (x->coded[k].err)
            x->ready.err = x->coded[k].err;
        buf_add(&x->ready, x->coded[k].data, x->coded[k].len);
    }
}

static void make_numbers(struct npy *x, int64_t n)
{
    double v[ROWS];
    unsigned char bytes[8 * ROWS], *p = bytes;
    table_get(x->t, x->col, x->row, n, v);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = (uint64_t)(x->type == TABLE_INT ? (int64_t)v[i] : 0);
        if (x->type == TABLE_REAL)
            memcpy(&bits, &v[i], sizeof bits);
        for (int k = 0; k < 8; k++)
            *p++ = (unsigned char)(bits >> (8 * k));
    }
    buf_add(&x->ready, bytes, (size_t)(p - bytes));
}

/* Up to len bytes, 0 at the end, -1 after an error. */
static zip_int64_t npy_read(struct npy *x, char *out, size_t len)
{
    size_t done = 0;
    while (done < len) {
        if (x->at == x->ready.len) {
            int64_t n = rows_from(x, x->row);
            if (n <= 0)
                break;
            buf_clear(&x->ready);
            x->at = 0;
            if (x->type == TABLE_STR)
                make_texts(x, n);
            else
                make_numbers(x, n);
            x->row += n;
        }
        if (x->ready.err) {
            zip_error_set(&x->error, ZIP_ER_MEMORY, 0);
            return -1;
        }
        size_t part = x->ready.len - x->at < len - done ? x->ready.len - x->at : len - done;
        memcpy(out + done, x->ready.data + x->at, part);
        x->at += part;
        done += part;
    }
    return (zip_int64_t)done;
}

static zip_int64_t npy_source(void *ctx, void *data, zip_uint64_t len, zip_source_cmd_t command)
{
    struct npy *x = ctx;
    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_READABLE;
    case ZIP_SOURCE_OPEN:
        x->row = 0;
        x->at = 0;
        buf_clear(&x->ready);
        buf_add(&x->ready, x->head.data, x->head.len);
        return 0;
    case ZIP_SOURCE_READ:
        return npy_read(x, data, (size_t)len);
    case ZIP_SOURCE_STAT: {
        zip_stat_t *st = data;
        zip_stat_init(st);
        st->valid = ZIP_STAT_SIZE;
        st->size = x->size;
        return sizeof *st;
    }
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&x->error, data, len);
    case ZIP_SOURCE_FREE:
        npy_free(x);
        return 0;
    case ZIP_SOURCE_CLOSE:
        return 0;
    default:
        zip_error_set(&x->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

static void npy_header(struct npy *x)
{
    char descr[32] = "<i8", dict[118];
    size_t per = 8, data, all;
    if (x->type == TABLE_REAL)
        descr[1] = 'f';
    if (x->type == TABLE_STR) {
        x->width = widest(x);
        snprintf(descr, sizeof descr, "<U%zu", x->width);
        per = 4 * x->width;
    }
    int len = snprintf(dict, sizeof dict,
                       "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,), }", descr,
                       (long long)table_rows(x->t));
    memset(dict + len, ' ', sizeof dict - (size_t)len);
    dict[sizeof dict - 1] = '\n';
    buf_add(&x->head, "\x93NUMPY\x01\x00", 8);
    buf_le16(&x->head, sizeof dict);
    buf_add(&x->head, dict, sizeof dict);
    if (!mem_mul(per, (size_t)table_rows(x->t), &data) || !mem_add(data, x->head.len, &all))
        x->head.err = KVF_E_LIMIT;
    else
        x->size = all;
}

static int add_column(zip_t *z, const struct table *t, int col)
{
    struct npy *x = MEM_NEW(struct npy, 1);
    if (!x)
        return KVF_E_NOMEM;
    zip_error_init(&x->error);
    x->t = t;
    x->col = col;
    x->type = table_col_type(t, col);
    npy_header(x);
    struct buf name = {0};
    buf_printf(&name, "%s.npy", table_col_name(t, col));
    int err = x->head.err ? x->head.err : name.err;
    zip_source_t *src = err ? NULL : zip_source_function(z, npy_source, x);
    if (!src) {
        npy_free(x);
        buf_finish(&name);
        return err ? err : KVF_E_NOMEM;
    }
    zip_int64_t i = zip_file_add(z, name.data, src, ZIP_FL_ENC_UTF_8);
    buf_finish(&name);
    if (i < 0) {
        zip_source_free(src); /* frees x */
        return KVF_E_NOMEM;
    }
    zip_set_file_compression(z, (zip_uint64_t)i, ZIP_CM_DEFLATE, LEVEL);
    zip_file_set_dostime(z, (zip_uint64_t)i, 0, 33, 0); /* 1980-01-01: equal tables, equal bytes */
    return KVF_OK;
}

int table_npz_write(const struct table *t, const char *path, struct kvf_diag *d)
{
    int code, err = KVF_OK;
    zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!z)
        return kvf_fail(d, KVF_E_IO, "%s: cannot create: %s", path, strerror(errno));
    for (int c = 0; !err && c < table_cols(t); c++)
        err = add_column(z, t, c);
    if (err) {
        zip_discard(z);
    } else if (zip_close(z) != 0) {
        err = kvf_fail(d, KVF_E_IO, "%s: cannot write: %s", path, zip_strerror(z));
        zip_discard(z);
    }
    return err;
}

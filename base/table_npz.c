/* table_npz.c - writes tables as NumPy archives (table_npz.h). */
#include <errno.h>
#include <minizip/zip.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/table_npz.h"
#include "base/utf8.h"

/* LEVEL: of deflate.  Level 1 writes 1.5 million rows of evictions in 2.0 s as 26.1 MB, level 6 in
 * 8.9 s as 23.4 MB.  PLACES: texts kept coded. */
enum { ROWS = 1024, PLACES = 64, LEVEL = 1, MOST_COLS = 65534, FLUSH_BYTES = 1 << 18 };

/* From here on a size is written as Zip64. */
static const uint64_t ZIP64 = UINT32_MAX;

/* --- the file ----------------------------------------------------------------- */

/* Where minizip writes.  minizip never gets an error, because it then loses memory: the first one
 * is kept in the output. */
struct file {
    const struct progress_callback *watch;
    struct replace *to;
    struct buf ready; /* bytes that are not yet given to `to` */
    uint64_t at;
};

static void file_flush(struct file *x)
{
    if (x->ready.err && !x->to->error)
        x->to->error = ENOMEM;
    replace_write(x->to, x->ready.data, x->ready.len);
    buf_clear(&x->ready);
}

static voidpf file_open(voidpf opaque, const void *name, int mode)
{
    (void)name;
    (void)mode;
    return opaque;
}

static uLong file_read(voidpf opaque, voidpf stream, void *buf, uLong n)
{
    (void)opaque;
    (void)stream;
    (void)buf;
    (void)n;
    return 0; /* used only by archives that are continued */
}

static uLong file_write(voidpf opaque, voidpf stream, const void *buf, uLong n)
{
    struct file *x = stream;
    (void)opaque;
    buf_add(&x->ready, buf, n);
    if (x->ready.len >= FLUSH_BYTES)
        file_flush(x);
    x->at += n;
    return n;
}

static ZPOS64_T file_tell(voidpf opaque, voidpf stream)
{
    const struct file *x = stream;
    (void)opaque;
    return x->at;
}

static long file_seek(voidpf opaque, voidpf stream, ZPOS64_T place, int origin)
{
    struct file *x = stream;
    (void)opaque;
    (void)origin; /* from the beginning: no other is asked for */
    file_flush(x);
    replace_seek(x->to, place);
    x->at = place;
    return 0;
}

static int file_done(voidpf opaque, voidpf stream)
{
    (void)opaque;
    (void)stream;
    return 0;
}

/* --- columns ------------------------------------------------------------------ */

/* One column as the bytes of a .npy file. */
struct npy {
    const struct table *t;
    int col;
    enum table_type type;
    size_t width;  /* of a text, in code points */
    int64_t row;   /* the next to be made */
    uint64_t size; /* of all bytes */
    struct buf head;
    struct buf ready;         /* rows that are made */
    const char *from[PLACES]; /* of the text in coded */
    struct buf coded[PLACES];
};

static void npy_free(struct npy *x)
{
    buf_finish(&x->head);
    buf_finish(&x->ready);
    for (int k = 0; k < PLACES; k++)
        buf_finish(&x->coded[k]);
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

/* Deflate may add bytes (zlib's deflateBound: fewer than one in 2,048), and minizip has no room for
 * a packed size of Zip64 with a smaller unpacked one: such a column is stored. */
static int method_of(const struct npy *x)
{
    return x->size < ZIP64 && x->size + x->size / 2048 >= ZIP64 ? 0 : Z_DEFLATED;
}

/* An entry of a date that never changes, so that equal tables give equal bytes. */
static int open_entry(zipFile z, const struct npy *x, const char *name)
{
    enum { UNIX_63 = 3 << 8 | 63, UTF8 = 1 << 11 };
    static const zip_fileinfo info = {
        .dosDate = 33u << 16,          /* 1980-01-01 */
        .external_fa = 0100666ul << 16 /* a file that all may read and write, before the umask */
    };
    return zipOpenNewFileInZip4_64(z, name, &info, NULL, 0, NULL, 0, NULL, method_of(x), LEVEL, 0,
                                   -MAX_WBITS, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY, NULL, 0, UNIX_63,
                                   UTF8, x->size >= ZIP64);
}

static int put(zipFile z, const struct buf *b)
{
    const size_t most = 1 << 30; /* minizip counts in unsigned int */
    int err = b->err;
    for (size_t at = 0; !err && at < b->len; at += most)
        if (zipWriteInFileInZip(z, b->data + at,
                                (unsigned)(b->len - at < most ? b->len - at : most))
            != ZIP_OK)
            err = KVF_E_NOMEM;
    return err;
}

static int put_rows(zipFile z, struct npy *x, const struct file *out)
{
    int err = put(z, &x->head);
    while (!err && !out->to->error) {
        int64_t n = rows_from(x, x->row);
        if (n <= 0)
            break;
        buf_clear(&x->ready);
        if (x->type == TABLE_STR)
            make_texts(x, n);
        else
            make_numbers(x, n);
        err = put(z, &x->ready);
        x->row += n;
        progress_report(out->watch, x->col * table_rows(x->t) + x->row,
                        table_cols(x->t) * table_rows(x->t));
    }
    return err;
}

static int add_column(zipFile z, const struct table *t, int col, const struct file *out)
{
    struct npy *x = MEM_NEW(struct npy, 1);
    if (!x)
        return KVF_E_NOMEM;
    x->t = t;
    x->col = col;
    x->type = table_col_type(t, col);
    npy_header(x);
    struct buf name = {0};
    buf_printf(&name, "%s.npy", table_col_name(t, col));
    int err = x->head.err ? x->head.err : name.err;
    if (!err && open_entry(z, x, name.data) != ZIP_OK)
        err = KVF_E_NOMEM;
    if (!err) {
        err = put_rows(z, x, out);
        if (zipCloseFileInZip(z) != ZIP_OK && !err)
            err = KVF_E_NOMEM;
    }
    npy_free(x);
    buf_finish(&name);
    return err;
}

static int write_archive(const struct table *t, const char *comment, struct file *out)
{
    zlib_filefunc64_def calls = {.zopen64_file = file_open,
                                 .zread_file = file_read,
                                 .zwrite_file = file_write,
                                 .ztell64_file = file_tell,
                                 .zseek64_file = file_seek,
                                 .zclose_file = file_done,
                                 .zerror_file = file_done,
                                 .opaque = out};
    zipFile z = zipOpen2_64(NULL, APPEND_STATUS_CREATE, NULL, &calls);
    int err = z ? KVF_OK : KVF_E_NOMEM;
    for (int c = 0; !err && !out->to->error && c < table_cols(t); c++)
        err = add_column(z, t, c, out);
    if (z && zipClose(z, comment) != ZIP_OK && !err)
        err = KVF_E_NOMEM;
    return err;
}

int table_npz_write(const struct table *t, const char *comment, const struct progress_callback *w,
                    struct replace *to, struct kvf_diag *d)
{
    if (table_cols(t) > MOST_COLS)
        return kvf_fail(d, KVF_E_LIMIT, "%s: more than %d columns", to->path, MOST_COLS);
    struct file out = {.to = to, .watch = w};
    int err = write_archive(t, comment, &out);
    file_flush(&out);
    buf_finish(&out.ready);
    return err;
}

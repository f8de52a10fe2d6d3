/* table_read.c - a table from a file, by its extension. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/table_io.h"
#include "base/table_read.h"
#include "base/table_seal.h"

/* *ret_none: the file may be missing, and is; NULL: it must be there. */
static int load(const char *path, struct buf *b, bool *ret_none, struct kvf_diag *d)
{
    char part[1 << 14];
    FILE *f = fopen(path, "rb");
    if (!f && ret_none && errno == ENOENT) {
        *ret_none = true;
        return KVF_OK;
    }
    if (!f)
        return kvf_fail(d, KVF_E_IO, "cannot be opened: %s", strerror(errno));
    for (size_t n = 1; !b->err && n > 0;) {
        n = fread(part, 1, sizeof part, f);
        buf_add(b, part, n);
    }
    int err = ferror(f) ? kvf_fail(d, KVF_E_IO, "cannot be read: %s", strerror(errno)) : b->err;
    if (err == KVF_E_LIMIT)
        kvf_fail(d, err, "is over the limit of %d bytes", TABLE_MOST_BYTES);
    fclose(f);
    return err;
}

/* The metadata in the sidecar of a CSV, if there is one. */
static int read_sidecar(const char *path, const struct buf *csv, struct table *t,
                        struct kvf_diag *d)
{
    struct buf name = {0}, b = {.max = TABLE_MOST_BYTES};
    bool none = false;
    buf_printf(&name, "%s" TABLE_SIDECAR, path);
    int err = name.err;
    if (!err)
        err = load(name.data, &b, &none, d);
    if (!err && !none && b.len) {
        err = seal_check_json(b.data, b.len, csv, d);
        if (err) { /* of both files */
            buf_finish(&b);
            buf_finish(&name);
            return err;
        }
    }
    if (!err && !none)
        err = table_parse_about(t, b.data ? b.data : "", b.len, d);
    if (err && d && d->text[0])
        kvf_diag_prefix(d, "its file " TABLE_SIDECAR);
    buf_finish(&b);
    buf_finish(&name);
    return err;
}

static int read_csv(const char *path, const struct buf *b, table_text_fn is_text,
                    struct table **ret, struct kvf_diag *d)
{
    struct table *t = NULL;
    int err = table_parse_csv(b->data ? b->data : "", b->len, is_text, &t, d);
    if (!err && b->data[0] != '#')
        err = read_sidecar(path, b, t, d);
    if (err)
        table_destroy(t);
    else
        *ret = t;
    return err;
}

int table_read(const char *path, table_text_fn is_text, struct table **ret, struct kvf_diag *d)
{
    struct buf b = {.max = TABLE_MOST_BYTES};
    enum table_format f = table_format_of(path);
    if (f != TABLE_TSV && f != TABLE_CSV && f != TABLE_JSON)
        return kvf_fail(d, KVF_E_ARG, "%s: a table is read from .tsv, .csv or .json", path);
    int err = load(path, &b, NULL, d);
    const char *text = b.data ? b.data : "";
    if (!err && f != TABLE_CSV)
        err = f == TABLE_TSV ? seal_check_tsv(text, b.len, d)
                             : seal_check_json(text, b.len, NULL, d);
    if (!err && f == TABLE_TSV)
        err = table_parse_tsv(text, b.len, is_text, ret, d);
    else if (!err && f == TABLE_CSV)
        err = read_csv(path, &b, is_text, ret, d);
    else if (!err)
        err = table_parse_json(text, b.len, ret, d);
    buf_finish(&b);
    if (err && d && !d->text[0])
        kvf_fail(d, err, "%s", kvf_strerror(err));
    if (err)
        kvf_diag_prefix(d, "%s", path);
    return err;
}

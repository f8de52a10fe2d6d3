/* table_read.c - a table from a file, by its extension. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/table_io.h"
#include "base/table_read.h"

static int load(const char *path, struct buf *b, struct kvf_diag *d)
{
    char part[1 << 14];
    FILE *f = fopen(path, "rb");
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

int table_read(const char *path, table_text_fn is_text, struct table **ret, struct kvf_diag *d)
{
    struct buf b = {.max = TABLE_MOST_BYTES};
    enum table_format f = table_format_of(path);
    if (f != TABLE_TSV && f != TABLE_CSV && f != TABLE_JSON)
        return kvf_fail(d, KVF_E_ARG, "%s: a table is read from .tsv, .csv or .json", path);
    int err = load(path, &b, d);
    const char *text = b.data ? b.data : "";
    if (!err && f == TABLE_TSV)
        err = table_parse_tsv(text, b.len, is_text, ret, d);
    else if (!err && f == TABLE_CSV)
        err = table_parse_csv(text, b.len, is_text, ret, d);
    else if (!err)
        err = table_parse_json(text, b.len, ret, d);
    buf_finish(&b);
    if (err && d && !d->text[0])
        kvf_fail(d, err, "%s", kvf_strerror(err));
    if (err)
        kvf_diag_prefix(d, "%s", path);
    return err;
}

/* table_csv.c - CSV as table_write makes it, read by turning it into TSV. */
#include <string.h>

#include "base/table_read.h"

static void put_plain(struct buf *b, char c)
{
    if (c == '\\')
        buf_str(b, "\\\\");
    else if (c == '\t')
        buf_str(b, "\\t");
    else if (c == '\n' || c == '\r')
        buf_str(b, c == '\n' ? "\\n" : "\\r");
    else
        buf_char(b, c);
}

/* Reads a cell in quotes from *at on, and moves *at after the closing quote; false where there is
 * none or where more follows. */
static bool quoted(const char **at, const char *end, struct buf *b)
{
    const char *p = *at + 1;
    for (; p < end && (*p != '"' || (p + 1 < end && p[1] == '"')); p++) {
        p += *p == '"';
        put_plain(b, *p);
    }
    *at = p + 1;
    return p + 1 < end && (p[1] == ',' || p[1] == '\n');
}

/* One row, which a newline ends. */
static bool row(const char **at, const char *end, struct buf *b)
{
    while (*at < end) {
        if (**at == '"') {
            if (!quoted(at, end, b))
                return false;
        } else {
            for (; *at < end && **at != ',' && **at != '\n'; ++*at)
                put_plain(b, **at);
        }
        if (*at == end)
            return false;
        buf_char(b, *(*at)++ == ',' ? '\t' : '\n');
        if ((*at)[-1] == '\n')
            return true;
    }
    return false;
}

int table_parse_csv(const char *text, size_t n, table_text_fn is_text, struct table **ret,
                    struct kvf_diag *d)
{
    struct buf b = {.max = 2 * (size_t)TABLE_MOST_BYTES};
    const char *at = text, *end = text + n;
    bool head = true, whole = n > 0;
    while (at < end && whole) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (head && *at == '#' && stop) { /* metadata are escaped as in TSV */
            buf_add(&b, at, (size_t)(stop - at) + 1);
            at = stop + 1;
        } else {
            head = false;
            whole = row(&at, end, &b);
        }
    }
    int err = b.err;
    if (!err && !whole)
        err = kvf_fail(d, KVF_E_FORMAT,
                       n ? "a row is incomplete, or a cell contains a quote" : "the file is empty");
    if (!err)
        err = table_parse_tsv(b.data, b.len, is_text, ret, d);
    buf_finish(&b);
    return err;
}

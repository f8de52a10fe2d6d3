/* trips.c - the library's side of the round trips of trips.py, for machines of either byte order.
 *
 *     trips write SCRIPT        writes the traces that a script describes
 *     trips read SCRIPT OUT     reads traces and writes all their contents, for comparison
 *
 * All numbers in scripts and in the output are little-endian; trips.py defines them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/trace.h>
#include "tests/scoped.h"

enum { MOST_LAYERS = 16, MOST_COLUMNS = 64 };

static const unsigned char *at; /* position in the script */

static void die(const char *what, int err)
{
    fprintf(stderr, "trips: %s: %s\n", what, kvf_strerror(err));
    exit(1);
}

static void check(const char *what, int err, const struct kvf_diag *d)
{
    if (err && d && d->text[0])
        fprintf(stderr, "trips: %s\n", d->text);
    if (err)
        die(what, err);
}

static uint32_t number(void)
{
    uint32_t v = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    at += 4;
    return v;
}

/* Reads a length and returns a pointer to as many bytes in the script. */
static const unsigned char *bytes(size_t *ret_n)
{
    *ret_n = number();
    const unsigned char *p = at;
    at += *ret_n;
    return p;
}

static void *room(size_t n)
{
    void *p = calloc(n + 1, 1);
    if (!p)
        die("memory", KVF_E_NOMEM);
    return p;
}

/* Converts n elements between the byte orders of this machine and of the script. */
static void turn(void *p, size_t n, size_t width)
{
    unsigned char *b = p, *end = b + n * width;
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        return;
    for (; b < end; b += width)
        for (size_t k = 0; k < width / 2; k++) {
            unsigned char low = b[k];
            b[k] = b[width - 1 - k];
            b[width - 1 - k] = low;
        }
}

/* Returns a copy of bytes in the script as elements of this machine; the caller frees it. */
static void *elements(size_t width, size_t *ret_n)
{
    size_t n;
    const unsigned char *p = bytes(&n);
    void *copy = room(n);
    memcpy(copy, p, n);
    turn(copy, n / width, width);
    *ret_n = n / width;
    return copy;
}

static char *text(void)
{
    size_t n;
    const unsigned char *p = bytes(&n);
    char *copy = room(n);
    memcpy(copy, p, n);
    return copy;
}

/* ---- writing: commands, each a letter and its arguments */

static struct kvf_column column[MOST_COLUMNS];

static struct kvf_writer *begin(void)
{
    struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    uint16_t n_kv[MOST_LAYERS], n_query[MOST_LAYERS];
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    OWNED(free) char *path = text(), *meta = text();
    OWNED(free) int32_t *prompt = elements(4, &o.n_prompt);
    o.prompt = prompt;
    uint32_t flags = number(), layers = number();
    o.plain = flags & 1;
    o.smallest = flags & 2;
    for (uint32_t l = 0; l < layers; l++) {
        n_kv[l] = (uint16_t)number();
        n_query[l] = (uint16_t)number();
    }
    uint32_t n = number();
    memcpy(column, at, n * sizeof *column); /* only bytes */
    at += n * sizeof *column;
    const struct kvf_shape shape = {(int)layers, n_kv, n_query};
    check("open", kvf_writer_open(path, meta, &shape, column, (int)n, &o, &w, &d), &d);
    return w;
}

struct where {
    int column, layer, head0, n_heads;
    uint32_t t0, n, epoch;
};

static struct where where(void)
{
    struct where x;
    x.column = (int)number();
    x.layer = (int)number();
    x.head0 = (int)number();
    x.n_heads = (int)number();
    x.t0 = number();
    x.n = number();
    x.epoch = number();
    return x;
}

static void chunk(struct kvf_writer *w)
{
    size_t n;
    struct where x = where();
    OWNED(free) void *v = elements(kvf_dtype_size((enum kvf_dtype)column[x.column].dtype), &n);
    check("chunk", kvf_write_chunk(w, x.column, x.layer, x.head0, x.n_heads, x.t0, x.n, x.epoch, v),
          NULL);
}

static void lists(struct kvf_writer *w)
{
    size_t n;
    struct where x = where();
    OWNED(free) uint32_t *end = elements(4, &n);
    OWNED(free) struct kvf_interval *v = elements(4, &n);
    check("intervals",
          kvf_write_intervals(w, x.column, x.layer, x.head0, x.n_heads, x.t0, x.n, x.epoch, end, v),
          NULL);
}

static void texts(struct kvf_writer *w)
{
    size_t n, length;
    uint32_t t0 = number(), *end = elements(4, &n);
    const unsigned char *p = bytes(&length);
    check("texts", kvf_write_token_bytes(w, t0, (uint32_t)n, end, (const char *)p), NULL);
    free(end);
}

static void blob(struct kvf_writer *w)
{
    size_t n;
    uint32_t packed = number();
    struct kvf_blob b = {.dtype = (uint8_t)number()};
    b.rank = (uint8_t)number();
    b.layer = (uint16_t)number();
    b.head = (uint16_t)number();
    b.t0 = number();
    for (int i = 0; i < KVF_MAX_RANK; i++)
        b.shape[i] = number();
    OWNED(free) char *name = text();
    snprintf(b.name, sizeof b.name, "%s", name);
    OWNED(free) void *v = elements(kvf_dtype_size((enum kvf_dtype)b.dtype), &n);
    check("blob", kvf_write_blob(w, &b, packed, v), NULL);
}

static void note(struct kvf_writer *w)
{
    OWNED(free) char *key = text(), *json = text();
    check("note", kvf_writer_note(w, key, json), NULL);
}

static void write_all(const unsigned char *end)
{
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    while (at < end)
        switch (*at++) {
        case 'O':
            w = begin();
            break;
        case 'C':
            chunk(w);
            break;
        case 'I':
            lists(w);
            break;
        case 'T':
            texts(w);
            break;
        case 'B':
            blob(w);
            break;
        case 'N':
            note(w);
            break;
        case 'M': {
            uint32_t epoch = number();
            check("commit", kvf_writer_commit(w, epoch, number()), NULL);
            break;
        }
        case 'X':
            check("close", kvf_writer_close(w, &d), &d);
            break;
        case 'A':
            kvf_writer_abandon(w);
            break;
        default:
            die("script", KVF_E_FORMAT);
        }
}

/* ---- reading: a path, a flag for mapping, and keys of notes */

static FILE *out;

static void put(const void *p, size_t n)
{
    if (n && fwrite(p, 1, n, out) != n)
        die("output", KVF_E_IO);
}

static void put_number(uint32_t v, int n)
{
    const unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                                (unsigned char)(v >> 24)};
    put(b, (size_t)n);
}

static void put_text(const void *p, size_t n)
{
    put_number((uint32_t)n, 4);
    put(p, n);
}

/* Writes a byte per value, 1 if it is present, then all values, with zero for missing ones. */
static void show_values(struct kvf_trace *t, int c, int layer, int head, uint32_t n)
{
    size_t width = kvf_dtype_size((enum kvf_dtype)kvf_column(t, c)->dtype);
    char *v = room(n * width), *there = room(n);
    struct kvf_diag d = {""};
    const void *view = NULL;
    int err = kvf_read(t, c, layer, head, 0, n, v, &d);
    memset(there, 1, n);
    for (uint32_t i = 0; err && i < n; i++) { /* present values, one by one */
        int one = kvf_read(t, c, layer, head, i, 1, v + i * width, &d);
        check("read", one == KVF_E_NOTFOUND ? KVF_OK : one, &d);
        there[i] = one == KVF_OK;
        memset(v + i * width, 0, one ? width : 0);
    }
    if (!err)
        check("view", kvf_view(t, c, layer, head, 0, n, &view, &d), &d);
    if (!err && n && memcmp(view, v, n * width) != 0)
        die("view and read differ", KVF_E_CORRUPT);
    turn(v, n, width);
    put(there, n);
    put(v, n * width);
    free(v);
    free(there);
}

static void show_lists(struct kvf_trace *t, int c, int layer, int head, uint32_t n)
{
    uint32_t *all = room(n * 4), total = 0;
    const struct kvf_interval *v;
    struct kvf_diag d = {""};
    int whole = kvf_read_intervals(t, c, layer, head, 0, n, all, &v, &d) == KVF_OK;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = 0;
        int err = kvf_read_intervals(t, c, layer, head, i, 1, &count, &v, &d);
        check("lists", err == KVF_E_NOTFOUND ? KVF_OK : err, &d);
        put_number(err == KVF_OK, 1);
        put_number(count, 4);
        for (uint32_t k = 0; k < count; k++) {
            put_number(v[k].first, 4);
            put_number(v[k].last, 4);
        }
        total += count;
        if (whole && (err || all[i] != total))
            die("lists at once and one by one differ", KVF_E_CORRUPT);
    }
    free(all);
}

static void show_blobs(struct kvf_trace *t)
{
    struct kvf_diag d = {""};
    put_number((uint32_t)kvf_n_blobs(t), 4);
    for (int i = 0; i < kvf_n_blobs(t); i++) {
        struct kvf_blob b;
        const void *v;
        check("blob", kvf_blob(t, i, &b, &d), &d);
        check("blob", kvf_blob_view(t, i, &v, &d), &d);
        size_t n = kvf_blob_size(&b), width = kvf_dtype_size((enum kvf_dtype)b.dtype);
        OWNED(free) void *copy = room(n);
        memcpy(copy, v, n);
        turn(copy, n / width, width);
        put(b.name, sizeof b.name);
        put_number(b.dtype, 1);
        put_number(b.rank, 1);
        put_number(b.layer, 2);
        put_number(b.head, 2);
        put_number(b.t0, 4);
        for (int k = 0; k < KVF_MAX_RANK; k++)
            put_number(b.shape[k], 4);
        put(copy, n);
    }
}

static void show_head(struct kvf_trace *t)
{
    char id[33] = "", digest[33] = "", stored[33] = "";
    struct kvf_diag d = {""};
    if (kvf_run_id(t, id) == KVF_E_NOTFOUND) /* format 0.1, which also has no digest */
        memset(id, '0', 32);
    if (kvf_is_clean(t)) {
        check("digest", kvf_digest(t, digest, &d), &d);
        if (kvf_stored_digest(t, stored) == KVF_OK && strcmp(digest, stored) != 0)
            die("the digest is not the stored one", KVF_E_CORRUPT);
    }
    put_text(kvf_meta(t), strlen(kvf_meta(t)));
    put_number((uint32_t)kvf_is_clean(t), 4);
    put_number(kvf_n_steps(t), 4);
    put_number(kvf_epoch(t), 4);
    put(id, 32);
    put(digest, 32);
    put_number((uint32_t)kvf_n_layers(t), 4);
    for (int l = 0; l < kvf_n_layers(t); l++) {
        put_number((uint32_t)kvf_n_heads(t, l, KVF_SPACE_KV), 2);
        put_number((uint32_t)kvf_n_heads(t, l, KVF_SPACE_QUERY), 2);
    }
    put_number((uint32_t)kvf_n_columns(t), 4);
    for (int c = 0; c < kvf_n_columns(t); c++)
        put(kvf_column(t, c), sizeof *column);
}

static void show(struct kvf_trace *t)
{
    uint32_t n = kvf_n_steps(t);
    show_head(t);
    for (int c = 0; c < kvf_n_columns(t); c++) {
        const struct kvf_column *k = kvf_column(t, c);
        int layers = k->space == KVF_SPACE_RUN ? 1 : kvf_n_layers(t);
        for (int l = 0; l < layers; l++)
            for (int h = 0; h < kvf_n_heads(t, l, (enum kvf_space)k->space); h++)
                (k->flags & KVF_COL_INTERVALS ? show_lists : show_values)(t, c, l, h, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t length = 0;
        const char *token = kvf_token(t, i, &length);
        put_number(token != NULL, 1);
        put_text(token, token ? length : 0);
    }
    show_blobs(t);
    for (uint32_t keys = number(); keys > 0; keys--) {
        OWNED(free) char *key = text();
        const char *json = kvf_note(t, key);
        put_number(json != NULL, 1);
        put_text(json, json ? strlen(json) : 0);
    }
}

static void read_all(const unsigned char *end)
{
    struct kvf_diag d = {""};
    while (at < end) {
        OWNED(kvf_close) struct kvf_trace *t = NULL;
        struct kvf_check c;
        OWNED(free) char *path = text();
        int mapped = (int)number();
        check("verify", kvf_verify(path, 1, &c, &d), &d);
        d.text[0] = 0;
        check("open", (mapped ? kvf_open_mapped : kvf_open)(path, KVF_OPEN_TAIL, &t, &d), &d);
        show(t);
    }
}

int main(int argc, char **argv)
{
    int reads = argc == 4 && strcmp(argv[1], "read") == 0;
    FILE *f = reads || argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        fprintf(stderr, "usage: trips write SCRIPT | read SCRIPT OUT\n");
        return 2;
    }
    size_t n = (size_t)ftell(f);
    OWNED(free) unsigned char *script = room(n);
    rewind(f);
    if (fread(script, 1, n, f) != n)
        die("script", KVF_E_IO);
    fclose(f);
    at = script;
    if (reads) {
        out = fopen(argv[3], "wb");
        if (!out)
            die("output", KVF_E_IO);
        read_all(script + n);
        if (fclose(out) != 0)
            die("output", KVF_E_IO);
    } else {
        write_all(script + n);
    }
    return 0;
}

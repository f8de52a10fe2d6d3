/* dump_trace.c - writes all contents of traces as text, to compare the reader in JavaScript
 * (dump_trace.js) with the library.
 *
 * usage: dump_trace LIST. A line of LIST is "TRACE<tab>TAIL<tab>OUT"; TAIL may be empty and is used
 * only by dump_trace.js. OUT gets the lines that dump_trace.js defines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/trace.h>
#include "tests/scoped.h"

enum { MOST_READS = 20000, MOST_BYTES = 24 << 20, MOST_TEXTS = 4096, MOST_BLOBS = 64 };

static FILE *out;
static size_t written; /* bytes of values */

static void put_hex(const void *data, size_t n)
{
    const unsigned char *p = data;
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        fputc(digits[p[i] >> 4], out);
        fputc(digits[p[i] & 15], out);
    }
    written += n;
}

static const char *code_name(int err)
{
    switch (err) {
#define X(name, code, text)                                                                        \
    case code:                                                                                     \
        return "KVF_E_" #name;
        KVF_ERR_MAP(X)
#undef X
    default:
        return "?";
    }
}

static void put_error(int err, const struct kvf_diag *d)
{
    fprintf(out, "error %s %s\n", code_name(err), d->text);
}

static void put_values(struct kvf_trace *t, int c, int layer, int head)
{
    const struct kvf_column *col = kvf_column(t, c);
    uint32_t T = kvf_n_steps(t);
    const struct kvf_interval *pairs = NULL;
    size_t width = kvf_dtype_size((enum kvf_dtype)col->dtype);
    OWNED(free) void *v = calloc(T ? T : 1, width < 4 ? 4 : width);
    struct kvf_diag d = {""};
    bool lists = col->flags & KVF_COL_INTERVALS;
    int err = lists ? kvf_read_intervals(t, c, layer, head, 0, T, v, &pairs, &d)
                    : kvf_read(t, c, layer, head, 0, T, v, &d);
    fprintf(out, "values %d %d %d ", c, layer, head);
    if (err) {
        put_error(err, &d);
        return;
    }
    put_hex(v, T * width);
    if (lists) {
        fputc(' ', out);
        put_hex(pairs, T ? ((uint32_t *)v)[T - 1] * sizeof *pairs : 0);
    }
    fputc('\n', out);
}

static void put_columns(struct kvf_trace *t)
{
    int reads = 0;
    for (int c = 0; c < kvf_n_columns(t); c++) {
        const struct kvf_column *col = kvf_column(t, c);
        fprintf(out, "column %d ", c);
        put_hex(col->name, strlen(col->name));
        fprintf(out, " %d %d %d %d \n", col->dtype, col->space, col->axis, col->flags);
        for (int l = 0; l < kvf_n_layers(t); l++)
            for (int h = 0; h < kvf_n_heads(t, l, (enum kvf_space)col->space); h++)
                if (++reads <= MOST_READS && written < MOST_BYTES)
                    put_values(t, c, l, h);
    }
}

static void put_blobs(struct kvf_trace *t)
{
    for (int i = 0; i < kvf_n_blobs(t) && i < MOST_BLOBS && written < MOST_BYTES; i++) {
        struct kvf_blob b;
        const void *data;
        struct kvf_diag d = {""};
        int err = kvf_blob_view(t, i, &data, &d);
        fprintf(out, "blob %d ", i);
        if (!err)
            err = kvf_blob(t, i, &b, &d);
        if (err) {
            put_error(err, &d);
            continue;
        }
        put_hex(b.name, strlen(b.name));
        fprintf(out, " %d %d %d %u", b.dtype, b.layer, b.head, b.t0);
        for (int k = 0; k < b.rank; k++)
            fprintf(out, " %u", b.shape[k]);
        fputc(' ', out);
        put_hex(data, kvf_blob_size(&b));
        fputc('\n', out);
    }
}

static void put_texts(struct kvf_trace *t)
{
    static const char *const keys[] = {"result", "part", "repaired", "heads", "spans", "k", "x"};
    for (uint32_t i = 0; i < kvf_n_steps(t) && i < MOST_TEXTS; i++) {
        size_t n = 0;
        const char *s = kvf_token(t, i, &n);
        fprintf(out, "text %u %s", i, s ? "" : "none");
        put_hex(s, s ? n : 0);
        fputc('\n', out);
    }
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *note = kvf_note(t, keys[k]);
        if (!note)
            continue;
        fprintf(out, "note %s ", keys[k]);
        put_hex(note, strlen(note));
        fputc('\n', out);
    }
}

static void dump(const char *path)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    char id[33] = "";
    written = 0;
    int err = kvf_open(path, KVF_OPEN_TAIL, &t, &d);
    if (!err)
        err = kvf_check_size(t, &d);
    if (err) {
        put_error(err, &d);
        return;
    }
    kvf_run_id(t, id);
    fprintf(out, "open %u %u %d %s\n", kvf_n_steps(t), kvf_epoch(t), kvf_is_clean(t), id);
    if (kvf_tail_aside(t))
        fprintf(out, "aside %s\n", kvf_tail_aside(t));
    for (int l = 0; l < kvf_n_layers(t) && l < 64; l++)
        fprintf(out, "layer %d %d %d\n", l, kvf_n_heads(t, l, KVF_SPACE_KV),
                kvf_n_heads(t, l, KVF_SPACE_QUERY));
    fputs("meta ", out);
    put_hex(kvf_meta(t), strlen(kvf_meta(t)));
    fputc('\n', out);
    put_columns(t);
    put_texts(t);
    put_blobs(t);
}

int main(int argc, char **argv)
{
    static char line[8192];
    FILE *list = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!list) {
        fprintf(stderr, "usage: dump_trace LIST\n");
        return 2;
    }
    while (fgets(line, sizeof line, list)) {
        char *tail = strchr(line, '\t'), *to = tail ? strchr(tail + 1, '\t') : NULL;
        if (!to)
            return 2;
        *tail = *to++ = 0;
        to[strcspn(to, "\n")] = 0;
        out = fopen(to, "wb");
        if (!out)
            return 1;
        dump(line);
        if (fclose(out) != 0)
            return 1;
    }
    fclose(list);
    return 0;
}

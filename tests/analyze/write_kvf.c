/* write_kvf.c - writes a trace from a description, for tests that need a trace of any kind.
 *   usage: write_kvf OUT.kvf < DESCRIPTION, lines of words:
 *     meta JSON                   the run header, to the end of the line
 *     shape L H G T               layers, KV heads, query heads, steps
 *     column NAME DTYPE SPACE AXIS FLAGS N FILE
 *                                 FILE: f64 [L][heads][T]; writes the first N of each head
 *     text BYTES                  text of the next token, to the end of the line
 *     hex DIGITS                  the same as hexadecimal digits, for any bytes
 *     note KEY JSON
 *     blob NAME DTYPE LAYER HEAD T0 N M
 *                                 [N][M] zeros; M = 0: [N]
 *     blob NAME f32 LAYER HEAD T0 N M FILE
 *                                 f32 numbers of a file
 *     layers                      all heads of a layer in one chunk, as the engine writes them
 *     again                       the first record of every column once more
 *     open                        do not close it
 *     names                       columns may have any names, as in files of earlier versions
 * NaN in a column of integers is written as the maximum of its type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/writer.h"
#include "tests/scoped.h"

enum { MOST_COLUMNS = 64, MOST_TOKENS = 32768, MOST_LINE = 65536, MOST_TEXT = 1 << 22 };
enum { MOST_BLOBS = 1024 };

static struct kvf_column columns[MOST_COLUMNS];
static char files[MOST_COLUMNS][1024];
static uint32_t lengths[MOST_COLUMNS];
static int n_columns, L, H, G;
static uint32_t T;
static struct kvf_blob blobs[MOST_BLOBS];
static char blob_file[MOST_BLOBS][1024]; /* "": zeros */
static int n_blobs;
static char note_key[64], note[4096]; /* key "": no note */
static char line[MOST_LINE], meta[MOST_LINE] = "{}", texts[MOST_TEXT];
static uint32_t text_end[MOST_TOKENS], n_texts, n_bytes;
static int leave_open, whole_layers, again, any_names;

static int find(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fprintf(stderr, "write_kvf: what is %s?\n", name);
    exit(2);
}

static void read_column(const char *s)
{
    static const char *const dtypes[] = {"?", "u8", "u16", "u32", "i32", "f32", "f64", "u64", NULL};
    static const char *const spaces[] = {"run", "kv", "query", NULL};
    static const char *const axes[] = {"token", "step", NULL};
    char dtype[8], space[8], axis[8];
    struct kvf_column *c = &columns[n_columns];
    unsigned flags;
    if (sscanf(s, "column %47s %7s %7s %7s %u %u %1023s", c->name, dtype, space, axis, &flags,
               &lengths[n_columns], files[n_columns])
        != 7)
        exit(2);
    c->dtype = (uint8_t)find(dtypes, dtype);
    c->space = (uint8_t)find(spaces, space);
    c->axis = (uint8_t)find(axes, axis);
    c->flags = (uint8_t)flags;
    n_columns++;
}

static void read_blob(const char *s)
{
    static const char *const dtypes[] = {"?",   "u8",  "u16", "u32",  "i32", "f32",
                                         "f64", "u64", "f16", "bf16", NULL};
    char dtype[8], *file = blob_file[n_blobs];
    struct kvf_blob *b = &blobs[n_blobs++];
    if (sscanf(s, "blob %47s %7s %hu %hu %u %u %u %1023s", b->name, dtype, &b->layer, &b->head,
               &b->t0, &b->shape[0], &b->shape[1], file)
        < 7)
        exit(2);
    b->dtype = (uint8_t)find(dtypes, dtype);
    b->rank = b->shape[1] ? 2 : 1;
}

static int write_blobs(struct kvf_writer *w)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < n_blobs; i++) {
        size_t n = kvf_blob_size(&blobs[i]);
        OWNED(free) void *data = calloc(1, n + 1);
        FILE *f = blob_file[i][0] ? fopen(blob_file[i], "rb") : NULL;
        if (blob_file[i][0] && (!f || !data || fread(data, 1, n, f) != n))
            exit(2);
        if (f)
            fclose(f);
        err = data ? kvf_write_blob(w, &blobs[i], true, data) : KVF_E_NOMEM;
    }
    return err;
}

static void read_hex(const char *s)
{
    unsigned byte;
    for (; sscanf(s, "%2x", &byte) == 1; s += 2)
        texts[n_bytes++] = (char)byte;
}

static void read_text(const char *s, int hex)
{
    if (n_texts == MOST_TOKENS || n_bytes + strlen(s) > MOST_TEXT)
        exit(2);
    if (hex)
        read_hex(s);
    else
        memcpy(texts + n_bytes, s, strlen(s));
    n_bytes += hex ? 0 : (uint32_t)strlen(s);
    text_end[n_texts++] = n_bytes;
}

static void read_note(const char *s)
{
    size_t key = strcspn(s, " ");
    if (!s[key])
        exit(2);
    snprintf(note_key, sizeof note_key, "%.*s", (int)key, s);
    snprintf(note, sizeof note, "%s", s + key + 1);
}

static void read_line(const char *s)
{
    if (strncmp(s, "meta ", 5) == 0) {
        snprintf(meta, sizeof meta, "%s", s + 5);
    } else if (strncmp(s, "text ", 5) == 0) {
        read_text(s + 5, 0);
    } else if (strncmp(s, "hex ", 4) == 0) {
        read_text(s + 4, 1);
    } else if (strncmp(s, "shape ", 6) == 0) {
        if (sscanf(s, "shape %d %d %d %u", &L, &H, &G, &T) != 4)
            exit(2);
    } else if (strncmp(s, "column ", 7) == 0 && n_columns < MOST_COLUMNS) {
        read_column(s);
    } else if (strncmp(s, "blob ", 5) == 0 && n_blobs < MOST_BLOBS) {
        read_blob(s);
    } else if (strncmp(s, "note ", 5) == 0) {
        read_note(s + 5);
    } else if (strcmp(s, "layers") == 0) {
        whole_layers = 1;
    } else if (strcmp(s, "again") == 0) {
        again = 1;
    } else if (strcmp(s, "open") == 0) {
        leave_open = 1;
    } else if (strcmp(s, "names") == 0) {
        any_names = 1;
    } else {
        exit(2);
    }
}

static void convert(const struct kvf_column *c, const double *v, uint32_t n, unsigned char *out)
{
    size_t width = kvf_dtype_size((enum kvf_dtype)c->dtype);
    for (uint32_t i = 0; i < n; i++) {
        float f = (float)v[i];
        int32_t signed_value = c->dtype == KVF_I32 && fabs(v[i]) < 2147483648.0 ? (int32_t)v[i] : 0;
        bool fits = fabs(v[i]) < 18446744073709551616.0 && c->dtype != KVF_I32;
        uint64_t whole = fits ? (uint64_t)fabs(v[i]) : UINT64_MAX; /* also NaN and infinities */
        const void *from = c->dtype == KVF_F32   ? (const void *)&f
                           : c->dtype == KVF_F64 ? (const void *)&v[i]
                           : c->dtype == KVF_I32 ? (const void *)&signed_value
                                                 : (const void *)&whole;
        memcpy(out + i * width, from, width);
    }
}

static int write_column(struct kvf_writer *w, int c)
{
    int heads = columns[c].space == KVF_SPACE_KV ? H : columns[c].space == KVF_SPACE_QUERY ? G : 1;
    int layers = columns[c].space == KVF_SPACE_RUN ? 1 : L, err = KVF_OK;
    int together = whole_layers ? heads : 1;
    size_t head = lengths[c] * kvf_dtype_size((enum kvf_dtype)columns[c].dtype);
    OWNED(free) double *v = calloc(T + 1, sizeof *v);
    OWNED(free) unsigned char *out = calloc(T + 1, 8 * (size_t)together);
    FILE *f = fopen(files[c], "rb");
    if (!v || !out || !f)
        exit(2);
    for (int l = 0; !err && l < layers; l++)
        for (int h = 0; !err && h < heads; h++) {
            int at = h % together;
            if (fread(v, sizeof *v, T, f) != T)
                exit(2);
            convert(&columns[c], v, lengths[c], out + (size_t)at * head);
            for (int k = 0; !err && k <= (again && l + h == 0) && lengths[c] && at == together - 1;
                 k++)
                err = kvf_write_chunk(w, c, l, h - at, together, 0, lengths[c],
                                      columns[c].flags & KVF_COL_SNAPSHOT ? 1 : 0, out);
        }
    fclose(f);
    return err;
}

int main(int argc, char **argv)
{
    static uint16_t kv[KVF_MAX_LAYERS], query[KVF_MAX_LAYERS];
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    if (argc != 2)
        return 2;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        read_line(line);
    }
    for (int l = 0; l < L && l < KVF_MAX_LAYERS; l++) {
        kv[l] = (uint16_t)H;
        query[l] = (uint16_t)G;
    }
    struct kvf_shape shape = {L, kv, query};
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    int err = (any_names ? writer_open : kvf_writer_open)(argv[1], meta, &shape, columns, n_columns,
                                                          &o, &w, &d);
    if (!err && n_texts)
        err = kvf_write_token_bytes(w, 0, n_texts, text_end, texts);
    for (int c = 0; !err && c < n_columns; c++)
        err = write_column(w, c);
    if (!err)
        err = write_blobs(w);
    if (!err && note_key[0])
        err = kvf_writer_note(w, note_key, note);
    if (!err)
        err = kvf_writer_commit(w, 1, T);
    if (leave_open) {
        kvf_writer_abandon(w);
        char unfinished[4096];
        snprintf(unfinished, sizeof unfinished, "%s.unfinished", argv[1]);
        rename(unfinished, argv[1]); /* as a program of an earlier version wrote it */
    } else if (w && !err) {
        err = kvf_writer_close(w, &d);
    }
    if (err)
        fprintf(stderr, "write_kvf: %s %s\n", kvf_strerror(err), d.text);
    return err ? 1 : 0;
}

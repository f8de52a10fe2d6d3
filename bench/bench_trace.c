/* bench_trace.c - measures how fast the trace library writes and reads, without an engine.
 *
 *     bench_trace write IN.kvf OUT.kvf [COLUMN]   writes the columns of a trace again
 *     bench_trace smallest IN.kvf OUT.kvf         writes them with more time for fewer bytes
 *     bench_trace read IN.kvf [COLUMN]            reads every value
 *     bench_trace open IN.kvf                     opens the trace
 *     bench_trace head IN.kvf COLUMN              reads all values of one head of an open trace
 *     bench_trace dump IN.kvf FOLDER              columns as COLUMN.DTYPE.HEADS.LENGTH, row-major
 *     bench_trace large OUT.kvf COLUMNS           131,072 tokens of 90 heads, that many f32 columns
 *
 * It prints one line of JSON: bytes of values, bytes of the file, wall and CPU seconds of only the
 * library calls.  bench/trace.py runs it and compares it with other formats. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <kvf/trace.h>

struct values { /* all values of a column: [layers][heads][n] */
    int column;
    uint32_t n;
    size_t bytes; /* of all layers */
    unsigned char *data;
};

struct watch {
    double wall, cpu;
};

static void die(const char *what, const struct kvf_diag *d)
{
    fprintf(stderr, "bench_trace: %s: %s\n", what, d ? d->text : "");
    exit(1);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct watch now(void)
{
    return (struct watch){seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

static void tell(struct watch from, size_t values, const char *path)
{
    struct watch to = now();
    struct stat st = {0};
    stat(path, &st);
    printf("{\"values\": %zu, \"file\": %lld, \"wall\": %.9f, \"cpu\": %.9f}\n", values,
           (long long)st.st_size, to.wall - from.wall, to.cpu - from.cpu);
}

static uint32_t length_of(struct kvf_trace *t)
{
    return kvf_n_steps(t);
}

static bool wanted(const struct kvf_column *k, const char *name)
{
    return !(k->flags & KVF_COL_INTERVALS) && (!name || !strcmp(k->name, name));
}

/* Reads a column.  Returns false, to omit it, if values that were not recorded make it shorter. */
static bool load(struct kvf_trace *t, int column, struct values *ret)
{
    const struct kvf_column *k = kvf_column(t, column);
    size_t width = kvf_dtype_size(k->dtype);
    struct values v = {.column = column, .n = length_of(t)};
    for (int l = 0; l < (k->space == KVF_SPACE_RUN ? 1 : kvf_n_layers(t)); l++)
        v.bytes += (size_t)kvf_n_heads(t, l, k->space) * v.n * width;
    v.data = malloc(v.bytes + 1);
    unsigned char *p = v.data;
    for (int l = 0; p && l < (k->space == KVF_SPACE_RUN ? 1 : kvf_n_layers(t)); l++)
        for (int h = 0; h < kvf_n_heads(t, l, k->space); h++, p += v.n * width)
            if (kvf_read(t, column, l, h, 0, v.n, p, NULL)) {
                free(v.data);
                return false;
            }
    *ret = v;
    return p != NULL;
}

static struct values *load_all(struct kvf_trace *t, const char *name, int *ret_n)
{
    struct values *all = calloc((size_t)kvf_n_columns(t) + 1, sizeof *all);
    int n = 0;
    for (int c = 0; all && c < kvf_n_columns(t); c++)
        n += wanted(kvf_column(t, c), name) && load(t, c, &all[n]);
    *ret_n = n;
    return all;
}

static void put(struct kvf_writer *w, struct kvf_trace *t, const struct values *v, int number)
{
    const struct kvf_column *k = kvf_column(t, v->column);
    const unsigned char *p = v->data;
    for (int l = 0; l < (k->space == KVF_SPACE_RUN ? 1 : kvf_n_layers(t)); l++) {
        int heads = kvf_n_heads(t, l, k->space);
        if (kvf_write_chunk(w, number, l, 0, heads, 0, v->n, k->flags & KVF_COL_SNAPSHOT, p))
            die("write", NULL);
        p += (size_t)heads * v->n * kvf_dtype_size(k->dtype);
    }
}

static void bench_write(struct kvf_trace *t, const char *out, const char *name, bool smallest)
{
    int n, layers = kvf_n_layers(t);
    struct values *all = load_all(t, name, &n);
    struct kvf_column *column = calloc((size_t)n + 1, sizeof *column);
    uint16_t *kv = calloc((size_t)layers, 2), *query = calloc((size_t)layers, 2);
    struct kvf_shape shape = {layers, kv, query};
    struct kvf_writer_options o = {.existing = KVF_OVERWRITE, .smallest = smallest};
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {0};
    size_t values = 0;
    for (int l = 0; l < layers; l++) {
        kv[l] = (uint16_t)kvf_n_heads(t, l, KVF_SPACE_KV);
        query[l] = (uint16_t)kvf_n_heads(t, l, KVF_SPACE_QUERY);
    }
    for (int i = 0; i < n; i++) {
        column[i] = *kvf_column(t, all[i].column);
        values += all[i].bytes;
    }
    struct watch from = now();
    if (kvf_writer_open(out, "{}", &shape, column, n, &o, &w, &d))
        die(out, &d);
    for (int i = 0; i < n; i++)
        put(w, t, &all[i], i);
    if (kvf_writer_commit(w, 1, length_of(t)) || kvf_writer_close(w, &d))
        die(out, &d);
    tell(from, values, out);
}

static void bench_read(struct kvf_trace *t, const char *path, const char *name)
{
    size_t values = 0;
    struct watch from = now();
    for (int c = 0; c < kvf_n_columns(t); c++) {
        const struct kvf_column *k = kvf_column(t, c);
        if (!wanted(k, name))
            continue;
        for (int l = 0; l < (k->space == KVF_SPACE_RUN ? 1 : kvf_n_layers(t)); l++)
            for (int h = 0; h < kvf_n_heads(t, l, k->space); h++) {
                const void *p;
                if (kvf_view(t, c, l, h, 0, length_of(t), &p, NULL) == KVF_OK)
                    values += length_of(t) * kvf_dtype_size(k->dtype);
            }
    }
    tell(from, values, path);
}

static void dump(struct kvf_trace *t, const char *folder)
{
    int n;
    struct values *all = load_all(t, NULL, &n);
    for (int i = 0; i < n; i++) {
        const struct kvf_column *k = kvf_column(t, all[i].column);
        char path[4096];
        size_t width = kvf_dtype_size(k->dtype);
        snprintf(path, sizeof path, "%s/%s.%d.%zu.%u", folder, k->name, (int)k->dtype,
                 all[i].bytes / width / all[i].n, all[i].n);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(all[i].data, 1, all[i].bytes, f) != all[i].bytes || fclose(f))
            die(path, NULL);
    }
}

static void one_head(struct kvf_trace *t, const char *path, const char *name)
{
    const void *p;
    int c = kvf_find(t, name);
    uint32_t n = length_of(t);
    struct watch from = now();
    if (c < 0 || kvf_view(t, c, 0, 0, 0, n, &p, NULL))
        die(name, NULL);
    tell(from, n * kvf_dtype_size(kvf_column(t, c)->dtype), path);
}

/* Fills p with values of similar size and random digits, like masses and retentions.  They compress
 * by a quarter. */
static void fill(float *p, size_t n)
{
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* Marsaglia 2003 */
        p[i] = 0.5f + 0.25f * (float)(x >> 40) / (float)(1 << 24);
    }
}

static void large(const char *out, int columns)
{
    enum { LAYERS = 30, HEADS = 3, TOKENS = 131072 };
    uint16_t heads[LAYERS];
    struct kvf_shape shape = {LAYERS, heads, heads};
    struct kvf_column *column = calloc((size_t)columns, sizeof *column);
    float *p = malloc((size_t)HEADS * TOKENS * sizeof *p);
    struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {0};
    fill(p, (size_t)HEADS * TOKENS);
    for (int l = 0; l < LAYERS; l++)
        heads[l] = HEADS;
    for (int c = 0; c < columns; c++) {
        column[c] = (struct kvf_column){"", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""};
        snprintf(column[c].name, sizeof column[c].name, "x-value.%d", c);
    }
    struct watch from = now();
    if (kvf_writer_open(out, "{}", &shape, column, columns, &o, &w, &d))
        die(out, &d);
    for (int i = 0; i < columns * LAYERS; i++)
        if (kvf_write_chunk(w, i / LAYERS, i % LAYERS, 0, HEADS, 0, TOKENS, 0, p))
            die(out, NULL);
    if (kvf_writer_commit(w, 1, TOKENS) || kvf_writer_close(w, &d))
        die(out, &d);
    tell(from, (size_t)columns * LAYERS * HEADS * TOKENS * sizeof *p, out);
    free(p);
    free(column);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {0};
    if (!strcmp(what, "large")) {
        large(argv[2], argc > 3 ? atoi(argv[3]) : 1);
        return 0;
    }
    struct watch from = now();
    if (argc < 3 || kvf_open(argv[2], KVF_OPEN_TAIL, &t, &d))
        die(argc < 3 ? "what is to be measured?" : argv[2], &d);
    if (!strcmp(what, "open"))
        tell(from, 0, argv[2]);
    else if (!strcmp(what, "write") && argc > 3)
        bench_write(t, argv[3], argc > 4 ? argv[4] : NULL, false);
    else if (!strcmp(what, "smallest") && argc > 3)
        bench_write(t, argv[3], NULL, true);
    else if (!strcmp(what, "read"))
        bench_read(t, argv[2], argc > 3 ? argv[3] : NULL);
    else if (!strcmp(what, "head") && argc > 3)
        one_head(t, argv[2], argv[3]);
    else if (!strcmp(what, "dump") && argc > 3)
        dump(t, argv[3]);
    kvf_close(t);
    return 0;
}

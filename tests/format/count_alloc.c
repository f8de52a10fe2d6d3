/* count_alloc.c - repeated appends and reads of data of the same shape allocate no memory. The
 * functions below replace those of the C library for this program and its libraries. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvf/trace.h>

#include "tiny.h"

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static atomic_long calls;

void *malloc(size_t n)
{
    atomic_fetch_add(&calls, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&calls, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&calls, 1);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&calls, 1);
    return __libc_memalign(align, n);
}

/* The test needs no commits on disk, and makes thousands of them. */
int fdatasync(int fd)
{
    (void)fd;
    return 0;
}

enum {
    HEADS = 4,
    WARM = 100, /* initial steps that are not counted */
    STEPS = 2500,
    OF_A_STEP = 7, /* records per step, without blobs */
    EVERY = 50,    /* steps between two pairs of blobs */
    COLUMNS = 4,
    SEEN = 3,
    BLOCK = 600 << 10 /* bytes of a blob: more than a chunk */
};

static const struct kvf_column column[COLUMNS] = {
    {"x-alloc.u8", KVF_U8, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
    {"x-alloc.f32", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
    {"x-alloc.f64", KVF_F64, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
    {"x-alloc.seen", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_INTERVALS,
     "step"},
};

/* Writes a value of each head and column, a text, a list and a commit, and sometimes two blobs. */
static int step(struct kvf_writer *w, uint32_t t)
{
    static unsigned char block[BLOCK];
    double v[HEADS];
    const uint32_t one = 1;
    const struct kvf_interval seen = {t, t};
    struct kvf_blob b = {"x-alloc.k", KVF_U16, 1, 0, 0, t, {BLOCK / 2}};
    int err = kvf_write_token_bytes(w, t, 1, &one, "a");
    for (uint32_t h = 0; h < HEADS; h++)
        v[h] = (double)((t * HEADS + h) * 2654435761u) / 7;
    for (int c = 0; !err && c < SEEN; c++)
        err = kvf_write_chunk(w, c, 0, 0, HEADS, t, 1, 0, v);
    if (!err)
        err = kvf_write_intervals(w, SEEN, 0, 0, 1, t, 1, t + 1, &one, &seen);
    memset(block, (int)(t | 1), BLOCK / 2); /* the rest is 0: never constant */
    if (!err && t % EVERY == 0)
        err = kvf_write_blob(w, &b, true, block);
    b.shape[0] = 8;
    if (!err && t % EVERY == 0)
        err = kvf_write_blob(w, &b, false, block);
    return err ? err : kvf_writer_commit(w, t + 1, t + 1);
}

/* Returns how often the list of records grows. It has space for 1,024 records and doubles when it
 * is full. */
static long growths(long before, long after)
{
    long n = 0;
    for (long room = 1024; room < after; room *= 2)
        n += room >= before;
    return n;
}

static long records_after(long steps)
{
    return 2 + steps * OF_A_STEP + (steps + EVERY - 1) / EVERY * 2;
}

static int write_it(const char *path)
{
    static const uint16_t n_kv = 1, n_query = HEADS;
    static const struct kvf_shape shape = {1, &n_kv, &n_query};
    struct kvf_writer *w = NULL;
    int err = kvf_writer_open(path, "{}", &shape, column, COLUMNS, NULL, &w, NULL);
    uint32_t t = 0;
    for (; !err && t < WARM; t++)
        err = step(w, t);
    long before = atomic_load(&calls);
    for (; !err && t < STEPS; t++)
        err = step(w, t);
    long made = atomic_load(&calls) - before;
    long want = growths(records_after(WARM), records_after(STEPS));
    int closed = kvf_writer_close(w, NULL);
    printf("%d steps: %ld allocations, of which %ld of the list of records\n", STEPS - WARM, made,
           want);
    return err || closed || before == 0 || made != want;
}

/* Reads all contents with each function. */
static int read_all(struct kvf_trace *t)
{
    static double wide[STEPS], f64[STEPS];
    static int32_t whole[STEPS];
    const struct kvf_interval *list;
    const void *p;
    uint32_t end;
    int err = KVF_OK;
    for (int c = 0; c < SEEN; c++)
        for (int h = 0; !err && h < HEADS; h++) {
            err = kvf_read(t, c, 0, h, 0, STEPS, f64, NULL);
            err = err ? err : kvf_view(t, c, 0, h, 0, STEPS, &p, NULL);
            err = err ? err : kvf_view(t, c, 0, h, 9, 1, &p, NULL);
            err = err ? err : kvf_read_f64(t, c, 0, h, 0, STEPS, wide, NULL);
            err = err ? err : kvf_read_i32(t, c, 0, h, 0, STEPS, whole, NULL);
        }
    if (!err)
        err = kvf_read_intervals(t, SEEN, 0, 0, STEPS - 1, 1, &end, &list, NULL);
    for (int i = 0; !err && i < kvf_n_blobs(t); i++)
        err = kvf_blob_view(t, i, &p, NULL);
    return err;
}

static int read_it(const char *path)
{
    struct kvf_trace *t = NULL;
    int err = kvf_open(path, KVF_OPEN_STRICT, &t, NULL);
    for (int i = 0; !err && i < 3; i++)
        err = read_all(t);
    long before = atomic_load(&calls);
    if (!err)
        err = read_all(t);
    long made = atomic_load(&calls) - before;
    kvf_close(t);
    printf("reading again: %ld allocations\n", made);
    return err || made;
}

int main(void)
{
    const char *path = scratch_path("alloc.kvf");
    int bad = write_it(path) || read_it(path);
    unlink(path);
    return bad;
}

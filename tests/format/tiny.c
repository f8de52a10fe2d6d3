/* tiny.c - writes a small trace with all features and checks its contents; see tiny.h. */
#include "tiny.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const struct kvf_column tiny_column[TINY_COLUMNS] = {
    {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
    {"x-age.u8", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"},
    {"x-age.u16", KVF_U16, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"},
    {"x-small.u32", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "step"},
    {"lse", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, "nat"},
    {"x-real.f64", KVF_F64, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
    {"x-constant.u64", KVF_U64, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
    {"seen", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_INTERVALS, "step"},
};
static const uint16_t n_kv[TINY_LAYERS] = {1, 2}, n_query[TINY_LAYERS] = {2, 2};
const struct kvf_shape tiny_shape = {TINY_LAYERS, n_kv, n_query};
const char tiny_meta[] = "{\"test\":\"tiny\"}", tiny_note[] = "{\"n\":1}";
const uint32_t tiny_steps[TINY_EPOCHS + 1] = {0, 5, 11};

static uint64_t hash(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int heads_of(int column, int layer)
{
    int space = tiny_column[column].space;
    return space == KVF_SPACE_RUN  ? layer == 0
           : space == KVF_SPACE_KV ? n_kv[layer]
                                   : n_query[layer];
}

void tiny_fill(int column, int layer, int head, uint32_t t0, uint32_t n, uint32_t epoch, void *out)
{
    size_t width = kvf_dtype_size(tiny_column[column].dtype);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t place = ((uint64_t)column << 48) + ((uint64_t)layer << 40) + ((uint64_t)head << 32)
                         + ((uint64_t)epoch << 24) + t0 + i;
        uint64_t v = column == 6   ? 0x0123456789abcdefu + epoch
                     : column == 3 ? hash(place) & 3
                                   : hash(place); /* 3: zeros that zstd finds */
        memcpy((char *)out + i * width, &v, width);
    }
}

uint32_t tiny_lists(int layer, int head, uint32_t t0, uint32_t n, uint32_t epoch, uint32_t *end,
                    struct kvf_interval *out)
{
    uint32_t count = 0, steps = tiny_steps[epoch];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t at = t0 + i; at < steps;) {
            uint64_t x = hash(((uint64_t)layer << 40) + ((uint64_t)head << 32) + ((t0 + i) << 8)
                              + at); /* bit 0: an interval begins; bits 1 and 2: its length */
            uint32_t last = at + (uint32_t)(x >> 1 & 3);
            if (x & 1)
                out[count++] = (struct kvf_interval){at, last < steps ? last : steps - 1};
            at = x & 1 ? last + 2 : at + 1;
        }
        end[i] = count;
    }
    return count;
}

struct kvf_blob tiny_blob(int k, uint32_t epoch, unsigned char data[128])
{
    uint32_t t0 = tiny_steps[epoch - 1], n = tiny_steps[epoch] - t0;
    struct kvf_blob b = {"k", KVF_F16, 2, 0, 0, t0, {n, 3}};
    if (k == 1)
        b = (struct kvf_blob){"x-tiny.block", KVF_F32, 3, 1, 1, t0, {2, 4, 4}};
    size_t bytes = kvf_blob_size(&b);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(k ? i % 4 == 3 : hash(t0 + i)); /* 1: most bytes are 0 */
    return b;
}

size_t tiny_token(uint32_t i, char out[8])
{
    size_t n = i % 3;
    for (size_t k = 0; k < n; k++)
        out[k] = (char)('A' + (i + k) % 26);
    return n;
}

static int write_column(struct kvf_writer *w, int c, uint32_t epoch, uint32_t t0, uint32_t n)
{
    char data[4096];
    size_t row = n * kvf_dtype_size(tiny_column[c].dtype);
    for (int l = 0; l < TINY_LAYERS; l++) {
        int heads = heads_of(c, l);
        for (int h = 0; h < heads; h++)
            tiny_fill(c, l, h, t0, n, epoch, data + (size_t)h * row);
        int err = heads ? kvf_write_chunk(w, c, l, 0, heads, t0, n, epoch, data) : KVF_OK;
        if (err)
            return err;
    }
    return KVF_OK;
}

enum { MOST_STEPS = 16, MOST_LISTS = 8 * MOST_STEPS };

static int write_lists(struct kvf_writer *w, uint32_t epoch, uint32_t n)
{
    for (int l = 0; l < TINY_LAYERS; l++) {
        struct kvf_interval v[2 * MOST_LISTS];
        uint32_t end[2 * MOST_STEPS], base = 0;
        for (int h = 0; h < n_kv[l]; h++) {
            base = tiny_lists(l, h, 0, n, epoch, end + h * n, v + base);
            for (uint32_t i = 0; h && i < n; i++)
                end[h * n + i] += end[h * n - 1];
        }
        int err = kvf_write_intervals(w, TINY_LISTS, l, 0, n_kv[l], 0, n, epoch, end, v);
        if (err)
            return err;
    }
    return KVF_OK;
}

bool tiny_plain;

int tiny_open(const char *path, struct kvf_writer **ret_writer, struct kvf_diag *d)
{
    return kvf_writer_open(path, tiny_meta, &tiny_shape, tiny_column, TINY_COLUMNS - tiny_plain,
                           &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, ret_writer, d);
}

int tiny_write(struct kvf_writer *w, uint32_t epoch)
{
    uint32_t t0 = tiny_steps[epoch - 1], n = tiny_steps[epoch] - t0, end[16], len = 0;
    char text[128];
    for (uint32_t i = 0; i < n; i++) {
        len += (uint32_t)tiny_token(t0 + i, text + len);
        end[i] = len;
    }
    int err = kvf_write_token_bytes(w, t0, n, end, text);
    for (int c = 0; !err && c < TINY_COLUMNS - tiny_plain; c++) {
        bool snapshot = tiny_column[c].flags & KVF_COL_SNAPSHOT;
        if (c == TINY_LISTS)
            err = write_lists(w, epoch, t0 + n);
        else
            err = snapshot ? write_column(w, c, epoch, 0, t0 + n) : write_column(w, c, 0, t0, n);
    }
    for (int k = 0; !err && !tiny_plain && k < TINY_BLOBS; k++) {
        unsigned char data[128];
        struct kvf_blob b = tiny_blob(k, epoch, data);
        err = kvf_write_blob(w, &b, k == 1, data);
    }
    return err ? err : kvf_writer_commit(w, epoch, t0 + n);
}

int tiny_finish(struct kvf_writer *w, struct kvf_diag *d)
{
    int err = kvf_writer_note(w, "result", tiny_note), closed = kvf_writer_close(w, d);
    return err ? err : closed;
}

int tiny_create(const char *path)
{
    struct kvf_writer *w;
    int err = tiny_open(path, &w, NULL);
    for (uint32_t e = 1; !err && e <= TINY_EPOCHS; e++)
        err = tiny_write(w, e);
    return err ? err : tiny_finish(w, NULL);
}

static void compare_head(struct kvf_trace *t, int c, int layer, int head, struct tiny_seen *s)
{
    char got[256], want[256];
    uint32_t n = kvf_n_steps(t), epoch = tiny_column[c].flags & KVF_COL_SNAPSHOT ? kvf_epoch(t) : 0;
    size_t width = kvf_dtype_size(tiny_column[c].dtype);
    tiny_fill(c, layer, head, 0, n, epoch, want);
    memset(got, 0x5a, sizeof got);
    int err = kvf_read(t, c, layer, head, 0, n, got, NULL);
    s->heads += !err;
    s->lost += !!err;
    s->wrong |= !err && memcmp(got, want, n * width) != 0;
    for (uint32_t i = 0; err && i < n; i++) /* one by one: the remaining values */
        s->wrong |= kvf_read(t, c, layer, head, i, 1, got, NULL) == KVF_OK
                    && memcmp(got, want + i * width, width) != 0;
}

/* Returns true if lists [t0, t0 + n) can be read; sets *wrong if they differ from the expected
 * ones. */
static bool read_lists(struct kvf_trace *t, int layer, int head, uint32_t t0, uint32_t n,
                       bool *wrong)
{
    struct kvf_interval want[MOST_LISTS];
    const struct kvf_interval *got;
    uint32_t end[MOST_STEPS], got_end[MOST_STEPS];
    if (kvf_read_intervals(t, TINY_LISTS, layer, head, t0, n, got_end, &got, NULL))
        return false;
    uint32_t count = tiny_lists(layer, head, t0, n, kvf_epoch(t), end, want);
    *wrong |= memcmp(got_end, end, n * sizeof *end) != 0
              || (count && memcmp(got, want, count * sizeof *want) != 0);
    return true;
}

static void compare_lists(struct kvf_trace *t, int layer, int head, struct tiny_seen *s)
{
    bool all = read_lists(t, layer, head, 0, kvf_n_steps(t), &s->wrong);
    s->heads += all;
    s->lost += !all;
    for (uint32_t i = 0; !all && i < kvf_n_steps(t); i++)
        read_lists(t, layer, head, i, 1, &s->wrong);
}

/* Returns true if blob i of the trace was written, and sets its bit in *there. */
static bool known_blob(struct kvf_trace *t, int i, const struct kvf_blob *got, unsigned *there)
{
    unsigned char data[128];
    const void *p;
    for (unsigned k = 0; k < TINY_BLOBS * TINY_EPOCHS; k++) {
        struct kvf_blob b = tiny_blob((int)k % TINY_BLOBS, k / TINY_BLOBS + 1, data);
        if (strcmp(b.name, got->name) != 0 || b.t0 != got->t0)
            continue;
        if (b.dtype != got->dtype || b.rank != got->rank || b.layer != got->layer
            || b.head != got->head || memcmp(b.shape, got->shape, sizeof b.shape) != 0)
            return false;
        if (kvf_blob_view(t, i, &p, NULL))
            return true; /* damaged */
        *there |= 1u << k;
        return memcmp(p, data, kvf_blob_size(&b)) == 0;
    }
    return false;
}

/* Checks that all blobs of the newest and earlier epochs are present; absent ones are counted as
 * lost. */
static void compare_blobs(struct kvf_trace *t, struct tiny_seen *s)
{
    struct kvf_blob got;
    unsigned there = 0;
    for (int i = 0; i < kvf_n_blobs(t); i++)
        if (kvf_blob(t, i, &got, NULL) == KVF_OK)
            s->wrong |= !known_blob(t, i, &got, &there);
    for (unsigned k = 0; k < TINY_BLOBS * kvf_epoch(t); k++)
        s->lost += !(there >> k & 1);
}

struct tiny_seen tiny_compare(struct kvf_trace *t)
{
    struct tiny_seen s = {.complete = kvf_epoch(t) == TINY_EPOCHS};
    uint32_t steps = kvf_n_steps(t);
    if (kvf_epoch(t) > TINY_EPOCHS || steps != tiny_steps[kvf_epoch(t)]
        || strcmp(kvf_meta(t), tiny_meta) != 0 || kvf_n_columns(t) != TINY_COLUMNS) {
        s.wrong = true;
        return s;
    }
    for (int c = 0; c < TINY_COLUMNS; c++) {
        s.wrong |= memcmp(kvf_column(t, c), &tiny_column[c], sizeof tiny_column[c]) != 0;
        for (int l = 0; l < TINY_LAYERS; l++)
            for (int h = 0; h < heads_of(c, l); h++)
                if (c == TINY_LISTS)
                    compare_lists(t, l, h, &s);
                else
                    compare_head(t, c, l, h, &s);
    }
    compare_blobs(t, &s);
    for (uint32_t i = 0; i < steps; i++) {
        char want[8];
        size_t n = tiny_token(i, want), got_n = 0;
        const char *got = kvf_token(t, i, &got_n);
        s.wrong |= got && (got_n != n || memcmp(got, want, n) != 0);
        s.complete &= got != NULL;
    }
    const char *note = kvf_note(t, "result");
    s.wrong |= note && strcmp(note, tiny_note) != 0;
    s.complete &= note && s.lost == 0;
    return s;
}

unsigned char *slurp(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *p = malloc(1 << 20);
    *ret_n = f && p ? fread(p, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    return p;
}

const char *as_file(const unsigned char *p, size_t n)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("kvf-test", MFD_CLOEXEC);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, p, n, 0) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

const char *scratch_path(const char *name)
{
    static const char *const ends[] = {"", ".unfinished", ".tail"};
    static char path[256];
    char left[272]; /* by a killed test with this process id */
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/kvf-test-%d-%s", dir ? dir : "/tmp", (int)getpid(), name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(left, sizeof left, "%s%s", path, ends[i]);
        unlink(left);
    }
    return path;
}

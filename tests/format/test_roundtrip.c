/* test_roundtrip.c - written data read back equal, for every type, length and grouping. */
#include <pthread.h>

#include "libtrace/layout.h"
#include "tests/format/opened.h"

Test(roundtrip, tiny_trace_comes_back_in_every_mode)
{
    const char *path = scratch_path("tiny.kvf");
    struct kvf_check c;
    cr_assert(zero(int, tiny_create(path)));
    for (int mode = KVF_OPEN_TAIL; mode <= KVF_OPEN_SALVAGE; mode++) {
        OWNED(kvf_close) struct kvf_trace *t = opened(path, (enum kvf_open_mode)mode);
        struct tiny_seen s = tiny_compare(t);
        cr_expect(s.complete);
        cr_expect(not(s.wrong));
        cr_expect(eq(int, s.heads, 1 + 3 + 4 + 3 + 4 + 1 + 3 + 3)); /* by the shape in tiny.c */
        cr_expect(eq(int, kvf_is_clean(t), 1));
    }
    cr_expect(zero(int, kvf_verify(path, 1, &c, NULL)));
    cr_expect(eq(u64, c.bad + c.lost + c.torn, 0));
    unlink(path);
}

Test(roundtrip, equal_calls_give_equal_bytes)
{
    size_t n, m;
    const char *path = scratch_path("equal.kvf");
    cr_assert(zero(int, tiny_create(path)));
    OWNED(free) unsigned char *a = slurp(path, &n);
    cr_assert(zero(int, tiny_create(path)));
    OWNED(free) unsigned char *b = slurp(path, &m);
    cr_assert(eq(sz, n, m));
    cr_assert(zero(int, memcmp(a, b, n)));
    unlink(path);
}

/* One RUN column of each dtype, with lengths around the limits of chunks (512 KiB raw). */
static void lengths_of(enum kvf_dtype dtype)
{
    size_t width = kvf_dtype_size(dtype), chunk = (512 << 10) / width;
    const size_t lengths[] = {0,   1,         2,     3,         255,          256,
                              257, chunk - 1, chunk, chunk + 1, 2 * chunk + 7};
    const uint16_t heads = 1;
    const struct kvf_shape shape = {1, &heads, &heads};
    struct kvf_column col = {"x-c", 0, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""};
    OWNED(free)
    unsigned char *data = malloc((2 * chunk + 7) * width), *got = malloc((2 * chunk + 8) * width);
    struct rng r = rng_seeded((uint64_t)dtype);
    col.dtype = (uint8_t)dtype;
    for (size_t i = 0; i < (2 * chunk + 7) * width; i++)
        data[i] = (unsigned char)(rng_next(&r) >> 11);
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        const char *path = scratch_path("length.kvf");
        struct kvf_writer *w;
        uint32_t n = (uint32_t)lengths[k];
        cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &col, 1,
                                            &(struct kvf_writer_options){.existing = KVF_OVERWRITE},
                                            &w, NULL)));
        cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, n, 0, data)));
        cr_assert(zero(int, kvf_writer_commit(w, 1, n)));
        cr_assert(zero(int, kvf_writer_close(w, NULL)));
        struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
        cr_assert(eq(u32, kvf_n_steps(t), n));
        memset(got, 0x77, (n + 1) * width);
        cr_assert(zero(int, kvf_read(t, 0, 0, 0, 0, n, got, NULL)));
        cr_assert(zero(int, memcmp(got, data, n * width)), "dtype %d, n %u", dtype, n);
        cr_assert(eq(u8, got[n * width], 0x77));
        cr_assert(eq(int, kvf_read(t, 0, 0, 0, 0, n + 1, got, NULL), KVF_E_NOTFOUND));
        if (n > 2) { /* a range in the middle */
            cr_assert(zero(int, kvf_read(t, 0, 0, 0, n / 2, n - n / 2 - 1, got, NULL)));
            cr_assert(zero(int, memcmp(got, data + n / 2 * width, (n - n / 2 - 1) * width)));
        }
        kvf_close(t);
        unlink(path);
    }
}

Test(roundtrip, every_dtype_at_lengths_around_the_chunk_limit)
{
    for (int dtype = KVF_U8; dtype <= KVF_U64; dtype++)
        lengths_of((enum kvf_dtype)dtype);
}

static struct kvf_trace *one_column(struct kvf_column col, const void *data, uint32_t n)
{
    const char *path = scratch_path("one.kvf");
    const uint16_t heads = 1;
    const struct kvf_shape shape = {1, &heads, &heads};
    struct kvf_writer *w;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &col, 1,
                                        &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w,
                                        NULL)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, n, 0, data)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    unlink(path);
    return t;
}

Test(roundtrip, floats_keep_their_bits_and_widen_exactly)
{
    const uint32_t bits[] = {0x7fc00000, 0x7f800001 /* signalling */,
                             0xffc12345, 0x7f800000,
                             0xff800000, 0x80000000,
                             0x00000001, 0x7f7fffff,
                             0x3f800000};
    uint32_t got[9];
    double v[9];
    int32_t i32[9];
    OWNED(kvf_close)
    struct kvf_trace *t = one_column((struct kvf_column){"x-f", KVF_F32, 0, 0, 0, ""}, bits, 9);
    cr_assert(zero(int, kvf_read(t, 0, 0, 0, 0, 9, got, NULL)));
    cr_assert(zero(int, memcmp(got, bits, sizeof bits)));
    cr_assert(zero(int, kvf_read_f64(t, 0, 0, 0, 0, 9, v, NULL)));
    cr_expect(isnan(v[0]) && isnan(v[1]) && isnan(v[2]));
    cr_expect(v[3] == (double)INFINITY && v[4] == -(double)INFINITY && signbit(v[5]));
    cr_expect(v[6] == 0x1p-149 && v[7] == 0x1.fffffep127 && v[8] == 1);
    cr_assert(zero(int, kvf_read_i32(t, 0, 0, 0, 0, 9, i32, NULL)));
    cr_expect(eq(i32, i32[0], -1));
    cr_expect(eq(i32, i32[8], 1));
}

/* The maximum value of each type, and "never" for ages. */
static void greatest(enum kvf_dtype dtype, int flags, uint64_t bits, double want, int32_t want_i32)
{
    double v[2];
    int32_t i[2];
    unsigned char raw[16];
    size_t width = kvf_dtype_size(dtype);
    put_le(raw, bits, (int)width);
    put_le(raw + width, 1, (int)width);
    copy_le(raw, raw, 2, width); /* in the byte order of this machine */
    OWNED(kvf_close)
    struct kvf_trace *t = one_column(
        (struct kvf_column){"x-x", (uint8_t)dtype, 0, 0, (uint8_t)flags, ""}, raw, 2);
    cr_assert(zero(int, kvf_read_f64(t, 0, 0, 0, 0, 2, v, NULL)));
    cr_assert(zero(int, kvf_read_i32(t, 0, 0, 0, 0, 2, i, NULL)));
    cr_expect(eq(dbl, v[0], want));
    cr_expect(eq(i32, i[0], want_i32));
    if (dtype != KVF_F64)
        cr_expect(eq(dbl, v[1], 1.0));
}

Test(roundtrip, greatest_values_and_never)
{
    greatest(KVF_U8, 0, 255, 255, 255);
    greatest(KVF_U16, 0, 65535, 65535, 65535);
    greatest(KVF_U32, 0, UINT32_MAX, 4294967295.0, -1);
    greatest(KVF_I32, 0, 0x7fffffff, 2147483647.0, 2147483647);
    greatest(KVF_I32, 0, 0x80000000, -2147483648.0, -2147483647 - 1);
    greatest(KVF_U64, 0, (uint64_t)1 << 53, 9007199254740992.0, -1);
    greatest(KVF_F64, 0, 0x7fefffffffffffffu, 0x1.fffffffffffffp1023, -1);
    greatest(KVF_U8, KVF_COL_AGE, 255, -1, -1);
    greatest(KVF_U16, KVF_COL_AGE, 65535, -1, -1);
    greatest(KVF_U32, KVF_COL_AGE, UINT32_MAX, -1, -1);
    greatest(KVF_U64, KVF_COL_AGE, UINT64_MAX, -1, -1);
    greatest(KVF_U16, KVF_COL_AGE, 65534, 65534, 65534);
}

static const struct kvf_column kv_u8 = {"x-x", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""};

Test(roundtrip, heads_may_be_grouped_differently_over_time)
{
    const char *path = scratch_path("groups.kvf");
    const uint16_t heads = 4;
    const struct kvf_shape shape = {1, &heads, &heads};
    struct kvf_writer *w;
    uint8_t data[4 * 10], got[20];
    for (int i = 0; i < 40; i++)
        data[i] = (uint8_t)i;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &kv_u8, 1,
                                        &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w,
                                        NULL)));
    for (int h = 0; h < 4; h++) /* steps 0-9 head by head, 10-19 in pairs */
        cr_assert(zero(int, kvf_write_chunk(w, 0, 0, h, 1, 0, 10, 0, data + 10 * h)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 2, 10, 10, 0, data)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 2, 2, 10, 10, 0, data + 20)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    for (int h = 0; h < 4; h++) {
        cr_assert(zero(int, kvf_read(t, 0, 0, h, 0, 20, got, NULL)), "head %d", h);
        cr_expect(zero(int, memcmp(got, data + 10 * h, 10)));
        cr_expect(zero(int, memcmp(got + 10, data + 10 * h, 10)));
    }
    kvf_close(t);
    unlink(path);
}

/* Values per head, for 3 heads; each head has more values than one record can store. */
enum { LONG = 150000 };

static struct kvf_trace *two_chunks(const char *path, uint32_t *data)
{
    const struct kvf_column column = {"x-x", KVF_U32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, 0, ""};
    const uint16_t heads = 3;
    const struct kvf_shape shape = {1, &heads, &heads};
    struct kvf_writer *w;
    for (uint32_t i = 0; i < 3 * LONG; i++)
        data[i] = i * 2654435761u >> 7;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &column, 1,
                                        &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w,
                                        NULL)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 3, 0, LONG, 0, data)));
    cr_assert(zero(int, kvf_writer_commit(w, 1, LONG)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    return opened(path, KVF_OPEN_STRICT);
}

Test(roundtrip, a_view_is_what_is_read_in_one_chunk_or_over_several)
{
    const char *path = scratch_path("view.kvf");
    OWNED(free) uint32_t *data = malloc(3 * LONG * sizeof *data);
    const uint32_t chunk = (512 << 10) / 4; /* values of a head in its first chunk */
    const uint32_t from[] = {0, 1, chunk - 2, chunk - 1, chunk, LONG - 3}, n[] = {0, 1, 2, 3};
    struct kvf_trace *t = two_chunks(path, data);
    const void *seen;
    for (int h = 0; h < 3; h++)
        for (size_t i = 0; i < sizeof from / sizeof *from; i++)
            for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
                cr_assert(zero(int, kvf_view(t, 0, 0, h, from[i], n[k], &seen, NULL)));
                cr_assert(zero(int, memcmp(seen, data + (uint32_t)h * LONG + from[i], 4 * n[k])),
                          "head %d from %u, %u", h, from[i], n[k]);
            }
    cr_assert(zero(int, kvf_view(t, 0, 0, 1, 0, LONG, &seen, NULL)));
    cr_expect(zero(int, memcmp(seen, data + LONG, 4 * LONG)));
    cr_expect(eq(int, kvf_view(t, 0, 0, 1, 1, LONG, &seen, NULL), KVF_E_NOTFOUND));
    cr_expect(eq(int, kvf_view(t, 0, 0, 3, 0, 1, &seen, NULL), KVF_E_ARG));
    kvf_close(t);
    unlink(path);
}

/* Returns the number of records for n values of three heads. */
static uint64_t records_of(uint32_t n, const uint32_t *data)
{
    const char *path = scratch_path("heads.kvf");
    const struct kvf_column column = {"x-x", KVF_U32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, 0, ""};
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    const uint16_t heads = 3;
    const struct kvf_shape shape = {1, &heads, &heads};
    struct kvf_check c;
    struct kvf_writer *w;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &column, 1, &o, &w, NULL)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 3, 0, n, 0, data)));
    cr_assert(zero(int, kvf_writer_commit(w, 1, n)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    cr_assert(zero(int, kvf_verify(path, 1, &c, NULL)));
    unlink(path);
    return c.records;
}

Test(roundtrip, long_chunks_are_cut_between_heads_and_only_a_longer_head_along_the_index)
{
    const uint32_t most = (512 << 10) / 4; /* values in a record */
    const struct {
        uint32_t n, records;
    } cases[] = {{1, 1},    {most / 3, 1}, {most / 3 + 1, 2}, {most / 2, 2}, {most / 2 + 1, 3},
                 {most, 3}, {most + 1, 6}};
    OWNED(free) uint32_t *data = calloc(3 * (size_t)(most + 1), sizeof *data);
    uint64_t none = records_of(0, data);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect(eq(u64, records_of(cases[i].n, data) - none, cases[i].records), "%u values",
                  cases[i].n);
}

struct reading {
    struct kvf_trace *t;
    const uint32_t *data;
    int wrong;
};

static void *read_many(void *arg)
{
    struct reading *r = arg;
    uint32_t got[64];
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t head = i % 3, at = i * 7919 % (LONG - 64);
        if (kvf_read(r->t, 0, 0, (int)head, at, 64, got, NULL)
            || memcmp(got, r->data + head * LONG + at, sizeof got) != 0)
            r->wrong++;
    }
    return NULL;
}

Test(roundtrip, readers_that_share_a_trace_read_at_the_same_time)
{
    const char *path = scratch_path("share.kvf");
    OWNED(free) uint32_t *data = malloc(3 * LONG * sizeof *data);
    struct reading r[3] = {{two_chunks(path, data), data, 0}};
    pthread_t thread[3];
    for (int i = 1; i < 3; i++) {
        r[i] = r[0];
        cr_assert(zero(int, kvf_share(r[0].t, &r[i].t)));
        cr_expect(eq(u32, kvf_n_steps(r[i].t), LONG));
        cr_expect(zero(int, strcmp(kvf_meta(r[i].t), "{}")));
    }
    for (int i = 0; i < 3; i++)
        cr_assert(zero(int, pthread_create(&thread[i], NULL, read_many, &r[i])));
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        cr_expect(eq(int, r[i].wrong, 0));
    }
    kvf_close(r[1].t);
    kvf_close(r[2].t);
    read_many(&r[0]); /* it stays usable after the others are closed */
    cr_expect(eq(int, r[0].wrong, 0));
    kvf_close(r[0].t);
    unlink(path);
}

Test(roundtrip, missing_is_an_error_never_zero)
{
    const char *path = scratch_path("hole.kvf");
    struct kvf_writer *w;
    struct kvf_diag d = {""};
    uint8_t data[10] = {0}, got[30];
    const uint16_t heads = 2;
    const struct kvf_shape shape = {1, &heads, &heads};
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &kv_u8, 1,
                                        &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w,
                                        NULL)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 10, 0, data)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 20, 10, 0, data)));
    cr_assert(zero(int, kvf_writer_commit(w, 1, 30)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_expect(eq(int, kvf_read(t, 0, 0, 0, 0, 30, got, &d), KVF_E_NOTFOUND));
    cr_expect(ne(ptr, strstr(d.text, "from 10 on"), NULL), "%s", d.text);
    cr_expect(zero(int, kvf_read(t, 0, 0, 0, 20, 10, got, NULL)));
    cr_expect(eq(int, kvf_read(t, 0, 0, 1, 0, 1, got, NULL), KVF_E_NOTFOUND));
    cr_expect(eq(int, kvf_read(t, 0, 0, 2, 0, 1, got, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read(t, 0, 1, 0, 0, 1, got, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read(t, 0, -1, 0, 0, 1, got, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read(t, 1, 0, 0, 0, 1, got, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read(t, 0, 0, 0, UINT32_MAX, 1, got, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read(t, 0, 0, 0, 1, UINT32_MAX, got, NULL), KVF_E_ARG));
    cr_expect(eq(ptr, (void *)(size_t)kvf_token(t, 0, &(size_t){0}), NULL));
    cr_expect(eq(ptr, (void *)(size_t)kvf_note(t, "result"), NULL));
    kvf_close(t);
    unlink(path);
}

Test(roundtrip, an_uncommitted_snapshot_does_not_count)
{
    const char *path = scratch_path("epochs.kvf");
    struct kvf_column col = kv_u8;
    struct kvf_writer *w;
    uint8_t one[4] = {1, 1, 1, 1}, two[8] = {2, 2, 2, 2, 2, 2, 2, 2}, got[8];
    const uint16_t heads = 1;
    const struct kvf_shape shape = {1, &heads, &heads};
    col.flags = KVF_COL_SNAPSHOT;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &col, 1,
                                        &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w,
                                        NULL)));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 4, 1, one)));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 4, 0, one), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 4, 2, one), KVF_E_ARG));
    cr_expect(eq(int, kvf_writer_commit(w, 2, 4), KVF_E_ARG));
    cr_assert(zero(int, kvf_writer_commit(w, 1, 4)));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 4, 1, two), KVF_E_ARG));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 8, 2, two)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_expect(eq(u32, kvf_epoch(t), 1));
    cr_assert(zero(int, kvf_read(t, 0, 0, 0, 0, 4, got, NULL)));
    cr_expect(zero(int, memcmp(got, one, 4)));
    cr_expect(eq(int, kvf_read(t, 0, 0, 0, 0, 8, got, NULL), KVF_E_NOTFOUND));
    kvf_close(t);
    unlink(path);
}

static int open_with(struct kvf_shape shape, struct kvf_column col, int n, struct kvf_diag *d)
{
    OWNED(kvf_writer_abandon) struct kvf_writer *w = NULL;
    struct kvf_column list[2] = {col, col};
    *d = (struct kvf_diag){""};
    int err = kvf_writer_open(scratch_path("args.kvf"), "{}", &shape, list, n,
                              &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w, d);
    return err;
}

Test(roundtrip, wrong_arguments_are_refused_with_a_sentence)
{
    const uint16_t many = KVF_MAX_HEADS + 1, one = 1;
    const struct kvf_shape good = {1, &one, &one};
    struct kvf_column bad = kv_u8;
    struct kvf_diag d;
    cr_expect(eq(int, open_with((struct kvf_shape){1, &many, &one}, kv_u8, 1, &d), KVF_E_LIMIT));
    cr_expect(ne(chr, d.text[0], 0));
    cr_expect(eq(int, open_with((struct kvf_shape){KVF_MAX_LAYERS + 1, &one, &one}, kv_u8, 1, &d),
                 KVF_E_LIMIT));
    cr_expect(ne(chr, d.text[0], 0));
    cr_expect(eq(int, open_with(good, kv_u8, 2, &d), KVF_E_ARG)); /* a duplicate name */
    cr_expect(ne(ptr, strstr(d.text, "twice"), NULL));
    bad.dtype = 0;
    cr_expect(eq(int, open_with(good, bad, 1, &d), KVF_E_ARG));
    bad = kv_u8;
    bad.space = 3;
    cr_expect(eq(int, open_with(good, bad, 1, &d), KVF_E_ARG));
    bad = kv_u8;
    memset(bad.name, 'x', sizeof bad.name);
    cr_expect(eq(int, open_with(good, bad, 1, &d), KVF_E_ARG));
    bad = (struct kvf_column){"x-f", KVF_F32, 0, 0, KVF_COL_AGE, ""};
    cr_expect(eq(int, open_with(good, bad, 1, &d), KVF_E_ARG));
    unlink(scratch_path("args.kvf"));
}

Test(roundtrip, names_are_those_of_the_schema_or_begin_with_x)
{
    static const char *const good[] = {"nll", "mass.sum", "last_selected.own", "x-a", "x-lab.nll"};
    static const char *const bad[] = {"x",    "X-a",        "own", "nll.mine", "nl",
                                      "mass", "last_selec", "x_a", " x-a",     "\033[31mnll"};
    const uint16_t one = 1;
    const struct kvf_shape shape = {1, &one, &one};
    struct kvf_column c = kv_u8;
    struct kvf_diag d;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(c.name, sizeof c.name, "%s", good[i]);
        cr_expect(zero(int, open_with(shape, c, 1, &d)), "%s: %s", good[i], d.text);
        unlink(scratch_path("args.kvf.unfinished"));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(c.name, sizeof c.name, "%s", bad[i]);
        cr_expect(eq(int, open_with(shape, c, 1, &d), KVF_E_ARG), "%s", bad[i]);
        cr_expect(ne(ptr, strstr(d.text, "begin with x-"), NULL), "%s", d.text);
        cr_expect(bad[i][0] == '\033' || strstr(d.text, bad[i]), "%s", d.text);
        cr_expect(eq(int, access(scratch_path("args.kvf.unfinished"), F_OK), -1));
    }
}

/* A header of exactly 16 MiB is accepted; one byte more is rejected. */
Test(roundtrip, a_run_header_as_long_as_the_limit)
{
    const size_t limit = (size_t)16 << 20;
    const char *path = scratch_path("header.kvf");
    const uint16_t heads = 1;
    const struct kvf_shape shape = {1, &heads, &heads};
    struct kvf_diag d = {""};
    struct kvf_writer *w = NULL;
    OWNED(free) char *meta = malloc(limit + 2);
    memset(meta, ' ', limit);
    meta[0] = '{';
    meta[limit - 1] = '}';
    meta[limit] = 0;
    const struct kvf_writer_options options = {.existing = KVF_OVERWRITE};
    cr_assert(zero(int, kvf_writer_open(path, meta, &shape, tiny_column, 1, &options, &w, &d)),
              "%s", d.text);
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_expect(eq(str, (char *)kvf_meta(t), meta));
    kvf_close(t);
    unlink(path);
    meta[limit] = ' ';
    meta[limit + 1] = 0;
    cr_expect(eq(int, kvf_writer_open(path, meta, &shape, tiny_column, 1, &options, &w, &d),
                 KVF_E_LIMIT));
}

/* Texts of more tokens than one record can store, in one call. */
Test(roundtrip, texts_of_many_tokens)
{
    enum { N = 40000 };
    const char *path = scratch_path("texts.kvf");
    const uint16_t heads = 1;
    const struct kvf_shape shape = {1, &heads, &heads};
    struct kvf_writer *w;
    uint32_t *end = malloc(N * sizeof *end), n = 0;
    OWNED(free) char *text = malloc(N * 8);
    for (uint32_t i = 0; i < N; i++) {
        n += (uint32_t)tiny_token(i, text + n);
        end[i] = n;
    }
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, tiny_column, 1,
                                        &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w,
                                        NULL)));
    cr_assert(zero(int, kvf_write_token_bytes(w, 0, N, end, text)));
    cr_assert(zero(int, kvf_writer_commit(w, 1, N)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    for (uint32_t i = 0; i < N; i++) {
        size_t len, want = end[i] - (i ? end[i - 1] : 0);
        const char *got = kvf_token(t, i, &len);
        cr_assert(got && len == want && memcmp(got, text + end[i] - want, want) == 0, "token %u",
                  i);
    }
    kvf_close(t);
    unlink(path);
    free(end);
}

Test(roundtrip, a_check_counts_the_bytes_of_all_columns)
{
    const char *path = scratch_path("bytes.kvf");
    struct kvf_check check;
    uint64_t raw = 0;
    tiny_plain = true; /* only columns of plain values: each as often as it was written */
    cr_assert(zero(int, tiny_create(path)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    for (int c = 0; c < kvf_n_columns(t); c++)
        for (int l = 0; l < kvf_n_layers(t); l++) {
            const struct kvf_column *k = kvf_column(t, c);
            int space = k->space, heads = kvf_n_heads(t, l, (enum kvf_space)space);
            uint64_t values = k->flags & KVF_COL_SNAPSHOT ? tiny_steps[1] + tiny_steps[2]
                                                          : tiny_steps[2];
            if (space != KVF_SPACE_RUN || l == 0)
                raw += values * (uint64_t)heads * kvf_dtype_size(k->dtype);
        }
    kvf_close(t);
    cr_assert(zero(int, kvf_verify(path, 1, &check, NULL)));
    cr_expect(eq(u64, check.raw_bytes, raw));
    cr_expect(lt(u64, check.payload_bytes, check.bytes));
    unlink(path);
}

Test(roundtrip, wrong_calls_leave_the_writer_usable)
{
    const char *path = scratch_path("calls.kvf");
    struct kvf_writer *w;
    const uint32_t falling[2] = {3, 2};
    uint8_t x = 1;
    cr_assert(zero(int, tiny_open(path, &w, NULL)));
    cr_expect(eq(int, kvf_write_chunk(w, -1, 0, 0, 1, 0, 1, 0, &x), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_chunk(w, TINY_COLUMNS, 0, 0, 1, 0, 1, 0, &x), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 1, 0, 1, 0, 1, 0, &x), KVF_E_ARG)); /* RUN: layer 0 */
    cr_expect(eq(int, kvf_write_chunk(w, 4, 0, 1, 2, 0, 1, 0, &x), KVF_E_ARG));
    for (int layer = TINY_LAYERS; layer < TINY_LAYERS + 4096; layer++)
        cr_assert(eq(int, kvf_write_chunk(w, 4, layer, 0, 1, 0, 1, 0, &x), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_chunk(w, 4, -1, 0, 1, 0, 1, 0, &x), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, KVF_MAX_STEPS, 1, 0, &x), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_token_bytes(w, 0, 2, falling, "abc"), KVF_E_ARG));
    for (uint32_t e = 1; e <= TINY_EPOCHS; e++)
        cr_assert(zero(int, tiny_write(w, e)));
    cr_assert(zero(int, tiny_finish(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_expect(tiny_compare(t).complete);
    kvf_close(t);
    unlink(path);
}

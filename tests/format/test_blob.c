/* test_blob.c - blobs: any block reads back equal, for every type and shape. Invalid blobs are
 * rejected when written and when read. */
#include "maker.h"

static const uint16_t n_kv[2] = {1, 2}, n_query[2] = {2, 4};
static const struct kvf_shape shape = {2, n_kv, n_query};
static const struct kvf_column nll = {"nll", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, "nat"};

static struct kvf_writer *begin(const char *path)
{
    struct kvf_writer *w = NULL;
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &nll, 1, &o, &w, NULL)));
    return w;
}

static struct kvf_trace *finish_and_open(struct kvf_writer *w, const char *path)
{
    struct kvf_check c;
    cr_assert(zero(int, kvf_writer_commit(w, 1, 0)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    succeeds(kvf_verify(path, 0, &c, &d));
    succeeds(kvf_verify(path, 1, &c, &d));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    return t;
}

static const size_t width_of[] = {0, 1, 2, 4, 4, 4, 8, 8, 2, 2}; /* by enum kvf_dtype */

/* The contents of a block: one value, few values, noise. */
enum { SAME, FEW, NOISE, KINDS };

static void fill(unsigned char *p, size_t n, int kind, uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    for (size_t i = 0; i < n; i++) {
        uint64_t x = rng_next(&rng);
        p[i] = (unsigned char)(kind == SAME ? 0x40 : kind == FEW ? x & 1 : x);
    }
}

static struct kvf_blob blob_of(int dtype, int rank, const uint32_t *dim)
{
    struct kvf_blob b = {.name = "k", .dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    memcpy(b.shape, dim, (size_t)rank * sizeof *dim);
    return b;
}

static bool same_blob(const struct kvf_blob *a, const struct kvf_blob *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank
           && a->layer == b->layer && a->head == b->head && a->t0 == b->t0
           && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

/* The number of a block of a type determines its rank and content, and if it is packed. */
enum { BLOCKS = KVF_MAX_RANK * KINDS * 2 * 3, WIDEST = 2 * 3 * 40 * 600 * 8 };

static size_t block(int dtype, int k, struct kvf_blob *b, unsigned char data[WIDEST])
{
    static const uint32_t dims[3][KVF_MAX_RANK] = {{3, 5, 1, 7}, {1, 1, 1, 1}, {2, 3, 40, 600}};
    size_t n = width_of[dtype];
    *b = blob_of(dtype, k % KVF_MAX_RANK + 1, dims[k / KVF_MAX_RANK % 3]);
    b->t0 = (uint32_t)k;
    for (int i = 0; i < b->rank; i++)
        n *= b->shape[i];
    fill(data, n, k / (3 * KVF_MAX_RANK) % KINDS, (uint64_t)k);
    return n;
}

/* Every type, rank and content, packed or not. Some blocks are larger than a chunk. */
Test(blob, any_block_comes_back, .timeout = 100)
{
    const char *path = scratch_path("blob.kvf");
    static unsigned char data[WIDEST];
    for (int dtype = KVF_U8; dtype <= KVF_BF16; dtype++) {
        struct kvf_writer *w = begin(path);
        struct kvf_blob b, got;
        for (int k = 0; k < BLOCKS; k++) {
            size_t n = block(dtype, k, &b, data);
            cr_expect(eq(sz, kvf_blob_size(&b), n));
            cr_assert(zero(int, kvf_write_blob(w, &b, k >= BLOCKS / 2, data)));
        }
        OWNED(kvf_close) struct kvf_trace *t = finish_and_open(w, path);
        cr_assert(eq(int, kvf_n_blobs(t), BLOCKS));
        for (int k = 0; k < BLOCKS; k++) {
            struct kvf_diag d = {""};
            const void *p;
            size_t n = block(dtype, k, &b, data);
            cr_assert(zero(int, kvf_blob(t, k, &got, &d)), "%s", d.text);
            cr_expect(same_blob(&got, &b));
            cr_assert(zero(int, kvf_blob_view(t, k, &p, &d)), "%s", d.text);
            cr_expect(zero(int, memcmp(p, data, n)), "dtype %d, block %d", dtype, k);
            cr_expect(zero(sz, (size_t)p % width_of[dtype]), "not aligned");
        }
    }
    unlink(path);
}

/* An unpacked blob is stored unchanged in the file, a packed one is smaller. Both have the same
 * digest. */
Test(blob, packed_or_not_is_one_content)
{
    enum { N = 3000 };
    const char *path = scratch_path("blob-packed.kvf");
    static unsigned char data[N];
    char digest[2][33];
    size_t size[2];
    fill(data, N, FEW, 1);
    for (int packed = 0; packed < 2; packed++) {
        struct kvf_blob b = blob_of(KVF_U8, 1, (const uint32_t[]){N});
        struct kvf_writer *w = begin(path);
        cr_assert(zero(int, kvf_write_blob(w, &b, packed, data)));
        struct kvf_trace *t = finish_and_open(w, path);
        cr_assert(zero(int, kvf_digest(t, digest[packed], NULL)));
        kvf_close(t);
        OWNED(free) unsigned char *p = slurp(path, &size[packed]);
        cr_expect(eq(int, memmem(p, size[packed], data, N) != NULL, !packed));
    }
    cr_expect(lt(sz, size[1] + N / 2, size[0]));
    cr_expect(zero(int, strcmp(digest[0], digest[1])));
    unlink(path);
}

static void digest_with(struct kvf_blob b, const void *data, char ret[33])
{
    const char *path = scratch_path("blob-digest.kvf");
    struct kvf_writer *w = begin(path);
    cr_assert(zero(int, kvf_write_blob(w, &b, false, data)));
    struct kvf_trace *t = finish_and_open(w, path);
    char stored[33];
    cr_assert(zero(int, kvf_digest(t, ret, NULL)));
    cr_assert(zero(int, kvf_stored_digest(t, stored)));
    cr_expect(zero(int, strcmp(ret, stored)));
    kvf_close(t);
    unlink(path);
}

Test(blob, whatever_is_told_of_it_is_in_the_digest)
{
    const struct kvf_blob b = blob_of(KVF_F16, 2, (const uint32_t[]){2, 3});
    struct kvf_blob c[8] = {b, b, b, b, b, b, b, b};
    unsigned char data[12] = "hello world", other[12] = "hello worle";
    char want[33], got[33];
    strcpy(c[1].name, "v");
    c[2].dtype = KVF_BF16;
    c[3].rank = 1, c[3].shape[0] = 6, c[3].shape[1] = 0;
    c[4].shape[0] = 3, c[4].shape[1] = 2;
    c[5].layer = 1;
    c[6].head = 1;
    c[7].t0 = 1;
    digest_with(b, data, want);
    for (int i = 0; i < 8; i++) {
        digest_with(c[i], data, got);
        cr_expect(eq(int, strcmp(got, want) == 0, i == 0), "%d", i);
    }
    digest_with(b, other, got);
    cr_expect(ne(int, strcmp(got, want), 0));
}

Test(blob, come_in_the_order_of_layer_head_and_token)
{
    const char *path = scratch_path("blob-order.kvf");
    struct kvf_writer *w = begin(path);
    struct kvf_trace *t;
    const void *p;
    struct kvf_blob b = blob_of(KVF_U8, 1, (const uint32_t[]){1});
    for (unsigned char k = 0; k < 16; k++) { /* layer, head, token: each twice */
        b.layer = k >> 1 & 1, b.head = k & 1, b.t0 = 9 - (k >> 2 & 1);
        cr_assert(zero(int, kvf_write_blob(w, &b, false, &k)));
    }
    cr_assert(zero(int, kvf_writer_sync(w)));
    cr_assert(zero(int, kvf_open(path, KVF_OPEN_TAIL, &t, NULL)), "not closed");
    cr_assert(eq(int, kvf_n_blobs(t), 16));
    for (int i = 0; i < 16; i++) {
        struct kvf_blob got;
        cr_assert(zero(int, kvf_blob(t, i, &got, NULL)));
        cr_assert(zero(int, kvf_blob_view(t, i, &p, NULL)));
        cr_expect(eq(int, got.layer * 8 + got.head * 4 + (int)(got.t0 - 8) * 2, i & ~1));
        cr_expect(eq(int, *(const unsigned char *)p >> 3, i & 1), "then of writing");
    }
    cr_expect(eq(int, kvf_blob_view(t, 16, &p, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_blob_view(t, -1, &p, NULL), KVF_E_ARG));
    kvf_close(t);
    kvf_writer_abandon(w);
    unlink(path);
}

/* ---- invalid blobs ------------------------------------------------------- */

static struct kvf_writer *limits; /* used by the next test */

static int write_it(const struct kvf_blob *b)
{
    static unsigned char data[KVF_MAX_BLOB + 8];
    return kvf_write_blob(limits, b, false, data);
}

Test(blob, the_writer_refuses_what_cannot_be, .timeout = 60)
{
    const struct kvf_blob good = blob_of(KVF_U8, 1, (const uint32_t[]){4});
    struct kvf_blob b = good;
    const char *path = scratch_path("blob-limits.kvf");
    limits = begin(path);
    cr_expect(zero(int, write_it(&b)));
    b.shape[0] = KVF_MAX_BLOB;
    cr_expect(zero(int, write_it(&b)), "as large as the limit");
    b.shape[0]++;
    cr_expect(eq(int, write_it(&b), KVF_E_LIMIT));
    b = blob_of(KVF_F64, 4, (const uint32_t[]){1u << 31, 1u << 31, 1u << 31, 8});
    cr_expect(eq(int, write_it(&b), KVF_E_LIMIT), "a product that wraps");
    b = blob_of(KVF_U16, 2, (const uint32_t[]){KVF_MAX_BLOB / 4, 2});
    cr_expect(zero(int, write_it(&b)));
    b.shape[1]++;
    cr_expect(eq(int, write_it(&b), KVF_E_LIMIT));
    b = blob_of(KVF_U8, 3, (const uint32_t[]){97, 257, 673});
    cr_expect(eq(int, write_it(&b), KVF_E_LIMIT), "a product of one more");
    b = good;
    memset(b.name, 'x', KVF_NAME_MAX);
    memcpy(b.name, "x-", 2);
    cr_expect(eq(int, write_it(&b), KVF_E_ARG), "a name of 48 bytes");
    b.name[KVF_NAME_MAX - 1] = 0;
    cr_expect(zero(int, write_it(&b)), "a name of 47 bytes");
    b.name[0] = 0;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG), "no name");
    b = blob_of(KVF_U8, 4, (const uint32_t[]){1, 1, 1, 1});
    cr_expect(zero(int, write_it(&b)), "four dimensions");
    b.rank = 5;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG), "five");
    b.rank = 0;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG), "none");
    b.rank = 3;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG), "one more than it says");
    b.shape[3] = b.shape[1] = 0;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG), "a dimension of 0");
    b = good;
    b.dtype = KVF_BF16 + 1;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG));
    b.dtype = 0;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG));
    b = good;
    b.t0 = KVF_MAX_STEPS - 1;
    cr_expect(zero(int, write_it(&b)));
    b.t0++;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG));
    b = good;
    b.layer = 1, b.head = 3;
    cr_expect(zero(int, write_it(&b)), "the last query head");
    b.head = 4;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG));
    b.layer = 2, b.head = 0;
    cr_expect(eq(int, write_it(&b), KVF_E_ARG));
    struct kvf_trace *t = finish_and_open(limits, path);
    cr_expect(eq(int, kvf_n_blobs(t), 7), "the good ones, and no other");
    kvf_close(t);
    unlink(path);
}

Test(blob, the_writer_refuses_names_that_nothing_defines)
{
    static const char *const own[] = {"q", "k", "v", "attention", "x-lab.k"};
    static const char *const others[] = {"key", "K", "x", "X-k", "attention.1", " q"};
    struct kvf_blob b = blob_of(KVF_U8, 1, (const uint32_t[]){4});
    const char *path = scratch_path("blob-names.kvf");
    limits = begin(path);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        snprintf(b.name, sizeof b.name, "%s", own[i]);
        cr_expect(zero(int, write_it(&b)), "%s", own[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(b.name, sizeof b.name, "%s", others[i]);
        cr_expect(eq(int, write_it(&b), KVF_E_ARG), "%s", others[i]);
    }
    struct kvf_trace *t = finish_and_open(limits, path);
    cr_expect(eq(int, kvf_n_blobs(t), 5), "the good ones, and no other");
    kvf_close(t);
    unlink(path);
}

/* Makes a trace with the maker's shape, one layer with 2 KV and 3 query heads, and this record. */
static struct maker *make(struct record r, const void *payload, size_t n)
{
    struct maker *m = start();
    put(m, r, payload, n);
    put(m, column_of_four(), stored_four, 16);
    commit(m, 1, 4);
    return m;
}

enum { BYTES = 16 };

struct wrong {
    const char *what;
    size_t at; /* number of bytes of the payload's header that are set */
    uint64_t value;
    int n;
    bool hashed; /* the hash is corrected */
};

static const struct wrong wrongs[] = {
    {"a name that was changed", 0, 'v', 1, false},
    {"no name", 0, 0, 1, true},
    {"a type that is not", 48, KVF_BF16 + 1, 1, true},
    {"no dimension", 49, 0, 1, true},
    {"five dimensions", 49, 5, 1, true},
    {"a byte that is not zero", 50, 1, 1, true},
    {"a byte that is not zero, the last", 55, 1, 1, true},
    {"fewer elements than bytes", 56, 3, 4, true},
    {"more", 56, 5, 4, true},
    {"a dimension of 0", 56, 0, 4, true},
    {"a dimension too many", 64, 1, 4, true},
    {"2^32 elements in 32 bits", 60, 1u << 31, 4, true},
};

static struct record blob_record(uint64_t raw, uint64_t stored)
{
    return (struct record){.type = REC_BLOB, .raw_len = raw, .stored_len = stored};
}

static size_t good_payload(unsigned char *p)
{
    struct kvf_blob b = blob_of(KVF_U32, 2, (const uint32_t[]){4, 1});
    blob_header_write(p, &b);
    memset(p + BLOB_HEADER, 7, BYTES);
    return BLOB_HEADER + BYTES;
}

/* Checks that the blob cannot be read, that verify reports it, and that the rest of the trace can
 * be read. */
static void expect_refused(struct maker *m, int want, bool at_opening, const char *what)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_check c;
    struct kvf_diag d = {""};
    const void *p = NULL;
    int err = kvf_verify(as_file(m->p, m->n), 1, &c, &d);
    cr_expect(eq(int, err, want), "%s: %s", what, d.text);
    cr_assert(zero(int, open_it(m, KVF_OPEN_SALVAGE, &t)), "%s", what);
    expect_four(t);
    cr_expect(eq(int, kvf_n_blobs(t), !at_opening), "%s", what);
    err = kvf_blob_view(t, 0, &p, &d);
    cr_expect(eq(int, err, at_opening ? KVF_E_ARG : want), "%s", what);
    cr_expect(eq(ptr, (void *)(uintptr_t)p, NULL), "%s", what);
    free(m);
}

Test(blob, the_reader_judges_what_right_checksums_hide)
{
    unsigned char p[BLOB_HEADER + BYTES];
    size_t n = good_payload(p);
    struct kvf_blob b;
    struct maker *m = make(blob_record(BYTES, n), p, n);
    struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_TAIL);
    cr_expect(zero(int, kvf_blob(t, 0, &b, NULL)), "the good one");
    kvf_close(t);
    free(m);
    for (size_t k = 0; k < sizeof wrongs / sizeof *wrongs; k++) {
        const struct wrong *x = &wrongs[k];
        good_payload(p);
        put_le(p + x->at, x->value, x->n);
        if (x->hashed)
            put_le(p + 72, hash64(p, 72), 8);
        expect_refused(make(blob_record(BYTES, n), p, n), KVF_E_CORRUPT, false, x->what);
    }
    good_payload(p);
    memset(p, 'k', KVF_NAME_MAX);
    put_le(p + 72, hash64(p, 72), 8);
    expect_refused(make(blob_record(BYTES, n), p, n), KVF_E_CORRUPT, false, "an endless name");
    good_payload(p);
    expect_refused(make(blob_record(BYTES, n - 4), p, n - 4), KVF_E_CORRUPT, false, "cut off");
    expect_refused(make(blob_record(BYTES, 79), p, 79), KVF_E_CORRUPT, true, "half a header");
    expect_refused(make(blob_record(0, 80), p, 80), KVF_E_CORRUPT, true, "no element");
    struct record r = blob_record(BYTES, n);
    r.layer = 1;
    expect_refused(make(r, p, n), KVF_E_CORRUPT, true, "layer");
    r.layer = 0, r.head0 = QUERY;
    expect_refused(make(r, p, n), KVF_E_CORRUPT, true, "head");
    r.head0 = 0, r.t0 = KVF_MAX_STEPS;
    expect_refused(make(r, p, n), KVF_E_CORRUPT, true, "first token");
    r.t0 = 0, r.codec = 77;
    m = make(r, p, n);
    cr_assert(zero(int, open_it(m, KVF_OPEN_TAIL, &t)));
    const void *view;
    cr_expect(zero(int, kvf_blob(t, 0, &b, NULL)), "what it is can be told");
    cr_expect(eq(int, kvf_blob_view(t, 0, &view, NULL), KVF_E_VERSION), "an unknown codec");
    kvf_close(t);
    free(m);
}

/* A header with a size above the limit is rejected, however few bytes follow. */
Test(blob, one_larger_than_the_limit_is_not_read)
{
    unsigned char p[BLOB_HEADER + BYTES];
    for (uint32_t more = 0; more < 2; more++) {
        struct kvf_blob b = blob_of(KVF_U8, 1, (const uint32_t[]){KVF_MAX_BLOB});
        const void *view;
        blob_header_write(p, &b);
        put_le(p + 56, KVF_MAX_BLOB + more, 4);
        put_le(p + 72, hash64(p, 72), 8);
        p[BLOB_HEADER] = 9;
        struct record r = blob_record(KVF_MAX_BLOB + more, BLOB_HEADER + 1);
        r.codec = CODEC_CONSTANT;
        OWNED(free) struct maker *m = make(r, p, BLOB_HEADER + 1);
        OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
        cr_expect(eq(int, kvf_n_blobs(t), !more));
        if (!more) {
            cr_assert(zero(int, kvf_blob_view(t, 0, &view, NULL)));
            cr_expect(eq(int, ((const unsigned char *)view)[KVF_MAX_BLOB - 1], 9));
        }
    }
}

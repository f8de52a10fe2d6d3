/* test_hostile.c - malicious files: every checksum is correct, but the contents are not. */
#include <sys/resource.h>
#include <zstd.h>

#include "maker.h"

/* An unchanged file of the maker opens in every mode; the other tests rely on it. */
Test(hostile, the_maker_makes_good_files)
{
    OWNED(free) struct maker *m = start();
    struct kvf_trace *t;
    struct kvf_check c;
    put(m, column(4, 16, 16, CODEC_RAW), stored_four, 16);
    commit(m, 1, 4);
    qsort(m->rec, m->n_rec, sizeof *m->rec, record_compare);
    finish(m, m->rec, m->n_rec);
    for (int mode = 0; mode < 3; mode++) {
        cr_assert(zero(int, open_it(m, (enum kvf_open_mode)mode, &t)));
        expect_four(t);
        kvf_close(t);
    }
    cr_expect(zero(int, kvf_verify(as_file(m->p, m->n), 1, &c, NULL)));
    cr_expect(eq(u64, c.records, 4));
    m->p[FILE_HEADER + RECORD_HEADER] ^= 1; /* the run header: not counted then */
    cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 1, &c, NULL), KVF_E_CORRUPT));
    cr_expect(lt(u64, c.records, 4));
    cr_expect(ge(u64, c.bad, 1));
}

/* A chunk with this header is never read; the valid chunk after it is. */
static void bad_chunk(struct record r, const char *what)
{
    OWNED(free) struct maker *m = start();
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_check c;
    unsigned char payload[64] = {0};
    uint32_t got[4];
    put(m, r, payload, r.stored_len < sizeof payload ? r.stored_len : sizeof payload);
    put(m,
        (struct record){.type = REC_COLUMN, .n_heads = 1, .n = 4, .raw_len = 16, .stored_len = 16},
        stored_four, 16);
    commit(m, 1, 4);
    cr_expect(ne(int, open_it(m, KVF_OPEN_TAIL, &t), KVF_OK), "%s", what);
    cr_expect(ne(int, kvf_verify(as_file(m->p, m->n), 1, &c, NULL), KVF_OK), "%s", what);
    cr_assert(zero(int, open_it(m, KVF_OPEN_SALVAGE, &t)), "%s", what);
    int err = kvf_read(t, 0, 0, 0, 0, 4, got, NULL);
    cr_expect(zero(int, err), "%s", what);
    cr_expect(zero(int, memcmp(got, four, 16)), "%s", what);
}

Test(hostile, sizes_that_overflow_or_contradict)
{
    struct record r = column(4, 16, 16, CODEC_RAW);
    static const uint64_t huge[] = {17,         (16u << 20) + 1, 1ull << 32,
                                    1ull << 63, UINT64_MAX - 79, UINT64_MAX};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        r = column(4, huge[i], 16, CODEC_RAW);
        bad_chunk(r, "raw_len");
        r = column(4, 16, huge[i], CODEC_RAW);
        if (huge[i] > 64)
            bad_chunk(r, "stored_len");
    }
    r = column(UINT32_MAX, 16, 16, CODEC_RAW); /* n * 4 = 2^34 - 4, not 16 */
    bad_chunk(r, "n");
    r = column(1u << 30, 0, 16, CODEC_RAW); /* n * 4 = 2^32: 0 in 32 bits */
    bad_chunk(r, "n wraps");
    r = column(0, 0, 0, CODEC_RAW);
    bad_chunk(r, "n = 0");
    r = column(4, 16, 16, CODEC_RAW);
    r.t0 = UINT32_MAX - 3; /* t0 + n = 0 in 32 bits */
    bad_chunk(r, "t0 wraps");
    r.t0 = KVF_MAX_STEPS - 3;
    bad_chunk(r, "t0 + n over the limit");
    r = column(4, 16, 16, CODEC_RAW);
    r.head0 = KV;
    bad_chunk(r, "head0");
    r.head0 = 0;
    r.n_heads = 0;
    bad_chunk(r, "no heads");
    r.n_heads = KV + 1;
    r.raw_len = 48;
    bad_chunk(r, "more heads than there are");
    r.head0 = UINT16_MAX;
    r.n_heads = 1;
    r.raw_len = 16;
    bad_chunk(r, "head0 wraps");
    r = column(4, 16, 16, CODEC_RAW);
    r.layer = 1;
    bad_chunk(r, "layer");
    r.layer = 0;
    r.column = 1;
    bad_chunk(r, "column");
    r.column = UINT32_MAX;
    bad_chunk(r, "column wraps");
    r = column((16 << 20) / 4 + 1, (16 << 20) + 4, 4, CODEC_CONSTANT); /* only too large */
    bad_chunk(r, "one value more than a chunk may hold");
}

/* 64 heads * 2^24 values * 4 bytes = 2^32, which is 0 in 32 bits. */
Test(hostile, a_product_of_three_that_wraps)
{
    OWNED(free) struct maker *m = malloc(sizeof *m);
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    unsigned char s[128];
    uint32_t got[4];
    size_t n = plain_schema(s);
    put_le(s + 4, 64, 2);
    start_with(m, s, n);
    put(m, (struct record){.type = REC_COLUMN, .n_heads = 64, .n = KVF_MAX_STEPS}, "", 0);
    commit(m, 1, 4);
    cr_expect(eq(int, open_it(m, KVF_OPEN_TAIL, &t), KVF_E_CORRUPT));
    cr_assert(zero(int, open_it(m, KVF_OPEN_SALVAGE, &t)));
    cr_expect(eq(int, kvf_read(t, 0, 0, 0, 0, 4, got, NULL), KVF_E_NOTFOUND));
}

/* Reads the chunk itself and checks the error. */
static void expect_read(struct record r, const void *payload, size_t n, int want, const char *what)
{
    OWNED(free) struct maker *m = start();
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    struct kvf_check c;
    OWNED(free) uint32_t *got = calloc(r.n, 4);
    put(m, r, payload, n);
    commit(m, 1, r.n);
    cr_assert(zero(int, open_it(m, KVF_OPEN_TAIL, &t)), "%s", what);
    cr_expect(eq(int, kvf_read(t, 0, 0, 0, 0, r.n, got, &d), want), "%s: %s", what, d.text);
    cr_expect(want == KVF_OK || d.text[0], "%s: no sentence", what);
    cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 1, &c, NULL) == KVF_OK, want == KVF_OK), "%s",
              what);
}

Test(hostile, bombs_are_bounded)
{
    static unsigned char z[1 << 16];
    size_t most = 16 << 20;
    char *zeros = calloc(1, 2 * most);
    struct rusage u;
    uint32_t n = (uint32_t)(most / 4);

    /* The maximum size of a chunk, decoded from 4 bytes, is allowed. */
    expect_read(column(n, most, 4, CODEC_CONSTANT), stored_four, 4, KVF_OK, "constant");
    size_t k = ZSTD_compress(z, sizeof z, zeros, most, 1);
    expect_read(column(n, most, k, CODEC_SHUFFLE_ZSTD), z, k, KVF_OK, "zstd, the most allowed");
    k = ZSTD_compress(z, sizeof z, zeros, 2 * most, 1);
    expect_read(column(n, most, k, CODEC_SHUFFLE_ZSTD), z, k, KVF_E_CORRUPT,
                "frame of twice the size");
    /* Two frames; the first one has the correct size. */
    k = ZSTD_compress(z, sizeof z, zeros, 16, 1);
    size_t k2 = ZSTD_compress(z + k, sizeof z - k, zeros, most, 1);
    expect_read(column(4, 16, k + k2, CODEC_SHUFFLE_ZSTD), z, k + k2, KVF_E_CORRUPT, "two frames");
    /* A frame without its size. */
    ZSTD_CCtx *cctx = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag, 0);
    k = ZSTD_compress2(cctx, z, sizeof z, zeros, 16);
    ZSTD_freeCCtx(cctx);
    expect_read(column(4, 16, k, CODEC_SHUFFLE_ZSTD), z, k, KVF_E_CORRUPT, "unknown size");
    expect_read(column(4, 16, 16, CODEC_SHUFFLE_ZSTD), stored_four, 16, KVF_E_CORRUPT,
                "no zstd frame");
    expect_read(column(4, 16, 16, 3), stored_four, 16, KVF_E_VERSION, "unknown codec");
    expect_read(column(4, 16, 16, UINT32_MAX), stored_four, 16, KVF_E_VERSION, "unknown codec");
    expect_read(column(4, 16, 8, CODEC_RAW), stored_four, 8, KVF_E_CORRUPT, "short raw");
    free(zeros);
    getrusage(RUSAGE_SELF, &u);
    cr_expect(lt(long, u.ru_maxrss, 400 << 10), "%ld KiB", u.ru_maxrss); /* ASan doubles it */
}

/* ---- the index ---------------------------------------------------------- */

enum { CHUNK = 2 }; /* m->rec: 0 meta, 1 schema, 2 chunk, 3 second chunk, 4 commit */

static struct maker *two_chunks(void)
{
    static const unsigned char other[16] = {20, 0, 0, 0, 21, 0, 0, 0, 22, 0, 0, 0, 23};
    struct maker *m = start();
    struct record r = column(4, 16, 16, CODEC_RAW);
    put(m, r, stored_four, 16);
    r.head0 = 1;
    put(m, r, other, 16);
    commit(m, 1, 4);
    return m;
}

/* With this index no value may be wrong, and verify must report it. An index with records that do
 * not fill the file is ignored: the walk finds all records. */
static void bad_index(struct maker *m, struct record *list, size_t n, bool fills, const char *what)
{
    struct kvf_trace *t = NULL;
    struct kvf_check c;
    uint32_t got[4];
    finish(m, list, n);
    for (int mode = 0; mode < 3; mode++) {
        int err = open_it(m, (enum kvf_open_mode)mode, &t);
        cr_expect(mode != KVF_OPEN_STRICT || err == KVF_E_CORRUPT, "%s: strict", what);
        cr_expect(fills || err == KVF_OK || mode == KVF_OPEN_STRICT, "%s, mode %d", what, mode);
        if (err)
            continue;
        for (int h = 0; h < 2; h++) {
            int bad = kvf_read(t, 0, 0, h, 0, 4, got, NULL);
            cr_expect(fills || bad == KVF_OK, "%s, mode %d, head %d", what, mode, h);
            if (!bad)
                cr_expect(eq(u32, got[0], 10u + 10u * (unsigned)h), "%s, mode %d, head %d", what,
                          mode, h);
        }
        kvf_close(t);
    }
    cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 1, &c, NULL), KVF_E_CORRUPT), "%s", what);
    free(m);
}

static struct maker *listed(struct record *list, size_t *n)
{
    struct maker *m = two_chunks();
    memcpy(list, m->rec, m->n_rec * sizeof *list);
    *n = m->n_rec;
    qsort(list, *n, sizeof *list, record_compare);
    return m;
}

static size_t chunk_in(const struct record *list, size_t n, int head0)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].type == REC_COLUMN && list[i].head0 == head0)
            return i;
    cr_assert(false, "no chunk");
    return 0;
}

Test(hostile, an_index_that_lies)
{
    struct record l[8];
    size_t n;
    struct maker *m = listed(l, &n);
    size_t a = chunk_in(l, n, 0), b = chunk_in(l, n, 1);
#define CASE(what, ...)                                                                            \
    do {                                                                                           \
        m = listed(l, &n);                                                                         \
        __VA_ARGS__;                                                                               \
        bad_index(m, l, n, true, what);                                                            \
    } while (0)
    free(m);
    CASE("outside the file", l[a].offset = (uint64_t)1 << 40);
    CASE("offset wraps", l[a].offset = UINT64_MAX - 7);
    CASE("length wraps", l[a].stored_len = UINT64_MAX - 7);
    CASE("into the file header", l[a].offset = 0);
    CASE("off by 8", l[a].offset += 8);
    CASE("at each other", uint64_t o = l[a].offset; l[a].offset = l[b].offset; l[b].offset = o);
    CASE("both at one", l[b].offset = l[a].offset);
    CASE("one listed twice", l[b] = l[a]);
    CASE("at the index itself", l[a].offset = m->n);
    CASE("other head", l[a].head0 = 1);
    CASE("other start", l[a].t0 = 1);
    CASE("other codec", l[a].codec = CODEC_CONSTANT);
    CASE("more values", l[a].n = 8; l[a].raw_len = 32);
    CASE("a commit as chunk", l[a].type = REC_COMMIT);
    CASE("unsorted", struct record r = l[a]; l[a] = l[b]; l[b] = r);
#undef CASE
    m = listed(l, &n);
    l[a] = l[n - 1];
    bad_index(m, l, n - 1, false, "one missing");
    m = listed(l, &n);
    l[n++] = l[a];
    bad_index(m, l, n, false, "one too many");
    bad_index(two_chunks(), l, 0, false, "empty");
}

/* A footer with wrong data about a valid index: the walk finds all records before it. */
Test(hostile, a_footer_that_lies)
{
    static const struct {
        size_t at;
        uint64_t v;
    } lie[] = {{8, 0},         {8, 8},           {8, 64},
               {8, 65},        {8, UINT64_MAX},  {8, UINT64_MAX - 63},
               {16, 0},        {16, 4},          {16, 6},
               {16, 1u << 20}, {16, UINT64_MAX}, {16, UINT64_MAX / INDEX_ENTRY + 2},
               {24, 0},        {24, UINT64_MAX}, {32, 0}};
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
        struct record l[8];
        size_t n;
        OWNED(free) struct maker *m = listed(l, &n);
        struct kvf_trace *t;
        struct kvf_check c;
        finish(m, l, n);
        unsigned char *f = m->p + m->n - FOOTER;
        put_le(f + lie[i].at, lie[i].v, lie[i].at == 32 ? 4 : 8);
        put_le(f + 60, crc32c(0, f, 60), 4);
        int err = kvf_verify(as_file(m->p, m->n), 1, &c, NULL);
        cr_expect(err != KVF_OK || !c.clean, "lie %zu", i);
        cr_expect(eq(int, open_it(m, KVF_OPEN_STRICT, &t), KVF_E_CORRUPT), "lie %zu", i);
        err = open_it(m, KVF_OPEN_SALVAGE, &t);
        cr_assert(lie[i].at == 8 || err == KVF_OK, "lie %zu", i); /* at 8: end of the records */
        if (lie[i].at != 8)
            expect_four(t);
        kvf_close(err ? NULL : t);
    }
}

Test(hostile, thousands_of_entries_for_one_chunk)
{
    struct maker *m = two_chunks();
    static struct record l[4000];
    for (size_t i = 0; i < 4000; i++)
        l[i] = m->rec[i < 5 ? i : CHUNK];
    qsort(l, 4000, sizeof *l, record_compare);
    bad_index(m, l, 4000, false, "many");
}

/* ---- schema, tokens, commits, notes ------------------------------------- */

static void bad_schema(const unsigned char *s, size_t n, const char *what)
{
    OWNED(free) struct maker *m = malloc(sizeof *m);
    struct kvf_trace *t;
    struct kvf_check c;
    start_with(m, s, n);
    commit(m, 1, 4);
    for (int mode = 0; mode < 3; mode++)
        cr_expect(eq(int, open_it(m, (enum kvf_open_mode)mode, &t), KVF_E_CORRUPT), "%s", what);
    cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 1, &c, NULL), KVF_E_CORRUPT), "%s", what);
}

Test(hostile, schemas_that_cannot_be)
{
    unsigned char s[256];
    size_t n = plain_schema(s);
    for (size_t cut = 0; cut < n; cut++)
        bad_schema(s, cut, "cut");
    bad_schema(s, n + 1, "longer");
#define CASE(what, ...)                                                                            \
    do {                                                                                           \
        n = plain_schema(s);                                                                       \
        __VA_ARGS__;                                                                               \
        bad_schema(s, n, what);                                                                    \
    } while (0)
    CASE("layers", put_le(s, KVF_MAX_LAYERS + 1, 4));
    CASE("layers wrap", put_le(s, 0x40000001, 4));
    CASE("heads", put_le(s + 4, KVF_MAX_HEADS + 1, 2));
    CASE("query heads", put_le(s + 6, KVF_MAX_HEADS + 1, 2));
    CASE("columns", put_le(s + 8, 4097, 4));
    CASE("columns wrap", put_le(s + 8, UINT32_MAX, 4));
    CASE("name without end", memset(s + 12, 'x', 48));
    CASE("unit without end", memset(s + 12 + 52, 'x', 16));
    CASE("dtype 0", s[12 + 48] = 0);
    CASE("dtype 8", s[12 + 48] = 8);
    CASE("space", s[12 + 49] = 3);
    CASE("axis", s[12 + 50] = 2);
#undef CASE
}

Test(hostile, texts_with_impossible_ends)
{
    static const uint32_t ends[][3] = {{2, 1, 3}, {0, 0, UINT32_MAX}, {1, 2, 4}};
    for (size_t i = 0; i < 3; i++) {
        OWNED(free) struct maker *m = start();
        unsigned char p[15] = {0};
        size_t len;
        for (int k = 0; k < 3; k++)
            put_le(p + 4 * k, ends[i][k], 4);
        put(m, (struct record){.type = REC_TOKENS, .n = 3, .raw_len = 15, .stored_len = 15}, p, 15);
        put(m,
            (struct record){
                .type = REC_TOKENS, .t0 = 3, .n = UINT32_MAX, .raw_len = 15, .stored_len = 15},
            p, 15);
        put(m,
            (struct record){
                .type = REC_TOKENS, .t0 = 1 << 24, .n = 1, .raw_len = 4, .stored_len = 4},
            "\0\0\0", 4);
        put(m, (struct record){.type = REC_TOKENS, .t0 = 9, .n = 1, .raw_len = 6, .stored_len = 6},
            "\2\0\0\0ok", 6);
        OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
        for (uint32_t k = 0; k < 9; k++)
            cr_expect(eq(ptr, (void *)(size_t)kvf_token(t, k, &len), NULL));
        cr_expect(eq(ptr, (void *)(size_t)kvf_token(t, 1 << 24, &len), NULL));
        const char *ok = kvf_token(t, 9, &len);
        cr_assert(ok && len == 2 && memcmp(ok, "ok", 2) == 0);
    }
}

Test(hostile, commits_and_notes_that_cannot_be)
{
    OWNED(free) struct maker *m = start();
    commit(m, 1, 4);
    commit(m, 2, KVF_MAX_STEPS + 1);
    put(m, (struct record){.type = REC_COMMIT, .epoch = 3, .raw_len = 4, .stored_len = 4}, "\3\0\0",
        4);
    put(m, (struct record){.type = REC_COMMIT, .epoch = 9, .raw_len = 8, .stored_len = 8},
        "\4\0\0\0\4\0\0", 8);
    put(m, (struct record){.type = REC_NOTE, .raw_len = 3, .stored_len = 3}, "key", 3); /* no NUL */
    put(m, (struct record){.type = REC_NOTE, .raw_len = 4, .stored_len = 4}, "a\0{}", 4);
    put(m, (struct record){.type = REC_NOTE, .raw_len = 4, .stored_len = 4}, "b\0{}", 4);
    struct kvf_check c;
    cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 0, &c, NULL), KVF_E_CORRUPT));
    cr_expect(eq(u64, c.bad, 4));
    cr_expect(eq(u64, c.records, 5)); /* run header, schema, one commit, two notes */
    OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
    cr_expect(eq(u32, kvf_epoch(t), 1));
    cr_expect(eq(u32, kvf_n_steps(t), 4));
    cr_expect(eq(ptr, (void *)(size_t)kvf_note(t, "key"), NULL));
}

Test(hostile, a_trace_inside_a_note_is_not_found_by_salvage)
{
    OWNED(free) struct maker *m = start(), *inner = start();
    static const uint32_t wrong[4] = {66, 66, 66, 66};
    put(inner, column(4, 16, 16, CODEC_RAW), wrong, 16);
    commit(inner, 7, 4);
    put(m, (struct record){.type = REC_NOTE, .raw_len = inner->n, .stored_len = inner->n}, inner->p,
        inner->n);
    size_t broken = m->rec[m->n_rec - 1].offset;
    put(m, column(4, 16, 16, CODEC_RAW), stored_four, 16);
    commit(m, 1, 4);
    m->p[broken + 20] ^= 1; /* the reader now walks through its payload */
    OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
    cr_expect(eq(u32, kvf_epoch(t), 1));
    expect_four(t);
}

/* ---- versions ------------------------------------------------------------ */

static int with_header(size_t at, uint64_t v, int n)
{
    OWNED(free) struct maker *m = start();
    struct kvf_trace *t = NULL;
    unsigned char s[128];
    put_le(m->p + at, v, n);
    put_le(m->p + 60, crc32c(0, m->p, 60), 4);
    start_records(m, s, plain_schema(s));
    put(m, column(4, 16, 16, CODEC_RAW), stored_four, 16);
    commit(m, 1, 4);
    int err = open_it(m, KVF_OPEN_TAIL, &t);
    if (!err)
        expect_four(t);
    kvf_close(t);
    int salvaged = open_it(m, KVF_OPEN_SALVAGE, &t); /* skips the damaged header */
    cr_expect(eq(int, salvaged, err == KVF_E_CORRUPT ? KVF_OK : err));
    kvf_close(salvaged ? NULL : t);
    return err;
}

Test(hostile, versions_and_features)
{
    cr_expect(eq(int, with_header(8, 2, 2), KVF_E_VERSION)); /* major */
    cr_expect(eq(int, with_header(8, 0, 2), KVF_E_VERSION));
    cr_expect(zero(int, with_header(10, 9, 2)));              /* minor: additions only */
    cr_expect(eq(int, with_header(16, 3, 4), KVF_E_VERSION)); /* incompatible feature */
    cr_expect(eq(int, with_header(16, 1u << 31 | 1, 4), KVF_E_VERSION));
    cr_expect(zero(int, with_header(20, 1, 4)));  /* a feature that concerns only writers */
    cr_expect(zero(int, with_header(40, 77, 8))); /* another run with this salt */
    cr_expect(eq(int, with_header(32, SALT + 1, 8), KVF_E_CORRUPT)); /* the salt of another run */
    cr_expect(zero(int, with_header(24, 1, 4)));                     /* compatible */
}

Test(hostile, unknown_records_are_skipped_unless_critical)
{
    for (int critical = 0; critical < 2; critical++)
        for (int closed = 0; closed < 2; closed++) {
            OWNED(free) struct maker *m = start();
            struct kvf_trace *t;
            put(m,
                (struct record){.type = 77,
                                .flags = critical ? REC_CRITICAL : 0,
                                .raw_len = 3,
                                .stored_len = 3},
                "new", 3);
            put(m, column(4, 16, 16, CODEC_RAW), stored_four, 16);
            commit(m, 1, 4);
            if (closed) {
                qsort(m->rec, m->n_rec, sizeof *m->rec, record_compare);
                finish(m, m->rec, m->n_rec);
            }
            for (int mode = 0; mode < 3; mode += 2) {
                int err = open_it(m, (enum kvf_open_mode)mode, &t);
                cr_expect(eq(int, err, critical ? KVF_E_VERSION : KVF_OK));
                if (!err) {
                    char digest[33];
                    expect_four(t);
                    cr_expect(eq(int, kvf_digest(t, digest, NULL),
                                 closed ? KVF_E_VERSION : KVF_E_NOTFOUND));
                    kvf_close(t);
                }
            }
            struct kvf_check c;
            int err = kvf_verify(as_file(m->p, m->n), 1, &c, NULL);
            cr_expect(eq(int, err, critical ? KVF_E_VERSION : KVF_OK),
                      "no digest is asked of records that are not known");
        }
}

/* Checks a record with a number that is not above that of the previous record. */
static void number_again(uint64_t seq)
{
    OWNED(free) struct maker *m = start();
    struct kvf_check c;
    m->seq = 9;
    put(m, column(4, 16, 16, CODEC_RAW), stored_four, 16);
    m->seq = seq;
    put(m, column(4, 16, 16, CODEC_RAW), (const uint32_t[4]){1, 2, 3, 4}, 16);
    m->seq = 10;
    commit(m, 1, 4);
    cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 0, &c, NULL), KVF_E_CORRUPT));
    OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
    expect_four(t);
}

Test(hostile, record_numbers_that_do_not_rise_are_damage)
{
    number_again(5);
    number_again(9);
}

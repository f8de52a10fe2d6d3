/* test_digest.c - the digest depends only on the contents, not on chunks, heads per chunk, order,
 * or superseded snapshots. Every difference in the contents changes it. */
#include "tests/format/opened.h"

enum { N = 5000, HEADS = 2, WIDEST = 8 };

static unsigned char values[HEADS][N * WIDEST];

/* The contents to write, and how to write them. */
struct content {
    struct kvf_column column;
    uint64_t seed;      /* seed of the chunk boundaries; 0: one chunk per head */
    uint32_t n;         /* values per head */
    bool twice;         /* after an earlier snapshot with half of the values */
    const char *result; /* the last note */
};

static int put(struct kvf_writer *w, const struct content *c, int head, uint32_t t0, uint32_t n,
               uint32_t epoch)
{
    size_t width = kvf_dtype_size((enum kvf_dtype)c->column.dtype);
    return kvf_write_chunk(w, 0, 0, head, 1, t0, n, epoch, values[head] + t0 * width);
}

/* Writes heads one after the other, each in chunks of 1 to 700 values, the later half first. */
static void put_in_pieces(struct kvf_writer *w, const struct content *c, uint32_t n, uint32_t epoch)
{
    struct rng rng = rng_seeded(c->seed);
    for (int half = 1; half >= 0; half--)
        for (int h = HEADS - 1; h >= 0; h--) {
            uint32_t at = half ? n / 2 : 0, end = half ? n : n / 2;
            while (at < end) {
                uint32_t k = 1 + (uint32_t)rng_below(&rng, 700);
                k = k < end - at ? k : end - at;
                cr_assert(zero(int, put(w, c, h, at, k, epoch)));
                at += k;
            }
        }
}

static void put_all(struct kvf_writer *w, const struct content *c, uint32_t n, uint32_t epoch)
{
    if (c->seed)
        put_in_pieces(w, c, n, epoch);
    for (int h = 0; h < HEADS && !c->seed; h++)
        cr_assert(zero(int, put(w, c, h, 0, n, epoch)));
}

/* Returns the digest. The computed and the stored digest must be equal. */
static void digest_of(const struct content *c, char ret[33])
{
    const uint16_t heads = HEADS;
    const struct kvf_shape shape = {1, &heads, &heads};
    const char *path = scratch_path("digest.kvf");
    struct kvf_writer *w;
    struct kvf_check check;
    char stored[33];
    bool snapshot = c->column.flags & KVF_COL_SNAPSHOT;
    uint32_t epoch = 1;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &c->column, 1, NULL, &w, NULL)));
    if (c->twice) {
        put_all(w, c, c->n / 2, epoch);
        cr_assert(zero(int, kvf_writer_commit(w, epoch++, c->n / 2)));
        cr_assert(zero(int, kvf_writer_note(w, "result", "{\"early\":1}")));
    }
    put_all(w, c, c->n, snapshot ? epoch : 0);
    cr_assert(zero(int, kvf_writer_commit(w, epoch, c->n)));
    cr_assert(zero(int, kvf_writer_note(w, "result", c->result)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    cr_assert(zero(int, kvf_verify(path, 1, &check, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_assert(zero(int, kvf_digest(t, ret, NULL)));
    cr_assert(zero(int, kvf_stored_digest(t, stored)));
    cr_expect(zero(int, strcmp(ret, stored)));
    kvf_close(t);
    unlink(path);
}

static void same(const struct content *c, const char *want, const char *what)
{
    char got[33];
    digest_of(c, got);
    cr_expect(zero(int, strcmp(got, want)), "%s, dtype %d", what, c->column.dtype);
}

static void other(const struct content *c, const char *want, const char *what)
{
    char got[33];
    digest_of(c, got);
    cr_expect(ne(int, strcmp(got, want), 0), "%s, dtype %d", what, c->column.dtype);
}

static void swap_heads(void)
{
    static unsigned char kept[N * WIDEST];
    memcpy(kept, values[0], sizeof kept);
    memcpy(values[0], values[1], sizeof kept);
    memcpy(values[1], kept, sizeof kept);
}

static void check_dtype(enum kvf_dtype dtype, struct rng *rng)
{
    struct content c = {{"x-x", 0, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""}, 0, N, false, "{}"};
    c.column.dtype = (uint8_t)dtype;
    char want[33];
    size_t bits = 8 * N * kvf_dtype_size(dtype);
    digest_of(&c, want);
    for (c.seed = 1; c.seed < 4; c.seed++)
        same(&c, want, "chunks");
    for (int k = 0; k < 20; k++) {
        size_t bit = rng_below(rng, bits);
        unsigned char *p = &values[k % HEADS][bit / 8];
        *p ^= (unsigned char)(1 << bit % 8);
        other(&c, want, "a bit");
        *p ^= (unsigned char)(1 << bit % 8);
    }
    swap_heads();
    other(&c, want, "heads");
    swap_heads();
    c.n--;
    other(&c, want, "one value less");
    c.n++;
    c.result = "{ }";
    other(&c, want, "note");
    c.result = "{}";
    strcpy(c.column.name, "x-y");
    other(&c, want, "name");
    strcpy(c.column.name, "x-x");
    strcpy(c.column.unit, "nat");
    other(&c, want, "unit");
    strcpy(c.column.unit, "");
    c.column.flags = KVF_COL_SNAPSHOT;
    other(&c, want, "flags");
    digest_of(&c, want);
    c.twice = true;
    c.seed = 7;
    same(&c, want, "a superseded snapshot and note");
}

Test(digest, is_of_the_content_alone, .timeout = 100)
{
    struct rng rng = rng_seeded(5);
    for (size_t i = 0; i < sizeof values; i++)
        (&values[0][0])[i] = (unsigned char)rng_next(&rng);
    for (int dtype = KVF_U8; dtype <= KVF_U64; dtype++)
        check_dtype((enum kvf_dtype)dtype, &rng);
}

/* Zeros are values: their number counts. */
Test(digest, zeros_are_not_nothing)
{
    struct content c = {{"x-x", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""}, 0, N, false, "{}"};
    char want[33];
    memset(values, 0, sizeof values);
    digest_of(&c, want);
    c.seed = 3;
    same(&c, want, "zeros in chunks");
    c.n--;
    other(&c, want, "a zero less");
    c.n++;
    values[1][4 * N - 1] = 0x80;
    other(&c, want, "minus zero");
}

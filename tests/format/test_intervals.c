/* test_intervals.c - lists of intervals compared with plain arrays: valid lists read back equal,
 * and invalid ones are rejected when written and when read. */
#include "maker.h"

enum { HEADS = 3, STEPS = 2000 };

static const struct kvf_column seen = {
    "seen", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_INTERVALS, "step"};
static const uint16_t heads = HEADS;
static const struct kvf_shape shape = {1, &heads, &heads};

/* Lists of T tokens of each head. The intervals of (h, i) begin at interval[end[h * T + i - 1]]. */
struct lists {
    uint32_t T, *end;
    struct kvf_interval *interval;
};

/* Draws at random in which steps each token is seen. Consecutive steps form an interval. */
static struct lists draw(uint32_t T, unsigned rarity, uint64_t seed)
{
    struct lists l = {T, calloc(HEADS * T + 1, 4), malloc(HEADS * (size_t)T * (T + 2) * 2)};
    uint32_t count = 0;
    struct rng rng = rng_seeded(seed);
    cr_assert(ne(ptr, l.end, NULL));
    cr_assert(ne(ptr, l.interval, NULL));
    for (uint32_t k = 0; k < HEADS * T; k++) {
        bool before = false;
        for (uint32_t t = k % T; t < T; t++) {
            bool now = rng_below(&rng, rarity) == 0;
            if (now && !before)
                l.interval[count++].first = t;
            if (now)
                l.interval[count - 1].last = t;
            before = now;
        }
        l.end[k] = count;
    }
    return l;
}

static void release(struct lists *l)
{
    free(l->end);
    free(l->interval);
}

static struct kvf_writer *begin(const char *path, const struct kvf_column *c)
{
    struct kvf_writer *w = NULL;
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, c, 1, &o, &w, NULL)));
    return w;
}

/* Writes heads [head0, head0 + n_heads) at [t0, t0 + n) in a separate call. */
static int put_some(struct kvf_writer *w, const struct lists *l, int head0, int n_heads,
                    uint32_t t0, uint32_t n)
{
    uint32_t *end = malloc(4 * (size_t)n_heads * n + 4), count = 0;
    OWNED(free) struct kvf_interval *v = malloc((size_t)l->end[HEADS * l->T - 1] * sizeof *v + 1);
    for (int h = 0; h < n_heads; h++)
        for (uint32_t i = 0; i < n; i++) {
            size_t k = (size_t)(head0 + h) * l->T + t0 + i;
            for (uint32_t j = k ? l->end[k - 1] : 0; j < l->end[k]; j++)
                v[count++] = l->interval[j];
            end[(size_t)h * n + i] = count;
        }
    int err = kvf_write_intervals(w, 0, 0, head0, n_heads, t0, n, 1, end, v);
    free(end);
    return err;
}

static void finish_file(struct kvf_writer *w, uint32_t T)
{
    cr_assert(zero(int, kvf_writer_commit(w, 1, T)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
}

/* Checks that lists [t0, t0 + n) of a head are the drawn ones. */
static void expect_lists(struct kvf_trace *t, const struct lists *l, int head, uint32_t t0,
                         uint32_t n)
{
    const struct kvf_interval *got = NULL;
    OWNED(free) uint32_t *end = malloc(4 * (size_t)n + 4);
    succeeds(kvf_read_intervals(t, 0, 0, head, t0, n, end, &got, &d));
    size_t k = (size_t)head * l->T + t0;
    uint32_t base = k ? l->end[k - 1] : 0;
    for (uint32_t i = 0; i < n; i++)
        cr_assert(eq(u32, end[i], l->end[k + i] - base), "head %d, token %u", head, t0 + i);
    cr_expect(zero(int, memcmp(got, l->interval + base, end[n - 1] * sizeof *got)));
}

static void expect_all(const char *path, const struct lists *l, uint64_t seed)
{
    struct kvf_check c;
    struct rng rng = rng_seeded(seed);
    succeeds(kvf_verify(path, 1, &c, &d));
    OWNED(kvf_close) struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    for (int h = 0; h < HEADS; h++)
        expect_lists(t, l, h, 0, l->T);
    for (int k = 0; k < 200; k++) {
        uint32_t t0 = (uint32_t)rng_below(&rng, l->T);
        expect_lists(t, l, k % HEADS, t0, 1 + (uint32_t)rng_below(&rng, l->T - t0));
    }
}

static void digest_in(const char *path, char ret[33])
{
    OWNED(kvf_close) struct kvf_trace *t = opened(path, KVF_OPEN_TAIL);
    cr_assert(zero(int, kvf_digest(t, ret, NULL)));
}

/* Writes all lists in one call, which the library splits if there are many, and in calls of random
 * size. Both must have the same digest. */
Test(intervals, any_lists_come_back_however_they_are_cut, .timeout = 100)
{
    const unsigned rarity[] = {1, 2, 30, 100000}; /* always; half; rarely; hardly ever */
    const char *path = scratch_path("intervals.kvf");
    for (size_t r = 0; r < sizeof rarity / sizeof *rarity; r++) {
        SCOPED(release) struct lists l = draw(r == 1 ? 400 : STEPS, rarity[r], r);
        char whole[33], pieces[33];
        struct kvf_writer *w = begin(path, &seen);
        cr_assert(zero(int, put_some(w, &l, 0, HEADS, 0, l.T)));
        finish_file(w, l.T);
        expect_all(path, &l, r);
        digest_in(path, whole);
        struct rng rng = rng_seeded(r);
        w = begin(path, &seen);
        for (uint32_t at = 0, n; at < l.T; at += n) {
            n = 1 + (uint32_t)rng_below(&rng, 150);
            n = n < l.T - at ? n : l.T - at;
            int cut = (int)rng_below(&rng, HEADS); /* two groups of heads that change */
            if (cut)
                cr_assert(zero(int, put_some(w, &l, 0, cut, at, n)));
            cr_assert(zero(int, put_some(w, &l, cut, HEADS - cut, at, n)));
        }
        finish_file(w, l.T);
        expect_all(path, &l, r);
        digest_in(path, pieces);
        cr_expect(zero(int, strcmp(whole, pieces)), "rarity %u", rarity[r]);
        if (rarity[r] == 1) { /* one step less */
            l.interval[l.end[0] - 1].last--;
            w = begin(path, &seen);
            cr_assert(zero(int, put_some(w, &l, 0, HEADS, 0, l.T)));
            finish_file(w, l.T);
            digest_in(path, pieces);
            cr_expect(ne(int, strcmp(whole, pieces), 0));
        }
    }
    unlink(path);
}

/* A list of token 3, and the messages of the writer and the reader for invalid ones. */
struct wrong {
    const char *what;
    struct kvf_interval v[3];
    uint32_t n;
    bool good;
};
static const struct wrong wrongs[] = {
    {"from its own step on, with one step between", {{3, 5}, {7, 7}, {9, 9}}, 3, true},
    {"none", {{0, 0}}, 0, true},
    {"before its own step", {{2, 5}}, 1, false},
    {"first after last", {{5, 4}}, 1, false},
    {"touching", {{3, 5}, {6, 7}}, 2, false},
    {"overlapping", {{3, 5}, {5, 7}}, 2, false},
    {"falling", {{7, 7}, {3, 4}}, 2, false},
    {"twice", {{4, 4}, {4, 4}}, 2, false},
    {"a step that is not in the trace", {{3, 10}}, 1, false},
    {"beyond all steps", {{3, 4}, {6, UINT32_MAX}}, 2, false},
    {"a sum that wraps", {{3, UINT32_MAX - 1}, {3, 4}}, 2, false},
};

Test(intervals, the_writer_refuses_what_cannot_be_and_stays_usable)
{
    const char *path = scratch_path("intervals-refused.kvf");
    for (size_t k = 0; k < sizeof wrongs / sizeof *wrongs; k++) {
        const struct wrong *x = &wrongs[k];
        struct kvf_writer *w = begin(path, &seen);
        int err = kvf_write_intervals(w, 0, 0, 0, 1, 3, 1, 1, &x->n, x->v);
        if (!err)
            err = kvf_writer_commit(w, 1, 10);
        cr_expect(eq(int, err == KVF_OK, x->good), "%s", x->what);
        cr_expect(eq(int, err, x->good ? KVF_OK : KVF_E_ARG), "%s", x->what);
        if (err)
            cr_expect(zero(int, kvf_writer_commit(w, 1, 11)), "%s", x->what);
        cr_expect(zero(int, kvf_writer_close(w, NULL)));
    }
    unlink(path);
}

Test(intervals, the_writer_refuses_wrong_places)
{
    const char *path = scratch_path("intervals-places.kvf");
    const uint32_t falls[] = {1, 0}, one = 1;
    const struct kvf_interval v = {5, 5};
    struct kvf_writer *w = begin(path, &seen);
    cr_expect(eq(int, kvf_write_intervals(w, 0, 0, 0, 1, 0, 2, 1, falls, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_intervals(w, 1, 0, 0, 1, 0, 1, 1, &one, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_intervals(w, -1, 0, 0, 1, 0, 1, 1, &one, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_intervals(w, 0, 1, 0, 1, 0, 1, 1, &one, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_intervals(w, 0, 0, HEADS, 1, 0, 1, 1, &one, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_intervals(w, 0, 0, 0, 0, 0, 1, 1, &one, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_intervals(w, 0, 0, 0, 1, 0, 1, 0, &one, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_intervals(w, 0, 0, 0, 1, 0, 1, 2, &one, &v), KVF_E_ARG));
    cr_expect(
        eq(int, kvf_write_intervals(w, 0, 0, 0, 1, KVF_MAX_STEPS, 1, 1, &one, &v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 1, 1, &one), KVF_E_ARG));
    cr_expect(zero(int, kvf_write_intervals(w, 0, 0, 0, 1, 0, 0, 1, &one, &v)));
    cr_expect(zero(int, kvf_write_intervals(w, 0, 0, 0, 1, 0, 1, 1, &one, &v)));
    cr_expect(zero(int, kvf_writer_commit(w, 1, 6)));
    cr_expect(zero(int, kvf_writer_commit(w, 2, 3)), "what the next one needs begins anew");
    cr_expect(zero(int, kvf_writer_close(w, NULL)));
    unlink(path);
}

/* Writes n intervals of token 0, in every second step. */
static int write_many(const char *path, uint32_t n)
{
    struct kvf_interval *v = malloc(n * sizeof *v);
    struct kvf_writer *w = begin(path, &seen);
    for (uint32_t i = 0; i < n; i++)
        v[i] = (struct kvf_interval){2 * i, 2 * i};
    const uint32_t end[HEADS] = {n, n, n}; /* too much for one record of all heads */
    int err = kvf_write_intervals(w, 0, 0, 0, HEADS, 0, 1, 1, end, v);
    free(v);
    finish_file(w, 2 * n);
    return err;
}

Test(intervals, as_many_of_one_token_as_the_limit)
{
    const char *path = scratch_path("intervals-many.kvf");
    const struct kvf_interval *v = NULL;
    uint32_t end;
    cr_expect(eq(int, write_many(path, KVF_MAX_INTERVALS + 1), KVF_E_LIMIT));
    cr_assert(zero(int, write_many(path, KVF_MAX_INTERVALS)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_assert(zero(int, kvf_read_intervals(t, 0, 0, 0, 0, 1, &end, &v, NULL)));
    cr_expect(eq(u32, end, KVF_MAX_INTERVALS));
    cr_expect(eq(u32, v[end - 1].last, 2 * (KVF_MAX_INTERVALS - 1)));
    cr_assert(zero(int, kvf_read_intervals(t, 0, 0, 1, 0, 1, &end, &v, NULL)));
    cr_expect(zero(u32, end));
    kvf_close(t);
    unlink(path);
}

/* Columns with properties that conflict with the flag. */
Test(intervals, columns_that_cannot_hold_intervals_are_refused)
{
    const char *path = scratch_path("intervals-column.kvf");
    struct kvf_column c[4] = {seen, seen, seen, seen};
    c[0].dtype = KVF_I32;
    c[1].axis = KVF_AXIS_STEP;
    c[2].flags = KVF_COL_INTERVALS;
    c[3].flags |= KVF_COL_AGE;
    for (int k = 0; k < 4; k++) {
        struct kvf_writer *w = NULL;
        struct kvf_trace *t = NULL;
        struct kvf_diag d = {""};
        unsigned char s[128];
        size_t n = plain_schema(s);
        cr_expect(eq(int, kvf_writer_open(path, "{}", &shape, &c[k], 1, NULL, &w, &d), KVF_E_ARG));
        cr_expect(ne(chr, d.text[0], 0));
        const unsigned char kind[4] = {c[k].dtype, c[k].space, c[k].axis, c[k].flags};
        memcpy(s + 12 + 48, kind, 4);
        OWNED(free) struct maker *m = malloc(sizeof *m);
        start_with(m, s, n);
        commit(m, 1, 4);
        cr_expect(eq(int, open_it(m, KVF_OPEN_TAIL, &t), KVF_E_CORRUPT), "column %d", k);
    }
}

/* Makes a trace of ten steps with this payload as the list of token 3, and a valid record after
 * it. */
static struct maker *make(const void *payload, size_t n, uint32_t count)
{
    static const unsigned char none[8] = {0}; /* two tokens without intervals */
    struct maker *m = malloc(sizeof *m);
    unsigned char s[128];
    size_t length = plain_schema(s);
    s[12 + 51] = KVF_COL_SNAPSHOT | KVF_COL_INTERVALS;
    start_with(m, s, length);
    struct record r = {.type = REC_INTERVALS,
                       .n_heads = 1,
                       .t0 = 3,
                       .n = count,
                       .epoch = 1,
                       .raw_len = n,
                       .stored_len = n};
    put(m, r, payload, n);
    r.head0 = 1;
    r.n = 2;
    r.raw_len = r.stored_len = sizeof none;
    put(m, r, none, sizeof none);
    commit(m, 1, 10);
    qsort(m->rec, m->n_rec, sizeof *m->rec, record_compare);
    finish(m, m->rec, m->n_rec);
    return m;
}

/* Checks that the reader rejects the list and verify reports it, or accepts it (good). The second
 * record must be readable. */
static void expect_judged(struct maker *m, bool good, const char *what)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_check c;
    const struct kvf_interval *v = NULL;
    uint32_t end[2] = {9, 9};
    struct kvf_diag d = {""};
    int err = kvf_verify(as_file(m->p, m->n), 1, &c, &d);
    cr_expect(eq(int, err, good ? KVF_OK : KVF_E_CORRUPT), "%s", what);
    cr_expect(eq(ptr, strstr(d.text, "digest"), NULL), "%s: only the digest tells", what);
    cr_assert(zero(int, open_it(m, good ? KVF_OPEN_STRICT : KVF_OPEN_SALVAGE, &t)), "%s", what);
    err = kvf_read_intervals(t, 0, 0, 0, 3, 1, end, &v, NULL);
    cr_expect(eq(int, err == KVF_OK, good), "%s", what);
    cr_expect(eq(int, v != NULL, good), "%s", what);
    cr_expect(zero(int, kvf_read_intervals(t, 0, 0, 1, 3, 2, end, &v, NULL)), "%s", what);
    cr_expect(zero(u32, end[0] + end[1]));
    free(m);
}

/* Makes it from numbers in the byte order of this machine. */
static struct maker *make_of(const uint32_t *v, size_t bytes, uint32_t n)
{
    unsigned char p[64];
    copy_le(p, v, bytes / sizeof *v, sizeof *v);
    return make(p, bytes, n);
}

Test(intervals, the_reader_judges_what_right_checksums_hide)
{
    unsigned char p[64];
    for (size_t k = 0; k < sizeof wrongs / sizeof *wrongs; k++) {
        const struct wrong *x = &wrongs[k];
        put_le(p, x->n, 4);
        copy_le(p + 4, x->v, 2 * x->n, 4);
        expect_judged(make(p, 4 + x->n * sizeof *x->v, 1), x->good, x->what);
    }
    static const uint32_t more[] = {2, 5, 5}, less[] = {0, 5, 5}, falls[] = {1, 0, 5, 5},
                          half[] = {1, 5, 5, 7}, none[] = {UINT32_MAX, 5, 5};
    expect_judged(make_of(more, sizeof more, 1), false, "an end behind all intervals");
    expect_judged(make_of(none, sizeof none, 1), false, "an end far behind");
    expect_judged(make_of(less, sizeof less, 1), false, "intervals that no list holds");
    expect_judged(make_of(falls, sizeof falls, 2), false, "ends that fall");
    expect_judged(make_of(half, sizeof half, 1), false, "an interval and a half");
    expect_judged(make_of(more, 4, 2), false, "fewer bytes than ends");
}

/* Values in an interval column, intervals in a value column, and reading each as the other kind. */
Test(intervals, records_and_columns_of_another_kind)
{
    struct maker *m = make("\1\0\0\0\5\0\0\0\5\0\0\0", 12, 1);
    const struct kvf_interval *v = NULL;
    const void *view;
    uint32_t end;
    double wide;
    struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_TAIL);
    cr_expect(eq(int, kvf_read(t, 0, 0, 0, 3, 1, &end, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_view(t, 0, 0, 0, 3, 1, &view, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read_f64(t, 0, 0, 0, 3, 1, &wide, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read_intervals(t, 0, 0, KV, 3, 1, &end, &v, NULL), KVF_E_ARG));
    cr_expect(eq(int, kvf_read_intervals(t, 0, 0, 0, 2, 2, &end, &v, NULL), KVF_E_NOTFOUND));
    cr_expect(zero(int, kvf_read_intervals(t, 0, 0, 0, 3, 0, &end, &v, NULL)));
    cr_expect(zero(int, kvf_read_intervals(t, 0, 0, 0, 3, 1, &end, &v, NULL)));
    cr_expect(eq(u32, v[0].first, 5));
    kvf_close(t);
    free(m);
    for (int kind = 0; kind < 2; kind++) {
        struct kvf_check c;
        unsigned char s[128];
        size_t n = plain_schema(s);
        s[12 + 51] = kind ? KVF_COL_SNAPSHOT | KVF_COL_INTERVALS : KVF_COL_SNAPSHOT;
        m = malloc(sizeof *m);
        start_with(m, s, n);
        put(m,
            (struct record){.type = kind ? REC_COLUMN : REC_INTERVALS,
                            .n_heads = 1,
                            .n = 4,
                            .epoch = 1,
                            .raw_len = 16,
                            .stored_len = 16},
            (const uint32_t[4]){0}, 16);
        commit(m, 1, 4);
        cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 0, &c, NULL), KVF_E_CORRUPT));
        cr_expect(eq(int, open_it(m, KVF_OPEN_TAIL, &t), KVF_E_CORRUPT));
        free(m);
    }
}

/* The newest lists of an unclosed trace come from its tail. */
Test(intervals, are_read_from_a_tail)
{
    const char *path = scratch_path("intervals-tail.kvf");
    SCOPED(release) struct lists l = draw(50, 3, 1);
    struct kvf_writer *w = begin(path, &seen), *tail = NULL;
    cr_assert(zero(int, kvf_writer_open_tail(w, &tail, NULL)));
    cr_assert(zero(int, put_some(tail, &l, 0, HEADS, 0, l.T)));
    finish_file(tail, l.T);
    kvf_writer_sync(w);
    struct kvf_trace *t = opened(path, KVF_OPEN_TAIL);
    for (int h = 0; h < HEADS; h++)
        expect_lists(t, &l, h, 0, l.T);
    kvf_close(t);
    finish_file(w, 0);
    unlink(path);
}

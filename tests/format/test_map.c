/* test_map.c - a mapped trace gives the same contents as one that is read, and uncompressed data
 * without a copy. */
#include <sys/wait.h>

#include "libtrace/layout.h"
#include "tests/format/opened.h"

static struct kvf_trace *map_or_die(const char *path)
{
    struct kvf_trace *t = NULL;
    succeeds(kvf_open_mapped(path, KVF_OPEN_TAIL, &t, &d));
    return t;
}

Test(map, the_tiny_trace_is_the_same)
{
    const char *path = scratch_path("map.kvf");
    char read_digest[33], digest[33];
    cr_assert(zero(int, tiny_create(path)));
    struct kvf_trace *t = map_or_die(path), *shared = NULL, *r = NULL;
    cr_assert(zero(int, kvf_open(path, KVF_OPEN_TAIL, &r, NULL)));
    cr_assert(zero(int, kvf_share(t, &shared)));
    for (int again = 0; again < 2; again++) {
        struct tiny_seen s = tiny_compare(again ? shared : t);
        cr_expect(s.complete && !s.wrong);
    }
    cr_assert(zero(int, kvf_digest(t, digest, NULL)));
    cr_assert(zero(int, kvf_digest(r, read_digest, NULL)));
    cr_expect(zero(int, strcmp(digest, read_digest)));
    kvf_close(shared);
    kvf_close(t);
    kvf_close(r);
    unlink(path);
}

Test(map, an_unfinished_trace_is_read_instead)
{
    const char *path = scratch_path("map-unfinished.kvf");
    char part[300];
    struct kvf_writer *w = NULL;
    snprintf(part, sizeof part, "%s.unfinished", path);
    cr_assert(zero(int, tiny_open(path, &w, NULL)));
    cr_assert(zero(int, tiny_write(w, 1)));
    struct kvf_trace *t = map_or_die(path);
    cr_assert(zero(int, truncate(part, 0))); /* if mapped, this would end the process */
    struct tiny_seen s = tiny_compare(t);
    cr_expect(s.heads == 0 && s.lost > 0);
    kvf_close(t);
    kvf_writer_abandon(w);
    unlink(part);
}

enum { N = 1000, HEADS = 2 };
static const struct kvf_column plain_column[] = {
    {"x-map.f64", KVF_F64, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
    {"x-map.seen", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_INTERVALS,
     "step"},
};

static double value(uint32_t head, uint32_t i)
{
    return head * 1000.0 + i / 4.0;
}

/* Writes two calls of N values each, for all heads; a list of each token; and a blob. */
static void write_plain(const char *path, bool plain)
{
    static double v[HEADS][N];
    static uint32_t end[N], own[N];
    static struct kvf_interval list[N];
    const uint16_t heads = HEADS, one = 1;
    const struct kvf_shape shape = {1, &one, &heads};
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE, .plain = plain};
    const struct kvf_blob b = {"x-map.k", KVF_U32, 1, 0, 0, 0, {N}};
    struct kvf_writer *w = NULL;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, plain_column, 2, &o, &w, NULL)));
    for (uint32_t call = 0; call < 2; call++) {
        for (uint32_t i = 0; i < HEADS * N; i++)
            v[i / N][i % N] = value(i / N, call * N + i % N);
        cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, HEADS, call * N, N, 0, v)));
    }
    for (uint32_t i = 0; i < N; i++) {
        end[i] = i + 1;
        list[i] = (struct kvf_interval){i, i};
        own[i] = 7 * i;
    }
    cr_assert(zero(int, kvf_write_intervals(w, 1, 0, 0, 1, 0, N, 1, end, list)));
    cr_assert(zero(int, kvf_write_blob(w, &b, false, own)));
    cr_assert(zero(int, kvf_writer_commit(w, 1, 2 * N)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
}

/* Replaces the first four bytes of the n bytes at p, which occur once in the file. */
static void change(const char *path, const void *p, size_t n)
{
    size_t size;
    unsigned char *file = slurp(path, &size), *at = memmem(file, size, p, n);
    FILE *f = fopen(path, "r+b");
    cr_assert(at && f && fseek(f, at - file, SEEK_SET) == 0 && fwrite("abcd", 1, 4, f) == 4);
    fclose(f);
    free(file);
}

/* Changes in the file are visible in views that are not copies, and only there. */
static void expect_views(bool mapped, bool plain)
{
    const char *path = scratch_path("map-plain.kvf");
    const void *view[4];
    const struct kvf_interval *list;
    struct kvf_trace *t = NULL;
    uint32_t end[N];
    write_plain(path, plain);
    cr_assert(zero(int, (mapped ? kvf_open_mapped : kvf_open)(path, KVF_OPEN_TAIL, &t, NULL)));
    for (uint32_t call = 0; call < 2; call++) {
        cr_assert(zero(int, kvf_view(t, 0, 0, 1, call * N, N, &view[call], NULL)));
        for (uint32_t i = 0; i < N; i++)
            cr_assert(value(1, call * N + i) == ((const double *)view[call])[i]);
    }
    cr_assert(zero(int, kvf_view(t, 0, 0, 1, N - 1, 2, &view[2], NULL))); /* two chunks: a copy */
    cr_expect(value(1, N - 1) == ((const double *)view[2])[0]);
    cr_expect(value(1, N) == ((const double *)view[2])[1]);
    cr_assert(zero(int, kvf_read_intervals(t, 1, 0, 0, 0, N, end, &list, NULL)));
    for (uint32_t i = 0; i < N; i++)
        cr_assert(list[i].first == i && list[i].last == i && end[i] == i + 1);
    cr_assert(zero(int, kvf_blob_view(t, 0, &view[3], NULL)));
    if (!LITTLE_ENDIAN_HERE) { /* there, a view is always a copy */
        kvf_close(t);
        unlink(path);
        return;
    }
    if (plain)
        for (int call = 0; call < 2; call++)
            change(path, view[call], N * sizeof(double));
    change(path, view[3], N * 4);
    for (int call = 0; call < 2 && mapped; call++) /* they stay valid until the trace is closed */
        cr_expect(eq(int, memcmp(view[call], "abcd", 4) == 0, plain));
    cr_expect(eq(int, memcmp(view[3], "abcd", 4) == 0, mapped));
    kvf_close(t);
    unlink(path);
}

Test(map, what_was_stored_as_it_is_lies_in_the_map_until_it_is_closed)
{
    for (int i = 0; i < 4; i++)
        expect_views(i & 1, i & 2);
}

Test(map, damage_is_noticed_before_a_value_is_given_out)
{
    const char *path = scratch_path("map-damage.kvf");
    size_t n;
    cr_assert(zero(int, tiny_create(path)));
    OWNED(free) unsigned char *file = slurp(path, &n);
    unlink(path);
    for (size_t i = 0; i < n; i += 3) {
        struct kvf_trace *t = NULL;
        file[i] ^= 0x10;
        if (kvf_open_mapped(as_file(file, n), KVF_OPEN_TAIL, &t, NULL) == KVF_OK)
            for (int again = 0; again < 2; again++)
                cr_expect(not(tiny_compare(t).wrong), "byte %zu", i);
        kvf_close(t);
        file[i] ^= 0x10;
    }
}

/* As documented in the header, access to a missing part of a truncated file ends the process. */
Test(map, a_file_that_shrinks_ends_who_looks_at_what_is_gone)
{
    const char *path = scratch_path("map-short.kvf");
    int status = 0;
    write_plain(path, true);
    pid_t child = fork();
    if (child == 0) {
        const void *p;
        struct kvf_trace *t = NULL;
        if (kvf_open_mapped(path, KVF_OPEN_TAIL, &t, NULL) != KVF_OK || truncate(path, 0) != 0)
            _exit(0);
        kvf_view(t, 0, 0, 0, 0, N, &p, NULL);
        _exit(0);
    }
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_expect(ne(int, status, 0));
    unlink(path);
}

/* test_tail.c - an unclosed trace and its tail are read as one. Closing the trace removes the tail,
 * and a tail that does not match is ignored. */
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/format/opened.h"

enum { FIRST = 40, ALL = 70, STREAM = 0, SNAPSHOT = 1, HEADS = 2 };

static const struct kvf_column columns[] = {
    {"x-stream", KVF_U32, KVF_SPACE_KV, KVF_AXIS_STEP, 0, ""},
    {"x-snapshot", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
};
static const uint16_t heads = HEADS;
static const struct kvf_shape shape = {1, &heads, &heads};
static const int32_t one[2] = {1, 2}, other[2] = {1, 3};

static uint32_t value(int column, int head, uint32_t i, uint32_t steps)
{
    return (uint32_t)(column * 1000 + head * 100) + i * 7919u + (column ? steps << 20 : 0);
}

static void put(struct kvf_writer *w, int column, uint32_t t0, uint32_t n, uint32_t steps)
{
    uint32_t v[HEADS * ALL];
    for (int h = 0; h < HEADS; h++)
        for (uint32_t i = 0; i < n; i++)
            v[(uint32_t)h * n + i] = value(column, h, t0 + i, steps);
    uint32_t epoch = column == SNAPSHOT;
    cr_assert(zero(int, kvf_write_chunk(w, column, 0, 0, HEADS, t0, n, epoch, v)));
}

static void put_texts(struct kvf_writer *w, uint32_t t0, uint32_t n)
{
    uint32_t end[ALL];
    char text[ALL];
    for (uint32_t i = 0; i < n; i++) {
        end[i] = i + 1;
        text[i] = (char)('A' + (t0 + i) % 26);
    }
    cr_assert(zero(int, kvf_write_token_bytes(w, t0, n, end, text)));
}

/* Writes the state after `steps` steps as the tail of w. The streams of w itself end at FIRST. */
static void put_tail(struct kvf_writer *w, uint32_t steps)
{
    struct kvf_writer *tail;
    succeeds(kvf_writer_open_tail(w, &tail, &d));
    put_texts(tail, FIRST, steps - FIRST);
    put(tail, STREAM, FIRST, steps - FIRST, steps);
    put(tail, SNAPSHOT, 0, steps, steps);
    cr_assert(zero(int, kvf_writer_commit(tail, 1, steps)));
    cr_assert(zero(int, kvf_writer_sync(w)));
    cr_assert(zero(int, kvf_writer_close(tail, NULL)));
}

static struct kvf_writer *begin_as(enum kvf_existing existing, const char *path,
                                   const int32_t *prompt)
{
    const struct kvf_writer_options o = {.existing = existing, .prompt = prompt, .n_prompt = 2};
    struct kvf_writer *w;
    succeeds(kvf_writer_open(path, "{}", &shape, columns, 2, &o, &w, &d));
    return w;
}

static struct kvf_writer *begin(const char *path, const int32_t *prompt)
{
    struct kvf_writer *w = begin_as(KVF_OVERWRITE, path, prompt);
    put_texts(w, 0, FIRST);
    put(w, STREAM, 0, FIRST, 0);
    return w;
}

/* Writes the rest after begin(), and closes the trace. */
static void finish(struct kvf_writer *w)
{
    put(w, STREAM, FIRST, ALL - FIRST, 0);
    put(w, SNAPSHOT, 0, ALL, ALL);
    cr_assert(zero(int, kvf_writer_commit(w, 1, ALL)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
}

static void expect_all(struct kvf_trace *t, uint32_t steps)
{
    uint32_t got[ALL];
    const void *seen;
    cr_assert(eq(u32, kvf_n_steps(t), steps));
    cr_expect(eq(u32, kvf_epoch(t), 1));
    cr_expect(zero(int, kvf_is_clean(t)));
    for (int c = 0; c < 2; c++)
        for (int h = 0; h < HEADS; h++) {
            uint32_t want[ALL];
            for (uint32_t i = 0; i < steps; i++)
                want[i] = value(c, h, i, steps);
            cr_assert(zero(int, kvf_read(t, c, 0, h, 0, steps, got, NULL)), "column %d", c);
            cr_expect(zero(int, memcmp(got, want, 4 * steps)), "column %d", c);
            cr_assert(zero(int, kvf_view(t, c, 0, h, FIRST - 3, 6, &seen, NULL)));
            cr_expect(zero(int, memcmp(seen, want + FIRST - 3, 24)), "column %d", c);
            cr_assert(zero(int, kvf_view(t, c, 0, h, FIRST, 3, &seen, NULL)));
            cr_expect(zero(int, memcmp(seen, want + FIRST, 12)), "column %d", c);
        }
    for (uint32_t i = 0; i < steps; i++) {
        size_t len = 0;
        const char *text = kvf_token(t, i, &len);
        cr_assert(text && len == 1 && *text == (char)('A' + i % 26), "token %u", i);
    }
}

static char *beside(const char *path)
{
    static char name[300];
    snprintf(name, sizeof name, "%s.tail", path);
    return name;
}

static char *unfinished(const char *path)
{
    static char name[300];
    snprintf(name, sizeof name, "%s.unfinished", path);
    return name;
}

static void expect_all_by_either(const char *path, uint32_t steps)
{
    for (int either = 0; either < 2; either++) {
        OWNED(kvf_close)
        struct kvf_trace *t = opened(either ? unfinished(path) : path, KVF_OPEN_TAIL);
        expect_all(t, steps);
    }
}

Test(tail, an_unfinished_trace_and_its_tail_are_one)
{
    const char *path = scratch_path("tail.kvf");
    struct kvf_writer *w = begin(path, one);
    struct kvf_trace *t, *share;
    put_tail(w, FIRST + 10);
    put_tail(w, ALL); /* replaces the first tail */
    kvf_writer_abandon(w);
    cr_assert(zero(int, kvf_open(path, KVF_OPEN_TAIL, &t, NULL)));
    expect_all(t, ALL);
    cr_assert(zero(int, kvf_share(t, &share)));
    expect_all(share, ALL);
    kvf_close(share);
    kvf_close(t);
    expect_all_by_either(path, ALL);
    unlink(unfinished(path));
    unlink(beside(path));
}

/* A power loss damages data that were written to the trace after the tail. The tail still has these
 * values. */
Test(tail, what_is_damaged_in_the_trace_is_read_from_its_tail)
{
    enum { STEPS = 60, FROM_THE_END = 20 };
    const char *path = scratch_path("torn.kvf");
    struct kvf_writer *w = begin(path, one);
    put_tail(w, STEPS);
    put(w, STREAM, FIRST, STEPS - FIRST, 0);
    kvf_writer_abandon(w);
    expect_all_by_either(path, STEPS);
    FILE *f = fopen(unfinished(path), "r+b");
    cr_assert(f != NULL);
    cr_assert(zero(int, fseek(f, -FROM_THE_END, SEEK_END)));
    int byte = fgetc(f);
    cr_assert(zero(int, fseek(f, -FROM_THE_END, SEEK_END)));
    fputc(byte ^ 0xff, f);
    fclose(f);
    expect_all_by_either(path, STEPS);
    unlink(beside(path)); /* proves that the tail was read */
    uint32_t got;
    struct kvf_trace *t = opened(path, KVF_OPEN_TAIL);
    cr_expect(eq(int, kvf_read(t, STREAM, 0, 0, FIRST, 1, &got, NULL), KVF_E_CORRUPT));
    kvf_close(t);
    unlink(unfinished(path));
}

Test(tail, the_closed_trace_does_not_tell_of_tails)
{
    size_t n[2];
    unsigned char *p[2];
    for (int tails = 0; tails < 2; tails++) {
        const char *path = scratch_path("tails.kvf");
        struct kvf_writer *w = begin(path, one);
        for (int i = 0; i < 3 * tails; i++)
            put_tail(w, FIRST + 10 + (uint32_t)i);
        finish(w);
        cr_expect(ne(int, access(beside(path), F_OK), 0));
        p[tails] = slurp(path, &n[tails]);
        unlink(path);
    }
    cr_assert(eq(sz, n[0], n[1]));
    cr_expect(zero(int, memcmp(p[0], p[1], n[0])));
    free(p[0]);
    free(p[1]);
}

/* Checks that the tail is ignored. unread: a tail exists, and the reader reports why it cannot be
 * read. */
static void expect_aside(const char *path, const char *what, bool unread)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    cr_assert(zero(int, kvf_open(path, KVF_OPEN_TAIL, &t, NULL)), "%s", what);
    cr_expect(zero(u32, kvf_n_steps(t)), "%s", what);
    const char *why = kvf_tail_aside(t);
    cr_expect(eq(int, why != NULL, unread), "%s", what);
    bool named = !why || strstr(why, ".tail: ");
    cr_expect(named, "%s: %s", what, why);
}

static void expect_none(const char *path, const char *what)
{
    expect_aside(path, what, false);
}

Test(tail, one_that_does_not_fit_is_none)
{
    char path[256], tail[300];
    size_t n;
    snprintf(path, sizeof path, "%s", scratch_path("fit.kvf"));
    snprintf(tail, sizeof tail, "%s", beside(path));
    struct kvf_writer *w = begin(path, other);
    put_tail(w, ALL);
    kvf_writer_abandon(w);
    unsigned char *of_other = slurp(tail, &n);
    w = begin(path, one); /* a new run has no tail */
    cr_expect(ne(int, access(tail, F_OK), 0));
    kvf_writer_abandon(w);
    expect_none(path, "no tail");
    write_whole(tail, of_other, n);
    expect_none(path, "of another run");
    w = begin(path, other);
    kvf_writer_abandon(w);
    write_whole(tail, of_other, n - 8);
    expect_aside(path, "cut", true);
    of_other[100] ^= 1;
    write_whole(tail, of_other, n);
    expect_aside(path, "damaged", true);
    of_other[100] ^= 1;
    unlink(tail);
    struct kvf_check c;
    cr_expect(eq(int, kvf_verify_tail(path, 0, &c, NULL), KVF_E_NOTFOUND));
    cr_assert(zero(int, symlink(tail, tail))); /* cannot be opened, not even by root */
    expect_aside(path, "endless links", true);
    cr_expect(eq(int, kvf_verify_tail(path, 0, &c, NULL), KVF_E_IO));
    unlink(tail);
    cr_assert(zero(int, mkdir(tail, 0700)));
    expect_aside(path, "a folder", true);
    cr_expect(eq(int, kvf_verify_tail(path, 0, &c, NULL), KVF_E_IO));
    rmdir(tail);
    write_whole(tail, of_other, n);
    struct kvf_trace *t = opened(path, KVF_OPEN_TAIL);
    expect_all(t, ALL);
    cr_expect(not(kvf_tail_aside(t) != NULL));
    kvf_close(t);
    free(of_other);
    unlink(unfinished(path));
    unlink(tail);
}

static void count_findings(void *ctx, const char *line)
{
    char *text = ctx;
    snprintf(text + strlen(text), 200, "%s;", line);
}

/* Checks the findings for an unfinished trace and its tail, with all values. */
static void expect_findings(const char *path, const char *want)
{
    char text[4096] = "";
    int n = -1;
    OWNED(kvf_close) struct kvf_trace *t = opened(path, KVF_OPEN_TAIL);
    cr_assert(zero(int, kvf_judge(t, 1, count_findings, text, &n)));
    cr_expect(eq(str, text, (char *)want));
    cr_expect(eq(int, n != 0, want[0] != 0));
}

Test(tail, it_is_judged_with_its_trace)
{
    const char *path = scratch_path("judge.kvf");
    struct kvf_writer *w = begin(path, one), *tail;
    put_tail(w, ALL);
    expect_findings(path, "");
    struct kvf_trace *t = opened(path, KVF_OPEN_TAIL);
    cr_expect(eq(u64, kvf_held(t, STREAM), HEADS * ALL));
    cr_expect(eq(u64, kvf_held(t, SNAPSHOT), HEADS * ALL));
    cr_expect(zero(int, kvf_check_size(t, NULL)));
    kvf_close(t);
    put(w, STREAM, FIRST, 3, 0); /* also in the tail */
    cr_assert(zero(int, kvf_writer_sync(w)));
    expect_findings(path, "");
    cr_assert(zero(int, kvf_writer_open_tail(w, &tail, NULL)));
    put(tail, STREAM, FIRST + 5, ALL - FIRST - 5, ALL);
    put(tail, SNAPSHOT, 0, ALL - 1, ALL);
    cr_assert(zero(int, kvf_writer_commit(tail, 1, ALL)));
    cr_assert(zero(int, kvf_writer_close(tail, NULL)));
    kvf_writer_abandon(w);
    expect_findings(path, "x-stream lacks values of layer 0, the first of head 0 at 43;"
                          "x-snapshot lacks 2 of the 140 values of layer 0, the first of head 0 at "
                          "69;");
    unlink(unfinished(path));
    unlink(beside(path));
}

/* Stores p[n] as the tail of the trace at path, and checks the result of kvf_verify_tail. */
static void expect_verified(const char *path, const unsigned char *p, size_t n, int want,
                            const char *words)
{
    struct kvf_check c;
    struct kvf_diag d = {""};
    write_whole(beside(path), p, n);
    cr_expect(eq(int, kvf_verify_tail(path, 1, &c, &d), want), "%s", words);
    cr_expect(words[0] ? strstr(d.text, words) != NULL : !d.text[0], "%s: %s", words, d.text);
}

Test(tail, it_is_verified)
{
    char path[256];
    struct kvf_check c;
    size_t n;
    snprintf(path, sizeof path, "%s", scratch_path("verify.kvf"));
    struct kvf_writer *w = begin(path, one);
    cr_expect(eq(int, kvf_verify_tail(path, 1, &c, NULL), KVF_E_NOTFOUND));
    put_tail(w, ALL);
    cr_assert(zero(int, kvf_verify_tail(path, 1, &c, NULL)));
    cr_expect(c.clean && c.records > 4 && !c.bad);
    unsigned char *p = slurp(beside(path), &n);
    expect_verified(path, p, n, KVF_OK, "");
    expect_verified(path, p, n - 8, KVF_E_CORRUPT, "ends early");
    p[n / 2] ^= 1;
    expect_verified(path, p, n, KVF_E_CORRUPT, ".tail: ");
    p[n / 2] ^= 1;
    put(w, SNAPSHOT, 0, FIRST, FIRST);
    cr_assert(zero(int, kvf_writer_commit(w, 1, FIRST)));
    expect_verified(path, p, n, KVF_OK, "");
    put(w, STREAM, FIRST, ALL - FIRST, 0);
    cr_assert(zero(int, kvf_writer_commit(w, 2, ALL)));
    kvf_writer_abandon(w);
    expect_verified(path, p, n, KVF_OK, "does not continue");
    kvf_writer_abandon(begin(path, other));
    expect_verified(path, p, n, KVF_OK, "is of another run");
    finish(begin(path, one));
    write_whole(beside(path), p, n);
    cr_expect(eq(int, kvf_verify_tail(path, 1, &c, NULL), KVF_E_NOTFOUND));
    free(p);
    unlink(path);
    unlink(beside(path));
}

Test(tail, a_run_that_goes_on_keeps_the_tail_until_it_is_newer)
{
    char path[256], tail[300];
    size_t n, now;
    snprintf(path, sizeof path, "%s", scratch_path("on.kvf"));
    snprintf(tail, sizeof tail, "%s", beside(path));
    struct kvf_writer *none, *w = begin(path, one);
    finish(w);
    OWNED(free) unsigned char *want = slurp(path, &n);
    unlink(path);
    w = begin(path, one);
    put_tail(w, FIRST + 10);
    kvf_writer_abandon(w);
    for (int times = 0; times < 2; times++) { /* killed again while it rewrites the old data */
        w = begin_as(KVF_RESUME, path, one);
        expect_all_by_either(path, FIRST + 10);
        put_texts(w, 0, FIRST);
        expect_all_by_either(path, FIRST + 10);
        none = w;
        cr_expect(zero(int, kvf_writer_open_tail(w, &none, NULL)));
        cr_expect(zero(ptr, none), "an older state in the place of a newer one");
        put(w, STREAM, 0, FIRST, 0);
        if (!times)
            kvf_writer_abandon(w);
        expect_all_by_either(path, FIRST + 10);
    }
    put_texts(w, FIRST, ALL - FIRST);
    expect_all_by_either(path, FIRST + 10);
    kvf_writer_abandon(w);
    w = begin_as(KVF_RESUME, path, one);
    put_texts(w, 0, FIRST);
    put(w, STREAM, 0, FIRST, 0);
    finish(w); /* uncommitted data that are not repeated are cut off */
    OWNED(free) unsigned char *p = slurp(path, &now);
    cr_expect(now == n && memcmp(p, want, n) == 0);
    cr_expect(ne(int, access(tail, F_OK), 0));
    unlink(path);
}

Test(tail, a_link_in_its_place_leads_nowhere)
{
    char path[256], tail[300], victim[256];
    size_t n;
    snprintf(path, sizeof path, "%s", scratch_path("link.kvf"));
    snprintf(victim, sizeof victim, "%s", scratch_path("victim"));
    snprintf(tail, sizeof tail, "%s", beside(path));
    write_whole(victim, (const unsigned char *)"victim", 6);
    struct kvf_writer *w = begin(path, one);
    cr_assert(zero(int, symlink(victim, tail)));
    put_tail(w, ALL);
    kvf_writer_abandon(w);
    expect_all_by_either(path, ALL);
    unsigned char *p = slurp(victim, &n);
    cr_expect(n == 6 && memcmp(p, "victim", 6) == 0);
    free(p);
    unlink(victim);
    unlink(tail);
    unlink(unfinished(path));
}

Test(tail, traces_that_come_only_whole_have_none)
{
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE, .only_whole = true};
    const char *path = scratch_path("whole.kvf");
    struct kvf_writer *w, *tail;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, columns, 2, &o, &w, NULL)));
    cr_expect(eq(int, kvf_writer_open_tail(w, &tail, NULL), KVF_E_ARG));
    kvf_writer_abandon(w);
}

/* Returns the number of files with the trace's name in their name, including hidden ones. */
static int beside_it(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[256];
    int n = 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    DIR *dir = opendir(folder);
    cr_assert(dir != NULL);
    const struct dirent *e = readdir(dir);
    for (; e; e = readdir(dir))
        n += strstr(e->d_name, slash + 1) != NULL;
    closedir(dir);
    return n;
}

Test(tail, what_a_kill_left_of_one_is_swept)
{
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("swept.kvf"));
    for (int resume = 0; resume < 2; resume++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            struct kvf_writer *tail, *w = begin(path, one);
            put_tail(w, FIRST + 10);
            if (!kvf_writer_open_tail(w, &tail, NULL))
                kill(getpid(), SIGKILL);
            _exit(1);
        }
        waitpid(child, &status, 0);
        bool killed = WIFSIGNALED(status);
        cr_assert(killed);
        expect_all_by_either(path, FIRST + 10);
        cr_expect(ge(int, beside_it(path), 3)); /* trace, tail, locks, temporary file */
        struct kvf_writer *w = begin_as(resume ? KVF_RESUME : KVF_OVERWRITE, path, one);
        put_texts(w, 0, FIRST);
        put(w, STREAM, 0, FIRST, 0);
        finish(w);
        cr_expect(eq(int, beside_it(path), 1));
        unlink(path);
    }
}

/* test_no_memory.c - every allocation fails once. Functions that make traces from traces, judge,
 * repair, save a tail or compute a digest return this error and no other. They write no incomplete
 * file and leak no memory. This is also tested with full and unreadable disks. The linker's --wrap
 * inserts the calls below between the library and the system. */
#include <errno.h>
#include <sys/uio.h>

#include <kvf/copy.h>

#include "tests/format/opened.h"

static struct {
    long allocs, writes, reads; /* calls before the failing one; < 0: no failure */
    bool forever;
} fault = {-1, -1, -1, false};

/* Returns true if this allocation must fail. */
static bool fails(void)
{
    if (fault.allocs == 0) {
        fault.allocs = fault.forever ? 0 : -1;
        return true;
    }
    fault.allocs -= fault.allocs > 0;
    return false;
}

void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

void *__real_ZSTD_createCCtx(void);
void *__wrap_ZSTD_createCCtx(void);
void *__wrap_ZSTD_createCCtx(void)
{
    return fails() ? NULL : __real_ZSTD_createCCtx();
}

void *__real_ZSTD_createDCtx(void);
void *__wrap_ZSTD_createDCtx(void);
void *__wrap_ZSTD_createDCtx(void)
{
    return fails() ? NULL : __real_ZSTD_createDCtx();
}

ssize_t __real_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at)
{
    if (fault.writes == 0) {
        errno = ENOSPC;
        return -1;
    }
    fault.writes -= fault.writes > 0;
    return __real_pwritev64(fd, v, n, at);
}

ssize_t __real_pread64(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at)
{
    if (fault.reads == 0) {
        fault.reads = fault.forever ? 0 : -1;
        errno = EIO;
        return -1;
    }
    fault.reads -= fault.reads > 0;
    return __real_pread64(fd, p, n, at);
}

/* ---- the tested operations, each from its source to its result */

static char in[256], out[256], part[2][256], cut[256], full[256];

static void names(void)
{
    strcpy(in, scratch_path("in"));
    strcpy(out, scratch_path("out"));
    strcpy(part[0], scratch_path("part0"));
    strcpy(part[1], scratch_path("part1"));
    strcpy(cut, scratch_path("cut"));
    strcpy(full, scratch_path("full"));
}

static void remove_all(void)
{
    char *const all[] = {in, out, part[0], part[1], cut, full};
    for (int i = 0; i < 6; i++)
        unlink(all[i]);
}

static struct kvf_copied made;
static struct kvf_diag why;

static int copy_piece(const struct kvf_piece *p, const char *to)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    int err = kvf_open(in, KVF_OPEN_TAIL, &t, &why);
    if (!err)
        err = kvf_copy(
            &(struct kvf_copy_request){.trace = t, .piece = p, .out = to, .overwrite = true}, &made,
            &why);
    return err;
}

static int whole(void)
{
    return copy_piece(NULL, out);
}

static int smallest(void)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    int err = kvf_open(full, KVF_OPEN_TAIL, &t, &why);
    if (!err)
        err = kvf_copy(
            &(struct kvf_copy_request){.trace = t, .out = out, .overwrite = true, .smallest = true},
            &made, &why);
    return err;
}

static int some_heads(void)
{
    static const unsigned char heads[] = {0, 1, 1};
    return copy_piece(&(struct kvf_piece){0, 0, heads}, out);
}

static int some_tokens(void)
{
    return copy_piece(&(struct kvf_piece){3, 9, NULL}, out);
}

static int join(void)
{
    struct kvf_trace *t[2] = {NULL, NULL};
    int err = kvf_open(part[0], KVF_OPEN_STRICT, &t[0], &why);
    if (!err)
        err = kvf_open(part[1], KVF_OPEN_STRICT, &t[1], &why);
    if (!err)
        err = kvf_copy(
            &(struct kvf_copy_request){.part = t, .n_parts = 2, .out = out, .overwrite = true},
            &made, &why);
    kvf_close(t[0]);
    kvf_close(t[1]);
    return err;
}

static void hear(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
}

static int repair(void)
{
    struct kvf_repaired r;
    return kvf_copy(
        &(struct kvf_copy_request){
            .damaged = in, .say = hear, .ret_repaired = &r, .out = out, .overwrite = true},
        &made, &why);
}

static int repair_damaged(void)
{
    struct kvf_repaired r;
    return kvf_copy(
        &(struct kvf_copy_request){
            .damaged = cut, .say = hear, .ret_repaired = &r, .out = out, .overwrite = true},
        &made, &why);
}

static int judge(void)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    int n = 0, err = kvf_open(full, KVF_OPEN_TAIL, &t, &why);
    if (!err)
        err = kvf_judge(t, 1, hear, NULL, &n);
    return err;
}

static int digest(void)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    char text[33];
    int err = kvf_open(full, KVF_OPEN_STRICT, &t, &why);
    if (!err)
        err = kvf_digest(t, text, &why);
    return err;
}

static int share(void)
{
    struct kvf_trace *t = NULL, *mine = NULL;
    const void *p;
    int err = kvf_open(full, KVF_OPEN_TAIL, &t, &why);
    if (!err)
        err = kvf_share(t, &mine);
    if (!err)
        err = kvf_view(mine, 0, 0, 0, 0, 3, &p, &why);
    if (!err)
        err = kvf_blob_view(mine, 0, &p, &why);
    kvf_close(mine);
    kvf_close(t);
    return err;
}

/* Writes the tail: the state after the second epoch of the small trace, which itself has the
 * first. */
static int write_state(struct kvf_writer *tail)
{
    static const int heads[3][TINY_LAYERS] = {{1, 0}, {1, 2}, {2, 2}};
    int err = KVF_OK;
    for (int c = 0; !err && c < TINY_COLUMNS - 1; c++)
        for (int l = 0; !err && l < TINY_LAYERS; l++)
            for (int h = 0; !err && h < heads[tiny_column[c].space][l]; h++) {
                unsigned char v[128];
                bool all = tiny_column[c].flags & KVF_COL_SNAPSHOT;
                uint32_t from = all ? 0 : tiny_steps[1], n = tiny_steps[2] - from;
                tiny_fill(c, l, h, from, n, all ? 2 : 0, v);
                err = kvf_write_chunk(tail, c, l, h, 1, from, n, all, v);
            }
    return err ? err : kvf_writer_commit(tail, 1, tiny_steps[2]);
}

/* Writes, verifies, judges and reads an unfinished trace with its tail. */
static int state_beside(void)
{
    struct kvf_writer *w = NULL, *tail = NULL;
    struct kvf_check c;
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    tiny_plain = true;
    int n = 0, err = tiny_open(out, &w, &why);
    if (!err)
        err = tiny_write(w, 1);
    if (!err)
        err = kvf_writer_open_tail(w, &tail, &why);
    if (!err) {
        err = write_state(tail);
        int closed = kvf_writer_close(tail, &why);
        err = err ? err : closed;
    }
    kvf_writer_abandon(w);
    tiny_plain = false;
    if (!err)
        err = kvf_verify_tail(out, 1, &c, &why);
    if (!err)
        err = kvf_open(out, KVF_OPEN_TAIL, &t, &why);
    cr_assert(err || kvf_n_steps(t) == tiny_steps[2]); /* never the older state instead */
    if (!err)
        err = kvf_judge(t, 1, hear, NULL, &n);
    return err;
}

static void prepare(void)
{
    size_t n;
    fault.allocs = fault.writes = fault.reads = -1;
    names();
    tiny_plain = true; /* pieces cannot contain intervals */
    cr_assert(zero(int, tiny_create(in)));
    cr_assert(zero(int, copy_piece(&(struct kvf_piece){0, 5, NULL}, part[0])));
    cr_assert(zero(int, copy_piece(&(struct kvf_piece){5, 11, NULL}, part[1])));
    tiny_plain = false;
    cr_assert(zero(int, tiny_create(full)));
    cr_assert(zero(int, tiny_create(cut)));
    OWNED(free) unsigned char *p = slurp(cut, &n);
    p[n / 2] ^= 1; /* damage in the middle, and no end */
    write_whole(cut, p, n - 70);
}

/* Returns the digest of the result; "" if there is no result. */
static const char *content(void)
{
    static char text[33];
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    text[0] = 0;
    if (access(out, F_OK) == 0) {
        cr_assert(zero(int, kvf_open(out, KVF_OPEN_STRICT, &t, NULL)));
        cr_assert(zero(int, kvf_digest(t, text, NULL)));
    }
    return text;
}

/* Fails allocation k once, or from k on, until a complete pass makes fewer. */
static void without_memory(int (*work)(void), bool forever)
{
    bool reached = false;
    char want[33];
    long k;
    cr_assert(zero(int, work()), "%s", why.text);
    strcpy(want, content());
    for (k = 0; !reached; k++) {
        unlink(out);
        fault.allocs = k;
        fault.forever = forever;
        why.text[0] = 0;
        int err = work();
        reached = fault.allocs > 0; /* no failure */
        fault.allocs = -1;
        cr_assert(err == KVF_E_NOMEM || err == KVF_OK, "allocation %ld: %d, %s", k, err, why.text);
        cr_assert(not(reached && err), "%s", why.text);
        cr_assert(zero(int, strcmp(content(), err ? "" : want)), "allocation %ld: %d", k, err);
        cr_assert(lt(long, k, 20000));
    }
    cr_expect(ge(long, k, 6)); /* otherwise the test proves little */
}

static void all_ways(int (*work)(void))
{
    prepare();
    without_memory(work, false);
    prepare();
    without_memory(work, true);
    remove_all();
}

/* Every write fails once, and later all writes. */
static void without_space(int (*work)(void))
{
    int err = 1;
    prepare();
    for (long k = 0; err; k++) {
        unlink(out);
        why.text[0] = 0;
        fault.writes = k;
        err = work();
        fault.writes = -1;
        cr_assert(err == KVF_E_IO || err == KVF_OK, "write %ld: %d, %s", k, err, why.text);
        cr_assert(err == KVF_OK || strstr(why.text, strerror(ENOSPC)), "write %ld: %s", k,
                  why.text);
        cr_assert(err == KVF_OK || access(out, F_OK) != 0, "write %ld", k);
        cr_assert(lt(long, k, 20000));
    }
    remove_all();
}

/* A disk with a read error, once or permanently: an error, or all contents. */
static void without_reads(int (*work)(void))
{
    char want[33];
    prepare();
    cr_assert(zero(int, work()), "%s", why.text);
    strcpy(want, content());
    for (int forever = 0; forever < 2; forever++) {
        bool reached = false;
        for (long k = 0; !reached; k++) {
            unlink(out);
            fault.reads = k;
            fault.forever = forever;
            int err = work();
            reached = fault.reads > 0;
            fault.reads = -1;
            cr_assert(not(reached && err));
            cr_assert(zero(int, strcmp(content(), err ? "" : want)), "read %ld: %d", k, err);
            cr_assert(lt(long, k, 20000));
        }
    }
    remove_all();
}

Test(no_memory, whole_copies)
{
    all_ways(whole);
    all_ways(smallest);
}

Test(no_memory, pieces)
{
    all_ways(some_heads);
    all_ways(some_tokens);
}

Test(no_memory, joined)
{
    all_ways(join);
}

Test(no_memory, repaired)
{
    all_ways(repair);
    all_ways(repair_damaged);
}

Test(no_memory, judged_and_summed)
{
    all_ways(judge);
    all_ways(digest);
    all_ways(share);
}

Test(no_memory, a_state_beside)
{
    all_ways(state_beside);
}

Test(no_space, what_is_made_of_traces)
{
    without_space(whole);
    without_space(some_tokens);
    without_space(join);
    without_space(repair_damaged);
}

Test(no_reads, what_is_made_of_traces)
{
    without_reads(whole);
    without_reads(some_heads);
    without_reads(some_tokens);
    without_reads(join);
}

Test(no_reads, what_reads_traces)
{
    without_reads(judge);
    without_reads(digest);
    without_reads(share);
}

/* test_faults.c - faults: the process is killed, the disk is full, or memory is out. The linker's
 * --wrap inserts the calls below between the library and the system. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/format/opened.h"

static struct {
    long allocs, writes, syncs; /* calls before the failing one; < 0: no failure */
    bool alloc_forever;
    size_t piece;   /* maximum bytes per write; 0: no limit */
    int interrupts; /* every second call is interrupted */
    int error;      /* errno of the failing write; 0: it writes 0 bytes */
    bool die;       /* the process dies instead of a failure */
} fault = {-1, -1, -1, false, 0, 0, 0, false};

void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    if (fault.allocs == 0) {
        fault.allocs = fault.alloc_forever ? 0 : -1;
        return NULL;
    }
    fault.allocs -= fault.allocs > 0;
    return __real_aligned_alloc(align, n);
}

ssize_t __real_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at)
{
    if (fault.interrupts && fault.interrupts++ % 2) {
        errno = EINTR;
        return -1;
    }
    if (fault.writes == 0 && fault.die)
        raise(SIGKILL);
    if (fault.writes == 0) {
        errno = fault.error;
        return fault.error ? -1 : 0;
    }
    fault.writes -= fault.writes > 0;
    if (!fault.piece)
        return __real_pwritev64(fd, v, n, at);
    while (n > 1 && v->iov_len == 0)
        v++, n--;
    struct iovec one = {v->iov_base, v->iov_len < fault.piece ? v->iov_len : fault.piece};
    return __real_pwritev64(fd, &one, 1, at);
}

ssize_t __real_pread64(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at)
{
    if (fault.interrupts && fault.interrupts++ % 2) {
        errno = EINTR;
        return -1;
    }
    return __real_pread64(fd, p, fault.piece && n > fault.piece ? fault.piece : n, at);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    if (fault.syncs == 0) {
        errno = EIO;
        return -1;
    }
    fault.syncs -= fault.syncs > 0;
    return __real_fdatasync(fd);
}

static void no_faults(void)
{
    fault.allocs = fault.writes = fault.syncs = -1;
    fault.piece = 0;
    fault.interrupts = fault.error = 0;
    fault.alloc_forever = false;
}

/* Writes the tiny trace; *ret_epoch: number of successful commits. After the first error, every
 * later call must return the same one. */
static int session(const char *path, uint32_t *ret_epoch, struct kvf_diag *d)
{
    struct kvf_writer *w = NULL;
    *ret_epoch = 0;
    char unfinished[200];
    snprintf(unfinished, sizeof unfinished, "%s.unfinished", path);
    unlink(path);
    unlink(unfinished);
    int err = tiny_open(path, &w, d);
    if (err)
        return err;
    for (uint32_t e = 1; !err && e <= TINY_EPOCHS; e++) {
        err = tiny_write(w, e);
        *ret_epoch += !err;
    }
    if (err)
        cr_expect(eq(int, kvf_writer_note(w, "again", "1"), err), "the error is not kept");
    int closed = tiny_finish(w, d);
    cr_expect(err == KVF_OK || closed == err);
    return closed;
}

/* Checks that the trace at path, unfinished or not, shows the commits up to epoch. It may show one
 * more if that commit was written and only later work failed. */
static void expect_epoch(const char *path, uint32_t epoch, const char *what)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    cr_assert(zero(int, kvf_open(path, KVF_OPEN_TAIL, &t, &d)), "%s: %s", what, d.text);
    struct tiny_seen s = tiny_compare(t);
    cr_expect(kvf_epoch(t) == epoch || kvf_epoch(t) == epoch + 1, "%s", what);
    cr_expect(not(s.wrong), "%s", what);
    cr_expect(zero(int, s.lost), "%s", what);
}

static void one_sentence(const struct kvf_diag *d, const char *path)
{
    cr_expect(ne(ptr, strstr(d->text, path), NULL), "the path is missing: %s", d->text);
    cr_expect(eq(ptr, strchr(d->text, '\n'), NULL));
}

Test(faults, a_writer_that_is_abandoned_leaves_its_last_snapshot)
{
    for (uint32_t e = 0; e <= TINY_EPOCHS; e++) {
        const char *path = scratch_path("abandon.kvf");
        struct kvf_writer *w;
        struct kvf_check c;
        cr_assert(zero(int, tiny_open(path, &w, NULL)));
        for (uint32_t k = 1; k <= e; k++)
            cr_assert(zero(int, tiny_write(w, k)));
        kvf_writer_abandon(w);
        expect_epoch(path, e, "abandoned");
        cr_assert(zero(int, kvf_verify(path, 1, &c, NULL)));
        cr_expect(zero(u64, c.bad + c.torn));
        cr_expect(zero(int, c.clean));
        unlink(path);
    }
}

Test(faults, a_file_limit_at_every_size_gives_one_error_and_a_readable_file)
{
    const char *path = scratch_path("limit.kvf");
    struct rlimit old, now;
    struct stat st;
    uint32_t epoch;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(zero(int, tiny_create(path)));
    cr_assert(zero(int, stat(path, &st)));
    getrlimit(RLIMIT_FSIZE, &old);
    for (off_t size = 0; size <= st.st_size; size += size < 512 ? 8 : 56) {
        struct kvf_diag d = {""};
        now = (struct rlimit){(rlim_t)size, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &now);
        int err = session(path, &epoch, &d);
        setrlimit(RLIMIT_FSIZE, &old);
        cr_assert(eq(int, err, size < st.st_size ? KVF_E_IO : KVF_OK), "limit %lld",
                  (long long)size);
        if (!err)
            continue;
        one_sentence(&d, path);
        cr_expect(ne(ptr, strstr(d.text, strerror(EFBIG)), NULL), "%s", d.text);
        if (access(path, F_OK) == 0)
            expect_epoch(path, epoch, "limited");
    }
    unlink(path);
}

Test(faults, any_write_may_fail_and_torn_records_are_cut_off)
{
    const char *path = scratch_path("enospc.kvf");
    for (int how = 0; how < 3; how++)
        for (long k = 0, err = 1; err; k++) {
            struct kvf_diag d = {""};
            struct kvf_check c;
            uint32_t epoch;
            no_faults();
            fault.writes = k;
            fault.piece = how == 1 ? 37 : 0; /* so that failures also occur inside records */
            fault.error = how == 2 ? 0 : ENOSPC;
            err = session(path, &epoch, &d);
            no_faults();
            if (!err)
                break;
            cr_assert(eq(int, (int)err, KVF_E_IO));
            one_sentence(&d, path);
            cr_expect(ne(ptr, strstr(d.text, strerror(ENOSPC)), NULL), "%s", d.text);
            if (access(path, F_OK) != 0)
                continue; /* the schema did not fit: no file is left */
            expect_epoch(path, epoch, "no space");
            cr_assert(zero(int, kvf_verify(path, 1, &c, NULL)));
            cr_expect(zero(u64, c.torn), "write %ld: a torn record was left", k);
        }
    unlink(path);
}

Test(faults, short_and_interrupted_calls_change_nothing)
{
    const char *path = scratch_path("short.kvf");
    size_t n, m;
    uint32_t epoch;
    cr_assert(zero(int, session(path, &epoch, NULL)));
    OWNED(free) unsigned char *want = slurp(path, &n);
    for (size_t piece = 1; piece < 200; piece = piece * 3 + 1) {
        no_faults();
        fault.piece = piece;
        fault.interrupts = 1;
        cr_assert(zero(int, session(path, &epoch, NULL)));
        expect_epoch(path, TINY_EPOCHS, "short reads");
        no_faults();
        OWNED(free) unsigned char *got = slurp(path, &m);
        cr_assert(eq(sz, n, m));
        cr_assert(zero(int, memcmp(want, got, n)));
    }
    unlink(path);
}

Test(faults, a_failed_sync_is_an_error_for_good)
{
    const char *path = scratch_path("sync.kvf");
    for (long k = 0; k <= 2 * TINY_EPOCHS; k++) { /* before each commit, after it, and at the end */
        struct kvf_diag d = {""};
        uint32_t epoch;
        no_faults();
        fault.syncs = k;
        cr_expect(eq(int, session(path, &epoch, &d), KVF_E_IO), "sync %ld", k);
        cr_expect(eq(u32, epoch, (uint32_t)k / 2));
        one_sentence(&d, path);
    }
    unlink(path);
}

/* Fails allocation k once, or from k on, until a complete pass needs fewer. */
static void out_of_memory_writing(bool forever)
{
    const char *path = scratch_path("oom.kvf");
    for (long k = 0, err = 1; err; k++) {
        struct kvf_diag d = {""};
        uint32_t epoch;
        no_faults();
        fault.allocs = k;
        fault.alloc_forever = forever;
        err = session(path, &epoch, &d);
        no_faults();
        cr_assert(err == KVF_OK || err == KVF_E_NOMEM);
        if (err && access(path, F_OK) == 0) {
            struct stat st;
            cr_assert(zero(int, stat(path, &st)));
            if (st.st_size > 0)
                expect_epoch(path, epoch, "no memory");
        }
        cr_assert(lt(long, k, 10000));
    }
    unlink(path);
}

Test(faults, out_of_memory_while_writing)
{
    out_of_memory_writing(false);
    out_of_memory_writing(true);
}

/* Reads only committed data, so that the walk through records is also tested after the footer is
 * cut off. */
static int read_all(const char *path, struct tiny_seen *ret)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_check c;
    int err = kvf_open(path, KVF_OPEN_TAIL, &t, NULL);
    if (!err)
        *ret = tiny_compare(t);
    return err ? err : kvf_verify(path, 1, &c, NULL);
}

static void out_of_memory_reading(const char *path, bool forever)
{
    struct tiny_seen s = {0};
    bool reached = false;
    for (long k = 0; !reached; k++) {
        no_faults();
        fault.allocs = k;
        fault.alloc_forever = forever;
        int err = read_all(path, &s);
        reached = fault.allocs > 0; /* no failure: all data fitted */
        no_faults();
        cr_assert(err == KVF_OK || err == KVF_E_NOMEM, "allocation %ld: %s", k, kvf_strerror(err));
        cr_assert(not(s.wrong), "allocation %ld", k);
        cr_assert(reached ? err == KVF_OK && s.lost == 0 : true);
        cr_assert(lt(long, k, 100000));
    }
}

Test(faults, out_of_memory_while_reading)
{
    const char *path = scratch_path("oom-read.kvf");
    struct stat st;
    cr_assert(zero(int, tiny_create(path)));
    out_of_memory_reading(path, false);
    out_of_memory_reading(path, true);
    cr_assert(zero(int, stat(path, &st)));
    cr_assert(zero(int, truncate(path, st.st_size - 8)));
    out_of_memory_reading(path, false);
    unlink(path);
}

Test(faults, what_is_no_regular_file_is_refused)
{
    static const char *const odd[] = {"/dev/full", "/dev/null", "/tmp"};
    const char *fifo = scratch_path("fifo");
    struct kvf_writer *w = NULL;
    struct kvf_trace *t = NULL;
    struct kvf_diag d;
    cr_assert(zero(int, mkfifo(fifo, 0600)));
    for (int i = 0; i < 4; i++) {
        const char *path = i < 3 ? odd[i] : fifo;
        d = (struct kvf_diag){""};
        cr_expect(eq(int, tiny_open(path, &w, &d), KVF_E_IO), "%s", path);
        one_sentence(&d, path);
        d = (struct kvf_diag){""};
        cr_expect(eq(int, kvf_open(path, KVF_OPEN_TAIL, &t, &d), KVF_E_IO), "%s", path);
        one_sentence(&d, path);
        cr_expect(zero(int, access(path, F_OK)), "%s must not be removed", path);
    }
    unlink(fifo);
    cr_expect(eq(int, kvf_open("/nonexistent/x.kvf", KVF_OPEN_TAIL, &t, &d), KVF_E_IO));
    cr_expect(eq(int, tiny_open("/nonexistent/x.kvf", &w, &d), KVF_E_IO));
}

/* ---- killed ------------------------------------------------------------- */

enum { ANEW = 99 };

/* Writes traces repeatedly; reports every commit through the pipe. */
static void victim(const char *path, int ack)
{
    for (;;) {
        OWNED(kvf_writer_abandon) struct kvf_writer *w = NULL;
        unsigned char e = ANEW;
        if (write(ack, &e, 1) != 1 || tiny_open(path, &w, NULL))
            _exit(1);
        for (e = 1; e <= TINY_EPOCHS; e++)
            if (tiny_write(w, e) || write(ack, &e, 1) != 1)
                _exit(1);
    }
}

Test(faults, killed_at_any_moment_every_acknowledged_commit_is_there, .timeout = 100)
{
    const char *path = scratch_path("kill.kvf");
    for (int k = 0; k < 100; k++) {
        int ends[2], status;
        unsigned char ack = 255, last = 255;
        cr_assert(zero(int, pipe(ends)));
        pid_t pid = fork();
        cr_assert(ge(int, (int)pid, 0));
        if (pid == 0) {
            close(ends[0]);
            victim(path, ends[1]);
        }
        close(ends[1]);
        cr_assert(eq(int, (int)read(ends[0], &last, 1), 1));
        usleep((useconds_t)(k * 97 % 3001));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        while (read(ends[0], &ack, 1) == 1)
            last = ack;
        close(ends[0]);
        cr_assert(ne(int, WIFSIGNALED(status), 0));

        OWNED(kvf_close) struct kvf_trace *t = NULL;
        struct kvf_diag d = {""};
        int err = kvf_open(path, KVF_OPEN_TAIL, &t, &d);
        if (err) { /* before the schema was written */
            cr_assert(eq(u8, last, ANEW), "kill %d: %s", k, d.text);
            continue;
        }
        struct tiny_seen s = tiny_compare(t);
        cr_assert(not(s.wrong), "kill %d", k);
        cr_assert(zero(int, s.lost), "kill %d", k);
        cr_assert(last == ANEW || kvf_epoch(t) >= last, "kill %d: commit %d is lost", k, last);
    }
    unlink(path);
}

/* The process dies instead of writing piece k, so that records are torn at every place. */
Test(faults, killed_inside_every_single_write)
{
    const char *path = scratch_path("halves.kvf");
    int torn = 0;
    for (long k = 0;; k++) {
        int status;
        struct kvf_check c;
        pid_t pid = fork();
        cr_assert(ge(int, (int)pid, 0));
        if (pid == 0) {
            struct kvf_writer *w;
            fault.piece = 61;
            fault.writes = k;
            fault.die = true;
            if (tiny_open(path, &w, NULL))
                _exit(2);
            for (uint32_t e = 1; e <= TINY_EPOCHS; e++)
                if (tiny_write(w, e))
                    _exit(2);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        if (WIFEXITED(status)) {
            cr_assert(zero(int, WEXITSTATUS(status)));
            break;
        }
        OWNED(kvf_close) struct kvf_trace *t = NULL;
        if (kvf_open(path, KVF_OPEN_TAIL, &t, NULL) == KVF_OK) {
            struct tiny_seen s = tiny_compare(t);
            cr_assert(zero(int, s.wrong + s.lost), "write %ld", k);
            cr_assert(zero(int, kvf_verify(path, 1, &c, NULL)), "write %ld", k);
            torn += c.torn > 0;
        }
    }
    cr_expect(ge(int, torn, 31)); /* otherwise the test proves little */
    unlink(path);
}

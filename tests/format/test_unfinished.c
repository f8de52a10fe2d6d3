/* test_unfinished.c - the location of a trace before it is closed, the fate of an existing trace
 * with its name, and resumed runs. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/format/opened.h"

static char path[120], unfinished[140];

static void names(void)
{
    snprintf(path, sizeof path, "%s", scratch_path("u.kvf"));
    snprintf(unfinished, sizeof unfinished, "%s.unfinished", path);
    unlink(path);
    unlink(unfinished);
}

static void tidy(void)
{
    unlink(path);
    unlink(unfinished);
}

TestSuite(unfinished, .init = names, .fini = tidy);

static bool there(const char *name)
{
    struct stat s;
    return lstat(name, &s) == 0;
}

static int begin(enum kvf_existing existing, struct kvf_writer **ret, struct kvf_diag *d)
{
    const struct kvf_writer_options options = {.existing = existing};
    *d = (struct kvf_diag){""};
    return kvf_writer_open(path, tiny_meta, &tiny_shape, tiny_column, TINY_COLUMNS, &options, ret,
                           d);
}

/* Writes a complete trace. */
static void whole(enum kvf_existing existing)
{
    struct kvf_writer *w;
    succeeds(begin(existing, &w, &d));
    for (uint32_t e = 1; e <= TINY_EPOCHS; e++)
        cr_assert(zero(int, tiny_write(w, e)));
    succeeds(tiny_finish(w, &d));
}

static void holds(const char *name, const unsigned char *bytes, size_t n)
{
    size_t now;
    OWNED(free) unsigned char *p = slurp(name, &now);
    cr_expect(now == n && memcmp(p, bytes, n) == 0, "%s", name);
}

/* Returns the epoch of the trace that opens by this name. */
static uint32_t epoch_of(const char *name)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    succeeds(kvf_open(name, KVF_OPEN_TAIL, &t, &d));
    uint32_t epoch = kvf_epoch(t);
    return epoch;
}

Test(unfinished, a_trace_comes_to_its_name_when_it_is_closed)
{
    struct kvf_writer *w;
    struct kvf_check c;
    succeeds(begin(KVF_REFUSE, &w, &d));
    cr_expect(there(unfinished) && !there(path));
    cr_assert(zero(int, tiny_write(w, 1)));
    cr_expect(eq(u32, epoch_of(unfinished), 1));
    cr_expect(eq(u32, epoch_of(path), 1)); /* opens by both names */
    succeeds(kvf_verify(path, 1, &c, &d));
    cr_expect(zero(int, c.clean));
    for (uint32_t e = 2; e <= TINY_EPOCHS; e++)
        cr_assert(zero(int, tiny_write(w, e)));
    succeeds(tiny_finish(w, &d));
    cr_expect(there(path) && !there(unfinished));
    cr_expect(eq(u32, epoch_of(path), TINY_EPOCHS));
}

Test(unfinished, what_is_there_is_refused_or_stays_until_the_new_one_is_closed)
{
    struct kvf_writer *w;
    struct kvf_diag d;
    size_t n;
    whole(KVF_REFUSE);
    OWNED(free) unsigned char *old = slurp(path, &n);
    cr_expect(eq(int, begin(KVF_REFUSE, &w, &d), KVF_E_IO));
    cr_expect(strstr(d.text, "--overwrite") != NULL, "%s", d.text);
    cr_assert(zero(int, begin(KVF_OVERWRITE, &w, &d)), "%s", d.text);
    cr_assert(zero(int, tiny_write(w, 1)));
    holds(path, old, n);
    kvf_writer_abandon(w);
    holds(path, old, n);
    cr_expect(eq(u32, epoch_of(unfinished), 1));
    unlink(path);
    cr_expect(eq(int, begin(KVF_REFUSE, &w, &d), KVF_E_IO)); /* may contain hours of work */
    cr_expect(strstr(d.text, "--resume") != NULL, "%s", d.text);
    cr_expect(eq(u32, epoch_of(unfinished), 1));
    whole(KVF_OVERWRITE);
    holds(path, old, n);
    cr_expect(not(there(unfinished)));
}

Test(unfinished, a_second_writer_is_refused_at_once)
{
    struct kvf_writer *w, *other;
    struct kvf_diag d;
    cr_assert(zero(int, begin(KVF_OVERWRITE, &w, &d)), "%s", d.text);
    cr_assert(zero(int, tiny_write(w, 1)));
    for (int existing = KVF_REFUSE; existing <= KVF_RESUME_OVERWRITE; existing++) {
        cr_expect(eq(int, begin((enum kvf_existing)existing, &other, &d), KVF_E_IO));
        cr_expect(strstr(d.text, "another process is writing it") != NULL, "%s", d.text);
    }
    cr_expect(eq(u32, epoch_of(unfinished), 1));
    kvf_writer_abandon(w);
}

Test(unfinished, what_nothing_came_to_is_dropped_unless_it_is_gone_on_with)
{
    struct kvf_writer *w;
    succeeds(begin(KVF_REFUSE, &w, &d));
    cr_expect(there(unfinished));
    kvf_writer_drop(w);
    cr_expect(not(there(unfinished)));
    succeeds(begin(KVF_REFUSE, &w, &d));
    cr_assert(zero(int, tiny_write(w, 1)));
    kvf_writer_abandon(w);
    succeeds(begin(KVF_RESUME, &w, &d));
    kvf_writer_drop(w);
    cr_expect(eq(u32, epoch_of(unfinished), 1));
    kvf_writer_drop(NULL);
}

Test(unfinished, only_whole_ones_leave_nothing)
{
    struct kvf_writer *w;
    struct kvf_diag d = {""};
    const struct kvf_writer_options options = {.only_whole = true};
    cr_assert(zero(int, kvf_writer_open(path, tiny_meta, &tiny_shape, tiny_column, TINY_COLUMNS,
                                        &options, &w, &d)));
    cr_assert(zero(int, tiny_write(w, 1)));
    cr_expect(not(there(path)));
    cr_expect(not(there(unfinished)));
    kvf_writer_abandon(w);
    cr_expect(not(there(path)));
    cr_expect(not(there(unfinished)));
    whole(KVF_REFUSE);
}

/* Simulates a run that dies after `epochs` commits and a note. The note is cut off on resume. */
static void die_after(uint32_t epochs)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct kvf_writer *w;
        struct kvf_diag d;
        if (begin(KVF_OVERWRITE, &w, &d))
            _exit(2);
        for (uint32_t e = 1; e <= epochs; e++)
            if (tiny_write(w, e))
                _exit(2);
        char stray[1 << 16] = ""; /* longer than the data that replace it */
        memset(stray, '1', sizeof stray - 1);
        kvf_writer_note(w, "stray", stray);
        kill(getpid(), SIGKILL);
    }
    waitpid(child, &status, 0);
    bool killed = WIFSIGNALED(status);
    cr_assert(killed);
}

Test(unfinished, going_on_ends_with_the_same_bytes)
{
    size_t n;
    whole(KVF_REFUSE);
    OWNED(free) unsigned char *want = slurp(path, &n);
    for (uint32_t e = 0; e <= TINY_EPOCHS; e++) {
        unlink(path);
        die_after(e);
        cr_expect(there(unfinished) && !there(path));
        whole(KVF_RESUME);
        holds(path, want, n);
        cr_expect(not(there(unfinished)));
    }
    struct kvf_writer *w;
    struct kvf_diag d;
    cr_expect(eq(int, begin(KVF_RESUME, &w, &d), KVF_E_IO));
    cr_expect(strstr(d.text, "there is no run to continue") != NULL, "%s", d.text);
}

Test(unfinished, a_closed_one_is_replaced_only_when_asked)
{
    static const unsigned char older[] = "an older trace";
    struct kvf_writer *w;
    struct kvf_diag d;
    size_t n, n_left;
    whole(KVF_REFUSE);
    OWNED(free) unsigned char *want = slurp(path, &n);
    write_whole(path, older, sizeof older);
    die_after(1);
    OWNED(free) unsigned char *left = slurp(unfinished, &n_left);
    cr_expect(eq(int, begin(KVF_RESUME, &w, &d), KVF_E_IO));
    cr_expect(strstr(d.text, "--overwrite") != NULL, "%s", d.text);
    holds(path, older, sizeof older);
    holds(unfinished, left, n_left);
    cr_assert(zero(int, begin(KVF_RESUME_OVERWRITE, &w, &d)), "%s", d.text);
    kvf_writer_abandon(w);
    holds(path, older, sizeof older);
    whole(KVF_RESUME_OVERWRITE);
    holds(path, want, n);
    cr_expect(not(there(unfinished)));
}

Test(unfinished, another_run_does_not_go_on_with_it)
{
    struct kvf_writer *w;
    struct kvf_diag d = {""};
    const struct kvf_writer_options resume = {.existing = KVF_RESUME};
    size_t n;
    die_after(2);
    OWNED(free) unsigned char *before = slurp(unfinished, &n);
    cr_expect(eq(int,
                 kvf_writer_open(path, "{\"other\":1}", &tiny_shape, tiny_column, TINY_COLUMNS,
                                 &resume, &w, &d),
                 KVF_E_FORMAT));
    cr_expect(strstr(d.text, "another run") != NULL, "%s", d.text);
    holds(unfinished, before, n);
    for (uint32_t epochs = 0; epochs < 2; epochs++) { /* the file has no such note here */
        cr_assert(zero(int, begin(KVF_RESUME, &w, &d)), "%s", d.text);
        for (uint32_t e = 1; e <= epochs; e++)
            cr_assert(zero(int, tiny_write(w, e)));
        cr_expect(eq(int, kvf_writer_note(w, "key", "{}"), KVF_E_FORMAT));
        cr_expect(eq(int, kvf_writer_close(w, &d), KVF_E_FORMAT));
        holds(unfinished, before, n);
    }
    whole(KVF_RESUME); /* no data were lost */
}

static int contender(void)
{
    struct kvf_writer *w;
    struct kvf_diag d;
    int err = begin(KVF_OVERWRITE, &w, &d);
    if (err)
        return strstr(d.text, "another process is writing it") ? 1 : 2;
    for (uint32_t e = 1; !err && e <= TINY_EPOCHS; e++)
        err = tiny_write(w, e);
    return tiny_finish(w, &d) || err ? 2 : 0;
}

Test(unfinished, of_many_writers_those_who_win_leave_a_whole_trace, .timeout = 600)
{
    const char *asked = getenv("KVFATE_ROUNDS"); /* tests/endure/writers.py */
    const int rounds = asked ? (int)strtol(asked, NULL, 10) : 30;
    size_t n, won = 0, lost = 0;
    whole(KVF_REFUSE);
    OWNED(free) unsigned char *want = slurp(path, &n);
    for (int round = 0; round < rounds; round++) {
        int writers = 2 + round % 7, winners = 0;
        for (int i = 0; i < writers; i++)
            if (fork() == 0)
                _exit(contender());
        for (int i = 0; i < writers; i++) {
            int status;
            wait(&status);
            bool fair = WIFEXITED(status) && WEXITSTATUS(status) < 2;
            cr_assert(fair, "round %d", round);
            winners += WEXITSTATUS(status) == 0;
        }
        cr_expect(ge(int, winners, 1));
        won += (size_t)winners;
        lost += (size_t)(writers - winners);
        holds(path, want, n);
        cr_expect(not(there(unfinished)));
    }
    fprintf(stderr, "%zu writers won, %zu were refused\n", won, lost);
}

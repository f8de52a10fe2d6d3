/* test_replace.c - files are written completely or not at all, by one writer at a time, and never
 * through a planted link. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/parts.h"
#include "base/replace.h"
#include "tests/folder.h"

TestSuite(replace, .init = make_folder, .fini = remove_folder);

static void put(const char *name, const char *text)
{
    write_whole(at(name), text, strlen(text));
}

static void holds(const char *name, const char *text)
{
    size_t n;
    OWNED(mem_free) char *got = read_whole(at(name), &n);
    cr_expect(zero(int, strcmp(got, text)), "%s holds %s", name, got);
}

static int names(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static int write_text(const char *path, const char *text)
{
    struct replace r;
    struct kvf_diag d = {""};
    int err = replace_open(&r, path, &d);
    if (!err) {
        replace_write(&r, text, strlen(text));
        err = replace_finish(&r, &d);
    }
    bool sentence = d.text[0] && !strchr(d.text, '\n');
    cr_expect(sentence == (err != KVF_OK), "%s", d.text);
    return err;
}

Test(replace, a_file_is_whole_or_the_older_one)
{
    struct replace r;
    struct kvf_diag d = {""};
    cr_expect(zero(int, write_text(at("x"), "one")));
    holds("x", "one");
    cr_assert(zero(int, replace_open(&r, at("x"), &d)));
    replace_write(&r, "two", 3);
    holds("x", "one");
    replace_abandon(&r);
    holds("x", "one");
    cr_expect(eq(int, names(), 1));
    cr_expect(zero(int, write_text(at("x"), "three")));
    holds("x", "three");
    cr_expect(eq(int, names(), 1));
}

Test(replace, one_of_two_writers_wins_and_the_other_is_refused_at_once)
{
    struct replace a, b;
    struct kvf_diag d = {""};
    cr_assert(zero(int, replace_open(&a, at("x"), &d)));
    cr_expect(eq(int, replace_open(&b, at("x"), &d), KVF_E_IO));
    cr_expect(strstr(d.text, "another process is writing it") != NULL, "%s", d.text);
    cr_assert(zero(int, symlink("x", at("link"))));
    cr_expect(eq(int, replace_open(&b, at("link"), &d), KVF_E_IO)); /* by another name */
    cr_expect(zero(int, write_text(at("y"), "y")));
    replace_write(&a, "a", 1);
    cr_expect(zero(int, replace_finish(&a, &d)));
    holds("x", "a");
    cr_expect(zero(int, write_text(at("x"), "again")));
    cr_expect(eq(int, names(), 3));
}

Test(replace, what_a_killed_writer_left_is_removed)
{
    pid_t child = fork();
    if (child == 0) {
        struct replace r;
        int err = replace_open(&r, at("x"), NULL);
        replace_write(&r, "half", 4);
        kill(getpid(), err ? SIGUSR1 : SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    cr_assert(killed);
    put(".x.sixteen-letters-.part", "kept");
    cr_expect(eq(int, names(), 3)); /* its lock file and its temporary file */
    cr_expect(zero(int, write_text(at("x"), "whole")));
    holds("x", "whole");
    cr_expect(eq(int, names(), 2));
    holds(".x.sixteen-letters-.part", "kept");
}

Test(replace, planted_links_lead_nowhere)
{
    put("victim", "precious");
    cr_assert(zero(int, symlink("victim", at("x.part"))));
    cr_assert(zero(int, symlink("victim", at(".x.part"))));
    cr_expect(zero(int, write_text(at("x"), "new")));
    holds("victim", "precious");
    cr_assert(zero(int, symlink("victim", at(".y.lock"))));
    cr_expect(eq(int, write_text(at("y"), "new"), KVF_E_IO));
    holds("victim", "precious");
    cr_assert(zero(int, link(at("victim"), at(".z.lock"))));
    cr_expect(zero(int, write_text(at("z"), "new")));
    holds("victim", "precious"); /* the lock file is never written */
}

Test(replace, a_link_stays_and_its_file_is_replaced)
{
    struct stat s;
    cr_assert(zero(int, mkdir(at("far"), 0777)));
    put("far/file", "old");
    cr_assert(zero(int, symlink("far/file", at("b"))));
    cr_assert(zero(int, symlink(at("b"), at("a"))));
    cr_expect(zero(int, write_text(at("a"), "new")));
    holds("far/file", "new");
    cr_expect(lstat(at("a"), &s) == 0 && S_ISLNK(s.st_mode));
    cr_expect(lstat(at("b"), &s) == 0 && S_ISLNK(s.st_mode));
    cr_assert(zero(int, symlink("far/none", at("c"))));
    cr_expect(zero(int, write_text(at("c"), "made")));
    holds("far/none", "made");
    cr_assert(zero(int, symlink("loop", at("loop"))));
    cr_expect(eq(int, write_text(at("loop"), "x"), KVF_E_IO));
    cr_expect(eq(int, names(), 5));
}

/* Makes a private device node, so that a fault does not damage a shared one. Returns false if that
 * is not possible. */
static bool make_device(const char *name, int minor)
{
    int fd = -1;
    if (mknod(at(name), S_IFCHR | 0666, makedev(1, minor)) == 0)
        fd = open(at(name), O_WRONLY);
    close(fd);
    return fd >= 0;
}

Test(replace, devices_are_written_as_they_are)
{
    struct stat s;
    if (!make_device("null", 3) || !make_device("full", 7))
        cr_skip_test("devices are for root to make");
    cr_expect(zero(int, write_text(at("null"), "gone")));
    cr_expect(stat(at("null"), &s) == 0 && S_ISCHR(s.st_mode));
    cr_expect(eq(int, write_text(at("full"), "x"), KVF_E_IO));
    cr_expect(stat(at("full"), &s) == 0 && S_ISCHR(s.st_mode));
    cr_expect(eq(int, names(), 2));
}

Test(replace, pipes_and_descriptors_are_written_as_they_are)
{
    int pipes[2];
    char name[64], got[8] = "";
    cr_assert(zero(int, pipe(pipes)));
    snprintf(name, sizeof name, "/dev/fd/%d", pipes[1]);
    cr_expect(zero(int, write_text(name, "through")));
    cr_expect(read(pipes[0], got, 7) == 7 && strcmp(got, "through") == 0);
    int fd = open(at("log"), O_WRONLY | O_CREAT | O_APPEND, 0666); /* as for >> in a shell */
    cr_expect(eq(int, (int)write(fd, "before,", 7), 7));
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    cr_expect(zero(int, write_text(name, "after")));
    holds("log", "before,after");
    cr_expect(eq(int, names(), 1));
}

Test(replace, permissions_stay_and_are_heeded)
{
    struct stat s;
    put("x", "old");
    cr_assert(zero(int, chmod(at("x"), 0662)));
    cr_expect(zero(int, write_text(at("x"), "new")));
    cr_expect(stat(at("x"), &s) == 0 && (s.st_mode & 0777) == 0662);
    if (geteuid() == 0)
        cr_skip_test("whoever is root may write all files");
    cr_assert(zero(int, chmod(at("x"), 0444)));
    cr_expect(eq(int, write_text(at("x"), "newer"), KVF_E_IO));
    holds("x", "new");
}

Test(replace, failures_keep_the_older_file_and_leave_nothing)
{
    static char block[5000];
    struct kvf_diag d = {""};
    struct replace r;
    put("x", "old");
    struct rlimit was, small = {1000, 1000};
    getrlimit(RLIMIT_FSIZE, &was);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    cr_assert(zero(int, replace_open(&r, at("x"), &d)));
    replace_write(&r, block, sizeof block);
    cr_expect(eq(int, replace_finish(&r, &d), KVF_E_IO));
    setrlimit(RLIMIT_FSIZE, &was);
    cr_expect(strstr(d.text, "cannot write") != NULL, "%s", d.text);
    holds("x", "old");
    cr_expect(eq(int, names(), 1));
    cr_assert(zero(int, mkdir(at("folder"), 0777)));
    cr_expect(eq(int, write_text(at("folder"), "x"), KVF_E_IO));
    cr_expect(eq(int, write_text(at("none/x"), "x"), KVF_E_IO));
    cr_expect(eq(int, write_text("", "x"), KVF_E_IO));
    cr_expect(eq(int, names(), 2));
}

/* ---- faults in system calls, inserted by the linker */

static int fail_sync, fail_rename, fail_lock; /* errno; 0: no fault */
static const char *made_before_lock;          /* a file that another writer completes; NULL: none */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (!fail_sync)
        return __real_fsync(fd);
    errno = fail_sync;
    return -1;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (!fail_rename)
        return __real_rename(from, to);
    errno = fail_rename;
    return -1;
}

int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
    if (made_before_lock)
        put(made_before_lock, "another's");
    if (!fail_lock)
        return __real_flock(fd, how);
    errno = fail_lock;
    return -1;
}

Test(replace, a_failed_sync_or_rename_is_told_and_loses_nothing)
{
    struct kvf_diag d = {""};
    struct replace r;
    put("x", "old");
    fail_sync = EIO;
    cr_expect(eq(int, write_text(at("x"), "new"), KVF_E_IO));
    fail_sync = 0;
    fail_rename = ENOSPC;
    cr_expect(eq(int, write_text(at("x"), "new"), KVF_E_IO));
    holds("x", "old");
    cr_expect(eq(int, names(), 1));
    fail_rename = 0;
    cr_assert(zero(int, replace_open(&r, at("x"), &d)));
    fail_rename = EIO;
    cr_expect(eq(int, replace_show(&r, &d), KVF_E_IO));
    fail_rename = 0;
    cr_assert(zero(int, replace_show(&r, &d)));
    replace_write(&r, "shown", 5);
    fail_sync = EIO;
    cr_expect(eq(int, replace_finish(&r, &d), KVF_E_IO));
    fail_sync = 0;
    holds("x", "old");
    holds("x" REPLACE_UNFINISHED, "shown");
    cr_expect(eq(int, names(), 2));
}

Test(replace, what_another_writer_ended_before_the_lock_counts_as_older)
{
    struct replace r;
    struct kvf_diag d = {""};
    made_before_lock = "x";
    cr_assert(zero(int, replace_open(&r, at("x"), &d)));
    made_before_lock = NULL;
    cr_expect(r.existed);
    replace_abandon(&r);
    holds("x", "another's");
}

Test(replace, a_file_system_without_locks_refuses_nobody)
{
    struct replace a, b;
    struct kvf_diag d = {""};
    fail_lock = ENOSYS;
    cr_assert(zero(int, replace_open(&a, at("x"), &d)));
    cr_assert(zero(int, replace_open(&b, at("x"), &d)));
    replace_write(&a, "first", 5);
    replace_write(&b, "second", 6);
    cr_expect(zero(int, replace_finish(&a, &d)));
    holds("x", "first");
    cr_expect(zero(int, replace_finish(&b, &d)));
    holds("x", "second");
    cr_expect(eq(int, names(), 1));
    fail_lock = EIO;
    cr_expect(eq(int, write_text(at("x"), "third"), KVF_E_IO));
    holds("x", "second");
}

Test(replace, long_names_fit)
{
    char name[256] = "";
    memset(name, 'n', 255);
    cr_expect(zero(int, write_text(at(name), "long")));
    holds(name, "long");
    cr_expect(eq(int, names(), 1));
}

Test(replace, a_signal_removes_what_is_in_the_making)
{
    SCOPED(replace_abandon) struct replace r;
    put("x", "old");
    cr_assert(zero(int, replace_open(&r, at("x"), NULL)));
    cr_expect(eq(int, names(), 3));
    parts_remove();
    cr_expect(eq(int, names(), 1));
    holds("x", "old");
}

Test(replace, a_file_that_is_shown_survives_its_writer)
{
    struct replace r;
    struct kvf_diag d = {""};
    put("x", "old");
    put("x" REPLACE_UNFINISHED, "older attempt");
    cr_assert(zero(int, replace_open(&r, at("x"), &d)));
    replace_write(&r, "one", 3);
    holds("x" REPLACE_UNFINISHED, "older attempt");
    cr_assert(zero(int, replace_show(&r, &d)));
    holds("x" REPLACE_UNFINISHED, "one");
    parts_remove();
    replace_abandon(&r);
    holds("x" REPLACE_UNFINISHED, "one");
    holds("x", "old");
    cr_assert(zero(int, replace_resume(&r, at("x"), &d)));
    struct replace other;
    cr_expect(eq(int, replace_resume(&other, at("x"), &d), KVF_E_IO));
    replace_seek(&r, 3);
    replace_write(&r, ",two", 4);
    cr_assert(zero(int, replace_finish(&r, &d)));
    holds("x", "one,two");
    cr_expect(eq(int, names(), 1));
    cr_expect(eq(int, replace_resume(&r, at("x"), &d), KVF_E_IO));
    cr_expect(eq(int, names(), 1));
}

/* Runs in each of several processes: writes its letter a thousand times to the file. */
static int contender(int letter)
{
    char text[1001] = "";
    struct replace r;
    struct kvf_diag d = {""};
    memset(text, letter, 1000);
    if (replace_open(&r, at("x"), &d) != KVF_OK)
        return strstr(d.text, "another process is writing it") ? 1 : 2;
    for (int i = 0; i < 1000; i++)
        replace_write(&r, text + i, 1);
    return replace_finish(&r, &d) == KVF_OK ? 0 : 2;
}

/* Waits for n contenders; returns how many of them wrote the file. */
static int winners(int n)
{
    int won = 0;
    for (int i = 0; i < n; i++) {
        int status;
        pid_t child = wait(&status);
        cr_assert(child > 0 && WIFEXITED(status) && WEXITSTATUS(status) < 2);
        won += WEXITSTATUS(status) == 0;
    }
    return won;
}

Test(replace, of_many_writers_those_who_win_leave_a_whole_file)
{
    for (int round = 0; round < 40; round++) {
        int n = 2 + round % 7;
        for (int i = 0; i < n; i++)
            if (fork() == 0)
                _exit(contender('a' + i));
        cr_expect(ge(int, winners(n), 1));
        size_t length;
        OWNED(mem_free) char *got = read_whole(at("x"), &length);
        cr_expect(length == 1000 && strspn(got, (char[]){got[0], 0}) == 1000, "round %d", round);
        cr_expect(eq(int, names(), 1));
    }
}

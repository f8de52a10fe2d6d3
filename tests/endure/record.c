/* record.c - an LD_PRELOAD module that records a program's file operations for
 * tests/endure/power.py, and can kill the program between two operations for kills.py.
 *
 * KVFATE_RECORD=FILE     output file; without it, no record is written
 * KVFATE_RECORD_KILL=N   SIGKILL before operation N (from 1)
 *
 * It records files that are opened for writing and folders that are opened for fsync. A record is
 * the struct below, then a name or data, then for a rename the second name. Calls are made through
 * syscall(), so that no other function is interposed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_FDS = 1024, NAME = 4096, OPEN = 'o', WRITE = 'w', SIZE = 't', SYNC = 's' };
enum { FOLDER_SYNC = 'd', RENAME = 'r', UNLINK = 'u', LINK = 'l', MKDIR = 'm' };

struct head {
    uint32_t op, a, b; /* an operation; bytes of the following data, and of the second name */
    uint32_t flags;    /* of open */
    uint64_t file;     /* its inode */
    uint64_t at;       /* offset of a write, or the size */
    uint64_t call;     /* number of the call, which may consist of several writes */
};

static struct {
    bool seen, folder;
    uint64_t file;
    char name[NAME];
} fds[MOST_FDS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static long n_done, kill_at;
static bool ready;

static void begin(void)
{
    const char *path = getenv("KVFATE_RECORD"), *at = getenv("KVFATE_RECORD_KILL");
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    ready = true;
    kill_at = at ? strtol(at, NULL, 10) : 0;
    if (path)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0666);
}

/* Runs before each recorded operation. */
static void enter(void)
{
    pthread_mutex_lock(&lock);
    if (!ready)
        begin();
    if (++n_done == kill_at)
        kill(getpid(), SIGKILL);
}

static long leave(long result)
{
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

static void put(const struct head *h, const void *a, const void *b)
{
    struct iovec v[3] = {
        {NULL, sizeof *h}, {(void *)(uintptr_t)a, h->a}, {(void *)(uintptr_t)b, h->b}};
    struct head own = *h;
    int error = errno;
    own.call = (uint64_t)n_done;
    v[0].iov_base = &own;
    if (log_fd >= 0
        && syscall(SYS_writev, log_fd, v, 3) != (long)(sizeof *h + (size_t)h->a + (size_t)h->b))
        abort();
    errno = error;
}

static bool seen(int fd)
{
    return fd >= 0 && fd < MOST_FDS && fds[fd].seen;
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY, dir = (flags & O_DIRECTORY) != 0;
    struct stat s;
    if (!writes && !dir)
        return (int)syscall(SYS_openat, folder, path, flags, mode);
    enter();
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && fd < MOST_FDS && fstat(fd, &s) == 0 && (S_ISREG(s.st_mode) || dir)) {
        fds[fd].seen = true;
        fds[fd].folder = dir;
        fds[fd].file = s.st_ino;
        snprintf(fds[fd].name, NAME, "%s", path);
        struct head h = {OPEN, (uint32_t)strlen(path), 0, (uint32_t)flags, s.st_ino, 0, 0};
        if (!dir)
            put(&h, path, NULL);
    }
    return (int)leave(fd);
}

#define MODE_OF(flags)                                                                             \
    mode_t mode = 0;                                                                               \
    if ((flags)&O_CREAT) {                                                                         \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int close(int fd)
{
    pthread_mutex_lock(&lock);
    if (seen(fd))
        fds[fd].seen = false;
    return (int)leave(syscall(SYS_close, fd));
}

static void written(int fd, const void *p, size_t n, uint64_t at)
{
    struct head h = {WRITE, (uint32_t)n, 0, 0, fds[fd].file, at, 0};
    put(&h, p, NULL);
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (!seen(fd))
        return syscall(SYS_write, fd, p, n);
    enter();
    ssize_t k = syscall(SYS_write, fd, p, n);
    if (k > 0)
        written(fd, p, (size_t)k, (uint64_t)(lseek(fd, 0, SEEK_CUR) - k));
    return leave(k);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
    if (!seen(fd))
        return syscall(SYS_pwrite64, fd, p, n, at);
    enter();
    ssize_t k = syscall(SYS_pwrite64, fd, p, n, at);
    if (k > 0)
        written(fd, p, (size_t)k, (uint64_t)at);
    return leave(k);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return pwrite64(fd, p, n, at);
}

ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at)
{
    if (!seen(fd))
        return syscall(SYS_pwritev, fd, v, n, at, 0);
    enter();
    ssize_t k = syscall(SYS_pwritev, fd, v, n, at, 0), left = k;
    for (int i = 0; i < n && left > 0; i++) {
        size_t part = v[i].iov_len < (size_t)left ? v[i].iov_len : (size_t)left;
        written(fd, v[i].iov_base, part, (uint64_t)at);
        at += (off64_t)part;
        left -= (ssize_t)part;
    }
    return leave(k);
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at)
{
    return pwritev64(fd, v, n, at);
}

int ftruncate64(int fd, off64_t size)
{
    if (!seen(fd))
        return (int)syscall(SYS_ftruncate, fd, size);
    enter();
    int err = (int)syscall(SYS_ftruncate, fd, size);
    struct head h = {SIZE, 0, 0, 0, fds[fd].file, (uint64_t)size, 0};
    if (!err)
        put(&h, NULL, NULL);
    return (int)leave(err);
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

static int sync_by(long number, int fd)
{
    if (!seen(fd))
        return (int)syscall(number, fd);
    enter();
    int err = (int)syscall(number, fd);
    size_t n = fds[fd].folder ? strlen(fds[fd].name) : 0;
    struct head h = {fds[fd].folder ? FOLDER_SYNC : SYNC, (uint32_t)n, 0, 0, fds[fd].file, 0, 0};
    if (!err)
        put(&h, fds[fd].name, NULL);
    return (int)leave(err);
}

int fsync(int fd)
{
    return sync_by(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_by(SYS_fdatasync, fd);
}

/* Records an operation with one or two names. */
static int named(uint32_t op, long result, const char *a, const char *b)
{
    struct head h = {op, (uint32_t)strlen(a), b ? (uint32_t)strlen(b) : 0, 0, 0, 0, 0};
    if (result == 0)
        put(&h, a, b);
    return (int)leave(result);
}

int rename(const char *from, const char *to)
{
    enter();
    return named(RENAME, syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to), from, to);
}

int link(const char *from, const char *to)
{
    enter();
    return named(LINK, syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0), from, to);
}

int unlink(const char *path)
{
    enter();
    return named(UNLINK, syscall(SYS_unlinkat, AT_FDCWD, path, 0), path, NULL);
}

int unlinkat(int folder, const char *path, int flags)
{
    char own[64], name[NAME];
    snprintf(own, sizeof own, "/proc/self/fd/%d", folder);
    ssize_t n = folder == AT_FDCWD ? 0 : readlink(own, name, NAME / 2);
    snprintf(name + (n > 0 ? n : 0), NAME / 2, "%s%s", n > 0 ? "/" : "", path);
    enter();
    return named(UNLINK, syscall(SYS_unlinkat, folder, path, flags), name, NULL);
}

int mkdir(const char *path, mode_t mode)
{
    enter();
    return named(MKDIR, syscall(SYS_mkdirat, AT_FDCWD, path, mode), path, NULL);
}

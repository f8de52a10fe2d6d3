/* replace.c - writes a file under a temporary name and renames it (replace.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/parts.h"
#include "base/replace.h"

/* BASE: bytes of a long name that derived names keep, so that they fit into 255. */
enum { LINKS = 40, TRIES = 100, DIGITS = 16, BASE = 200, HEAD = BASE + 3 };

static const struct replace closed = REPLACE_CLOSED;

/* ---- names */

static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* "FOLDER/", "" for the current folder, then the suffix; NULL when memory is out. */
static char *beside(const char *place, const char *name)
{
    struct buf b = {0};
    buf_add(&b, place, folder_length(place));
    buf_str(&b, name);
    if (b.err)
        buf_finish(&b);
    return b.data;
}

static char *with_suffix(const char *place)
{
    struct buf b = {0};
    buf_printf(&b, "%s" REPLACE_UNFINISHED, place);
    if (b.err)
        buf_finish(&b);
    return b.data;
}

/* The prefix of the names derived from a place, in a buffer of HEAD bytes: ".NAME." */
static void head_of(const char *place, char *head)
{
    snprintf(head, HEAD, ".%.*s.", (int)BASE, place + folder_length(place));
}

/* Replaces *path, which is a link, by its target.  Errno. */
static int follow(char **path)
{
    char name[PATH_MAX];
    ssize_t n = readlink(*path, name, sizeof name);
    if (n < 0 || n == (ssize_t)sizeof name)
        return n < 0 ? errno : ENAMETOOLONG;
    name[n] = 0;
    char *next = name[0] == '/' ? mem_strdup(name) : beside(*path, name);
    if (!next)
        return ENOMEM;
    mem_free(*path);
    *path = next;
    return 0;
}

/* The number of an open descriptor that the path is a name of, as /dev/stdout leads to /dev/fd/1,
 * wherever the system keeps that folder; -1: it is none. */
static int descriptor(const char *path)
{
    char *folder = beside(path, "."), own[PATH_MAX], real[PATH_MAX];
    const char *name = path + folder_length(path);
    int fd = -1, used = 0;
    bool ours = folder && realpath("/dev/fd", own) && realpath(folder, real)
                && strcmp(real, own) == 0;
    bool number = ours && sscanf(name, "%d%n", &fd, &used) == 1 && !name[used];
    mem_free(folder);
    return number ? fd : -1;
}

/* Finds the place of the file, or opens a device or pipe directly.  The first stat follows links as
 * opening does, so that the kernel rejects links that strangers planted in a shared folder.  Errno.
 */
static int find_place(struct replace *r)
{
    struct stat s;
    bool there = stat(r->path, &s) == 0;
    if (!there && errno != ENOENT)
        return errno;
    char *at = mem_strdup(r->path);
    int error = at ? 0 : ENOMEM, fd = strcmp(r->path, "-") == 0 ? STDOUT_FILENO : -1;
    struct stat link;
    for (int i = 0; !error && fd < 0 && lstat(at, &link) == 0 && S_ISLNK(link.st_mode); i++) {
        fd = descriptor(at);
        if (fd < 0)
            error = i < LINKS ? follow(&at) : ELOOP;
    }
    if (!error && (fd >= 0 || (there && !S_ISREG(s.st_mode)))) {
        r->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : open(r->path, O_WRONLY | O_CLOEXEC);
        error = r->fd < 0 ? errno : 0;
    } else if (!error) {
        r->place = at;
        return 0;
    }
    mem_free(at);
    return error;
}

/* ---- the lock */

/* Whether the name still leads to the file that is open: a writer that had the lock before may
 * have removed it between our open and our lock. */
static bool is_at(int fd, const char *name)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && lstat(name, &there) == 0 && ours.st_ino == there.st_ino
           && ours.st_dev == there.st_dev;
}

static bool without_locks(int error)
{
    return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK;
}

/* Takes the lock.  *ret_left: the lock file was there, as one is that a killed process left.
 * Errno; EBUSY: another process has it. */
static int take_lock(struct replace *r, bool *ret_left)
{
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    for (int i = 0; i < TRIES; i++) {
        r->lock_fd = open(r->lock, flags | O_EXCL, 0666);
        bool left = r->lock_fd < 0 && errno == EEXIST;
        if (left)
            r->lock_fd = open(r->lock, flags, 0666);
        if (r->lock_fd < 0)
            return errno;
        int error = flock(r->lock_fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (without_locks(error)) {
            left = false; /* it may be that of a living process */
            error = 0;
        }
        if (!error && is_at(r->lock_fd, r->lock)) {
            r->lock_number = parts_note(r->lock);
            *ret_left = left;
            return 0;
        }
        close(r->lock_fd);
        r->lock_fd = -1;
        if (error)
            return error == EWOULDBLOCK ? EBUSY : error;
    }
    return EBUSY;
}

/* Whether a name in the folder is that of a part of ours. */
static bool is_part(const char *name, const char *head)
{
    size_t n = strlen(head);
    return strncmp(name, head, n) == 0 && strspn(name + n, "0123456789abcdef") == DIGITS
           && strcmp(name + n + DIGITS, ".part") == 0;
}

/* Removes the parts of killed processes at this place; under the lock, so that no writer is
 * alive. */
static void remove_left(const char *place)
{
    char head[HEAD];
    char *folder = beside(place, ".");
    DIR *dir = folder ? opendir(folder) : NULL;
    head_of(place, head);
    if (dir) {
        const struct dirent *e = readdir(dir);
        for (; e; e = readdir(dir))
            if (is_part(e->d_name, head))
                unlinkat(dirfd(dir), e->d_name, 0);
        closedir(dir);
    }
    mem_free(folder);
}

/* ---- opening */

/* A new file of an unpredictable name.  Errno. */
static int create_part(struct replace *r, mode_t mode)
{
    char name[HEAD + DIGITS + 8];
    head_of(r->place, name);
    size_t n = strlen(name);
    for (int i = 0; i < TRIES; i++) {
        uint64_t random;
        int without = os_random(&random, sizeof random);
        if (without)
            return without;
        snprintf(name + n, sizeof name - n, "%016" PRIx64 ".part", random);
        r->part = beside(r->place, name);
        if (!r->part)
            return ENOMEM;
        r->part_number = parts_note(r->part); /* first: a signal may arrive between */
        r->fd = open(r->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        int error = r->fd < 0 ? errno : 0;
        if (!error && r->existed && fchmod(r->fd, mode) != 0)
            error = errno;
        if (error != EEXIST)
            return error;
        parts_done(r->part_number);
        r->part_number = -1;
        mem_free(r->part);
        r->part = NULL;
    }
    return EEXIST;
}

static void forget(struct replace *r)
{
    int error = r->error;
    if (r->fd >= 0)
        close(r->fd);
    if (r->lock_fd >= 0) {
        unlink(r->lock); /* under the lock: whoever has opened it by then sees that it is gone */
        close(r->lock_fd);
    }
    parts_done(r->part_number);
    parts_done(r->lock_number);
    mem_free_all(r->place, r->part, r->lock);
    *r = closed;
    r->error = error;
}

/* Ends it with a sentence.  A lock that is there and cannot be opened is named itself. */
static int refuse(struct replace *r, int error, struct kvf_diag *d)
{
    const char *why = error == EBUSY ? "another process is writing it" : strerror(error);
    struct stat s;
    bool of_lock = r->lock && r->lock_fd < 0 && error != EBUSY && lstat(r->lock, &s) == 0;
    int err = error == ENOMEM ? KVF_E_NOMEM : KVF_E_IO;
    char *folder = beside(r->path, "");
    if (error == ENOENT && folder && *folder && stat(folder, &s) != 0 && errno == ENOENT)
        kvf_fail(d, err, "%s: cannot write: the folder %s does not exist; make it with 'mkdir -p'",
                 r->path, folder);
    else
        kvf_fail(d, err, "%s: cannot write: %s", of_lock ? r->lock : r->path, why);
    mem_free(folder);
    r->error = error;
    replace_abandon(r);
    return err;
}

static char *lock_of(const char *place)
{
    char name[HEAD + 4];
    head_of(place, name);
    memcpy(name + strlen(name), "lock", sizeof "lock");
    return beside(place, name);
}

/* Looks for an older file, under the lock: one that another writer finished since the place was
 * found is older, too.  Errno; EACCES: the file may not be written. */
static int find_older(struct replace *r, mode_t *ret_mode)
{
    struct stat s;
    r->existed = lstat(r->place, &s) == 0;
    *ret_mode = r->existed ? s.st_mode & 0777 : 0666;
    return r->existed && faccessat(AT_FDCWD, r->place, W_OK, AT_EACCESS) != 0 ? errno : 0;
}

/* Finds the place and takes its lock.  Errno. */
static int claim(struct replace *r, const char *path, mode_t *ret_mode)
{
    bool left = false;
    *r = closed;
    r->path = path;
    int error = find_place(r);
    if (error || !r->place)
        return error;
    r->lock = lock_of(r->place);
    if (!r->lock)
        return ENOMEM;
    error = take_lock(r, &left);
    if (!error)
        error = find_older(r, ret_mode);
    if (!error && left)
        remove_left(r->place);
    return error;
}

int replace_open(struct replace *r, const char *path, struct kvf_diag *d)
{
    mode_t mode = 0;
    int error = claim(r, path, &mode);
    if (!error && r->place)
        error = create_part(r, mode);
    return error ? refuse(r, error, d) : KVF_OK;
}

int replace_resume(struct replace *r, const char *path, struct kvf_diag *d)
{
    mode_t mode = 0;
    int error = claim(r, path, &mode);
    if (!error && !r->place)
        error = EINVAL;
    if (!error) {
        r->part = with_suffix(r->place);
        r->shown = true;
        r->fd = r->part ? open(r->part, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
        error = r->fd < 0 ? errno : 0;
    }
    return error ? refuse(r, error, d) : KVF_OK;
}

/* Folders that cannot be opened or synced (some file systems) are let be. */
void replace_sync_folder(const char *path)
{
    char *folder = beside(path, ".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    mem_free(folder);
}

int replace_show(struct replace *r, struct kvf_diag *d)
{
    char *name = r->place ? with_suffix(r->place) : NULL;
    int error = r->place ? 0 : EINVAL;
    if (!error && !name)
        error = ENOMEM;
    if (!error && rename(r->part, name) != 0)
        error = errno;
    if (error) {
        mem_free(name);
        return kvf_fail(d, error == ENOMEM ? KVF_E_NOMEM : KVF_E_IO, "%s: cannot write: %s",
                        r->path, strerror(error));
    }
    parts_done(r->part_number);
    r->part_number = -1;
    mem_free(r->part);
    r->part = name;
    r->shown = true;
    replace_sync_folder(r->place); /* data synced later survives a loss of power */
    return KVF_OK;
}

/* ---- writing */

void replace_write(struct replace *r, const void *p, size_t n)
{
    const char *at = p;
    while (n && !r->error) {
        ssize_t k = write(r->fd, at, n);
        if (k > 0) {
            at += k;
            n -= (size_t)k;
        } else if (k == 0 || errno != EINTR) {
            r->error = k == 0 ? ENOSPC : errno;
        }
    }
}

void replace_seek(struct replace *r, size_t at)
{
    if (!r->error && lseek(r->fd, (off_t)at, SEEK_SET) < 0)
        r->error = errno;
}

int replace_finish(struct replace *r, struct kvf_diag *d)
{
    if (!r->error && r->place && fsync(r->fd) != 0)
        r->error = errno;
    if (!r->error && r->place && rename(r->part, r->place) != 0) /* under the lock */
        r->error = errno;
    if (!r->error && !r->place && close(r->fd) != 0) /* some file systems report a full disk here */
        r->error = errno;
    if (!r->place)
        r->fd = -1;
    if (r->error)
        return refuse(r, r->error, d);
    if (r->place)
        replace_sync_folder(r->place); /* only then the new name lasts */
    forget(r);
    return KVF_OK;
}

void replace_abandon(struct replace *r)
{
    if (r->part && !r->shown)
        unlink(r->part);
    forget(r);
}

void replace_drop(struct replace *r)
{
    r->shown = false;
    replace_abandon(r);
}

void replace_tidy(const char *path)
{
    char *lock = lock_of(path);
    struct replace r;
    struct stat s;
    mode_t mode;
    if (lock && lstat(lock, &s) == 0) {
        claim(&r, path, &mode);
        replace_abandon(&r);
    }
    mem_free(lock);
}

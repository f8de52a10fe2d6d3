#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/parts.h"
#include "base/replace.h"

/* The part's descriptor, locked, or -1.  A writer that had the lock before may have renamed
 * or removed the file between our open and our lock: then the name has another file now. */
static int open_locked(const char *part)
{
    for (;;) {
        struct stat ours, there;
        int fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return -1;
        bool busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (!busy && fstat(fd, &ours) == 0 && stat(part, &there) == 0 && ours.st_ino == there.st_ino
            && ours.st_dev == there.st_dev)
            return fd;
        close(fd);
        if (busy) {
            errno = EBUSY;
            return -1;
        }
    }
}

int replace_open(struct replace *r, const char *path, struct kvf_diag *d)
{
    struct buf part = {0};
    *r = (struct replace){.path = path, .fd = -1, .number = -1};
    buf_printf(&part, "%s.part", path);
    if (part.err) {
        buf_finish(&part);
        return KVF_E_NOMEM;
    }
    r->part = part.data;
    r->fd = open_locked(r->part);
    if (r->fd >= 0)
        r->number = parts_note(r->part);
    if (r->fd >= 0 && ftruncate(r->fd, 0) == 0)
        return KVF_OK;
    int why = errno;
    int err = kvf_fail(d, KVF_E_IO, "%s: cannot write: %s", path,
                       why == EBUSY ? "another process is writing it" : strerror(why));
    parts_done(r->number);
    if (r->fd >= 0)
        close(r->fd);
    mem_free(r->part);
    *r = (struct replace){.fd = -1, .number = -1, .error = why};
    return err;
}

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

/* The new name lasts only when its folder is on disk; folders that cannot be opened or
 * synced (some file systems) are let be, for the rename is done. */
static void sync_folder(const char *path)
{
    struct buf folder = {0};
    const char *slash = strrchr(path, '/');
    if (slash)
        buf_add(&folder, path, slash == path ? 1 : (size_t)(slash - path));
    else
        buf_str(&folder, ".");
    int fd = folder.err ? -1 : open(folder.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    buf_finish(&folder);
}

static void forget(struct replace *r)
{
    parts_done(r->number);
    if (r->fd >= 0)
        close(r->fd);
    mem_free(r->part);
    *r = (struct replace){.fd = -1, .number = -1};
}

int replace_finish(struct replace *r, struct kvf_diag *d)
{
    int err = KVF_OK;
    if (!r->error && fsync(r->fd) != 0)
        r->error = errno;
    if (!r->error && rename(r->part, r->path) != 0) /* under the lock, so that it is ours */
        r->error = errno;
    if (r->error) {
        err = kvf_fail(d, KVF_E_IO, "%s: cannot write: %s", r->path, strerror(r->error));
        unlink(r->part);
    } else {
        sync_folder(r->path);
    }
    forget(r);
    return err;
}

void replace_abandon(struct replace *r)
{
    if (r->part)
        unlink(r->part);
    forget(r);
}

/* file_bytes.c - reads a file into memory (file_bytes.h). */
#include "base/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvf/err.h>

#include "base/mem.h"

/* Reads n bytes. Memory grows with the bytes read, because the stated size of a file may be
 * false. */
int file_bytes(int fd, size_t n, unsigned char **ret)
{
    enum { STEP = 64 << 20 };
    unsigned char *p = mem_alloc_raw(n < STEP ? n : STEP, 1);
    size_t at = 0, capacity = n < STEP ? n : STEP;
    while (p && at < n) {
        if (at == capacity) {
            size_t more = n - capacity < capacity ? n : 2 * capacity;
            unsigned char *q = mem_grow(p, capacity, more, 1);
            if (!q)
                break;
            p = q;
            capacity = more;
        }
        ssize_t got = pread(fd, p + at, capacity - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            mem_free(p);
            return KVF_E_IO;
        }
        at += (size_t)got;
    }
    if (at < n || !p) {
        mem_free(p);
        return KVF_E_NOMEM;
    }
    *ret = p;
    return KVF_OK;
}

int file_regular(const char *path, size_t *ret_size)
{
    struct stat s;
    /* O_NONBLOCK: opening a pipe without a writer does not wait */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    int why = fstat(fd, &s) != 0 ? errno : 0;
    if (why || !S_ISREG(s.st_mode)) {
        close(fd);
        errno = why;
        return -1;
    }
    *ret_size = (size_t)s.st_size;
    return fd;
}

FILE *file_with_end(const char *path)
{
    struct stat s;
    FILE *f = fopen(path, "rb");
    if (f && fstat(fileno(f), &s) == 0 && S_ISCHR(s.st_mode) && !isatty(fileno(f))) {
        fclose(f);
        errno = ENODEV;
        return NULL;
    }
    return f;
}

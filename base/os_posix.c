/* os_posix.c - implements os.h with functions of every POSIX system. A port replaces functions
 * that its system can do better: macOS, for example, os_program_path with _NSGetExecutablePath. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "base/os.h"

/* All words share one condition variable; a woken thread checks its own word again. */
static pthread_mutex_t change = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void os_wait(_Atomic uint32_t *word, uint32_t seen)
{
    pthread_mutex_lock(&change);
    while (atomic_load(word) == seen)
        pthread_cond_wait(&changed, &change);
    pthread_mutex_unlock(&change);
}

void os_wake_all(_Atomic uint32_t *word)
{
    (void)word;
    pthread_mutex_lock(&change);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&change);
}

int os_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

uint64_t os_memory(void)
{
    return 0;
}

int os_random(void *out, size_t n)
{
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ssize_t got = read(fd, out, n);
    int error = got < 0 ? errno : EIO;
    close(fd);
    return got == (ssize_t)n ? 0 : error;
}

void os_huge_pages(void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

ssize_t os_program_path(char *out, size_t cap)
{
    (void)out;
    (void)cap;
    return -1;
}

/* Returns the feature that the compiler assumes for every processor. */
bool os_has_dot_products(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return true;
#else
    return false;
#endif
}

/* POSIX does not define how to request tiles, so they are not used. */
bool os_may_use_tiles(void)
{
    return false;
}

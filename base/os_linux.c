/* os_linux.c - implements os.h with system calls of Linux. Only this file may use them. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os.h"

void os_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void os_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int os_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

uint64_t os_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

int os_random(void *out, size_t n)
{
    return getrandom(out, n, 0) == (ssize_t)n ? 0 : errno;
}

/* A failure is ignored, because some kernels do not support it. */
void os_huge_pages(void *p, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);
#else
    (void)p;
    (void)bytes;
#endif
}

ssize_t os_program_path(char *out, size_t cap)
{
    return readlink("/proc/self/exe", out, cap);
}

bool os_has_dot_products(void)
{
#if defined(__aarch64__)
    return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
#else
    return false;
#endif
}

/* Linux provides the 8 KB of a thread's tiles only to processes that request them: feature 18,
 * XTILEDATA, with ARCH_REQ_XCOMP_PERM. Before 5.16 the request fails. */
bool os_may_use_tiles(void)
{
#if defined(__x86_64__)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return false;
#endif
}

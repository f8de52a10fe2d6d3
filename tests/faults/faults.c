/* faults.c - an LD_PRELOAD module that makes calls from a program to libc fail: one call of a kind,
 * or all calls from that one on. Only calls from the program itself count, not those of its
 * libraries, and only calls after the start of main. GLib ends a program that is out of memory, and
 * the program cannot change that.
 *
 * FAULT_KIND   alloc, write, sync, rename, open or cut (ftruncate)
 * FAULT_AT     the call that fails, from 1 on; 0: no call fails, calls are counted
 * FAULT_HOW    an errno; for writes also -1: half of it is written
 * FAULT_ON     1: all later calls fail, too
 * FAULT_TRACE  prints on standard error where the first failing call is made
 * FAULT_FILE   a file of sizeof(struct told) bytes for the results, which remain if the program
 *              is killed */
#undef _FILE_OFFSET_BITS /* write and write64 are two functions here */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_CALLS = 1 << 18, MOST_BLOCKS = 1 << 20, FRAMES = 8 };

struct told {
    uint64_t calls, failed;    /* calls of the kind; failed calls */
    int64_t live;              /* blocks that the program allocated and did not free */
    uint64_t from[MOST_CALLS]; /* a hash of the stack of each call, if no call is to fail */
};

static struct {
    const char *kind;
    long at;
    int how;
    bool on, ready, trace;
    uintptr_t begin, end; /* address range of the program */
    struct told *told;
    pthread_mutex_t lock;
    void *block[MOST_BLOCKS]; /* a hash table of allocated blocks */
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};
static __thread bool inside;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static int find_program(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
            own.begin = info->dlpi_addr + p->p_vaddr;
            own.end = own.begin + p->p_memsz;
        }
    }
    return 1; /* the program comes first */
}

__attribute__((constructor)) static void begin(void)
{
    const char *file = getenv("FAULT_FILE"), *kind = getenv("FAULT_KIND");
    if (!file || !kind)
        return;
    void *warm[2];
    backtrace(warm, 2);
    dl_iterate_phdr(find_program, NULL);
    int fd = (int)open(file, O_RDWR | O_CLOEXEC);
    void *p = mmap(NULL, sizeof(struct told), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        _exit(99);
    own.told = p;
    own.kind = kind;
    own.at = atol(getenv("FAULT_AT"));
    own.how = atoi(getenv("FAULT_HOW"));
    own.on = atoi(getenv("FAULT_ON"));
    own.trace = getenv("FAULT_TRACE") != NULL;
    unsetenv("LD_PRELOAD");
}

/* Calls count from the start of main. Libraries may need memory to register themselves before main,
 * as the CUDA runtime does with its kernels. */
typedef int main_fn(int argc, char **argv, char **env);
static main_fn *main_of_program;

static int watched_main(int argc, char **argv, char **env)
{
    own.ready = own.told != NULL;
    return main_of_program(argc, argv, env);
}

int __libc_start_main(main_fn *main_fn_, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    typedef int start_fn(main_fn *, int, char **, void (*)(void), void (*)(void), void (*)(void),
                         void *);
    start_fn *start = (__extension__(start_fn *) dlsym(RTLD_NEXT, "__libc_start_main"));
    main_of_program = main_fn_;
    return start(watched_main, argc, argv, init, fini, rtld_fini, stack_end);
}

static uint64_t number_of_stack(void)
{
    void *frame[FRAMES + 2];
    inside = true;
    int n = backtrace(frame, FRAMES + 2);
    inside = false;
    uint64_t h = 14695981039346656037u;
    for (int i = 2; i < n; i++)
        if ((uintptr_t)frame[i] >= own.begin && (uintptr_t)frame[i] < own.end)
            h = (h ^ ((uintptr_t)frame[i] - own.begin)) * 1099511628211u;
    return h;
}

static void print_stack(void)
{
    void *frame[32];
    inside = true;
    backtrace_symbols_fd(frame, backtrace(frame, 32), STDERR_FILENO);
    inside = false;
}

/* Returns true if this call from `caller` must fail. */
static bool fails(const char *kind, void *caller)
{
    uintptr_t a = (uintptr_t)caller;
    if (!own.ready || inside || a < own.begin || a >= own.end || strcmp(kind, own.kind) != 0)
        return false;
    uint64_t k = __atomic_add_fetch(&own.told->calls, 1, __ATOMIC_RELAXED);
    if (own.at == 0 && k <= MOST_CALLS)
        own.told->from[k - 1] = number_of_stack();
    bool now = own.at > 0 && (own.on ? k >= (uint64_t)own.at : k == (uint64_t)own.at);
    if (now && __atomic_add_fetch(&own.told->failed, 1, __ATOMIC_RELAXED) == 1 && own.trace)
        print_stack();
    return now;
}

static bool fails_with(const char *kind, void *caller)
{
    bool now = fails(kind, caller);
    if (now)
        errno = own.how;
    return now;
}

/* ---- memory */

static size_t slot_of(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 44) % MOST_BLOCKS;
}

static void *took(void *p, void *caller)
{
    uintptr_t a = (uintptr_t)caller;
    if (!p || !own.ready || inside || a < own.begin || a >= own.end)
        return p;
    pthread_mutex_lock(&own.lock);
    size_t i = slot_of(p);
    while (own.block[i] && own.block[i] != (void *)&own)
        i = (i + 1) % MOST_BLOCKS;
    own.block[i] = p;
    own.told->live++;
    pthread_mutex_unlock(&own.lock);
    return p;
}

static void gave_back(const void *p)
{
    if (!p || !own.ready)
        return;
    pthread_mutex_lock(&own.lock);
    size_t i = slot_of(p);
    while (own.block[i] && own.block[i] != p)
        i = (i + 1) % MOST_BLOCKS;
    if (own.block[i]) {
        own.block[i] = &own; /* was used before */
        own.told->live--;
    }
    pthread_mutex_unlock(&own.lock);
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t n)
{
    return fails_with("alloc", CALLER) ? NULL : took(__libc_malloc(n), CALLER);
}

void *calloc(size_t n, size_t size)
{
    return fails_with("alloc", CALLER) ? NULL : took(__libc_calloc(n, size), CALLER);
}

void *realloc(void *p, size_t n)
{
    if (fails_with("alloc", CALLER))
        return NULL;
    gave_back(p);
    return took(__libc_realloc(p, n), CALLER);
}

void *aligned_alloc(size_t align, size_t n)
{
    return fails_with("alloc", CALLER) ? NULL : took(__libc_memalign(align, n), CALLER);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
    if (fails("alloc", CALLER))
        return ENOMEM;
    *ret = took(__libc_memalign(align, n), CALLER);
    return *ret ? 0 : ENOMEM;
}

void free(void *p)
{
    gave_back(p);
    __libc_free(p);
}

/* ---- files */

#define REAL(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

/* Returns how many of n bytes may be written; < 0: the call fails. */
static ssize_t room(int fd, size_t n, void *caller)
{
    if (fd <= STDERR_FILENO || !fails_with("write", caller))
        return (ssize_t)n;
    return own.how < 0 ? (ssize_t)(n / 2 + n % 2) : -1;
}

ssize_t write(int fd, const void *p, size_t n)
{
    ssize_t most = room(fd, n, CALLER);
    return most < 0 ? -1 : REAL(write)(fd, p, (size_t)most);
}

#define PWRITE(name)                                                                               \
    ssize_t name(int fd, const void *p, size_t n, off_t at)                                        \
    {                                                                                              \
        ssize_t most = room(fd, n, CALLER);                                                        \
        return most < 0 ? -1 : REAL(name)(fd, p, (size_t)most, at);                                \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

/* With several buffers, writes half of the first one that is not empty. */
#define PWRITEV(name)                                                                              \
    ssize_t name(int fd, const struct iovec *v, int n, off_t at)                                   \
    {                                                                                              \
        while (n > 1 && v->iov_len == 0)                                                           \
            v++, n--;                                                                              \
        ssize_t most = room(fd, v->iov_len, CALLER);                                               \
        const struct iovec one = {v->iov_base, (size_t)most};                                      \
        if (most < 0)                                                                              \
            return -1;                                                                             \
        bool all = (size_t)most == v->iov_len;                                                     \
        return REAL(name)(fd, all ? v : &one, all ? n : 1, at);                                    \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

int fsync(int fd)
{
    return fails_with("sync", CALLER) ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
    return fails_with("sync", CALLER) ? -1 : REAL(fdatasync)(fd);
}

int rename(const char *a, const char *b)
{
    return fails_with("rename", CALLER) ? -1 : REAL(rename)(a, b);
}

int ftruncate(int fd, off_t n)
{
    return fails_with("cut", CALLER) ? -1 : REAL(ftruncate)(fd, n);
}

int ftruncate64(int fd, off_t n)
{
    return fails_with("cut", CALLER) ? -1 : REAL(ftruncate64)(fd, n);
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(ap, int) : 0;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = mode_of(flags, ap);                                                          \
        va_end(ap);                                                                                \
        return fails_with("open", CALLER) ? -1 : REAL(name)(path, flags, mode);                    \
    }
OPEN(open)
OPEN(open64)

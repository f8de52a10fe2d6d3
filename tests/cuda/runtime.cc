/* runtime.cc - emulates the CUDA runtime: streams that run their work at the next wait, memory,
 * copies and device properties; see emulation.hh. */
#include "tests/cuda/emulation.hh"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/emulation_c.h"

namespace emulated
{
/* Reads a number, or the number in the file of that path. Returns `otherwise` if the file does not
 * exist. */
static long number_at(const char *at, long otherwise)
{
    if (*at != '/')
        return atol(at);
    std::string path(at, strcspn(at, ","));
    FILE *f = fopen(path.c_str(), "r");
    long n = otherwise;
    if (f && fscanf(f, "%ld", &n) != 1)
        n = otherwise;
    if (f)
        fclose(f);
    return n;
}

/* Returns the value of a name in KVF_EMULATED, or `otherwise` if it is not set. */
long asked(const char *name, long otherwise)
{
    const char *at = getenv("KVF_EMULATED");
    std::string key = std::string(name) + "=";
    for (; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, key.c_str(), key.size()) == 0)
            return number_at(at + key.size(), otherwise);
    return otherwise;
}

long n_launches;
bool lost()
{
    long after = asked("lost", -1);
    return after >= 0 && n_launches > after;
}

/* The pending work of a stream, in order. */
struct queue {
    std::deque<std::function<void()>> todo;
};
static queue stream; /* the main stream, which the host waits for */
static long n_waits, n_arrivals;
static long long n_home; /* bytes copied to the host */

/* A position in a stream. */
struct event {
    queue *of;
    bool done;
};

static queue *queue_of(cudaStream_t s)
{
    return s ? s : &stream;
}

/* Runs the next work item. The item is removed first, because it may wait for another stream that
 * waits for this one. */
static void run_next(queue *q)
{
    std::function<void()> f = std::move(q->todo.front());
    q->todo.pop_front();
    f();
}

void run_stream()
{
    while (!stream.todo.empty())
        run_next(&stream);
}

static void run_until(const event *e)
{
    while (!e->done && !e->of->todo.empty())
        run_next(e->of);
}

static void wait_stream()
{
    n_waits++;
    run_stream();
}

void later(const std::function<void()> &work)
{
    stream.todo.push_back(work);
}
} // namespace emulated

using emulated::run_stream;
using emulated::stream;

long emulation_launches(void)
{
    return emulated::n_launches;
}

long long emulation_bytes_home(void)
{
    return emulated::n_home;
}

long emulation_arrivals(void)
{
    return emulated::n_arrivals;
}

long emulation_waits(void)
{
    return emulated::n_waits;
}

/* An allocation that ends at most 16 bytes before a page without access. */
struct device_span {
    void *base;
    size_t all, used; /* mapped bytes; bytes from the start of the allocation */
};
static std::map<void *, device_span> device_memory;
static std::map<void *, size_t> pinned_memory;
static size_t memory_used;

static cudaError_t last_error;
static cudaError_t status()
{
    return emulated::lost() ? cudaErrorLaunchFailure : cudaSuccess;
}

namespace emulated
{
int said(int error)
{
    last_error = error != cudaSuccess ? error : last_error;
    return error;
}

static size_t size_of(const device_span &d)
{
    return d.used;
}
static size_t size_of(size_t bytes)
{
    return bytes;
}
template <class M> static bool within(const M &all, const void *p, size_t bytes)
{
    auto it = all.upper_bound((void *)p);
    if (it == all.begin())
        return false;
    --it;
    return (const char *)p + bytes <= (const char *)it->first + size_of(it->second);
}

bool in_device(const void *p, size_t bytes)
{
    return within(device_memory, p, bytes);
}

bool in_pinned(const void *p, size_t bytes)
{
    return within(pinned_memory, p, bytes);
}

/* Checks one end of a copy. Pageable host memory cannot be checked. */
static bool end_is_right(const void *p, size_t bytes, bool device, bool of_graph)
{
    if (device)
        return in_device(p, bytes);
    return of_graph ? in_pinned(p, bytes) : p && !in_device(p, 1);
}

bool copy_is_right(const void *to, size_t ld_to, const void *from, size_t ld_from, size_t width,
                   size_t n, int kind, bool of_graph)
{
    bool sized = width > 0 && n > 0 && ld_to >= width && ld_from >= width;
    bool right =
        sized && end_is_right(to, (n - 1) * ld_to + width, kind != cudaMemcpyDeviceToHost, of_graph)
        && end_is_right(from, (n - 1) * ld_from + width, kind != cudaMemcpyHostToDevice, of_graph);
    if (!right) {
        note("copy", sized ? "an end is no memory of its kind" : "of nothing");
    }
    return right;
}

static std::map<const void *, size_t> allowance; /* of kernels that have set a limit */
int allow(const void *kernel, int bytes)
{
    if (bytes > MOST_SHARED)
        return said(cudaErrorInvalidValue);
    allowance[kernel] = (size_t)bytes;
    return cudaSuccess;
}
size_t allowed_of(const void *kernel)
{
    auto it = allowance.find(kernel);
    return it == allowance.end() ? (size_t)UNASKED : it->second;
}

/* Host memory that pending copies will still access. */
struct flight {
    const char *from, *to;
};
static std::list<flight> flying;
static bool flies(const void *p, size_t bytes)
{
    for (const flight &f : flying)
        if (f.from < (const char *)p + bytes && (const char *)p < f.to)
            return true;
    return false;
}
/* Enqueues f, which accesses `bytes` bytes of host memory. */
static void fly(queue *q, const void *host, size_t bytes, const std::function<void()> &f)
{
    auto own = flying.insert(flying.end(), {(const char *)host, (const char *)host + bytes});
    q->todo.push_back([=] {
        f();
        flying.erase(own);
    });
}
} // namespace emulated

static size_t memory_of_device()
{
    return (size_t)emulated::asked("memory", 64L << 30);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (bytes + 15) / 16 * 16;
    size_t all = (used + page - 1) / page * page + page;
    if (status() != cudaSuccess)
        return status();
    if (memory_used + all > memory_of_device())
        return emulated::said(cudaErrorMemoryAllocation);
    char *base = (char *)mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                              0);
    if (base == MAP_FAILED)
        return emulated::said(cudaErrorMemoryAllocation);
    mprotect(base + all - page, page, PROT_NONE);
    *p = base + all - page - used;
    memset(*p, 0xff, used); /* NaN reveals use before initialisation */
    device_memory[*p] = {base, all, bytes};
    memory_used += all;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    emulated::wait_stream();
    auto it = device_memory.find(p);
    if (it != device_memory.end()) {
        memory_used -= it->second.all;
        munmap(it->second.base, it->second.all);
        device_memory.erase(it);
    }
    return cudaSuccess;
}

static void copy_rows(void *to, size_t ld_to, const void *from, size_t ld_from, size_t width,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy((char *)to + i * ld_to, (const char *)from + i * ld_from, width);
}

/* A lost device returns noise. */
cudaError_t cudaMemcpy2DAsync(void *to, size_t ld_to, const void *from, size_t ld_from,
                              size_t width, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
    emulated::queue *q = emulated::queue_of(s);
    emulated::n_calls++;
    emulated::n_copies++;
    if (kind == cudaMemcpyDeviceToHost)
        emulated::n_home += (long long)(width * n);
    if (status() != cudaSuccess) {
        for (size_t i = 0; i < n; i++)
            memset((char *)to + i * ld_to, 0xff, width);
        return status();
    }
    if (!emulated::copy_is_right(to, ld_to, from, ld_from, width, n, kind, false))
        return emulated::said(cudaErrorInvalidValue);
    const void *host = kind == cudaMemcpyHostToDevice ? from : to;
    size_t ld = kind == cudaMemcpyHostToDevice ? ld_from : ld_to, span = (n - 1) * ld + width;
    bool pinned = kind == cudaMemcpyDeviceToDevice || emulated::in_pinned(host, span);
    if (kind == cudaMemcpyHostToDevice && !pinned) {
        std::string copy(width * n, 0);
        copy_rows(&copy[0], width, from, ld_from, width, n);
        q->todo.push_back([=] { copy_rows(to, ld_to, copy.data(), width, width, n); });
        return cudaSuccess;
    }
    emulated::fly(q, host, kind == cudaMemcpyDeviceToDevice ? 0 : span,
                  [=] { copy_rows(to, ld_to, from, ld_from, width, n); });
    if (kind == cudaMemcpyDeviceToHost && !pinned)
        run_stream(); /* a caller that waits is counted again there */
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    return cudaMemcpy2DAsync(to, n, from, n, n, 1, kind, s);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t)
{
    emulated::n_calls++;
    emulated::n_copies++;
    if (n == 0 || !emulated::in_device(p, n)) {
        emulated::fault("zeros in what is no memory of the device", "of", n, nullptr, nullptr);
        return emulated::said(cudaErrorInvalidValue);
    }
    stream.todo.push_back([=] { memset(p, value, n); });
    return status();
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    if (status() != cudaSuccess)
        return status();
    *p = malloc(bytes);
    if (!*p)
        return emulated::said(cudaErrorMemoryAllocation);
    memset(*p, 0xff, bytes);
    pinned_memory[*p] = bytes;
    return cudaSuccess;
}

/* Frees pinned memory without waiting for copies. */
static bool give_back(void *p)
{
    auto it = pinned_memory.find(p);
    if (it == pinned_memory.end())
        return false;
    if (emulated::flies(p, it->second)) {
        emulated::fault("given back while a copy is on its way:", "pinned", it->second, nullptr,
                        nullptr);
        emulated::run_stream(); /* while the memory still exists */
    }
    pinned_memory.erase(it);
    return true;
}

cudaError_t cudaFreeHost(void *p)
{
    if (!give_back(p))
        return emulated::said(cudaErrorInvalidValue);
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    if (status() != cudaSuccess)
        return status();
    for (const auto &known : pinned_memory)
        if ((char *)known.first < (char *)p + bytes
            && (char *)p < (char *)known.first + known.second)
            return emulated::said(cudaErrorHostMemoryAlreadyRegistered);
    pinned_memory[p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    return give_back(p) ? status() : emulated::said(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    *s = nullptr;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new emulated::queue;
    return status();
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new emulated::event{nullptr, true};
    return status();
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    emulated::n_calls++;
    e->of = emulated::queue_of(s);
    e->done = false;
    e->of->todo.push_back([=] { e->done = true; });
    return status();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    if (!e->done) /* wait for earlier work, not for later work */
        emulated::queue_of(s)->todo.push_back([=] { emulated::run_until(e); });
    return status();
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    emulated::n_arrivals++;
    emulated::run_until(e);
    return status();
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    emulated::wait_stream();
    return status();
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = status() != cudaSuccess ? status() : last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *)
{
    a->ptxVersion = (int)emulated::asked("ptx", 10 * emulated::asked("major", 9));
    if (!emulated::asked("kernels", 1))
        return emulated::said(cudaErrorNoKernelImageForDevice);
    return status();
}

cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *v)
{
    *v = (int)emulated::asked("driver", 13000);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    int driver, built;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&built);
    *n = driver / 1000 < built / 1000 ? 0 : (int)emulated::asked("devices", 1);
    if (driver / 1000 < built / 1000)
        return cudaErrorInsufficientDriver;
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated device");
    p->totalGlobalMem = memory_of_device();
    p->major = (int)emulated::asked("major", 9);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
    *value = (int)emulated::asked("processors", 2);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *all)
{
    *all = memory_of_device();
    *free = *all - memory_used;
    return status();
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    default:
        return "another error";
    }
}

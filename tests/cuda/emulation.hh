/* emulation.hh - the CUDA features that the .cu files of engine/cuda use, for a host C++ compiler.
 *
 * The build puts this header before a .cu file (-include), so that the same source compiles as
 * plain C++. A launch runs its blocks one after the other. The lanes of a block are fibres that
 * switch only at barriers and collectives, in an order shuffled by a seed. A warp runs to the next
 * block barrier before another warp runs; in one block of eight, the lanes of all warps are mixed.
 * The emulation proves results, not speed.
 *
 * Shared memory is watched (watched.hh). Each access records its lane and the number of block and
 * warp barriers before it. Two accesses by different lanes to one element are a race if at least
 * one writes and no barrier separates them, in whatever order they ran. These are faults too: a
 * read of an element that was never written, an index out of bounds, a barrier that not all lanes
 * reach, a collective with missing lanes, and a collective mask without all lanes. Device memory
 * (cudaMalloc) ends at a page without access. emulation_c.h returns the number of faults and the
 * first one.
 *
 * Everything that a real device rejects is a fault: grid and block sizes, argument bytes, shared
 * memory above the kernel's limit, misaligned access to fours and pieces in it, copies of 0 bytes
 * or with an end in the wrong kind of memory, and memory that is freed while a copy uses it. An
 * error persists until cudaGetLastError().
 *
 * Launches and copies are queued and run when the host waits for the stream, because a device may
 * be that late. Copies read and write pinned memory at that time. Copies with other host memory
 * behave as in the CUDA runtime: copies from it have read their data when they return, copies to it
 * wait. emulation_waits counts the waits. A wait for an event in a graph runs only the work that
 * the event depends on.
 *
 * The environment variable KVF_EMULATED sets properties of the device as name=number pairs with
 * commas between them. The names and defaults are: devices (number of devices; 1), driver
 * (supported CUDA version; 13000; 0: no driver), major (compute capability; 9), ptx (compute
 * capability for which kernels were compiled; that of the device), kernels (0: no kernels for this
 * device; 1), processors (2), memory (bytes; no limit), lost (the device is lost after this many
 * launches; never), graphs (0: the driver supports no graphs; 1), and told (0: it rejects graph
 * updates; 1). The path of a file (/...) with the number may replace a number, so that memory and
 * lost can change during a run. */
#ifndef KVF_TESTS_CUDA_EMULATION_H
#define KVF_TESTS_CUDA_EMULATION_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "engine/kernels/packed.h"
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define GIVEN const

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace emulated
{
struct fibre;
struct lane {
    uint3 thread;
    unsigned number;
    int state, line;   /* line where the lane waits */
    bool waited;       /* for the work before its kernel (earlier_done) */
    const void *given; /* values of its warp */
    fibre *on;         /* fibre that runs the lane; NULL: not started */
};

extern lane *current;
extern uint3 block_index;
extern dim3 block_size, grid_size;
extern unsigned block_serial; /* unique for each block of each launch */

/* allowed: maximum bytes of dynamic shared memory for the kernel, or UNASKED. */
enum { MOST_ARG_BYTES = 4096, UNASKED = 48 << 10, MOST_SHARED = 227 << 10 };
void launch(const char *kernel, dim3 grid, dim3 block, size_t bytes,
            const std::function<void()> &body, size_t allowed = UNASKED);
long asked(const char *name, long otherwise);        /* value of a name in KVF_EMULATED */
void later(const std::function<void()> &work);       /* enqueues work on the stream */
void run_stream();                                   /* runs all pending work */
bool lost();                                         /* true if the device is lost */
void note(const char *who, const std::string &text); /* records a fault */
extern long n_launches;
extern long n_calls, n_copies; /* driver calls and copies (graphs.cc) */

/* How to call a kernel with packed arguments, as the program image on a device would know it. */
struct known_kernel {
    const char *name;
    void (*call)(const void *kernel, char *const *arg);
    std::vector<size_t> size; /* bytes of each argument */
};
void know(const void *kernel, const known_kernel &how);
int allow(const void *kernel, int bytes); /* returns a runtime error code */
size_t allowed_of(const void *kernel);
unsigned draw(unsigned n); /* returns a random number below n */
int said(int error);       /* records the error for cudaGetLastError */
/* Return true if the range is completely in device memory, or in pinned memory. */
bool in_device(const void *p, size_t bytes);
bool in_pinned(const void *p, size_t bytes);
/* Checks that the ends of a copy of n rows match its kind; otherwise it reports a fault. */
bool copy_is_right(const void *to, size_t ld_to, const void *from, size_t ld_from, size_t width,
                   size_t n, int kind, bool of_graph);
template <class... P, size_t... I>
void call_kernel(void (*kernel)(P...), char *const *arg, std::index_sequence<I...>)
{
    (void)arg;
    kernel(*(P *)(void *)arg[I]...);
}
template <class... P> void kernel_is(const char *name, void (*kernel)(P...))
{
    know((const void *)kernel, {name,
                                [](const void *k, char *const *arg) {
                                    call_kernel((void (*)(P...))k, arg,
                                                std::index_sequence_for<P...>());
                                },
                                {sizeof(P)...}});
}
template <class T> uint64_t to_bits(T v)
{
    uint64_t b = 0;
    static_assert(sizeof v <= sizeof b, "what a lane gives to its warp");
    memcpy(&b, &v, sizeof v);
    return b;
}
template <class T> T from_bits(uint64_t b)
{
    T v;
    memcpy(&v, &b, sizeof v);
    return v;
}
} // namespace emulated

#include "tests/cuda/fibre.hh"
#include "tests/cuda/watched.hh"

#define threadIdx (emulated::current->thread)
#define blockIdx (emulated::block_index)
/* blockDim and gridDim expand to plain names. A qualified name would break the members of runtime
 * structs that have the same names. */
[[maybe_unused]] static dim3 &emulated_block = emulated::block_size;
[[maybe_unused]] static dim3 &emulated_grid = emulated::grid_size;
#define blockDim emulated_block
#define gridDim emulated_grid

/* Definitions that replace those in device.cuh. */
#define SHARED(type, name, n)                                                                      \
    static emulated::shared_array<type, (n)> name(#name, sizeof(type) % 16 == 0)
#define SHARED_FOURS(type, name, n) static emulated::shared_array<type, (n)> name(#name, true)
#define SHARED_DYNAMIC(type, name)                                                                 \
    emulated::shared_address<type> name = emulated::dynamic<type>(#name)
template <class T> using in_shared = emulated::shared_address<T>;
#define KERNEL_IS(name, kernel) emulated::kernel_is(name, kernel)

inline void __syncthreads(int line = __builtin_LINE())
{
    emulated::wait_block(line, 0);
}
inline int __syncthreads_or(int v, int line = __builtin_LINE())
{
    return emulated::wait_block(line, v);
}
namespace emulated
{
inline void all_lanes(unsigned mask)
{
    if (mask != ~0u)
        fault("a mask without all lanes", "mask", mask, nullptr, __builtin_return_address(0));
}
} // namespace emulated
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE())
{
    emulated::all_lanes(mask);
    emulated::wait_warp_barrier(line);
}

template <class T>
T __shfl_sync(unsigned mask, T v, int from, int width = 32, int line = __builtin_LINE())
{
    emulated::all_lanes(mask);
    unsigned me = emulated::current->number % 32, base = me / (unsigned)width * (unsigned)width;
    const uint64_t *all = emulated::wait_warp(line, emulated::to_bits(v));
    return emulated::from_bits<T>(all[base + (unsigned)from % (unsigned)width]);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int turn, int line = __builtin_LINE())
{
    emulated::all_lanes(mask);
    unsigned me = emulated::current->number % 32;
    return emulated::from_bits<T>(
        emulated::wait_warp(line, emulated::to_bits(v))[me ^ (unsigned)turn]);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned d, int line = __builtin_LINE())
{
    emulated::all_lanes(mask);
    unsigned me = emulated::current->number % 32;
    const uint64_t *all = emulated::wait_warp(line, emulated::to_bits(v));
    return me >= d ? emulated::from_bits<T>(all[me - d]) : v;
}
inline unsigned __ballot_sync(unsigned mask, int v, int line = __builtin_LINE())
{
    emulated::all_lanes(mask);
    const uint64_t *all = emulated::wait_warp(line, v != 0);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (unsigned)(all[i] != 0) << i;
    return bits;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned v, int line = __builtin_LINE())
{
    emulated::all_lanes(mask);
    const uint64_t *all = emulated::wait_warp(line, v);
    unsigned sum = 0;
    for (int i = 0; i < 32; i++)
        sum += (unsigned)all[i];
    return sum;
}

inline unsigned __reduce_or_sync(unsigned mask, unsigned v, int line = __builtin_LINE())
{
    emulated::all_lanes(mask);
    const uint64_t *all = emulated::wait_warp(line, v);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (unsigned)all[i];
    return bits;
}

inline void __threadfence() {}
template <class T> T __ldcg(const T *p)
{
    return *p;
}

template <class P, class T> T atomicAdd(P p, T v)
{
    return emulated::atomic(p, [v](auto old) { return (decltype(old))(old + v); });
}
template <class P, class T> T atomicMax(P p, T v)
{
    return emulated::atomic(p, [v](auto old) { return old > v ? old : v; });
}
template <class P, class T> T atomicMin(P p, T v)
{
    return emulated::atomic(p, [v](auto old) { return old < v ? old : v; });
}

struct __half {
    unsigned short bits;
};
inline __half __ushort_as_half(unsigned short b)
{
    return {b};
}
inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}
inline float __half2float(__half h)
{
    return half_to_float(h.bits);
}
inline __half __float2half_rn(float f)
{
    return {float_to_half(f)};
}
inline unsigned __float_as_uint(float f)
{
    return emulated::from_bits<unsigned>(emulated::to_bits(f));
}
inline float __uint_as_float(unsigned u)
{
    return emulated::from_bits<float>(u);
}
inline long long __double2ll_rn(double d)
{
    return (long long)nearbyint(d);
}
inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
inline int __clz(int v)
{
    return v ? __builtin_clz((unsigned)v) : 32;
}
inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}

/* The runtime. Work on the main stream runs when the host waits for the stream. Work on other
 * streams runs no sooner than the host waits for one of their events. */
namespace emulated
{
struct queue;
struct event;
} // namespace emulated
typedef int cudaError_t;
typedef emulated::queue *cudaStream_t;
typedef emulated::event *cudaEvent_t;
enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchFailure = 719,
    cudaErrorUnknown = 999,
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor;
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemcpy2DAsync(void *to, size_t ld_to, const void *from, size_t ld_from,
                              size_t width, size_t n, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
enum { cudaHostRegisterDefault };
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t);
cudaError_t cudaStreamCreate(cudaStream_t *s);
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags); /* a secondary one */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaGetLastError(void);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device);
cudaError_t cudaMemGetInfo(size_t *free, size_t *all);
cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaRuntimeGetVersion(int *v);
const char *cudaGetErrorString(cudaError_t e);

/* Graphs: nodes that store their parameters. graphs.cc runs them. */
namespace emulated
{
struct node;
struct graph;
struct exec;
} // namespace emulated
typedef emulated::node *cudaGraphNode_t;
typedef emulated::graph *cudaGraph_t;
typedef emulated::exec *cudaGraphExec_t;
struct cudaKernelNodeParams {
    void *func;
    dim3 gridDim, blockDim;
    unsigned sharedMemBytes;
    void **kernelParams, **extra;
};
struct cudaMemsetParams {
    void *dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
};
cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                                   size_t n_after, const cudaKernelNodeParams *p);
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *n, cudaGraph_t g,
                                     const cudaGraphNode_t *after, size_t n_after, void *to,
                                     const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *after,
                                   size_t n_after, const cudaMemsetParams *p);
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *n, cudaGraph_t g,
                                        const cudaGraphNode_t *after, size_t n_after,
                                        cudaEvent_t e);
#define CUDART_VERSION 13000
enum { cudaGraphKernelNodePortProgrammatic = 1, cudaGraphDependencyTypeProgrammatic = 1 };
struct cudaGraphEdgeData {
    unsigned char from_port, to_port, type;
};
cudaError_t cudaGraphAddDependencies(cudaGraph_t g, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *how,
                                     size_t n);
enum cudaLaunchAttributeID { cudaLaunchAttributePriority = 8 };
struct cudaLaunchAttributeValue {
    int priority;
};
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t n, cudaLaunchAttributeID which,
                                            const cudaLaunchAttributeValue *v);
enum { cudaGraphInstantiateFlagUseNodePriority = 8 };
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t n,
                                             const cudaKernelNodeParams *p);
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t n, void *to,
                                               const void *from, size_t bytes, cudaMemcpyKind);
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t n,
                                             const cudaMemsetParams *p);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t);
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class F> cudaError_t cudaFuncSetAttribute(F kernel, cudaFuncAttribute, int bytes)
{
    return emulated::allow((const void *)kernel, bytes);
}
struct cudaFuncAttributes {
    int ptxVersion;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *kernel);

/* Marks that the lane has waited for the previous kernel. Each lane of a kernel that a graph may
 * start early must do so; graphs.cc checks it. */
inline void earlier_done()
{
    emulated::current->waited = true;
}
inline void ask_for_line(const void *p)
{
    if (!emulated::in_device(p, 1))
        emulated::note("ask_for_line", "a line that is not in the device's memory");
}
inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

#include "tests/cuda/tensor.hh"

#endif

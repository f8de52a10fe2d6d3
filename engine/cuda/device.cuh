/* device.cuh - helpers of all kernels: launches, shared memory, sums over a warp and a block, and
 * access to elements of the cache.
 *
 * A kernel file includes only this CUDA header. Without nvcc it is compiled with an emulation of a
 * block, which defines the same names first (tests/cuda/emulation.hh). */
#ifndef KVF_ENGINE_CUDA_DEVICE_CUH
#define KVF_ENGINE_CUDA_DEVICE_CUH

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define SHARED(type, name, n) __shared__ type name[n]
#define SHARED_FOURS(type, name, n) __shared__ __align__(16) type name[n] /* float4 loads */
#define SHARED_DYNAMIC(type, name) extern __shared__ type name[]
template <class T> using in_shared = T *; /* the address of an element */
#define KERNEL_IS(name, kernel) ((void)0)
/* Qualifies a large kernel parameter that is read in place instead of copied. */
#define GIVEN const __grid_constant__
#endif

#include <math.h>
#include <stdint.h>

#define DEVICE static __device__ __forceinline__
/* The prefixes of functions in headers that C and CUDA share. */
#define FORMULA_FN DEVICE
#define RNG_FN DEVICE
#define restrict __restrict__ /* the headers below are C headers */
extern "C" {
#include "base/mem.h"
#include "engine/kernels/kernels.h"
}
#include "engine/cuda/gpu.h"
#include "engine/kernels/ranking.h"

/* A device with its stream and buffers. */
struct gpu {
    int which;
    cudaStream_t stream;
    cudaError_t error; /* first error of a copy or an allocation */
    /* Used by gemm.cu: inputs of cuBLAS, grown on demand. */
    struct blas *blas; /* NULL: not yet opened, or unavailable (no_blas) */
    bool no_blas;
    void *gemm_x, *gemm_w;
    size_t gemm_x_bytes, gemm_w_bytes;
    void *parts; /* used by attention_tensor.cu, grown on demand */
    size_t parts_bytes;
    void *rows; /* used by rows_tensor.cu, grown on demand */
    size_t rows_bytes;
    size_t step_room[2][2][4]; /* used by attention_step.cu: shared memory granted to its kernels */
    long waits;                /* calls of gpu_wait */
    cudaEvent_t mark[GPU_MARKS];
    int processors;              /* multiprocessors */
    bool early;                  /* kernels of a graph may start before the preceding ones end */
    struct parcels *parcels;     /* used by parcel.cu; NULL: not yet opened */
    struct gpu_graph *recording; /* NULL: launches go to the stream */
};

/* Keeps the first error. */
static inline void gpu_note(struct gpu *g, cudaError_t e)
{
    if (g->error == cudaSuccess)
        g->error = e;
}

/* A kernel launch for graph.cu. */
struct gpu_call {
    const void *kernel;
    dim3 grid, block;
    size_t shared; /* dynamic bytes */
    void **arg;    /* [n_args] addresses of the arguments */
    const size_t *size;
    int n_args;
    bool early; /* LAUNCH_EARLY */
};
enum { GPU_MAX_ARGS = 16, GPU_MAX_ARG_BYTES = 4096 /* supported by every device */ };
void gpu_launch_kernel(struct gpu *g, const struct gpu_call *call);
void gpu_graph_break(struct gpu *g); /* replays recorded work on the stream, call by call */

template <class T> struct as_declared {
    typedef T type;
};
template <class... P>
static void launch(struct gpu *g, bool early, const char *name, void (*kernel)(P...), dim3 grid,
                   dim3 block, size_t shared, typename as_declared<P>::type... p)
{
    static_assert(sizeof...(P) <= GPU_MAX_ARGS, "a node has no room for more arguments");
    static_assert((0 + ... + ((sizeof(P) + 15) / 16 * 16)) <= GPU_MAX_ARG_BYTES,
                  "a device takes no more bytes of arguments");
    void *arg[] = {(void *)&p...};
    const size_t size[] = {sizeof p...};
    struct gpu_call call = {(const void *)kernel, grid, block, shared, arg, size,
                            (int)sizeof...(P),    early};
    KERNEL_IS(name, kernel);
    (void)name;
    gpu_launch_kernel(g, &call);
}
#define LAUNCH(kernel, grid, block, bytes, g, ...)                                                 \
    launch(g, false, #kernel, kernel, grid, block, bytes, __VA_ARGS__)
/* Launches a kernel with early start. All its lanes must call earlier_done before they read data of
 * other kernels and before they write. In a graph its blocks can then start while the preceding
 * kernel still runs. */
#define LAUNCH_EARLY(kernel, grid, block, bytes, g, ...)                                           \
    launch(g, true, #kernel, kernel, grid, block, bytes, __VA_ARGS__)

void gpu_parcels_close(struct gpu *g); /* in parcel.cu */

/* Grows *p to at least `bytes` bytes (gemm.cu). Waits for work that uses the old memory. false: not
 * enough memory. */
bool gpu_hold(struct gpu *g, void **p, size_t *has, size_t bytes);
bool gpu_blas(struct gpu *g); /* returns true if cuBLAS can be used */

#define ALL_LANES 0xffffffffu

#ifdef __CUDACC__
/* Waits until all preceding work is done and visible. Then the following kernel may start early,
 * once all blocks are running. */
DEVICE void earlier_done()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Prefetches the line at p of device memory into the L2 cache. All multiprocessors share this
 * cache, so later writes are still seen. */
DEVICE void ask_for_line(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
#endif

enum { WARP = 32, LINE = 128 /* bytes */ };

static inline unsigned blocks_for(size_t n, size_t per)
{
    return (unsigned)((n + per - 1) / per);
}

DEVICE int lane_of_warp()
{
    return (int)(threadIdx.x % WARP);
}

DEVICE int warp_of_block()
{
    return (int)(threadIdx.x / WARP);
}

template <class T> DEVICE T warp_sum(T v)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, d);
    return v;
}

DEVICE float warp_max(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, d));
    return v;
}

/* Returns the sum over the lanes of a block in every lane. Synchronises before and after. */
template <class T> DEVICE T block_sum(T v)
{
    SHARED(T, part, WARP);
    v = warp_sum(v);
    if (lane_of_warp() == 0)
        part[warp_of_block()] = v;
    __syncthreads();
    v = lane_of_warp() < (int)(blockDim.x / WARP) ? (T)part[lane_of_warp()] : T(0);
    v = warp_sum(v);
    __syncthreads();
    return v;
}

DEVICE float block_max(float v)
{
    SHARED(float, part, WARP);
    v = warp_max(v);
    if (lane_of_warp() == 0)
        part[warp_of_block()] = v;
    __syncthreads();
    v = lane_of_warp() < (int)(blockDim.x / WARP) ? (float)part[lane_of_warp()] : -INFINITY;
    v = warp_max(v);
    __syncthreads();
    return v;
}

DEVICE float from_half(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

DEVICE float from_bf16(uint16_t h)
{
    return __uint_as_float((unsigned)h << 16);
}

/* Rounds to nearest, ties to even; f must not be NaN. */
DEVICE uint16_t to_bf16(float f)
{
    unsigned u = __float_as_uint(f);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Stores an element of an input of cuBLAS. */
DEVICE void gemm_set(float *p, size_t i, float v)
{
    p[i] = v;
}
DEVICE void gemm_set(uint16_t *p, size_t i, float v)
{
    p[i] = to_bf16(v);
}

/* Loads an element of the cache: half or float. */
DEVICE float kv_value(const float *p, size_t i)
{
    return p[i];
}
DEVICE float kv_value(const uint16_t *p, size_t i)
{
    return from_half(p[i]);
}
DEVICE void kv_set(float *p, size_t i, float v)
{
    p[i] = v;
}
DEVICE void kv_set(uint16_t *p, size_t i, float v)
{
    p[i] = __half_as_ushort(__float2half_rn(v));
}

/* Returns the keys of page p of a head; the values follow them. */
template <class KV> DEVICE KV *page_keys(const struct gpu_cache &c, int head, int p)
{
    size_t number = (size_t)c.table[(size_t)head * (size_t)c.ld_table + (size_t)p];
    return (KV *)c.pool + number * 2 * PAGE_SLOTS * (size_t)c.D;
}

/* Returns true if weight p at position i is in the set. */
DEVICE bool in_cut(const struct row_cut &c, float p, int i)
{
    return weight_in_cut(c.threshold, c.first_tie, p, i);
}

#endif

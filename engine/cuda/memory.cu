/* memory.cu - a device, its stream and its memory. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/cuda/blas.cuh"

enum { MIN_MAJOR = 8 }; /* compute capability of the oldest kernels */

void gpu_versions(int *ret_driver, int *ret_built)
{
    *ret_driver = *ret_built = 0;
    cudaDriverGetVersion(ret_driver);
    cudaRuntimeGetVersion(ret_built);
}

/* Reports why no device can be used. */
static int no_device(cudaError_t e, struct kvf_diag *d)
{
    int driver, built;
    gpu_versions(&driver, &built);
    (void)cudaGetLastError();
    if (driver == 0)
        return kvf_fail(d, KVF_E_BACKEND, "there is no NVIDIA driver on this machine");
    if (driver / 1000 < built / 1000)
        return kvf_fail(d, KVF_E_BACKEND,
                        "the NVIDIA driver is too old: it knows CUDA %d.%d, and the kernels need "
                        "%d.0: update the driver",
                        driver / 1000, driver % 1000 / 10, built / 1000);
    return kvf_fail(d, KVF_E_BACKEND, "the NVIDIA driver offers no device: %s",
                    e == cudaSuccess ? "it lists none" : cudaGetErrorString(e));
}

int gpu_count(struct kvf_diag *d)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0)
        return n;
    no_device(e, d);
    return 0;
}

/* Dummy kernel that shows for which devices the kernels were compiled. */
static __global__ void compiled_for(void) {}

/* Checks that kernels were compiled for the current device, number `which` with properties p. */
static int find_kernels(int which, const struct cudaDeviceProp *p, struct kvf_diag *d)
{
    struct cudaFuncAttributes unused;
    if (cudaFuncGetAttributes(&unused, (const void *)compiled_for)
        != cudaErrorNoKernelImageForDevice)
        return KVF_OK;
    (void)cudaGetLastError();
    return kvf_fail(d, KVF_E_BACKEND,
                    "CUDA device %d, %s, has compute capability %d.%d, and this kvfate was built "
                    "for other devices: build it with -Dcuda=enabled -Dnvcc_archs=%d%d",
                    which, p->name, p->major, p->minor, p->major, p->minor);
}

int gpu_look(int which, struct gpu_facts *ret_facts, struct kvf_diag *d)
{
    int n = gpu_count(d);
    if (n == 0)
        return KVF_E_BACKEND;
    if (which < 0 || which >= n)
        return kvf_fail(d, KVF_E_ARG, "there is no CUDA device %d, of %d", which, n);
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, which);
    if (e == cudaSuccess) {
        snprintf(ret_facts->name, sizeof ret_facts->name, "%s", p.name);
        ret_facts->memory = ret_facts->free = p.totalGlobalMem;
        ret_facts->major = p.major;
        ret_facts->minor = p.minor;
        if (p.major < MIN_MAJOR)
            return kvf_fail(d, KVF_E_BACKEND,
                            "CUDA device %d, %s, has compute capability %d.%d, which lacks bf16: "
                            "the kernels need %d.0",
                            which, p.name, p.major, p.minor, MIN_MAJOR);
        e = cudaSetDevice(which);
        if (e == cudaSuccess && find_kernels(which, &p, d))
            return KVF_E_BACKEND;
    }
    if (e == cudaSuccess)
        e = cudaMemGetInfo(&ret_facts->free, &ret_facts->memory);
    if (e != cudaSuccess)
        return kvf_fail(d, KVF_E_BACKEND, "CUDA device %d cannot be used: %s", which,
                        cudaGetErrorString(e));
    return KVF_OK;
}

int gpu_open(int which, struct gpu **ret_gpu, struct kvf_diag *d)
{
    struct gpu_facts facts;
    int err = gpu_look(which, &facts, d);
    if (err)
        return err;
    struct gpu *g = (struct gpu *)mem_alloc(1, sizeof *g);
    if (!g)
        return KVF_E_NOMEM;
    g->which = which;
    g->error = cudaSuccess;
    g->early = facts.major >= 9;
    cudaError_t e = cudaStreamCreate(&g->stream);
    for (int i = 0; e == cudaSuccess && i < GPU_MARKS; i++)
        e = cudaEventCreateWithFlags(&g->mark[i], cudaEventDisableTiming);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&g->processors, cudaDevAttrMultiProcessorCount, which);
    if (e != cudaSuccess) {
        mem_free(g);
        return kvf_fail(d, KVF_E_BACKEND, "CUDA device %d cannot be used: %s", which,
                        cudaGetErrorString(e));
    }
    *ret_gpu = g;
    return KVF_OK;
}

void gpu_close(struct gpu *g)
{
    if (!g)
        return;
    gpu_parcels_close(g);
    blas_close(g->blas);
    gpu_free(g, g->gemm_x);
    gpu_free(g, g->rows);
    gpu_free(g, g->gemm_w);
    for (int i = 0; i < GPU_MARKS; i++)
        cudaEventDestroy(g->mark[i]);
    gpu_free(g, g->parts);
    cudaStreamDestroy(g->stream);
    mem_free(g);
}

int gpu_wait(struct gpu *g, struct kvf_diag *d)
{
    gpu_graph_break(g);
    gpu_note(g, cudaGetLastError());
    gpu_note(g, cudaStreamSynchronize(g->stream));
    g->waits++;
    cudaError_t e = g->error;
    g->error = cudaSuccess;
    if (e != cudaSuccess)
        return kvf_fail(d, KVF_E_BACKEND, "CUDA device %d failed: %s", g->which,
                        cudaGetErrorString(e));
    return KVF_OK;
}

long gpu_waits(const struct gpu *g)
{
    return g->waits;
}

int gpu_no_room(struct gpu *g, struct kvf_diag *d, const char *fmt, ...)
{
    int err = gpu_wait(g, d);
    if (err)
        return err;
    struct kvf_diag said;
    va_list args;
    va_start(args, fmt);
    vsnprintf(said.text, sizeof said.text, fmt, args);
    va_end(args);
    return kvf_fail(d, KVF_E_NOMEM, "%s", said.text);
}

void *gpu_alloc(struct gpu *g, size_t n, size_t size)
{
    void *p = NULL;
    size_t bytes;
    (void)g;
    if (!mem_mul(n, size, &bytes))
        return NULL;
    if (cudaMalloc(&p, bytes > 0 ? bytes : 1) == cudaSuccess)
        return p;
    (void)cudaGetLastError(); /* only the result NULL reports a lack of memory */
    return NULL;
}

void gpu_free(struct gpu *g, void *p)
{
    gpu_graph_break(g); /* recorded work may use p */
    if (p)
        cudaFree(p);
}

void gpu_put(struct gpu *g, void *device, const void *host, size_t bytes)
{
    gpu_graph_break(g);
    if (bytes > 0)
        gpu_note(g, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, g->stream));
}

void gpu_get(struct gpu *g, void *host, const void *device, size_t bytes)
{
    gpu_graph_break(g);
    if (bytes > 0)
        gpu_note(g, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, g->stream));
    gpu_note(g, cudaStreamSynchronize(g->stream));
}

void gpu_put_rows(struct gpu *g, void *device, size_t ld_device, const void *host, size_t ld_host,
                  size_t bytes, size_t n)
{
    gpu_graph_break(g);
    if (bytes > 0 && n > 0)
        gpu_note(g, cudaMemcpy2DAsync(device, ld_device, host, ld_host, bytes, n,
                                      cudaMemcpyHostToDevice, g->stream));
}

void gpu_get_rows(struct gpu *g, void *host, size_t ld_host, const void *device, size_t ld_device,
                  size_t bytes, size_t n)
{
    gpu_fetch_rows(g, host, ld_host, device, ld_device, bytes, n);
    gpu_note(g, cudaStreamSynchronize(g->stream));
}

void *gpu_pin(struct gpu *g, size_t n, size_t size)
{
    void *p = NULL;
    size_t bytes;
    (void)g;
    if (!mem_mul(n, size, &bytes))
        return NULL;
    if (cudaMallocHost(&p, bytes > 0 ? bytes : 1) == cudaSuccess)
        return p;
    (void)cudaGetLastError();
    return NULL;
}

void gpu_unpin(struct gpu *g, void *p)
{
    gpu_graph_break(g);
    if (!p)
        return;
    (void)cudaStreamSynchronize(g->stream); /* pending copies may use the memory */
    cudaFreeHost(p);
}

void gpu_fetch_rows(struct gpu *g, void *pinned, size_t ld_pinned, const void *device,
                    size_t ld_device, size_t bytes, size_t n)
{
    gpu_graph_break(g);
    if (bytes > 0 && n > 0)
        gpu_note(g, cudaMemcpy2DAsync(pinned, ld_pinned, device, ld_device, bytes, n,
                                      cudaMemcpyDeviceToHost, g->stream));
}

void gpu_take(struct gpu *g, void *host, size_t bytes)
{
    (void)g;
    if (bytes > 0 && cudaHostRegister(host, bytes, cudaHostRegisterDefault) != cudaSuccess)
        (void)cudaGetLastError();
}

void gpu_leave(struct gpu *g, void *host)
{
    gpu_graph_break(g);
    gpu_note(g, cudaStreamSynchronize(g->stream));
    if (cudaHostUnregister(host) != cudaSuccess)
        (void)cudaGetLastError(); /* it was never pinned */
}

void gpu_part(struct gpu_parts *p, void *device, const void *pinned, size_t bytes)
{
    if (p->n == GPU_MAX_PARTS || bytes == 0)
        return;
    p->to[p->n] = device;
    p->from[p->n] = pinned;
    p->bytes[p->n++] = bytes;
}

/* Lane (word), part blockIdx.y. */
__global__ void parts_kernel(GIVEN struct gpu_parts p)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.bytes[blockIdx.y] / sizeof(uint32_t))
        ((uint32_t *)p.to[blockIdx.y])[i] = ((const uint32_t *)p.from[blockIdx.y])[i];
}

void gpu_send_parts(struct gpu *g, const struct gpu_parts *p)
{
    enum { LANES = 256 };
    struct gpu_parts in = *p;
    size_t most = 0;
    for (int i = 0; i < p->n; i++)
        most = p->bytes[i] > most ? p->bytes[i] : most;
    dim3 grid(blocks_for(most / sizeof(uint32_t), LANES), (unsigned)p->n);
    if (p->n > 0)
        LAUNCH(parts_kernel, grid, LANES, 0, g, in);
}

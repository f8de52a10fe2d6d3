/* pages.cu - writing into the pages of a cache, and whole ones that come and go. */
#include "engine/cuda/device.cuh"

enum { LANES = 128, COPIERS = 256 };

/* Block (t, head) stores one entry. */
template <class KV>
__global__ void append_kernel(struct gpu_cache c, const float *k, const float *v, size_t ld,
                              const int32_t *first, int pos0, const int32_t *until)
{
    int t = (int)blockIdx.x, h = (int)blockIdx.y, slot = first[h] + t, s = slot % PAGE_SLOTS;
    KV *keys = page_keys<KV>(c, h, slot / PAGE_SLOTS), *values = keys + c.D * PAGE_SLOTS;
    size_t row = (size_t)t * ld + (size_t)h * (size_t)c.D;
    for (int d = (int)threadIdx.x; d < c.D; d += LANES) {
        kv_set(keys, (size_t)d * PAGE_SLOTS + (size_t)s, k[row + (size_t)d]);
        kv_set(values, (size_t)s * (size_t)c.D + (size_t)d, v[row + (size_t)d]);
    }
    if (threadIdx.x == 0) {
        size_t at = (size_t)h * (size_t)c.ld_slot + (size_t)slot;
        if (pos0 >= 0)
            c.pos[at] = pos0 + t;
        if (c.until)
            c.until[at] = until ? until[(size_t)t * (size_t)c.heads + (size_t)h] : INT32_MAX;
    }
}

void gpu_append(struct gpu *g, const struct gpu_cache *c, const float *k, const float *v, size_t ld,
                const int32_t *first, int T, int pos0, const int32_t *until)
{
    auto kernel = c->type == KV_F16 ? append_kernel<uint16_t> : append_kernel<float>;
    dim3 grid((unsigned)T, (unsigned)c->heads);
    struct gpu_cache cache = *c;
    LAUNCH(kernel, grid, LANES, 0, g, cache, k, v, ld, first, pos0, until);
}

/* Block (page, head) copies a page in pieces of 16 bytes: pages are whole ones of these. */
__global__ void pages_out_kernel(struct gpu_cache c, size_t n_pieces, const int32_t *first, int T,
                                 uint4 *out)
{
    int h = (int)blockIdx.y, page = first[h] / PAGE_SLOTS + (int)blockIdx.x;
    if (page > (first[h] + T - 1) / PAGE_SLOTS)
        return;
    size_t number = (size_t)c.table[(size_t)h * (size_t)c.ld_table + (size_t)page];
    const uint4 *from = (const uint4 *)c.pool + number * n_pieces;
    out += ((size_t)h * gridDim.x + blockIdx.x) * n_pieces;
    for (size_t i = threadIdx.x; i < n_pieces; i += COPIERS)
        out[i] = from[i];
}

void gpu_pages_out(struct gpu *g, const struct gpu_cache *c, const int32_t *first, int T,
                   int n_pages, void *out)
{
    size_t pieces = 2 * kv_half_bytes(c->type, c->D) / sizeof(uint4);
    dim3 grid((unsigned)n_pages, (unsigned)c->heads);
    struct gpu_cache cache = *c;
    LAUNCH(pages_out_kernel, grid, COPIERS, 0, g, cache, pieces, first, T, (uint4 *)out);
}

/* Block (page), in pieces as above; what is read is pinned memory. */
__global__ void pages_in_kernel(uint4 *pool, size_t n_pieces, const int32_t *where,
                                const uint4 *from)
{
    uint4 *to = pool + (size_t)where[blockIdx.x] * n_pieces;
    from += (size_t)blockIdx.x * n_pieces;
#pragma unroll 4
    for (size_t i = threadIdx.x; i < n_pieces; i += COPIERS)
        to[i] = from[i];
}

void gpu_pages_in(struct gpu *g, void *pool, size_t page_bytes, const int32_t *where,
                  const void *pages, int n)
{
    size_t pieces = page_bytes / sizeof(uint4);
    LAUNCH(pages_in_kernel, (unsigned)n, COPIERS, 0, g, (uint4 *)pool, pieces, where,
           (const uint4 *)pages);
}

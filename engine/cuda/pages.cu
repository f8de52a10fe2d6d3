/* pages.cu - writes entries into the pages of a cache, copies full pages in and out, and moves
 * entries. */
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

/* Block (page, head) copies a page in pieces of 16 bytes, of which a page is a multiple. */
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

void gpu_gather_pages(struct gpu *g, const struct gpu_cache *c, const int32_t *first, int T,
                      int n_pages, void *out)
{
    size_t pieces = 2 * kv_half_bytes(c->type, c->D) / sizeof(uint4);
    dim3 grid((unsigned)n_pages, (unsigned)c->heads);
    struct gpu_cache cache = *c;
    LAUNCH(pages_out_kernel, grid, COPIERS, 0, g, cache, pieces, first, T, (uint4 *)out);
}

/* Block (page), in pieces of 16 bytes; the source is pinned memory. */
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

/* Block (slots, head). */
__global__ void until_kernel(struct gpu_cache c, const int32_t *from, const int32_t *first)
{
    int h = (int)blockIdx.y, slot = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    size_t at = (size_t)h * (size_t)c.ld_slot + (size_t)slot;
    if (slot < first[h])
        c.until[at] = slot < c.firm[h] ? INT32_MAX : from[at];
}

void gpu_put_until(struct gpu *g, const struct gpu_cache *c, const int32_t *from,
                   const int32_t *first)
{
    dim3 grid(blocks_for((size_t)c->most, COPIERS), (unsigned)c->heads);
    struct gpu_cache cache = *c;
    LAUNCH(until_kernel, grid, COPIERS, 0, g, cache, from, first);
}

/* Block (job). */
template <class KV> __global__ void join_kernel(KV *pool, int D, const int32_t *jobs)
{
    const int32_t *job = jobs + (size_t)blockIdx.x * (1 + PAGE_SLOTS), *from = job + 1;
    size_t half = (size_t)D * PAGE_SLOTS;
    if (job[0] < 0)
        return;
    KV *keys = pool + (size_t)job[0] * 2 * half, *values = keys + half;
    int s = (int)threadIdx.x % PAGE_SLOTS, slot = from[s];
    const KV *page = pool + (size_t)(slot / PAGE_SLOTS) * 2 * half;
    for (int d = (int)threadIdx.x / PAGE_SLOTS; slot >= 0 && d < D; d += COPIERS / PAGE_SLOTS)
        keys[d * PAGE_SLOTS + s] = page[d * PAGE_SLOTS + slot % PAGE_SLOTS];
    for (int i = (int)threadIdx.x; i < PAGE_SLOTS * D; i += COPIERS) {
        int old = from[i / D];
        if (old >= 0)
            values[i] = pool[(size_t)(old / PAGE_SLOTS) * 2 * half + half
                             + (size_t)(old % PAGE_SLOTS * D + i % D)];
    }
}

void gpu_join_entries(struct gpu *g, void *pool, enum kv_type type, int D, const int32_t *jobs,
                      int n)
{
    if (type == KV_F16)
        LAUNCH(join_kernel<uint16_t>, (unsigned)n, COPIERS, 0, g, (uint16_t *)pool, D, jobs);
    else
        LAUNCH(join_kernel<float>, (unsigned)n, COPIERS, 0, g, (float *)pool, D, jobs);
}

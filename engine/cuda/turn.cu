/* turn.cu - rotates keys and queries of a step or a chunk by their ranks in the cache, which change
 * as entries are evicted (positions=cache). */
#include "engine/cuda/device.cuh"

enum { LANES = 256 };

/* Returns channel c of a head after RoPE; channels are `apart` apart. */
template <class KV>
DEVICE float turned(const KV *x, int c, size_t apart, const struct gpu_ranks &r, int rank)
{
    float v = kv_value(x, (size_t)c * apart);
    if (!r.cos_sin || c / 2 >= r.n_rot / 2)
        return v;
    const float *turn = r.cos_sin + (size_t)rank * (size_t)r.n_rot + (size_t)(c / 2 * 2);
    float other = kv_value(x, (size_t)(c ^ 1) * apart);
    return c % 2 ? other * turn[1] + v * turn[0] : v * turn[0] - other * turn[1];
}

/* Block (page, head). Results of slots after the last entry are never read. */
template <class KV>
__global__ void __launch_bounds__(LANES) turn_keys_kernel(struct gpu_cache c, struct gpu_ranks r)
{
    int page = (int)blockIdx.x, h = (int)blockIdx.y;
    if (page * PAGE_SLOTS >= c.n[h])
        return;
    size_t half = (size_t)c.D * PAGE_SLOTS, number = (size_t)(h * c.ld_table + page);
    const KV *keys = page_keys<KV>(c, h, page);
    float *out = r.pages + number * 2 * half;
    int s = (int)threadIdx.x % PAGE_SLOTS;
    int rank = r.rank[(size_t)h * (size_t)c.ld_slot + (size_t)(page * PAGE_SLOTS + s)];
    for (int d = (int)threadIdx.x / PAGE_SLOTS; d < c.D; d += LANES / PAGE_SLOTS)
        out[d * PAGE_SLOTS + s] = turned(keys + s, d, PAGE_SLOTS, r, rank);
    for (size_t i = half + threadIdx.x; i < 2 * half; i += LANES)
        out[i] = kv_value(keys, i);
}

void gpu_turn_keys(struct gpu *g, const struct gpu_cache *c, const struct gpu_ranks *r)
{
    auto kernel = c->type == KV_F16 ? turn_keys_kernel<uint16_t> : turn_keys_kernel<float>;
    dim3 grid(((unsigned)c->most + PAGE_SLOTS - 1) / PAGE_SLOTS, (unsigned)c->heads);
    struct gpu_cache cache = *c;
    struct gpu_ranks ranks = *r;
    LAUNCH(kernel, grid, LANES, 0, g, cache, ranks);
}

/* Block (head, query); a lane has one channel. */
__global__ void __launch_bounds__(GPU_MAX_CHANNELS)
    turn_queries_kernel(struct gpu_cache c, struct gpu_ranks r, float *q, size_t ld, int T)
{
    int g = (int)blockIdx.x, t = (int)blockIdx.y, d = (int)threadIdx.x;
    float *x = q + (size_t)t * ld + (size_t)(g * c.D);
    int rank = c.n[g / ((int)gridDim.x / c.heads)] - (T - t);
    float v = d < c.D ? turned(x, d, 1, r, rank) : 0;
    __syncthreads();
    if (d < c.D)
        x[d] = v;
}

void gpu_turn_queries(struct gpu *g, const struct gpu_cache *c, const struct gpu_ranks *r, float *q,
                      size_t ld, int n_heads, int T)
{
    dim3 grid((unsigned)n_heads, (unsigned)T);
    unsigned lanes = ((unsigned)c->D + WARP - 1) / WARP * WARP;
    struct gpu_cache cache = *c;
    struct gpu_ranks ranks = *r;
    LAUNCH(turn_queries_kernel, grid, lanes, 0, g, cache, ranks, q, ld, T);
}

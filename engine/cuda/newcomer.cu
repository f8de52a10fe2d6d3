/* newcomer.cu - norms, RoPE and storage of new tokens between their projections and their
 * attention, in one launch. */
#include "engine/cuda/device.cuh"

enum { LANES = GPU_MAX_CHANNELS };

/* Returns the scale of the RMS norm of a row, with the summation order of rmsnorm_kernel. */
DEVICE float norm_of(const float *row, int D, float eps)
{
    double square = 0;
    for (int c = (int)threadIdx.x; c < D; c += (int)blockDim.x)
        square += (double)row[c] * (double)row[c];
    return (float)(1.0 / sqrt(block_sum(square) / D + (double)eps));
}

/* Stores channel c of head h in its slot. */
template <class KV>
DEVICE void store(const struct gpu_cache &cache, int h, int slot, int c, bool value, float v,
                  const int32_t *until)
{
    KV *page = page_keys<KV>(cache, h, slot / PAGE_SLOTS);
    size_t s = (size_t)(slot % PAGE_SLOTS), D = (size_t)cache.D, at = (size_t)c * PAGE_SLOTS + s;
    kv_set(page, value ? (PAGE_SLOTS + s) * D + (size_t)c : at, v);
    size_t entry = (size_t)h * (size_t)cache.ld_slot + (size_t)slot;
    if (c == 0 && !value && cache.until)
        cache.until[entry] = until ? until[h] : INT32_MAX;
}

/* Kernel arguments of N sequences. */
template <int N> struct newcomers {
    struct gpu_cache cache[N];
    struct gpu_new_entries x[N];
};

/* Block (head of queries, keys or values; token; sequence). A lane has one channel, its neighbour
 * has the other channel of the pair. Only the row itself depends on the preceding kernel. */
template <class KV, int N>
__global__ void __launch_bounds__(LANES) settle_kernel(GIVEN struct newcomers<N> all)
{
    size_t t = blockIdx.y;
    const struct gpu_cache &cache = all.cache[N > 1 ? blockIdx.z : 0];
    const struct gpu_new_entries &x = all.x[N > 1 ? blockIdx.z : 0];
    int head = (int)blockIdx.x, h = head - x.n_heads, D = cache.D, c = (int)threadIdx.x;
    bool value = h >= cache.heads, there = c < D;
    size_t first_of_head = t * x.ld + (size_t)head * (size_t)D;
    float *row = x.qkv + first_of_head;
    const float *in = x.from ? x.from + first_of_head : row;
    const float *norm = h < 0 ? x.q_norm : x.k_norm, *w = value ? NULL : norm;
    h = value ? h - cache.heads : h;
    const int32_t *until = x.until ? x.until + t * (size_t)cache.heads : NULL;
    bool turns = x.cos_sin && !value && there && c / 2 < x.n_rot / 2;
    const float *turn = x.cos_sin + (turns ? t * (size_t)x.n_rot + (size_t)(c / 2 * 2) : 0);
    float cosine = turns ? turn[0] : 1, sine = turns ? turn[1] : 0;
    float weight = w && there ? w[c] : 1;
    int slot = h < 0 ? 0 : x.slot[h] + (int)t;
    earlier_done();
    float scale = w ? norm_of(in, D, x.eps) : 1, v = there ? in[c] : 0;
    if (w)
        v = v * scale * weight;
    if (x.unturned && !value && there)
        x.unturned[t * x.ld_unturned + (size_t)(head * D + c)] = v;
    float other = __shfl_xor_sync(ALL_LANES, v, 1);
    if (turns)
        v = c % 2 ? other * sine + v * cosine : v * cosine - other * sine;
    if (there)
        row[c] = v;
    if (there && h >= 0)
        store<KV>(cache, h, slot, c, value, v, until);
}

template <int N>
static void settle(struct gpu *g, const struct gpu_cache *c, const struct gpu_new_entries *x, int n)
{
    auto kernel = c->type == KV_F16 ? settle_kernel<uint16_t, N> : settle_kernel<float, N>;
    int lanes = (c->D + WARP - 1) / WARP * WARP;
    struct newcomers<N> all = {
    };
    for (int i = 0; i < n; i++) {
        all.cache[i] = c[i];
        all.x[i] = x[i];
    }
    dim3 grid((unsigned)(x->n_heads + 2 * c->heads), (unsigned)x->T, (unsigned)n);
    LAUNCH_EARLY(kernel, grid, (unsigned)lanes, 0, g, all);
}

void gpu_norm_rope_store(struct gpu *g, const struct gpu_cache *c, const struct gpu_new_entries *x,
                         int n)
{
    for (; n > 1; n -= GPU_TOGETHER, c += GPU_TOGETHER, x += GPU_TOGETHER)
        settle<GPU_TOGETHER>(g, c, x, n < GPU_TOGETHER ? n : GPU_TOGETHER);
    if (n == 1)
        settle<1>(g, c, x, 1);
}

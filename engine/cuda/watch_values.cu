/* watch_values.cu - contributions of entries to the residual stream: lengths of values after the
 * output projection, and rows of contributions. */
#include "engine/cuda/attention.cuh"
#include "engine/cuda/watch.h"

enum { LANES = 256 };

/* Returns the slot of the entry at position t, or -1. */
DEVICE int find_slot(const struct gpu_attention &a, int h, int n, int32_t t)
{
    SHARED(int, found, 1);
    const int32_t *pos = a.cache.pos;
    if (threadIdx.x == 0)
        found[0] = pos ? -1 : t;
    __syncthreads();
    for (int i = (int)threadIdx.x; pos && i < n; i += LANES)
        if (pos[(size_t)h * (size_t)a.cache.ld_slot + (size_t)i] == t)
            found[0] = i;
    __syncthreads();
    return found[0];
}

/* Block (query, query head): lane i has row i of the product with the Gram matrix. */
template <class KV>
__global__ void __launch_bounds__(LANES)
    out_norms_kernel(struct gpu_attention a, const double *gram, float *norm, int cap)
{
    SHARED(double, term, LANES);
    int g = (int)blockIdx.y, r = (int)blockIdx.x, h = kv_head(a, g), D = a.cache.D;
    int32_t t = query_at(a, r);
    int slot = find_slot(a, h, slots_of(a, h, r), t);
    if (slot < 0)
        return;
    const KV *v = page_keys<KV>(a.cache, h, slot / PAGE_SLOTS) + D * PAGE_SLOTS;
    v += (slot % PAGE_SLOTS) * D;
    double square = 0;
    for (int first = 0; first < D; first += LANES) {
        int i = first + (int)threadIdx.x;
        const double *row = gram + ((size_t)g * (size_t)D + (size_t)i) * (size_t)D;
        double part = 0;
        for (int j = 0; i < D && j < D; j++)
            part += row[j] * (double)kv_value(v, (size_t)j);
        term[threadIdx.x] = i < D ? part * (double)kv_value(v, (size_t)i) : 0;
        __syncthreads();
        for (int k = 0; threadIdx.x == 0 && k < LANES && first + k < D; k++)
            square += term[k];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        norm[(size_t)g * (size_t)cap + (size_t)t] = square > 0 ? (float)sqrt(square) : 0;
}

void gpu_out_norms(struct gpu *g, const struct gpu_seen_rows *r, const double *gram, float *norm,
                   int cap)
{
    struct gpu_attention a = r->a;
    auto kernel = a.cache.type == KV_F16 ? out_norms_kernel<uint16_t> : out_norms_kernel<float>;
    dim3 grid((unsigned)a.T, (unsigned)a.n_heads);
    LAUNCH(kernel, grid, LANES, 0, g, a, gram, norm, cap);
}

/* Block (query, query head): a lane has every LANES-th slot. */
__global__ void __launch_bounds__(LANES)
    contributions_kernel(struct gpu_seen_rows in, const float *norm, int cap, float *out)
{
    int g = (int)blockIdx.y, r = (int)blockIdx.x, h = kv_head(in.a, g);
    int n = slots_of(in.a, h, r), power = 0;
    size_t row = ((size_t)g * (size_t)in.a.T + (size_t)r) * in.ld;
    const int32_t *pos = in.a.cache.pos;
    pos = pos ? pos + (size_t)h * (size_t)in.a.cache.ld_slot : pos;
    float most = 0;
    for (int i = (int)threadIdx.x; i < n; i += LANES) {
        bool seen = sees(in.a, g, h, r, i);
        size_t at = (size_t)g * (size_t)cap + (size_t)(pos ? pos[i] : i);
        float x = seen ? in.p[row + (size_t)i] * norm[at] : 0;
        out[row + (size_t)i] = x;
        most = fmaxf(most, x);
    }
    most = block_max(most);
    if (most <= 1)
        return;
    frexpf(most, &power);
    float scale = ldexpf(1, -power);
    for (int i = (int)threadIdx.x; i < n; i += LANES)
        out[row + (size_t)i] *= scale;
}

void gpu_contributions(struct gpu *g, const struct gpu_seen_rows *r, const float *norm, int cap,
                       float *out)
{
    struct gpu_seen_rows in = *r;
    dim3 grid((unsigned)r->a.T, (unsigned)r->a.n_heads);
    LAUNCH(contributions_kernel, grid, LANES, 0, g, in, norm, cap, out);
}

/* attention_rows.cu - attention whose rows stay in memory: scores, softmax, values, each in the
 * order of the C reference. */
#include "engine/cuda/attention.cuh"

enum { ROWS = 16 };

/* Block (page, query head, 16 queries): lane s has slot s of the page. */
template <class KV>
__global__ void __launch_bounds__(PAGE_SLOTS)
    scores_kernel(struct gpu_attention a, float *p, size_t ld)
{
    SHARED_DYNAMIC(float, q); /* [ROWS][D] */
    int D = a.cache.D, g = (int)blockIdx.y, h = kv_head(a, g), r0 = (int)blockIdx.z * ROWS;
    int page = (int)blockIdx.x, s = (int)threadIdx.x, slot = page * PAGE_SLOTS + s;
    int n_rows = a.T - r0 < ROWS ? a.T - r0 : ROWS;
    if (page * PAGE_SLOTS >= a.cache.n[h])
        return;
    for (int i = s; i < n_rows * D; i += PAGE_SLOTS)
        q[i] = a.q[(size_t)(r0 + i / D) * a.ld_q + (size_t)(g * D + i % D)];
    __syncthreads();
    const KV *keys = page_keys<KV>(a.cache, h, page);
    float sum[ROWS] = {0};
    for (int d = 0; d < D; d++) {
        float k = kv_value(keys, (size_t)(d * PAGE_SLOTS + s));
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < n_rows)
                sum[r] = fmaf(q[r * D + d], k, sum[r]);
    }
    float *row = p + ((size_t)g * (size_t)a.T + (size_t)r0) * ld + (size_t)slot;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < n_rows)
            row[(size_t)r * ld] = sees(a, g, h, r0 + r, slot) ? logit(a, h, r0 + r, slot, sum[r])
                                                              : -INFINITY;
}

enum { SOFTMAX_LANES = 256 };

struct row_numbers { /* [n_heads][T] or NULL */
    float *lse, *entropy;
    int32_t *seen;
};

/* Block (query, query head). */
__global__ void __launch_bounds__(SOFTMAX_LANES)
    softmax_kernel(struct gpu_attention a, float *p, size_t ld, struct row_numbers out)
{
    int g = (int)blockIdx.y, h = kv_head(a, g), r = (int)blockIdx.x, id = (int)threadIdx.x;
    int n = slots_of(a, h, r);
    size_t at = (size_t)g * (size_t)a.T + (size_t)r;
    float *row = p + at * ld, top = -INFINITY;
    double sum = 0, moment = 0;
    int seen = 0;
    for (int i = id; i < n; i += SOFTMAX_LANES)
        top = fmaxf(top, row[i]);
    top = block_max(top);
    for (int i = id; i < n; i += SOFTMAX_LANES) {
        float d = row[i] - top, w = expf(d);
        seen += row[i] > -INFINITY;
        row[i] = w;
        sum += (double)w;
        moment -= w > 0 ? (double)w * (double)d : 0;
    }
    sum = block_sum(sum);
    moment = block_sum(moment);
    seen = block_sum(seen);
    float inverse = (float)(1.0 / sum);
    for (int i = id; i < (int)ld; i += SOFTMAX_LANES)
        row[i] = i < n ? row[i] * inverse : 0;
    if (id != 0)
        return;
    if (out.lse)
        out.lse[at] = top + (float)log(sum);
    if (out.entropy)
        out.entropy[at] = (float)(log(sum) + moment / sum);
    if (out.seen)
        out.seen[at] = seen;
}

void gpu_rows(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
              float *entropy, int32_t *seen)
{
    struct gpu_attention in = *a;
    struct row_numbers out = {lse, entropy, seen};
    auto kernel = a->cache.type == KV_F16 ? scores_kernel<uint16_t> : scores_kernel<float>;
    dim3 grid(blocks_for((size_t)a->cache.most, PAGE_SLOTS), (unsigned)a->n_heads,
              blocks_for((size_t)a->T, ROWS));
    size_t bytes = (size_t)(ROWS * a->cache.D) * sizeof(float);
    LAUNCH(kernel, grid, PAGE_SLOTS, bytes, g, in, p, ld);
    dim3 rows((unsigned)a->T, (unsigned)a->n_heads);
    LAUNCH(softmax_kernel, rows, SOFTMAX_LANES, 0, g, in, p, ld, out);
}

/* Block (query, query head): lane d sums channel d over the slots, in their order. */
template <class KV> __global__ void values_kernel(struct gpu_attention a, const float *p, size_t ld)
{
    SHARED(float, w, PAGE_SLOTS);
    int D = a.cache.D, g = (int)blockIdx.y, h = kv_head(a, g), r = (int)blockIdx.x;
    int d = (int)threadIdx.x, n = slots_of(a, h, r);
    const float *row = p + ((size_t)g * (size_t)a.T + (size_t)r) * ld;
    float sum = 0;
    for (int page = 0; page * PAGE_SLOTS < n; page++) {
        int left = n - page * PAGE_SLOTS < PAGE_SLOTS ? n - page * PAGE_SLOTS : PAGE_SLOTS;
        for (int s = d; s < left; s += (int)blockDim.x)
            w[s] = row[page * PAGE_SLOTS + s];
        __syncthreads();
        const KV *values = page_keys<KV>(a.cache, h, page) + D * PAGE_SLOTS;
        for (int s = 0; s < left && d < D; s++)
            sum = fmaf(w[s], kv_value(values, (size_t)(s * D + d)), sum);
        __syncthreads();
    }
    if (d < D)
        a.out[(size_t)r * a.ld_out + (size_t)(g * D + d)] = sum;
}

void gpu_rows_values(struct gpu *g, const struct gpu_attention *a, const float *p, size_t ld)
{
    struct gpu_attention in = *a;
    auto kernel = a->cache.type == KV_F16 ? values_kernel<uint16_t> : values_kernel<float>;
    dim3 grid((unsigned)a->T, (unsigned)a->n_heads);
    LAUNCH(kernel, grid, blocks_for((size_t)a->cache.D, WARP) * WARP, 0, g, in, p, ld);
}

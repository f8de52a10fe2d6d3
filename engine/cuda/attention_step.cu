/* attention_step.cu - the attention of one token: the pages of a KV head are dealt out to blocks,
 * each of which serves all query heads of the KV head with one reading of its pages; a second
 * kernel puts the parts together. */
#include "engine/cuda/attention.cuh"

enum {
    STEP_LANES = 128,
    MOST_SPLITS = 32,
    PAGES_PER_SPLIT = 4, /* at least, when there are so many */
    DIMS = 2,            /* channels of a lane: D <= 2 STEP_LANES */
};

static int splits(const struct gpu_attention *a)
{
    int n = (int)blocks_for((size_t)a->cache.most, PAGE_SLOTS * PAGES_PER_SPLIT);
    return n > MOST_SPLITS ? MOST_SPLITS : n;
}

/* What a part says: the largest logit, the sum of weights, D sums of values. */
size_t gpu_step_work(const struct gpu_attention *a)
{
    return (size_t)a->n_heads * (size_t)splits(a) * (size_t)(a->cache.D + 2);
}

/* The logits of the group's queries with one page, for slot `lane % 64`: each half of the block
 * takes every other query. */
template <class KV, int GROUP>
DEVICE void step_logits(const struct gpu_attention &a, int h, int n_q, int page, in_shared<float> q,
                        in_shared<float> p)
{
    int s = (int)threadIdx.x % PAGE_SLOTS, half = (int)threadIdx.x / PAGE_SLOTS, D = a.cache.D;
    int slot = page * PAGE_SLOTS + s;
    const KV *keys = page_keys<KV>(a.cache, h, page);
    float sum[(GROUP + 1) / 2] = {0};
    for (int d = 0; d < D; d++) {
        float k = kv_value(keys, (size_t)(d * PAGE_SLOTS + s));
#pragma unroll
        for (int j = 0; j < (GROUP + 1) / 2; j++)
            if (half + 2 * j < n_q)
                sum[j] = fmaf(q[(half + 2 * j) * D + d], k, sum[j]);
    }
#pragma unroll
    for (int j = 0; j < (GROUP + 1) / 2; j++)
        if (half + 2 * j < n_q) {
            int g = half + 2 * j;
            p[g * PAGE_SLOTS + s] = sees(a, h * n_q + g, h, 0, slot) ? logit(a, h, 0, slot, sum[j])
                                                                     : -INFINITY;
        }
}

/* Whether a query of the group reads an entry of the page: the same for all lanes. */
DEVICE bool page_read(const struct gpu_attention &a, int h, int n_q, int page)
{
    int slot = page * PAGE_SLOTS + (int)threadIdx.x % PAGE_SLOTS, read = 0;
    if (a.page[h] == 0)
        return true;
    for (int g = (int)threadIdx.x / PAGE_SLOTS; g < n_q; g += STEP_LANES / PAGE_SLOTS)
        read |= sees(a, h * n_q + g, h, 0, slot);
    return __syncthreads_or(read);
}

/* out = out fade + sum of p v over the slots of a page; a lane has channels id, id + 128. */
template <class KV, int GROUP>
DEVICE void step_values(const KV *values, int D, int n_q, int left, in_shared<float> p,
                        in_shared<float> fade, float (*out)[DIMS])
{
#pragma unroll
    for (int c = 0; c < DIMS; c++) {
        int d = (int)threadIdx.x + c * STEP_LANES;
        if (d >= D)
            break;
#pragma unroll
        for (int g = 0; g < GROUP; g++)
            if (g < n_q)
                out[g][c] *= fade[g];
        for (int s = 0; s < left; s++) {
            float v = kv_value(values, (size_t)(s * D + d));
#pragma unroll
            for (int g = 0; g < GROUP; g++)
                if (g < n_q)
                    out[g][c] = fmaf(p[g * PAGE_SLOTS + s], v, out[g][c]);
        }
    }
}

/* CHOICE: pages are chosen; a kernel of its own, since looking takes registers. */
template <class KV, int GROUP, bool CHOICE>
__global__ void __launch_bounds__(STEP_LANES)
    step_kernel(struct gpu_attention a, float *work, int n_splits)
{
    SHARED_DYNAMIC(float, q); /* [n_q][D] */
    SHARED(float, p, GROUP *PAGE_SLOTS);
    SHARED(float, top, GROUP);
    SHARED(float, sum, GROUP);
    SHARED(float, fade, GROUP);
    int h = (int)blockIdx.x, split = (int)blockIdx.y, id = (int)threadIdx.x, D = a.cache.D;
    int n_q = a.n_heads / a.cache.heads, n = a.cache.n[h];
    int pages = (n + PAGE_SLOTS - 1) / PAGE_SLOTS;
    int first = pages * split / n_splits, end = pages * (split + 1) / n_splits;
    float out[GROUP][DIMS] = {{0}};
    for (int i = id; i < n_q * D; i += STEP_LANES)
        q[i] = a.q[h * n_q * D + i];
    if (id < n_q) {
        top[id] = -INFINITY;
        sum[id] = 0;
    }
    __syncthreads();
    for (int page = first; page < end; page++) {
        if (CHOICE && !page_read(a, h, n_q, page))
            continue;
        step_logits<KV, GROUP>(a, h, n_q, page, q, p);
        __syncthreads();
        page_weights(n_q, STEP_LANES / WARP, p, top, sum, fade);
        __syncthreads();
        const KV *values = page_keys<KV>(a.cache, h, page) + D * PAGE_SLOTS;
        int left = n - page * PAGE_SLOTS < PAGE_SLOTS ? n - page * PAGE_SLOTS : PAGE_SLOTS;
        step_values<KV, GROUP>(values, D, n_q, left, p, fade, out);
        __syncthreads();
    }
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        if (g >= n_q)
            break;
        float *part = work
                      + ((size_t)(h * n_q + g) * (size_t)n_splits + (size_t)split)
                            * (size_t)(D + 2);
        if (id == 0) {
            part[0] = top[g];
            part[1] = sum[g];
        }
#pragma unroll
        for (int c = 0; c < DIMS; c++)
            if (id + c * STEP_LANES < D)
                part[2 + id + c * STEP_LANES] = out[g][c];
    }
}

/* A block has a query head, a lane every STEP_LANES-th channel. */
__global__ void join_kernel(struct gpu_attention a, const float *work, int n_splits)
{
    int g = (int)blockIdx.x, D = a.cache.D;
    const float *part = work + (size_t)g * (size_t)n_splits * (size_t)(D + 2);
    float top = -INFINITY, all = 0;
    for (int i = 0; i < n_splits; i++)
        top = fmaxf(top, part[i * (D + 2)]);
    for (int i = 0; i < n_splits; i++)
        all += weight_of(part[i * (D + 2)], top) * part[i * (D + 2) + 1];
    for (int d = (int)threadIdx.x; d < D; d += STEP_LANES) {
        float sum = 0;
        for (int i = 0; i < n_splits; i++)
            sum = fmaf(weight_of(part[i * (D + 2)], top), part[i * (D + 2) + 2 + d], sum);
        a.out[g * D + d] = sum / all;
    }
}

template <int GROUP, bool CHOICE>
static void step_of(struct gpu *g, const struct gpu_attention *a, float *work)
{
    auto kernel = a->cache.type == KV_F16 ? step_kernel<uint16_t, GROUP, CHOICE>
                                          : step_kernel<float, GROUP, CHOICE>;
    struct gpu_attention in = *a;
    int n = splits(a), n_q = a->n_heads / a->cache.heads;
    dim3 grid((unsigned)a->cache.heads, (unsigned)n);
    LAUNCH(kernel, grid, STEP_LANES, (size_t)(n_q * a->cache.D) * sizeof(float), g, in, work, n);
    LAUNCH(join_kernel, (unsigned)a->n_heads, STEP_LANES, 0, g, in, work, n);
}

template <int GROUP> static void step(struct gpu *g, const struct gpu_attention *a, float *work)
{
    if (a->page)
        step_of<GROUP, true>(g, a, work);
    else
        step_of<GROUP, false>(g, a, work);
}

void gpu_attend_step(struct gpu *g, const struct gpu_attention *a, float *work)
{
    int n_q = a->n_heads / a->cache.heads;
    if (n_q <= 1)
        step<1>(g, a, work);
    else if (n_q <= 2)
        step<2>(g, a, work);
    else if (n_q <= 4)
        step<4>(g, a, work);
    else if (n_q <= 8)
        step<8>(g, a, work);
    else
        step<16>(g, a, work);
}

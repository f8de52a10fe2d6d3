/* attention_prompt.cu - attention of many queries with a running softmax. A block has 32 queries of
 * one query head and loops over the pages that any of them may see. A page in which no query of the
 * block sees an entry costs only a read of until[]. So a head that keeps a few entries and a window
 * of recent ones (vertical and slash) is read only there. */
#include "engine/cuda/attention.cuh"

enum {
    PROMPT_ROWS = 32,
    PROMPT_LANES = 256,
    PARTS = PROMPT_LANES / PAGE_SLOTS, /* parts of the rows: a lane has PROMPT_ROWS / PARTS */
    MINE = PROMPT_ROWS / PARTS,
};

/* Returns true in all lanes if a query of the block sees an entry of the page. */
DEVICE bool page_seen(const struct gpu_attention &a, int g, int h, int r0, int page)
{
    int slot = page * PAGE_SLOTS + (int)threadIdx.x % PAGE_SLOTS, seen = 0;
    int part = (int)threadIdx.x / PAGE_SLOTS;
    for (int j = 0; j < MINE; j++) {
        int r = r0 + part * MINE + j;
        seen |= r < a.T && sees(a, g, h, r, slot);
    }
    return __syncthreads_or(seen);
}

/* Computes the logits of the page: a lane has one slot and MINE rows. */
template <class KV>
DEVICE void prompt_logits(const struct gpu_attention &a, int g, int h, int r0, int page,
                          in_shared<float> q, in_shared<float> p)
{
    int s = (int)threadIdx.x % PAGE_SLOTS, first = (int)threadIdx.x / PAGE_SLOTS * MINE;
    int D = a.cache.D, slot = page * PAGE_SLOTS + s;
    const KV *keys = page_keys<KV>(a.cache, h, page);
    float sum[MINE] = {0};
    for (int d = 0; d < D; d++) {
        float k = kv_value(keys, (size_t)(d * PAGE_SLOTS + s));
#pragma unroll
        for (int j = 0; j < MINE; j++)
            sum[j] = fmaf(q[(first + j) * D + d], k, sum[j]);
    }
#pragma unroll
    for (int j = 0; j < MINE; j++) {
        int r = r0 + first + j;
        bool seen = r < a.T && sees(a, g, h, r, slot);
        p[(first + j) * PAGE_SLOTS + s] = seen ? logit(a, h, r, slot, sum[j]) : -INFINITY;
    }
}

/* CHUNKS of 64 channels: D <= 64 CHUNKS. */
template <class KV, int CHUNKS>
__global__ void __launch_bounds__(PROMPT_LANES) prompt_kernel(struct gpu_attention a)
{
    SHARED_DYNAMIC(float, q); /* [PROMPT_ROWS][D] */
    SHARED(float, p, PROMPT_ROWS *PAGE_SLOTS);
    SHARED(float, top, PROMPT_ROWS);
    SHARED(float, sum, PROMPT_ROWS);
    SHARED(float, fade, PROMPT_ROWS);
    int D = a.cache.D, g = (int)blockIdx.y, h = kv_head(a, g), r0 = (int)blockIdx.x * PROMPT_ROWS;
    int id = (int)threadIdx.x, first = id / PAGE_SLOTS * MINE;
    int last = r0 + PROMPT_ROWS < a.T ? r0 + PROMPT_ROWS - 1 : a.T - 1, n = slots_of(a, h, last);
    float out[MINE][CHUNKS] = {{0}};
    for (int i = id; i < PROMPT_ROWS * D; i += PROMPT_LANES) {
        int r = r0 + i / D;
        q[i] = r < a.T ? a.q[(size_t)r * a.ld_q + (size_t)(g * D + i % D)] : 0;
    }
    if (id < PROMPT_ROWS) {
        top[id] = -INFINITY;
        sum[id] = 0;
    }
    __syncthreads();
    for (int page = 0; page * PAGE_SLOTS < n; page++) {
        if (!page_seen(a, g, h, r0, page))
            continue;
        prompt_logits<KV>(a, g, h, r0, page, q, p);
        __syncthreads();
        page_weights(PROMPT_ROWS, PROMPT_LANES / WARP, p, top, sum, fade);
        __syncthreads();
        const KV *values = page_keys<KV>(a.cache, h, page) + D * PAGE_SLOTS;
        int left = n - page * PAGE_SLOTS < PAGE_SLOTS ? n - page * PAGE_SLOTS : PAGE_SLOTS;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int d = id % PAGE_SLOTS + c * PAGE_SLOTS;
            if (d >= D)
                break;
#pragma unroll
            for (int j = 0; j < MINE; j++)
                out[j][c] *= fade[first + j];
            for (int s = 0; s < left; s++) {
                float v = kv_value(values, (size_t)(s * D + d));
#pragma unroll
                for (int j = 0; j < MINE; j++)
                    out[j][c] = fmaf(p[(first + j) * PAGE_SLOTS + s], v, out[j][c]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < MINE; j++) {
        int r = r0 + first + j;
        for (int c = 0; c < CHUNKS; c++) {
            int d = id % PAGE_SLOTS + c * PAGE_SLOTS;
            if (r < a.T && d < D)
                a.out[(size_t)r * a.ld_out + (size_t)(g * D + d)] =
                    out[j][c] / (sum[first + j] + sink_weight(a, g, top[first + j]));
        }
    }
}

template <class KV> static void prompt(struct gpu *g, const struct gpu_attention *a)
{
    auto kernel = prompt_kernel<KV, 4>;
    if (a->cache.D <= 64)
        kernel = prompt_kernel<KV, 1>;
    else if (a->cache.D <= 128)
        kernel = prompt_kernel<KV, 2>;
    dim3 grid(blocks_for((size_t)a->T, PROMPT_ROWS), (unsigned)a->n_heads);
    struct gpu_attention in = *a;
    LAUNCH(kernel, grid, PROMPT_LANES, (size_t)(PROMPT_ROWS * a->cache.D) * sizeof(float), g, in);
}

void gpu_attend_prompt(struct gpu *g, const struct gpu_attention *a)
{
    if (gpu_attend_tensor(g, a))
        return;
    if (a->cache.type == KV_F16)
        prompt<uint16_t>(g, a);
    else
        prompt<float>(g, a);
}

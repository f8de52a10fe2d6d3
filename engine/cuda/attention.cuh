/* attention.cuh - helpers of the attention kernels: visibility of entries, and logits. */
#ifndef KVF_ENGINE_CUDA_ATTENTION_CUH
#define KVF_ENGINE_CUDA_ATTENTION_CUH

#include "engine/cuda/device.cuh"

/* gpu_attend_prompt with tensor cores (attention_tensor.cu). false: not supported for these
 * arguments, and no work was done. */
bool gpu_attend_tensor(struct gpu *g, const struct gpu_attention *a);

/* Attention in parts (attention_parts.cu). For models with few heads, a part is ATTENTION_PART
 * slots: 32 strips of 32 slots. Each row has a result for every part of the longest head; its index
 * is query * n_heads + head. Results are combined in the order of parts. unit: factor that converts
 * a difference of logits to an exponent of two. */
enum { ATTENTION_PART = 4096 };
struct attention_parts {
    float *out, *top, *sum; /* [parts][rows][D], [parts][rows]; out NULL: there is one part */
};
unsigned attention_parts_of(const struct gpu_attention *a);
bool attention_hold_parts(struct gpu *g, const struct gpu_attention *a, unsigned n,
                          struct attention_parts *ret); /* false: not enough memory */
void attention_join(struct gpu *g, const struct gpu_attention *a, const struct attention_parts *p,
                    unsigned n, float unit);

/* Returns the KV head of query head g. */
DEVICE int kv_head(const struct gpu_attention &a, int g)
{
    return g / (a.n_heads / a.cache.heads);
}

/* Returns the position of query r. */
DEVICE int query_at(const struct gpu_attention &a, int r)
{
    return a.pos0 + (a.now ? *a.now : 0) + r;
}

/* Returns the number of slots visible to query r. */
DEVICE int slots_of(const struct gpu_attention &a, int h, int r)
{
    return a.cache.n[h] - (a.T - 1 - r);
}

/* Returns true if query r of head g can see an entry that was stored before it. */
DEVICE bool shown(const struct gpu_attention &a, int g, int h, int r, int slot)
{
    const int32_t *until = a.cache.until;
    if (until && until[(size_t)h * (size_t)a.cache.ld_slot + (size_t)slot] <= query_at(a, r))
        return false;
    int page = a.page ? a.page[h] : 0;
    return page == 0 || a.chosen[(size_t)g * (size_t)a.ld_chosen + (size_t)(slot / page)];
}

DEVICE bool sees(const struct gpu_attention &a, int g, int h, int r, int slot)
{
    return slot < slots_of(a, h, r) && shown(a, g, h, r, slot);
}

/* Returns the logit from the product of query r and the key of a slot. */
DEVICE float logit(const struct gpu_attention &a, int h, int r, int slot, float product)
{
    float x = product * a.scale;
    if (a.cap > 0)
        x = a.cap * tanhf(x / a.cap);
    if (a.log_beta) {
        size_t at = (size_t)h * (size_t)a.cache.ld_slot + (size_t)slot;
        x += (float)(query_at(a, r) - a.cache.pos[at]) * a.log_beta[at];
    }
    return x;
}

/* exp(x - top); 0 for hidden entries, even if all are hidden. */
DEVICE float weight_of(float x, float top)
{
    return x == -INFINITY ? 0 : expf(x - top);
}

#define LOG2_E 1.44269504f
/* The largest weight of a row of attention_tensor.cu is 2^15 until its end: so small ones keep
 * their digits in f16. */
#define LARGEST 15.0f

/* Returns the weight of the sink of query head g there; top: the largest logit, of powers of two.
 */
DEVICE float sink_power(const struct gpu_attention &a, int g, float top)
{
    return a.sinks ? exp2f(a.sinks[g] * LOG2_E - top + LARGEST) : 0;
}

/* Returns the weight of the sink of query head g relative to the largest logit; 0: it has none. */
DEVICE float sink_weight(const struct gpu_attention &a, int g, float top)
{
    return a.sinks ? expf(a.sinks[g] - top) : 0;
}

/* Replaces the logits p of a page, [n_rows][PAGE_SLOTS], by weights and updates each row's maximum
 * logit and sum of weights. fade is the factor for the previous sums. A warp handles every
 * n_warps-th row. */
DEVICE void page_weights(int n_rows, int n_warps, in_shared<float> p, in_shared<float> top,
                         in_shared<float> sum, in_shared<float> fade)
{
    int lane = lane_of_warp();
    for (int r = warp_of_block(); r < n_rows; r += n_warps) {
        float x = p[r * PAGE_SLOTS + lane], y = p[r * PAGE_SLOTS + WARP + lane];
        float old = top[r], now = fmaxf(old, warp_max(fmaxf(x, y)));
        x = weight_of(x, now);
        y = weight_of(y, now);
        float more = warp_sum(x + y);
        p[r * PAGE_SLOTS + lane] = x;
        p[r * PAGE_SLOTS + WARP + lane] = y;
        __syncwarp(); /* all lanes have read the state that lane 0 changes now */
        if (lane == 0) {
            float f = weight_of(old, now);
            fade[r] = f;
            top[r] = now;
            sum[r] = sum[r] * f + more;
        }
    }
}

#endif

/* watch.cuh - a row of attention weights, as the kernels of probes see it. */
#ifndef KVF_ENGINE_CUDA_WATCH_CUH
#define KVF_ENGINE_CUDA_WATCH_CUH

#include "engine/cuda/attention.cuh"
#include "engine/cuda/watch.h"

/* Row r of query head g; HIDDEN is less than any weight. */
struct row_view {
    int g, h, r, n;
    const float *p;
    const int32_t *pos;
};
#define HIDDEN (-1.0f)

DEVICE row_view view_of(const struct gpu_seen_rows &in, int g, int r)
{
    int h = kv_head(in.a, g);
    const int32_t *pos = in.a.cache.pos;
    return {g,
            h,
            r,
            slots_of(in.a, h, r),
            in.p + ((size_t)g * (size_t)in.a.T + (size_t)r) * in.ld,
            pos ? pos + (size_t)h * (size_t)in.a.cache.ld_slot : pos};
}

DEVICE float weight_at(const struct gpu_seen_rows &in, const row_view &v, int slot)
{
    return sees(in.a, v.g, v.h, v.r, slot) ? v.p[slot] : HIDDEN;
}

DEVICE int32_t position_at(const row_view &v, int slot)
{
    return v.pos ? v.pos[slot] : slot;
}

#endif

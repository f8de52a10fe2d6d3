/* watch.cuh - access to a row of attention weights in the probe kernels. */
#ifndef KVF_ENGINE_CUDA_WATCH_CUH
#define KVF_ENGINE_CUDA_WATCH_CUH

#include "engine/cuda/attention.cuh"
#include "engine/cuda/watch.h"

/* gpu_watch_entries for special cases (watch_marks.cu). false: not supported for these arguments,
 * and no work was done. */
bool gpu_watch_marks(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                     const struct gpu_entry_cells *cells);

/* Row r of query head g. HIDDEN is smaller than any weight. */
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

/* Returns the smallest float that is at least x. */
DEVICE float not_under(double x)
{
    float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

/* Stores v in the cell of a step. */
DEVICE void put_step(void *cells, bool wide, size_t i, uint32_t v)
{
    if (wide)
        ((uint32_t *)cells)[i] = v;
    else
        ((uint16_t *)cells)[i] = (uint16_t)v;
}

#endif

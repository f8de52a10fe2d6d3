/* score.cuh - helpers of the score kernels: a lane's entry, the query heads that score it, and
 * their weights in the rows of the window. */
#ifndef KVF_ENGINE_CUDA_SCORE_CUH
#define KVF_ENGINE_CUDA_SCORE_CUH

#include "engine/cuda/device.cuh"
#include "engine/cuda/heads.h"
#include "engine/kernels/score_math.h"

enum { LANES = 256 };

/* The heads to score. */
struct asked {
    struct gpu_heads h;
    const unsigned char *due;
};

/* Sets the entry of the lane; returns false if the lane has no entry to score. */
DEVICE bool entry_of(const struct asked &a, int *at, int *slot, size_t *place)
{
    *at = (int)blockIdx.y;
    *slot = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    *place = (size_t)*at * (size_t)a.h.cache.ld_slot + (size_t)*slot;
    return a.due[*at] && *slot < a.h.n[*at];
}

static inline dim3 grid_of(const struct gpu_heads *h)
{
    return dim3(blocks_for((size_t)h->cache.most, LANES), (unsigned)h->cache.heads);
}

/* Sets *q0 and returns the end of the query heads [*q0, end) that score head `at`. */
DEVICE int group_of(const struct gpu_group &x, int at, int *q0)
{
    int first = x.layer ? at - at % x.heads_of_layer : at;
    *q0 = first * x.per;
    return *q0 + (x.layer ? x.heads_of_layer : 1) * x.per;
}

/* Returns the ring index of the row that is `age` queries old. */
DEVICE int row_at(const struct gpu_window &w, int age)
{
    return (w.newest + (w.now ? w.now[1] : 0) + w.ring - age) % w.ring;
}

/* Returns the weight that query head q gave to the entry of a slot at position pos; 0 for an entry
 * later than the query. */
DEVICE float weight_at(const struct gpu_heads &h, const struct gpu_window &w, int q, int row,
                       int slot, int32_t pos)
{
    if (pos > w.row_t[row])
        return 0;
    return w
        .rows[((size_t)q * (size_t)w.ring + (size_t)row) * (size_t)h.cache.ld_slot + (size_t)slot];
}

/* Returns the base of relative positions. */
DEVICE int32_t now_of(const struct asked &a)
{
    return a.h.now ? a.h.now[0] : 0;
}

/* Returns true if the entry is neither a sink nor recent. */
DEVICE bool candidate(int32_t pos, int32_t sinks, int32_t recent_from)
{
    return pos >= sinks && pos < recent_from;
}

/* Returns the sum of exp(value(i) - top), i < n, in the order of i, in every lane. All LANES
 * compute the terms and one lane adds them. Synchronises before and after. */
template <class F> DEVICE double sum_of_exp(int n, double top, F value)
{
    SHARED(double, term, LANES);
    SHARED(double, all, 1);
    double sum = 0; /* only lane 0 uses it */
    for (int i0 = 0; i0 < n; i0 += LANES) {
        int m = n - i0 < LANES ? n - i0 : LANES;
        if ((int)threadIdx.x < m)
            term[threadIdx.x] = exp((double)value(i0 + (int)threadIdx.x) - top);
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < m; i++)
            sum += term[i];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        all[0] = sum;
    __syncthreads();
    sum = all[0];
    __syncthreads();
    return sum;
}

#endif

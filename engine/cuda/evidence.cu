/* evidence.cu - records evidence of entries during decoding: attention rows, their sums, lengths
 * and directions of keys, gate values. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/heads.h"

enum { LANES = 256, CHANNELS = 128 };

/* Kernel arguments of all sequences. */
struct all_taken {
    struct gpu_taken of[GPU_TOGETHER];
    int per, q0;
};

/* Lane i of row blockIdx.y records the weight of slot i, of sequence blockIdx.z. */
__global__ void take_kernel(GIVEN struct all_taken all)
{
    const struct gpu_taken &x = all.of[blockIdx.z];
    int g = (int)blockIdx.y, q = all.q0 + g, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const struct gpu_window &w = x.window;
    size_t row = (size_t)q * (size_t)w.ring + (size_t)x.now[1], ld = (size_t)x.ld_slot;
    if (i < x.n[q / all.per]) {
        float weight = x.p[(size_t)g * x.ld + (size_t)i];
        if (x.sum)
            x.sum[(size_t)q * ld + (size_t)i] += (double)weight;
        if (w.rows)
            w.rows[row * ld + (size_t)i] = weight;
    }
    if (i > 0 || !w.rows)
        return;
    w.row_n[row] = x.seen[g];
    w.row_lse[row] = x.lse[g];
    if (g == 0)
        w.row_t[x.now[1]] = x.now[0];
}

void gpu_accumulate_rows(struct gpu *g, const struct gpu_taken *of, int n, int per, int q0, int n_q)
{
    struct all_taken all = {};
    int most = 0;
    all.per = per;
    all.q0 = q0;
    for (int i = 0; i < n; i++) {
        struct gpu_window *w = &all.of[i].window;
        all.of[i] = of[i];
        w->newest = w->held = 0; /* host values, which differ from step to step */
        most = of[i].most > most ? of[i].most : most;
    }
    dim3 grid(blocks_for((size_t)most, LANES), (unsigned)n_q, (unsigned)n);
    LAUNCH(take_kernel, grid, LANES, 0, g, all);
}

/* Returns the sum of squares of a key in channel order; each lane computes the full sum. */
template <class KV> DEVICE double square_of(const KV *key, int D)
{
    double square = 0;
    for (int d = 0; d < D; d++) {
        double x = (double)kv_value(key, (size_t)d * PAGE_SLOTS);
        square += x * x;
    }
    return square;
}

/* Returns a channel of the normalised key, rounded to integer units of 2^-32. */
DEVICE double unit_of(float x, double square)
{
    float unit = (float)((double)x * formula_unit_scale(square));
    return formula_in_units((double)unit, SCORE_KEY_MAGIC);
}

/* Block (head): processes the newcomer of the head. */
template <class KV>
__global__ void __launch_bounds__(CHANNELS)
    keys_kernel(struct gpu_heads h, int first, float *norms, double *anchor)
{
    int at = first + (int)blockIdx.x, slot = h.slot[at], D = h.cache.D;
    const KV *key = page_keys<KV>(h.cache, at, slot / PAGE_SLOTS) + slot % PAGE_SLOTS;
    double square = square_of(key, D);
    if (norms && threadIdx.x == 0)
        norms[(size_t)at * (size_t)h.cache.ld_slot + (size_t)slot] = (float)sqrt(square);
    for (int d = (int)threadIdx.x; anchor && d < D; d += CHANNELS)
        anchor[(size_t)at * (size_t)D + (size_t)d] += unit_of(kv_value(key, (size_t)d * PAGE_SLOTS),
                                                              square);
}

void gpu_take_keys(struct gpu *g, const struct gpu_heads *h, int first, int n, float *norms,
                   double *anchor)
{
    auto kernel = h->cache.type == KV_F16 ? keys_kernel<uint16_t> : keys_kernel<float>;
    struct gpu_heads in = *h;
    LAUNCH(kernel, (unsigned)n, CHANNELS, 0, g, in, first, norms, anchor);
}

/* Lane (head): computes the length of the newcomer's value. */
template <class KV>
__global__ void lengths_kernel(struct gpu_heads h, int first, int n, float *lengths)
{
    int at = first + (int)(blockIdx.x * blockDim.x + threadIdx.x), D = h.cache.D;
    if (at >= first + n)
        return;
    int slot = h.slot[at];
    const KV *value = page_keys<KV>(h.cache, at, slot / PAGE_SLOTS) + D * PAGE_SLOTS;
    double square = 0;
    for (int d = 0; d < D; d++) {
        double x = (double)kv_value(value, (size_t)(slot % PAGE_SLOTS * D + d));
        square += x * x;
    }
    lengths[(size_t)at * (size_t)h.cache.ld_slot + (size_t)slot] = (float)sqrt(square);
}

void gpu_take_values(struct gpu *g, const struct gpu_heads *h, int first, int n, float *lengths)
{
    auto kernel = h->cache.type == KV_F16 ? lengths_kernel<uint16_t> : lengths_kernel<float>;
    struct gpu_heads in = *h;
    LAUNCH(kernel, blocks_for((size_t)n, LANES), LANES, 0, g, in, first, n, lengths);
}

/* Block (head): subtracts the keys of all marked entries, one after another. */
template <class KV>
__global__ void __launch_bounds__(CHANNELS)
    drop_kernel(struct gpu_heads h, int together, double *anchor)
{
    int at = (int)blockIdx.x, D = h.cache.D;
    const unsigned char *mark = h.mark + (size_t)(at - at % together) * (size_t)h.cache.ld_slot;
    for (int i = 0; i < h.n[at]; i++) {
        if (mark[i] != GPU_GONE)
            continue;
        const KV *key = page_keys<KV>(h.cache, at, i / PAGE_SLOTS) + i % PAGE_SLOTS;
        double square = square_of(key, D);
        for (int d = (int)threadIdx.x; d < D; d += CHANNELS)
            anchor[(size_t)at * (size_t)D + (size_t)d] -= unit_of(
                kv_value(key, (size_t)d * PAGE_SLOTS), square);
    }
}

void gpu_drop_keys(struct gpu *g, const struct gpu_heads *h, int together, double *anchor)
{
    auto kernel = h->cache.type == KV_F16 ? drop_kernel<uint16_t> : drop_kernel<float>;
    struct gpu_heads in = *h;
    LAUNCH(kernel, (unsigned)h->cache.heads, CHANNELS, 0, g, in, together, anchor);
}

/* Kernel arguments of all sequences. */
struct all_numbers {
    struct gpu_numbers of[GPU_TOGETHER];
};

/* Lane (head), of sequence blockIdx.y. */
__global__ void numbers_kernel(GIVEN struct all_numbers all, int heads)
{
    const struct gpu_numbers &x = all.of[blockIdx.y];
    int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (at >= heads)
        return;
    float number = x.from[at];
    if (x.column)
        x.column[(size_t)at * (size_t)x.ld_slot + (size_t)x.slot[at]] = number;
    if (x.of_token)
        x.of_token[(size_t)at * (size_t)x.cap + (size_t)x.now[0]] = number;
    if (x.home)
        x.home[at] = number;
}

void gpu_take_numbers(struct gpu *g, const struct gpu_numbers *of, int n, int heads)
{
    struct all_numbers all = {};
    for (int i = 0; i < n; i++)
        all.of[i] = of[i];
    dim3 grid(blocks_for((size_t)heads, LANES), (unsigned)n);
    LAUNCH(numbers_kernel, grid, LANES, 0, g, all, heads);
}

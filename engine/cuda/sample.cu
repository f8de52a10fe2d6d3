/* sample.cu - the next token from logits, and how likely a given one was, without a way back to the
 * host. */
#include "engine/cuda/device.cuh"

enum { LANES = 256, WARPS = LANES / WARP };

struct best {
    float value;
    int id;
};

DEVICE struct best better(struct best a, struct best b)
{
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

DEVICE struct best warp_best(struct best a)
{
    for (int d = WARP / 2; d > 0; d /= 2) {
        struct best b = {__shfl_xor_sync(ALL_LANES, a.value, d),
                         __shfl_xor_sync(ALL_LANES, a.id, d)};
        a = better(a, b);
    }
    return a;
}

DEVICE struct best row_best(const float *row, int n)
{
    SHARED(float, value, WARPS);
    SHARED(int, id, WARPS);
    struct best a = {-INFINITY, n};
    for (int i = (int)threadIdx.x; i < n; i += LANES)
        a = better(a, {row[i], i});
    a = warp_best(a);
    if (lane_of_warp() == 0) {
        value[warp_of_block()] = a.value;
        id[warp_of_block()] = a.id;
    }
    __syncthreads();
    a = {value[lane_of_warp() % WARPS], id[lane_of_warp() % WARPS]};
    return warp_best(a);
}

__global__ void __launch_bounds__(LANES)
    argmax_kernel(int32_t *ids, const float *logits, size_t ld, int n)
{
    struct best a = row_best(logits + (size_t)blockIdx.x * ld, n);
    if (threadIdx.x == 0)
        ids[blockIdx.x] = a.id < n ? a.id : 0;
}

void gpu_argmax(struct gpu *g, int32_t *ids, const float *logits, size_t ld, int n, int n_rows)
{
    LAUNCH(argmax_kernel, (unsigned)n_rows, LANES, 0, g->stream, ids, logits, ld, n);
}

DEVICE unsigned long long weight_units(float logit, float top, double temperature)
{
    float p = (float)exp(((double)logit - (double)top) / temperature);
    return (unsigned long long)__double2ll_rn((double)p * GPU_SAMPLE_UNITS);
}

/* Each lane sums a stretch of the row; that in which the draw falls goes through it again. */
__global__ void __launch_bounds__(LANES) sample_kernel(int32_t *ids, const float *logits, size_t ld,
                                                       int n, double temperature, const double *u)
{
    SHARED(unsigned long long, sum, LANES);
    const float *row = logits + (size_t)blockIdx.x * ld;
    int each = (n + LANES - 1) / LANES, from = (int)threadIdx.x * each;
    int to = from + each < n ? from + each : n;
    float top = row[row_best(row, n).id];
    unsigned long long mine = 0, before = 0, all = 0;
    for (int i = from; i < to; i++)
        mine += weight_units(row[i], top, temperature);
    sum[threadIdx.x] = mine;
    __syncthreads();
    for (int l = 0; l < LANES; l++) {
        before += l < (int)threadIdx.x ? (unsigned long long)sum[l] : 0;
        all += sum[l];
    }
    unsigned long long draw = (unsigned long long)(u[blockIdx.x] * (double)all);
    if (draw < before || draw >= before + mine)
        return;
    int i = from;
    for (draw -= before; i < to; i++) {
        unsigned long long w = weight_units(row[i], top, temperature);
        if (draw < w)
            break;
        draw -= w;
    }
    ids[blockIdx.x] = i;
}

void gpu_sample(struct gpu *g, int32_t *ids, const float *logits, size_t ld, int n, int n_rows,
                double temperature, const double *u)
{
    LAUNCH(sample_kernel, (unsigned)n_rows, LANES, 0, g->stream, ids, logits, ld, n, temperature,
           u);
}

/* Block (segment, row). */
__global__ void __launch_bounds__(LANES)
    segment_kernel(const float *logits, size_t ld, int n, int first, const int32_t *ids, float *lse,
                   size_t ld_lse, float *target)
{
    int r = (int)blockIdx.y, from = (int)blockIdx.x * GPU_SEGMENT;
    int left = n - from < GPU_SEGMENT ? n - from : GPU_SEGMENT, id = ids[r] - first - from;
    const float *row = logits + (size_t)r * ld + (size_t)from;
    float top = -INFINITY;
    double sum = 0;
    for (int i = (int)threadIdx.x; i < left; i += LANES)
        top = fmaxf(top, row[i]);
    top = block_max(top);
    for (int i = (int)threadIdx.x; i < left; i += LANES)
        sum += (double)expf(row[i] - top);
    sum = block_sum(sum);
    if (threadIdx.x > 0)
        return;
    lse[(size_t)blockIdx.x * ld_lse + (size_t)r] = top + (float)log(sum);
    if (id >= 0 && id < left)
        target[r] = row[id];
}

void gpu_segments(struct gpu *g, const float *logits, size_t ld, int n, int n_rows, int first,
                  const int32_t *ids, float *lse, size_t ld_lse, float *target)
{
    dim3 grid(blocks_for((size_t)n, GPU_SEGMENT), (unsigned)n_rows);
    LAUNCH(segment_kernel, grid, LANES, 0, g->stream, logits, ld, n, first, ids, lse, ld_lse,
           target);
}

/* train_loss.cu - losses and their gradients: of predictions, row by row of logits, and of gate
 * capacity and sparsity. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/gpu_train.h"

enum { LANES = 256 };

/* ---- predictions ---- */

__global__ void gather_kernel(float *rows, const float *x, const int32_t *at, int d, float by)
{
    const float *from = x + (size_t)at[blockIdx.x] * (size_t)d;
    for (int c = (int)threadIdx.x; c < d; c += LANES)
        rows[(size_t)blockIdx.x * (size_t)d + (size_t)c] = from[c] * by;
}

void gpu_gather(struct gpu *g, float *rows, const float *x, const int32_t *at, int n, int d,
                float by)
{
    LAUNCH(gather_kernel, (unsigned)n, LANES, 0, g, rows, x, at, d, by);
}

/* Requires different places for all rows. */
__global__ void scatter_kernel(float *x, const float *rows, const int32_t *at, int d, float by)
{
    float *to = x + (size_t)at[blockIdx.x] * (size_t)d;
    for (int c = (int)threadIdx.x; c < d; c += LANES)
        to[c] += rows[(size_t)blockIdx.x * (size_t)d + (size_t)c] * by;
}

void gpu_scatter_add(struct gpu *g, float *x, const float *rows, const int32_t *at, int n, int d,
                     float by)
{
    LAUNCH(scatter_kernel, (unsigned)n, LANES, 0, g, x, rows, at, d, by);
}

DEVICE float row_top(const float *row, int n)
{
    float top = -INFINITY;
    for (int i = (int)threadIdx.x; i < n; i += LANES)
        top = fmaxf(top, row[i]);
    return block_max(top);
}

/* kl_part of kernels.h. A block has one row. */
__global__ void __launch_bounds__(LANES)
    kl_parts_kernel(struct kl_part *part, float *next, const float *student, const float *teacher,
                    size_t ld, const int32_t *token, int V)
{
    const float *s = student + (size_t)blockIdx.x * ld;
    const float *t = teacher ? teacher + (size_t)blockIdx.x * ld : NULL;
    struct kl_part p = {};
    p.top_s = row_top(s, V);
    p.top_t = t ? row_top(t, V) : 0;
    for (int i = (int)threadIdx.x; i < V; i += LANES) {
        double ds = (double)s[i] - (double)p.top_s, es = exp(ds);
        p.sum_s += es;
        if (!t)
            continue;
        double dt = (double)t[i] - (double)p.top_t, et = exp(dt);
        p.sum_t += et;
        p.cross_s += es * (ds - dt);
        p.cross_t += et * (dt - ds);
    }
    p.sum_s = block_sum(p.sum_s);
    p.sum_t = block_sum(p.sum_t);
    p.cross_s = block_sum(p.cross_s);
    p.cross_t = block_sum(p.cross_t);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = p;
        next[blockIdx.x] = s[token[blockIdx.x]];
    }
}

void gpu_kl_parts(struct gpu *g, struct kl_part *part, float *next, const float *s, const float *t,
                  size_t ld, const int32_t *token, int n, int V)
{
    LAUNCH(kl_parts_kernel, (unsigned)n, LANES, 0, g, part, next, s, t, ld, token, V);
}

/* kl_back of kernels.h, in place. Block (row, range of the vocabulary). */
__global__ void kl_back_kernel(float *student, const float *teacher, size_t ld,
                               const struct kl_coef *coef, const int32_t *token, const float *ntp,
                               int V)
{
    int i = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    if (i >= V)
        return;
    struct kl_coef c = coef[blockIdx.x];
    size_t at = (size_t)blockIdx.x * ld + (size_t)i;
    double ds = (double)student[at] - (double)c.top_s, slope = (double)c.self, other = 0;
    if (c.reverse != 0 || c.forward != 0) {
        double dt = (double)teacher[at] - (double)c.top_t;
        slope += (double)c.reverse * (ds - dt - (double)c.shift);
        other = (double)c.forward * exp(dt);
    }
    float d = (float)(exp(ds) * slope - other);
    student[at] = i == token[blockIdx.x] ? d - ntp[blockIdx.x] : d;
}

void gpu_kl_back(struct gpu *g, float *s, const float *t, size_t ld, const struct kl_coef *coef,
                 const int32_t *token, const float *ntp, int n, int V)
{
    dim3 grid((unsigned)n, blocks_for((size_t)V, LANES));
    LAUNCH(kl_back_kernel, grid, LANES, 0, g, s, t, ld, coef, token, ntp, V);
}

__global__ void __launch_bounds__(LANES)
    mse_kernel(double *sum, float *d, const float *s, const float *x, double scale, int n)
{
    size_t at = (size_t)blockIdx.x * (size_t)n;
    double square = 0;
    for (int c = (int)threadIdx.x; c < n; c += LANES) {
        double diff = (double)s[at + (size_t)c] - (double)x[at + (size_t)c];
        square += diff * diff;
        d[at + (size_t)c] = (float)(scale * diff);
    }
    square = block_sum(square);
    if (threadIdx.x == 0)
        sum[blockIdx.x] = square;
}

void gpu_mse(struct gpu *g, double *sum, float *d, const float *s, const float *x, double scale,
             int T, int n)
{
    LAUNCH(mse_kernel, (unsigned)T, LANES, 0, g, sum, d, s, x, scale, n);
}

/* ---- capacity and sparsity of gates ---- */

/* R_i = sum over j <= i of its document of exp((i - j) log beta_j). A lane has one token, and the
 * gates are loaded LANES at a time. Block (tokens, head). */
__global__ void __launch_bounds__(LANES)
    capacity_sums_kernel(float *sums, const float *log_beta, const int32_t *first, int T)
{
    SHARED(float, gate, LANES);
    const float *lb = log_beta + (size_t)blockIdx.y * (size_t)T;
    int i0 = (int)blockIdx.x * LANES, i = i0 + (int)threadIdx.x;
    int from = i < T ? first[i] : i + 1, last = i0 + LANES < T ? i0 + LANES : T;
    double sum = 0;
    for (int j0 = first[i0]; j0 < last; j0 += LANES) {
        if (j0 + (int)threadIdx.x < T)
            gate[threadIdx.x] = lb[j0 + (int)threadIdx.x];
        __syncthreads();
        int a = from > j0 ? from : j0, b = j0 + LANES <= i ? j0 + LANES : i + 1;
        for (int j = a; j < b; j++)
            sum += (double)expf((float)(i - j) * gate[j - j0]);
        __syncthreads();
    }
    if (i < T)
        sums[(size_t)blockIdx.y * (size_t)T + (size_t)i] = (float)sum;
}

void gpu_capacity_sums(struct gpu *g, float *sums, const float *log_beta, const int32_t *first,
                       int heads, int T)
{
    dim3 grid(blocks_for((size_t)T, LANES), (unsigned)heads);
    LAUNCH(capacity_sums_kernel, grid, LANES, 0, g, sums, log_beta, first, T);
}

/* out_j = sum over i >= j of its document of d_i (i - j) exp((i - j) log beta_j). */
__global__ void __launch_bounds__(LANES)
    capacity_back_kernel(float *out, const float *d, const float *log_beta, const int32_t *first,
                         int T)
{
    SHARED(float, by, LANES);
    SHARED(int, start, LANES); /* first token of the document */
    size_t head = (size_t)blockIdx.y * (size_t)T;
    int j = (int)blockIdx.x * LANES + (int)threadIdx.x;
    int mine = j < T ? first[j] : -1;
    int last = (int)(blockIdx.x + 1) * LANES <= T ? (int)(blockIdx.x + 1) * LANES - 1 : T - 1;
    float lb = j < T ? log_beta[head + (size_t)j] : 0;
    double sum = 0;
    /* later documents begin after the last token of the block */
    for (int i0 = (int)blockIdx.x * LANES; i0 < T && first[i0] <= last; i0 += LANES) {
        int i = i0 + (int)threadIdx.x;
        by[threadIdx.x] = i < T ? d[head + (size_t)i] : 0;
        start[threadIdx.x] = i < T ? first[i] : -2;
        __syncthreads();
        for (int k = j > i0 ? j - i0 : 0; k < LANES && start[k] == mine; k++)
            if (by[k] != 0) {
                float age = (float)(i0 + k - j);
                sum += (double)(by[k] * age * expf(age * lb));
            }
        __syncthreads();
    }
    if (j < T)
        out[head + (size_t)j] = (float)sum;
}

void gpu_capacity_back(struct gpu *g, float *d_log_beta, const float *d, const float *log_beta,
                       const int32_t *first, int heads, int T)
{
    dim3 grid(blocks_for((size_t)T, LANES), (unsigned)heads);
    LAUNCH(capacity_back_kernel, grid, LANES, 0, g, d_log_beta, d, log_beta, first, T);
}

/* Returns R of token t: of one row, or the sum over all heads. */
DEVICE double kept(const float *sums, int row, int t, int heads, int T, bool total)
{
    double R = 0;
    if (!total)
        return (double)sums[(size_t)row * (size_t)T + (size_t)t];
    for (int h = 0; h < heads; h++)
        R += (double)sums[(size_t)h * (size_t)T + (size_t)t];
    return R;
}

/* A block has one row. */
__global__ void __launch_bounds__(LANES)
    capacity_terms_kernel(double *sum, long long *count, const float *sums, const double *w,
                          double M, int heads, int T, bool total)
{
    double terms = 0;
    int over = 0;
    for (int t = (int)threadIdx.x; t < T; t += LANES) {
        double R = kept(sums, (int)blockIdx.x, t, heads, T, total);
        terms += R > M ? (R - M) * w[t] : 0;
        over += R > M;
    }
    terms = block_sum(terms);
    over = block_sum(over);
    if (threadIdx.x == 0) {
        sum[blockIdx.x] = terms;
        count[blockIdx.x] = over;
    }
}

void gpu_capacity_terms(struct gpu *g, double *sum, int64_t *count, const float *sums,
                        const double *w, double M, int heads, int T, bool total)
{
    LAUNCH(capacity_terms_kernel, total ? 1u : (unsigned)heads, LANES, 0, g, sum,
           (long long *)count, sums, w, M, heads, T, total);
}

__global__ void capacity_spread_kernel(float *d, const float *sums, const double *w, double M,
                                       double scale, int heads, int T, bool total)
{
    int t = (int)(blockIdx.x * blockDim.x + threadIdx.x), row = (int)blockIdx.y;
    if (t < T)
        d[(size_t)row * (size_t)T + (size_t)t] = kept(sums, row, t, heads, T, total) > M
                                                     ? (float)(scale * w[t])
                                                     : 0;
}

void gpu_capacity_spread(struct gpu *g, float *d, const float *sums, const double *w, double M,
                         double scale, int heads, int T, bool total)
{
    dim3 grid(blocks_for((size_t)T, LANES), (unsigned)heads);
    LAUNCH(capacity_spread_kernel, grid, LANES, 0, g, d, sums, w, M, scale, heads, T, total);
}

/* A block has one head. */
__global__ void __launch_bounds__(LANES) sparsity_kernel(double *sum, float *d_g, const float *gate,
                                                         const double *o, double scale, int T)
{
    size_t head = (size_t)blockIdx.x * (size_t)T;
    double mine = 0;
    for (int t = (int)threadIdx.x; t < T; t += LANES) {
        double left = 1 - (double)gate[head + (size_t)t];
        mine += o[t] + (1 - o[t]) * (1 - left * left);
        d_g[head + (size_t)t] = (float)(scale * (1 - o[t]) * 2 * left);
    }
    mine = block_sum(mine);
    if (threadIdx.x == 0)
        sum[blockIdx.x] = mine;
}

void gpu_sparsity(struct gpu *g, double *sum, float *d_g, const float *gate, const double *o,
                  double scale, int heads, int T)
{
    LAUNCH(sparsity_kernel, (unsigned)heads, LANES, 0, g, sum, d_g, gate, o, scale, T);
}

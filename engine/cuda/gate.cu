/* gate.cu - kernels of gate networks except matrix products: inputs, activations and outputs
 * (engine/gate/gate_eval.c), and admission by write gates. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/heads.h"
#include "engine/cuda/tensor.cuh"

enum { LANES = 256 };

/* Returns run i of token t and unit u of a row. */
DEVICE const float *run_of(const struct gpu_runs &r, int i, int row, int t, int u)
{
    return r.from[row][i] + (size_t)t * r.ld[i] + (size_t)(u * r.step[i]);
}

__global__ void gather_kernel(GIVEN struct gpu_runs r, int all, float *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), run = 0, j = i;
    int at = (int)blockIdx.y, row = at / r.T, unit = (int)blockIdx.z;
    if (i >= all)
        return;
    for (; j >= r.count[run]; run++)
        j -= r.count[run];
    out[((size_t)at * (size_t)r.n_units + (size_t)unit) * (size_t)all + (size_t)i] = run_of(
        r, run, row, at % r.T, unit)[j];
}

/* Block (run, row and token, unit), with the summation order of rmsnorm_kernel. */
__global__ void __launch_bounds__(LANES)
    gather_normed_kernel(GIVEN struct gpu_runs r, int all, float *out)
{
    int run = (int)blockIdx.x, at = (int)blockIdx.y, unit = (int)blockIdx.z, t = at % r.T;
    const float *x = run_of(r, run, at / r.T, t, unit), *w = r.norm[run] + (size_t)t * r.ld_norm;
    float *to = out + ((size_t)at * (size_t)r.n_units + (size_t)unit) * (size_t)all;
    for (int i = 0; i < run; i++)
        to += r.count[i];
    double square = 0;
    for (int c = (int)threadIdx.x; c < r.count[run]; c += LANES)
        square += (double)x[c] * (double)x[c];
    float scale = (float)(1.0 / sqrt(block_sum(square) / r.count[run] + (double)r.eps));
    for (int c = (int)threadIdx.x; c < r.count[run]; c += LANES)
        to[c] = x[c] * scale * w[c];
}

void gpu_join_runs(struct gpu *g, const struct gpu_runs *runs, float *out)
{
    struct gpu_runs r = *runs;
    int all = 0;
    for (int i = 0; i < r.n; i++)
        all += r.count[i];
    dim3 grid(blocks_for((size_t)all, LANES), (unsigned)(r.n_rows * r.T), (unsigned)r.n_units);
    dim3 each((unsigned)r.n, grid.y, grid.z);
    if (r.norm[0])
        LAUNCH(gather_normed_kernel, each, LANES, 0, g, r, all, out);
    else
        LAUNCH(gather_kernel, grid, LANES, 0, g, r, all, out);
}

__global__ void act_kernel(float *x, const float *bias, const float *with, int n,
                           enum gate_activation act)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    size_t at = (size_t)blockIdx.y * (size_t)n + (size_t)i;
    float a = bias ? x[at] + bias[i] : x[at];
    x[at] = with ? a * with[at] : gate_activate(act, a);
}

void gpu_gate_act(struct gpu *g, float *x, const float *bias, const float *with, int T, int n,
                  enum gate_activation act)
{
    dim3 grid(blocks_for((size_t)n, LANES), (unsigned)T);
    LAUNCH(act_kernel, grid, LANES, 0, g, x, bias, with, n, act);
}

__global__ void output_kernel(float *out, size_t ld, const float *x, const float *bias, int n,
                              enum gate_output output)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    size_t t = blockIdx.y;
    float z = x[t * (size_t)n + (size_t)i];
    out[t * ld + (size_t)i] = gate_output(output, bias ? z + bias[i] : z);
}

void gpu_gate_output(struct gpu *g, float *out, size_t ld, const float *x, const float *bias, int T,
                     int n, enum gate_output output)
{
    dim3 grid(blocks_for((size_t)n, LANES), (unsigned)T);
    LAUNCH(output_kernel, grid, LANES, 0, g, out, ld, x, bias, n, output);
}

/* ---- all networks of a step */

enum { QUAD = 4, OUTPUTS = 4 /* outputs of a warp */, STRIDE = QUAD * WARP };

/* Returns the input of net i in row r. */
DEVICE const float *stage_in(const struct gpu_gate_stage &s, int r, int net)
{
    return s.x[r] + (size_t)(net / s.units) * s.ld_x + (size_t)(net % s.units * s.K);
}

/* Converts the sum of output n to the next stage's input or to a gate value, and stores it. */
DEVICE void stage_out(const struct gpu_gate_stage &s, int r, int net, int n, float v)
{
    size_t at = (size_t)net * (size_t)s.N + (size_t)n;
    v = s.bias ? v + s.bias[at] : v;
    if (s.last)
        v = gate_output(s.output, v);
    else
        v = s.with[r] ? v * s.with[r][at] : gate_activate(s.act, v);
    s.out[r][at] = v;
}

/* Loads four channels from k on; 0 from K on. */
DEVICE float4 quad_at(const float *x, int k, int K, bool whole)
{
    if (whole && k < K)
        return *(const float4 *)(const void *)(x + k);
    return {k < K ? x[k] : 0, k + 1 < K ? x[k + 1] : 0, k + 2 < K ? x[k + 2] : 0,
            k + 3 < K ? x[k + 3] : 0};
}

DEVICE float quad_add(float4 x, float4 w, float sum)
{
    return fmaf(x.w, w.w, fmaf(x.z, w.z, fmaf(x.y, w.y, fmaf(x.x, w.x, sum))));
}

/* Block (outputs, net): a warp computes OUTPUTS outputs of all rows; its lanes divide the channels
 * in quads. The sums do not depend on the number of rows. */
template <int ROWS>
__global__ void __launch_bounds__(LANES) stage_kernel(GIVEN struct gpu_gate_stage s, bool whole)
{
    int net = (int)blockIdx.y,
        first = ((int)blockIdx.x * (LANES / WARP) + warp_of_block()) * OUTPUTS;
    const float *w[OUTPUTS], *x[ROWS];
    float sum[ROWS][OUTPUTS] = {{0}};
    if (first >= s.N)
        return;
#pragma unroll
    for (int j = 0; j < OUTPUTS; j++)
        w[j] = s.w
               + ((size_t)net * (size_t)s.N + (size_t)(first + j < s.N ? first + j : s.N - 1))
                     * (size_t)s.K;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        x[r] = stage_in(s, r < s.n_rows ? r : s.n_rows - 1, net);
#pragma unroll 2
    for (int k = lane_of_warp() * QUAD; k < s.K; k += STRIDE) {
        float4 a[OUTPUTS];
#pragma unroll
        for (int j = 0; j < OUTPUTS; j++)
            a[j] = quad_at(w[j], k, s.K, whole);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float4 b = quad_at(x[r], k, s.K, whole);
#pragma unroll
            for (int j = 0; j < OUTPUTS; j++)
                sum[r][j] = quad_add(b, a[j], sum[r][j]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < OUTPUTS; j++) {
            float v = warp_sum(sum[r][j]);
            if (lane_of_warp() == j && r < s.n_rows && first + j < s.N)
                stage_out(s, r, net, first + j, v);
        }
}

/* Lane (output), block (outputs, net, row): a chain of fused multiply-adds. */
__global__ void exact_stage_kernel(GIVEN struct gpu_gate_stage s)
{
    int n = (int)(blockIdx.x * blockDim.x + threadIdx.x), net = (int)blockIdx.y;
    if (n >= s.N)
        return;
    const float *x = stage_in(s, (int)blockIdx.z, net);
    const float *w = s.w + ((size_t)net * (size_t)s.N + (size_t)n) * (size_t)s.K;
    float sum = 0;
    for (int k = 0; k < s.K; k++)
        sum = fmaf(x[k], w[k], sum);
    stage_out(s, (int)blockIdx.z, net, n, sum);
}

/* Returns true if all inputs are aligned to quads. */
static bool in_quads(const struct gpu_gate_stage *s)
{
    size_t all = (size_t)s->w | s->ld_x * sizeof(float) | (size_t)s->K * sizeof(float);
    for (int r = 0; r < s->n_rows; r++)
        all |= (size_t)s->x[r];
    return all % (QUAD * sizeof(float)) == 0;
}

void gpu_gate_stage(struct gpu *g, const struct gpu_gate_stage *stage, bool exact)
{
    struct gpu_gate_stage s = *stage;
    bool whole = in_quads(stage);
    dim3 each(blocks_for((size_t)s.N, LANES), (unsigned)s.nets, (unsigned)s.n_rows);
    dim3 grid(blocks_for((size_t)s.N, LANES / WARP * OUTPUTS), (unsigned)s.nets);
    if (exact)
        LAUNCH(exact_stage_kernel, each, LANES, 0, g, s);
    else if (s.n_rows > 4)
        LAUNCH(stage_kernel<GPU_TOGETHER>, grid, LANES, 0, g, s, whole);
    else if (s.n_rows > 1)
        LAUNCH(stage_kernel<4>, grid, LANES, 0, g, s, whole);
    else
        LAUNCH(stage_kernel<1>, grid, LANES, 0, g, s, whole);
}

/* ---- the networks of a layer, for many tokens */

enum {
    TOKENS = 64,
    OUTS = 32,
    CHANNELS = 32, /* channels loaded at a time */
    ROW_LANES = TOKENS / QUAD * (OUTS / QUAD),
    TOKENS_LD = TOKENS + QUAD,
    OUTS_LD = OUTS + QUAD,
};

/* A lane's part of channels from k0 on of n <= ROWS rows at `from`, ld apart; zeros after the last
 * row and the last channel. */
template <int ROWS> struct rows_part {
    float4 v[ROWS * CHANNELS / QUAD / ROW_LANES];
};
template <int ROWS>
DEVICE struct rows_part<ROWS> fetch_rows(const float *from, size_t ld, int n, int k0, int K,
                                         bool whole) {
    struct rows_part<ROWS> p;
#pragma unroll
    for (int j = 0; j < ROWS * CHANNELS / QUAD / ROW_LANES; j++) {
        int i = (int)threadIdx.x + j * ROW_LANES, row = i / (CHANNELS / QUAD);
        p.v[j] = {0, 0, 0, 0};
        if (row < n)
            p.v[j] = quad_at(from + (size_t)row * ld, k0 + i % (CHANNELS / QUAD) * QUAD, K, whole);
    }
    return p;
}

/* Stores them transposed: to[channel][row]. */
template <int ROWS>
DEVICE void put_turned(in_shared<float> to, int ld_to, const struct rows_part<ROWS> &p)
{
#pragma unroll
    for (int j = 0; j < ROWS * CHANNELS / QUAD / ROW_LANES; j++) {
        int i = (int)threadIdx.x + j * ROW_LANES, row = i / (CHANNELS / QUAD);
        int k = i % (CHANNELS / QUAD) * QUAD;
        to[k * ld_to + row] = p.v[j].x;
        to[(k + 1) * ld_to + row] = p.v[j].y;
        to[(k + 2) * ld_to + row] = p.v[j].z;
        to[(k + 3) * ld_to + row] = p.v[j].w;
    }
}

/* Converts the sum of output n of token t to the next stage's input or to a gate value, and stores
 * it. */
DEVICE void rows_out(const struct gpu_gate_rows &s, int unit, int t, int n, float v)
{
    size_t at = (size_t)t * s.ld_out + (size_t)(unit * s.N + n);
    v = s.bias ? v + s.bias[unit * s.N + n] : v;
    if (s.last)
        v = gate_output(s.output, v);
    else
        v = s.with ? v * s.with[at] : gate_activate(s.act, v);
    s.out[at] = v;
}

/* Block (tokens, outputs, unit): a lane has four tokens by four outputs, each a chain of fused
 * multiply-adds over the channels. The next channels are loaded during the sums of the current
 * ones. */
__global__ void __launch_bounds__(ROW_LANES)
    rows_stage_kernel(GIVEN struct gpu_gate_rows s, bool whole)
{
    SHARED_FOURS(float, x, CHANNELS *TOKENS_LD);
    SHARED_FOURS(float, w, CHANNELS *OUTS_LD);
    int unit = (int)blockIdx.z, t0 = (int)blockIdx.x * TOKENS, n0 = (int)blockIdx.y * OUTS;
    int t = (int)threadIdx.x / (OUTS / QUAD) * QUAD, n = (int)threadIdx.x % (OUTS / QUAD) * QUAD;
    const float *rows = s.x + (size_t)t0 * s.ld_x + (size_t)(unit * s.K);
    const float *weights = s.w + (size_t)(unit * s.N + n0) * (size_t)s.K;
    float sum[QUAD][QUAD] = {{0}};
    struct rows_part<TOKENS> next = fetch_rows<TOKENS>(rows, s.ld_x, s.T - t0, 0, s.K, whole);
    struct rows_part<OUTS> more = fetch_rows<OUTS>(weights, (size_t)s.K, s.N - n0, 0, s.K, whole);
    for (int k0 = 0; k0 < s.K; k0 += CHANNELS) {
        put_turned<TOKENS>(x, TOKENS_LD, next);
        put_turned<OUTS>(w, OUTS_LD, more);
        __syncthreads();
        next = fetch_rows<TOKENS>(rows, s.ld_x, s.T - t0, k0 + CHANNELS, s.K, whole);
        more = fetch_rows<OUTS>(weights, (size_t)s.K, s.N - n0, k0 + CHANNELS, s.K, whole);
        int end = s.K - k0 < CHANNELS ? s.K - k0 : CHANNELS;
#pragma unroll 8
        for (int k = 0; k < end; k++) {
            float a[QUAD], b[QUAD];
            shared_four(x, (unsigned)(k * TOKENS_LD + t), a);
            shared_four(w, (unsigned)(k * OUTS_LD + n), b);
#pragma unroll
            for (int i = 0; i < QUAD; i++)
#pragma unroll
                for (int j = 0; j < QUAD; j++)
                    sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < QUAD; i++)
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            if (t0 + t + i < s.T && n0 + n + j < s.N)
                rows_out(s, unit, t0 + t + i, n0 + n + j, sum[i][j]);
}

void gpu_gate_rows(struct gpu *g, const struct gpu_gate_rows *stage)
{
    struct gpu_gate_rows s = *stage;
    size_t all = (size_t)s.w | (size_t)s.x | (s.ld_x | (size_t)s.K) * sizeof(float);
    bool whole = all % (QUAD * sizeof(float)) == 0;
    dim3 grid(blocks_for((size_t)s.T, TOKENS), blocks_for((size_t)s.N, OUTS), (unsigned)s.units);
    LAUNCH(rows_stage_kernel, grid, ROW_LANES, 0, g, s, whole);
}

__global__ void admit_kernel(struct gpu_cache c, struct gpu_admission how, const float *numbers,
                             const int32_t *first, int T, int32_t pos0)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), t = i / c.heads, h = i % c.heads;
    if (t >= T)
        return;
    bool in = admission_passes(numbers[i], how.tau, how.above);
    int32_t pos = pos0 + t, until = in ? INT32_MAX : admission_after(pos, how.stays);
    int32_t end = INT32_MAX;
    if (how.window && pos < INT32_MAX - how.window)
        end = pos + how.window;
    c.until[(size_t)h * (size_t)c.ld_slot + (size_t)(first[h] + t)] = until < end ? until : end;
}

void gpu_admit(struct gpu *g, const struct gpu_cache *c, const struct gpu_admission *how,
               const float *numbers, const int32_t *first, int T, int32_t pos0)
{
    struct gpu_cache cache = *c;
    struct gpu_admission own = *how;
    LAUNCH(admit_kernel, blocks_for((size_t)T * (size_t)c->heads, LANES), LANES, 0, g, cache, own,
           numbers, first, T, pos0);
}

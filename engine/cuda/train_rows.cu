/* train_rows.cu - training kernels along rows and elements: norms and their gradients, RoPE,
 * activations, gates. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/gpu_train.h"

enum { LANES = 256, COLUMNS = 32, SHARES = LANES / COLUMNS };

/* Returns the column of a lane in launches over (rows, columns): a lane has one element of row
 * blockIdx.x. */
DEVICE int column()
{
    return (int)(blockIdx.y * blockDim.x + threadIdx.x);
}

static dim3 over(int n, int T)
{
    return dim3((unsigned)T, blocks_for((size_t)n, LANES));
}

/* ---- norms ---- */

DEVICE float inverse_rms(double square, int C, float eps)
{
    return (float)(1.0 / sqrt(square / C + (double)eps));
}

/* Block (token, head). */
__global__ void norm_kernel(struct gpu_norm n, float *out, size_t ld_out, const float *x,
                            size_t ld_x)
{
    size_t head = (size_t)blockIdx.y * (size_t)n.C, t = blockIdx.x;
    const float *from = x + t * ld_x + head;
    float *to = out + t * ld_out + head;
    double square = 0;
    for (int c = (int)threadIdx.x; c < n.C; c += LANES)
        square += (double)from[c] * (double)from[c];
    float r = inverse_rms(block_sum(square), n.C, n.eps);
    for (int c = (int)threadIdx.x; c < n.C; c += LANES)
        to[c] = from[c] * r * n.w[c];
}

void gpu_norm(struct gpu *g, const struct gpu_norm *n, float *out, size_t ld_out, const float *x,
              size_t ld_x)
{
    dim3 grid((unsigned)n->T, (unsigned)n->heads);
    struct gpu_norm in = *n;
    LAUNCH(norm_kernel, grid, LANES, 0, g, in, out, ld_out, x, ld_x);
}

/* With r = 1 / rms(x): dx_c = r w_c dy_c - x_c r^3 / C sum_k dy_k w_k x_k. Block (token, head). */
__global__ void norm_back_kernel(struct gpu_norm n, float *dx, size_t ld_dx, const float *x,
                                 size_t ld_x, const float *dy, size_t ld_dy, bool set)
{
    size_t head = (size_t)blockIdx.y * (size_t)n.C, t = blockIdx.x;
    const float *from = x + t * ld_x + head, *d = dy + t * ld_dy + head;
    float *to = dx + t * ld_dx + head;
    double square = 0, dot = 0;
    for (int c = (int)threadIdx.x; c < n.C; c += LANES) {
        square += (double)from[c] * (double)from[c];
        dot += (double)(d[c] * n.w[c]) * (double)from[c];
    }
    square = block_sum(square);
    dot = block_sum(dot);
    double r = 1.0 / sqrt(square / n.C + (double)n.eps);
    float scale = (float)r, pull = (float)(r * r * r * dot / n.C);
    for (int c = (int)threadIdx.x; c < n.C; c += LANES)
        to[c] = (set ? 0 : to[c]) + (scale * (n.w[c] * d[c]) - pull * from[c]);
}

void gpu_norm_back(struct gpu *g, const struct gpu_norm *n, float *dx, size_t ld_dx, const float *x,
                   size_t ld_x, const float *dy, size_t ld_dy, bool set)
{
    dim3 grid((unsigned)n->T, (unsigned)n->heads);
    struct gpu_norm in = *n;
    LAUNCH(norm_back_kernel, grid, LANES, 0, g, in, dx, ld_dx, x, ld_x, dy, ld_dy, set);
}

/* ---- sums over rows ---- */

/* Returns the sum over the SHARES lanes of a column, in order, in the lanes of the first share. */
DEVICE double share_sum(double mine, in_shared<double> part)
{
    part[threadIdx.x] = mine;
    __syncthreads();
    double sum = 0;
    for (int s = 0; threadIdx.x < COLUMNS && s < SHARES; s++)
        sum += (double)part[s * COLUMNS + (int)threadIdx.x];
    __syncthreads();
    return sum;
}

/* to[c] += the sum of rows. A block has COLUMNS columns, and each of its lanes every SHARES-th
 * row. */
__global__ void __launch_bounds__(LANES)
    sum_rows_kernel(float *to, const float *x, size_t ld_x, int T, int n)
{
    SHARED(double, part, LANES);
    int c = (int)blockIdx.x * COLUMNS + (int)threadIdx.x % COLUMNS;
    double sum = 0;
#pragma unroll 8
    for (int t = (int)threadIdx.x / COLUMNS; c < n && t < T; t += SHARES)
        sum += (double)x[(size_t)t * ld_x + (size_t)c];
    sum = share_sum(sum, part);
    if (threadIdx.x < COLUMNS && c < n)
        to[c] += (float)sum;
}

void gpu_sum_rows(struct gpu *g, float *to, const float *x, size_t ld_x, int T, int n)
{
    LAUNCH(sum_rows_kernel, blocks_for((size_t)n, COLUMNS), LANES, 0, g, to, x, ld_x, T, n);
}

/* A warp first computes the rms of each row of a stretch; then the columns are summed. */
enum { STRETCH = 64 };

__global__ void __launch_bounds__(LANES)
    norm_learn_kernel(struct gpu_norm n, float *dw, const float *x, size_t ld_x, const float *dy,
                      size_t ld_dy)
{
    SHARED(double, part, LANES);
    SHARED(float, r, STRETCH);
    int c = (int)blockIdx.x * COLUMNS + (int)threadIdx.x % COLUMNS, rows = n.T * n.heads;
    double sum = 0;
    for (int r0 = 0; r0 < rows; r0 += STRETCH) {
        int end = rows - r0 < STRETCH ? rows - r0 : STRETCH;
        for (int i = warp_of_block(); i < end; i += LANES / WARP) {
            int t = (r0 + i) / n.heads, head = (r0 + i) % n.heads;
            const float *from = x + (size_t)t * ld_x + (size_t)(head * n.C);
            double square = 0;
            for (int k = lane_of_warp(); k < n.C; k += WARP)
                square += (double)from[k] * (double)from[k];
            square = warp_sum(square);
            if (lane_of_warp() == 0)
                r[i] = inverse_rms(square, n.C, n.eps);
        }
        __syncthreads();
        for (int i = (int)threadIdx.x / COLUMNS; c < n.C && i < end; i += SHARES) {
            int t = (r0 + i) / n.heads, head = (r0 + i) % n.heads;
            size_t at = (size_t)(head * n.C + c);
            sum += (double)(dy[(size_t)t * ld_dy + at] * x[(size_t)t * ld_x + at] * r[i]);
        }
        __syncthreads();
    }
    sum = share_sum(sum, part);
    if (threadIdx.x < COLUMNS && c < n.C)
        dw[c] += (float)sum;
}

void gpu_norm_learn(struct gpu *g, const struct gpu_norm *n, float *dw, const float *x, size_t ld_x,
                    const float *dy, size_t ld_dy)
{
    struct gpu_norm in = *n;
    LAUNCH(norm_learn_kernel, blocks_for((size_t)n->C, COLUMNS), LANES, 0, g, in, dw, x, ld_x, dy,
           ld_dy);
}

/* ---- copies of rows ---- */

__global__ void copy_rows_kernel(float *y, size_t ld_y, const float *x, size_t ld_x, int n,
                                 bool add)
{
    int i = column();
    if (i >= n)
        return;
    float *to = y + (size_t)blockIdx.x * ld_y + (size_t)i;
    float v = x[(size_t)blockIdx.x * ld_x + (size_t)i];
    *to = add ? *to + v : v;
}

void gpu_copy_rows(struct gpu *g, float *y, size_t ld_y, const float *x, size_t ld_x, int T, int n)
{
    LAUNCH(copy_rows_kernel, over(n, T), LANES, 0, g, y, ld_y, x, ld_x, n, false);
}

void gpu_add_rows(struct gpu *g, float *y, size_t ld_y, const float *x, size_t ld_x, int T, int n)
{
    LAUNCH(copy_rows_kernel, over(n, T), LANES, 0, g, y, ld_y, x, ld_x, n, true);
}

__global__ void blend_kernel(float *y, const float *x, size_t n, float by)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = (x ? x[i] : 0) + by * y[i];
}

void gpu_blend(struct gpu *g, float *y, const float *x, size_t n, float by)
{
    LAUNCH(blend_kernel, blocks_for(n, LANES), LANES, 0, g, y, x, n, by);
}

enum { EDGE = 32 };

/* A block transposes a square of EDGE by EDGE. */
__global__ void __launch_bounds__(LANES)
    transpose_kernel(float *to, const float *from, int m, int n)
{
    SHARED(float, square, EDGE *(EDGE + 1));
    int i0 = (int)blockIdx.y * EDGE, j0 = (int)blockIdx.x * EDGE, x = (int)threadIdx.x % EDGE;
    for (int y = (int)threadIdx.x / EDGE; y < EDGE; y += LANES / EDGE)
        if (i0 + y < m && j0 + x < n)
            square[y * (EDGE + 1) + x] = from[(size_t)(i0 + y) * (size_t)n + (size_t)(j0 + x)];
    __syncthreads();
    for (int y = (int)threadIdx.x / EDGE; y < EDGE; y += LANES / EDGE)
        if (j0 + y < n && i0 + x < m)
            to[(size_t)(j0 + y) * (size_t)m + (size_t)(i0 + x)] = square[x * (EDGE + 1) + y];
}

void gpu_transpose(struct gpu *g, float *to, const float *from, int m, int n)
{
    dim3 grid(blocks_for((size_t)n, EDGE), blocks_for((size_t)m, EDGE));
    LAUNCH(transpose_kernel, grid, LANES, 0, g, to, from, m, n);
}

__global__ void rope_within_kernel(float *x, size_t ld, const float *turn, const int32_t *first,
                                   int n_heads, int D, int n_rot)
{
    int half = n_rot / 2, i = column(), t = (int)blockIdx.x;
    if (i >= n_heads * half)
        return;
    float *p = x + (size_t)t * ld + (size_t)(i / half * D + 2 * (i % half));
    const float *by = turn + (size_t)(t - first[t]) * (size_t)n_rot + 2 * (i % half);
    float c = by[0], s = by[1], a = p[0], b = p[1];
    p[0] = a * c - b * s;
    p[1] = a * s + b * c;
}

void gpu_rope_within(struct gpu *g, float *x, size_t ld, const float *turn, const int32_t *first,
                     int T, int n_heads, int D, int n_rot)
{
    if (n_rot > 1)
        LAUNCH(rope_within_kernel, over(n_heads * (n_rot / 2), T), LANES, 0, g, x, ld, turn, first,
               n_heads, D, n_rot);
}

/* One lane adds tokens with the same id, in order. */
__global__ void embed_learn_kernel(float *d_table, const int32_t *ids, const float *dx, int T,
                                   int d)
{
    int c = column();
    for (int t = 0; c < d && t < T; t++)
        d_table[(size_t)ids[t] * (size_t)d + (size_t)c] += dx[(size_t)t * (size_t)d + (size_t)c];
}

void gpu_embed_learn(struct gpu *g, float *d_table, const int32_t *ids, const float *dx, int T,
                     int d)
{
    dim3 grid(1, blocks_for((size_t)d, WARP));
    LAUNCH(embed_learn_kernel, grid, WARP, 0, g, d_table, ids, dx, T, d);
}

/* ---- activations ---- */

DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

__global__ void swiglu_kernel(float *out, size_t ld_out, const float *x, size_t ld_x, int n)
{
    int i = column();
    if (i >= n)
        return;
    const float *row = x + (size_t)blockIdx.x * ld_x;
    float gate = row[i];
    out[(size_t)blockIdx.x * ld_out + (size_t)i] = gate / (1.0f + expf(-gate)) * row[n + i];
}

void gpu_swiglu(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T, int n)
{
    LAUNCH(swiglu_kernel, over(n, T), LANES, 0, g, out, ld_out, x, ld_x, n);
}

__global__ void swiglu_back_kernel(float *d, size_t ld_d, const float *x, size_t ld_x, int n)
{
    int i = column();
    if (i >= n)
        return;
    const float *row = x + (size_t)blockIdx.x * ld_x;
    float *to = d + (size_t)blockIdx.x * ld_d, g = row[i], up = row[n + i], by = to[i];
    float s = sigmoid(g);
    to[i] = by * up * (s * (1.0f + g * (1.0f - s)));
    to[n + i] = by * (g * s);
}

void gpu_swiglu_back(struct gpu *g, float *d, size_t ld_d, const float *x, size_t ld_x, int T,
                     int n)
{
    LAUNCH(swiglu_back_kernel, over(n, T), LANES, 0, g, d, ld_d, x, ld_x, n);
}

__global__ void activate_kernel(enum gate_activation act, float *y, float *out, size_t ld,
                                const float *bias, int n)
{
    int i = column();
    if (i >= n)
        return;
    size_t at = (size_t)blockIdx.x * ld + (size_t)i;
    float v = y[at] + bias[i];
    y[at] = v;
    out[at] = gate_activate(act, v);
}

void gpu_activate(struct gpu *g, enum gate_activation act, float *y, float *out, size_t ld,
                  const float *bias, int T, int n)
{
    LAUNCH(activate_kernel, over(n, T), LANES, 0, g, act, y, out, ld, bias, n);
}

__global__ void activate_back_kernel(enum gate_activation act, float *out, float *d, const float *y,
                                     size_t ld, int n)
{
    int i = column();
    if (i >= n)
        return;
    size_t at = (size_t)blockIdx.x * ld + (size_t)i;
    out[at] = gate_activate(act, y[at]);
    d[at] *= gate_activate_slope(act, y[at]);
}

void gpu_activate_back(struct gpu *g, enum gate_activation act, float *out, float *d,
                       const float *y, size_t ld, int T, int n)
{
    LAUNCH(activate_back_kernel, over(n, T), LANES, 0, g, act, out, d, y, ld, n);
}

/* ---- gates ---- */

__global__ void read_out_kernel(float *z, size_t ld_z, const float *bias, float *value,
                                size_t ld_value, int n, enum gate_output output)
{
    int i = column();
    if (i >= n)
        return;
    float *at = z + (size_t)blockIdx.x * ld_z + (size_t)i, v = *at + bias[i];
    *at = v;
    value[(size_t)blockIdx.x * ld_value + (size_t)i] = gate_output(output, v);
}

void gpu_read_out(struct gpu *g, float *z, size_t ld_z, const float *bias, float *value,
                  size_t ld_value, int T, int n, enum gate_output output)
{
    LAUNCH(read_out_kernel, over(n, T), LANES, 0, g, z, ld_z, bias, value, ld_value, n, output);
}

__global__ void read_out_back_kernel(float *d_z, size_t ld_dz, const float *z, size_t ld_z,
                                     const float *d_value, size_t ld_value, int n,
                                     enum gate_output output)
{
    int i = column();
    if (i >= n)
        return;
    float slope = gate_output_slope(output, z[(size_t)blockIdx.x * ld_z + (size_t)i]);
    d_z[(size_t)blockIdx.x * ld_dz + (size_t)i] = d_value[(size_t)blockIdx.x * ld_value + (size_t)i]
                                                  * slope;
}

void gpu_read_out_back(struct gpu *g, float *d_z, size_t ld_dz, const float *z, size_t ld_z,
                       const float *d_value, size_t ld_value, int T, int n, enum gate_output output)
{
    LAUNCH(read_out_back_kernel, over(n, T), LANES, 0, g, d_z, ld_dz, z, ld_z, d_value, ld_value, n,
           output);
}

__global__ void gates_kernel(float *number, float *value, size_t n, bool write, float least)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (write)
        value[i] = fmaxf(value[i], least);
    number[i] = write ? logf(value[i]) : value[i];
}

void gpu_gates(struct gpu *g, float *number, float *value, size_t n, bool write, float least)
{
    LAUNCH(gates_kernel, blocks_for(n, LANES), LANES, 0, g, number, value, n, write, least);
}

__global__ void gates_back_kernel(float *d_value, const float *d_number, const float *value,
                                  const float *own, size_t n, bool write, float least)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float d = d_number[i], g = value[i], more = own ? own[i] : 0.0f;
    if (write)
        d_value[i] = g > least ? d / g + more : 0.0f; /* below it the clamp is constant */
    else
        d_value[i] = d + more;
}

void gpu_gates_back(struct gpu *g, float *d_value, const float *d_number, const float *value,
                    const float *own, size_t n, bool write, float least)
{
    LAUNCH(gates_back_kernel, blocks_for(n, LANES), LANES, 0, g, d_value, d_number, value, own, n,
           write, least);
}

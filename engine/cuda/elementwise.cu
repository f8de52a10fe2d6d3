/* elementwise.cu - norms, RoPE and activations, by rows or by elements. */
#include "engine/cuda/activation.cuh"

enum { LANES = 256, QUAD = 4 /* floats that a lane reads at once */ };

/* Returns true if all of these addresses and strides are aligned to quads. */
static bool quads(const void *a, const void *b, size_t ld, size_t n)
{
    return ((size_t)a | (size_t)b) % (QUAD * sizeof(float)) == 0 && (ld | n) % QUAD == 0;
}

/* Block (token, row of the token). */
__global__ void rmsnorm_kernel(float *out, const float *x, size_t ld, const float *w, int C,
                               float eps)
{
    size_t at = (size_t)blockIdx.x * ld + (size_t)blockIdx.y * (size_t)C;
    double square = 0;
    for (int c = (int)threadIdx.x; c < C; c += LANES)
        square += (double)x[at + (size_t)c] * (double)x[at + (size_t)c];
    float scale = (float)(1.0 / sqrt(block_sum(square) / C + (double)eps));
    for (int c = (int)threadIdx.x; c < C; c += LANES)
        out[at + (size_t)c] = x[at + (size_t)c] * scale * w[c];
}

void gpu_rmsnorm(struct gpu *g, float *out, const float *x, size_t ld, const float *w, int T, int n,
                 int C, float eps)
{
    dim3 grid((unsigned)T, (unsigned)n);
    LAUNCH(rmsnorm_kernel, grid, LANES, 0, g, out, x, ld, w, C, eps);
}

/* A lane rotates one pair of one head of token blockIdx.y. */
__global__ void rope_kernel(float *x, size_t ld, const float *cos_sin, int n_heads, int D,
                            int n_rot)
{
    int half = n_rot / 2, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n_heads * half)
        return;
    int head = i / half, j = i % half;
    float *p = x + (size_t)blockIdx.y * ld + (size_t)head * (size_t)D + 2 * j;
    const float *turn = cos_sin + (size_t)blockIdx.y * (size_t)n_rot + 2 * j;
    float c = turn[0], s = turn[1], a = p[0], b = p[1];
    p[0] = a * c - b * s;
    p[1] = a * s + b * c;
}

void gpu_rope(struct gpu *g, float *x, size_t ld, const float *cos_sin, int T, int n_heads, int D,
              int n_rot)
{
    dim3 grid(blocks_for((size_t)n_heads * (size_t)(n_rot / 2), LANES), (unsigned)T);
    if (n_rot > 1)
        LAUNCH(rope_kernel, grid, LANES, 0, g, x, ld, cos_sin, n_heads, D, n_rot);
}

__global__ void gated_kernel(float *out, const float *x, size_t ld, int n, bool gelu)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    const float *row = x + (size_t)blockIdx.y * ld;
    float gate = row[i], up = row[n + i];
    out[(size_t)blockIdx.y * (size_t)n + (size_t)i] = activation(gate, gelu) * up;
}

/* gated_kernel with four channels per lane. */
__global__ void gated_quads_kernel(float *out, const float *x, size_t ld, int n, bool gelu)
{
    int i = QUAD * (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    const float *row = x + (size_t)blockIdx.y * ld;
    float4 gate = *(const float4 *)(const void *)(row + i);
    float4 up = *(const float4 *)(const void *)(row + n + i);
    float4 made = {activation(gate.x, gelu) * up.x, activation(gate.y, gelu) * up.y,
                   activation(gate.z, gelu) * up.z, activation(gate.w, gelu) * up.w};
    *(float4 *)(void *)(out + (size_t)blockIdx.y * (size_t)n + (size_t)i) = made;
}

void gpu_gated(struct gpu *g, float *out, const float *x, size_t ld, int T, int n, bool gelu)
{
    bool four = quads(out, x, ld, (size_t)n);
    auto kernel = four ? gated_quads_kernel : gated_kernel;
    dim3 grid(blocks_for((size_t)n, four ? QUAD * LANES : LANES), (unsigned)T);
    LAUNCH(kernel, grid, LANES, 0, g, out, x, ld, n, gelu);
}

__global__ void add_kernel(float *x, const float *y, size_t n, float scale)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] += y[i] * scale;
}

__global__ void add_quads_kernel(float *x, const float *y, size_t n, float scale)
{
    size_t i = QUAD * ((size_t)blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    float4 a = *(const float4 *)(const void *)(x + i), b = *(const float4 *)(const void *)(y + i);
    *(float4 *)(void *)(x + i) = float4{a.x + b.x * scale, a.y + b.y * scale, a.z + b.z * scale,
                                        a.w + b.w * scale};
}

void gpu_add(struct gpu *g, float *x, const float *y, size_t n, float scale)
{
    bool four = quads(x, y, 0, n);
    auto kernel = four ? add_quads_kernel : add_kernel;
    LAUNCH(kernel, blocks_for(n, four ? QUAD * LANES : LANES), LANES, 0, g, x, y, n, scale);
}

__global__ void add_row_kernel(float *x, size_t ld, const float *row, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        x[(size_t)blockIdx.y * ld + (size_t)i] += row[i];
}

void gpu_add_row(struct gpu *g, float *x, size_t ld, const float *row, int T, int n)
{
    dim3 grid(blocks_for((size_t)n, LANES), (unsigned)T);
    LAUNCH(add_row_kernel, grid, LANES, 0, g, x, ld, row, n);
}

__global__ void soft_cap_kernel(float *x, size_t n, float cap)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = cap * tanhf(x[i] / cap);
}

void gpu_soft_cap(struct gpu *g, float *x, size_t n, float cap)
{
    LAUNCH(soft_cap_kernel, blocks_for(n, LANES), LANES, 0, g, x, n, cap);
}

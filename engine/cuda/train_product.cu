/* train_product.cu - products of matrices with arbitrary strides, for the forward pass, the
 * backward pass and weight gradients. Exact products use our kernel, bf16 products use cuBLAS. */
#include "engine/cuda/blas.cuh"
#include "engine/cuda/gpu_train.h"

enum { LANES = 256, SIDE = 16, TILE = 64, MINE = TILE / SIDE, STRIP = 16, LD = TILE + 1 };
enum { FOUR = 4 }; /* elements that a lane rounds */

DEVICE float plain(const float *p, size_t i)
{
    return p[i];
}
DEVICE float plain(const uint16_t *p, size_t i)
{
    return from_bf16(p[i]);
}

/* to[j * LD + i] = element (i0 + i, j0 + j) of a matrix of rows x columns, zeros outside. Adjacent
 * lanes read adjacent elements. */
template <class E>
DEVICE void load_tile(in_shared<float> to, const E *from, size_t row, size_t col, int i0, int rows,
                      int j0, int columns)
{
    for (int k = (int)threadIdx.x; k < TILE * STRIP; k += LANES) {
        int i = row == 1 ? k % TILE : k / STRIP, j = row == 1 ? k / TILE : k % STRIP;
        bool there = i0 + i < rows && j0 + j < columns;
        to[j * LD + i] = there ? plain(from, (size_t)(i0 + i) * row + (size_t)(j0 + j) * col) : 0;
    }
}

/* A block computes TILE x TILE elements of c. A lane has MINE x MINE of them, each a chain of fused
 * multiply-adds in the order of k. */
template <class B> __global__ void __launch_bounds__(LANES) multiply_kernel(struct gpu_multiply p)
{
    SHARED(float, sa, STRIP *LD);
    SHARED(float, sb, STRIP *LD);
    int i0 = (int)blockIdx.y * TILE, j0 = (int)blockIdx.x * TILE;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE;
    float sum[MINE][MINE];
    for (int i = 0; i < MINE; i++)
        for (int j = 0; j < MINE; j++) {
            int r = i0 + y + SIDE * i, c = j0 + x + SIDE * j;
            bool old = p.add && r < p.m && c < p.n;
            sum[i][j] = old ? p.c[(size_t)r * p.ld_c + (size_t)c] : 0;
        }
    for (int k0 = 0; k0 < p.k; k0 += STRIP) {
        load_tile(sa, p.a, p.a_row, p.a_col, i0, p.m, k0, p.k);
        load_tile(sb, (const B *)p.b, p.b_col, p.b_row, j0, p.n, k0, p.k);
        __syncthreads();
        int end = p.k - k0 < STRIP ? p.k - k0 : STRIP;
        for (int k = 0; k < end; k++) {
            float u[MINE], v[MINE];
#pragma unroll
            for (int i = 0; i < MINE; i++) {
                u[i] = sa[k * LD + y + SIDE * i];
                v[i] = sb[k * LD + x + SIDE * i];
            }
#pragma unroll
            for (int i = 0; i < MINE; i++)
#pragma unroll
                for (int j = 0; j < MINE; j++)
                    sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < MINE; i++)
        for (int j = 0; j < MINE; j++) {
            int r = i0 + y + SIDE * i, c = j0 + x + SIDE * j;
            if (r < p.m && c < p.n)
                p.c[(size_t)r * p.ld_c + (size_t)c] = sum[i][j];
        }
}

void gpu_multiply(struct gpu *g, const struct gpu_multiply *p)
{
    auto wide = multiply_kernel<float>;
    auto narrow = multiply_kernel<uint16_t>;
    dim3 grid(blocks_for((size_t)p->n, TILE), blocks_for((size_t)p->m, TILE));
    struct gpu_multiply in = *p;
    if (p->b_type == WEIGHT_BF16)
        LAUNCH(narrow, grid, LANES, 0, g, in);
    else
        LAUNCH(wide, grid, LANES, 0, g, in);
}

/* Rounds rows of n, ld apart, to contiguous rows; four elements at a time if aligned. Block (row,
 * range). */
__global__ void round_kernel(uint16_t *to, const float *from, size_t ld, int n)
{
    int i = (int)(blockIdx.y * blockDim.x + threadIdx.x) * FOUR;
    bool fours = n % FOUR == 0 && ld % FOUR == 0 && (uintptr_t)from % 16 == 0;
    to += (size_t)blockIdx.x * (size_t)n + (size_t)i;
    from += (size_t)blockIdx.x * ld + (size_t)i;
    if (fours && i < n) {
        float4 x = *(const float4 *)(const void *)from;
        uint16_t a = to_bf16(x.x), b = to_bf16(x.y), c = to_bf16(x.z), d = to_bf16(x.w);
        *(uint2 *)(void *)to = uint2{a | (unsigned)b << 16, c | (unsigned)d << 16};
        return;
    }
    for (int k = 0; k < FOUR && i + k < n; k++)
        to[k] = to_bf16(from[k]);
}

void gpu_to_bf16(struct gpu *g, uint16_t *to, const float *from, int rows, int n)
{
    dim3 grid((unsigned)rows, blocks_for((size_t)n, LANES * FOUR));
    LAUNCH(round_kernel, grid, LANES, 0, g, to, from, (size_t)n, n);
}

/* Returns the operand for cuBLAS of a matrix with element (i, j) at i * row + j * col, one of them
 * 1. It is rounded to bf16 in a device buffer, with contiguous rows. */
static bool round_operand(struct gpu *g, void **buffer, size_t *bytes, const void *from,
                          enum weight_type type, size_t row, size_t col, int rows, int columns,
                          struct blas_operand *ret)
{
    bool across = row == 1 && col != 1; /* contiguous lines are columns */
    int n = across ? rows : columns, lines = across ? columns : rows;
    size_t ld = across ? col : row;
    *ret = {from, ld, across};
    if (type == WEIGHT_BF16)
        return true;
    if (!gpu_hold(g, buffer, bytes, (size_t)n * (size_t)lines * sizeof(uint16_t)))
        return false;
    uint16_t *to = (uint16_t *)*buffer;
    dim3 grid((unsigned)lines, blocks_for((size_t)n, LANES * FOUR));
    LAUNCH(round_kernel, grid, LANES, 0, g, to, (const float *)from, ld, n);
    *ret = {to, (size_t)n, across};
    return true;
}

bool gpu_multiply_bf16(struct gpu *g, const struct gpu_multiply *p)
{
    struct blas_operand a, b;
    if (!gpu_blas(g)
        || !round_operand(g, &g->gemm_x, &g->gemm_x_bytes, p->a, WEIGHT_F32, p->a_row, p->a_col,
                          p->m, p->k, &a)
        || !round_operand(g, &g->gemm_w, &g->gemm_w_bytes, p->b, p->b_type, p->b_row, p->b_col,
                          p->k, p->n, &b))
        return false;
    if (!blas_multiply(g->blas, a, b, p->c, p->ld_c, p->m, p->n, p->k, p->add))
        g->error = g->error == cudaSuccess ? cudaErrorUnknown : g->error;
    return true;
}

/* product.cu - matrix products whose weights are dequantised in the kernel, and embeddings. */
#include "engine/cuda/blocks.cuh"

enum {
    PRODUCT_WARPS = 4, /* rows of W that a block computes */
    PRODUCT_ROWS = 8,  /* rows of x that share what was read of W */
};

/* The octet of x that goes with octet o; 0 beyond K. */
DEVICE void load_x(const float *x, int o, int K, bool whole, float *v)
{
    if (whole) {
        const float4 *p = (const float4 *)(const void *)x + 2 * o;
        float4 a = p[0], b = p[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
    for (int i = 0; i < OCTET; i++)
        v[i] = o * OCTET + i < K ? x[o * OCTET + i] : 0;
}

/* One warp makes out[t][row] for T <= ROWS rows of x. */
template <int TYPE, int ROWS>
__global__ void __launch_bounds__(PRODUCT_WARPS *WARP)
    product_kernel(float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                   struct gpu_matrix m)
{
    int row = (int)blockIdx.x * PRODUCT_WARPS + warp_of_block();
    if (row >= m.N)
        return;
    const uint8_t *w = (const uint8_t *)m.data + (size_t)row * m.row_bytes;
    bool whole = m.K % OCTET == 0 && ld_x % 4 == 0;
    float sum[ROWS] = {0};
    for (int o = lane_of_warp(); o * OCTET < m.K; o += WARP) {
        float a[OCTET], b[OCTET];
        load_octet<TYPE>(w, o, m.K, a);
#pragma unroll
        for (int t = 0; t < ROWS; t++) {
            if (t >= T)
                break;
            load_x(x + (size_t)t * ld_x, o, m.K, whole, b);
            for (int i = 0; i < OCTET; i++)
                sum[t] = fmaf(b[i], a[i], sum[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
        float all = warp_sum(sum[t]);
        if (lane_of_warp() == 0 && t < T)
            out[(size_t)t * ld_out + (size_t)row] = all;
    }
}

template <int TYPE>
static void product(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                    const struct gpu_matrix *w)
{
    unsigned grid = blocks_for((size_t)w->N, PRODUCT_WARPS);
    auto one = product_kernel<TYPE, 1>;
    auto some = product_kernel<TYPE, PRODUCT_ROWS>;
    for (int t = 0; t < T; t += PRODUCT_ROWS) {
        int n = T - t < PRODUCT_ROWS ? T - t : PRODUCT_ROWS;
        float *o = out + (size_t)t * ld_out;
        const float *in = x + (size_t)t * ld_x;
        struct gpu_matrix m = *w;
        if (n == 1)
            LAUNCH(one, grid, PRODUCT_WARPS * WARP, 0, g, o, ld_out, in, ld_x, n, m);
        else
            LAUNCH(some, grid, PRODUCT_WARPS * WARP, 0, g, o, ld_out, in, ld_x, n, m);
    }
}

void gpu_product(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                 const struct gpu_matrix *w)
{
    FOR_WEIGHT_TYPE(w->type, product, g, out, ld_out, x, ld_x, T, w)
}

enum { TILE_N = 64, TILE_T = 16, TILE_K = 32, TILE_LANES = 256, PER_LANE = 4 };

/* A block makes TILE_N outputs of TILE_T rows; a lane PER_LANE rows of one output, each a chain of
 * fused steps over k. */
template <int TYPE>
__global__ void __launch_bounds__(TILE_LANES)
    exact_kernel(float *out, size_t ld_out, const float *x, size_t ld_x, int T, struct gpu_matrix m)
{
    SHARED(float, w, TILE_N *(TILE_K + 1));
    SHARED(float, in, TILE_T *TILE_K);
    int n0 = (int)blockIdx.x * TILE_N, t0 = (int)blockIdx.y * TILE_T, id = (int)threadIdx.x;
    int mine = id % TILE_N, first = id / TILE_N * PER_LANE;
    float sum[PER_LANE] = {0};
    for (int k0 = 0; k0 < m.K; k0 += TILE_K) {
        int row = id / 4, o = id % 4; /* of the four octets of a row of the tile */
        float a[OCTET] = {0};
        if (n0 + row < m.N && k0 + o * OCTET < m.K)
            load_octet<TYPE>((const uint8_t *)m.data + (size_t)(n0 + row) * m.row_bytes,
                             k0 / OCTET + o, m.K, a);
        for (int i = 0; i < OCTET; i++)
            w[row * (TILE_K + 1) + o * OCTET + i] = a[i];
        for (int i = id; i < TILE_T * TILE_K; i += TILE_LANES) {
            int t = t0 + i / TILE_K, k = k0 + i % TILE_K;
            in[i] = t < T && k < m.K ? x[(size_t)t * ld_x + (size_t)k] : 0;
        }
        __syncthreads();
        int end = m.K - k0 < TILE_K ? m.K - k0 : TILE_K;
        for (int k = 0; k < end; k++) {
            float v = w[mine * (TILE_K + 1) + k];
            for (int j = 0; j < PER_LANE; j++)
                sum[j] = fmaf(in[(first + j) * TILE_K + k], v, sum[j]);
        }
        __syncthreads();
    }
    for (int j = 0; j < PER_LANE; j++)
        if (n0 + mine < m.N && t0 + first + j < T)
            out[(size_t)(t0 + first + j) * ld_out + (size_t)(n0 + mine)] = sum[j];
}

template <int TYPE>
static void product_exact(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x,
                          int T, const struct gpu_matrix *w)
{
    auto kernel = exact_kernel<TYPE>;
    dim3 grid(blocks_for((size_t)w->N, TILE_N), blocks_for((size_t)T, TILE_T));
    struct gpu_matrix m = *w;
    LAUNCH(kernel, grid, TILE_LANES, 0, g, out, ld_out, x, ld_x, T, m);
}

void gpu_product_exact(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                       const struct gpu_matrix *w)
{
    FOR_WEIGHT_TYPE(w->type, product_exact, g, out, ld_out, x, ld_x, T, w)
}

template <int TYPE>
__global__ void embed_kernel(float *x, struct gpu_matrix m, const int32_t *ids, float scale)
{
    const uint8_t *row = (const uint8_t *)m.data + (size_t)ids[blockIdx.x] * m.row_bytes;
    for (int o = (int)threadIdx.x; o * OCTET < m.K; o += (int)blockDim.x) {
        float w[OCTET];
        load_octet<TYPE>(row, o, m.K, w);
        for (int i = 0; i < OCTET && o * OCTET + i < m.K; i++)
            x[(size_t)blockIdx.x * (size_t)m.K + (size_t)(o * OCTET + i)] = w[i] * scale;
    }
}

template <int TYPE>
static void embed(struct gpu *g, float *x, const struct gpu_matrix *table, const int32_t *ids,
                  int T, float scale)
{
    auto kernel = embed_kernel<TYPE>;
    struct gpu_matrix m = *table;
    LAUNCH(kernel, (unsigned)T, 128, 0, g, x, m, ids, scale);
}

void gpu_embed(struct gpu *g, float *x, const struct gpu_matrix *table, const int32_t *ids, int T,
               float scale)
{
    FOR_WEIGHT_TYPE(table->type, embed, g, x, table, ids, T, scale)
}

bool gpu_reads(enum weight_type type)
{
    return type == WEIGHT_F32 || type == WEIGHT_F16 || type == WEIGHT_BF16 || type == WEIGHT_Q8_0
           || type == WEIGHT_Q4_0 || type == WEIGHT_Q4_1 || type == WEIGHT_Q4_K
           || type == WEIGHT_Q6_K;
}

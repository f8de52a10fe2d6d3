/* gemm.cu - products of prompts by cuBLAS: x becomes the type that W has there, and of W what the
 * file holds in another form becomes bf16, a tile of rows at a time. */
#include "engine/cuda/blas.cuh"
#include "engine/cuda/blocks.cuh"

enum { GEMM_LANES = 256, GEMM_TILE = 4096 /* rows of W */ };

/* Row r of x, or zeros beyond T. */
template <class E> __global__ void rows_kernel(E *out, const float *x, size_t ld_x, int T, int K)
{
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    if (k < K)
        gemm_set(out, (size_t)r * (size_t)K + (size_t)k,
                 r < T ? x[(size_t)r * ld_x + (size_t)k] : 0);
}

template <int TYPE> __global__ void tile_kernel(uint16_t *out, struct gpu_matrix m, int first)
{
    int o = (int)(blockIdx.x * blockDim.x + threadIdx.x), row = (int)blockIdx.y;
    float w[OCTET];
    if (o * OCTET >= m.K)
        return;
    load_octet<TYPE>((const uint8_t *)m.data + (size_t)(first + row) * m.row_bytes, o, m.K, w);
    for (int i = 0; i < OCTET && o * OCTET + i < m.K; i++)
        out[(size_t)row * (size_t)m.K + (size_t)(o * OCTET + i)] = to_bf16(w[i]);
}

template <int TYPE>
static void make_tile(struct gpu *g, const struct gpu_matrix *w, int first, int rows)
{
    auto kernel = tile_kernel<TYPE>;
    struct gpu_matrix m = *w;
    dim3 grid(blocks_for((size_t)m.K, OCTET * GEMM_LANES), (unsigned)rows);
    LAUNCH(kernel, grid, GEMM_LANES, 0, g, (uint16_t *)g->gemm_w, m, first);
}

bool gpu_hold(struct gpu *g, void **p, size_t *has, size_t bytes)
{
    if (*has >= bytes)
        return true;
    gpu_graph_break(g);
    cudaStreamSynchronize(g->stream);
    gpu_free(g, *p);
    *p = gpu_alloc(g, bytes, 1);
    *has = *p ? bytes : 0;
    return *p != NULL;
}

static void put_rows(struct gpu *g, bool wide, const float *x, size_t ld_x, int T, int K)
{
    dim3 grid(blocks_for((size_t)K, GEMM_LANES), GPU_GEMM_ROWS);
    if (wide)
        LAUNCH(rows_kernel<float>, grid, GEMM_LANES, 0, g, (float *)g->gemm_x, x, ld_x, T, K);
    else
        LAUNCH(rows_kernel<uint16_t>, grid, GEMM_LANES, 0, g, (uint16_t *)g->gemm_x, x, ld_x, T, K);
}

/* All rows of x with rows [first, first + n) of W, which lie at data. */
static bool strip(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                  const struct gpu_matrix *w, const void *data, int first, int n)
{
    bool wide = w->type == WEIGHT_F32, good = true;
    for (int t = 0; good && t < T; t += GPU_GEMM_ROWS) {
        put_rows(g, wide, x + (size_t)t * ld_x, ld_x, T - t, w->K);
        good = blas_product(g->blas, wide ? WEIGHT_F32 : WEIGHT_BF16, data, g->gemm_x,
                            out + (size_t)t * ld_out + (size_t)first, ld_out, n, GPU_GEMM_ROWS,
                            w->K);
    }
    return good;
}

bool gpu_blas(struct gpu *g)
{
    if (!g->blas && !g->no_blas)
        g->blas = blas_open(g->stream);
    g->no_blas = !g->blas;
    return !g->no_blas;
}

bool gpu_gemm(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
              const struct gpu_matrix *w)
{
    bool as_is = w->type == WEIGHT_F32 || w->type == WEIGHT_BF16;
    size_t K = (size_t)w->K;
    int tile = as_is || w->N < GEMM_TILE ? w->N : GEMM_TILE;
    gpu_graph_break(g); /* the products of cuBLAS are not written down */
    if (!gpu_blas(g)
        || !gpu_hold(g, &g->gemm_x, &g->gemm_x_bytes, GPU_GEMM_ROWS * K * sizeof(float))
        || (!as_is && !gpu_hold(g, &g->gemm_w, &g->gemm_w_bytes, (size_t)tile * K * 2)))
        return false;
    for (int n = 0; n < w->N; n += tile) {
        int rows = w->N - n < tile ? w->N - n : tile;
        const void *data = as_is ? w->data : g->gemm_w;
        if (!as_is)
            FOR_WEIGHT_TYPE(w->type, make_tile, g, w, n, rows)
        if (!strip(g, out, ld_out, x, ld_x, T, w, data, n, rows))
            g->error = g->error == cudaSuccess ? cudaErrorUnknown : g->error;
    }
    return true;
}

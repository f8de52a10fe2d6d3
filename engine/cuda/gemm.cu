/* gemm.cu - matrix multiplications of the prefill with cuBLAS. x is converted to the type of W.
 * Tiles of rows of W in other formats are converted to bf16. */
#include "engine/cuda/blas.cuh"
#include "engine/cuda/blocks.cuh"

enum { GEMM_LANES = 256, GEMM_TILE = 4096 /* rows of W */ };

/* Stores an octet of a row in the matrix's type. */
DEVICE void put_octet(uint16_t *out, const float4 &a, const float4 &b)
{
    const float v[OCTET] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    unsigned pair[OCTET / 2];
    for (int i = 0; i < OCTET / 2; i++)
        pair[i] = (unsigned)to_bf16(v[2 * i]) | (unsigned)to_bf16(v[2 * i + 1]) << 16;
    *(uint4 *)(void *)out = uint4{pair[0], pair[1], pair[2], pair[3]};
}
DEVICE void put_octet(float *out, const float4 &a, const float4 &b)
{
    ((float4 *)(void *)out)[0] = a;
    ((float4 *)(void *)out)[1] = b;
}

/* Converts row r of x, or zeros from T on. whole: rows consist of aligned octets. */
template <class E>
__global__ void rows_kernel(E *out, const float *x, size_t ld_x, int T, int K, bool whole)
{
    int o = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    const float *from = x + (size_t)r * ld_x + (size_t)o * OCTET;
    if (o * OCTET >= K)
        return;
    out += (size_t)r * (size_t)K + (size_t)o * OCTET;
    if (whole) {
        const float4 zeros = {0, 0, 0, 0}, *p = (const float4 *)(const void *)from;
        put_octet(out, r < T ? p[0] : zeros, r < T ? p[1] : zeros);
        return;
    }
    for (int i = 0; i < OCTET && o * OCTET + i < K; i++)
        gemm_set(out, (size_t)i, r < T ? from[i] : 0);
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

static size_t whole_rows(int T)
{
    return ((size_t)T + GPU_GEMM_ROWS - 1) / GPU_GEMM_ROWS * GPU_GEMM_ROWS;
}

static void put_rows(struct gpu *g, bool wide, const float *x, size_t ld_x, int T, int K)
{
    dim3 grid(blocks_for((size_t)K, OCTET * GEMM_LANES), (unsigned)whole_rows(T));
    bool whole = K % OCTET == 0 && ld_x % 4 == 0 && (size_t)x % 16 == 0;
    if (wide)
        LAUNCH(rows_kernel<float>, grid, GEMM_LANES, 0, g, (float *)g->gemm_x, x, ld_x, T, K,
               whole);
    else
        LAUNCH(rows_kernel<uint16_t>, grid, GEMM_LANES, 0, g, (uint16_t *)g->gemm_x, x, ld_x, T, K,
               whole);
}

static bool is_wide(const struct gpu_matrix *w)
{
    return w->type == WEIGHT_F32;
}

/* Multiplies all rows of x, in gemm_x, by n rows of W at data. */
static bool strip(struct gpu *g, float *out, size_t ld_out, int T, const struct gpu_matrix *w,
                  const void *data, int n)
{
    size_t row = (size_t)w->K * (is_wide(w) ? sizeof(float) : sizeof(uint16_t));
    bool good = true;
    for (int t = 0; good && t < T; t += GPU_GEMM_ROWS)
        good = blas_product(g->blas, is_wide(w) ? WEIGHT_F32 : WEIGHT_BF16, data,
                            (const char *)g->gemm_x + (size_t)t * row, out + (size_t)t * ld_out,
                            ld_out, n, GPU_GEMM_ROWS, w->K);
    return good;
}

/* Multiplies by W; tile by tile if it is converted to bf16. */
static bool multiply(struct gpu *g, float *out, size_t ld_out, int T, const struct gpu_matrix *w)
{
    bool as_is = w->type == WEIGHT_F32 || w->type == WEIGHT_BF16;
    int tile = as_is || w->N < GEMM_TILE ? w->N : GEMM_TILE;
    if (!as_is && !gpu_hold(g, &g->gemm_w, &g->gemm_w_bytes, (size_t)tile * (size_t)w->K * 2))
        return false;
    for (int n = 0; n < w->N; n += tile) {
        int rows = w->N - n < tile ? w->N - n : tile;
        const void *data = as_is ? w->data : g->gemm_w;
        if (!as_is)
            FOR_WEIGHT_TYPE(w->type, make_tile, g, w, n, rows)
        if (!strip(g, out + n, ld_out, T, w, data, rows))
            gpu_note(g, cudaErrorUnknown);
    }
    return true;
}

/* Joins the leading parts that are contiguous in memory into one matrix; returns their number. */
static int join(const struct gpu_matrix *part, int n, struct gpu_matrix *ret)
{
    int i = 1;
    *ret = part[0];
    for (; i < n && part[i].type == ret->type
           && part[i].data == (const char *)ret->data + (size_t)ret->N * ret->row_bytes;
         i++)
        ret->N += part[i].N;
    return i;
}

bool gpu_blas(struct gpu *g)
{
    if (!g->blas && !g->no_blas)
        g->blas = blas_open(g->stream);
    g->no_blas = !g->blas;
    return !g->no_blas;
}

bool gpu_gemm(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
              const struct gpu_matrix *part, int n)
{
    size_t K = (size_t)part[0].K;
    gpu_graph_break(g); /* graphs do not record products of cuBLAS */
    if (!gpu_blas(g)
        || !gpu_hold(g, &g->gemm_x, &g->gemm_x_bytes, whole_rows(T) * K * sizeof(float)))
        return false;
    bool there = false, wide = false; /* state of gemm_x: filled, and with f32 */
    for (int i = 0; i < n;) {
        struct gpu_matrix w;
        i += join(part + i, n - i, &w);
        if (!there || wide != is_wide(&w))
            put_rows(g, is_wide(&w), x, ld_x, T, (int)K);
        there = true;
        wide = is_wide(&w);
        if (!multiply(g, out, ld_out, T, &w))
            return false;
        out += w.N;
    }
    return true;
}

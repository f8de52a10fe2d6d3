/* product.cu - matrix products that dequantise weights in the kernel, and embeddings. */
#include "engine/cuda/activation.cuh"
#include "engine/cuda/blocks.cuh"

enum {
    FEW_ROWS = 4,     /* rows of W per block */
    MORE_ROWS = 8,    /* rows of W per block where that is faster (dense_of_rows) */
    MAX_WARPS = 8,    /* maximum warps that divide the channels of a row */
    MAX_TOGETHER = 8, /* rows of x that share loaded weights */
    SMALL = 1 << 22,  /* weights of a small matrix */
};

/* Loads the octet of x for octet o of W; 0 from K on. */
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

/* Kernel arguments of a product. */
struct dense_in {
    struct gpu_dense how;
    const float *x;
    float *out;
    size_t ld_x, ld_out;
    int T, K, N; /* N: rows of all parts */
};

/* Specialisations of the kernel: aligned rows of full octets, plain, with a norm, or with gates; or
 * the general case. Compile-time constants avoid branches between loads, so that many loads are in
 * flight, and keep the code small, which each launch must fetch. */
enum kind { DENSE_PLAIN, DENSE_NORMED, DENSE_GATED, DENSE_ANY };

DEVICE bool is_gated(int kind, const struct dense_in &in)
{
    return kind == DENSE_GATED || (kind == DENSE_ANY && in.how.end == GPU_GATED);
}
DEVICE bool is_normed(int kind, const struct dense_in &in)
{
    return kind == DENSE_NORMED || (kind != DENSE_PLAIN && in.how.norm);
}

/* Returns row j of a group of M rows of W, whose parts are stacked by rows. In a gated group, the
 * gate rows precede the rows that they multiply. After the end, the last output is repeated. */
template <int M>
DEVICE const uint8_t *dense_row(const struct dense_in &in, bool gated, int group, int j)
{
    int per = gated ? M / 2 : M, all = gated ? in.N / 2 : in.N;
    int row = group * per + (gated ? j % (M / 2) : j);
    row = (row < all ? row : all - 1) + (j < per ? 0 : all);
    const struct gpu_matrix *m = in.how.part;
    bool second = in.how.n > 1 && row >= m[0].N;
    row -= second ? m[0].N : 0;
    bool third = second && in.how.n > 2 && row >= m[1].N;
    row -= third ? m[1].N : 0;
    const void *data = second ? m[1].data : m[0].data;
    data = third ? m[2].data : data;
    /* all parts have one type, so rows have equal length */
    return (const uint8_t *)data + (size_t)row * m[0].row_bytes;
}

/* Loads an octet of each row of W. */
template <int TYPE, int M, int KIND>
DEVICE void dense_weights(const struct dense_in &in, const uint8_t *const *w, int o,
                          float (*a)[OCTET])
{
#pragma unroll
    for (int j = 0; j < M; j++)
        if (KIND == DENSE_ANY)
            load_octet<TYPE>(w[j], o, in.K, a[j]);
        else
            block<TYPE>::eight(w[j], o, a[j]);
}

/* Adds the products of octet o of each row of x with the rows of W. */
template <int ROWS, int M, int KIND>
DEVICE void dense_add(const struct dense_in &in, int o, const float (*a)[OCTET],
                      float (*sum)[M + 1])
{
    bool whole = KIND != DENSE_ANY || (in.K % OCTET == 0 && in.ld_x % 4 == 0);
    float norm[OCTET], x[OCTET];
    if (is_normed(KIND, in))
        load_x(in.how.norm, o, in.K, whole, norm);
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
        load_x(in.x + (size_t)(t < in.T ? t : in.T - 1) * in.ld_x, o, in.K, whole, x);
        for (int i = 0; is_normed(KIND, in) && i < OCTET; i++) {
            sum[t][M] = fmaf(x[i], x[i], sum[t][M]);
            x[i] *= norm[i];
        }
#pragma unroll
        for (int i = 0; i < OCTET; i++)
#pragma unroll
            for (int j = 0; j < M; j++)
                sum[t][j] = fmaf(x[i], a[j][i], sum[t][j]);
    }
}

/* Returns sum i of row t over the warps of the block. */
template <int M> DEVICE float dense_sum(in_shared<float> part, int rows, int t, int i)
{
    float sum = 0;
#pragma unroll 1
    for (int w = 0; w < (int)blockDim.x / WARP; w++)
        sum += part[(w * rows + t) * (M + 1) + i];
    return sum;
}

/* Returns the factor of all products of row t: the scale of the norm. */
template <int M>
DEVICE float dense_scale(const struct dense_in &in, in_shared<float> part, int rows, int t)
{
    return rsqrtf(dense_sum<M>(part, rows, t, M) / (float)in.K + in.how.eps);
}

/* The first group stores the normed x. */
template <int M> DEVICE void dense_leave(const struct dense_in &in, in_shared<float> part, int rows)
{
#pragma unroll 1
    for (int t = 0; t < in.T; t++) {
        float scale = dense_scale<M>(in, part, rows, t);
#pragma unroll 1
        for (int k = (int)threadIdx.x; k < in.K; k += (int)blockDim.x)
            in.how.normed[(size_t)t * (size_t)in.K + (size_t)k] =
                in.x[(size_t)t * in.ld_x + (size_t)k] * scale * in.how.norm[k];
    }
}

/* Combines the sums of the warps and stores the outputs. */
template <int M, int KIND>
DEVICE void dense_end(const struct dense_in &in, in_shared<float> part, int rows, int group)
{
    bool gated = is_gated(KIND, in);
    int per = gated ? M / 2 : M, all = gated ? in.N / 2 : in.N;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < per * in.T; i += (int)blockDim.x) {
        int t = gated ? i / (M / 2) : i / M, j = i - t * per;
        int at = group * per + j;
        float scale = is_normed(KIND, in) ? dense_scale<M>(in, part, rows, t) : 1;
        float v = dense_sum<M>(part, rows, t, j) * scale;
        float *out = in.out + (size_t)t * in.ld_out + (size_t)at;
        if (at >= all)
            continue;
        if (gated)
            v = activation(v, in.how.gelu) * (dense_sum<M>(part, rows, t, j + per) * scale);
        *out = in.how.end == GPU_ADD ? *out + v * in.how.scale : v;
    }
    if (is_normed(KIND, in) && in.how.normed && group == 0)
        dense_leave<M>(in, part, rows);
}

/* A block has a group of M rows of W and T <= ROWS rows of x; its warps divide the octets. The
 * weights of two octets are in flight at a time. The first ones are loaded before x is available.
 */
template <int TYPE, int ROWS, int M, int KIND>
__global__ void __launch_bounds__(MAX_WARPS *WARP) dense_kernel(struct dense_in in)
{
    SHARED(float, part, MAX_WARPS *ROWS *(M + 1));
    const bool twice = ROWS * M < FEW_ROWS * MAX_TOGETHER && KIND != DENSE_ANY;
    int last = (in.K + OCTET - 1) / OCTET - 1, o = (int)threadIdx.x, step = (int)blockDim.x;
    float sum[ROWS][M + 1] = {{0}}, a[M][OCTET], b[M][OCTET];
    const uint8_t *w[M];
#pragma unroll
    for (int j = 0; j < M; j++)
        w[j] = dense_row<M>(in, is_gated(KIND, in), (int)blockIdx.x, j);
    dense_weights<TYPE, M, KIND>(in, w, o < last ? o : last, a);
    if (twice)
        dense_weights<TYPE, M, KIND>(in, w, o + step < last ? o + step : last, b);
    earlier_done();
    while (o <= last) {
        dense_add<ROWS, M, KIND>(in, o, a, sum);
        o += step;
        if (twice && o <= last)
            dense_add<ROWS, M, KIND>(in, o, b, sum);
        o += twice ? step : 0;
        if (o > last)
            break;
        dense_weights<TYPE, M, KIND>(in, w, o, a);
        if (twice)
            dense_weights<TYPE, M, KIND>(in, w, o + step < last ? o + step : last, b);
    }
#pragma unroll
    for (int t = 0; t < ROWS; t++)
#pragma unroll
        for (int i = 0; i <= M; i++) {
            float all = i < M || is_normed(KIND, in) ? warp_sum(sum[t][i]) : 0;
            if (lane_of_warp() == 0)
                part[(warp_of_block() * ROWS + t) * (M + 1) + i] = all;
        }
    __syncthreads();
    dense_end<M, KIND>(in, part, ROWS, (int)blockIdx.x);
}

/* Returns the number of warps that divide the octets of a row. Each warp has several rounds if
 * there are many rows. It has one round for a small matrix, where latency dominates. The number
 * depends only on the matrix, and so does the summation order. */
static unsigned dense_warps(int N, int K)
{
    unsigned n = MAX_WARPS, rounds = (size_t)N * (size_t)K < SMALL ? 1 : 3;
    while (n > 1 && blocks_for((size_t)K, OCTET) < rounds * WARP * n)
        n /= 2;
    return n;
}

/* A small product starts early. The blocks of a large product would delay the blocks that still
 * read. */
template <int TYPE, int ROWS, int M, int KIND>
static void dense_launch(struct gpu *g, const struct dense_in &in)
{
    unsigned grid = blocks_for((size_t)in.N, M);
    unsigned lanes = WARP * dense_warps(in.N, in.K);
    if (in.how.end == GPU_GATED)
        grid = blocks_for((size_t)in.N / 2, M / 2);
    auto kernel = dense_kernel<TYPE, ROWS, M, KIND>;
    if ((size_t)in.N * (size_t)in.K < 4 * SMALL)
        LAUNCH_EARLY(kernel, grid, lanes, 0, g, in);
    else
        LAUNCH(kernel, grid, lanes, 0, g, in);
}

/* Loads of x and of the norm serve more rows of W here, but a lane needs more registers. On an H200
 * this is faster for large bf16 matrices; for up to 4 rows of x only with a norm. The bits do not
 * depend on it, because a lane has the same octets. */
template <int TYPE, int ROWS, int KIND>
static void dense_of_rows(struct gpu *g, const struct dense_in &in)
{
    size_t large = (size_t)SMALL * (ROWS == MAX_TOGETHER ? 4 : 2);
    if constexpr (TYPE == WEIGHT_BF16 && ROWS > 1
                  && (KIND == DENSE_NORMED || (ROWS == MAX_TOGETHER && KIND != DENSE_ANY)))
        if ((size_t)in.N * (size_t)in.K >= large) {
            dense_launch<TYPE, ROWS, MORE_ROWS, KIND>(g, in);
            return;
        }
    dense_launch<TYPE, ROWS, FEW_ROWS, KIND>(g, in);
}

template <int TYPE, int KIND> static void dense_of_kind(struct gpu *g, const struct dense_in &in)
{
    if constexpr (KIND == DENSE_ANY)
        dense_of_rows<TYPE, MAX_TOGETHER, KIND>(g, in);
    else if (in.T > 4)
        dense_of_rows<TYPE, MAX_TOGETHER, KIND>(g, in);
    else if (in.T > 1)
        dense_of_rows<TYPE, 4, KIND>(g, in);
    else
        dense_of_rows<TYPE, 1, KIND>(g, in);
}

template <int TYPE> static void dense(struct gpu *g, const struct dense_in &in)
{
    if (in.K % OCTET != 0 || in.ld_x % 4 != 0)
        dense_of_kind<TYPE, DENSE_ANY>(g, in);
    else if (in.how.end == GPU_GATED)
        dense_of_kind<TYPE, DENSE_GATED>(g, in);
    else if (in.how.norm)
        dense_of_kind<TYPE, DENSE_NORMED>(g, in);
    else
        dense_of_kind<TYPE, DENSE_PLAIN>(g, in);
}

/* Processes the rows of x in groups. */
static void dense_rows(struct gpu *g, struct dense_in in, int T)
{
    for (int t = 0; t < T; t += MAX_TOGETHER) {
        in.T = T - t < MAX_TOGETHER ? T - t : MAX_TOGETHER;
        FOR_WEIGHT_TYPE(in.how.part[0].type, dense, g, in)
        in.x += (size_t)in.T * in.ld_x;
        in.out += (size_t)in.T * in.ld_out;
        in.how.normed += in.how.normed ? (size_t)in.T * (size_t)in.K : 0;
    }
}

bool gpu_dense_gates(const struct gpu_matrix *part, int n)
{
    int N = 0;
    for (int i = 0; i < n; i++)
        N += part[i].N;
    for (int i = 1; i < n; i++)
        if (part[i].type != part[0].type)
            return false;
    return N % 2 == 0;
}

void gpu_dense(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
               const struct gpu_dense *how)
{
    struct dense_in in = {*how, x, out, ld_x, ld_out, 0, how->part[0].K, 0};
    for (int first = 0, n; first < how->n; first += n, in.out += in.N) {
        for (n = 0, in.N = 0; first + n < how->n; n++) {
            if (how->part[first + n].type != how->part[first].type)
                break;
            in.how.part[n] = how->part[first + n];
            in.N += how->part[first + n].N;
        }
        in.how.n = n;
        in.how.normed = first == 0 ? how->normed : NULL;
        dense_rows(g, in, T);
    }
}

void gpu_product(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                 const struct gpu_matrix *w)
{
    struct gpu_dense how = {};
    how.part[0] = *w;
    how.n = 1;
    gpu_dense(g, out, ld_out, x, ld_x, T, &how);
}

enum { TILE_N = 64, TILE_T = 16, TILE_K = 32, TILE_LANES = 256, PER_LANE = 4 };

/* A block computes TILE_N outputs of TILE_T rows; a lane computes PER_LANE rows of one output, each
 * a chain of fused multiply-adds over k. */
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
        int row = id / 4, o = id % 4; /* one of the four octets of a row of the tile */
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

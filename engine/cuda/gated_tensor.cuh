/* gated_tensor.cuh - inputs and helpers of gated attention with tensor cores.
 *
 * Queries, keys, values and output gradients are first rounded to bf16. A warp has 16 rows of one
 * matrix, queries or keys, and all of their sums. Tiles of rows of the other matrix are copied to
 * shared memory while the preceding tiles are in use. The warp's weights and gradients of a tile
 * stay in its registers and are the left factor of the next product.
 *
 * Rows of matrices in shared memory are an odd number of pieces apart (attention_tensor.cu).
 * Logits, gates and log-sum-exps are in units of ln 2. */
#ifndef KVF_ENGINE_CUDA_GATED_TENSOR_CUH
#define KVF_ENGINE_CUDA_GATED_TENSOR_CUH

#include "engine/cuda/device.cuh"
#include "engine/cuda/gpu_train.h"
#include "engine/cuda/tensor.cuh"

enum { WARPS = 4, LANES = WARPS * WARP, WARP_ROWS = 16, TILE = WARPS * WARP_ROWS };
#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

/* Inputs of the kernels. Lists have `padded` words, a multiple of the tile size. */
struct gated {
    int T, padded, G, H, D;
    enum gating gating;
    float scale, window;
    const uint16_t *q, *k, *v; /* row t at + t * ld: [G * D], [H * D], [H * D] */
    const uint16_t *d_out;     /* [T][G * D]; NULL in the forward pass */
    int ld;
    const float *gate;         /* [H] lists */
    const int32_t *evicted_at; /* [H] lists; NULL: no entry is evicted */
    const int32_t *first;      /* list; INT32_MAX after the last token, where no key is visible */
    const float *lse, *delta;  /* [G] lists */
};

/* Areas of the scratch memory. */
struct gated_room {
    uint16_t *rows, *d_out;
    float *gate, *lse, *delta;
    int32_t *evicted_at, *first;
    float *d_k, *d_v, *d_gate; /* [G][T][D] and [G] lists: contribution of each query head */
};
/* Lays out the areas in `base` and returns their bytes (train_forward.cu). */
size_t gated_lay_out(struct gated_room *r, const struct attention *a, void *base);
/* Rounds queries, keys and values, builds the lists of gates, and returns the inputs of the
 * kernels. */
struct gated gated_prepare(struct gpu *g, const struct attention *a, const struct gated_room *r);
bool gated_by_tensor(const struct attention *a);

/* Layout of a stage: ROWS rows of two matrices of up to WIDE channels, and three lists of one word
 * per row. */
template <int WIDE, int ROWS> struct stage_of {
    enum {
        PIECES = WIDE / 8,
        LD = PIECES + 1,
        MATRIX = ROWS * LD,
        LIST = ROWS / 4,
        LISTS = 2 * MATRIX,
        SIZE = LISTS + 3 * LIST,
    };
};

/* Starts to copy ROWS rows, ld halves apart; rows from n on are zeros. */
template <int WIDE, int ROWS>
DEVICE void fetch_rows(in_shared<uint4> to, const uint16_t *from, int ld, int n, int D)
{
    typedef stage_of<WIDE, ROWS> S;
    enum { AT_ONCE = LANES / S::PIECES, TIMES = (ROWS + AT_ONCE - 1) / AT_ONCE };
    int row = (int)threadIdx.x / S::PIECES, part = (int)threadIdx.x % S::PIECES;
    if (LANES % S::PIECES > 0 && row == AT_ONCE)
        return;
    to = to + (size_t)(row * S::LD + part);
    from += row * ld + part * 8;
    n = part * 8 < D ? n - row : 0;
#pragma unroll
    for (int j = 0; j < TIMES; j++, from += AT_ONCE * ld)
        if (ROWS % AT_ONCE == 0 || row + j * AT_ONCE < ROWS)
            copy_piece(to + (size_t)(j * AT_ONCE * S::LD), from, j * AT_ONCE < n);
}

/* Starts to copy the words of a list for these rows. */
template <int ROWS> DEVICE void fetch_list(in_shared<uint4> to, const void *words)
{
    if (threadIdx.x < ROWS / 4)
        copy_piece(to + threadIdx.x, (const uint4 *)words + threadIdx.x, true);
}

/* Loads the list elements of the lane's two columns in tile j of eight. */
DEVICE void list_floats(in_shared<uint4> list, int j, float x[2])
{
    uint2 w = half_piece(list, j * 4 + lane_of_warp() % 4);
    x[0] = __uint_as_float(w.x);
    x[1] = __uint_as_float(w.y);
}
DEVICE void list_ints(in_shared<uint4> list, int j, int x[2])
{
    uint2 w = half_piece(list, j * 4 + lane_of_warp() % 4);
    x[0] = (int)w.x;
    x[1] = (int)w.y;
}

/* The 16 rows of a warp as left factors, in registers or in shared memory. */
template <int WIDE, bool HELD> struct own_rows {
    uint32_t x[HELD ? WIDE / 16 : 1][4];
    in_shared<uint4> at;
};

template <int WIDE, bool HELD>
DEVICE void take_rows(struct own_rows<WIDE, HELD> &own, in_shared<uint4> tile)
{
    int lane = lane_of_warp(), row = warp_of_block() * WARP_ROWS + lane % 16;
    own.at = tile + (size_t)(row * (WIDE / 8 + 1) + lane / 16);
#pragma unroll
    for (int k = 0; HELD && k < WIDE / 16; k++)
        load_matrices(own.x[k], own.at + (size_t)(k * 2));
}

/* s = own rows times the transpose of N rows of a matrix, from row r0 on. */
template <int WIDE, int N, bool HELD>
DEVICE void rows_by_rows(const struct own_rows<WIDE, HELD> &own, in_shared<uint4> matrix, int r0,
                         float s[N / 8][4])
{
    enum { LD = WIDE / 8 + 1 };
    int lane = lane_of_warp();
    in_shared<uint4> at = matrix + (size_t)((r0 + lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] = 0;
#pragma unroll
    for (int k = 0; k < WIDE / 16; k++) {
        uint32_t x[4], w[4];
        if constexpr (HELD) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[e] = own.x[k][e];
        } else {
            load_matrices(x, own.at + (size_t)(k * 2));
        }
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            load_matrices(w, at + (size_t)(j * 16 * LD + k * 2));
            multiply_bf16(s[j * 2], x, w[0], w[1]);
            multiply_bf16(s[j * 2 + 1], x, w[2], w[3]);
        }
    }
}

/* sum += p (16 rows, N columns, rounded to bf16) times N rows of a matrix from row r0 on, for WIDTH
 * channels from channel c on. */
template <int WIDE, int WIDTH, int N>
DEVICE void weights_by_rows(float sum[WIDTH / 8][4], const float p[N / 8][4],
                            in_shared<uint4> matrix, int r0, int c)
{
    enum { LD = WIDE / 8 + 1 };
    int lane = lane_of_warp();
    in_shared<uint4> at = matrix + (size_t)((r0 + lane % 16) * LD + c / 8 + lane / 16);
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t x[4], w[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = two_bf16(p[k * 2 + e / 2][e % 2 * 2], p[k * 2 + e / 2][e % 2 * 2 + 1]);
#pragma unroll
        for (int j = 0; j < WIDTH / 16; j++) {
            load_matrices_turned(w, at + (size_t)(k * 16 * LD + j * 2));
            multiply_bf16(sum[j * 2], x, w[0], w[1]);
            multiply_bf16(sum[j * 2 + 1], x, w[2], w[3]);
        }
    }
}

/* Returns the index of row e of the lane's two rows in the block. */
DEVICE int row_of_lane(int e)
{
    return warp_of_block() * WARP_ROWS + lane_of_warp() / 4 + e * 8;
}

/* Returns the factor of logits at an age, for GATING_LOGIT; negative ages count as 0. */
DEVICE float slope_of(float age, float gate)
{
    return power_of_two(fmaxf(age, 0) * gate);
}

/* Returns the logit s' of a pair from the product s of its query and key. */
template <enum gating GATING>
DEVICE float modulate(const struct gated &a, float s, float age, float gate)
{
    if (GATING == GATING_DECAY)
        return fmaf(age, gate, s * a.scale);
    if (GATING == GATING_WRITE)
        return age >= a.window ? s * a.scale + gate : s * a.scale;
    return GATING == GATING_LOGIT ? s * a.scale * slope_of(age, gate) : s * a.scale;
}

/* Calls f with the kind of gates as a compile-time constant. */
template <enum gating GATING> struct kind_of {
    static constexpr enum gating VALUE = GATING;
};
template <class F> DEVICE void for_gating(enum gating gating, F f)
{
    switch (gating) {
    case GATING_NONE:
        f(kind_of<GATING_NONE>());
        break;
    case GATING_DECAY:
        f(kind_of<GATING_DECAY>());
        break;
    case GATING_LOGIT:
        f(kind_of<GATING_LOGIT>());
        break;
    case GATING_WRITE:
        f(kind_of<GATING_WRITE>());
        break;
    }
}

/* ---- rows are queries, columns are keys ---- */

/* The rows of a lane, which are queries. */
struct query_rows {
    int low, query; /* first query of the warp, of the lane (its second: + 8) */
};

DEVICE struct query_rows query_rows_of_lane(int q0)
{
    struct query_rows r = {q0 + warp_of_block() * WARP_ROWS, q0 + row_of_lane(0)};
    return r;
}

/* sees_some returns true if a row of the warp may see one of n keys from key k on. sees_all returns
 * true if every row sees all of them. */
DEVICE bool sees_some(const struct gated &a, const struct query_rows &r, int k, int n)
{
    return k < r.low + WARP_ROWS && k + n > a.first[r.low];
}
DEVICE bool sees_all(const struct gated &a, const struct query_rows &r, int k, int n)
{
    return k + n <= r.low + 1 && !a.evicted_at && k >= a.first[r.low + WARP_ROWS - 1];
}

/* Starts to copy keys, values and lists of keys k0 to k0 + KEYS - 1 of KV head h. */
template <int WIDE, int KEYS>
DEVICE void fetch_keys(const struct gated &a, int h, int k0, in_shared<uint4> stage)
{
    typedef stage_of<WIDE, KEYS> S;
    size_t at = (size_t)k0 * (size_t)a.ld + (size_t)(h * a.D);
    size_t list = (size_t)h * (size_t)a.padded + (size_t)k0;
    fetch_rows<WIDE, KEYS>(stage, a.k + at, a.ld, a.T - k0, a.D);
    fetch_rows<WIDE, KEYS>(stage + (size_t)S::MATRIX, a.v + at, a.ld, a.T - k0, a.D);
    if (a.gating != GATING_NONE)
        fetch_list<KEYS>(stage + (size_t)S::LISTS, a.gate + list);
    if (a.evicted_at)
        fetch_list<KEYS>(stage + (size_t)(S::LISTS + S::LIST), a.evicted_at + list);
}

/* Sets the age of the lane's first key of a tile from key k0 on, for each of its rows. */
DEVICE void ages_of_lane(const struct query_rows &r, int k0, float age[2])
{
    age[0] = (float)(r.query - k0 - lane_of_warp() % 4 * 2);
    age[1] = age[0] + 8;
}

/* Converts the products of N tiles of eight keys, from key k0 on, to logits. gates: their list. */
template <int N>
DEVICE void logits(const struct gated &a, const struct query_rows &r, in_shared<uint4> gates,
                   int k0, float s[N][4])
{
    float age[2];
    ages_of_lane(r, k0, age);
    for_gating(a.gating, [&](auto kind) {
        constexpr enum gating GATING = decltype(kind)::VALUE;
#pragma unroll
        for (int j = 0; j < N; j++) {
            float gate[2] = {0, 0};
            if (GATING != GATING_NONE)
                list_floats(gates, j, gate);
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = modulate<GATING>(a, s[j][e], age[e / 2] + (float)(-j * 8 - e % 2),
                                           gate[e % 2]);
        }
    });
}

/* Hides the keys that a row does not see. */
template <int N>
DEVICE void hide(const struct gated &a, const struct query_rows &r, in_shared<uint4> evicted_at,
                 int k0, float s[N][4])
{
    const int first[2] = {a.first[r.query], a.first[r.query + 8]};
#pragma unroll
    for (int j = 0; j < N; j++) {
        int until[2] = {INT32_MAX, INT32_MAX}, key = k0 + j * 8 + lane_of_warp() % 4 * 2;
        if (a.evicted_at)
            list_ints(evicted_at, j, until);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = r.query + e / 2 * 8, at = key + e % 2;
            bool seen = at <= i && at >= first[e / 2] && until[e % 2] > i;
            s[j][e] = seen ? s[j][e] : -INFINITY;
        }
    }
}

/* ---- output of sums ---- */

/* Stores the lane's channels of its rows e, times by[e], to row r0 + row of `to`, which has n rows;
 * two floats at a time if addresses are aligned. */
template <int WIDTH>
DEVICE void store_rows(float *to, size_t ld, int r0, int n, int D, const float sum[WIDTH / 8][4],
                       const float by[2])
{
    bool twos = (uintptr_t)to % 8 == 0 && ld % 2 == 0;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int row = r0 + row_of_lane(e);
        if (row >= n)
            continue;
        float *at = to + (size_t)row * ld + (size_t)(lane_of_warp() % 4 * 2);
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++) {
            const float *two = &sum[j][e * 2];
            if (j * 8 >= D)
                break;
            if (twos) {
                *(float2 *)(void *)(at + j * 8) = float2{two[0] * by[e], two[1] * by[e]};
            } else {
                at[j * 8] = two[0] * by[e];
                at[j * 8 + 1] = two[1] * by[e];
            }
        }
    }
}

/* Allows a kernel `bytes` bytes of shared memory; returns false if the device has less. */
template <class F> static bool gated_allow(F kernel, int bytes)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)
        == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

/* Returns f<WIDE>(...) with the smallest WIDE for D channels. */
#define RETURN_FOR_WIDTH(D, f, ...)                                                                \
    if ((D) <= 64)                                                                                 \
        return f<64>(__VA_ARGS__);                                                                 \
    if ((D) <= 96)                                                                                 \
        return f<96>(__VA_ARGS__);                                                                 \
    if ((D) <= 128)                                                                                \
        return f<128>(__VA_ARGS__);                                                                \
    return f<256>(__VA_ARGS__)

#endif

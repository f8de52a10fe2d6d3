/* train_attention.cu - gated attention of full sequences, forward and backward, in tiles of 64
 * queries and 64 keys. The backward pass recomputes the weights from their log-sum-exp:
 *     P = exp(s' - lse)     dP = dO V^T     dS' = P (dP - delta),  delta_i = dO_i . O_i
 *     dV = P^T dO           dK = scale dS^T Q           dQ = scale dS K
 * once for each tile of queries (dQ) and once for each tile of keys (dK, dV, the gates), so that no
 * sum has two writers. */
#include "engine/cuda/attention.cuh"
#include "engine/cuda/gpu_train.h"

/* LANES lanes as SIDE x SIDE: each has every SIDE-th row and column of a tile, MINE of them. */
enum { LANES = 256, SIDE = 16, TILE = PAGE_SLOTS, MINE = TILE / SIDE };
enum { STRIP = 32, LD = STRIP + 1, LD_P = TILE + 1 }; /* channels in shared memory */

DEVICE int row_of_lane()
{
    return (int)threadIdx.x / SIDE;
}

DEVICE int column_of_lane()
{
    return (int)threadIdx.x % SIDE;
}

/* Loads channels [c, c + STRIP) of TILE rows from row r0 on; zeros from T and D on. */
DEVICE void load_strip(in_shared<float> to, const float *from, size_t ld, int r0, int T, int c,
                       int D)
{
    for (int i = (int)threadIdx.x; i < TILE * STRIP; i += LANES) {
        int r = i / STRIP, d = i % STRIP;
        bool there = r0 + r < T && c + d < D;
        to[r * LD + d] = there ? from[(size_t)(r0 + r) * ld + (size_t)(c + d)] : 0;
    }
}

/* sum[i][j] += row a0 + y + SIDE i of a times row b0 + x + SIDE j of b, for the lane (y, x). */
DEVICE void rows_by_rows(const struct attention &at, const float *a, size_t ld_a, int a0,
                         const float *b, size_t ld_b, int b0, in_shared<float> sa,
                         in_shared<float> sb, float (*sum)[MINE])
{
    int y = row_of_lane(), x = column_of_lane();
    for (int c = 0; c < at.D; c += STRIP) {
        load_strip(sa, a, ld_a, a0, at.T, c, at.D);
        load_strip(sb, b, ld_b, b0, at.T, c, at.D);
        __syncthreads();
        int end = at.D - c < STRIP ? at.D - c : STRIP;
        for (int d = 0; d < end; d++) {
            float u[MINE], v[MINE];
#pragma unroll
            for (int i = 0; i < MINE; i++) {
                u[i] = sa[(y + SIDE * i) * LD + d];
                v[i] = sb[(x + SIDE * i) * LD + d];
            }
#pragma unroll
            for (int i = 0; i < MINE; i++)
#pragma unroll
                for (int j = 0; j < MINE; j++)
                    sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
        }
        __syncthreads();
    }
}

/* out[i][2 c + j] += sum over rows s of the tile of p(y + SIDE i, s) times channel STRIP c + SIDE j
 * + x of row b0 + s of b. p has rows ld_p apart, or columns with TURNED. */
template <bool TURNED, int STRIPS>
DEVICE void weights_by_rows(const struct attention &at, in_shared<float> p, int ld_p,
                            const float *b, size_t ld_b, int b0, in_shared<float> sb,
                            float (*out)[2 * STRIPS])
{
    int y = row_of_lane(), x = column_of_lane();
    int n = at.T - b0 < TILE ? at.T - b0 : TILE;
#pragma unroll
    for (int c = 0; c < STRIPS; c++) {
        if (c * STRIP >= at.D)
            break;
        load_strip(sb, b, ld_b, b0, at.T, c * STRIP, at.D);
        __syncthreads();
        for (int s = 0; s < n; s++) {
            float v = sb[s * LD + x], w = sb[s * LD + SIDE + x];
#pragma unroll
            for (int i = 0; i < MINE; i++) {
                float weight = TURNED ? p[s * ld_p + y + SIDE * i] : p[(y + SIDE * i) * ld_p + s];
                out[i][2 * c] = fmaf(weight, v, out[i][2 * c]);
                out[i][2 * c + 1] = fmaf(weight, w, out[i][2 * c + 1]);
            }
        }
        __syncthreads();
    }
}

/* Stores the sums of weights_by_rows in rows r0 + y + SIDE i, times by(row). */
template <int STRIPS, class F>
DEVICE void put_rows(const struct attention &at, float *to, size_t ld, int r0,
                     float (*out)[2 * STRIPS], F by)
{
    int y = row_of_lane(), x = column_of_lane();
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        int r = y + SIDE * i;
        for (int c = 0; r0 + r < at.T && c < 2 * STRIPS; c++) {
            int d = c * SIDE + x;
            if (d < at.D)
                to[(size_t)(r0 + r) * ld + (size_t)d] = out[i][c] * by(r);
        }
    }
}

DEVICE int kv_of(const struct attention &a, int g)
{
    return g / (a.n_heads / a.n_kv_heads);
}

DEVICE const float *head_of(const float *rows, const struct attention &a, int head)
{
    return rows + (size_t)head * (size_t)a.D;
}

DEVICE bool sees_key(const struct attention &a, int h, int i, int j)
{
    if (i >= a.T || j > i || j < a.first[i])
        return false;
    return !a.evicted_at || a.evicted_at[(size_t)j * (size_t)a.n_kv_heads + (size_t)h] > i;
}

/* Returns s' from s; slope: its derivative with respect to s. */
DEVICE float modulate(const struct attention &a, int h, int i, int j, float s, float *slope)
{
    *slope = 1;
    if (a.gating == GATING_NONE)
        return s;
    float gate = a.gate[(size_t)j * (size_t)a.n_kv_heads + (size_t)h];
    if (a.gating == GATING_DECAY)
        return s + (float)(i - j) * gate;
    if (a.gating == GATING_WRITE)
        return i - j >= a.window ? s + gate : s;
    *slope = expf((float)(i - j) * gate);
    return s * *slope;
}

/* Block (tile of queries, the longest first; query head). */
template <int STRIPS>
__global__ void __launch_bounds__(LANES)
    gated_forward_kernel(struct attention a, float *out, size_t ld_out, float *lse)
{
    SHARED(float, sa, TILE *LD);
    SHARED(float, sb, TILE *LD);
    SHARED(float, p, TILE *TILE);
    SHARED(float, top, TILE);
    SHARED(float, sum, TILE);
    SHARED(float, fade, TILE);
    int g = (int)blockIdx.y, h = kv_of(a, g), q0 = (int)(gridDim.x - 1 - blockIdx.x) * TILE;
    int y = row_of_lane(), x = column_of_lane(), id = (int)threadIdx.x;
    float gathered[MINE][2 * STRIPS] = {{0}}, slope;
    if (id < TILE) {
        top[id] = -INFINITY;
        sum[id] = 0;
    }
    for (int k0 = a.first[q0] / TILE * TILE; k0 <= q0; k0 += TILE) {
        float s[MINE][MINE] = {{0}};
        rows_by_rows(a, head_of(a.q, a, g), a.ld, q0, head_of(a.k, a, h), a.ld, k0, sa, sb, s);
        for (int i = 0; i < MINE; i++)
            for (int j = 0; j < MINE; j++) {
                int r = y + SIDE * i, c = x + SIDE * j;
                p[r * TILE + c] = sees_key(a, h, q0 + r, k0 + c)
                                      ? modulate(a, h, q0 + r, k0 + c, a.scale * s[i][j], &slope)
                                      : -INFINITY;
            }
        __syncthreads();
        page_weights(TILE, LANES / WARP, p, top, sum, fade);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < MINE; i++)
#pragma unroll
            for (int c = 0; c < 2 * STRIPS; c++)
                gathered[i][c] *= fade[y + SIDE * i];
        weights_by_rows<false, STRIPS>(a, p, TILE, head_of(a.v, a, h), a.ld, k0, sb, gathered);
    }
    put_rows<STRIPS>(a, out + (size_t)g * (size_t)a.D, ld_out, q0, gathered,
                     [&](int r) { return 1 / sum[r]; });
    if (id < TILE && q0 + id < a.T)
        lse[(size_t)g * (size_t)a.T + (size_t)(q0 + id)] = top[id] + logf(sum[id]);
}

/* delta[g][t] = dO . O; a warp has one query of one head. */
__global__ void __launch_bounds__(LANES)
    delta_kernel(struct attention a, struct attention_grads d, float *delta)
{
    int t = (int)blockIdx.x * (LANES / WARP) + warp_of_block(), g = (int)blockIdx.y;
    if (t >= a.T)
        return;
    size_t at = (size_t)t * d.ld_out + (size_t)(g * a.D);
    double sum = 0;
    for (int c = lane_of_warp(); c < a.D; c += WARP)
        sum += (double)d.d_out[at + (size_t)c] * (double)d.out[at + (size_t)c];
    sum = warp_sum(sum);
    if (lane_of_warp() == 0)
        delta[(size_t)g * (size_t)a.T + (size_t)t] = (float)sum;
}

/* A tile of one query head: s becomes the weights P, and d changes from dP to the gradients dS.
 * by_gate(j) receives each pair's contribution to the gradient of the gate of the lane's key j. */
template <class F>
DEVICE void pair_gradients(const struct attention &a, const struct attention_grads &grads,
                           const float *delta, int g, int q0, int k0, float (*s)[MINE],
                           float (*d)[MINE], F by_gate)
{
    int y = row_of_lane(), x = column_of_lane(), h = kv_of(a, g);
#pragma unroll
    for (int i = 0; i < MINE; i++)
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            int query = q0 + y + SIDE * i, key = k0 + x + SIDE * j;
            float slope, weight = 0, by_signal = 0, signal = 0;
            if (sees_key(a, h, query, key)) {
                size_t at = (size_t)g * (size_t)a.T + (size_t)query;
                signal = modulate(a, h, query, key, a.scale * s[i][j], &slope);
                weight = expf(signal - grads.lse[at]);
                by_signal = weight * (d[i][j] - delta[at]);
                by_gate(j, query - key, by_signal, signal);
                d[i][j] = by_signal * slope;
            } else {
                d[i][j] = 0;
            }
            s[i][j] = weight;
        }
}

/* s = Q K^T and d = dO V^T of a tile. */
DEVICE void tile_products(const struct attention &a, const struct attention_grads &grads, int g,
                          int q0, int k0, in_shared<float> sa, in_shared<float> sb,
                          float (*s)[MINE], float (*d)[MINE])
{
    int h = kv_of(a, g);
    rows_by_rows(a, head_of(a.q, a, g), a.ld, q0, head_of(a.k, a, h), a.ld, k0, sa, sb, s);
    rows_by_rows(a, head_of(grads.d_out, a, g), grads.ld_out, q0, head_of(a.v, a, h), a.ld, k0, sa,
                 sb, d);
}

/* Stores the lane's elements of a tile in shared memory. */
DEVICE void put_tile(in_shared<float> p, float (*s)[MINE])
{
    int y = row_of_lane(), x = column_of_lane();
#pragma unroll
    for (int i = 0; i < MINE; i++)
#pragma unroll
        for (int j = 0; j < MINE; j++)
            p[(y + SIDE * i) * LD_P + x + SIDE * j] = s[i][j];
    __syncthreads();
}

/* Computes dQ. Block (tile of queries, the longest first; query head). */
template <int STRIPS>
__global__ void __launch_bounds__(LANES)
    gated_queries_kernel(struct attention a, struct attention_grads grads, const float *delta)
{
    SHARED(float, sa, TILE *LD);
    SHARED(float, sb, TILE *LD);
    SHARED(float, p, TILE *LD_P);
    int g = (int)blockIdx.y, h = kv_of(a, g), q0 = (int)(gridDim.x - 1 - blockIdx.x) * TILE;
    float dq[MINE][2 * STRIPS] = {{0}};
    for (int k0 = a.first[q0] / TILE * TILE; k0 <= q0; k0 += TILE) {
        float s[MINE][MINE] = {{0}}, d[MINE][MINE] = {{0}};
        tile_products(a, grads, g, q0, k0, sa, sb, s, d);
        pair_gradients(a, grads, delta, g, q0, k0, s, d, [](int, int, float, float) {});
        put_tile(p, d);
        weights_by_rows<false, STRIPS>(a, p, LD_P, head_of(a.k, a, h), a.ld, k0, sb, dq);
    }
    put_rows<STRIPS>(a, grads.d_q + (size_t)g * (size_t)a.D, a.ld, q0, dq,
                     [&](int) { return a.scale; });
}

/* Returns the contribution of a pair to the gradient of its gate. */
DEVICE float gate_share(const struct attention &a, int age, float by_signal, float signal)
{
    switch (a.gating) {
    case GATING_DECAY:
        return (float)age * by_signal;
    case GATING_LOGIT:
        return (float)age * by_signal * signal;
    case GATING_WRITE:
        return age >= a.window ? by_signal : 0;
    default:
        return 0;
    }
}

/* Stores the sums over the rows of lanes, in order. */
DEVICE void put_gates(const struct attention &a, float *d_gate, int h, int k0, const double *mine,
                      in_shared<double> part)
{
    int y = row_of_lane(), x = column_of_lane(), id = (int)threadIdx.x;
    for (int j = 0; j < MINE; j++)
        part[y * TILE + x + SIDE * j] = mine[j];
    __syncthreads();
    double sum = 0;
    for (int r = 0; id < TILE && r < SIDE; r++)
        sum += (double)part[r * TILE + id];
    if (id < TILE && k0 + id < a.T)
        d_gate[(size_t)(k0 + id) * (size_t)a.n_kv_heads + (size_t)h] = (float)sum;
}

/* Computes dK, dV and the gates' gradients over all query heads of a KV head. Block (tile of keys,
 * KV head). */
template <int STRIPS>
__global__ void __launch_bounds__(LANES)
    gated_keys_kernel(struct attention a, struct attention_grads grads, const float *delta)
{
    SHARED(float, sa, TILE *LD);
    SHARED(float, sb, TILE *LD);
    SHARED(float, p, TILE *LD_P);
    SHARED(double, part, SIDE *TILE);
    int h = (int)blockIdx.y, k0 = (int)blockIdx.x * TILE, group = a.n_heads / a.n_kv_heads;
    float dk[MINE][2 * STRIPS] = {{0}}, dv[MINE][2 * STRIPS] = {{0}};
    double gates[MINE] = {0};
    for (int g = h * group; g < (h + 1) * group; g++)
        for (int q0 = k0; q0 < a.T && a.first[q0] < k0 + TILE; q0 += TILE) {
            float s[MINE][MINE] = {{0}}, d[MINE][MINE] = {{0}};
            tile_products(a, grads, g, q0, k0, sa, sb, s, d);
            pair_gradients(a, grads, delta, g, q0, k0, s, d,
                           [&](int j, int age, float by_signal, float signal) {
                               gates[j] += (double)gate_share(a, age, by_signal, signal);
                           });
            put_tile(p, s);
            weights_by_rows<true, STRIPS>(a, p, LD_P, head_of(grads.d_out, a, g), grads.ld_out, q0,
                                          sb, dv);
            put_tile(p, d);
            weights_by_rows<true, STRIPS>(a, p, LD_P, head_of(a.q, a, g), a.ld, q0, sb, dk);
        }
    size_t at = (size_t)h * (size_t)a.D;
    put_rows<STRIPS>(a, grads.d_k + at, a.ld, k0, dk, [&](int) { return a.scale; });
    put_rows<STRIPS>(a, grads.d_v + at, a.ld, k0, dv, [](int) { return 1.0f; });
    if (a.gating != GATING_NONE)
        put_gates(a, grads.d_gate, h, k0, gates, part);
}

template <int STRIPS>
static void forward(struct gpu *g, const struct attention *in, float *out, size_t ld_out,
                    float *lse)
{
    auto kernel = gated_forward_kernel<STRIPS>;
    dim3 grid(blocks_for((size_t)in->T, TILE), (unsigned)in->n_heads);
    struct attention a = *in;
    LAUNCH(kernel, grid, LANES, 0, g, a, out, ld_out, lse);
}

template <int STRIPS>
static void backward(struct gpu *g, const struct attention *in, const struct attention_grads *to,
                     float *delta)
{
    auto queries = gated_queries_kernel<STRIPS>;
    auto keys = gated_keys_kernel<STRIPS>;
    unsigned tiles = blocks_for((size_t)in->T, TILE);
    dim3 rows(blocks_for((size_t)in->T, LANES / WARP), (unsigned)in->n_heads);
    dim3 by_query(tiles, (unsigned)in->n_heads), by_key(tiles, (unsigned)in->n_kv_heads);
    struct attention a = *in;
    struct attention_grads grads = *to;
    LAUNCH(delta_kernel, rows, LANES, 0, g, a, grads, delta);
    LAUNCH(queries, by_query, LANES, 0, g, a, grads, delta);
    LAUNCH(keys, by_key, LANES, 0, g, a, grads, delta);
}

#define FOR_STRIPS(D, f, ...)                                                                      \
    if ((D) <= STRIP)                                                                              \
        f<1>(__VA_ARGS__);                                                                         \
    else if ((D) <= 2 * STRIP)                                                                     \
        f<2>(__VA_ARGS__);                                                                         \
    else if ((D) <= 4 * STRIP)                                                                     \
        f<4>(__VA_ARGS__);                                                                         \
    else                                                                                           \
        f<8>(__VA_ARGS__);

void gpu_gated_forward(struct gpu *g, const struct attention *a, float *out, size_t ld_out,
                       float *lse)
{
    FOR_STRIPS(a->D, forward, g, a, out, ld_out, lse)
}

void gpu_gated_backward(struct gpu *g, const struct attention *a, const struct attention_grads *d,
                        float *delta)
{
    FOR_STRIPS(a->D, backward, g, a, d, delta)
}

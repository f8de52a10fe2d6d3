/* train_forward.cu - gated attention of full sequences on tensor cores: inputs for both directions,
 * rounded and listed, and the forward pass. */
#include "engine/cuda/gated_tensor.cuh"

/* ---- inputs of the kernels ---- */

bool gated_by_tensor(const struct attention *a)
{
    return a->D % 16 == 0 && a->D <= 256 && a->cap == 0;
}

/* Reserves an area. With base NULL only the bytes are counted. */
template <class P> static void claim(P *ret, void *base, size_t *used, size_t bytes)
{
    *ret = base ? (P)(void *)((char *)base + *used) : NULL;
    *used += (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
}

size_t gated_lay_out(struct gated_room *r, const struct attention *a, void *base)
{
    size_t T = (size_t)a->T, D = (size_t)a->D, G = (size_t)a->n_heads, H = (size_t)a->n_kv_heads;
    size_t list = (T + TILE - 1) / TILE * TILE * sizeof(float), used = 0;
    size_t each = G == H ? 0 : G * T * D * sizeof(float); /* a single query head writes the sums
                                                           * directly */
    claim(&r->rows, base, &used, T * (G + 2 * H) * D * sizeof(uint16_t));
    claim(&r->d_out, base, &used, T * G * D * sizeof(uint16_t));
    claim(&r->gate, base, &used, H * list);
    claim(&r->evicted_at, base, &used, H * list);
    claim(&r->first, base, &used, list);
    claim(&r->lse, base, &used, G * list);
    claim(&r->delta, base, &used, G * list);
    claim(&r->d_k, base, &used, each);
    claim(&r->d_v, base, &used, each);
    claim(&r->d_gate, base, &used, G * list);
    return used;
}

size_t gpu_gated_room(const struct attention *a)
{
    struct gated_room r;
    size_t exact = (size_t)a->n_heads * (size_t)a->T * sizeof(float), all = 0;
    if (gated_by_tensor(a))
        all = gated_lay_out(&r, a, NULL);
    return all > exact ? all : exact;
}

/* Rounds eight channels; loads four at a time if aligned. */
DEVICE uint4 rounded_piece(const float *p, bool fours)
{
    float x[8];
    if (fours) {
        float4 low = ((const float4 *)(const void *)p)[0];
        float4 high = ((const float4 *)(const void *)p)[1];
        return uint4{two_bf16(low.x, low.y), two_bf16(low.z, low.w), two_bf16(high.x, high.y),
                     two_bf16(high.z, high.w)};
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
        x[k] = p[k];
    return uint4{two_bf16(x[0], x[1]), two_bf16(x[2], x[3]), two_bf16(x[4], x[5]),
                 two_bf16(x[6], x[7])};
}

enum { PREPARE_LANES = 256 };

/* Block (token, range): a lane rounds a piece of the token's row; the lanes after these write the
 * token's list elements. */
__global__ void __launch_bounds__(PREPARE_LANES)
    prepare_kernel(struct attention a, struct gated_room r, int padded)
{
    int t = (int)blockIdx.x, i = (int)(blockIdx.y * PREPARE_LANES + threadIdx.x);
    int G = a.n_heads, H = a.n_kv_heads, per = a.D / 8, all = (G + 2 * H) * per, h = i - all;
    if (i < all && t < a.T) {
        int head = i / per;
        const float *from = head < G + H ? a.k : a.v;
        from = head < G ? a.q : from;
        int before = head < G + H ? G : G + H; /* heads of other matrices */
        head -= head < G ? 0 : before;
        from += (size_t)t * a.ld + (size_t)(head * a.D + i % per * 8);
        ((uint4 *)(void *)r.rows)[(size_t)t * (size_t)all + (size_t)i] = rounded_piece(
            from, (uintptr_t)from % 16 == 0);
    }
    if (h == H)
        r.first[t] = t < a.T ? a.first[t] : INT32_MAX;
    if (h < 0 || h >= H)
        return;
    size_t to = (size_t)h * (size_t)padded + (size_t)t, at = (size_t)t * (size_t)H + (size_t)h;
    r.gate[to] = t < a.T && a.gate ? a.gate[at] * LOG2_E : 0;
    r.evicted_at[to] = t < a.T && a.evicted_at ? a.evicted_at[at] : INT32_MAX;
}

struct gated gated_prepare(struct gpu *g, const struct attention *a, const struct gated_room *r)
{
    int G = a->n_heads, H = a->n_kv_heads, padded = (a->T + TILE - 1) / TILE * TILE;
    size_t lanes = (size_t)(G + 2 * H) * (size_t)(a->D / 8) + (size_t)H + 1;
    dim3 grid((unsigned)padded, blocks_for(lanes, PREPARE_LANES));
    struct attention in = *a;
    struct gated_room to = *r;
    LAUNCH(prepare_kernel, grid, PREPARE_LANES, 0, g, in, to, padded);
    return {a->T,
            padded,
            G,
            H,
            a->D,
            a->gating,
            a->scale * LOG2_E,
            (float)a->window,
            r->rows,
            r->rows + G * a->D,
            r->rows + (G + H) * a->D,
            NULL,
            (G + 2 * H) * a->D,
            r->gate,
            a->evicted_at ? r->evicted_at : NULL,
            r->first,
            r->lse,
            r->delta};
}

/* ---- forward ---- */

template <int WIDE> struct forward_shape {
    enum { KEYS = WIDE > 128 ? 32 : 64, COLUMNS = KEYS / 8, BELOW = WIDE <= 128 };
    typedef stage_of<WIDE, KEYS> S;
    /* queries are in the second stage until they are in registers, or after both stages */
    enum { OWN = BELOW ? (int)S::SIZE : 2 * S::SIZE };
    enum { BYTES = (2 * S::SIZE + (BELOW ? 0 : TILE * S::LD)) * 16 };
};

/* The running softmax of a lane's rows; sum: over this lane's columns. */
struct running {
    float top[2], sum[2];
};

/* Converts logits to weights, and updates the sums. */
template <int WIDE, int N>
DEVICE void weigh(struct running &r, float s[N][4], float out[WIDE / 8][4])
{
    float fade[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < N; j++)
            top = fmaxf(top, fmaxf(s[j][e * 2], s[j][e * 2 + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        float old = r.top[e], now = fmaxf(old, top), sum = 0, base = now == -INFINITY ? 0 : now;
        fade[e] = old == now ? 1 : power_of_two(old - now);
        r.top[e] = now;
#pragma unroll
        for (int j = 0; j < N * 2; j++) {
            float *x = &s[j / 2][e * 2 + j % 2];
            *x = power_of_two(*x - base);
            sum += *x;
        }
        r.sum[e] = fmaf(r.sum[e], fade[e], sum);
    }
    if (__ballot_sync(ALL_LANES, fade[0] != 1 || fade[1] != 1) == 0)
        return;
#pragma unroll
    for (int j = 0; j < WIDE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            out[j][e] *= fade[e / 2];
}

/* Block (query head, tile of queries, the longest first). */
template <int WIDE>
__global__ void __launch_bounds__(LANES, WIDE > 64 ? 1 : 4)
    tensor_forward_kernel(struct gated a, float *out, size_t ld_out, float *lse)
{
    typedef forward_shape<WIDE> F;
    typedef typename F::S S;
    SHARED_DYNAMIC(uint4, ring);
    int g = (int)blockIdx.x, h = g / (a.G / a.H), q0 = (int)(gridDim.y - 1 - blockIdx.y) * TILE;
    int k0 = a.first[q0] / F::KEYS * F::KEYS;
    struct query_rows r = query_rows_of_lane(q0);
    struct running run = {{-INFINITY, -INFINITY}, {0, 0}};
    struct own_rows<WIDE, F::BELOW> own;
    float sums[WIDE / 8][4] = {};
    fetch_rows<WIDE, TILE>(ring + (size_t)F::OWN,
                           a.q + (size_t)q0 * (size_t)a.ld + (size_t)(g * a.D), a.ld, a.T - q0,
                           a.D);
    fetch_keys<WIDE, F::KEYS>(a, h, k0, ring);
    copies_group();
    copies_wait<0>();
    __syncthreads();
    take_rows(own, ring + (size_t)F::OWN);
#pragma unroll 1
    for (int stage = 0; k0 < q0 + TILE; k0 += F::KEYS, stage ^= 1) {
        in_shared<uint4> now = ring + (size_t)(stage * S::SIZE);
        copies_wait<0>();
        __syncthreads(); /* the tile is complete, and all lanes have finished the preceding one */
        if (k0 + F::KEYS < q0 + TILE)
            fetch_keys<WIDE, F::KEYS>(a, h, k0 + F::KEYS, ring + (size_t)((stage ^ 1) * S::SIZE));
        copies_group();
        if (!sees_some(a, r, k0, F::KEYS))
            continue;
        float s[F::COLUMNS][4];
        rows_by_rows<WIDE, F::KEYS>(own, now, 0, s);
        logits<F::COLUMNS>(a, r, now + (size_t)S::LISTS, k0, s);
        if (!sees_all(a, r, k0, F::KEYS))
            hide<F::COLUMNS>(a, r, now + (size_t)(S::LISTS + S::LIST), k0, s);
        weigh<WIDE, F::COLUMNS>(run, s, sums);
        weights_by_rows<WIDE, WIDE, F::KEYS>(sums, s, now + (size_t)S::MATRIX, 0, 0);
    }
    float by[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float sum = run.sum[e];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        by[e] = 1 / sum;
        int query = r.query + e * 8;
        if (lane_of_warp() % 4 == 0 && query < a.T)
            lse[(size_t)g * (size_t)a.T + (size_t)query] = run.top[e] * LN_2 + logf(sum);
    }
    store_rows<WIDE>(out + (size_t)g * (size_t)a.D, ld_out, q0, a.T, a.D, sums, by);
}

template <int WIDE>
static bool forward(struct gpu *g, const struct attention *in, float *out, size_t ld_out,
                    float *lse, void *room)
{
    auto kernel = tensor_forward_kernel<WIDE>;
    struct gated_room r;
    if (!gated_allow(kernel, forward_shape<WIDE>::BYTES))
        return false;
    gated_lay_out(&r, in, room);
    struct gated a = gated_prepare(g, in, &r);
    dim3 grid((unsigned)a.G, (unsigned)(a.padded / TILE));
    LAUNCH(kernel, grid, LANES, forward_shape<WIDE>::BYTES, g, a, out, ld_out, lse);
    return true;
}

bool gpu_gated_forward_bf16(struct gpu *g, const struct attention *a, float *out, size_t ld_out,
                            float *lse, void *room)
{
    if (!gated_by_tensor(a))
        return false;
    RETURN_FOR_WIDTH(a->D, forward, g, a, out, ld_out, lse, room);
}

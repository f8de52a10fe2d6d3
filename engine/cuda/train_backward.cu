/* train_backward.cu - backward pass of gated attention on tensor cores, with the equations of
 * train_attention.cu: once for tiles of queries (dQ) and once for tiles of keys (dK, dV, gates). In
 * the second pass each query head has separate blocks. The results of the query heads of a KV head
 * are added afterwards, in head order. */
#include "engine/cuda/gated_tensor.cuh"

enum { CHUNK = 32, COLUMNS = CHUNK / 8 }; /* rows of the other matrix per product of a warp */

/* ---- rounding of inputs ---- */

enum { DELTA_LANES = 256 };

/* Rounds dO, and lists delta = dO . O and the log-sum-exp, zeros after the last token. A warp has
 * one query of one head. */
__global__ void __launch_bounds__(DELTA_LANES)
    round_gradients_kernel(struct gated a, struct attention_grads d, struct gated_room r)
{
    int t = (int)blockIdx.x * (DELTA_LANES / WARP) + warp_of_block(), g = (int)blockIdx.y;
    if (t >= a.padded)
        return;
    size_t at = (size_t)t * d.ld_out + (size_t)(g * a.D), list = (size_t)g * (size_t)a.padded;
    uint32_t *to = (uint32_t *)(void *)(r.d_out
                                        + ((size_t)t * (size_t)a.G + (size_t)g) * (size_t)a.D);
    double sum = 0;
    for (int c = lane_of_warp() * 2; t < a.T && c < a.D; c += WARP * 2) {
        uint32_t w = two_bf16(d.d_out[at + (size_t)c], d.d_out[at + (size_t)c + 1]);
        sum += (double)from_bf16((uint16_t)w) * (double)d.out[at + (size_t)c];
        sum += (double)from_bf16((uint16_t)(w >> 16)) * (double)d.out[at + (size_t)c + 1];
        to[c / 2] = w;
    }
    sum = warp_sum(sum);
    if (lane_of_warp() != 0)
        return;
    r.delta[list + (size_t)t] = (float)sum;
    r.lse[list + (size_t)t] = t < a.T ? d.lse[(size_t)g * (size_t)a.T + (size_t)t] * LOG2_E : 0;
}

/* ---- tiles of queries ---- */

template <int WIDE> struct queries_shape {
    enum { KEYS = WIDE > 128 ? 32 : 64, BELOW = WIDE <= 128 };
    typedef stage_of<WIDE, KEYS> S;
    /* own rows are in the second stage until they are in registers, or after both stages */
    enum { OWN = BELOW ? (int)S::SIZE : 2 * S::SIZE };
    enum { BYTES = (2 * S::SIZE + (BELOW ? 0 : 2 * TILE * S::LD)) * 16 };
};

/* From logits s and d = dO v of keys from key k0 on: d becomes the gradients of q k. gates: the
 * list of these keys. */
DEVICE void by_products(const struct gated &a, const struct query_rows &r, int g,
                        in_shared<uint4> gates, int k0, float s[COLUMNS][4], float d[COLUMNS][4])
{
    size_t at = (size_t)(g * a.padded + r.query);
    const float lse[2] = {a.lse[at], a.lse[at + 8]};
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] = power_of_two(s[j][e] - lse[e / 2]);
    const float delta[2] = {a.delta[at], a.delta[at + 8]};
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            d[j][e] = s[j][e] * (d[j][e] - delta[e / 2]);
    if (a.gating != GATING_LOGIT)
        return;
    float age[2], gate[2];
    ages_of_lane(r, k0, age);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        list_floats(gates, j, gate);
#pragma unroll
        for (int e = 0; e < 4; e++)
            d[j][e] *= slope_of(age[e / 2] + (float)(-j * 8 - e % 2), gate[e % 2]);
    }
}

/* Computes dQ. Block (query head, tile of queries, the longest first). */
template <int WIDE>
__global__ void __launch_bounds__(LANES, WIDE > 64 ? 1 : 3)
    tensor_queries_kernel(struct gated a, float *d_q, size_t ld, float scale)
{
    typedef queries_shape<WIDE> F;
    typedef typename F::S S;
    SHARED_DYNAMIC(uint4, ring);
    int g = (int)blockIdx.x, h = g / (a.G / a.H), q0 = (int)(gridDim.y - 1 - blockIdx.y) * TILE;
    int k0 = a.first[q0] / F::KEYS * F::KEYS;
    size_t to = (size_t)(g * a.D), wide = (size_t)(a.G * a.D);
    struct query_rows r = query_rows_of_lane(q0);
    struct own_rows<WIDE, F::BELOW> q, d_out;
    float dq[WIDE / 8][4] = {};
    in_shared<uint4> own = ring + (size_t)F::OWN;
    fetch_rows<WIDE, TILE>(own, a.q + (size_t)q0 * (size_t)a.ld + to, a.ld, a.T - q0, a.D);
    fetch_rows<WIDE, TILE>(own + (size_t)(TILE * S::LD), a.d_out + (size_t)q0 * wide + to,
                           (int)wide, a.T - q0, a.D);
    fetch_keys<WIDE, F::KEYS>(a, h, k0, ring);
    copies_group();
    copies_wait<0>();
    __syncthreads();
    take_rows(q, own);
    take_rows(d_out, own + (size_t)(TILE * S::LD));
#pragma unroll 1
    for (int stage = 0; k0 < q0 + TILE; k0 += F::KEYS, stage ^= 1) {
        in_shared<uint4> now = ring + (size_t)(stage * S::SIZE);
        copies_wait<0>();
        __syncthreads(); /* the tile is complete, and all lanes have finished the preceding one */
        if (k0 + F::KEYS < q0 + TILE)
            fetch_keys<WIDE, F::KEYS>(a, h, k0 + F::KEYS, ring + (size_t)((stage ^ 1) * S::SIZE));
        copies_group();
#pragma unroll 1
        for (int c = 0; c < F::KEYS; c += CHUNK) {
            float s[COLUMNS][4], d[COLUMNS][4];
            in_shared<uint4> lists = now + (size_t)(S::LISTS + c / 4);
            if (!sees_some(a, r, k0 + c, CHUNK))
                continue;
            rows_by_rows<WIDE, CHUNK>(q, now, c, s);
            rows_by_rows<WIDE, CHUNK>(d_out, now + (size_t)S::MATRIX, c, d);
            logits<COLUMNS>(a, r, lists, k0 + c, s);
            if (!sees_all(a, r, k0 + c, CHUNK))
                hide<COLUMNS>(a, r, lists + (size_t)S::LIST, k0 + c, s);
            by_products(a, r, g, lists, k0 + c, s, d);
            weights_by_rows<WIDE, WIDE, CHUNK>(dq, d, now, c, 0);
        }
    }
    const float by[2] = {scale, scale};
    store_rows<WIDE>(d_q + to, ld, q0, a.T, a.D, dq, by);
}

/* ---- tiles of keys ---- */

template <int WIDE> struct keys_shape {
    enum { QUERIES = WIDE > 96 ? 32 : 64, HELD = WIDE <= 96 }; /* HELD: keys stay in registers */
    /* blocks that divide the channels of dK, dV */
    enum { SHARES = WIDE > 128 ? 2 : 1, WIDTH = WIDE / SHARES };
    typedef stage_of<WIDE, QUERIES> S;
    enum { OWN = 2 * S::SIZE, BYTES = (OWN + 2 * TILE * S::LD) * 16 };
};

/* The rows of a lane. */
struct key_rows {
    int h, key;    /* the KV head; the first row (the second is 8 later) */
    double sum[2]; /* gate gradients of this lane's columns */
};

/* Loads the list elements of a lane's rows. */
template <class E>
DEVICE void key_words(const struct gated &a, const struct key_rows &r, const E *list, E x[2])
{
    list += (size_t)(r.h * a.padded + r.key);
    x[0] = list[0];
    x[1] = list[8];
}

template <int WIDE>
DEVICE void fetch_queries(const struct gated &a, int g, int q0, in_shared<uint4> stage)
{
    typedef keys_shape<WIDE> F;
    typedef typename F::S S;
    size_t wide = (size_t)(a.G * a.D), to = (size_t)(g * a.D), row = (size_t)q0;
    size_t list = (size_t)g * (size_t)a.padded + row;
    fetch_rows<WIDE, F::QUERIES>(stage, a.q + row * (size_t)a.ld + to, a.ld, a.T - q0, a.D);
    fetch_rows<WIDE, F::QUERIES>(stage + (size_t)S::MATRIX, a.d_out + row * wide + to, (int)wide,
                                 a.T - q0, a.D);
    fetch_list<F::QUERIES>(stage + (size_t)S::LISTS, a.lse + list);
    fetch_list<F::QUERIES>(stage + (size_t)(S::LISTS + S::LIST), a.delta + list);
    fetch_list<F::QUERIES>(stage + (size_t)(S::LISTS + 2 * S::LIST), a.first + q0);
}

/* Returns the contribution of a pair to the gradient of its gate; for GATING_LOGIT divided by ln
 * 2. */
template <enum gating GATING>
DEVICE float gate_share(const struct gated &a, float age, float by_logit, float logit)
{
    if (GATING == GATING_DECAY)
        return age * by_logit;
    if (GATING == GATING_LOGIT)
        return age * by_logit * fmaxf(logit, -1e30f); /* 0 for hidden keys */
    return GATING == GATING_WRITE && age >= a.window ? by_logit : 0;
}

/* Converts the products of the warp's keys with queries from query q0 on to logits. */
DEVICE void key_logits(const struct gated &a, const struct key_rows &r, int q0, float s[COLUMNS][4])
{
    int query = q0 + lane_of_warp() % 4 * 2;
    float age[2] = {(float)(query - r.key), (float)(query - r.key - 8)};
    for_gating(a.gating, [&](auto kind) {
        constexpr enum gating GATING = decltype(kind)::VALUE;
        float gate[2] = {0, 0};
        if (GATING != GATING_NONE)
            key_words(a, r, a.gate, gate);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = modulate<GATING>(a, s[j][e], age[e / 2] + (float)(j * 8 + e % 2),
                                           gate[e / 2]);
    });
}

/* Hides keys that a query does not see. firsts: the list of these queries. */
DEVICE void hide_keys(const struct gated &a, const struct key_rows &r, in_shared<uint4> firsts,
                      int q0, float s[COLUMNS][4])
{
    int until[2] = {INT32_MAX, INT32_MAX};
    if (a.evicted_at)
        key_words(a, r, a.evicted_at, until);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        int first[2], query = q0 + j * 8 + lane_of_warp() % 4 * 2;
        list_ints(firsts, j, first);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = query + e % 2, at = r.key + e / 2 * 8;
            bool seen = at <= i && at >= first[e % 2] && until[e / 2] > i;
            s[j][e] = seen ? s[j][e] : -INFINITY;
        }
    }
}

/* From logits s and d = v dO of queries from query q0 on: s becomes the weights and d the gradients
 * of k q. Adds the gate gradients. lists: of these queries, `apart` pieces apart. */
DEVICE void by_pairs(const struct gated &a, struct key_rows &r, in_shared<uint4> lists, int apart,
                     int q0, float s[COLUMNS][4], float d[COLUMNS][4])
{
    int query = q0 + lane_of_warp() % 4 * 2;
    float age[2] = {(float)(query - r.key), (float)(query - r.key - 8)};
    float sum[2] = {0, 0};
    for_gating(a.gating, [&](auto kind) {
        constexpr enum gating GATING = decltype(kind)::VALUE;
        float gate[2] = {0, 0};
        if (GATING == GATING_LOGIT)
            key_words(a, r, a.gate, gate);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            float lse[2], delta[2];
            list_floats(lists, j, lse);
            list_floats(lists + (size_t)apart, j, delta);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float old = age[e / 2] + (float)(j * 8 + e % 2), logit = s[j][e];
                s[j][e] = power_of_two(logit - lse[e % 2]);
                d[j][e] = s[j][e] * (d[j][e] - delta[e % 2]);
                sum[e / 2] += gate_share<GATING>(a, old, d[j][e], logit);
                if (GATING == GATING_LOGIT)
                    d[j][e] *= slope_of(old, gate[e / 2]);
            }
        }
    });
    r.sum[0] += (double)sum[0];
    r.sum[1] += (double)sum[1];
}

/* dK, dV and the gate gradients of one query head: rows ld apart, and a list. */
struct by_keys {
    float *d_k, *d_v, *d_gate;
    size_t ld, head; /* floats between heads */
    float scale;
};

/* Stores the gate gradients of the lanes' keys. */
DEVICE void store_gates(const struct gated &a, const struct by_keys &to, int g,
                        const struct key_rows &r)
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        double sum = r.sum[e];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        if (lane_of_warp() % 4 == 0)
            to.d_gate[(size_t)g * (size_t)a.padded + (size_t)(r.key + e * 8)] = (float)sum;
    }
}

/* Block (query head, tile of keys, part of the channels). */
template <int WIDE>
__global__ void __launch_bounds__(LANES, WIDE > 64 ? 1 : 3)
    tensor_keys_kernel(struct gated a, struct by_keys to)
{
    typedef keys_shape<WIDE> F;
    typedef typename F::S S;
    SHARED_DYNAMIC(uint4, ring);
    int g = (int)blockIdx.x, h = g / (a.G / a.H), k0 = (int)blockIdx.y * TILE, q0 = k0;
    int low = k0 + warp_of_block() * WARP_ROWS, from = (int)blockIdx.z * F::WIDTH;
    size_t row = (size_t)k0 * (size_t)a.ld + (size_t)(h * a.D),
           at = (size_t)g * to.head + (size_t)from;
    struct key_rows r = {h, k0 + row_of_lane(0), {0, 0}};
    struct own_rows<WIDE, F::HELD> k;
    struct own_rows<WIDE, false> v;
    float dk[F::WIDTH / 8][4] = {}, dv[F::WIDTH / 8][4] = {};
    in_shared<uint4> own = ring + (size_t)F::OWN;
    fetch_rows<WIDE, TILE>(own, a.k + row, a.ld, a.T - k0, a.D);
    fetch_rows<WIDE, TILE>(own + (size_t)(TILE * S::LD), a.v + row, a.ld, a.T - k0, a.D);
    fetch_queries<WIDE>(a, g, q0, ring);
    copies_group();
    copies_wait<0>();
    __syncthreads();
    take_rows(k, own);
    take_rows(v, own + (size_t)(TILE * S::LD));
#pragma unroll 1
    for (int stage = 0; q0 < a.T && a.first[q0] < k0 + TILE; q0 += F::QUERIES, stage ^= 1) {
        in_shared<uint4> now = ring + (size_t)(stage * S::SIZE);
        int next = q0 + F::QUERIES;
        copies_wait<0>();
        __syncthreads(); /* the tile is complete, and all lanes have finished the preceding one */
        if (next < a.T && a.first[next] < k0 + TILE)
            fetch_queries<WIDE>(a, g, next, ring + (size_t)((stage ^ 1) * S::SIZE));
        copies_group();
#pragma unroll 1
        for (int c = 0; c < F::QUERIES; c += CHUNK) {
            float s[COLUMNS][4], d[COLUMNS][4];
            int query = q0 + c, first = a.first[query], last = a.first[query + CHUNK - 1];
            in_shared<uint4> lists = now + (size_t)(S::LISTS + c / 4);
            if (query + CHUNK <= low || first >= low + WARP_ROWS)
                continue;
            rows_by_rows<WIDE, CHUNK>(k, now, c, s);
            rows_by_rows<WIDE, CHUNK>(v, now + (size_t)S::MATRIX, c, d);
            key_logits(a, r, query, s);
            if (query < low + WARP_ROWS - 1 || last > low || a.evicted_at)
                hide_keys(a, r, lists + (size_t)(2 * S::LIST), query, s);
            by_pairs(a, r, lists, S::LIST, query, s, d);
            weights_by_rows<WIDE, F::WIDTH, CHUNK>(dv, s, now + (size_t)S::MATRIX, c, from);
            weights_by_rows<WIDE, F::WIDTH, CHUNK>(dk, d, now, c, from);
        }
    }
    const float by[2] = {to.scale, to.scale}, one[2] = {1, 1};
    store_rows<F::WIDTH>(to.d_k + at, to.ld, k0, a.T, a.D - from, dk, by);
    store_rows<F::WIDTH>(to.d_v + at, to.ld, k0, a.T, a.D - from, dv, one);
    if (a.gating != GATING_NONE && from == 0)
        store_gates(a, to, g, r);
}

/* ---- sums over query heads ---- */

enum { ADD_LANES = 256 };

/* Adds the results of the query heads of each KV head, in order. Block (token, range of the
 * channels of all KV heads). If each KV head has one query head, its channels are already stored.
 * The H lanes after the channels add the gates. */
__global__ void __launch_bounds__(ADD_LANES)
    add_heads_kernel(struct gated a, struct by_keys from, struct attention_grads to, size_t ld)
{
    int t = (int)blockIdx.x, i = (int)(blockIdx.y * ADD_LANES + threadIdx.x), group = a.G / a.H;
    int all = group > 1 ? a.H * a.D : 0, h = i - all;
    if (i < all) {
        size_t at = (size_t)(i / a.D * group) * from.head + (size_t)t * from.ld + (size_t)(i % a.D);
        float dk = 0, dv = 0;
        for (int g = 0; g < group; g++, at += from.head) {
            dk += from.d_k[at];
            dv += from.d_v[at];
        }
        to.d_k[(size_t)t * ld + (size_t)i] = dk;
        to.d_v[(size_t)t * ld + (size_t)i] = dv;
    }
    if (h < 0 || h >= a.H || a.gating == GATING_NONE)
        return;
    double sum = 0;
    for (int g = h * group; g < (h + 1) * group; g++)
        sum += (double)from.d_gate[(size_t)g * (size_t)a.padded + (size_t)t];
    to.d_gate[(size_t)t * (size_t)a.H + (size_t)h] = (float)(a.gating == GATING_LOGIT ? sum * LN_2
                                                                                      : sum);
}

template <int WIDE>
static bool backward(struct gpu *g, const struct attention *in, const struct attention_grads *d,
                     void *room)
{
    typedef keys_shape<WIDE> K;
    auto queries = tensor_queries_kernel<WIDE>;
    auto keys = tensor_keys_kernel<WIDE>;
    struct gated_room r;
    if (!gated_allow(queries, queries_shape<WIDE>::BYTES) || !gated_allow(keys, K::BYTES))
        return false;
    gated_lay_out(&r, in, room);
    struct gated a = gated_prepare(g, in, &r);
    struct attention_grads to = *d;
    unsigned tiles = (unsigned)(a.padded / TILE), G = (unsigned)a.G;
    size_t D = (size_t)a.D;
    struct by_keys own = {to.d_k, to.d_v, r.d_gate, in->ld, D, in->scale};
    if (a.G != a.H)
        own = {r.d_k, r.d_v, r.d_gate, D, (size_t)a.T * D, in->scale};
    a.d_out = r.d_out;
    dim3 rows(blocks_for((size_t)a.padded, DELTA_LANES / WARP), G);
    dim3 sums((unsigned)a.T, blocks_for((size_t)a.H * (a.G != a.H ? D + 1 : 1), ADD_LANES));
    LAUNCH(round_gradients_kernel, rows, DELTA_LANES, 0, g, a, to, r);
    LAUNCH(queries, dim3(G, tiles), LANES, queries_shape<WIDE>::BYTES, g, a, to.d_q, in->ld,
           in->scale);
    LAUNCH(keys, dim3(G, tiles, K::SHARES), LANES, K::BYTES, g, a, own);
    LAUNCH(add_heads_kernel, sums, ADD_LANES, 0, g, a, own, to, in->ld);
    return true;
}

bool gpu_gated_backward_bf16(struct gpu *g, const struct attention *a,
                             const struct attention_grads *d, void *room)
{
    if (!gated_by_tensor(a))
        return false;
    RETURN_FOR_WIDTH(a->D, backward, g, a, d, room);
}

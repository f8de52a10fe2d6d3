/* attention.c - products of queries with keys and of weights with values. */
#include <math.h>
#include <string.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* The sums of TILE_ROWS * TILE_VECS vectors stay in registers (AVX-512 has 32, AVX2 16). Many rows
 * share the cost of loading and converting a vector of the page. A single row uses VECS vectors, so
 * that its sums do not wait for each other. */
enum {
    TILE_ROWS = KERNELS_AVX512 ? 8 : 4,
    TILE_VECS = 2,
    FEW_VECS = KERNELS_AVX512 ? 4 : 2, /* for two to four rows */
    VECS = 4
};
/* The first tile of many rows stores the converted elements as floats for the other tiles: of keys
 * all slots of at most MOST_KEPT channels (64 KB, in the L2 cache), of values SPAN channels of all
 * slots (8 KB). */
enum { MOST_KEPT = 256, SPAN = TILE_VECS * W };

/* Position in a half page: channel i of keys, as vectors of PAGE_SLOTS, or slot i of values, as
 * vectors of D. at: index of the first number, or of the first group of adjacent numbers. rest:
 * index within a group. */
struct place {
    size_t at, rest;
};

INLINE struct place place_of(const enum kv_type type, size_t i, size_t length, size_t from)
{
    const size_t n = kv_beside(type);
    return (struct place){i / n * length + from, i % n};
}

/* Loads elements as floats. q8_0 multiplies by `scale` (exact). i16 keys do, too. */
INLINE vec load_kv(const void *page, const enum kv_type type, struct place p, vec scale)
{
    if (type == KV_F32)
        return v_load((const float *)page + p.at);
    if (type == KV_F16)
        return v_load_half((const uint16_t *)page + p.at);
    ints group = i_load((const int32_t *)page + p.at);
    return v_mul(type == KV_I16 ? i_half(group, (int)p.rest) : i_byte(group, (int)p.rest), scale);
}

/* sum[r][v] += x[r * ld_x] times vector v of the page from p on. Stores the vector in kept, unless
 * that is NULL. */
INLINE void add_products(vec sum[TILE_ROWS][VECS], const float *x, size_t ld_x, const void *page,
                         const enum kv_type type, struct place p, const vec scale[VECS],
                         const int R, const int N, float *kept)
{
    vec y[VECS];
    UNROLL
    for (int v = 0; v < N; v++, p.at += W) {
        y[v] = load_kv(page, type, p, scale[v]);
        if (kept)
            v_store(kept + (size_t)(v * W), y[v]);
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        vec b = v_set(x[(size_t)r * ld_x]);
        UNROLL
        for (int v = 0; v < N; v++)
            sum[r][v] = v_fma(b, y[v], sum[r][v]);
    }
}

INLINE void load_scales(vec scales[VECS], const uint16_t *from, const int N)
{
    UNROLL
    for (int v = 0; v < N; v++)
        scales[v] = v_load_half(from + v * W);
}

/* Prefetches N vectors from `at` on of the half page that is read next, if there is one. The target
 * is the L2 cache, because L1 supports few outstanding requests. The hardware prefetcher does not
 * cross a 4 KB page. */
INLINE void ask_for(const void *next, const enum kv_type type, struct place p, const int N)
{
    const size_t bytes = type == KV_F16 ? 2 : 4; /* bytes of a group */
    const char *from = (const char *)next + p.at * bytes;
    for (size_t i = 0; next && p.rest == 0 && i < (size_t)(N * W) * bytes; i += 64)
        __builtin_prefetch(from + i, 0, 2);
}

/* Multiplies R queries by N vectors of slots from s0 on. */
INLINE void qk_tile(float *scores, size_t ld_s, const float *q, size_t ld_q, size_t D,
                    const struct kv_keys *k, size_t s0, const enum kv_type type, float scale,
                    const int R, const int N, float *kept)
{
    const size_t block = type == KV_Q8_0 ? KV_BLOCK : D;
    vec sum[TILE_ROWS][VECS], scales[VECS];
    UNROLL
    for (int v = 0; v < VECS; v++)
        scales[v] = type == KV_I16 && v < N
                        ? v_load(kv_i16_scales(k->page, (int)D) + s0 + (size_t)(v * W))
                        : v_zero();
    UNROLL
    for (int i = 0; i < R * N; i++)
        sum[i / N][i % N] = v_zero();
    for (size_t d0 = 0; d0 < D; d0 += block) {
        size_t end = D - d0 < block ? D : d0 + block;
        if (type == KV_Q8_0)
            load_scales(scales, kv_q8_scales(k->page, (int)D) + d0 / KV_BLOCK * PAGE_SLOTS + s0, N);
        for (size_t d = d0; d < end; d++) {
            const struct place p = place_of(type, d, PAGE_SLOTS, s0);
            ask_for(k->next, type, p, N);
            add_products(sum, q + d, ld_q, k->page, type, p, scales, R, N,
                         kept ? kept + d * PAGE_SLOTS + s0 : NULL);
        }
    }
    UNROLL
    for (int i = 0; i < R * N; i++)
        v_store(scores + (size_t)(i / N) * ld_s + s0 + (size_t)(i % N * W),
                v_mul(sum[i / N][i % N], v_set(scale)));
}

/* Returns the rows of the next tile, given the remaining rows. */
INLINE size_t tile_of(size_t left)
{
    if (left >= TILE_ROWS)
        return TILE_ROWS;
    return left < 4 ? left : 4;
}

INLINE void qk_rows(float *scores, size_t ld_s, const float *q, size_t ld_q, size_t D,
                    const struct kv_keys *k, const enum kv_type type, float scale, const int R,
                    const int N, float *kept)
{
    for (size_t s0 = 0; s0 < PAGE_SLOTS; s0 += (size_t)(N * W))
        qk_tile(scores, ld_s, q, ld_q, D, k, s0, type, scale, R, N, kept);
}

/* Computes full tiles of many rows; returns the number of rows done. */
INLINE size_t qk_tiles(float *scores, size_t ld_s, const float *q, size_t ld_q, size_t rows,
                       size_t D, const struct kv_keys *k, const enum kv_type type, float scale)
{
    _Alignas(64) float kept[MOST_KEPT * PAGE_SLOTS];
    const struct kv_keys same = {.page = kept, .type = KV_F32};
    size_t t = TILE_ROWS;
    qk_rows(scores, ld_s, q, ld_q, D, k, type, scale, TILE_ROWS, TILE_VECS, kept);
    for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
        qk_rows(scores + t * ld_s, ld_s, q + t * ld_q, ld_q, D, &same, KV_F32, scale, TILE_ROWS,
                TILE_VECS, NULL);
    return t;
}

INLINE void qk_all(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,
                   const struct kv_keys *k, const enum kv_type type, float scale)
{
    size_t n = (size_t)D, rows = (size_t)T, t = 0, R;
    if (type != KV_F32 && rows >= 2 * TILE_ROWS && n <= MOST_KEPT)
        t = qk_tiles(scores, ld_s, q, ld_q, rows, n, k, type, scale);
    for (; t < rows; t += R) {
        float *s = scores + t * ld_s;
        const float *x = q + t * ld_q;
        R = tile_of(rows - t);
        if (R == TILE_ROWS)
            qk_rows(s, ld_s, x, ld_q, n, k, type, scale, TILE_ROWS, TILE_VECS, NULL);
        else if (R == 4)
            qk_rows(s, ld_s, x, ld_q, n, k, type, scale, 4, FEW_VECS, NULL);
        else if (R == 3)
            qk_rows(s, ld_s, x, ld_q, n, k, type, scale, 3, FEW_VECS, NULL);
        else if (R == 2)
            qk_rows(s, ld_s, x, ld_q, n, k, type, scale, 2, FEW_VECS, NULL);
        else
            qk_rows(s, ld_s, x, ld_q, n, k, type, scale, 1, VECS, NULL);
    }
}

void ISA(attn_qk)(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,
                  const struct kv_keys *k, float scale)
{
    if (k->type == KV_F16)
        qk_all(scores, ld_s, q, ld_q, T, D, k, KV_F16, scale);
    else if (k->type == KV_Q8_0)
        qk_all(scores, ld_s, q, ld_q, T, D, k, KV_Q8_0, scale);
    else if (k->type == KV_I16)
        qk_all(scores, ld_s, q, ld_q, T, D, k, KV_I16, scale);
    else
        qk_all(scores, ld_s, q, ld_q, T, D, k, KV_F32, scale);
}

/* R rows times N vectors of W channels from channel d on of the x->D channels of a slot. */
INLINE void av_tile(float *out, size_t ld_out, const float *p, size_t ld_p,
                    const struct kv_values *x, size_t d, const enum kv_type type, const int R,
                    const int N, float *kept)
{
    vec sum[TILE_ROWS][VECS], scales[VECS];
    size_t D = (size_t)x->D, n_slots = (size_t)x->n_slots;
    const uint16_t *scale = kv_q8_scales(x->page, x->D); /* for q8_0 */
    UNROLL
    for (int v = 0; v < VECS; v++)
        scales[v] = v_zero();
    UNROLL
    for (int i = 0; i < R * N; i++)
        sum[i / N][i % N] = v_load(out + (size_t)(i / N) * ld_out + d + (size_t)(i % N * W));
    for (size_t s = 0; s < n_slots; s++) {
        UNROLL
        for (int v = 0; type == KV_Q8_0 && v < N; v++)
            scales[v] = v_set_half(scale[(d + (size_t)(v * W)) / KV_BLOCK * PAGE_SLOTS + s]);
        const struct place at = place_of(type, s, D, d);
        ask_for(x->next, type, at, N);
        add_products(sum, p + s, ld_p, x->page, type, at, scales, R, N,
                     kept ? kept + s * SPAN : NULL);
    }
    UNROLL
    for (int i = 0; i < R * N; i++)
        v_store(out + (size_t)(i / N) * ld_out + d + (size_t)(i % N * W), sum[i / N][i % N]);
}

INLINE void av_rows(float *out, size_t ld_out, const float *p, size_t ld_p,
                    const struct kv_values *x, const enum kv_type type, const int R, const int N)
{
    size_t d = (size_t)x->d0, end = (size_t)x->d1, span = (size_t)(N * W);
    for (; d + span <= end; d += span)
        av_tile(out, ld_out, p, ld_p, x, d, type, R, N, NULL);
    for (; N > 2 && d + 2 * W <= end; d += 2 * W)
        av_tile(out, ld_out, p, ld_p, x, d, type, R, 2, NULL);
    for (; d < end; d += W)
        av_tile(out, ld_out, p, ld_p, x, d, type, R, 1, NULL);
}

/* Computes N vectors of channels from channel d on of all full tiles, [0, end). */
INLINE void av_span(float *out, size_t ld_out, const float *p, size_t ld_p, size_t end,
                    const struct kv_values *x, size_t d, const enum kv_type type, const int N)
{
    _Alignas(64) float kept[PAGE_SLOTS * SPAN];
    const struct kv_values same = {.page = kept, .type = KV_F32, .D = SPAN, .n_slots = x->n_slots};
    av_tile(out, ld_out, p, ld_p, x, d, type, TILE_ROWS, N, kept);
    for (size_t t = TILE_ROWS; t < end; t += TILE_ROWS)
        av_tile(out + t * ld_out + d, ld_out, p + t * ld_p, ld_p, &same, 0, KV_F32, TILE_ROWS, N,
                NULL);
}

/* Computes full tiles of many rows; returns the number of rows done. */
INLINE size_t av_tiles(float *out, size_t ld_out, const float *p, size_t ld_p, size_t rows,
                       const struct kv_values *x, const enum kv_type type)
{
    size_t d = (size_t)x->d0, end = rows - rows % TILE_ROWS;
    for (; d + SPAN <= (size_t)x->d1; d += SPAN)
        av_span(out, ld_out, p, ld_p, end, x, d, type, TILE_VECS);
    for (; d < (size_t)x->d1; d += W)
        av_span(out, ld_out, p, ld_p, end, x, d, type, 1);
    return end;
}

INLINE void av_all(float *out, size_t ld_out, const float *p, size_t ld_p, int T,
                   const struct kv_values *x, const enum kv_type type)
{
    size_t rows = (size_t)T, t = 0, R;
    if (type != KV_F32 && rows >= 2 * TILE_ROWS)
        t = av_tiles(out, ld_out, p, ld_p, rows, x, type);
    for (; t < rows; t += R) {
        float *o = out + t * ld_out;
        const float *w = p + t * ld_p;
        R = tile_of(rows - t);
        if (R == TILE_ROWS)
            av_rows(o, ld_out, w, ld_p, x, type, TILE_ROWS, TILE_VECS);
        else if (R == 4)
            av_rows(o, ld_out, w, ld_p, x, type, 4, FEW_VECS);
        else if (R == 3)
            av_rows(o, ld_out, w, ld_p, x, type, 3, FEW_VECS);
        else if (R == 2)
            av_rows(o, ld_out, w, ld_p, x, type, 2, FEW_VECS);
        else
            av_rows(o, ld_out, w, ld_p, x, type, 1, VECS);
    }
}

void ISA(attn_av)(float *out, size_t ld_out, const float *p, size_t ld_p, int T,
                  const struct kv_values *v)
{
    if (v->D % W || (v->d1 - v->d0) % W)
        attn_av_ref(out, ld_out, p, ld_p, T, v);
    else if (v->type == KV_I16)
        ISA(attn_av_ints)(out, ld_out, p, ld_p, T, v);
    else if (v->type == KV_F16)
        av_all(out, ld_out, p, ld_p, T, v, KV_F16);
    else if (v->type == KV_Q8_0)
        av_all(out, ld_out, p, ld_p, T, v, KV_Q8_0);
    else
        av_all(out, ld_out, p, ld_p, T, v, KV_F32);
}

/* Quantises a full block as quant_block of the reference, and sets its scale. With `beside`, groups
 * of four adjacent numbers are `apart` apart; otherwise single numbers are. */
INLINE void quant_block(const float *x, int8_t *q, size_t apart, bool beside, uint16_t *ret_scale)
{
    float r[KV_BLOCK], max = INFINITY;
    ints size = i_zero();
    for (int i = 0; i < KV_BLOCK; i += W)
        size = i_max(size, v_size(v_load(x + i)));
    const int32_t top = i_top(size);
    if (top < 0x7f800000)
        memcpy(&max, &top, sizeof max);
    *ret_scale = float_to_half(max / 127);
    float scale = half_to_float(*ret_scale);
    for (int i = 0; i < KV_BLOCK; i += W) {
        vec y = scale > 0 && scale < INFINITY ? v_round(v_div(v_load(x + i), v_set(scale)))
                                              : v_zero();
        v_store(r + i, v_max(v_min(y, v_set(127)), v_set(-127)));
    }
    for (size_t i = 0; i < KV_BLOCK; i++)
        q[beside ? i / 4 * apart + i % 4 : i * apart] = (int8_t)r[i];
}

INLINE void store_blocks(void *kpage, void *vpage, size_t slot, const float *k, const float *v,
                         size_t D)
{
    int8_t *keys = (int8_t *)kpage + 4 * slot;
    int8_t *values = (int8_t *)vpage + kv_value_place(KV_Q8_0, (int)D, (int)slot, 0);
    uint16_t *ks = kv_q8_scales(kpage, (int)D), *vs = kv_q8_scales(vpage, (int)D);
    for (size_t d = 0, at = slot; d < D; d += KV_BLOCK, at += PAGE_SLOTS) {
        quant_block(k + d, keys + d * PAGE_SLOTS, 4 * PAGE_SLOTS, true, &ks[at]);
        quant_block(v + d, values + 4 * d, 4, false, &vs[at]);
    }
}

void ISA(kv_store)(void *kpage, void *vpage, enum kv_type type, int slot, const float *k,
                   const float *v, int D)
{
    if (type == KV_Q8_0 && D % KV_BLOCK == 0) {
        store_blocks(kpage, vpage, (size_t)slot, k, v, (size_t)D);
        return;
    }
    if (type == KV_I16) {
        ISA(kv_store_ints)(kpage, vpage, type, slot, k, v, D);
        return;
    }
    if (type != KV_F16 || D % W) {
        kv_store_ref(kpage, vpage, type, slot, k, v, D);
        return;
    }
    for (int d = 0; d < D; d += W) {
        uint16_t h[W];
        v_store_half(h, v_load(k + d));
        for (int i = 0; i < W; i++)
            ((uint16_t *)kpage)[(size_t)(d + i) * PAGE_SLOTS + (size_t)slot] = h[i];
        v_store_half((uint16_t *)vpage + (size_t)slot * (size_t)D + (size_t)d, v_load(v + d));
    }
}

/* attention_avx2.c - products of queries, keys, weights and values. */
#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx2.h"

enum { TILE_ROWS = 2, VECS = 4, SPAN = VECS * 8 };

INLINE __m256 load_kv(const void *page, const enum kv_type type, size_t at)
{
    if (type == KV_F32)
        return _mm256_loadu_ps((const float *)page + at);
    return load_half8((const uint16_t *)page + at);
}

/* R queries times the 32 slots from s0 on. */
INLINE void qk_tile(float *scores, size_t ld_s, const float *q, size_t ld_q, size_t D,
                    const void *page, size_t s0, const enum kv_type type, float scale, const int R)
{
    __m256 acc[TILE_ROWS][VECS];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int v = 0; v < VECS; v++)
        acc[r][v] = _mm256_setzero_ps();
    for (size_t d = 0; d < D; d++) {
        UNROLL
        for (int v = 0; v < VECS; v++) {
            __m256 k = load_kv(page, type, d * PAGE_SLOTS + s0 + (size_t)v * 8);
            UNROLL
            for (int r = 0; r < R; r++)
                acc[r][v] = _mm256_fmadd_ps(_mm256_set1_ps(q[(size_t)r * ld_q + d]), k, acc[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int v = 0; v < VECS; v++)
        _mm256_storeu_ps(scores + (size_t)r * ld_s + s0 + (size_t)v * 8,
                         _mm256_mul_ps(acc[r][v], _mm256_set1_ps(scale)));
}

INLINE void qk_all(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,
                   const void *page, const enum kv_type type, float scale)
{
    size_t t = 0, rows = (size_t)T, n = (size_t)D;
    for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
        for (size_t s0 = 0; s0 < PAGE_SLOTS; s0 += SPAN)
            qk_tile(scores + t * ld_s, ld_s, q + t * ld_q, ld_q, n, page, s0, type, scale,
                    TILE_ROWS);
    for (; t < rows; t++)
        for (size_t s0 = 0; s0 < PAGE_SLOTS; s0 += SPAN)
            qk_tile(scores + t * ld_s, ld_s, q + t * ld_q, ld_q, n, page, s0, type, scale, 1);
}

void attn_qk_avx2(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,
                  const void *kpage, enum kv_type type, float scale)
{
    if (type == KV_F16)
        qk_all(scores, ld_s, q, ld_q, T, D, kpage, KV_F16, scale);
    else
        qk_all(scores, ld_s, q, ld_q, T, D, kpage, KV_F32, scale);
}

/* R rows, V vectors of 8 channels from channel d0 on. */
INLINE void av_tile(float *out, size_t ld_out, const float *p, size_t ld_p, size_t D, size_t d0,
                    const void *page, const enum kv_type type, size_t n_slots, const int R,
                    const int V)
{
    __m256 acc[TILE_ROWS][VECS];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int v = 0; v < V; v++)
        acc[r][v] = _mm256_loadu_ps(out + (size_t)r * ld_out + d0 + (size_t)v * 8);
    for (size_t s = 0; s < n_slots; s++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            __m256 x = load_kv(page, type, s * D + d0 + (size_t)v * 8);
            UNROLL
            for (int r = 0; r < R; r++)
                acc[r][v] = _mm256_fmadd_ps(_mm256_set1_ps(p[(size_t)r * ld_p + s]), x, acc[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int v = 0; v < V; v++)
        _mm256_storeu_ps(out + (size_t)r * ld_out + d0 + (size_t)v * 8, acc[r][v]);
}

INLINE void av_rows(float *out, size_t ld_out, const float *p, size_t ld_p, size_t D,
                    const void *page, const enum kv_type type, size_t n_slots, const int R)
{
    size_t d = 0;
    for (; d + SPAN <= D; d += SPAN)
        av_tile(out, ld_out, p, ld_p, D, d, page, type, n_slots, R, VECS);
    for (; d < D; d += 8)
        av_tile(out, ld_out, p, ld_p, D, d, page, type, n_slots, R, 1);
}

INLINE void av_all(float *out, size_t ld_out, const float *p, size_t ld_p, int T, int D,
                   const void *page, const enum kv_type type, int n_slots)
{
    size_t t = 0, rows = (size_t)T, n = (size_t)D, slots = (size_t)n_slots;
    for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
        av_rows(out + t * ld_out, ld_out, p + t * ld_p, ld_p, n, page, type, slots, TILE_ROWS);
    for (; t < rows; t++)
        av_rows(out + t * ld_out, ld_out, p + t * ld_p, ld_p, n, page, type, slots, 1);
}

void attn_av_avx2(float *out, size_t ld_out, const float *p, size_t ld_p, int T, int D,
                  const void *vpage, enum kv_type type, int n_slots)
{
    if (D % 8)
        attn_av_ref(out, ld_out, p, ld_p, T, D, vpage, type, n_slots);
    else if (type == KV_F16)
        av_all(out, ld_out, p, ld_p, T, D, vpage, KV_F16, n_slots);
    else
        av_all(out, ld_out, p, ld_p, T, D, vpage, KV_F32, n_slots);
}

void kv_store_avx2(void *kpage, void *vpage, enum kv_type type, int slot, const float *k,
                   const float *v, int D)
{
    if (type != KV_F16 || D % 8) {
        kv_store_ref(kpage, vpage, type, slot, k, v, D);
        return;
    }
    for (int d = 0; d < D; d += 8) {
        uint16_t h[8];
        _mm_storeu_si128((__m128i *)(void *)h, _mm256_cvtps_ph(_mm256_loadu_ps(k + d), 0));
        for (int i = 0; i < 8; i++)
            ((uint16_t *)kpage)[(size_t)(d + i) * PAGE_SLOTS + (size_t)slot] = h[i];
        uint16_t *to = (uint16_t *)vpage + (size_t)slot * (size_t)D + (size_t)d;
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(_mm256_loadu_ps(v + d), 0));
    }
}

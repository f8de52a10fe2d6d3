/* attention_avx512.c - products of queries, keys, weights and values. */
#include <immintrin.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/unroll.h"

INLINE __m512 load_kv(const void *page, enum kv_type type, size_t at)
{
    if (type == KV_F32)
        return _mm512_loadu_ps((const float *)page + at);
    return _mm512_cvtph_ps(
        _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)page + at)));
}

INLINE void qk_rows(float *scores, size_t ld_s, const float *q, size_t ld_q, int D,
                    const void *page, const enum kv_type type, float scale, const int R)
{
    __m512 acc[4][4];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < 4; v++)
            acc[r][v] = _mm512_setzero_ps();
    for (int d = 0; d < D; d++) {
        __m512 k[4];
        for (int v = 0; v < 4; v++)
            k[v] = load_kv(page, type, (size_t)d * PAGE_SLOTS + (size_t)v * 16);
        for (int r = 0; r < R; r++) {
            __m512 b = _mm512_set1_ps(q[(size_t)r * ld_q + (size_t)d]);
            for (int v = 0; v < 4; v++)
                acc[r][v] = _mm512_fmadd_ps(b, k[v], acc[r][v]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < 4; v++)
            _mm512_storeu_ps(scores + (size_t)r * ld_s + (size_t)v * 16,
                             _mm512_mul_ps(acc[r][v], _mm512_set1_ps(scale)));
}

INLINE void qk_all(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,
                   const void *page, const enum kv_type type, float scale)
{
    int t = 0;
    for (; t + 4 <= T; t += 4)
        qk_rows(scores + (size_t)t * ld_s, ld_s, q + (size_t)t * ld_q, ld_q, D, page, type, scale,
                4);
    for (; t < T; t++)
        qk_rows(scores + (size_t)t * ld_s, ld_s, q + (size_t)t * ld_q, ld_q, D, page, type, scale,
                1);
}

void attn_qk_avx512(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,
                    const void *kpage, enum kv_type type, float scale)
{
    if (type == KV_F16)
        qk_all(scores, ld_s, q, ld_q, T, D, kpage, KV_F16, scale);
    else
        qk_all(scores, ld_s, q, ld_q, T, D, kpage, KV_F32, scale);
}

/* R rows, V vectors of 16 channels from channel d0. */
INLINE void av_rows(float *out, size_t ld_out, const float *p, size_t ld_p, int D, int d0,
                    const void *page, const enum kv_type type, int n_slots, const int R,
                    const int V)
{
    __m512 acc[4][4];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm512_loadu_ps(out + (size_t)r * ld_out + (size_t)(d0 + v * 16));
    for (int s = 0; s < n_slots; s++) {
        __m512 x[4];
        for (int v = 0; v < V; v++)
            x[v] = load_kv(page, type, (size_t)s * (size_t)D + (size_t)(d0 + v * 16));
        for (int r = 0; r < R; r++) {
            __m512 b = _mm512_set1_ps(p[(size_t)r * ld_p + (size_t)s]);
            for (int v = 0; v < V; v++)
                acc[r][v] = _mm512_fmadd_ps(b, x[v], acc[r][v]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++)
            _mm512_storeu_ps(out + (size_t)r * ld_out + (size_t)(d0 + v * 16), acc[r][v]);
}

INLINE void av_all(float *out, size_t ld_out, const float *p, size_t ld_p, int T, int D,
                   const void *page, const enum kv_type type, int n_slots)
{
    int t = 0, d;
    for (; t + 4 <= T; t += 4, out += 4 * ld_out, p += 4 * ld_p) {
        for (d = 0; d + 64 <= D; d += 64)
            av_rows(out, ld_out, p, ld_p, D, d, page, type, n_slots, 4, 4);
        for (; d < D; d += 16)
            av_rows(out, ld_out, p, ld_p, D, d, page, type, n_slots, 4, 1);
    }
    for (; t < T; t++, out += ld_out, p += ld_p) {
        for (d = 0; d + 64 <= D; d += 64)
            av_rows(out, ld_out, p, ld_p, D, d, page, type, n_slots, 1, 4);
        for (; d < D; d += 16)
            av_rows(out, ld_out, p, ld_p, D, d, page, type, n_slots, 1, 1);
    }
}

void attn_av_avx512(float *out, size_t ld_out, const float *p, size_t ld_p, int T, int D,
                    const void *vpage, enum kv_type type, int n_slots)
{
    if (D % 16)
        attn_av_ref(out, ld_out, p, ld_p, T, D, vpage, type, n_slots);
    else if (type == KV_F16)
        av_all(out, ld_out, p, ld_p, T, D, vpage, KV_F16, n_slots);
    else
        av_all(out, ld_out, p, ld_p, T, D, vpage, KV_F32, n_slots);
}

void kv_store_avx512(void *kpage, void *vpage, enum kv_type type, int slot, const float *k,
                     const float *v, int D)
{
    if (type != KV_F16 || D % 16) {
        kv_store_ref(kpage, vpage, type, slot, k, v, D);
        return;
    }
    for (int d = 0; d < D; d += 16) {
        uint16_t h[16];
        _mm256_storeu_si256((__m256i *)(void *)h, _mm512_cvtps_ph(_mm512_loadu_ps(k + d), 0));
        for (int i = 0; i < 16; i++)
            ((uint16_t *)kpage)[(size_t)(d + i) * PAGE_SLOTS + (size_t)slot] = h[i];
        uint16_t *to = (uint16_t *)vpage + (size_t)slot * (size_t)D + (size_t)d;
        _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph(_mm512_loadu_ps(v + d), 0));
    }
}

/* attention_avx512.c - scores, weights and sums of attention rows. */
#include <immintrin.h>
#include <math.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/x86/kernels_x86.h"

#define INLINE static inline __attribute__((always_inline))

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

/* exp(x) for x <= 0 or moderate: 2^n * P(r), x = n ln 2 + r, |r| <= ln2 / 2, P
 * the Taylor polynomial of degree 7 (remainder below 6e-9). */
INLINE __m512 exp_ps(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_set1_ps(-104.0f)); /* exp underflows to 0 below */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

INLINE __mmask16 lanes(int left)
{
    return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

float softmax_avx512(float *s, int n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 max = lowest;
    for (int i = 0; i < n; i += 16)
        max = _mm512_max_ps(max, _mm512_mask_loadu_ps(lowest, lanes(n - i), s + i));
    float top = _mm512_reduce_max_ps(max);
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        __m512 e = exp_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, s + i), _mm512_set1_ps(top)));
        _mm512_mask_storeu_ps(s + i, m, e);
        sum = _mm512_mask_add_ps(sum, m, sum, e);
    }
    float lane[16];
    _mm512_storeu_ps(lane, sum);
    double total = 0;
    for (int i = 0; i < 16; i++)
        total += (double)lane[i];
    __m512 inverse = _mm512_set1_ps((float)(1.0 / total));
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        _mm512_mask_storeu_ps(s + i, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, s + i), inverse));
    }
    return top + (float)log(total);
}

void swiglu_avx512(float *out, const float *gate, const float *up, int n)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 minus = _mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), g), _mm512_set1_ps(88.0f));
        __m512 e = exp_ps(minus);
        _mm512_mask_storeu_ps(out + i, m,
                              _mm512_mul_ps(_mm512_div_ps(g, _mm512_add_ps(one, e)), u));
    }
}

/* ln m, m in [0.75, 1.5): 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.2, series
 * to s^9 (remainder below 5e-9). */
INLINE __m512 log_ps(__m512 x)
{
    __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
    __m512 e = _mm512_getexp_ps(_mm512_div_ps(x, m));
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 s = _mm512_div_ps(_mm512_sub_ps(m, one), _mm512_add_ps(m, one)), q = _mm512_mul_ps(s, s);
    __m512 p = _mm512_set1_ps(2.0f / 9);
    p = _mm512_fmadd_ps(p, q, _mm512_set1_ps(2.0f / 7));
    p = _mm512_fmadd_ps(p, q, _mm512_set1_ps(2.0f / 5));
    p = _mm512_fmadd_ps(p, q, _mm512_set1_ps(2.0f / 3));
    p = _mm512_fmadd_ps(p, q, _mm512_set1_ps(2.0f));
    return _mm512_fmadd_ps(e, _mm512_set1_ps(0.69314718f), _mm512_mul_ps(p, s));
}

float row_entropy_avx512(const float *p, int n)
{
    __m512d a = _mm512_setzero_pd(), b = a;
    for (int i = 0; i < n; i += 16) {
        __m512 x = _mm512_maskz_loadu_ps(lanes(n - i), p + i);
        __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
        __m512 t = _mm512_maskz_mul_ps(positive, x, log_ps(x));
        a = _mm512_add_pd(a, _mm512_cvtps_pd(_mm512_castps512_ps256(t)));
        b = _mm512_add_pd(b, _mm512_cvtps_pd(_mm512_extractf32x8_ps(t, 1)));
    }
    return (float)-_mm512_reduce_add_pd(_mm512_add_pd(a, b));
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

void mass_add_avx512(double *sum, float *max, const float *p, int n)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 x = _mm512_loadu_ps(p + i);
        __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
        __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
        _mm512_storeu_pd(sum + i, _mm512_add_pd(_mm512_loadu_pd(sum + i), lo));
        _mm512_storeu_pd(sum + i + 8, _mm512_add_pd(_mm512_loadu_pd(sum + i + 8), hi));
        _mm512_storeu_ps(max + i, _mm512_max_ps(_mm512_loadu_ps(max + i), x));
    }
    mass_add_ref(sum + i, max + i, p + i, n - i);
}

void mark_avx512(uint32_t *last, const float *p, int n, float threshold, int first_tie, uint32_t t)
{
    const __m512 cut = _mm512_set1_ps(threshold);
    const __m512i now = _mm512_set1_epi32((int)t);
    __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i tie = _mm512_set1_epi32(first_tie - 1), step = _mm512_set1_epi32(16);
    for (int i = 0; i < n; i += 16, at = _mm512_add_epi32(at, step)) {
        __mmask16 in = lanes(n - i);
        __m512 x = _mm512_maskz_loadu_ps(in, p + i);
        __mmask16 gt = _mm512_mask_cmp_ps_mask(in, x, cut, _CMP_GT_OQ);
        __mmask16 eq = _mm512_mask_cmp_ps_mask(in, x, cut, _CMP_EQ_OQ);
        eq = _mm512_mask_cmpgt_epi32_mask(eq, at, tie);
        _mm512_mask_storeu_epi32(last + i, (__mmask16)(gt | eq), now);
    }
}

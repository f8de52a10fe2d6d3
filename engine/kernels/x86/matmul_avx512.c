/* matmul_avx512.c - matrix products with packed weights.
 *
 * A tile is R rows of x times one or several panels of 16 outputs.  The float
 * operations of one output are the same, in the same order, in every tile and
 * in the reference, so a row's result does not depend on its neighbours. */
#include <immintrin.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/unroll.h"

enum { TILE_ROWS = 12, TILE_PANELS = 4 };

INLINE __m512 load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512i bytes4(const int8_t *p)
{
    return _mm512_set1_epi32(*(const int32_t *)(const void *)p);
}

/* The 8 vectors of [16 rows][4 channels] of one (panel, block). */
INLINE void load_weights(__m512i v[8], const uint8_t *data, size_t at, const int q4)
{
    if (!q4) {
        for (int g = 0; g < 8; g++)
            v[g] = _mm512_load_si512(data + at * 512 + (size_t)g * 64);
        return;
    }
    const __m512i low = _mm512_set1_epi8(15);
    for (int g = 0; g < 4; g++) {
        __m512i two = _mm512_load_si512(data + at * 256 + (size_t)g * 64);
        v[2 * g] = _mm512_and_si512(two, low);
        v[2 * g + 1] = _mm512_and_si512(_mm512_srli_epi16(two, 4), low);
    }
}

/* R rows times one panel. */
INLINE void tile_rows(float *out, size_t ld, const struct qrows *x, int t, const struct packed *w,
                      int panel, const int R, const int q4)
{
    size_t nb = (size_t)w->n_blocks;
    __m512 acc[TILE_ROWS];
    for (int r = 0; r < R; r++)
        acc[r] = _mm512_setzero_ps();
    for (size_t b = 0; b < nb; b++) {
        size_t at = (size_t)panel * nb + b;
        __m512i v[8], sum[TILE_ROWS];
        load_weights(v, w->data, at, q4);
        const int8_t *q = x->q + ((size_t)t * nb + b) * 2 * QBLOCK;
        const size_t next = nb * 2 * QBLOCK;
        for (int r = 0; r < R; r++)
            sum[r] = _mm512_setzero_si512();
        for (int g = 0; g < 8; g++)
            for (int r = 0; r < R; r++)
                sum[r] = _mm512_dpbusd_epi32(sum[r], v[g],
                                             bytes4(q + (size_t)r * next + (size_t)g * 4));
        for (int r = 0; r < R; r++)
            sum[r] = _mm512_slli_epi32(sum[r], 8);
        for (int g = 0; g < 8; g++)
            for (int r = 0; r < R; r++)
                sum[r] = _mm512_dpbusd_epi32(sum[r], v[g],
                                             bytes4(q + (size_t)r * next + QBLOCK + (size_t)g * 4));
        __m512 d = load_half(w->scale + at * 2 * PANEL);
        __m512 m = load_half(w->scale + at * 2 * PANEL + PANEL);
        for (int r = 0; r < R; r++) {
            size_t row = (size_t)(t + r) * nb + b;
            __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[row]));
            acc[r] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(sum[r]), acc[r]);
            acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->sum[row]), acc[r]);
        }
    }
    for (int r = 0; r < R; r++)
        _mm512_storeu_ps(out + (size_t)(t + r) * ld + (size_t)panel * PANEL, acc[r]);
}

/* One row times P panels: independent chains hide the latency. */
INLINE void tile_panels(float *out, const int8_t *q, const float *scale, const float *qsum,
                        const struct packed *w, int panel, const int P, const int q4)
{
    size_t nb = (size_t)w->n_blocks;
    __m512 acc[TILE_PANELS];
    for (int p = 0; p < P; p++)
        acc[p] = _mm512_setzero_ps();
    for (size_t b = 0; b < nb; b++) {
        __m512i sum[TILE_PANELS][2];
        for (int p = 0; p < P; p++) {
            __m512i v[8];
            load_weights(v, w->data, (size_t)(panel + p) * nb + b, q4);
            sum[p][0] = sum[p][1] = _mm512_setzero_si512(); /* hi, lo */
            for (int g = 0; g < 8; g++)
                for (int h = 0; h < 2; h++)
                    sum[p][h] = _mm512_dpbusd_epi32(sum[p][h], v[g],
                        bytes4(q + (b * 2 + (size_t)h) * QBLOCK + (size_t)g * 4));
        }
        for (int p = 0; p < P; p++) {
            size_t at = (size_t)(panel + p) * nb + b;
            __m512 d = load_half(w->scale + at * 2 * PANEL);
            __m512 m = load_half(w->scale + at * 2 * PANEL + PANEL);
            __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(scale[b]));
            __m512i s = _mm512_add_epi32(_mm512_slli_epi32(sum[p][0], 8), sum[p][1]);
            acc[p] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(s), acc[p]);
            acc[p] = _mm512_fmadd_ps(m, _mm512_set1_ps(qsum[b]), acc[p]);
        }
    }
    for (int p = 0; p < P; p++)
        _mm512_storeu_ps(out + (size_t)(panel + p) * PANEL, acc[p]);
}

INLINE void rows_q(float *out, size_t ld, const struct qrows *x, int T, const struct packed *w,
                   int panel0, int n_panels, const int q4)
{
    int many = T >= 4 ? T / TILE_ROWS * TILE_ROWS : 0, fours = T >= 4 ? T / 4 * 4 : 0;
    for (int p = panel0; fours && p < panel0 + n_panels; p++) {
        for (int t = 0; t < many; t += TILE_ROWS)
            tile_rows(out, ld, x, t, w, p, TILE_ROWS, q4);
        for (int t = many; t < fours; t += 4)
            tile_rows(out, ld, x, t, w, p, 4, q4);
    }
    for (int t = fours; t < T; t++) {
        size_t nb = (size_t)w->n_blocks;
        const int8_t *q = x->q + (size_t)t * nb * 2 * QBLOCK;
        const float *s = x->scale + (size_t)t * nb, *u = x->sum + (size_t)t * nb;
        int p = panel0;
        for (; p + TILE_PANELS <= panel0 + n_panels; p += TILE_PANELS)
            tile_panels(out + (size_t)t * ld, q, s, u, w, p, TILE_PANELS, q4);
        for (; p < panel0 + n_panels; p++)
            tile_panels(out + (size_t)t * ld, q, s, u, w, p, 1, q4);
    }
}

void matmul_q_avx512(float *out, size_t ld_out, const struct qrows *x, int T,
                     const struct packed *w, int panel0, int n_panels)
{
    if (w->kind == PACK_Q4)
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 1);
    else
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 0);
}

INLINE __m512 load_float(const struct packed *w, size_t at, const int kind)
{
    if (kind == PACK_F32)
        return _mm512_load_ps((const float *)(const void *)w->data + at);
    const uint16_t *h = (const uint16_t *)(const void *)w->data + at;
    if (kind == PACK_F16)
        return load_half(h);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

INLINE void tile_f(float *out, size_t ld, const float *x, size_t ld_x, const struct packed *w,
                   int panel, const int R, const int P, const int kind)
{
    size_t K = (size_t)w->K;
    __m512 acc[TILE_ROWS][TILE_PANELS];
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P; p++)
            acc[r][p] = _mm512_setzero_ps();
    for (size_t k = 0; k < K; k++)
        for (int p = 0; p < P; p++) {
            __m512 v = load_float(w, ((size_t)(panel + p) * K + k) * PANEL, kind);
            for (int r = 0; r < R; r++)
                acc[r][p] = _mm512_fmadd_ps(_mm512_set1_ps(x[(size_t)r * ld_x + k]), v, acc[r][p]);
        }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P; p++)
            _mm512_storeu_ps(out + (size_t)r * ld + (size_t)(panel + p) * PANEL, acc[r][p]);
}

INLINE void rows_f(float *out, size_t ld, const float *x, size_t ld_x, int T,
                   const struct packed *w, int panel0, int n_panels, const int kind)
{
    int end = panel0 + n_panels, many = T / TILE_ROWS * TILE_ROWS;
    for (int p = panel0; p < end; p++)
        for (int t = 0; t < many; t += TILE_ROWS)
            tile_f(out + (size_t)t * ld, ld, x + (size_t)t * ld_x, ld_x, w, p, TILE_ROWS, 1, kind);
    for (int t = many; t < T; t++) {
        int p = panel0;
        for (; p + TILE_PANELS <= end; p += TILE_PANELS)
            tile_f(out + (size_t)t * ld, ld, x + (size_t)t * ld_x, ld_x, w, p, 1, TILE_PANELS,
                   kind);
        for (; p < end; p++)
            tile_f(out + (size_t)t * ld, ld, x + (size_t)t * ld_x, ld_x, w, p, 1, 1, kind);
    }
}

void matmul_f_avx512(float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                     const struct packed *w, int panel0, int n_panels)
{
    if (w->kind == PACK_F32)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F32);
    else if (w->kind == PACK_F16)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F16);
    else
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_BF16);
}

/* 16 values to hi and lo bytes; returns their sum. */
INLINE __m512i quant16(int8_t *hi, int8_t *lo, __m512 v, __m512 inverse)
{
    const __m512 most = _mm512_set1_ps(QROWS_MAX);
    v = _mm512_mul_ps(v, inverse);
    v = _mm512_min_ps(_mm512_max_ps(v, _mm512_sub_ps(_mm512_setzero_ps(), most)), most);
    __m512i q = _mm512_cvtps_epi32(v);
    __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(q, 24), 24);
    __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q, low), 8);
    _mm_storeu_si128((__m128i *)(void *)lo, _mm512_cvtepi32_epi8(low));
    _mm_storeu_si128((__m128i *)(void *)hi, _mm512_cvtepi32_epi8(high));
    return q;
}

void quant_rows_avx512(struct qrows *out, const float *x, int T, int K)
{
    size_t n_blocks = (size_t)T * (size_t)K / QBLOCK;
    const __m512 no_sign = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff));
    for (size_t b = 0; b < n_blocks; b++) {
        int8_t *hi = out->q + b * 2 * QBLOCK, *lo = hi + QBLOCK;
        __m512 v0 = _mm512_loadu_ps(x + b * QBLOCK), v1 = _mm512_loadu_ps(x + b * QBLOCK + 16);
        float max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_and_ps(v0, no_sign),
                                                       _mm512_and_ps(v1, no_sign)));
        if (!(max >= QROWS_TINY))
            max = 0;
        __m512 inverse = _mm512_set1_ps(max > 0 ? QROWS_MAX / max : 0);
        __m512i sum = _mm512_add_epi32(quant16(hi, lo, v0, inverse),
                                       quant16(hi + 16, lo + 16, v1, inverse));
        out->scale[b] = max / QROWS_MAX;
        out->sum[b] = out->scale[b] * (float)_mm512_reduce_add_epi32(sum);
    }
}

/* matmul_avx2.c - products with packed floats, and rows as bytes.  A panel is two halves of
 * 8 outputs; every output is summed in its own lane in the order of the reference. */
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec.h"

enum { TILE_ROWS = 4, HALF = PANEL / 2 };

INLINE __m256 load_float(const uint8_t *data, size_t at, const int kind)
{
    if (kind == PACK_F32)
        return _mm256_loadu_ps((const float *)(const void *)data + at);
    const uint16_t *h = (const uint16_t *)(const void *)data + at;
    if (kind == PACK_F16)
        return v_load_half(h);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
}

INLINE void tile_f(float *out, size_t ld, const float *x, size_t ld_x, const struct packed *w,
                   size_t panel, const int R, const int kind)
{
    size_t K = (size_t)w->K;
    __m256 acc[TILE_ROWS][2];
    UNROLL
    for (int r = 0; r < R; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (size_t k = 0; k < K; k++) {
        __m256 lo = load_float(w->data, (panel * K + k) * PANEL, kind);
        __m256 hi = load_float(w->data, (panel * K + k) * PANEL + HALF, kind);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256 b = _mm256_set1_ps(x[(size_t)r * ld_x + k]);
            acc[r][0] = _mm256_fmadd_ps(b, lo, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(b, hi, acc[r][1]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        _mm256_storeu_ps(out + (size_t)r * ld + panel * PANEL, acc[r][0]);
        _mm256_storeu_ps(out + (size_t)r * ld + panel * PANEL + HALF, acc[r][1]);
    }
}

INLINE void rows_f(float *out, size_t ld, const float *x, size_t ld_x, int T,
                   const struct packed *w, int panel0, int n_panels, const int kind)
{
    size_t end = (size_t)(panel0 + n_panels), rows = (size_t)T;
    for (size_t p = (size_t)panel0; p < end; p++) {
        size_t t = 0;
        for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
            tile_f(out + t * ld, ld, x + t * ld_x, ld_x, w, p, TILE_ROWS, kind);
        for (; t < rows; t++)
            tile_f(out + t * ld, ld, x + t * ld_x, ld_x, w, p, 1, kind);
    }
}

void matmul_f_avx2(float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                   const struct packed *w, int panel0, int n_panels)
{
    if (w->kind == PACK_F32)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F32);
    else if (w->kind == PACK_F16)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F16);
    else
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_BF16);
}

INLINE int sum8_int(__m256i v)
{
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

/* 4 x 8 words of 16 bits or less as bytes: packs works within halves of 128 bits,
 * so groups of 4 come out as 0 2 4 6 1 3 5 7. */
INLINE void store_bytes(int8_t *out, const __m256i q[4])
{
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]),
                                       _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)out, bytes);
}

void quant_rows_avx2(struct qrows *out, const float *x, int T, int K)
{
    size_t n_blocks = (size_t)T * (size_t)K / QBLOCK;
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 most = _mm256_set1_ps(QROWS_MAX), least = _mm256_set1_ps(-QROWS_MAX);
    for (size_t b = 0; b < n_blocks; b++) {
        __m256 v[4], top = _mm256_setzero_ps();
        UNROLL
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + b * QBLOCK + (size_t)i * 8);
            top = _mm256_max_ps(top, _mm256_and_ps(v[i], no_sign));
        }
        float max = v_top(top);
        if (!(max >= QROWS_TINY))
            max = 0;
        __m256 inverse = _mm256_set1_ps(max > 0 ? QROWS_MAX / max : 0);
        __m256i hi[4], lo[4], sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m256 scaled = _mm256_mul_ps(v[i], inverse);
            __m256i q = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(scaled, least), most));
            lo[i] = _mm256_srai_epi32(_mm256_slli_epi32(q, 24), 24);
            hi[i] = _mm256_srai_epi32(_mm256_sub_epi32(q, lo[i]), 8);
            sum[i / 2] = _mm256_add_epi32(sum[i / 2], q);
        }
        store_bytes(out->q + b * 2 * QBLOCK, hi);
        store_bytes(out->q + b * 2 * QBLOCK + QBLOCK, lo);
        out->scale[b] = max / QROWS_MAX;
        int sum0 = sum8_int(sum[0]), sum1 = sum8_int(sum[1]);
        out->sum[b] = out->scale[b] * (float)(sum0 + sum1);
        out->half[2 * b] = out->scale[b] * (float)sum0;
        out->half[2 * b + 1] = out->scale[b] * (float)sum1;
    }
}

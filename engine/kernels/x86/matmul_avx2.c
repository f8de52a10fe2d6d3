/* matmul_avx2.c - matrix products with packed weights.  A panel is two halves of
 * 8 outputs; every output is summed in its own lane in the order of the reference. */
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec.h"

enum { TILE_ROWS = 4, HALF = PANEL / 2 };

INLINE __m256i load32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE __m256i bytes4(const int8_t *p)
{
    return _mm256_set1_epi32(*(const int32_t *)(const void *)p);
}

/* Exact dot products of the groups [g0, g1) of one block: 8 outputs, R rows.  Pairs of products are
 * summed in 16 bits.  Q4: 8 groups of 2 * 15 * 128 fit.  Q8: a pair of 255 * 127
 * does not, so the top bit goes apart: 2 * 127 * 128 fits, and so does -2 * 128 * 128. */
INLINE void dot_block(__m256i sum[TILE_ROWS], const uint8_t *w, const int8_t *q, size_t ld_q,
                      const int R, const int q4, const int g0, const int g1)
{
    const __m256i low = _mm256_set1_epi8(q4 ? 15 : 127), ones = _mm256_set1_epi16(1);
    UNROLL
    for (int r = 0; r < R; r++)
        sum[r] = _mm256_setzero_si256();
    UNROLL
    for (int g = g0; g < g1; g++) {
        __m256i v = load32(w + (q4 ? g / 2 : g) * 64);
        __m256i u = _mm256_and_si256(q4 && g % 2 ? _mm256_srli_epi16(v, 4) : v, low);
        __m256i top = _mm256_andnot_si256(low, v);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256i x = bytes4(q + (size_t)r * ld_q + (size_t)g * 4);
            __m256i pair = _mm256_maddubs_epi16(u, x);
            if (!q4) {
                pair = _mm256_madd_epi16(pair, ones);
                __m256i more = _mm256_madd_epi16(_mm256_maddubs_epi16(top, x), ones);
                sum[r] = _mm256_add_epi32(sum[r], _mm256_add_epi32(pair, more));
            } else {
                sum[r] = _mm256_add_epi16(sum[r], pair);
            }
        }
    }
    UNROLL
    for (int r = 0; q4 && r < R; r++)
        sum[r] = _mm256_madd_epi16(sum[r], ones);
}

/* The same for x = 256 hi + lo. */
INLINE void dot_wide(__m256i sum[TILE_ROWS], const uint8_t *w, const int8_t *q, size_t ld_q,
                     const int R, const int q4, const int g0, const int g1)
{
    __m256i lo[TILE_ROWS];
    dot_block(sum, w, q, ld_q, R, q4, g0, g1);
    dot_block(lo, w, q + QBLOCK, ld_q, R, q4, g0, g1);
    UNROLL
    for (int r = 0; r < R; r++)
        sum[r] = _mm256_add_epi32(_mm256_slli_epi32(sum[r], 8), lo[r]);
}

/* 8 signed bytes as floats. */
INLINE __m256 load_small(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

/* d and m of part h of block `at` for the 8 outputs from `first` on; fine: w->n_fine. */
INLINE void factors(__m256 *d, __m256 *m, const struct packed *w, size_t at, size_t first, int h,
                    const int fine)
{
    const uint16_t *scale = w->scale + (fine ? at / (size_t)w->super : at) * 2 * PANEL + first;
    *d = v_load_half(scale);
    *m = v_load_half(scale + PANEL);
    if (!fine)
        return;
    const int8_t *small = w->fine + (at * (size_t)fine + (size_t)h) * 2 * PANEL + first;
    *d = _mm256_mul_ps(*d, load_small(small));
    *m = _mm256_mul_ps(*m, load_small(small + PANEL));
}

/* R rows from t on times one half of a panel. */
INLINE void tile_q(float *out, size_t ld, const struct qrows *x, size_t t, const struct packed *w,
                   size_t panel, size_t half, const int R, const int q4, const int fine)
{
    const int parts = fine == 2 ? 2 : 1, groups = 8 / parts;
    size_t nb = (size_t)w->n_blocks, ld_q = nb * 2 * QBLOCK, step = q4 ? 256 : 512;
    const uint8_t *data = w->data + panel * nb * step + half * 32;
    const float *sums = fine == 2 ? x->half : x->sum;
    __m256 acc[TILE_ROWS];
    UNROLL
    for (int r = 0; r < R; r++)
        acc[r] = _mm256_setzero_ps();
    for (size_t b = 0; b < nb; b++)
        UNROLL
    for (int h = 0; h < parts; h++) {
        __m256i sum[TILE_ROWS];
        dot_wide(sum, data + b * step, x->q + t * ld_q + b * 2 * QBLOCK, ld_q, R, q4, h * groups,
                 (h + 1) * groups);
        __m256 d, m;
        factors(&d, &m, w, panel * nb + b, half * HALF, h, fine);
        UNROLL
        for (int r = 0; r < R; r++) {
            size_t row = (t + (size_t)r) * nb + b;
            __m256 ds = _mm256_mul_ps(d, _mm256_set1_ps(x->scale[row]));
            __m256 s = _mm256_set1_ps(sums[row * (size_t)parts + (size_t)h]);
            acc[r] = _mm256_fmadd_ps(ds, _mm256_cvtepi32_ps(sum[r]), acc[r]);
            acc[r] = _mm256_fmadd_ps(m, s, acc[r]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        _mm256_storeu_ps(out + (t + (size_t)r) * ld + panel * PANEL + half * HALF, acc[r]);
}

INLINE void rows_q(float *out, size_t ld, const struct qrows *x, int T, const struct packed *w,
                   int panel0, int n_panels, const int q4, const int fine)
{
    size_t end = (size_t)(panel0 + n_panels), rows = (size_t)T;
    for (size_t p = (size_t)panel0; p < end; p++)
        for (size_t half = 0; half < 2; half++) {
            size_t t = 0;
            for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
                tile_q(out, ld, x, t, w, p, half, TILE_ROWS, q4, fine);
            for (; t < rows; t++)
                tile_q(out, ld, x, t, w, p, half, 1, q4, fine);
        }
}

void matmul_q_avx2(float *out, size_t ld_out, const struct qrows *x, int T, const struct packed *w,
                   int panel0, int n_panels)
{
    int q4 = w->kind == PACK_Q4;
    if (w->n_fine == 0 && q4)
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 1, 0);
    else if (w->n_fine == 0)
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 0, 0);
    else if (w->n_fine == 1 && q4)
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 1, 1);
    else if (w->n_fine == 1)
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 0, 1);
    else if (q4)
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 1, 2);
    else
        rows_q(out, ld_out, x, T, w, panel0, n_panels, 0, 2);
}

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

/* quant_rows_avx512.c - quantises rows to bytes.
 *
 * The maximum and the sums of a block need operations across the lanes of a vector. 16 blocks are
 * processed together, so that each such operation serves several of them. */
#include <immintrin.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/unroll.h"

enum { TOGETHER = 16 };

/* Returns in lane i the maximum of |x| of block i; 0 if it is too small or NaN. */
INLINE __m512 largest(const float *x)
{
    const __m512 no_sign = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff));
    __m512 four[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m512 v[4];
        UNROLL
        for (int b = 0; b < 4; b++) {
            const float *block = x + (i * 4 + b) * QBLOCK;
            v[b] = _mm512_max_ps(_mm512_and_ps(_mm512_loadu_ps(block), no_sign),
                                 _mm512_and_ps(_mm512_loadu_ps(block + 16), no_sign));
        }
        __m512d ab = _mm512_castps_pd(
            _mm512_max_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1])));
        __m512d cd = _mm512_castps_pd(
            _mm512_max_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3])));
        four[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                                _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    }
    __m512 low = _mm512_max_ps(_mm512_shuffle_f32x4(four[0], four[1], 0x88),
                               _mm512_shuffle_f32x4(four[0], four[1], 0xdd));
    __m512 high = _mm512_max_ps(_mm512_shuffle_f32x4(four[2], four[3], 0x88),
                                _mm512_shuffle_f32x4(four[2], four[3], 0xdd));
    __m512 max = _mm512_max_ps(_mm512_shuffle_f32x4(low, high, 0x88),
                               _mm512_shuffle_f32x4(low, high, 0xdd));
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(max, _mm512_set1_ps(QROWS_TINY), _CMP_GE_OQ),
                               max);
}

INLINE __m256i words_of(const float *x, __m512 inverse, __m512 most)
{
    __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
    v = _mm512_min_ps(_mm512_max_ps(v, _mm512_sub_ps(_mm512_setzero_ps(), most)), most);
    return _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v));
}

/* Quantises a block to hi and lo bytes, or to one byte each. Returns sums of its words: the first
 * half in the first eight lanes, the second half in the other lanes. */
INLINE __m512i quant_block(int8_t *q, const float *x, float inverse, const bool eight)
{
    __m512 by = _mm512_set1_ps(inverse), most = _mm512_set1_ps(eight ? QROWS_MAX_8 : QROWS_MAX);
    __m512i w = _mm512_inserti64x4(_mm512_castsi256_si512(words_of(x, by, most)),
                                   words_of(x + 16, by, most), 1);
    __m512i hi = eight ? w : _mm512_srai_epi16(_mm512_add_epi16(w, _mm512_set1_epi16(128)), 8);
    _mm256_storeu_si256((__m256i *)(void *)q, _mm512_cvtepi16_epi8(hi));
    if (!eight)
        _mm256_storeu_si256((__m256i *)(void *)(q + QBLOCK), _mm512_cvtepi16_epi8(w));
    return _mm512_madd_epi16(w, _mm512_set1_epi16(1));
}

/* Returns 128-bit parts with sums over four lanes of each of the vectors of four blocks. */
INLINE __m512i sums_of_four(const __m512i v[4])
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]),
                                  _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]),
                                  _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Quantises eight blocks. Returns their sums in 128-bit parts: first halves of blocks 0 to 3,
 * second halves of blocks 0 to 3, then both for blocks 4 to 7. */
INLINE __m512i quant_eight(int8_t *q, const float *x, const float *inverse, const bool eight)
{
    __m512i four[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m512i v[4];
        UNROLL
        for (int b = 0; b < 4; b++) {
            int at = i * 4 + b;
            v[b] = quant_block(q + at * (eight ? QBLOCK : 2 * QBLOCK), x + at * QBLOCK, inverse[at],
                               eight);
        }
        four[i] = sums_of_four(v);
    }
    return _mm512_add_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x88),
                            _mm512_shuffle_i32x4(four[0], four[1], 0xdd));
}

/* Stores 16 sums, of block b and the following blocks or of their halves: times their scales, or
 * times `lowest`. */
INLINE void store_sums(const struct qrows *out, float *to, __m512i sum, __m512 scale)
{
    if (qrows_low(out))
        _mm512_storeu_si512(to, _mm512_mullo_epi32(sum, _mm512_set1_epi32(out->lowest)));
    else
        _mm512_storeu_ps(to, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
}

INLINE void quant_together(struct qrows *out, size_t b, const float *x, const bool eight)
{
    const __m512i halves_low = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11,
                                                 15);
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26,
                                            27);
    const __m512i second = _mm512_setr_epi32(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30,
                                             31);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512 most = _mm512_set1_ps(eight ? QROWS_MAX_8 : QROWS_MAX);
    __m512 max = largest(x), scale = _mm512_div_ps(max, most);
    _Alignas(64) float inverse[TOGETHER];
    __mmask16 some = _mm512_cmp_ps_mask(max, _mm512_setzero_ps(), _CMP_GT_OQ);
    _mm512_store_ps(inverse, _mm512_maskz_div_ps(some, most, max));
    const size_t bytes = eight ? QBLOCK : 2 * QBLOCK;
    int8_t *q = out->q + b * bytes;
    __m512i low = quant_eight(q, x, inverse, eight);
    __m512i high = quant_eight(q + 8 * bytes, x + 8 * QBLOCK, inverse + 8, eight);
    __m512i whole = _mm512_add_epi32(_mm512_permutex2var_epi32(low, first, high),
                                     _mm512_permutex2var_epi32(low, second, high));
    _mm512_storeu_ps(out->scale + b, scale);
    store_sums(out, out->sum + b, whole, scale);
    store_sums(out, out->half + 2 * b, _mm512_permutexvar_epi32(halves_low, low),
               _mm512_permutexvar_ps(twice, scale));
    store_sums(out, out->half + 2 * b + TOGETHER, _mm512_permutexvar_epi32(halves_low, high),
               _mm512_permutexvar_ps(_mm512_add_epi32(twice, _mm512_set1_epi32(8)), scale));
}

INLINE void quant_one(struct qrows *out, size_t b, const float *x, const bool eight)
{
    const __m512 no_sign = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff));
    const float most = eight ? QROWS_MAX_8 : QROWS_MAX;
    float max = _mm512_reduce_max_ps(
        _mm512_max_ps(_mm512_and_ps(_mm512_loadu_ps(x), no_sign),
                      _mm512_and_ps(_mm512_loadu_ps(x + 16), no_sign)));
    if (!(max >= QROWS_TINY))
        max = 0;
    __m512i sums = quant_block(out->q + b * qrows_bytes(out), x, max > 0 ? most / max : 0, eight);
    out->scale[b] = max / most;
    qrows_sums(out, b, _mm512_mask_reduce_add_epi32(0x00ff, sums),
               _mm512_mask_reduce_add_epi32(0xff00, sums));
}

INLINE void quant_all(struct qrows *out, const float *x, size_t n_blocks, const bool eight)
{
    size_t b = 0;
    for (; b + TOGETHER <= n_blocks; b += TOGETHER)
        quant_together(out, b, x + b * QBLOCK, eight);
    for (; b < n_blocks; b++)
        quant_one(out, b, x + b * QBLOCK, eight);
}

void quant_rows_avx512(struct qrows *out, const float *x, int T, int K)
{
    size_t n_blocks = (size_t)T * (size_t)K / QBLOCK;
    if (out->hi_alone)
        quant_all(out, x, n_blocks, true);
    else
        quant_all(out, x, n_blocks, false);
}

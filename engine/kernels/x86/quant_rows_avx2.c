/* quant_rows_avx2.c - quantises rows to bytes. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

INLINE int sum8_int(__m256i v)
{
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

/* Stores 4 x 8 words of at most 16 bits as bytes. The pack instructions work within 128-bit halves,
 * so groups of 4 have the order 0 2 4 6 1 3 5 7. */
INLINE void store_bytes(int8_t *out, const __m256i q[4])
{
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]),
                                       _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)out, bytes);
}

/* Quantises a block to hi and lo bytes, or to one byte each; sum: of its halves. */
INLINE void quant_block(int8_t *to, const __m256 v[4], float inverse, __m256i sum[2],
                        const bool eight)
{
    const __m256 most = _mm256_set1_ps(eight ? QROWS_MAX_8 : QROWS_MAX), none = _mm256_setzero_ps();
    __m256i hi[4], lo[4];
    sum[0] = sum[1] = _mm256_setzero_si256();
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m256 scaled = _mm256_mul_ps(v[i], _mm256_set1_ps(inverse));
        scaled = _mm256_max_ps(scaled, _mm256_sub_ps(none, most));
        __m256i q = _mm256_cvtps_epi32(_mm256_min_ps(scaled, most));
        lo[i] = _mm256_srai_epi32(_mm256_slli_epi32(q, 24), 24);
        hi[i] = eight ? q : _mm256_srai_epi32(_mm256_sub_epi32(q, lo[i]), 8);
        sum[i / 2] = _mm256_add_epi32(sum[i / 2], q);
    }
    store_bytes(to, hi);
    if (!eight)
        store_bytes(to + QBLOCK, lo);
}

INLINE void quant_all(struct qrows *out, const float *x, size_t n_blocks, const bool eight)
{
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const float most = eight ? QROWS_MAX_8 : QROWS_MAX;
    for (size_t b = 0; b < n_blocks; b++) {
        __m256 v[4], top = _mm256_setzero_ps();
        __m256i sum[2];
        UNROLL
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + b * QBLOCK + (size_t)i * 8);
            top = _mm256_max_ps(top, _mm256_and_ps(v[i], no_sign));
        }
        float max = v_top(top);
        if (!(max >= QROWS_TINY))
            max = 0;
        quant_block(out->q + b * qrows_bytes(out), v, max > 0 ? most / max : 0, sum, eight);
        out->scale[b] = max / most;
        qrows_sums(out, b, sum8_int(sum[0]), sum8_int(sum[1]));
    }
}

void quant_rows_avx2(struct qrows *out, const float *x, int T, int K)
{
    size_t n_blocks = (size_t)T * (size_t)K / QBLOCK;
    if (out->hi_alone)
        quant_all(out, x, n_blocks, true);
    else
        quant_all(out, x, n_blocks, false);
}

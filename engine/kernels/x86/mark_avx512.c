/* mark_avx512.c - the members of a selected set, 32 at a time, as many as a register has 16-bit
 * lanes and a mask has bits. */
#include <stdbool.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* Which of 32 entries are members: those >= the threshold, but among the first
 * before_tie ones only those > it. */
INLINE __mmask32 members(__m512 lo, __m512 hi, __m512 cut, const bool all_ties, int64_t before_tie)
{
    __mmask32 ge = _mm512_kunpackw(_mm512_cmp_ps_mask(hi, cut, _CMP_GE_OQ),
                                   _mm512_cmp_ps_mask(lo, cut, _CMP_GE_OQ));
    if (all_ties || before_tie <= 0)
        return ge;
    __mmask32 gt = _mm512_kunpackw(_mm512_cmp_ps_mask(hi, cut, _CMP_GT_OQ),
                                   _mm512_cmp_ps_mask(lo, cut, _CMP_GT_OQ));
    return before_tie >= 32 ? gt : ge & (gt | ~0u << before_tie);
}

INLINE void put_step(void *last, const int width, size_t i, __mmask32 m, uint32_t t)
{
    if (width == 2) {
        _mm512_mask_storeu_epi16((uint16_t *)last + i, m, _mm512_set1_epi16((short)t));
        return;
    }
    const __m512i now = _mm512_set1_epi32((int)t);
    _mm512_mask_storeu_epi32((uint32_t *)last + i, (__mmask16)m, now);
    _mm512_mask_storeu_epi32((uint32_t *)last + i + 16, (__mmask16)(m >> 16), now);
}

INLINE void mark_as(void *last, const int width, const float *p, size_t n, const struct row_cut *c,
                    const bool all_ties, uint32_t t)
{
    const __m512 cut = _mm512_set1_ps(c->threshold);
    int64_t tie = c->first_tie;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m512 lo = _mm512_loadu_ps(p + i), hi = _mm512_loadu_ps(p + i + 16);
        put_step(last, width, i, members(lo, hi, cut, all_ties, tie - (int64_t)i), t);
    }
    if (i < n) {
        int left = (int)(n - i);
        __mmask16 in_hi = left > 16 ? first_lanes(left - 16) : 0;
        __m512 lo = _mm512_maskz_loadu_ps(first_lanes(left), p + i);
        __m512 hi = _mm512_maskz_loadu_ps(in_hi, p + i + 16);
        __mmask32 m = members(lo, hi, cut, all_ties, tie - (int64_t)i);
        put_step(last, width, i, m & ~(~0u << left), t);
    }
}

void mark_avx512(void *last, int width, const float *p, int n, const struct row_cut *cut,
                 uint32_t t)
{
    bool all = cut->first_tie == 0;
    if (width == 2 && all)
        mark_as(last, 2, p, (size_t)n, cut, true, t);
    else if (width == 2)
        mark_as(last, 2, p, (size_t)n, cut, false, t);
    else if (all)
        mark_as(last, 4, p, (size_t)n, cut, true, t);
    else
        mark_as(last, 4, p, (size_t)n, cut, false, t);
}

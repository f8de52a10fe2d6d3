/* rows_avx512.c - weights of attention rows and what is counted of them. */
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx512.h"

static float row_max(const float *s, int n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 max = lowest;
    for (int i = 0; i < n; i += 16)
        max = _mm512_max_ps(max, _mm512_mask_loadu_ps(lowest, lanes(n - i), s + i));
    return _mm512_reduce_max_ps(max);
}

/* Sums over a row: exp(d), and -exp(d) d. */
struct row_sums {
    double exp, moment;
};

INLINE __m512d add_wide(__m512d total, __m512 sum)
{
    total = _mm512_add_pd(total, _mm512_cvtps_pd(_mm512_castps512_ps256(sum)));
    return _mm512_add_pd(total, _mm512_cvtps_pd(_mm512_extractf32x8_ps(sum, 1)));
}

/* exp(d), d = s - top, to `to` when `store`.  Sums: of 8 vectors in float, of these
 * in double. */
INLINE struct row_sums exp_row(float *to, const float *s, int n, float top, const bool store,
                               const bool moments)
{
    const __m512 shift = _mm512_set1_ps(top), least = _mm512_set1_ps(EXP_LEAST);
    __m512d total = _mm512_setzero_pd(), total_m = total;
    for (int i = 0; i < n;) {
        int end = n - i > 128 ? i + 128 : n;
        __m512 sum = _mm512_setzero_ps(), moment = sum;
        for (; i < end; i += 16) {
            __mmask16 m = lanes(end - i);
            __m512 d = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, s + i), shift), e = exp_ps(d);
            if (store)
                _mm512_mask_storeu_ps(to + i, m, e);
            sum = _mm512_mask_add_ps(sum, m, sum, e);
            if (moments) /* no infinite d: 0 times it would be no number */
                moment = _mm512_mask3_fnmadd_ps(e, _mm512_max_ps(d, least), moment, m);
        }
        total = add_wide(total, sum);
        if (moments)
            total_m = add_wide(total_m, moment);
    }
    return (struct row_sums){_mm512_reduce_add_pd(total), _mm512_reduce_add_pd(total_m)};
}

float softmax_avx512(float *s, int n, float *entropy)
{
    float top = row_max(s, n);
    struct row_sums sum = entropy ? exp_row(s, s, n, top, true, true)
                                  : exp_row(s, s, n, top, true, false);
    const __m512 inverse = _mm512_set1_ps((float)(1.0 / sum.exp));
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        _mm512_mask_storeu_ps(s + i, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, s + i), inverse));
    }
    double log_sum = log(sum.exp);
    if (entropy)
        *entropy = (float)(log_sum + sum.moment / sum.exp);
    return top + (float)log_sum;
}

float log_sum_exp_avx512(const float *s, int n)
{
    float top = row_max(s, n);
    return top + (float)log(exp_row(NULL, s, n, top, false, false).exp);
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
        __mmask16 in_hi = left > 16 ? lanes(left - 16) : 0;
        __m512 lo = _mm512_maskz_loadu_ps(lanes(left), p + i);
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

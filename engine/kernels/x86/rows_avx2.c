/* rows_avx2.c - weights of attention rows and what is counted of them. */
#include <math.h>
#include <stdbool.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx2.h"

static float row_max(const float *s, int n)
{
    __m256 max = _mm256_set1_ps(-INFINITY);
    for (int i = 0; i < n; i += 8) {
        __m256i m = lanes8(n - i);
        __m256 x = _mm256_maskload_ps(s + i, m);
        max = _mm256_max_ps(max, _mm256_blendv_ps(max, x, _mm256_castsi256_ps(m)));
    }
    return max8(max);
}

/* Sums over a row: exp(d), and -exp(d) d. */
struct row_sums {
    double exp, moment;
};

/* exp(d), d = s - top, to `to` when `store`. */
INLINE struct row_sums exp_row(float *to, const float *s, int n, float top, const bool store,
                               const bool moments)
{
    const __m256 shift = _mm256_set1_ps(top), least = _mm256_set1_ps(EXP_LEAST);
    __m256d total = _mm256_setzero_pd(), moment = total;
    for (int i = 0; i < n; i += 8) {
        __m256i m = lanes8(n - i);
        __m256 d = _mm256_sub_ps(_mm256_maskload_ps(s + i, m), shift), e = exp8(d);
        if (store)
            _mm256_maskstore_ps(to + i, m, e);
        e = _mm256_and_ps(e, _mm256_castsi256_ps(m));
        total = add_wide(total, e);
        if (moments) /* no infinite d: 0 times it would be no number */
            moment = add_wide(moment, _mm256_mul_ps(e, _mm256_max_ps(d, least)));
    }
    return (struct row_sums){sum4(total), -sum4(moment)};
}

float softmax_avx2(float *s, int n, float *entropy)
{
    float top = row_max(s, n);
    struct row_sums sum = entropy ? exp_row(s, s, n, top, true, true)
                                  : exp_row(s, s, n, top, true, false);
    const __m256 inverse = _mm256_set1_ps((float)(1.0 / sum.exp));
    for (int i = 0; i < n; i += 8) {
        __m256i m = lanes8(n - i);
        _mm256_maskstore_ps(s + i, m, _mm256_mul_ps(_mm256_maskload_ps(s + i, m), inverse));
    }
    double log_sum = log(sum.exp);
    if (entropy)
        *entropy = (float)(log_sum + sum.moment / sum.exp);
    return top + (float)log_sum;
}

float log_sum_exp_avx2(const float *s, int n)
{
    float top = row_max(s, n);
    return top + (float)log(exp_row(NULL, s, n, top, false, false).exp);
}

void mass_add_avx2(double *sum, float *max, const float *p, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(p + i);
        __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
        __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
        _mm256_storeu_pd(sum + i, _mm256_add_pd(_mm256_loadu_pd(sum + i), lo));
        _mm256_storeu_pd(sum + i + 4, _mm256_add_pd(_mm256_loadu_pd(sum + i + 4), hi));
        _mm256_storeu_ps(max + i, _mm256_max_ps(_mm256_loadu_ps(max + i), x));
    }
    mass_add_ref(sum + i, max + i, p + i, n - i);
}

/* Lanes of members among the 8 entries from i on. */
INLINE __m256i members(const float *p, int i, const struct row_cut *c)
{
    __m256 x = _mm256_loadu_ps(p + i), cut = _mm256_set1_ps(c->threshold);
    __m256 gt = _mm256_cmp_ps(x, cut, _CMP_GT_OQ), ge = _mm256_cmp_ps(x, cut, _CMP_GE_OQ);
    __m256i before = lanes8(c->first_tie - i); /* there, ties are out */
    return _mm256_castps_si256(_mm256_blendv_ps(ge, gt, _mm256_castsi256_ps(before)));
}

void mark_avx2(void *last, int width, const float *p, int n, const struct row_cut *cut, uint32_t t)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i m = members(p, i, cut);
        if (width == 4) {
            _mm256_maskstore_epi32((int *)last + i, m, _mm256_set1_epi32((int)t));
            continue;
        }
        __m128i *to = (__m128i *)(void *)((uint16_t *)last + i);
        __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
        _mm_storeu_si128(to, _mm_blendv_epi8(_mm_loadu_si128(to), _mm_set1_epi16((short)t), half));
    }
    struct row_cut rest = *cut;
    rest.first_tie -= i;
    mark_ref((char *)last + (size_t)i * (size_t)width, width, p + i, n - i, &rest, t);
}

/* choice_avx512.c - kernels that select entries, for AVX-512. */
#include <immintrin.h>

#include "engine/kernels/vector/sets.h"

#define CHOICE(name) name##_avx512
#include "engine/kernels/choice_rows.h"

int next_low_avx512(const float *score, const int32_t *pos, int i, int n, int32_t from, int32_t to,
                    float bar)
{
    const __m512 top = _mm512_set1_ps(bar);
    const __m512i lo = _mm512_set1_epi32(from), hi = _mm512_set1_epi32(to);
    for (; i < n; i += 16) {
        __mmask16 live = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : 0xffff;
        __m512 x = _mm512_maskz_loadu_ps(live, score + i);
        __mmask16 low = _mm512_mask_cmp_ps_mask(live, x, top, _CMP_NGT_UQ);
        if (pos && low) {
            __m512i p = _mm512_maskz_loadu_epi32(live, pos + i);
            low = _mm512_mask_cmp_epi32_mask(low, p, lo, _MM_CMPINT_NLT);
            low = _mm512_mask_cmp_epi32_mask(low, p, hi, _MM_CMPINT_LT);
        }
        if (low)
            return i + __builtin_ctz(low);
    }
    return n;
}

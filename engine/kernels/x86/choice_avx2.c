/* choice_avx2.c - kernels that select entries, for AVX2. */
#include <immintrin.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/sets.h"

#define CHOICE(name) name##_avx2
#include "engine/kernels/choice_rows.h"

int next_low_avx2(const float *score, const int32_t *pos, int i, int n, int32_t from, int32_t to,
                  float bar)
{
    const __m256 top = _mm256_set1_ps(bar);
    const __m256i lo = _mm256_set1_epi32(from), hi = _mm256_set1_epi32(to);
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(score + i);
        int low = _mm256_movemask_ps(_mm256_cmp_ps(x, top, _CMP_NGT_UQ));
        if (pos && low) {
            __m256i p = _mm256_loadu_si256((const __m256i *)(const void *)(pos + i));
            __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(lo, p), _mm256_cmpgt_epi32(hi, p));
            low &= _mm256_movemask_ps(_mm256_castsi256_ps(in));
        }
        if (low)
            return i + __builtin_ctz((unsigned)low);
    }
    return next_low_ref(score, pos, i, n, from, to, bar);
}

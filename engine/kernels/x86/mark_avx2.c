/* mark_avx2.c - marks the members of a selected set, 8 at a time. AVX2 has no masked stores of
 * 16-bit lanes and blends instead. AVX-512 (mark_avx512.c) has them and marks 32 at a time. */
#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* Returns the mask of members for the 8 entries from i on. */
INLINE __m256i members(const float *p, int i, const struct row_cut *c)
{
    __m256 x = _mm256_loadu_ps(p + i), cut = _mm256_set1_ps(c->threshold);
    __m256 gt = _mm256_cmp_ps(x, cut, _CMP_GT_OQ), ge = _mm256_cmp_ps(x, cut, _CMP_GE_OQ);
    __m256i before = first_lanes(c->first_tie - i); /* ties are excluded there */
    return _mm256_castps_si256(_mm256_blendv_ps(ge, gt, _mm256_castsi256_ps(before)));
}

void member_bits_avx2(uint64_t *bits, size_t ld, const float *p, int n, const struct row_cut *cut,
                      int n_cuts)
{
    int whole = n / 64 * 64;
    for (int c = 0; c < n_cuts; c++, bits += ld) {
        for (int i = 0; i < whole; i += 64) {
            uint64_t word = 0;
            for (int k = 0; k < 64; k += 8)
                word |= (uint64_t)(unsigned)_mm256_movemask_ps(
                            _mm256_castsi256_ps(members(p, i + k, &cut[c])))
                        << k;
            bits[i / 64] = word;
        }
        struct row_cut rest = cut[c];
        rest.first_tie -= whole;
        member_bits_ref(bits + whole / 64, 0, p + whole, n - whole, &rest, 1);
    }
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

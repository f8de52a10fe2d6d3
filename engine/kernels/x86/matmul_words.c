/* matmul_words.c - products of integers of 16 bits in vectors of 256 bits, with AVX2 alone or with
 * AVX-VNNI beside it (KERNELS_VNNI). */
#include <string.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"
#include "engine/kernels/words.h"

#if KERNELS_VNNI
#define NAME(name) name##_avxvnni
#define add_pairs(sum, u, x) _mm256_dpwssd_avx_epi32(sum, u, x)
#else
#define NAME(name) name##_avx2
#define add_pairs(sum, u, x) _mm256_add_epi32(sum, _mm256_madd_epi16(u, x))
#endif

enum { TILE_ROWS = 4 };
typedef __m256i ints;
#define ints_to_floats _mm256_cvtepi32_ps

INLINE __m256i pair_of(const int16_t *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

INLINE void dot_panel(ints sum[TILE_ROWS][2], const uint8_t *w, const int16_t *q, size_t ld,
                      const int R)
{
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = _mm256_setzero_si256();
    UNROLL
    for (int k = 0; k < WBLOCK / 2; k++) {
        __m256i u[2];
        UNROLL
        for (int half = 0; half < 2; half++)
            u[half] = _mm256_loadu_si256((const __m256i *)(const void *)(w + k * 64 + half * 32));
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256i x = pair_of(q + (size_t)r * ld + 2 * k);
            sum[r][0] = add_pairs(sum[r][0], u[0], x);
            sum[r][1] = add_pairs(sum[r][1], u[1], x);
        }
    }
}

#include "engine/kernels/vector/matmul_words.h"

/* matmul_words.c - products of 16-bit integers in 256-bit vectors, with AVX2 or AVX-VNNI
 * (KERNELS_VNNI). */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"
#include "engine/kernels/words.h"
#include "engine/kernels/x86/sums_avx2.h"

#if KERNELS_VNNI
#define NAME(name) name##_avxvnni
#else
#define NAME(name) name##_avx2
#endif

enum { TILE_ROWS = 4 };
typedef __m256i ints;
#define ints_to_floats _mm256_cvtepi32_ps

/* sum += products of pair k of a block with pair k of R rows. */
INLINE void add_pair(ints sum[TILE_ROWS][2], const uint8_t *w, const int16_t *q, size_t ld, int k,
                     const int R)
{
    __m256i u0 = load32(w + k * 64), u1 = load32(w + k * 64 + 32);
    UNROLL
    for (int r = 0; r < R; r++) {
        __m256i x = four_bytes(q + (size_t)r * ld + 2 * k);
        add_pairs(&sum[r][0], u0, x);
        add_pairs(&sum[r][1], u1, x);
    }
}

INLINE void dot_panel(ints sum[TILE_ROWS][2], const uint8_t *w, const int16_t *q, size_t ld,
                      const int R)
{
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = _mm256_setzero_si256();
    const int step = R == 1 ? 8 : 1;
    ROLLED
    for (int k = 0; k < WBLOCK / 2; k += step) {
        UNROLL
        for (int i = 0; i < step; i++)
            add_pair(sum, w, q, ld, k + i, R);
    }
}

#include "engine/kernels/vector/matmul_words.h"

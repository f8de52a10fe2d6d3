/* sort_avx512.h - sorts up to LEAF weights in registers in falling order: 16 R of them, where R is
 * 1 or 3 times a power of two.
 *
 * The rank of an entry is lane * R + register. Columns, which are the entries of a lane, are sorted
 * with Batcher's odd-even merge and then merged bitonically. So most stages compare full registers,
 * and only ten shuffle lanes. Each merge of columns starts by comparing opposite ends of a block,
 * so that no block must be in rising order. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "engine/kernels/vector/unroll.h"
#include "engine/kernels/vector/vec.h"

#if defined(__clang__)
#define UNROLL_REGS _Pragma("unroll")
#else
#define UNROLL_REGS _Pragma("GCC unroll 32")
#endif

enum { LEAF = 512, LEAF_VECS = LEAF / 16 };

INLINE __mmask16 clear_lanes(int d) /* lanes with bit d of their number clear */
{
    switch (d) {
    case 1:
        return 0x5555;
    case 2:
        return 0x3333;
    case 4:
        return 0x0f0f;
    default:
        return 0x00ff;
    }
}

INLINE __m512 swap_lanes(__m512 v, int d) /* lane ^ d */
{
    switch (d) {
    case 1:
        return _mm512_permute_ps(v, 0xb1);
    case 2:
        return _mm512_permute_ps(v, 0x4e);
    case 4:
        return _mm512_shuffle_f32x4(v, v, 0xb1);
    default:
        return _mm512_shuffle_f32x4(v, v, 0x4e);
    }
}

INLINE __m512 mirror_lanes(__m512 v, int d) /* lane ^ (2 d - 1) */
{
    const __m512i eights = _mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
    const __m512i all = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    if (d <= 2)
        return d == 1 ? _mm512_permute_ps(v, 0xb1) : _mm512_permute_ps(v, 0x1b);
    return _mm512_permutexvar_ps(d == 4 ? eights : all, v);
}

INLINE __m512 larger_in(__mmask16 lanes_of_larger, __m512 x, __m512 y)
{
    return _mm512_mask_max_ps(_mm512_min_ps(x, y), lanes_of_larger, x, y);
}

INLINE void order(__m512 *v, int a, int b)
{
    __m512 larger = _mm512_max_ps(v[a], v[b]);
    v[b] = _mm512_min_ps(v[a], v[b]);
    v[a] = larger;
}

/* Compares entries d registers apart in blocks of 2 d registers. */
INLINE void halve_regs(__m512 *v, const int R, const int d)
{
    UNROLL_REGS
    for (int r = 0; r < R; r++)
        if (r % (2 * d) < d && r + d < R)
            order(v, r, r + d);
}

INLINE void sort_threes(__m512 *v, const int R)
{
    UNROLL_REGS
    for (int r = 0; r + 2 < R; r += 3) {
        order(v, r, r + 2);
        order(v, r, r + 1);
        order(v, r + 1, r + 2);
    }
}

/* Sorts bitonic blocks of k registers. */
INLINE void merge_regs(__m512 *v, const int R, const int k)
{
    if (k % 32 == 0)
        halve_regs(v, R, 16);
    if (k % 24 == 0)
        halve_regs(v, R, 12);
    if (k % 16 == 0)
        halve_regs(v, R, 8);
    if (k % 12 == 0)
        halve_regs(v, R, 6);
    if (k % 3 != 0 && k % 8 == 0)
        halve_regs(v, R, 4);
    if (k % 6 == 0)
        halve_regs(v, R, 3);
    if (k % 3 == 0)
        sort_threes(v, R);
    if (k % 3 != 0 && k % 4 == 0)
        halve_regs(v, R, 2);
    if (k % 3 != 0 && k % 2 == 0)
        halve_regs(v, R, 1);
}

/* One step of Batcher's odd-even merge of registers, in blocks of 2 p of them. */
INLINE void pair_regs(__m512 *v, const int R, const int p, const int d)
{
    UNROLL_REGS
    for (int r = 0; r < R; r++)
        if (r + d < R && r >= d % p && (r - d % p) / d % 2 == 0 && r / (2 * p) == (r + d) / (2 * p))
            order(v, r, r + d);
}

INLINE void sort_columns(__m512 *v, const int R)
{
    pair_regs(v, R, 1, 1);
    pair_regs(v, R, 2, 2);
    pair_regs(v, R, 2, 1);
    pair_regs(v, R, 4, 4);
    pair_regs(v, R, 4, 2);
    pair_regs(v, R, 4, 1);
    pair_regs(v, R, 8, 8);
    pair_regs(v, R, 8, 4);
    pair_regs(v, R, 8, 2);
    pair_regs(v, R, 8, 1);
    pair_regs(v, R, 16, 16); /* no pairs if R is 16 or less */
    pair_regs(v, R, 16, 8);
    pair_regs(v, R, 16, 4);
    pair_regs(v, R, 16, 2);
    pair_regs(v, R, 16, 1);
}

INLINE void order_lanes(__m512 *v, const int R, const int d)
{
    UNROLL_REGS
    for (int r = 0; r < R; r++)
        v[r] = larger_in(clear_lanes(d), v[r], swap_lanes(v[r], d));
}

/* Merges blocks of d columns into blocks of 2 d. */
INLINE void merge_columns(__m512 *v, const int R, const int d)
{
    UNROLL_REGS
    for (int r = 0; r < (R + 1) / 2; r++) {
        __m512 x = v[r], y = v[R - 1 - r];
        v[r] = larger_in(clear_lanes(d), x, mirror_lanes(y, d));
        v[R - 1 - r] = larger_in(clear_lanes(d), y, mirror_lanes(x, d));
    }
    if (d > 4)
        order_lanes(v, R, 4);
    if (d > 2)
        order_lanes(v, R, 2);
    if (d > 1)
        order_lanes(v, R, 1);
    merge_regs(v, R, R);
}

/* Sorts n entries, padded with the smallest weight. With `clamp`, entries are clamped to [0, 1]; a
 * NaN becomes 1. */
INLINE void sort_vecs(int32_t *out, const int32_t *a, int n, const int R, const bool clamp)
{
    const __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    __m512 v[LEAF_VECS];
    UNROLL_REGS
    for (int r = 0; r < R; r++) {
        __mmask16 m = n > r * 16 ? first_lanes(n - r * 16) : 0;
        v[r] = _mm512_maskz_loadu_ps(m, a + r * 16);
        if (clamp)
            v[r] = _mm512_max_ps(_mm512_min_ps(v[r], one), zero);
    }
    sort_columns(v, R);
    merge_columns(v, R, 1);
    merge_columns(v, R, 2);
    merge_columns(v, R, 4);
    merge_columns(v, R, 8);
    UNROLL_REGS
    for (int r = 0; r < R; r++)
        _mm512_storeu_ps(out + r * 16, v[r]);
}

/* Returns the number of registers for sorting n <= LEAF entries. */
INLINE int sort_regs(int n)
{
    static const unsigned char regs[LEAF_VECS] = {1,  2,  3,  4,  6,  6,  8,  8,  12, 12, 12,
                                                  12, 16, 16, 16, 16, 24, 24, 24, 24, 24, 24,
                                                  24, 24, 32, 32, 32, 32, 32, 32, 32, 32};
    return regs[(n - (n > 0)) / 16];
}

INLINE void sort_as(int32_t *out, const int32_t *a, int n, const bool clamp)
{
    switch (sort_regs(n)) {
    case 1:
        sort_vecs(out, a, n, 1, clamp);
        break;
    case 2:
        sort_vecs(out, a, n, 2, clamp);
        break;
    case 3:
        sort_vecs(out, a, n, 3, clamp);
        break;
    case 4:
        sort_vecs(out, a, n, 4, clamp);
        break;
    case 6:
        sort_vecs(out, a, n, 6, clamp);
        break;
    case 8:
        sort_vecs(out, a, n, 8, clamp);
        break;
    case 12:
        sort_vecs(out, a, n, 12, clamp);
        break;
    case 16:
        sort_vecs(out, a, n, 16, clamp);
        break;
    case 24:
        sort_vecs(out, a, n, 24, clamp);
        break;
    default:
        sort_vecs(out, a, n, 32, clamp);
    }
}

/* Returns the index of the entry of a rank after sorting in R registers. */
INLINE int sorted_place(int R, int rank)
{
    static const uint16_t per[LEAF_VECS + 1] = {
        [2] = 32768, [3] = 21846, [4] = 16384, [6] = 10923, [8] = 8192,
        [12] = 5462, [16] = 4096, [24] = 2731, [32] = 2048};
    int lane = R > 1 ? rank * per[R] >> 16 : rank;
    return (rank - lane * R) * 16 + lane;
}

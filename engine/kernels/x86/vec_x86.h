/* vec_x86.h - the part of vec.h that AVX2 and AVX-512 share. */
#pragma once

#include <immintrin.h>
#include <string.h>

#define v_zero V(setzero_ps)
#define v_set V(set1_ps)
#define v_load V(loadu_ps)
#define v_store V(storeu_ps)
#define v_add V(add_ps)
#define v_sub V(sub_ps)
#define v_mul V(mul_ps)
#define v_div V(div_ps)
#define v_max V(max_ps)
#define v_min V(min_ps)
#define v_fma V(fmadd_ps)   /* a b + c, rounded once */
#define v_fnma V(fnmadd_ps) /* c - a b, rounded once */

#define wide_zero V(setzero_pd)
#define wide_set V(set1_pd)
#define wide_load V(loadu_pd)
#define wide_store V(storeu_pd)
#define wide_sum V(add_pd)
#define wide_fma V(fmadd_pd)

/* Returns from, from - 1, .. */
INLINE vec v_count_down(int from)
{
    return V(cvtepi32_ps)(V(sub_epi32)(V(set1_epi32)(from), v_numbers()));
}

/* ints: W integers of 32 bits, or pairs of 16 bits. */
#define i_max V(max_epi32)
#define i_to_vec V(cvtepi32_ps)

/* Sets all lanes to one pair. */
INLINE ints i_pair(const int16_t *p)
{
    int32_t both;
    memcpy(&both, p, sizeof both);
    return V(set1_epi32)(both);
}

/* Returns the first numbers of the pairs, or with odd the second ones. */
INLINE vec i_half(ints x, int odd)
{
    return i_to_vec(V(srai_epi32)(odd ? x : V(slli_epi32)(x, 16), 16));
}

/* Returns byte `which` of each group of four, signed. */
INLINE vec i_byte(ints x, int which)
{
    return i_to_vec(V(srai_epi32)(V(sll_epi32)(x, _mm_cvtsi32_si128(24 - 8 * which)), 24));
}

/* Rotates pairs (a, b) by pairs (c, s): (a c - b s, b c + a s). The first product is not
 * rounded. */
INLINE vec v_rotate(vec v, vec cs)
{
    vec other = v_mul(V(permute_ps)(v, 0xb1), V(movehdup_ps)(cs));
    return V(fmaddsub_ps)(v, V(moveldup_ps)(cs), other);
}

/* Flushes subnormal numbers to 0 until flush_end, which is faster. */
INLINE unsigned flush_begin(void)
{
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    return mode;
}

INLINE void flush_end(unsigned mode)
{
    _mm_setcsr(mode);
}

/* vec_avx512.h - the AVX-512 part of vec.h. */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "engine/kernels/vector/unroll.h"

#define ISA(name) name##_avx512
#define V(op) _mm512_##op
enum { W = 16 };
typedef __m512 vec;
typedef __m512d wide;
typedef __mmask16 lanes;
typedef __m512i ints;

INLINE __m512i v_numbers(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

INLINE vec v_index(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* Selects the first `left` lanes, all if left >= W; left >= 0. */
INLINE lanes first_lanes(int left)
{
    return left >= W ? (lanes)0xffff : (lanes)((1u << left) - 1);
}

/* Returns x in the lanes `in`, 0 elsewhere. */
INLINE vec v_only(lanes in, vec x)
{
    return _mm512_maskz_mov_ps(in, x);
}

INLINE vec v_load_in(lanes in, const float *p)
{
    return _mm512_maskz_loadu_ps(in, p);
}

/* Loads the weights at p of entries with a position of at most t; 0 elsewhere. */
INLINE vec v_load_seen(const float *p, const int32_t *pos, int32_t t)
{
    return v_load_in(_mm512_cmple_epi32_mask(_mm512_loadu_si512(pos), _mm512_set1_epi32(t)), p);
}

INLINE vec v_load_or(vec other, lanes in, const float *p)
{
    return _mm512_mask_loadu_ps(other, in, p);
}

INLINE void v_store_in(lanes in, float *p, vec x)
{
    _mm512_mask_storeu_ps(p, in, x);
}

/* Access the first `left` entries; loads give 0 elsewhere. left >= 1, a compile-time constant for
 * full vectors. */
INLINE vec v_load_first(const float *p, int left)
{
    return v_load_in(first_lanes(left), p);
}

INLINE void v_store_first(float *p, int left, vec x)
{
    v_store_in(first_lanes(left), p, x);
}

/* sum + x, and sum - x y, in the lanes `in` */
INLINE vec v_add_in(lanes in, vec sum, vec x)
{
    return _mm512_mask_add_ps(sum, in, sum, x);
}

INLINE vec v_fnma_in(lanes in, vec x, vec y, vec sum)
{
    return _mm512_mask3_fnmadd_ps(x, y, sum, in);
}

/* Returns x where sign >= 0, otherwise 0. */
INLINE vec v_keep(vec sign, vec x)
{
    return v_only(_mm512_cmp_ps_mask(sign, _mm512_setzero_ps(), _CMP_GE_OQ), x);
}

INLINE vec v_load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Loads W 8-bit integers. */
INLINE vec v_load_bytes(const int8_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x));
}

/* Sets all lanes to one f16 number. */
INLINE vec v_set_half(uint16_t h)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

INLINE void v_store_half(uint16_t *p, vec x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, 0));
}

INLINE wide v_low(vec x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}

INLINE wide v_high(vec x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}

#define v_total _mm512_reduce_add_ps
#define wide_total _mm512_reduce_add_pd
#define v_top _mm512_reduce_max_ps

INLINE vec v_round(vec x)
{
    return _mm512_roundscale_ps(x, 8);
}

INLINE vec v_floor(vec x)
{
    return _mm512_roundscale_ps(x, 9);
}

#define i_zero _mm512_setzero_si512
#define i_load _mm512_loadu_si512
#define i_top _mm512_reduce_max_epi32

/* sum + a b + c d of pairs (a, c) and (b, d). It is in assembly, because GCC 12 copies the sums of
 * a loop around the intrinsic. */
INLINE ints i_dot(ints sum, ints x, ints y)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

/* Groups of four bytes. Keys (with 128 added) and weights are unsigned, queries and values are
 * signed. */
typedef ints quads;

/* Returns the initial sums of a query with numbers of this sum: -128 times it, since keys have 128
 * added. */
INLINE ints i_begin_keys(int32_t sum)
{
    return _mm512_set1_epi32(-128 * sum);
}

INLINE quads quads_of_keys(const void *p)
{
    return _mm512_xor_si512(i_load(p), _mm512_set1_epi8((char)0x80));
}

#define quads_of_values i_load

/* Sets all lanes to one group. */
INLINE quads quads_of_query(const void *p)
{
    int32_t group;
    memcpy(&group, p, sizeof group);
    return _mm512_set1_epi32(group);
}

#define quads_of_weights quads_of_query

/* sum + the four products of unsigned and signed groups */
INLINE ints i_dot_quads(ints sum, quads x, quads y)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

/* Stores numbers rounded to the nearest integers, ties to even, clamped to 0 .. 255; 0 for NaN. */
INLINE void v_store_bytes(uint8_t *p, vec a, vec b, vec c, vec d)
{
    __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}

/* Returns the bits of x without signs. */
INLINE ints v_size(vec x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* Stores x and y rounded to the nearest integers, ties to even; magnitudes must be below 2^15. */
INLINE void v_store_words(int16_t *p, vec x, vec y)
{
    __m512i a = _mm512_cvtps_epi32(x), b = _mm512_cvtps_epi32(y);
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(order, _mm512_packs_epi32(a, b)));
}

/* Sets the maximum of each of four rows of W floats, ld apart. */
INLINE void v_tops(float *to, const float *rows, size_t ld)
{
    __m512 a = _mm512_loadu_ps(rows), b = _mm512_loadu_ps(rows + ld);
    __m512 c = _mm512_loadu_ps(rows + 2 * ld), d = _mm512_loadu_ps(rows + 3 * ld);
    a = _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); /* a, b, a, b .. */
    c = _mm512_max_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    a = _mm512_max_ps(_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee));
    __m256 x = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    _mm_storeu_ps(to, _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}

/* p 2^n for integer n; p and the result are normal */
INLINE vec v_double(vec p, vec n)
{
    __m512i power = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), power));
}

#define v_scale _mm512_scalef_ps /* p 2^n for integer n */

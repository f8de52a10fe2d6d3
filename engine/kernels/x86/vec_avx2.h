/* vec_avx2.h - the AVX2 part of vec.h. */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "engine/kernels/vector/unroll.h"

#define ISA(name) name##_avx2
#define V(op) _mm256_##op
enum { W = 8 };
typedef __m256 vec;
typedef __m256d wide;
typedef __m256i lanes; /* all bits of a lane are set or clear */
typedef __m256i ints;
typedef __m256i wide_bits; /* W / 2 of 64 bits */

INLINE __m256i v_numbers(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

INLINE vec v_index(void)
{
    return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

/* Selects the first `left` lanes; all if left >= W. */
INLINE lanes first_lanes(int left)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left), v_numbers());
}

/* Returns x in the lanes `in`, 0 elsewhere. */
INLINE vec v_only(lanes in, vec x)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(in));
}

INLINE vec v_load_in(lanes in, const float *p)
{
    return _mm256_maskload_ps(p, in);
}

/* Loads the weights at p of entries with a position of at most t; 0 elsewhere. */
INLINE vec v_load_seen(const float *p, const int32_t *pos, int32_t t)
{
    __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)pos);
    __m256i later = _mm256_cmpgt_epi32(at, _mm256_set1_epi32(t));
    return _mm256_andnot_ps(_mm256_castsi256_ps(later), _mm256_loadu_ps(p));
}

INLINE vec v_load_or(vec other, lanes in, const float *p)
{
    return _mm256_blendv_ps(other, v_load_in(in, p), _mm256_castsi256_ps(in));
}

INLINE void v_store_in(lanes in, float *p, vec x)
{
    _mm256_maskstore_ps(p, in, x);
}

/* Access the first `left` entries; loads give 0 elsewhere. left >= 1, a compile-time constant for
 * full vectors. */
INLINE vec v_load_first(const float *p, int left)
{
    return left >= W ? _mm256_loadu_ps(p) : v_load_in(first_lanes(left), p);
}

INLINE void v_store_first(float *p, int left, vec x)
{
    if (left >= W)
        _mm256_storeu_ps(p, x);
    else
        v_store_in(first_lanes(left), p, x);
}

/* sum + x, and sum - x y, in the lanes `in` */
INLINE vec v_add_in(lanes in, vec sum, vec x)
{
    return _mm256_add_ps(sum, v_only(in, x));
}

INLINE vec v_fnma_in(lanes in, vec x, vec y, vec sum)
{
    return _mm256_fnmadd_ps(v_only(in, x), y, sum);
}

/* Returns x where sign >= 0, otherwise 0. */
INLINE vec v_keep(vec sign, vec x)
{
    return _mm256_and_ps(_mm256_cmp_ps(sign, _mm256_setzero_ps(), _CMP_GE_OQ), x);
}

INLINE vec v_load_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Loads W 8-bit integers. */
INLINE vec v_load_bytes(const int8_t *p)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
}

/* Sets all lanes to one f16 number. */
INLINE vec v_set_half(uint16_t h)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

INLINE void v_store_half(uint16_t *p, vec x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, 0));
}

/* Loads W bf16 numbers. */
INLINE vec v_load_brain(const uint16_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

INLINE wide v_low(vec x)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}

INLINE wide v_high(vec x)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}

INLINE float v_total(vec v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

INLINE double wide_total(wide v)
{
    __m128d x = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
}

#define bits_zero _mm256_setzero_si256

/* Adds the bits of x, as integers, to W / 2 sums. */
INLINE wide_bits bits_add(wide_bits sum, wide x)
{
    return _mm256_add_epi64(sum, _mm256_castpd_si256(x));
}

INLINE uint64_t bits_total(wide_bits sum)
{
    uint64_t lane[4];
    _mm256_storeu_si256((__m256i *)(void *)lane, sum);
    return lane[0] + lane[1] + lane[2] + lane[3];
}

INLINE float v_top(vec v)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

INLINE vec v_round(vec x)
{
    return _mm256_round_ps(x, 8);
}

INLINE vec v_floor(vec x)
{
    return _mm256_round_ps(x, 9);
}

#define i_zero _mm256_setzero_si256

INLINE ints i_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE int32_t i_top(ints v)
{
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

/* sum + a b + c d of pairs (a, c) and (b, d) */
INLINE ints i_dot(ints sum, ints x, ints y)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y));
}

/* Groups of four bytes as words: bytes 0 and 2 of each group, and bytes 1 and 3. */
typedef struct {
    __m256i even, odd;
} quads;

INLINE quads signed_quads(__m256i x)
{
    return (quads){_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), _mm256_srai_epi16(x, 8)};
}

/* Returns the initial sums of a query with numbers of this sum. */
INLINE ints i_begin_keys(int32_t sum)
{
    (void)sum;
    return i_zero();
}

INLINE quads quads_of_keys(const void *p)
{
    return signed_quads(i_load(p));
}

#define quads_of_values quads_of_keys

INLINE __m256i group_in_all(const void *p)
{
    int32_t group;
    memcpy(&group, p, sizeof group);
    return _mm256_set1_epi32(group);
}

/* Set all lanes to one group: signed for queries, unsigned for weights. */
INLINE quads quads_of_query(const void *p)
{
    return signed_quads(group_in_all(p));
}

INLINE quads quads_of_weights(const void *p)
{
    __m256i x = group_in_all(p);
    return (quads){_mm256_and_si256(x, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(x, 8)};
}

/* sum + the four products of groups */
INLINE ints i_dot_quads(ints sum, quads x, quads y)
{
    return i_dot(i_dot(sum, x.even, y.even), x.odd, y.odd);
}

/* Stores numbers rounded to the nearest integers, ties to even, clamped to 0 .. 255; 0 for NaN. */
INLINE void v_store_bytes(uint8_t *p, vec a, vec b, vec c, vec d)
{
    __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    __m256i high = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    _mm256_storeu_si256((__m256i *)(void *)p, bytes);
}

/* Returns the bits of x without signs. */
INLINE ints v_size(vec x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/* Stores x and y rounded to the nearest integers, ties to even; magnitudes must be below 2^15. */
INLINE void v_store_words(int16_t *p, vec x, vec y)
{
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x), _mm256_cvtps_epi32(y));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(words, 0xd8));
}

/* p 2^n for integer n; p and the result are normal */
INLINE vec v_double(vec p, vec n)
{
    __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}

INLINE vec power_of_two(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* p 2^n for integer n, with two factors, because 2^n is subnormal below 2^-126. */
INLINE vec v_scale(vec p, vec n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    p = _mm256_mul_ps(p, power_of_two(half));
    return _mm256_mul_ps(p, power_of_two(_mm256_sub_epi32(whole, half)));
}

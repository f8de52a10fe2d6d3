/* sums_avx2.h - products of bytes and of words that are added to a sum in place, with AVX2 or
 * AVX-VNNI (KERNELS_VNNI). They are in assembly, because GCC 12 copies the sums of a loop around
 * its intrinsics. */
#pragma once

#include <immintrin.h>
#include <string.h>

#include "engine/kernels/vector/unroll.h"

INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void store32(void *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}

/* Sets all lanes to 4 bytes or 2 words. */
INLINE __m256i four_bytes(const void *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

#if KERNELS_VNNI
/* sum += products of 4 bytes; the bytes of u are unsigned. */
INLINE void add_fours(__m256i *sum, __m256i u, __m256i x)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(*sum) : "x"(u), "x"(x));
}

/* sum += products of 2 words */
INLINE void add_pairs(__m256i *sum, __m256i u, __m256i x)
{
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(*sum) : "x"(u), "x"(x));
}
#else
INLINE void add_pairs(__m256i *sum, __m256i u, __m256i x)
{
    __m256i products = _mm256_madd_epi16(u, x);
    __asm__("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(products));
}
#endif

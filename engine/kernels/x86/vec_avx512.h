/* vec_avx512.h - vector mathematics shared by the AVX-512 kernels. */
#ifndef KVF_ENGINE_VEC_AVX512_H
#define KVF_ENGINE_VEC_AVX512_H

#include <immintrin.h>

#include "engine/kernels/x86/unroll.h"

/* The first `left` of 16 lanes; left >= 0. */
INLINE __mmask16 lanes(int left)
{
    return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

#define EXP_LEAST -104.0f /* exp underflows to 0 below */

/* exp(x) for x <= 0 or moderate: 2^n * P(r), x = n ln 2 + r, |r| <= ln2 / 2, P
 * the Taylor polynomial of degree 7 (remainder below 6e-9). */
INLINE __m512 exp_ps(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_set1_ps(EXP_LEAST));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

#endif

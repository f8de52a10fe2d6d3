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

/* exp(x) for x <= 0 or moderate: 2^n * P(r), x = n ln 2 + r, |r| <= ln2 / 2, P
 * the Taylor polynomial of degree 7 (remainder below 6e-9). */
INLINE __m512 exp_ps(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_set1_ps(-104.0f)); /* exp underflows to 0 below */
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

/* ln x for x > 0: x = 2^e m with m in [0.75, 1.5), m = c (1 + r) with the c of one
 * of 16 intervals, the first 4 bits of the mantissa; |r| <= 1/32, but 0 <= r < 1/16
 * above 1, where c = 1 as just below 1: ln 1 = 0 and its surroundings are exact.
 * ln(1 + r) is its series to r^5 (remainder below 1e-8). */
INLINE __m512 log_ps(__m512 x)
{
    const __m512 inverse_c = _mm512_setr_ps(
        1.0f, 0.914285719f, 0.864864886f, 0.820512831f,
        0.780487776f, 0.744186044f, 0.711111128f, 0.680851042f,
        1.30612242f, 1.25490201f, 1.20754719f, 1.16363633f,
        1.12280703f, 1.08474576f, 1.04918027f, 1.0f);
    const __m512 log_c = _mm512_setr_ps(
        0.0f, 0.0896121562f, 0.145181984f, 0.19782573f,
        0.247836202f, 0.295464218f, 0.340926558f, 0.384411722f,
        -0.267062753f, -0.227057487f, -0.188591182f, -0.151549861f,
        -0.115831822f, -0.0813456401f, -0.0480091646f, 0.0f);
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
    __m512 e = _mm512_getexp_ps(x);
    e = _mm512_mask_add_ps(e, _mm512_cmp_ps_mask(m, one, _CMP_LT_OQ), e, one);
    __m512i at = _mm512_srli_epi32(_mm512_castps_si512(m), 19);
    __m512 r = _mm512_fmsub_ps(m, _mm512_permutexvar_ps(at, inverse_c), one);
    __m512 p = _mm512_set1_ps(1.0f / 5);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(-1.0f / 4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(-1.0f / 2));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    p = _mm512_add_ps(p, _mm512_permutexvar_ps(at, log_c));
    return _mm512_fmadd_ps(e, _mm512_set1_ps(0.69314718f), p);
}

#endif

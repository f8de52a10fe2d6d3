/* back_avx512.c - derivatives along the channels of a token. */
#include <immintrin.h>
#include <math.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx512.h"

void swiglu_back_avx512(float *d_gate, float *d_up, const float *gate, const float *up,
                        const float *d_out, int n)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 d = _mm512_maskz_loadu_ps(m, d_out + i);
        __m512 minus = _mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), g), _mm512_set1_ps(88.0f));
        __m512 s = _mm512_div_ps(one, _mm512_add_ps(one, exp_ps(minus)));
        __m512 slope = _mm512_fmadd_ps(g, _mm512_sub_ps(one, s), one);
        _mm512_mask_storeu_ps(d_gate + i, m,
                              _mm512_mul_ps(_mm512_mul_ps(d, u), _mm512_mul_ps(s, slope)));
        _mm512_mask_storeu_ps(d_up + i, m, _mm512_mul_ps(d, _mm512_mul_ps(g, s)));
    }
}

INLINE __m512d add_product(__m512d sum, __m512 a, __m512 b, const int half)
{
    __m256 x = half ? _mm512_extractf32x8_ps(a, 1) : _mm512_castps512_ps256(a);
    __m256 y = half ? _mm512_extractf32x8_ps(b, 1) : _mm512_castps512_ps256(b);
    return _mm512_fmadd_pd(_mm512_cvtps_pd(x), _mm512_cvtps_pd(y), sum);
}

void rmsnorm_back_avx512(float *dx, const float *x, const float *w, const float *dy, int T, int C,
                         float eps)
{
    for (int t = 0; t < T; t++, x += C, dy += C, dx += C) {
        __m512d square = _mm512_setzero_pd(), dot = square;
        for (int c = 0; c < C; c += 16) {
            __mmask16 m = lanes(C - c);
            __m512 v = _mm512_maskz_loadu_ps(m, x + c);
            __m512 d = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, dy + c),
                                     _mm512_maskz_loadu_ps(m, w + c));
            square = add_product(add_product(square, v, v, 0), v, v, 1);
            dot = add_product(add_product(dot, d, v, 0), d, v, 1);
        }
        double r = 1.0 / sqrt(_mm512_reduce_add_pd(square) / C + (double)eps);
        const __m512 scale = _mm512_set1_ps((float)r);
        const __m512 pull = _mm512_set1_ps((float)(r * r * r * _mm512_reduce_add_pd(dot) / C));
        for (int c = 0; c < C; c += 16) {
            __mmask16 m = lanes(C - c);
            __m512 d = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, dy + c),
                                     _mm512_maskz_loadu_ps(m, w + c));
            __m512 sum = _mm512_fmadd_ps(scale, d, _mm512_maskz_loadu_ps(m, dx + c));
            sum = _mm512_fnmadd_ps(pull, _mm512_maskz_loadu_ps(m, x + c), sum);
            _mm512_mask_storeu_ps(dx + c, m, sum);
        }
    }
}

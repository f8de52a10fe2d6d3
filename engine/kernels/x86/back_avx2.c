/* back_avx2.c - derivatives along the channels of a token. */
#include <math.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx2.h"

void swiglu_back_avx2(float *d_gate, float *d_up, const float *gate, const float *up,
                      const float *d_out, int n)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    for (int i = 0; i < n; i += 8) {
        __m256i m = lanes8(n - i);
        __m256 g = _mm256_maskload_ps(gate + i, m), u = _mm256_maskload_ps(up + i, m);
        __m256 d = _mm256_maskload_ps(d_out + i, m);
        __m256 minus = _mm256_min_ps(_mm256_sub_ps(_mm256_setzero_ps(), g), _mm256_set1_ps(88.0f));
        __m256 s = _mm256_div_ps(one, _mm256_add_ps(one, exp8(minus)));
        __m256 slope = _mm256_fmadd_ps(g, _mm256_sub_ps(one, s), one);
        _mm256_maskstore_ps(d_gate + i, m,
                            _mm256_mul_ps(_mm256_mul_ps(d, u), _mm256_mul_ps(s, slope)));
        _mm256_maskstore_ps(d_up + i, m, _mm256_mul_ps(d, _mm256_mul_ps(g, s)));
    }
}

INLINE __m256d add_product(__m256d sum, __m256 a, __m256 b, const int half)
{
    __m128 x = half ? _mm256_extractf128_ps(a, 1) : _mm256_castps256_ps128(a);
    __m128 y = half ? _mm256_extractf128_ps(b, 1) : _mm256_castps256_ps128(b);
    return _mm256_fmadd_pd(_mm256_cvtps_pd(x), _mm256_cvtps_pd(y), sum);
}

void rmsnorm_back_avx2(float *dx, const float *x, const float *w, const float *dy, int T, int C,
                       float eps)
{
    for (int t = 0; t < T; t++, x += C, dy += C, dx += C) {
        __m256d square = _mm256_setzero_pd(), dot = square;
        for (int c = 0; c < C; c += 8) {
            __m256i m = lanes8(C - c);
            __m256 v = _mm256_maskload_ps(x + c, m);
            __m256 d = _mm256_mul_ps(_mm256_maskload_ps(dy + c, m), _mm256_maskload_ps(w + c, m));
            square = add_product(add_product(square, v, v, 0), v, v, 1);
            dot = add_product(add_product(dot, d, v, 0), d, v, 1);
        }
        double r = 1.0 / sqrt(sum4(square) / C + (double)eps);
        const __m256 scale = _mm256_set1_ps((float)r);
        const __m256 pull = _mm256_set1_ps((float)(r * r * r * sum4(dot) / C));
        for (int c = 0; c < C; c += 8) {
            __m256i m = lanes8(C - c);
            __m256 d = _mm256_mul_ps(_mm256_maskload_ps(dy + c, m), _mm256_maskload_ps(w + c, m));
            __m256 sum = _mm256_fmadd_ps(scale, d, _mm256_maskload_ps(dx + c, m));
            sum = _mm256_fnmadd_ps(pull, _mm256_maskload_ps(x + c, m), sum);
            _mm256_maskstore_ps(dx + c, m, sum);
        }
    }
}

/* elementwise_avx512.c - kernels that run along the channels of a token. */
#include <immintrin.h>
#include <math.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx512.h"

/* Sum of squares in 16 lanes of double. */
static double square_sum(const float *x, int C)
{
    __m512d lo = _mm512_setzero_pd(), hi = lo;
    for (int c = 0; c < C; c += 16) {
        __m512 v = _mm512_maskz_loadu_ps(lanes(C - c), x + c);
        __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
        __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        lo = _mm512_fmadd_pd(a, a, lo);
        hi = _mm512_fmadd_pd(b, b, hi);
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(lo, hi));
}

void rmsnorm_avx512(float *out, const float *x, const float *w, int T, int C, float eps)
{
    for (int t = 0; t < T; t++, x += C, out += C) {
        double mean = square_sum(x, C) / C;
        const __m512 scale = _mm512_set1_ps((float)(1.0 / sqrt(mean + (double)eps)));
        for (int c = 0; c < C; c += 16) {
            __mmask16 m = lanes(C - c);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + c), scale);
            _mm512_mask_storeu_ps(out + c, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + c)));
        }
    }
}

/* (a, b) -> (a c - b s, b c + a s), pairs side by side: the odd lanes add what the
 * even ones subtract. */
void rope_avx512(float *x, const float *cos_sin, int n_heads, int D, int n_rot)
{
    int n = n_rot / 2 * 2;
    for (int h = 0; h < n_heads; h++, x += D)
        for (int i = 0; i < n; i += 16) {
            __mmask16 m = lanes(n - i);
            __m512 v = _mm512_maskz_loadu_ps(m, x + i);
            __m512 cs = _mm512_maskz_loadu_ps(m, cos_sin + i);
            __m512 swapped = _mm512_permute_ps(v, 0xb1);
            __m512 other = _mm512_mul_ps(swapped, _mm512_movehdup_ps(cs));
            v = _mm512_fmaddsub_ps(v, _mm512_moveldup_ps(cs), other);
            _mm512_mask_storeu_ps(x + i, m, v);
        }
}

void swiglu_avx512(float *out, const float *gate, const float *up, int n)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 minus = _mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), g), _mm512_set1_ps(88.0f));
        __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exp_ps(minus)));
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(silu, u));
    }
}

void add_avx512(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        __m512 a = _mm512_maskz_loadu_ps(m, x + i), b = _mm512_maskz_loadu_ps(m, y + i);
        _mm512_mask_storeu_ps(x + i, m, _mm512_add_ps(a, b));
    }
}

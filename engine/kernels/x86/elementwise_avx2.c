/* elementwise_avx2.c - kernels that run along the channels of a token. */
#include <math.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx2.h"

static double square_sum(const float *x, int C)
{
    __m256d lo = _mm256_setzero_pd(), hi = lo;
    for (int c = 0; c < C; c += 8) {
        __m256 v = _mm256_maskload_ps(x + c, lanes8(C - c));
        __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
        __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        lo = _mm256_fmadd_pd(a, a, lo);
        hi = _mm256_fmadd_pd(b, b, hi);
    }
    return sum4(_mm256_add_pd(lo, hi));
}

void rmsnorm_avx2(float *out, const float *x, const float *w, int T, int C, float eps)
{
    for (int t = 0; t < T; t++, x += C, out += C) {
        double mean = square_sum(x, C) / C;
        const __m256 scale = _mm256_set1_ps((float)(1.0 / sqrt(mean + (double)eps)));
        for (int c = 0; c < C; c += 8) {
            __m256i m = lanes8(C - c);
            __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + c, m), scale);
            _mm256_maskstore_ps(out + c, m, _mm256_mul_ps(v, _mm256_maskload_ps(w + c, m)));
        }
    }
}

/* (a, b) -> (a c - b s, b c + a s), pairs side by side: the odd lanes add what the
 * even ones subtract. */
void rope_avx2(float *x, const float *cos_sin, int n_heads, int D, int n_rot)
{
    int n = n_rot / 2 * 2;
    for (int h = 0; h < n_heads; h++, x += D)
        for (int i = 0; i < n; i += 8) {
            __m256i m = lanes8(n - i);
            __m256 v = _mm256_maskload_ps(x + i, m), cs = _mm256_maskload_ps(cos_sin + i, m);
            __m256 swapped = _mm256_permute_ps(v, 0xb1);
            __m256 other = _mm256_mul_ps(swapped, _mm256_movehdup_ps(cs));
            v = _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(cs), other);
            _mm256_maskstore_ps(x + i, m, v);
        }
}

void swiglu_avx2(float *out, const float *gate, const float *up, int n)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    for (int i = 0; i < n; i += 8) {
        __m256i m = lanes8(n - i);
        __m256 g = _mm256_maskload_ps(gate + i, m), u = _mm256_maskload_ps(up + i, m);
        __m256 minus = _mm256_min_ps(_mm256_sub_ps(_mm256_setzero_ps(), g), _mm256_set1_ps(88.0f));
        __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp8(minus)));
        _mm256_maskstore_ps(out + i, m, _mm256_mul_ps(silu, u));
    }
}

void add_avx2(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 8) {
        __m256i m = lanes8(n - i);
        __m256 sum = _mm256_add_ps(_mm256_maskload_ps(x + i, m), _mm256_maskload_ps(y + i, m));
        _mm256_maskstore_ps(x + i, m, sum);
    }
}

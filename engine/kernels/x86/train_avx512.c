/* train_avx512.c - tile products and rows of gated attention for training. */
#include <immintrin.h>
#include <math.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx512.h"

/* R rows from i, V vectors of columns from j, the last of them masked. */
INLINE void tile_block(const struct tile_product *p, int i, int j, const __mmask16 last,
                       const int R, const int V)
{
    __m512 acc[4][4];
    float *c = p->c + (size_t)i * p->ld_c + (size_t)j;
    const float *a = p->a + (size_t)i * p->a_row, *b = p->b + j;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)
        acc[r][v] = p->add ? _mm512_maskz_loadu_ps(v == V - 1 ? last : 0xffff,
                                                   c + (size_t)r * p->ld_c + v * 16)
                           : _mm512_setzero_ps();
    for (int k = 0; k < p->k; k++, a += p->a_col, b += p->ld_b) {
        __m512 x[4];
        UNROLL for (int v = 0; v < V; v++)
            x[v] = _mm512_maskz_loadu_ps(v == V - 1 ? last : 0xffff, b + v * 16);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512 y = _mm512_set1_ps(a[(size_t)r * p->a_row]);
            UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_fmadd_ps(y, x[v], acc[r][v]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) _mm512_mask_storeu_ps(
        c + (size_t)r * p->ld_c + v * 16, v == V - 1 ? last : 0xffff, acc[r][v]);
}

INLINE void tile_strip(const struct tile_product *p, int j, const int V)
{
    const __mmask16 last = lanes(p->n - j - (V - 1) * 16);
    int i = 0;
    for (; i + 4 <= p->m; i += 4)
        tile_block(p, i, j, last, 4, V);
    for (; i < p->m; i++)
        tile_block(p, i, j, last, 1, V);
}

void tile_mul_avx512(const struct tile_product *p)
{
    int j = 0;
    for (; p->n - j > 48; j += 64)
        tile_strip(p, j, 4);
    if (p->n - j > 32)
        tile_strip(p, j, 3);
    else if (p->n - j > 16)
        tile_strip(p, j, 2);
    else if (p->n - j > 0)
        tile_strip(p, j, 1);
}

/* age - j of 16 keys from j */
INLINE __m512 ages(int age, int j)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_set1_epi32(age - j), lane));
}

void add_aged_avx512(float *y, const float *x, int n, int age)
{
    for (int j = 0; j < n; j += 16) {
        __mmask16 m = lanes(n - j);
        __m512 v = _mm512_fmadd_ps(ages(age, j), _mm512_maskz_loadu_ps(m, x + j),
                                   _mm512_maskz_loadu_ps(m, y + j));
        _mm512_mask_storeu_ps(y + j, m, v);
    }
}

void exp_aged_avx512(float *w, const float *g, int n, int age)
{
    for (int j = 0; j < n; j += 16) {
        __mmask16 m = lanes(n - j);
        __m512 x = _mm512_mul_ps(ages(age, j), _mm512_maskz_loadu_ps(m, g + j));
        _mm512_mask_storeu_ps(w + j, m, exp_ps(x));
    }
}

float exp_row_avx512(float *s, int n, float shift)
{
    __m512 sum = _mm512_setzero_ps();
    for (int j = 0; j < n; j += 16) {
        __mmask16 m = lanes(n - j);
        __m512 x = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, s + j), _mm512_set1_ps(shift));
        __m512 e = _mm512_maskz_mov_ps(m, exp_ps(x));
        _mm512_mask_storeu_ps(s + j, m, e);
        sum = _mm512_add_ps(sum, e);
    }
    return _mm512_reduce_add_ps(sum);
}

float max_row_avx512(const float *s, int n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 max = lowest;
    for (int j = 0; j < n; j += 16)
        max = _mm512_max_ps(max, _mm512_mask_loadu_ps(lowest, lanes(n - j), s + j));
    return _mm512_reduce_max_ps(max);
}

void mul_avx512(float *x, const float *y, int n)
{
    for (int j = 0; j < n; j += 16) {
        __mmask16 m = lanes(n - j);
        _mm512_mask_storeu_ps(
            x + j, m,
            _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + j), _mm512_maskz_loadu_ps(m, y + j)));
    }
}

void softmax_grad_avx512(float *d, const float *p, int n, float mean)
{
    for (int j = 0; j < n; j += 16) {
        __mmask16 m = lanes(n - j);
        __m512 x = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, d + j), _mm512_set1_ps(mean));
        _mm512_mask_storeu_ps(d + j, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, p + j), x));
    }
}

/* train_avx2.c - tile products and rows of gated attention for training. */
#include <immintrin.h>
#include <math.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx2.h"

INLINE __m256 load_some(const float *p, int n)
{
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, lanes8(n));
}

INLINE void store_some(float *p, int n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, lanes8(n), v);
}

/* R rows from i, V vectors of columns from j; n columns, a constant when they are whole. */
INLINE void tile_block(const struct tile_product *p, int i, int j, const int n, const int R,
                       const int V)
{
    __m256 acc[4][2];
    float *c = p->c + (size_t)i * p->ld_c + (size_t)j;
    const float *a = p->a + (size_t)i * p->a_row, *b = p->b + j;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)
        acc[r][v] = p->add ? load_some(c + (size_t)r * p->ld_c + v * 8, n - v * 8)
                           : _mm256_setzero_ps();
    for (int k = 0; k < p->k; k++, a += p->a_col, b += p->ld_b) {
        __m256 x[2];
        UNROLL for (int v = 0; v < V; v++) x[v] = load_some(b + v * 8, n - v * 8);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m256 y = _mm256_set1_ps(a[(size_t)r * p->a_row]);
            UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm256_fmadd_ps(y, x[v], acc[r][v]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)
        store_some(c + (size_t)r * p->ld_c + v * 8, n - v * 8, acc[r][v]);
}

INLINE void tile_strip(const struct tile_product *p, int j, const int n, const int V)
{
    int i = 0;
    for (; i + 4 <= p->m; i += 4)
        tile_block(p, i, j, n, 4, V);
    for (; i < p->m; i++)
        tile_block(p, i, j, n, 1, V);
}

void tile_mul_avx2(const struct tile_product *p)
{
    int j = 0;
    for (; p->n - j >= 16; j += 16)
        tile_strip(p, j, 16, 2);
    if (p->n - j > 8)
        tile_strip(p, j, p->n - j, 2);
    else if (p->n - j > 0)
        tile_strip(p, j, p->n - j, 1);
}

/* age - j of 8 keys from j */
INLINE __m256 ages(int age, int j)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_set1_epi32(age - j), lane));
}

void add_aged_avx2(float *y, const float *x, int n, int age)
{
    for (int j = 0; j < n; j += 8)
        store_some(y + j, n - j,
                   _mm256_fmadd_ps(ages(age, j), load_some(x + j, n - j), load_some(y + j, n - j)));
}

void exp_aged_avx2(float *w, const float *g, int n, int age)
{
    for (int j = 0; j < n; j += 8)
        store_some(w + j, n - j, exp8(_mm256_mul_ps(ages(age, j), load_some(g + j, n - j))));
}

float exp_row_avx2(float *s, int n, float shift)
{
    __m256 sum = _mm256_setzero_ps();
    for (int j = 0; j < n; j += 8) {
        __m256 x = _mm256_sub_ps(load_some(s + j, n - j), _mm256_set1_ps(shift));
        __m256 e = _mm256_and_ps(exp8(x), _mm256_castsi256_ps(lanes8(n - j)));
        store_some(s + j, n - j, e);
        sum = _mm256_add_ps(sum, e);
    }
    return sum8(sum);
}

float max_row_avx2(const float *s, int n)
{
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 max = lowest;
    for (int j = 0; j < n; j += 8) {
        __m256 in = _mm256_castsi256_ps(lanes8(n - j));
        max = _mm256_max_ps(max, _mm256_blendv_ps(lowest, load_some(s + j, n - j), in));
    }
    return max8(max);
}

void mul_avx2(float *x, const float *y, int n)
{
    for (int j = 0; j < n; j += 8)
        store_some(x + j, n - j, _mm256_mul_ps(load_some(x + j, n - j), load_some(y + j, n - j)));
}

void softmax_grad_avx2(float *d, const float *p, int n, float mean)
{
    for (int j = 0; j < n; j += 8) {
        __m256 x = _mm256_sub_ps(load_some(d + j, n - j), _mm256_set1_ps(mean));
        store_some(d + j, n - j, _mm256_mul_ps(load_some(p + j, n - j), x));
    }
}

/* loss_avx2.c - losses of training, 8 lanes. */
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx2.h"

enum { W = 8 };
typedef __m256 vec;
typedef __m256d wide;

INLINE vec v_set(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vec v_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
INLINE vec v_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
INLINE vec v_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
INLINE vec v_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
INLINE vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vec v_exp(vec x)
{
    return exp8(x);
}
INLINE vec v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
INLINE void v_store(float *p, vec x)
{
    _mm256_storeu_ps(p, x);
}
INLINE float v_top(vec x)
{
    return max8(x);
}
INLINE vec v_index(void)
{
    return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

/* left >= 1; the other lanes are 0, or stay */
INLINE vec v_load_first(const float *p, int left)
{
    return _mm256_maskload_ps(p, lanes8(left));
}

INLINE void v_store_first(float *p, int left, vec x)
{
    _mm256_maskstore_ps(p, lanes8(left), x);
}

/* x where sign >= 0, else 0 */
INLINE vec v_keep(vec sign, vec x)
{
    return _mm256_and_ps(_mm256_cmp_ps(sign, _mm256_setzero_ps(), _CMP_GE_OQ), x);
}

INLINE wide wide_zero(void)
{
    return _mm256_setzero_pd();
}
INLINE double wide_total(wide x)
{
    return sum4(x);
}
INLINE wide wide_add(wide sum, vec x)
{
    return add_wide(sum, x);
}

INLINE void v_add_wide(double *to, vec x)
{
    wide lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    wide hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    _mm256_storeu_pd(to, _mm256_add_pd(_mm256_loadu_pd(to), lo));
    _mm256_storeu_pd(to + 4, _mm256_add_pd(_mm256_loadu_pd(to + 4), hi));
}

#include "engine/kernels/x86/loss_rows.h"

DEFINE_LOSS(avx2)

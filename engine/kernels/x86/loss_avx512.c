/* loss_avx512.c - losses of training, 16 lanes. */
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec_avx512.h"

enum { W = 16 };
typedef __m512 vec;
typedef __m512d wide;

INLINE vec v_set(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vec v_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
INLINE vec v_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
INLINE vec v_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
INLINE vec v_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
INLINE vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vec v_exp(vec x)
{
    return exp_ps(x);
}
INLINE vec v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void v_store(float *p, vec x)
{
    _mm512_storeu_ps(p, x);
}
INLINE float v_top(vec x)
{
    return _mm512_reduce_max_ps(x);
}

INLINE vec v_index(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* left >= 1; the other lanes are 0, or stay */
INLINE vec v_load_first(const float *p, int left)
{
    return _mm512_maskz_loadu_ps(lanes(left), p);
}

INLINE void v_store_first(float *p, int left, vec x)
{
    _mm512_mask_storeu_ps(p, lanes(left), x);
}

/* x where sign >= 0, else 0 */
INLINE vec v_keep(vec sign, vec x)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(sign, _mm512_setzero_ps(), _CMP_GE_OQ), x);
}

INLINE wide low(vec x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
INLINE wide high(vec x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
INLINE wide wide_zero(void)
{
    return _mm512_setzero_pd();
}
INLINE double wide_total(wide x)
{
    return _mm512_reduce_add_pd(x);
}

INLINE wide wide_add(wide sum, vec x)
{
    return _mm512_add_pd(_mm512_add_pd(sum, low(x)), high(x));
}

INLINE void v_add_wide(double *to, vec x)
{
    _mm512_storeu_pd(to, _mm512_add_pd(_mm512_loadu_pd(to), low(x)));
    _mm512_storeu_pd(to + 8, _mm512_add_pd(_mm512_loadu_pd(to + 8), high(x)));
}

#include "engine/kernels/x86/loss_rows.h"

DEFINE_LOSS(avx512)

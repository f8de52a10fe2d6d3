/* vec.h - vectors of floats for kernels that are written once for AVX2 and AVX-512.
 *
 * A file of this folder without the name of a set is compiled once for each, with
 * KERNELS_AVX512 set to 0 or 1.  ISA(name) is the name of its function for that set and
 * V(op) an intrinsic for whole vectors.  vec holds W floats, wide W / 2 doubles, lanes
 * says which of W entries are meant.  What differs by more than the width is in
 * vec_avx2.h and vec_avx512.h. */
#ifndef KVF_ENGINE_VEC_H
#define KVF_ENGINE_VEC_H

#include <immintrin.h>
#include <stdint.h>

#include "engine/kernels/x86/unroll.h"
#if KERNELS_AVX512
#include "engine/kernels/x86/vec_avx512.h"
#else
#include "engine/kernels/x86/vec_avx2.h"
#endif

#define v_zero V(setzero_ps)
#define v_set V(set1_ps)
#define v_load V(loadu_ps)
#define v_store V(storeu_ps)
#define v_add V(add_ps)
#define v_sub V(sub_ps)
#define v_mul V(mul_ps)
#define v_div V(div_ps)
#define v_max V(max_ps)
#define v_min V(min_ps)
#define v_fma V(fmadd_ps)   /* a b + c, rounded once */
#define v_fnma V(fnmadd_ps) /* c - a b, rounded once */

#define wide_zero V(setzero_pd)
#define wide_fma V(fmadd_pd)

/* Adds the W floats of x to W / 2 sums: first its lower half, then the upper one. */
INLINE wide wide_add(wide sum, vec x)
{
    return V(add_pd)(V(add_pd)(sum, v_low(x)), v_high(x));
}

/* to[0..W) += x */
INLINE void v_add_wide(double *to, vec x)
{
    V(storeu_pd)(to, V(add_pd)(V(loadu_pd)(to), v_low(x)));
    V(storeu_pd)(to + W / 2, V(add_pd)(V(loadu_pd)(to + W / 2), v_high(x)));
}

#define EXP_LEAST -104.0f /* exp underflows to 0 below */

/* exp(x) for x <= 88: 2^n * P(r), x = n ln 2 + r, |r| <= ln2 / 2, P the Taylor
 * polynomial of degree 7 (remainder below 6e-9). */
INLINE vec v_exp(vec x)
{
    x = v_max(x, v_set(EXP_LEAST));
    vec n = v_round(v_mul(x, v_set(1.44269504f)));
    vec r = v_fnma(n, v_set(0.693359375f), x);
    r = v_fnma(n, v_set(-2.12194440e-4f), r);
    vec p = v_set(1.0f / 5040);
    p = v_fma(p, r, v_set(1.0f / 720));
    p = v_fma(p, r, v_set(1.0f / 120));
    p = v_fma(p, r, v_set(1.0f / 24));
    p = v_fma(p, r, v_set(1.0f / 6));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    return v_scale(p, n);
}

/* 1 + exp(-x), the divisor of the logistic function */
INLINE vec v_one_plus_exp_minus(vec x)
{
    vec minus = v_min(v_sub(v_zero(), x), v_set(88.0f));
    return v_add(v_set(1.0f), v_exp(minus));
}

#endif

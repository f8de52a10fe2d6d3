/* vec.h - float vectors for kernels that are written once for all instruction sets.
 *
 * A file of this folder is compiled once per set. ISA(name) is the name of its function for that
 * set. vec has W floats, wide has W / 2 doubles, and lanes selects some of W entries. Set-specific
 * code is in arm/vec_neon.h, x86/vec_avx2.h and, with KERNELS_AVX512, x86/vec_avx512.h. AVX2 and
 * NEON both have W = 8 and give the same bits. */
#pragma once

#include <stdint.h>

#include "engine/kernels/vector/unroll.h"
#if defined(__aarch64__)
#include "engine/kernels/arm/vec_neon.h"
#elif KERNELS_AVX512
#include "engine/kernels/x86/vec_avx512.h"
#include "engine/kernels/x86/vec_x86.h"
#else
#include "engine/kernels/x86/vec_avx2.h"
#include "engine/kernels/x86/vec_x86.h"
#endif

/* Adds the W floats of x to W / 2 sums: first its lower half, then the upper half. */
INLINE wide wide_add(wide sum, vec x)
{
    return wide_sum(wide_sum(sum, v_low(x)), v_high(x));
}

/* to[0..W) += x */
INLINE void v_add_wide(double *to, vec x)
{
    wide_store(to, wide_sum(wide_load(to), v_low(x)));
    wide_store(to + W / 2, wide_sum(wide_load(to + W / 2), v_high(x)));
}

#if !KERNELS_AVX512
/* Sets the maximum of each of four rows of W floats, ld apart. */
INLINE void v_tops(float *to, const float *rows, size_t ld)
{
    for (size_t r = 0; r < 4; r++)
        to[r] = v_top(v_load(rows + r * ld));
}
#endif

#define EXP_LEAST -104.0f /* exp underflows to 0 below */

/* exp(x) for x <= 88: 2^n * P(r), x = n ln 2 + r, |r| <= ln2 / 2, P the Taylor polynomial of degree
 * 7 (remainder below 6e-9). */
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

/* Returns 1 + exp(-x), the divisor of the logistic function. */
INLINE vec v_one_plus_exp_minus(vec x)
{
    vec minus = v_min(v_sub(v_zero(), x), v_set(88.0f));
    return v_add(v_set(1.0f), v_exp(minus));
}

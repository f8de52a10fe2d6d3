/* vmath.h - vectorised functions. */
#ifndef KVF_BASE_VMATH_H
#define KVF_BASE_VMATH_H

#include <stdint.h>

/* Computes out[i] = expm1(x[i]) within 2 ulp; NaN stays NaN. The last digits may differ from libm,
 * so use it for sums that are rounded, and not where a table has the values of libm. */
void vmath_expm1(const double *restrict x, double *restrict out, int64_t n);

#endif

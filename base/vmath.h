/* vmath.h - functions of many numbers at once. */
#pragma once

#include <stdint.h>

/* out[i] = expm1(x[i]), within 2 units of the last place; NaN stays NaN.  Not the
 * last digits of libm's: for sums that are rounded, where a table has libm's own. */
void vmath_expm1(const double *restrict x, double *restrict out, int64_t n);

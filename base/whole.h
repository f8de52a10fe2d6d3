/* whole.h - integers from reals of a file: the only place where they are converted.
 *
 * In C the conversion of a real beyond the range of the integer is undefined, and a file may have
 * any: 1e300, an infinity, NaN. */
#pragma once

#include <stdint.h>

/* v without its fraction; `otherwise` for NaN and for values beyond int64_t. */
static inline int64_t whole_of(double v, int64_t otherwise)
{
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : otherwise;
}

/* v without its fraction where least <= v <= most, else `otherwise`. */
static inline int64_t whole_within(double v, int64_t least, int64_t most, int64_t otherwise)
{
    int64_t x = whole_of(v, INT64_MIN);
    return v == v && x >= least && x <= most ? x : otherwise;
}

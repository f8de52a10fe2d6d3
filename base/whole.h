/* whole.h - converts reals from files to integers. Other code must not cast them.
 *
 * In C the conversion of a real outside the range of the integer is undefined, and a file may
 * contain any real: 1e300, an infinity, NaN.
 */
#ifndef KVF_BASE_WHOLE_H
#define KVF_BASE_WHOLE_H

#include <stdint.h>

/* Returns v without its fraction; `otherwise` for NaN and for values outside int64_t. */
static inline int64_t whole_of(double v, int64_t otherwise)
{
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : otherwise;
}

/* Returns v without its fraction if the result is within [least, most]; otherwise `otherwise`. */
static inline int64_t whole_within(double v, int64_t least, int64_t most, int64_t otherwise)
{
    int64_t x = whole_of(v, INT64_MIN);
    return v == v && x >= least && x <= most ? x : otherwise;
}

#endif

/* whole.h - whole numbers out of reals that a file holds: the one place where they are converted.
 *
 * C leaves undefined what becomes of a real that the integer cannot hold, and a file may hold any:
 * 1e300, an infinity, NaN. */
#ifndef KVF_BASE_WHOLE_H
#define KVF_BASE_WHOLE_H

#include <stdint.h>

/* v without its fraction; `otherwise` for NaN and for what an int64_t does not hold. */
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

#endif

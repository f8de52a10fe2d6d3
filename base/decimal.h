/* decimal.h - writes numbers as text with the fewest digits that read back equal.
 *
 * The bytes are those of printf() in the C locale. An integer below 1e15 is written as "%.0f"
 * without a minus before zero. Any other number is written as "%.*g" with the smallest precision
 * for which strtod() returns the same double. Most numbers are computed with 128-bit integers
 * instead of printf(), with equal results.
 */
#ifndef KVF_BASE_DECIMAL_H
#define KVF_BASE_DECIMAL_H

#include <stddef.h>

enum { DECIMAL_MAX = 32 }; /* the longest text with its terminator is shorter */

/* Writes v, which must be finite, and a terminator to out. Returns the length of the text. */
size_t decimal_put(double v, char out[DECIMAL_MAX]);

#endif

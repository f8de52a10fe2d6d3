/* decimal.h - numbers as text, as few digits as read back equal.
 *
 * The bytes are equal to printf's: an integer below 1e15 as "%.0f" without a minus before zero,
 * anything else as "%.*g" with the smallest precision that strtod reads back as the same double (C
 * locale).  Most numbers use integers of 128 bits instead of printf; which they are does not
 * show. */
#pragma once

#include <stddef.h>

enum { DECIMAL_MAX = 32 }; /* the longest text and its terminator are shorter */

/* v finite.  Returns the length; out is terminated. */
size_t decimal_put(double v, char out[DECIMAL_MAX]);

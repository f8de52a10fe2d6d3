/* order.h - orders for qsort(). */
#pragma once

#include <string.h>

/* Orders doubles, which must not be NaN, from the smallest to the largest. */
static inline int order_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Orders texts, or structs with a text as the first member, by their bytes. */
static inline int order_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* ints.h - rows of floats as whole numbers with one scale; private to the kernels. */
#ifndef KVF_ENGINE_INTS_H
#define KVF_ENGINE_INTS_H

#include <math.h>
#include <string.h>

#include "engine/kernels/kv_page.h"

/* A row x becomes the integers nearest to x * inverse, and is those times scale; inverse 0: all
 * are 0. */
struct row_unit {
    float scale, inverse;
};

/* size: the largest bits of the row's floats without their signs, where infinity and what is no
 * number are above all others.  As inverse is most / max rounded once, no integer exceeds most. */
static inline struct row_unit row_unit_of(uint32_t size, float most)
{
    float max;
    memcpy(&max, &size, sizeof max);
    if (size >= 0x7f800000u)
        return (struct row_unit){INFINITY, 0};
    if (max < KV_I16_TINY)
        return (struct row_unit){0, 0};
    return (struct row_unit){max / most, most / max};
}

#endif

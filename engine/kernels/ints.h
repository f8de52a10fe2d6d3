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

/* The same with the power of two that takes the largest to INT_WEIGHT / 2 and more, for weights
 * that are made by the page: no division. */
static inline struct row_unit weight_unit_of(float size)
{
    const uint32_t one = 127u << 23, most = 12u << 23;
    uint32_t power, down, up;
    struct row_unit u;
    memcpy(&power, &size, sizeof power);
    power &= 0x7f800000u;
    if (power == 0x7f800000u)
        return (struct row_unit){INFINITY, 0};
    if (power < (127u - 100u) << 23)
        return (struct row_unit){0, 0};
    down = power - most;
    up = 2 * one + most - power;
    memcpy(&u.scale, &down, sizeof down);
    memcpy(&u.inverse, &up, sizeof up);
    return u;
}

/* Weights of 8 bits take the largest, or KV_I16_TINY, to BYTE_WEIGHT. */
#define BYTE_WEIGHT 255.0f
#define BYTE_UNIT (1 / BYTE_WEIGHT)

/* 2^t = 2^n (1 + r (C1 + r (C2 + r (C3 + r C4)))), n <= t, 0 <= r <= 1: 2.9e-6 of it off at most.
 */
#define EXP2_LEAST -126.0f /* lower t count as this one */
#define EXP2_C1 0x1.62d6c6p-1f
#define EXP2_C2 0x1.ee2452p-3f
#define EXP2_C3 0x1.abf868p-5f
#define EXP2_C4 0x1.b7f734p-7f
#define LOG2_E 0x1.715476p+0f

#endif

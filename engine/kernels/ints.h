/* ints.h - converts rows of floats to integers with one scale. Private to the kernels. */
#pragma once

#include <math.h>
#include <string.h>

#include "engine/kernels/kv_page.h"

/* Scale of a row: q = round(x * inverse), x ~ q * scale. With inverse 0 all q are 0. */
struct row_unit {
    float scale, inverse;
};

/* Returns the unit that maps the largest magnitude of a row to the integer `most`. `size` is the
 * maximum of the row's float bit patterns without signs, in which infinity and NaN are largest. No
 * integer exceeds `most`, because inverse is most / max rounded once. */
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

/* Returns the power-of-two unit that maps `size` to INT_WEIGHT / 2 or more. It is used for weights
 * that are computed page by page, and needs no division. */
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

/* 8-bit weights: the unit maps the maximum (or KV_I16_TINY, if larger) to BYTE_WEIGHT. */
#define BYTE_WEIGHT 255.0f
#define BYTE_UNIT (1 / BYTE_WEIGHT)

/* 2^t = 2^n (1 + r (C1 + r (C2 + r (C3 + r C4)))), n <= t, 0 <= r <= 1. Relative error at most
 * 2.9e-6. */
#define EXP2_LEAST -126.0f /* smaller t are replaced by this value */
#define EXP2_C1 0x1.62d6c6p-1f
#define EXP2_C2 0x1.ee2452p-3f
#define EXP2_C3 0x1.abf868p-5f
#define EXP2_C4 0x1.b7f734p-7f
#define LOG2_E 0x1.715476p+0f

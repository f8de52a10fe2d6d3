/* row_sums.h - sums of weights for the selection in row_cuts.h. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/kernels/kernels.h"

/* p + 6 has the ulp MASS_UNIT, so the addition rounds to integer units in the low bits: units =
 * bits(p + 6) - bits(6), for 0 <= p <= 1. */
#define UNIT_ANCHOR 6.0
#define UNIT_ANCHOR_BITS 0x4018000000000000

/* Returns the units of p, 0 <= p <= 1. */
static inline int64_t mass_units(float p)
{
    double x = (double)p + UNIT_ANCHOR;
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits - UNIT_ANCHOR_BITS;
}

static inline int32_t float_bits(float f)
{
    int32_t b;
    memcpy(&b, &f, 4);
    return b;
}

static inline float bits_float(int32_t b)
{
    float f;
    memcpy(&f, &b, 4);
    return f;
}

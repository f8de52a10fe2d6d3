/* draw.h - draws a token from logits. C and the device kernels share this definition, so both draw
 * the same token.
 *
 * The weight of a token is 2^((logit - top) scale), scale = log2(e) / temperature. It is an integer
 * in units of 2^-40 of the largest weight. Its computation uses only sums and products of doubles
 * in a fixed order, which every machine rounds equally. The exp of a library would not guarantee
 * this. Everything else is in integers, so the order of a sum does not matter:
 *
 *   - The candidates are the likeliest tokens (the smaller id first if weights are equal) until
 *     their weights reach draw_wanted() of the sum of all weights.
 *   - With r = draw_rank() of the candidates' weight, the token drawn is the first id at which the
 *     cumulative weight of the candidates exceeds r.
 *
 * Up to 2^20 tokens are supported. Sums stay below 2^61. */
#pragma once

#include <stdint.h>

#include "engine/kernels/formula.h"

enum { DRAW_BITS = 40 }; /* the largest weight is 2^DRAW_BITS */
#define DRAW_LOG2_E 1.4426950408889634

/* Returns e^y for -ln 2 <= y <= 0: the sum of y^k / k! for k = 0 .. 13. */
FORMULA_FN double draw_power(double y)
{
    const double inverse[] = {1.0,     1.0 / 2, 1.0 / 3, 1.0 / 4,  1.0 / 5,  1.0 / 6, 1.0 / 7,
                              1.0 / 8, 1.0 / 9, 0.1,     1.0 / 11, 1.0 / 12, 1.0 / 13};
    double sum = 1;
    for (int k = 12; k >= 0; k--)
        sum = 1 + y * inverse[k] * sum;
    return sum;
}

/* Returns the weight of a logit in units; 0 if it is below one unit or NaN. */
FORMULA_FN uint64_t draw_weight(float logit, float top, double scale)
{
    double x = ((double)logit - (double)top) * scale;
    if (logit == top)
        return (uint64_t)1 << DRAW_BITS;
    if (!(x > -DRAW_BITS))
        return 0;
    int whole = (int)-x;
    double part = draw_power((x + whole) * 0.6931471805599453);
    return (uint64_t)(part * (double)((uint64_t)1 << DRAW_BITS)) >> whole;
}

/* Returns the weight that the candidates must reach together: top_p of the total, at least 1. */
FORMULA_FN uint64_t draw_wanted(uint64_t total, double top_p)
{
    double share = top_p * (double)total;
    uint64_t wanted = (uint64_t)share;
    wanted += (double)wanted < share;
    if (top_p >= 1 || wanted > total)
        return total;
    return wanted > 0 ? wanted : 1;
}

/* Returns how many tokens of the smallest candidate weight are needed to cover the remaining weight
 * `left`. */
FORMULA_FN uint64_t draw_ties(uint64_t left, uint64_t weight)
{
    return (left + weight - 1) / weight;
}

/* Maps u in [0, 1) to a rank in the cumulative weight `kept`. */
FORMULA_FN uint64_t draw_rank(uint64_t kept, double u)
{
    uint64_t rank = (uint64_t)(u * (double)kept);
    return rank < kept ? rank : kept - 1;
}

/* draw.h - which token is drawn from logits: one definition for C and for the kernels of a device,
 * which gives both the same token.
 *
 * The weight of a token is 2^((logit - top) scale), scale = log2(e) / temperature, in whole units
 * of 2^-40 of the largest.  It is made by additions and products of doubles in one order, which
 * every machine rounds alike; exp of a library would not do.  All else are whole numbers, whose
 * sums have no order:
 *   - the tokens that may be drawn are the likeliest (the smaller id among equals) whose weights
 *     reach draw_wanted of the sum of all;
 *   - with r = draw_rank of theirs, the first id at which the sum of their weights exceeds r is
 *     drawn.
 * Up to 2^20 tokens: sums stay below 2^61. */
#ifndef KVF_ENGINE_DRAW_H
#define KVF_ENGINE_DRAW_H

#include <stdint.h>

#include "engine/kernels/formula.h"

enum { DRAW_BITS = 40 }; /* of the largest weight */
#define DRAW_LOG2_E 1.4426950408889634

/* e^y, -ln 2 <= y <= 0, as the sum of y^k / k! to k = 13. */
FORMULA_FN double draw_power(double y)
{
    const double inverse[] = {1.0,     1.0 / 2, 1.0 / 3, 1.0 / 4,  1.0 / 5,  1.0 / 6, 1.0 / 7,
                              1.0 / 8, 1.0 / 9, 0.1,     1.0 / 11, 1.0 / 12, 1.0 / 13};
    double sum = 1;
    for (int k = 12; k >= 0; k--)
        sum = 1 + y * inverse[k] * sum;
    return sum;
}

/* In units; 0 for what is less than one, and for NaN. */
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

/* How much of the sum of all weights those reach that may be drawn. */
FORMULA_FN uint64_t draw_wanted(uint64_t total, double top_p)
{
    double share = top_p * (double)total;
    uint64_t wanted = (uint64_t)share;
    wanted += (double)wanted < share;
    if (top_p >= 1 || wanted > total)
        return total;
    return wanted > 0 ? wanted : 1;
}

/* Of tokens of the least weight that may be drawn, how many: `left` of the weight is theirs. */
FORMULA_FN uint64_t draw_ties(uint64_t left, uint64_t weight)
{
    return (left + weight - 1) / weight;
}

/* Where in the sum of weights a number u of [0, 1) points. */
FORMULA_FN uint64_t draw_rank(uint64_t kept, double u)
{
    uint64_t rank = (uint64_t)(u * (double)kept);
    return rank < kept ? rank : kept - 1;
}

#endif

/* ranking.h - the order in which entries are selected: one definition for C and for CUDA.
 *
 * Candidates for eviction are ordered from worst to best: by score, then by position under a tie
 * rule, then by head.  Weights of an attention row are ordered from largest to smallest, then from
 * newest to oldest.  Both orders are total, so that a selection does not depend on how it is made:
 * base/select.h, the vector kernels (row_cuts), the incremental lists (engine/method/lows.c,
 * peaks.c) and the kernels of engine/cuda (choose.cu, heads.cu, watch_cuts.cu) select the same. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/kernels/formula.h"

enum tie_rule { TIE_NEWER, TIE_OLDER }; /* which of two entries with equal scores is kept */

/* An entry that can be evicted.  score: not NaN. */
struct candidate {
    float score;
    int32_t pos, slot, head; /* head: layer * H + KV head.  (pos, head) is unique. */
};

/* Returns true if x is evicted before y. */
FORMULA_FN bool candidate_worse(const struct candidate *x, const struct candidate *y,
                                enum tie_rule tie)
{
    if (x->score != y->score)
        return x->score < y->score;
    if (x->pos != y->pos)
        return tie == TIE_OLDER ? x->pos > y->pos : x->pos < y->pos;
    return x->head > y->head; /* the lower layer, then the lower head is kept */
}

/* Returns a number that rises with the score: its bits, inverted for negative scores.  -0 counts as
 * 0, and NaN as -infinity. */
FORMULA_FN uint32_t rank_of_score(float score)
{
    uint32_t bits;
    float x = score != score ? -INFINITY : score;
    x = x == 0 ? 0.0f : x;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns a number that rises as candidates with equal scores get better. */
FORMULA_FN uint32_t rank_of_position(int32_t pos, enum tie_rule tie)
{
    return tie == TIE_OLDER ? ~(uint32_t)pos : (uint32_t)pos;
}

/* The order of candidate_worse() as three words: a worse candidate has a smaller key. */
enum { RANK_WORDS = 3 };
struct rank_key {
    uint32_t word[RANK_WORDS];
};

FORMULA_FN struct rank_key rank_key(float score, int32_t pos, int32_t head, enum tie_rule tie)
{
    struct rank_key key = {{rank_of_score(score), rank_of_position(pos, tie), ~(uint32_t)head}};
    return key;
}

/* Returns true if x is worse than y, or equal. */
FORMULA_FN bool rank_key_at_most(const struct rank_key *x, const struct rank_key *y)
{
    for (int w = 0; w < RANK_WORDS; w++)
        if (x->word[w] != y->word[w])
            return x->word[w] < y->word[w];
    return true;
}

/* Returns true if weight p at index i comes before weight q at index j: the larger weight, of equal
 * ones the newer. */
FORMULA_FN bool weight_before(float p, int i, float q, int j)
{
    return p != q ? p > q : i > j;
}

/* Returns true if weight p at index i is in a set of the first weights of a row: those above the
 * threshold, and those equal to it from first_tie on (struct row_cut of kernels.h). */
FORMULA_FN bool weight_in_cut(float threshold, int first_tie, float p, int i)
{
    return p > threshold || (p == threshold && i >= first_tie);
}

/* Returns p in units of 2^-50 (MASS_UNIT of kernels.h), rounded half to even; 0 if p is not a
 * weight.  Sums of integers are exact, so they do not depend on the order of summation. */
FORMULA_FN int64_t mass_units(float p)
{
    return p <= 1 ? (int64_t)llrint((double)p * 0x1p50) : 0;
}

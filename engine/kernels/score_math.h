/* score_math.h - the formulas of scores, evidence and admission, for one entry: one definition for
 * C and for CUDA.
 *
 * engine/method and engine/cuda loop over entries and call these functions, so that both compute
 * the same operations in the same order.  Both are compiled without contraction to fused
 * operations.  docs/reference/methods.md states the equations. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/rng_mix.h"
#include "engine/kernels/formula.h"

/* Retention (TRIM-KV, DBTrimKV).  log sum_{k < N} beta^(e + k) = e b + c for b = log beta <= 0:
 * c = log((1 - e^{N b}) / (1 - e^b)), and log N at b = 0.  Returns c, or NaN if b is NaN. */
FORMULA_FN double formula_retention_sum(double b, int N)
{
    if (N == 1)
        return b != b ? b : 0;
    if (b > -1e-12) /* relative error of log N below 1e-7 */
        return log((double)N);
    return log(expm1((double)N * b) / expm1(b));
}

/* Returns the log of the retention at an age; beta^0 = 1, also if beta = 0. */
FORMULA_FN float formula_retention(int32_t age, double b, double c)
{
    return (float)(age == 0 ? c : (double)age * b + c);
}

/* Returns the KeyDiff score: -cos of the key and the anchor.  dot: their product, with an anchor of
 * length 1.  It has no branch, so that compilers can vectorise it. */
FORMULA_FN float formula_keydiff(float dot, float key_norm)
{
    float length = key_norm > 0 ? key_norm : 1, score = -dot / length;
    return key_norm > 0 ? score : 0;
}

/* Rounds x to a multiple of the unit that `magic` sets: 1.5 * 2^k for units of 2^(k - 52).  Sums of
 * such multiples are exact, so their order does not matter. */
FORMULA_FN double formula_in_units(double x, double magic)
{
    return (x + magic) - magic;
}
/* Returns the magic of sums of `window` weights of n_group query heads, each at most 1. */
FORMULA_FN double formula_sum_magic(int window, int n_group)
{
    double magic = 3;
    while (magic < 1.5 * window * n_group)
        magic *= 2;
    return magic;
}
#define SCORE_KEY_MAGIC 0x1.8p20 /* of the channels of unit keys: units of 2^-32 */

/* Returns the factor that scales a key with this sum of squares to length 1, or 0. */
FORMULA_FN double formula_unit_scale(double square)
{
    return square > 0 ? 1.0 / sqrt(square) : 0;
}

/* How a remembered score and the score of this eviction are combined. */
enum fold_kind { FOLD_MAX, FOLD_AVERAGE, FOLD_SUM };

/* Returns the global score of G-KV (equations 3 to 5). */
FORMULA_FN float formula_fold(enum fold_kind kind, float alpha, float past, float score)
{
    if (kind == FOLD_AVERAGE)
        return alpha * past + (1 - alpha) * score;
    return kind == FOLD_SUM ? alpha * past + score : fmaxf(alpha * past, score);
}

/* Returns by how much RocketKV's second stage compresses `cached` entries: to 2 `reads`, of which
 * it reads one half, and spends the other half on the choice. */
FORMULA_FN double formula_rocket_ratio(int cached, int reads)
{
    return fmax(1, cached / (2.0 * reads));
}

/* Returns lambda I - (1 - lambda) R / max (R-KV). */
FORMULA_FN float formula_against_redundancy(float lambda, float importance, float r, float max)
{
    return lambda * importance - (1 - lambda) * r / max;
}

#define SCORE_SIMILAR 0.5f /* R-KV: keys with a larger cosine are similar */

/* Scissorhands: returns true if the n_group query heads gave the entry less than an even part of
 * their attention to `seen` entries. */
FORMULA_FN bool formula_below_even(float sum, int n_group, int seen)
{
    return sum < (float)n_group / (float)seen;
}

/* Rotates the pair of channels (a, b) by the mean rotation c + i s of expected attention. */
FORMULA_FN void formula_rotate(double *a, double *b, double c, double s)
{
    double x = *a, y = *b;
    *a = c * x - s * y;
    *b = s * x + c * y;
}

/* Returns the expected logit mu . k / sqrt(D) + k^T Sigma k / (2 D), with the model's scale. */
FORMULA_FN float formula_expected_logit(double scale, double dot, double square, int D)
{
    return (float)(scale * dot / sqrt((double)D) + scale * scale * square / (2.0 * (double)D));
}

/* Returns (mean over the group + epsilon) |v|. */
FORMULA_FN float formula_expected(float sum, int n_group, double epsilon, float value_norm)
{
    return (float)(((double)sum / n_group + epsilon) * (double)value_norm);
}

/* Returns the mean plus gamma times the unbiased variance (CAKE) of weights.  sum, square: of the
 * weights, in units of 2^-51
 * (SPREAD_UNIT of kernels.h).  per: 1 / rows.  more: gamma / (rows - 1), or 0 for one row. */
FORMULA_FN float formula_spread(int64_t sum, int64_t square, double per, double more)
{
    const double unit = 0x1p-51;
    double s = (double)sum * unit, mean = s * per, var = (double)square * unit - s * mean;
    return (float)(mean + more * (var > 0 ? var : 0));
}

/* Returns the maximum or the sum of v[i - half .. i + half], as far as these exist among n. */
FORMULA_FN float formula_pooled(const float *v, int i, int n, int half, bool max)
{
    int from = i > half ? i - half : 0, to = i + half < n ? i + half : n - 1;
    float pooled = v[from];
    for (int j = from + 1; j <= to; j++)
        if (!max)
            pooled += v[j];
        else if (v[j] > pooled)
            pooled = v[j];
    return pooled;
}

/* Returns the upper bound of one channel's product for the keys of a page (Quest). */
FORMULA_FN float formula_page_bound(float q, float key_min, float key_max)
{
    return fmaxf(q * key_min, q * key_max);
}

/* Returns a number in [0, 1) that depends on the arguments only; 24 bits. */
FORMULA_FN float formula_random_number(uint64_t seed, int layer, int head, int32_t pos)
{
    uint64_t bits = rng_mix_hash(seed, (uint64_t)layer, (uint64_t)head, (uint64_t)pos);
    return (float)(bits >> 40) * 0x1p-24f;
}

/* Returns the first query that does not see an entry which `steps` queries see.  INT32_MAX means
 * that the entry stays. */
FORMULA_FN int32_t admission_after(int32_t pos, int32_t steps)
{
    return steps < INT32_MAX - pos ? pos + steps : INT32_MAX - 1;
}

/* Returns true if a write gate admits an entry: gate >= tau, or gate > tau. */
FORMULA_FN bool admission_passes(float gate, double tau, bool above)
{
    return above ? (double)gate > tau : (double)gate >= tau;
}

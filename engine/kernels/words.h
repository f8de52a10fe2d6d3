/* words.h - scale of a block of 16-bit integers (packed.h). All instruction sets compute it in the
 * same way. Private to the kernels. */
#pragma once

#include <float.h>
#include <math.h>

#include "engine/kernels/packed.h"

/* Partial sums of squares of a block: lane i sums channels i, i + 8, .. in this order. Each square
 * is exact in double. */
enum { WORDS_LANES = 8 };

/* Returns |x| / most from these sums; 0 if |x| is too small, NaN if a channel is NaN or infinite.
 * Squares of finite floats do not overflow a double. */
static inline float words_scale(const double lane[WORDS_LANES], double most)
{
    double even = (lane[0] + lane[4]) + (lane[2] + lane[6]);
    double sum = even + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    if (!(sum <= DBL_MAX))
        return NAN;
    double norm = sqrt(sum);
    return norm < WORDS_TINY ? 0 : (float)(norm / most);
}

/* Bytes of a (panel, block). */
enum { WORDS_BYTES = PANEL * WBLOCK * 2 };

/* Writes row `row` of a packed matrix from its n_blocks * 64 channels. */
void pack_words_row(struct packed *w, int row, const float *v);

/* Returns the factor for the channels; 0 if all of them are 0. */
static inline float words_inverse(float scale)
{
    return scale > 0 ? 1 / scale : 0;
}

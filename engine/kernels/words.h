/* words.h - private to the kernels: the scale of a block of integers of 16 bits (packed.h), which
 * every set of kernels finds in the same way. */
#ifndef KVF_ENGINE_WORDS_H
#define KVF_ENGINE_WORDS_H

#include <float.h>
#include <math.h>

#include "engine/kernels/packed.h"

/* Sums of squares of a block: lane i has those of channels i, i + 8 .. in this order, where each
 * square of a float is exact. */
enum { WORDS_LANES = 8 };

/* |x| / most from these sums; 0 where |x| is too small, and no number where a channel is none or
 * is infinite, since squares of floats are far from infinity otherwise. */
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

/* Row `row` of a packed matrix from its n_blocks * 64 channels. */
void pack_words_row(struct packed *w, int row, const float *v);

/* What channels are multiplied with; 0: all of them are 0. */
static inline float words_inverse(float scale)
{
    return scale > 0 ? 1 / scale : 0;
}

#endif

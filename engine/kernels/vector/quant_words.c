/* quant_words.c - quantises rows to 16-bit integers. */
#include <string.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"
#include "engine/kernels/words.h"

enum { WIDE_SUMS = 16 / W }; /* of W / 2 lanes each */

INLINE void quant_block(int16_t *q, float *scale, const float *x)
{
    wide sum[WIDE_SUMS];
    double lane[WORDS_LANES];
    UNROLL
    for (int i = 0; i < WIDE_SUMS; i++)
        sum[i] = wide_zero();
    UNROLL
    for (int i = 0; i < WBLOCK; i += W) {
        vec v = v_load(x + i);
        wide low = v_low(v), high = v_high(v);
        sum[0] = wide_fma(low, low, sum[0]);
        sum[WIDE_SUMS - 1] = wide_fma(high, high, sum[WIDE_SUMS - 1]);
    }
    UNROLL
    for (int i = 0; i < WIDE_SUMS; i++)
        wide_store(lane + i * (W / 2), sum[i]);
    *scale = words_scale(lane, WORDS_NORM_X);
    float inverse = words_inverse(*scale);
    if (!(inverse > 0)) {
        memset(q, 0, WBLOCK * sizeof *q);
        return;
    }
    vec by = v_set(inverse);
    UNROLL
    for (int i = 0; i < WBLOCK; i += 2 * W)
        v_store_words(q + i, v_mul(v_load(x + i), by), v_mul(v_load(x + i + W), by));
}

void ISA(quant_words)(struct wrows *out, const float *x, int T, int K)
{
    size_t whole = (size_t)(K / WBLOCK), nb = words_blocks(K);
    int16_t *q = out->q;
    float *scale = out->scale;
    for (int t = 0; t < T; t++, x += K, q += nb * WBLOCK, scale += nb) {
        for (size_t b = 0; b < whole; b++)
            quant_block(q + b * WBLOCK, scale + b, x + b * WBLOCK);
        if (whole < nb) {
            float last[WBLOCK] = {0};
            memcpy(last, x + whole * WBLOCK, (size_t)(K % WBLOCK) * sizeof *last);
            quant_block(q + whole * WBLOCK, scale + whole, last);
        }
    }
}

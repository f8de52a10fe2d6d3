/* pack_words.c - packs float weights as 16-bit integers. */
#include <string.h>

#include "engine/kernels/words.h"

/* Returns the smallest bf16 that is >= f, f >= 0. */
static uint16_t brain_above(float f)
{
    uint32_t bits;
    if (f != f)
        return 0x7fc0;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0xffff) >> 16);
}

static uint16_t block_scale(const float *v)
{
    double lane[WORDS_LANES] = {0};
    float most = 0, lane_most[WORDS_LANES] = {0};
    for (int i = 0; i < WBLOCK; i += WORDS_LANES)
        for (int l = 0; l < WORDS_LANES; l++)
            lane[l] += (double)v[i + l] * (double)v[i + l];
    for (int i = 0; i < WBLOCK; i += WORDS_LANES)
        for (int l = 0; l < WORDS_LANES; l++)
            lane_most[l] = fabsf(v[i + l]) > lane_most[l] ? fabsf(v[i + l]) : lane_most[l];
    for (int l = 0; l < WORDS_LANES; l++)
        most = lane_most[l] > most ? lane_most[l] : most;
    float scale = words_scale(lane, WORDS_NORM_W), least = most / WORDS_MOST_W;
    return brain_above(scale > 0 && scale < least ? least : scale);
}

/* Rounds |x| <= 2^22 half to even: the ulp of the sum is 1. */
static float round_even(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

void pack_words_row(struct packed *w, int row, const float *v)
{
    int16_t q[WBLOCK];
    int r = row % PANEL;
    for (size_t b = 0; b < (size_t)w->n_blocks; b++, v += WBLOCK) {
        size_t at = (size_t)(row / PANEL) * (size_t)w->n_blocks + b;
        uint16_t scale = block_scale(v);
        float inverse = words_inverse(brain_to_float(scale));
        for (int i = 0; i < WBLOCK; i++)
            q[i] = (int16_t)(inverse > 0 ? round_even(v[i] * inverse) : 0);
        w->scale[at * PANEL + (size_t)r] = scale;
        uint8_t *to = w->data + at * WORDS_BYTES + r * 4;
        for (int i = 0; i < WBLOCK / 2; i++)
            memcpy(to + i * PANEL * 4, q + 2 * i, 4);
    }
}

/* quantise.c - quantizes rows of floats to F32, F16, Q8_0 and Q4_1. */
#include <math.h>
#include <string.h>

#include "engine/model/quantise.h"

enum { BLOCK = 32 };

static unsigned char *put_half(unsigned char *out, float f)
{
    uint16_t h = float_to_half(f);
    memcpy(out, &h, sizeof h);
    return out + sizeof h;
}

static unsigned char *block_q8_0(unsigned char *out, const float *x)
{
    float most = 0;
    for (int i = 0; i < BLOCK; i++)
        most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, by = d > 0 ? 1 / d : 0;
    out = put_half(out, d);
    for (int i = 0; i < BLOCK; i++)
        *out++ = (unsigned char)(int8_t)roundf(x[i] * by);
    return out;
}

/* Returns a level from 0 to 15. */
static unsigned level(float x, float least, float by)
{
    unsigned q = (unsigned)((x - least) * by + 0.5f);
    return q < 15 ? q : 15;
}

static unsigned char *block_q4_1(unsigned char *out, const float *x)
{
    float least = x[0], most = x[0];
    for (int i = 1; i < BLOCK; i++) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
    }
    float d = (most - least) / 15, by = d > 0 ? 1 / d : 0;
    out = put_half(put_half(out, d), least);
    for (int i = 0; i < BLOCK / 2; i++)
        *out++ = (unsigned char)(level(x[i], least, by) | level(x[i + BLOCK / 2], least, by) << 4);
    return out;
}

void weight_quantise(void *out, const float *x, enum weight_type type, size_t n)
{
    unsigned char *to = out;
    if (type == WEIGHT_F32) {
        memcpy(out, x, n * sizeof *x);
        return;
    }
    if (type == WEIGHT_F16)
        for (size_t i = 0; i < n; i++)
            to = put_half(to, x[i]);
    for (size_t i = 0; type == WEIGHT_Q8_0 && i < n; i += BLOCK)
        to = block_q8_0(to, x + i);
    for (size_t i = 0; type == WEIGHT_Q4_1 && i < n; i += BLOCK)
        to = block_q4_1(to, x + i);
    for (size_t i = 0; type == WEIGHT_Q4_K && i < n; i += 256, to += 144)
        weight_quantise_q4_k(to, x + i);
}

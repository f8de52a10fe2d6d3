/* quantise_k.c - quantizes to Q4_K as the reference quantizer of ggml does. Each of eight spans of
 * 32 values is x = scale level - offset with levels 0 to 15. Scale and offset have the smallest
 * weighted squared error of 21 ways of rounding. They are then stored in 6 bits each, in units of
 * the block. */
#include <math.h>
#include <string.h>

#include "engine/model/quantise.h"

enum { SPAN = 32, SPANS = 8, MOST = 15, MOST_SCALE = 63, TRIES = 21 };

struct span {
    float scale, offset; /* offset >= 0 */
};

static int nearest(float x, int most)
{
    int n = (int)nearbyintf(x);
    n = n < most ? n : most;
    return n > 0 ? n : 0;
}

/* Levels of a span, computed with an inverse scale and a minimum, and the data for their weighted
 * squared error. */
struct fit {
    const float *x, *w; /* [SPAN] */
    float inverse, least;
    int level[SPAN];
};

static void round_levels(struct fit *f)
{
    for (int i = 0; i < SPAN; i++)
        f->level[i] = nearest(f->inverse * (f->x[i] - f->least), MOST);
}

static float error_of(const struct fit *f, float scale, float least)
{
    float sum = 0;
    for (int i = 0; i < SPAN; i++) {
        float off = scale * (float)f->level[i] + least - f->x[i];
        sum += f->w[i] * (off * off);
    }
    return sum;
}

/* Computes the scale and minimum with the smallest error for given levels. Returns false if there
 * is no solution. */
static bool solve(const struct fit *f, float *scale, float *least)
{
    float w = 0, wx = 0, l = 0, l2 = 0, xl = 0;
    for (int i = 0; i < SPAN; i++) {
        float level = (float)f->level[i];
        w += f->w[i];
        wx += f->w[i] * f->x[i];
        l += f->w[i] * level;
        l2 += f->w[i] * level * level;
        xl += f->w[i] * level * f->x[i];
    }
    float det = w * l2 - l * l;
    if (!(det > 0))
        return false;
    *scale = (w * xl - wx * l) / det;
    *least = (l2 * wx - l * xl) / det;
    if (*least > 0) {
        *least = 0;
        *scale = xl / l2;
    }
    return true;
}

/* Sets weights that increase with the distance of a value from 0. */
static void weigh(const float *x, float *w)
{
    float square = 0;
    for (int i = 0; i < SPAN; i++)
        square += x[i] * x[i];
    float mean = sqrtf(square / SPAN);
    for (int i = 0; i < SPAN; i++)
        w[i] = mean + fabsf(x[i]);
}

static struct span fit_span(const float *x)
{
    float w[SPAN], least = fminf(x[0], 0), most = x[0];
    weigh(x, w);
    for (int i = 1; i < SPAN; i++) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
    }
    if (most == least)
        return (struct span){0, -least};
    struct fit f = {x, w, MOST / (most - least), least, {0}};
    struct span best = {1 / f.inverse, -least};
    round_levels(&f);
    float error = error_of(&f, best.scale, least);
    for (int i = 0; i < TRIES; i++) {
        float scale, from;
        f.inverse = (-1.0f + 0.1f * (float)i + MOST) / (most - f.least);
        round_levels(&f);
        if (!solve(&f, &scale, &from))
            continue;
        float now = error_of(&f, scale, from);
        if (now < error) {
            error = now;
            f.least = from; /* start of the next tries */
            best = (struct span){scale, -from};
        }
    }
    return best;
}

/* Stores pair j of 6-bit values in 12 bytes: low bits of the first four pairs, then the rest. */
static void put_pair(unsigned char *to, int j, int scale, int offset)
{
    if (j < 4) {
        to[j] = (unsigned char)scale;
        to[j + 4] = (unsigned char)offset;
        return;
    }
    to[j + 4] = (unsigned char)((scale & 15) | (offset & 15) << 4);
    to[j - 4] |= (unsigned char)(scale >> 4 << 6);
    to[j] |= (unsigned char)(offset >> 4 << 6);
}

/* Stores the levels of a span for the scales that a reader decodes; two spans share their bytes. */
static void put_levels(unsigned char *to, const float *x, int j, float scale, float offset)
{
    for (int i = 0; scale != 0 && i < SPAN; i++) {
        int level = nearest((x[i] + offset) / scale, MOST);
        to[j / 2 * SPAN + i] |= (unsigned char)(level << j % 2 * 4);
    }
}

void weight_quantise_q4_k(void *out, const float *x)
{
    unsigned char *to = out;
    struct span span[SPANS];
    float scale = 0, offset = 0;
    memset(to, 0, 144);
    for (int j = 0; j < SPANS; j++) {
        span[j] = fit_span(x + j * SPAN);
        scale = fmaxf(scale, span[j].scale);
        offset = fmaxf(offset, span[j].offset);
    }
    uint16_t unit[] = {float_to_half(scale / MOST_SCALE), float_to_half(offset / MOST_SCALE)};
    float s = scale > 0 ? MOST_SCALE / scale : 0, o = offset > 0 ? MOST_SCALE / offset : 0;
    memcpy(to, unit, sizeof unit);
    for (int j = 0; j < SPANS; j++) {
        int of_scale = nearest(s * span[j].scale, MOST_SCALE);
        int of_offset = nearest(o * span[j].offset, MOST_SCALE);
        put_pair(to + 4, j, of_scale, of_offset);
        put_levels(to + 16, x + j * SPAN, j, half_to_float(unit[0]) * (float)of_scale,
                   half_to_float(unit[1]) * (float)of_offset);
    }
}

/* clamp.h - numbers held within a range. */
#ifndef KVF_RENDER_CLAMP_H
#define KVF_RENDER_CLAMP_H

/* v, or the end of [lo, hi] that it lies beyond; NaN stays. */
static inline double clamp(double v, double lo, double hi)
{
    if (v < lo)
        return lo;
    return v > hi ? hi : v;
}

static inline long clamp_whole(long v, long lo, long hi)
{
    if (v < lo)
        return lo;
    return v > hi ? hi : v;
}

#endif

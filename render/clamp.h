/* clamp.h - functions that limit a number to a range. */
#pragma once

/* Returns v limited to [lo, hi]; NaN stays NaN. */
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

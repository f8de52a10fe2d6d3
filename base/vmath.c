/* vmath.c - expm1 of arrays (vmath.h). */
#include <math.h>
#include <string.h>

#include "base/vmath.h"

/* Computes expm1(x) with x = k ln 2 + r, |r| <= ln 2 / 2: expm1(x) = 2^k expm1(r) + (2^k - 1), and
 * expm1(r) by its series, whose next term is less than 2e-17 of it. It is -1 for x <= -40; above
 * 700, 2^k may overflow. There are no branches, so that loops are vectorised. */
static inline double expm1_of(double x)
{
    const double magic = 0x1.8p52; /* adding it rounds to an integer */
    uint64_t bits;
    x = x < -40 ? -40 : x;
    double whole = x * 0x1.71547652b82fep0 + magic, k = whole - magic, scale;
    /* the first constant has 32 bits */
    double r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    double r2 = r * r, r4 = r2 * r2; /* four independent chains of operations */
    double a = (1. / 3628800 * r4 + 1. / 720) * r4 + 1. / 2;
    double b = (1. / 39916800 * r4 + 1. / 5040) * r4 + 1. / 6;
    double c = (1. / 479001600 * r4 + 1. / 40320) * r4 + 1. / 24;
    double d = (1. / 6227020800 * r4 + 1. / 362880) * r4 + 1. / 120;
    double series = ((a + b * r) + (c + d * r) * r2) * r2 + r;
    memcpy(&bits, &whole, sizeof bits);
    bits = (bits + 1023) << 52; /* shifts out the bits of magic */
    memcpy(&scale, &bits, sizeof scale);
    return scale * series + (scale - 1);
}

#define EXPM1(name, attribute)                                                                     \
    attribute static void name(const double *restrict x, double *restrict out, int64_t n)          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i] = expm1_of(x[i]);                                                               \
    }
EXPM1(expm1_plain, )
#if defined(__x86_64__)
EXPM1(expm1_avx2, __attribute__((target("avx2"))))
#endif
#undef EXPM1

void vmath_expm1(const double *restrict x, double *restrict out, int64_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        expm1_avx2(x, out, n);
    else
#endif
        expm1_plain(x, out, n);
    int64_t large = 0;
    for (int64_t i = 0; i < n; i++)
        large |= x[i] > 700;
    for (int64_t i = 0; large && i < n; i++)
        if (x[i] > 700)
            out[i] = expm1(x[i]);
}

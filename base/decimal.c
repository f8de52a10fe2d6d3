/* decimal.c - writes decimal numbers independently of the locale (decimal.h). */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"

/* Writes an integer, two digits at a time from the right. out is not terminated. Returns the
 * length. */
static size_t put_whole(uint64_t u, char *out)
{
    static const char pair[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
        "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
        "888990919293949596979899";
    char text[20];
    size_t at = sizeof text;
    for (; u >= 100; u /= 100) {
        at -= 2;
        memcpy(text + at, pair + 2 * (u % 100), 2);
    }
    if (u >= 10) {
        at -= 2;
        memcpy(text + at, pair + 2 * u, 2);
    } else {
        text[--at] = (char)('0' + u);
    }
    memcpy(out, text + at, sizeof text - at);
    return sizeof text - at;
}

/* Writes v by the definition in decimal.h. The caller has written the sign. */
static size_t put_slowly(double v, char *out)
{
    int len = 0;
    for (int digits = 1; digits <= 17; digits++) {
        len = snprintf(out, DECIMAL_MAX - 1, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    return (size_t)len;
}

#ifdef __SIZEOF_INT128__
__extension__ typedef unsigned __int128 u128;

/* Return floor(log2(10^k)) for |k| < 350, and floor(log10(2^b)) for exponents b of a double. */
static int log2_of_10(int k)
{
    return (k * 217706) >> 16;
}
static int log10_of_2(int b)
{
    return (b * 78913) >> 18;
}

/* Returns p with 10^k = p 2^(log2_of_10(k) - 127), rounded down by less than two units. With k =
 * 27 q + r, it is 10^(27 q), rounded down to 128 bits, times 5^r, which is exact. */
static u128 power_of_10(int k)
{
    enum { FIRST = -11, STEP = 27 };
    static const uint64_t coarse[][2] = {
        {0xa76c582338ed2621, 0xaf2af2b80af6f24e}, {0x873e4f75e2224e68, 0x5a7744a6e804a291},
        {0xda7f5bf590966848, 0xaf39a475506a899e}, {0xb080392cc4349dec, 0xbd8d794d96aacfb3},
        {0x8e938662882af53e, 0x547eb47b7282ee9c}, {0xe65829b3046b0afa, 0x0cb4a5a3112a5112},
        {0xba121a4650e4ddeb, 0x92f34d62616ce413}, {0x964e858c91ba2655, 0x3a6a07f8d510f86f},
        {0xf2d56790ab41c2a2, 0xfae27299423fb9c3}, {0xc428d05aa4751e4c, 0xaa97e14c3c26b886},
        {0x9e74d1b791e07e48, 0x775ea264cf55347d}, {0x8000000000000000, 0x0000000000000000},
        {0xcecb8f27f4200f3a, 0x0000000000000000}, {0xa70c3c40a64e6c51, 0x999090b65f67d924},
        {0x86f0ac99b4e8dafd, 0x69a028bb3ded71a3}, {0xda01ee641a708de9, 0xe80e6f4820cc9495},
        {0xb01ae745b101e9e4, 0x5ec05dcff72e7f8f}, {0x8e41ade9fbebc27d, 0x14588f13be847307},
        {0xe5d3ef282a242e81, 0x8f1668c8a86da5fa}, {0xb9a74a0637ce2ee1, 0x6d953e2bd7173692},
        {0x95f83d0a1fb69cd9, 0x4abdaf101564f98e}, {0xf24a01a73cf2dccf, 0xbc633b39673c8cec},
        {0xc3b8358109e84f07, 0x0a862f80ec4700c8}, {0x9e19db92b4e31ba9, 0x6c07a2c26a8346d1},
    };
    static const uint64_t five[STEP] = {1,
                                        5,
                                        25,
                                        125,
                                        625,
                                        3125,
                                        15625,
                                        78125,
                                        390625,
                                        1953125,
                                        9765625,
                                        48828125,
                                        244140625,
                                        1220703125,
                                        6103515625,
                                        30517578125,
                                        152587890625,
                                        762939453125,
                                        3814697265625,
                                        19073486328125,
                                        95367431640625,
                                        476837158203125,
                                        2384185791015625,
                                        11920928955078125,
                                        59604644775390625,
                                        298023223876953125,
                                        1490116119384765625};
    int q = (k - FIRST * STEP) / STEP, r = (k - FIRST * STEP) % STEP;
    uint64_t f = five[r] << __builtin_clzll(five[r]);
    u128 low = (u128)coarse[q][1] * f;
    u128 high = (u128)coarse[q][0] * f + (uint64_t)(low >> 64);
    return high >> 127 ? high : high << 1 | ((uint64_t)low >> 63);
}

/* The value v = m 2^e scaled by 10^k, in units of 2^-64: w = v 10^k, and half the distance to the
 * next double. Both are rounded down by less than SLACK. */
struct scaled {
    u128 w, half;
    bool exact;    /* w is not rounded */
    bool lopsided; /* v is a power of two, so the double below is half as far as the one above */
};

enum { SLACK = 4 };

static struct scaled scale(uint64_t m, int e, bool lopsided, int k)
{
    int s = __builtin_clzll(m);
    u128 p = power_of_10(k);
    m <<= s;
    u128 low = (u128)(uint64_t)p * m;
    u128 high = (u128)(uint64_t)(p >> 64) * m + (uint64_t)(low >> 64);
    /* high : (uint64_t)low is m p, and v 10^k = m p 2^-shift */
    int shift = -(e - s + log2_of_10(k) - 127), drop = shift - 128;
    struct scaled x = {
        .w = high >> drop, .half = p >> (shift - 64 - (s - 1)), .lopsided = lopsided};
    x.exact = k >= 0 && k < 54 && x.w << drop == high && !(uint64_t)low; /* 5^53 < 2^128 */
    return x;
}

/* Decides if the number at distance err from v (known within SLACK) is read back as v. Returns 1,
 * 0, or -1 if this arithmetic cannot decide. */
static int reads_back(u128 err, u128 half)
{
    if (err + SLACK < half)
        return 1;
    return err > half + 2 * SLACK ? 0 : -1;
}

/* Finds the smallest number of digits: digits * 10^drop is within the interval around w, a number
 * of 17 digits. Returns false if this arithmetic cannot decide. */
static bool shortest(const struct scaled *x, uint64_t *ret_digits, int *ret_drop)
{
    uint64_t left = (uint64_t)(x->w >> 64), unit = 1;
    u128 rest = (uint64_t)x->w; /* w = left * unit + rest */
    u128 below = x->lopsided ? x->half >> 1 : x->half;
    bool found = false;
    for (int drop = 0; drop <= 16; drop++) {
        u128 whole = (u128)unit << 64;
        /* ties to even, as printf() */
        bool up = rest > whole >> 1 || (rest == whole >> 1 && left & 1);
        if (!x->exact && rest + SLACK >= whole >> 1 && rest <= (whole >> 1) + SLACK
            && reads_back(whole >> 1, x->half) != 0) /* cannot decide between the two neighbours */
            return false;
        int ok = reads_back(up ? whole - rest : rest, up ? x->half : below);
        if (ok < 0)
            return false;
        if (ok) {
            *ret_digits = left + up;
            *ret_drop = drop;
            found = true;
        } else if (!x->lopsided) { /* fewer digits are not nearer */
            break;
        }
        rest += (u128)(left % 10 * unit) << 64;
        left /= 10;
        unit *= 10;
    }
    return found;
}

/* Writes a number as "%.*g" with n digits does. text has its digits without trailing zeros;
 * exponent is that of the first digit. */
static size_t put_digits(const char *text, int len, int n, int exponent, char *out)
{
    char *p = out;
    if (exponent >= -4 && exponent < 0) {
        memcpy(p, "0.000", 5);
        p += 1 - exponent;
        memcpy(p, text, (size_t)len);
        p += len;
    } else if (exponent >= 0 && exponent < n) {
        int before = exponent + 1 < len ? exponent + 1 : len;
        memcpy(p, text, (size_t)before);
        memset(p + before, '0', (size_t)(exponent + 1 - before));
        p += exponent + 1;
        if (len > before) {
            *p++ = '.';
            memcpy(p, text + before, (size_t)(len - before));
            p += len - before;
        }
    } else {
        *p++ = text[0];
        if (len > 1) {
            *p++ = '.';
            memcpy(p, text + 1, (size_t)len - 1);
            p += len - 1;
        }
        *p++ = 'e';
        *p++ = exponent < 0 ? '-' : '+';
        exponent = exponent < 0 ? -exponent : exponent;
        if (exponent < 10)
            *p++ = '0';
        p += put_whole((uint64_t)exponent, p);
    }
    *p = 0;
    return (size_t)(p - out);
}

/* Writes v > 0 with 128-bit integers. Returns 0 if this arithmetic cannot decide. */
static size_t put_quickly(double v, char *out)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    int biased = (int)(bits >> 52);
    uint64_t m = bits & ((UINT64_C(1) << 52) - 1);
    bool lopsided = m == 0 && biased > 1;
    if (biased)
        m |= UINT64_C(1) << 52;
    int e = (biased ? biased : 1) - 1075;
    int exponent = log10_of_2(e + 63 - __builtin_clzll(m)); /* the exponent, or one less */
    struct scaled x = scale(m, e, lopsided, 16 - exponent);
    if ((uint64_t)(x.w >> 64) >= UINT64_C(100000000000000000))
        x = scale(m, e, lopsided, 16 - ++exponent);
    uint64_t digits = 0;
    int drop = 0;
    if (!shortest(&x, &digits, &drop))
        return 0;
    int n = 17 - drop;
    while (digits % 10 == 0) {
        digits /= 10;
        drop++;
    }
    char text[20];
    int len = (int)put_whole(digits, text);
    return put_digits(text, len, n, exponent + len + drop - 17, out);
}
#else
static size_t put_quickly(double v, char *out)
{
    (void)v;
    (void)out;
    return 0;
}
#endif

size_t decimal_put(double v, char out[DECIMAL_MAX])
{
    size_t sign = 0;
    if (v < 0) {
        *out++ = '-';
        v = -v;
        sign = 1;
    }
    if (v < 1e15 && v == (double)(uint64_t)v) {
        size_t n = put_whole((uint64_t)v, out);
        out[n] = 0;
        return sign + n;
    }
    size_t n = put_quickly(v, out);
    return sign + (n ? n : put_slowly(v, out));
}

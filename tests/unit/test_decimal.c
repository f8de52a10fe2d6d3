/* test_decimal.c - numbers as text compared with printf and strtod digit by digit. */
#include <float.h>

#include "base/decimal.h"
#include "tests/suite.h"

static void definition(double v, char out[64])
{
    if (v == floor(v) && fabs(v) < 1e15) {
        snprintf(out, 64, "%.0f", v + 0.0);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, 64, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            return;
    }
}

static long differ;

static void same(double v)
{
    char got[DECIMAL_MAX + 1], want[64];
    memset(got, 'x', sizeof got);
    definition(v, want);
    size_t n = decimal_put(v, got);
    if (n != strlen(want) || memcmp(got, want, n + 1) != 0)
        cr_expect(differ++ > 20, "%a: %s, not %s", v, got, want);
}

static double of_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Tests v, its neighbours and their negatives. */
static void around(double v)
{
    double low = nextafter(v, 0), high = nextafter(v, INFINITY);
    same(v);
    same(-v);
    same(low);
    if (isfinite(high))
        same(high);
}

Test(decimal, written_by_hand)
{
    static const struct {
        double v;
        const char *text;
    } is[] = {{0, "0"},
              {-0.0, "0"},
              {7, "7"},
              {-10, "-10"},
              {0.5, "0.5"},
              {-0.1, "-0.1"},
              {123456.75, "123456.75"},
              {1e-4, "0.0001"},
              {1e-5, "1e-05"},
              {1.25e-7, "1.25e-07"},
              {999999999999999, "999999999999999"},
              {1e15, "1e+15"},
              {1e23, "1e+23"},
              {1234567890123456, "1234567890123456"},
              {4.9406564584124654e-324, "5e-324"},
              {DBL_MAX, "1.7976931348623157e+308"},
              {DBL_MIN, "2.2250738585072014e-308"},
              {(double)0.1f, "0.10000000149011612"},
              {9007199254740993e3, "9.007199254740993e+18"}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        char got[DECIMAL_MAX];
        cr_expect(eq(sz, decimal_put(is[i].v, got), strlen(is[i].text)));
        cr_expect(eq(str, got, (char *)is[i].text));
    }
}

/* The distance to the next smaller double of a power of two is half that to the next larger one. */
Test(decimal, powers_of_two_and_of_ten)
{
    for (int e = -1074; e < 1024; e++)
        around(ldexp(1, e));
    for (int e = -323; e <= 308; e++) {
        char text[32];
        for (int m = 1; m < 100; m++) {
            snprintf(text, sizeof text, "%de%d", m, e);
            double v = strtod(text, NULL);
            if (isfinite(v) && (m < 10 || e % 7 == 0))
                around(v);
        }
    }
}

Test(decimal, random_bits_of_every_exponent)
{
    struct rng r = rng_seeded(1);
    for (int i = 0; i < 15000; i++) {
        uint64_t bits = rng_next(&r);
        double v = of_bits(bits);
        if (isfinite(v))
            same(v);
        same(of_bits(bits & ((UINT64_C(1) << 52) - 1))); /* subnormal */
        same(of_bits(bits >> (12 + rng_below(&r, 52)))); /* few significant bits */
    }
}

Test(decimal, random_numbers_as_tables_have_them)
{
    struct rng r = rng_seeded(2);
    for (int i = 0; i < 8000; i++) {
        double u = rng_uniform(&r), n = rng_normal(&r);
        same(u);
        same((double)(float)n);
        same(floor(u * 1e6) / 1000);
        same(floor(n * 1e4) / 1e4);
        same((double)rng_below(&r, 1000) / (double)(1 + rng_below(&r, 1000)));
        same((double)(rng_next(&r) >> rng_below(&r, 60))); /* integers on both sides of 1e15 */
        same(ldexp((double)rng_below(&r, 1 << 20), -(int)rng_below(&r, 30)));
    }
}

/* Ties: short decimals midway between two doubles or two texts. */
Test(decimal, ties)
{
    for (uint64_t m = (UINT64_C(1) << 52); m < (UINT64_C(1) << 52) + 2000; m++)
        for (int e = -60; e <= 12; e += 4)
            same(ldexp((double)m, e));
    for (uint64_t m = UINT64_C(1) << 53; m < (UINT64_C(1) << 53) + 4000; m += 2)
        same((double)(m * 5));
    for (int e = 1; e < 25; e++)
        for (int m = 1; m < 2000; m += 2)
            same((double)m * pow(5, e));
}

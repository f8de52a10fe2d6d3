/* test_quant_rows.c - rows of activations as bytes. */
#include "variants.h"

enum { T = 7, K = 96, BLOCKS = T * K / 32 };

/* The output buffers of quant_rows, with guards. */
struct made {
    struct qrows x;
};

static void make(struct made *m, const struct kernels *k, const float *x, bool hi_alone, int lowest)
{
    m->x = (struct qrows){.q = guard((hi_alone ? 1 : 2) * T * K),
                          .scale = guard(BLOCKS * 4),
                          .sum = guard(BLOCKS * 4),
                          .half = guard(BLOCKS * 8),
                          .K = K,
                          .hi_alone = hi_alone,
                          .lowest = lowest};
    k->quant_rows(&m->x, x, T, K);
}

static int number(const struct qrows *q, int b, int j)
{
    if (q->hi_alone)
        return q->q[b * 32 + j];
    return 256 * q->q[b * 64 + j] + q->q[b * 64 + 32 + j];
}

static void check_sums(const struct qrows *q, int b, const int sum[2], double unit)
{
    int all = sum[0] + sum[1];
    if (q->hi_alone && q->lowest) {
        cr_expect(eq(i32, q->low[b], q->lowest * all));
        cr_expect(eq(i32, q->half_low[2 * b], q->lowest * sum[0]));
        cr_expect(eq(i32, q->half_low[2 * b + 1], q->lowest * sum[1]));
        return;
    }
    cr_expect(fabs((double)q->sum[b] - all * unit) <= 1e-6 * abs(all) * unit);
    for (int h = 0; h < 2; h++)
        cr_expect(fabs((double)q->half[2 * b + h] - sum[h] * unit) <= 1e-6 * abs(sum[h]) * unit);
}

static void check_block(const struct qrows *q, const float *x, int b, const char *name)
{
    int sum[2] = {0, 0};
    double max = 0;
    for (int j = 0; j < 32; j++) {
        max = fmax(max, fabs((double)x[b * 32 + j]));
        sum[j / 16] += number(q, b, j);
    }
    if (max < 1e-30) /* counts as 0 */
        max = 0;
    double unit = max / (q->hi_alone ? 127 : 32512);
    cr_expect(fabs((double)q->scale[b] - unit) <= 1e-7 * unit);
    check_sums(q, b, sum, unit);
    for (int j = 0; j < 32; j++) {
        double steps = max > 0 ? (double)x[b * 32 + j] / unit : 0;
        int got = number(q, b, j);
        cr_expect(fabs(steps - got) <= 0.5 + 4e-3, "%s: %g -> %d", name, steps, got);
    }
}

/* With 16 bits, with 8 bits, and with 8 bits for a matrix with a minimum. */
Test(quant_rows, rounds_to_nearest_of_each_block)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(7);
    for (int i = 0; i < 3 * n; i++) {
        const struct variant *of = &v[i / 3];
        float x[T * K];
        fill_normal(&r, x, T * K, 5);
        memset(x + 64, 0, 32 * sizeof *x); /* a block of zeros */
        for (int j = 96; j < 128; j++)
            x[j] *= 1e-30f;
        struct made m;
        make(&m, &of->k, x, i % 3 > 0, i % 3 > 1 ? -16 : 0);
        for (int b = 0; b < BLOCKS; b++)
            check_block(&m.x, x, b, of->name);
        cr_expect(intact(m.x.q) && intact(m.x.scale) && intact(m.x.sum) && intact(m.x.half),
                  "%s wrote outside", of->name);
    }
}

/* Ties go to the even neighbour in every variant: 32512 makes the scale 1. The low byte is signed:
 * 128 is 256 - 128. */
Test(quant_rows, halves_go_to_even)
{
    VARIANTS(v, n);
    for (int i = 0; i < n; i++) {
        float x[32] = {32512, 0.5f,  1.5f,   2.5f,    -0.5f,   -1.5f,
                       -2.5f, 63.5f, 127.5f, -128.5f, -128.6f, 1000.5f};
        static const int8_t want[64] = {127,      0, 0, 0, 0, 0,  0,  0,  1,    0,    -1,  4,
                                        [32] = 0, 0, 2, 2, 0, -2, -2, 64, -128, -128, 127, -24};
        int8_t q[64];
        float scale, sum, half[2];
        struct qrows out = {.q = q, .scale = &scale, .sum = &sum, .half = half, .K = 32};
        v[i].k.quant_rows(&out, x, 1, 32);
        cr_expect(zero(int, memcmp(q, want, sizeof q)), "%s", v[i].name);
        cr_expect(eq(flt, scale, 1));
        cr_expect(eq(flt, sum, 32512 + 2 + 2 - 2 - 2 + 64 + 128 - 128 - 129 + 1000));
        cr_expect(eq(flt, half[0], sum));
        cr_expect(eq(flt, half[1], 0));
    }
}

/* 127 makes the scale 1. */
Test(quant_rows, halves_of_8_bits_go_to_even)
{
    VARIANTS(v, n);
    for (int i = 0; i < n; i++) {
        float x[32] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, -127, 3.4f};
        static const int8_t want[32] = {127, 0, 2, 2, 0, -2, -2, 126, -126, -127, 3};
        int8_t q[32];
        float scale;
        int32_t low, half_low[2];
        struct qrows out = {.q = q,
                            .scale = &scale,
                            .low = &low,
                            .half_low = half_low,
                            .K = 32,
                            .hi_alone = true,
                            .lowest = -8};
        v[i].k.quant_rows(&out, x, 1, 32);
        cr_expect(zero(int, memcmp(q, want, sizeof q)), "%s", v[i].name);
        cr_expect(eq(flt, scale, 1));
        cr_expect(eq(i32, low, -8 * 3));
        cr_expect(eq(i32, half_low[0], low));
        cr_expect(eq(i32, half_low[1], 0));
    }
}

/* Rows of activations as bytes. */
#include "variants.h"

enum { T = 7, K = 96, BLOCKS = T * K / 32 };

Test(quant_rows, rounds_to_nearest_of_each_block)
{
    struct variant v[MAX_VARIANTS];
    struct rng r;
    rng_init(&r, 7);
    int n = variants(v);
    for (int i = 0; i < n; i++) {
        float x[T * K];
        fill_normal(&r, x, T * K, 5);
        memset(x + 64, 0, 32 * sizeof *x); /* a block of zeros */
        for (int j = 96; j < 128; j++)
            x[j] *= 1e-30f;
        struct guarded gq, gs, gu, gh;
        struct qrows q = {guard(&gq, 2 * T * K),
                          guard(&gs, BLOCKS * 4),
                          guard(&gu, BLOCKS * 4),
                          guard(&gh, BLOCKS * 8),
                          K,
                          false};
        v[i].k.quant_rows(&q, x, T, K);
        for (int b = 0; b < BLOCKS; b++) {
            const int8_t *hi = q.q + b * 64, *lo = hi + 32;
            double max = 0, sum = 0, half[2] = {0, 0};
            for (int j = 0; j < 32; j++) {
                max = fmax(max, fabs((double)x[b * 32 + j]));
                sum += 256 * hi[j] + lo[j];
                half[j / 16] += 256 * hi[j] + lo[j];
            }
            if (max < 1e-30) /* counts as 0 */
                max = 0;
            double unit = max / 32512;
            cr_expect(fabs((double)q.scale[b] - unit) <= 1e-7 * unit);
            cr_expect(fabs((double)q.sum[b] - sum * unit) <= 1e-6 * fabs(sum) * unit);
            for (int h = 0; h < 2; h++)
                cr_expect(fabs((double)q.half[2 * b + h] - half[h] * unit)
                          <= 1e-6 * fabs(half[h]) * unit);
            for (int j = 0; j < 32; j++) {
                double steps = max > 0 ? (double)x[b * 32 + j] / unit : 0;
                int got = 256 * hi[j] + lo[j];
                cr_expect(fabs(steps - got) <= 0.5 + 4e-3, "%s: %g -> %d", v[i].name, steps, got);
            }
        }
        cr_expect(intact(&gq) && intact(&gs) && intact(&gu) && intact(&gh), "%s wrote outside",
                  v[i].name);
    }
}

struct rows {
    int8_t q[2 * T * K];
    float scale[BLOCKS], sum[BLOCKS], half[2 * BLOCKS];
};

static void quantise(struct rows *out, const struct kernels *k, const float *x, bool hi_alone)
{
    struct qrows q = {out->q, out->scale, out->sum, out->half, K, hi_alone};
    k->quant_rows(&q, x, T, K);
}

static bool is_high_byte(const struct rows *hi, const struct rows *both, int b)
{
    int sum[2] = {0, 0};
    bool same = hi->scale[b] == both->scale[b];
    for (int j = 0; j < 32; j++) {
        const int8_t *at = hi->q + b * 64 + j;
        same = same && at[0] == both->q[b * 64 + j] && at[32] == 0;
        sum[j / 16] += 256 * at[0];
    }
    for (int h = 0; h < 2; h++)
        same = same && hi->half[2 * b + h] == hi->scale[b] * (float)sum[h];
    return same && hi->sum[b] == hi->scale[b] * (float)(sum[0] + sum[1]);
}

/* Rows of 8 bits are those of 16 with the low byte taken away, and sums of what is left. */
Test(quant_rows, hi_alone_is_the_high_byte_of_16_bits)
{
    struct variant v[MAX_VARIANTS];
    struct rng r;
    rng_init(&r, 9);
    int n = variants(v);
    float x[T * K];
    fill_normal(&r, x, T * K, 5);
    memset(x + 64, 0, 32 * sizeof *x);
    for (int j = 96; j < 128; j++) /* the scale is 1, and some are just between two high bytes */
        x[j] = j == 96 ? 32512 : (float)((j - 112) * 256 + 126 + j % 5);
    for (int i = 0; i < n; i++) {
        struct rows both, hi;
        quantise(&both, &v[i].k, x, false);
        quantise(&hi, &v[i].k, x, true);
        for (int b = 0; b < BLOCKS; b++)
            cr_expect(is_high_byte(&hi, &both, b), "%s: block %d", v[i].name, b);
    }
}

/* Halves go to the even neighbour in every variant: 32512 makes the scale 1.  The
 * low byte is signed: 128 is 256 - 128. */
Test(quant_rows, halves_go_to_even)
{
    struct variant v[MAX_VARIANTS];
    int n = variants(v);
    for (int i = 0; i < n; i++) {
        float x[32] = {32512, 0.5f,  1.5f,   2.5f,    -0.5f,   -1.5f,
                       -2.5f, 63.5f, 127.5f, -128.5f, -128.6f, 1000.5f};
        static const int8_t want[64] = {127,      0, 0, 0, 0, 0,  0,  0,  1,    0,    -1,  4,
                                        [32] = 0, 0, 2, 2, 0, -2, -2, 64, -128, -128, 127, -24};
        int8_t q[64];
        float scale, sum, half[2];
        struct qrows out = {q, &scale, &sum, half, 32, false};
        v[i].k.quant_rows(&out, x, 1, 32);
        cr_expect(zero(int, memcmp(q, want, sizeof q)), "%s", v[i].name);
        cr_expect(eq(flt, scale, 1));
        cr_expect(eq(flt, sum, 32512 + 2 + 2 - 2 - 2 + 64 + 128 - 128 - 129 + 1000));
        cr_expect(eq(flt, half[0], sum));
        cr_expect(eq(flt, half[1], 0));
    }
}

/* test_sampler.c - sampling compared with its definition, and weights compared with exp. */
#include <kvf/err.h>

#include "engine/decode/sampler.h"
#include "tests/engine/drawn.h"
#include "tests/suite.h"

enum { VOCAB = 3001, DRAWS = 60 };

static void check(double temperature, double top_p, double step, uint64_t seed)
{
    static float logits[VOCAB];
    SCOPED(sampler_finish) struct sampler s;
    struct rng r, u;
    rng_init(&r, seed);
    rng_init(&u, seed + 1);
    cr_assert(eq(int, sampler_init(&s, temperature, top_p, seed + 1, VOCAB), KVF_OK));
    for (int k = 0; k < DRAWS; k++) {
        for (int i = 0; i < VOCAB; i++) /* many are equal */
            logits[i] = (float)(floor(rng_uniform(&r) * 40 / step) * step);
        double chance = sampler_chance(&s);
        int32_t got = sampler_next(&s, logits);
        double number = rng_uniform(&u);
        int32_t want = drawn(logits, VOCAB, temperature, top_p, number);
        cr_expect(eq(dbl, chance, number));
        cr_expect(got == want, "temperature %g, top_p %g, draw %d: %d, expected %d", temperature,
                  top_p, k, (int)got, (int)want);
    }
}

Test(sampler, draws_what_the_definition_draws)
{
    check(1, 1, 1e-4, 1);
    check(4, 1, 0.5, 2);
    check(30, 0.95, 2, 3);
    check(0.6, 0.9, 1e-3, 4);
    check(0.01, 0.99, 1e-3, 5); /* most weights are 0 or too small for a float's full digits */
}

/* Weights equal e^x of the math library in double precision. */
Test(sampler, weights_are_powers)
{
    struct rng r = rng_seeded(9);
    for (int i = 0; i < 100000; i++) {
        float top = (float)(rng_uniform(&r) * 40 - 20), x = top - (float)(rng_uniform(&r) * 40);
        double temperature = 0.05 + rng_uniform(&r) * 3;
        long double want = 0x1p40L * expl(((long double)x - (long double)top) / temperature);
        double got = (double)draw_weight(x, top, DRAW_LOG2_E / temperature);
        cr_assert(le(dbl, fabs(got - (double)want), 1 + 1e-12 * (double)want), "%g %g", got,
                  (double)want);
    }
    cr_expect(draw_weight(NAN, 1, 1) == 0 && draw_weight(-INFINITY, 1, 1) == 0);
    cr_expect(draw_weight(3, 3, INFINITY) == (uint64_t)1 << DRAW_BITS);
}

/* 200,000 samples from weights 4 : 2 : 1 : 1 with top_p 0.6, which the two largest reach. */
Test(sampler, tokens_come_as_often_as_they_are_likely)
{
    enum { MANY = 200000 };
    const float logits[] = {0, logf(4), logf(2), 0};
    const double all[] = {0.125, 0.5, 0.25, 0.125}, some[] = {0, 2.0 / 3, 1.0 / 3, 0};
    for (int k = 0; k < 2; k++) {
        int n[4] = {0};
        SCOPED(sampler_finish) struct sampler s;
        cr_assert(zero(int, sampler_init(&s, 1, k ? 0.6 : 1, 77, 4)));
        for (int i = 0; i < MANY; i++)
            n[sampler_next(&s, logits)]++;
        for (int i = 0; i < 4; i++) /* within five standard deviations */
            cr_expect(epsilon_eq(dbl, (double)n[i] / MANY, (k ? some : all)[i], 0.0056), "%d: %d",
                      i, n[i]);
    }
}

Test(sampler, likeliest_is_the_first_of_the_largest)
{
    enum { MOST = 300, TRIALS = 20000 };
    float x[MOST];
    struct rng r = rng_seeded(9);
    for (int trial = 0; trial < TRIALS; trial++) {
        int n = 1 + (int)(rng_uniform(&r) * MOST), want = 0;
        for (int i = 0; i < n; i++) {
            double u = rng_uniform(&r);
            x[i] = u < 0.01 ? (u < 0.005 ? NAN : -INFINITY)
                            : (float)floor(u * 20 + i * (trial % 3));
        }
        for (int i = 1; i < n; i++)
            if (x[i] > x[want] || isnan(x[want]))
                want = i;
        cr_assert(eq(int, sampler_likeliest(x, n), want), "%d of %d", want, n);
    }
}

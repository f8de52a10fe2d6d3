/* Sampling against the definition, written with a sort of the C library. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>

#include <kvf/err.h>

#include "base/rng.h"
#include "engine/decode/sampler.h"

enum { VOCAB = 3001, DRAWS = 60 };

struct item {
    float p;
    int32_t id;
};

static int by_weight(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* u: uniform in [0, 1). */
static int32_t defined(const float *logits, double temperature, double top_p, double u)
{
    static struct item x[VOCAB];
    double most = -INFINITY, total = 0, kept = 0, before = 0;
    int n = 0;
    for (int i = 0; i < VOCAB; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < VOCAB; i++) {
        x[i] = (struct item){(float)exp(((double)logits[i] - most) / temperature), i};
        total += (double)x[i].p;
    }
    qsort(x, VOCAB, sizeof *x, by_weight);
    do
        kept += (double)x[n++].p;
    while (n < VOCAB && kept < top_p * total);
    for (int i = 0; i < n; i++) {
        before += (double)x[i].p;
        if (u * kept < before)
            return x[i].id;
    }
    return x[n - 1].id;
}

static void check(double temperature, double top_p, double step, uint64_t seed)
{
    static float logits[VOCAB];
    struct sampler s;
    struct rng r, u;
    rng_init(&r, seed);
    rng_init(&u, seed + 1);
    cr_assert(eq(int, sampler_init(&s, temperature, top_p, seed + 1, VOCAB), KVF_OK));
    for (int k = 0; k < DRAWS; k++) {
        for (int i = 0; i < VOCAB; i++) /* many are equal */
            logits[i] = (float)(floor(rng_uniform(&r) * 40 / step) * step);
        int32_t got = sampler_next(&s, logits);
        int32_t want = defined(logits, temperature, top_p, rng_uniform(&u));
        cr_expect(got == want, "temperature %g, top_p %g, draw %d: %d, expected %d", temperature,
                  top_p, k, (int)got, (int)want);
    }
    sampler_finish(&s);
}

Test(sampler, draws_what_the_definition_draws)
{
    check(1, 1, 1e-4, 1);
    check(4, 1, 0.5, 2);
    check(30, 0.95, 2, 3);
    check(0.6, 0.9, 1e-3, 4);
    check(0.01, 0.99, 1e-3, 5); /* most weights are 0 or too small for a float's full digits */
}

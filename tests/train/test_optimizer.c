/* test_optimizer.c - AdamW compared with an implementation in double precision, and learning rates
 * at the limits of their schedules. */
#include "engine/train/optimizer.h"
#include "tests/suite.h"

enum { N = 37, STEPS = 200 };

static struct optimizer usual(void)
{
    return (struct optimizer){.lr = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .schedule = SCHEDULE_CONSTANT,
                              .steps = STEPS};
}

/* The equations in the header, for one number. */
struct reference {
    double w, m, v;
};

static void reference_step(const struct optimizer *o, double lr, int t, double g,
                           struct reference *x)
{
    x->m = o->beta1 * x->m + (1 - o->beta1) * g;
    x->v = o->beta2 * x->v + (1 - o->beta2) * g * g;
    double mean = x->m / (1 - pow(o->beta1, t)), square = x->v / (1 - pow(o->beta2, t));
    x->w -= lr * (mean / (sqrt(square) + o->eps) + o->decay * x->w);
}

static void compare(const struct optimizer *o, uint64_t seed)
{
    struct reference x[N];
    float w[N], m[N] = {0}, v[N] = {0}, g[N];
    struct rng r = rng_seeded(seed);
    for (int i = 0; i < N; i++) {
        w[i] = (float)rng_normal(&r);
        x[i] = (struct reference){w[i], 0, 0};
    }
    for (int t = 1; t <= STEPS; t++) {
        double sum = 0;
        for (int i = 0; i < N; i++) {
            g[i] = (float)(rng_normal(&r) * pow(10, i % 5 - 3));
            sum += (double)g[i] * g[i];
        }
        cr_assert(fabs(optimizer_norm(g, N) - sqrt(sum)) <= 1e-12 * sqrt(sum));
        double scale = o->clip > 0 && sqrt(sum) > o->clip ? o->clip / sqrt(sum) : 1;
        optimizer_step(o, t, sqrt(sum), g, w, m, v, N);
        for (int i = 0; i < N; i++)
            reference_step(o, optimizer_rate(o, t), t, g[i] * scale, &x[i]);
    }
    for (int i = 0; i < N; i++) { /* 200 steps of at most lr, each rounded to 2^-24 a few times */
        cr_expect(fabs(w[i] - x[i].w) < 2e-6 * (1 + fabs(x[i].w)), "%d: %.9g %.9g", i, w[i],
                  x[i].w);
        cr_expect(fabs(m[i] - x[i].m) < 1e-5 * fabs(x[i].m) + 1e-7 * pow(10, i % 5 - 3));
        cr_expect(fabs(v[i] - x[i].v) < 1e-4 * x[i].v);
    }
}

Test(optimizer, as_written_out_in_double)
{
    struct optimizer o = usual();
    compare(&o, 1);
    o.decay = 0.1;
    compare(&o, 2);
    o.clip = 0.25; /* norms are near 3: always clipped */
    compare(&o, 3);
    o.schedule = SCHEDULE_COSINE;
    o.warmup = 20;
    o.min_lr = 1e-3;
    o.beta1 = 0.8;
    o.beta2 = 0.95;
    compare(&o, 4);
}

/* In the first step the mean is g and the mean square g^2, so dw = lr g / (|g| + eps) for any
 * betas. */
Test(optimizer, first_step_in_closed_form)
{
    static const float gs[] = {1, -1, 3e-5f, -7e4f, 1e-8f, 0};
    struct optimizer o = usual();
    for (int k = 0; k < 3; k++) {
        o.beta1 = (double[]){0.9, 0.5, 0}[k];
        o.beta2 = (double[]){0.999, 0.95, 0.5}[k];
        for (size_t i = 0; i < sizeof gs / sizeof *gs; i++) {
            float w = 0, m = 0, v = 0;
            double expect = -o.lr * gs[i] / (fabs((double)gs[i]) + o.eps);
            optimizer_step(&o, 1, fabs((double)gs[i]), &gs[i], &w, &m, &v, 1);
            cr_expect(fabs(w - expect) <= 1e-6 * fabs(expect), "%g: %.9g %.9g", gs[i], w, expect);
        }
    }
}

Test(optimizer, decay_alone_shrinks_and_does_not_enter_the_moments)
{
    struct optimizer o = usual();
    float w = 2, m = 0, v = 0, g = 0;
    o.decay = 0.5;
    for (int t = 1; t <= 10; t++)
        optimizer_step(&o, t, 0, &g, &w, &m, &v, 1);
    cr_expect(fabs(w - 2 * pow(1 - 0.01 * 0.5, 10)) < 1e-6);
    cr_expect(m == 0 && v == 0);
}

/* A clipped gradient acts only by its direction. A gradient below the limit is unchanged. */
Test(optimizer, clipping)
{
    struct optimizer o = usual();
    float w[2] = {0}, m[2] = {0}, v[2] = {0}, g[2] = {3, 4};
    o.clip = 1;
    optimizer_step(&o, 1, optimizer_norm(g, 2), g, w, m, v, 2);
    cr_expect(fabs(m[0] - 0.1 * 0.6) < 1e-8 && fabs(m[1] - 0.1 * 0.8) < 1e-8);
    o.clip = 5.5;
    m[0] = m[1] = 0;
    optimizer_step(&o, 1, optimizer_norm(g, 2), g, w, m, v, 2);
    cr_expect(fabs(m[0] - 0.3) < 1e-7 && fabs(m[1] - 0.4) < 1e-7);
    o.clip = 0;
    m[0] = 0;
    optimizer_step(&o, 1, 1e9, g, w, m, v, 1);
    cr_expect(fabs(m[0] - 0.3) < 1e-7);
}

static void rate(const struct optimizer *o, int64_t t, double expect)
{
    double x = optimizer_rate(o, t);
    cr_expect(fabs(x - expect) < 1e-15, "step %lld: %.17g, not %.17g", (long long)t, x, expect);
}

Test(optimizer, rates)
{
    struct optimizer o = {.lr = 1, .min_lr = 0.1, .warmup = 10, .steps = 110, .decay_share = 0.2};
    for (int s = 0; s < 3; s++) {
        o.schedule = (enum schedule)s;
        rate(&o, 1, 0.1);
        rate(&o, 5, 0.5);
        rate(&o, 10, 1);
        rate(&o, 110, s == SCHEDULE_CONSTANT ? 1 : 0.1);
        rate(&o, 500, s == SCHEDULE_CONSTANT ? 1 : 0.1); /* continued beyond its end */
    }
    o.schedule = SCHEDULE_CONSTANT;
    rate(&o, 11, 1);
    o.schedule = SCHEDULE_COSINE;
    rate(&o, 60, 0.55);                            /* cos = 0 */
    rate(&o, 35, 0.1 + 0.9 * (1 + sqrt(0.5)) / 2); /* cos(pi / 4) */
    rate(&o, 85, 0.1 + 0.9 * (1 - sqrt(0.5)) / 2);
    o.schedule = SCHEDULE_WSD; /* the last 22 of 110 */
    rate(&o, 11, 1);
    rate(&o, 88, 1);
    rate(&o, 99, 0.55);
    rate(&o, 89, 1 - 0.9 / 22);
}

Test(optimizer, rates_without_warmup_or_rest)
{
    struct optimizer o = {.lr = 2, .min_lr = 0.5, .steps = 8};
    for (int s = 0; s < 3; s++) {
        o.schedule = (enum schedule)s;
        o.decay_share = 0;
        rate(&o, 8, s ? 0.5 : 2);
        rate(&o, 1, s == SCHEDULE_COSINE ? 0.5 + 1.5 * (1 + cos(acos(-1.0) / 8)) / 2 : 2);
    }
    o.decay_share = 1;
    rate(&o, 2, 0.5 + 1.5 * 0.75);
    o.warmup = 8; /* all steps are warm-up */
    o.schedule = SCHEDULE_COSINE;
    rate(&o, 8, 2);
    rate(&o, 9, 0.5);
}

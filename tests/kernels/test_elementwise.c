/* test_elementwise.c - RMSNorm, RoPE, gated activations, soft cap and addition compared with double
 * precision. */
#include "variants.h"

enum { MAX_C = 200 };

Test(rmsnorm, equals_double_and_works_in_place)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(1);
    for (int i = 0; i < n; i++)
        for (int C = 1; C < MAX_C; C += 1 + C / 7) {
            enum { T = 3 };
            float x[T * MAX_C], w[MAX_C];
            fill_normal(&r, x, (size_t)(T * C), 4);
            fill_normal(&r, w, (size_t)C, 1);
            float *out = guard((size_t)(T * C) * sizeof *out);
            v[i].k.rmsnorm(out, x, w, T, C, 1e-5f);
            double bad = 0;
            for (int t = 0; t < T; t++) {
                double square = 0;
                for (int c = 0; c < C; c++)
                    square += (double)x[t * C + c] * (double)x[t * C + c];
                double scale = 1 / sqrt(square / C + (double)1e-5f);
                for (int c = 0; c < C; c++) {
                    double want = (double)x[t * C + c] * scale * (double)w[c];
                    bad = worst(fabs((double)out[t * C + c] - want) / (fabs(want) * 3e-7 + 1e-30),
                                bad);
                }
            }
            cr_expect(bad <= 1, "%s: C %d: %g times the bound", v[i].name, C, bad);
            v[i].k.rmsnorm(x, x, w, T, C, 1e-5f);
            cr_expect(zero(int, memcmp(x, out, (size_t)(T * C) * sizeof *x)), "%s: in place",
                      v[i].name);
            cr_expect(intact(out), "%s wrote outside", v[i].name);
        }
}

Test(rope, rotates_pairs_and_leaves_the_rest)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(2);
    for (int i = 0; i < n; i++)
        for (int D = 2; D <= 80; D += 6)
            for (int n_rot = 2; n_rot <= D; n_rot += 4) {
                enum { H = 3 };
                float x[H * 80], cs[80];
                fill_normal(&r, x, (size_t)(H * D), 3);
                for (int j = 0; j < n_rot / 2; j++) {
                    double angle = 6.28 * rng_uniform(&r);
                    cs[2 * j] = (float)cos(angle);
                    cs[2 * j + 1] = (float)sin(angle);
                }
                float *y = guard((size_t)(H * D) * sizeof *y);
                memcpy(y, x, (size_t)(H * D) * sizeof *y);
                v[i].k.rope(y, cs, H, D, n_rot);
                bool ok = true;
                for (int j = 0; j < H * D; j++) {
                    int d = j % D, even = j - d % 2;
                    double a = (double)x[even], b = (double)x[even + 1];
                    double c = (double)cs[d / 2 * 2], s = (double)cs[d / 2 * 2 + 1];
                    double want = d % 2 ? a * s + b * c : a * c - b * s;
                    if (d < n_rot)
                        ok = ok && fabs((double)y[j] - want) <= 2e-7 * (fabs(a) + fabs(b));
                    else
                        ok = ok && y[j] == x[j];
                }
                cr_expect(ok, "%s: D %d, %d channels rotated", v[i].name, D, n_rot);
                cr_expect(intact(y), "%s wrote outside", v[i].name);
            }
}

Test(swiglu, equals_double_and_works_in_place)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(3);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MAX_C; len += 1 + len / 7) {
            float gate[MAX_C], up[MAX_C], keep[MAX_C];
            fill_normal(&r, gate, (size_t)len, len % 2 ? 3 : 30);
            fill_normal(&r, up, (size_t)len, 2);
            if (len > 4) {
                gate[0] = 1000;
                gate[1] = -1000;
                gate[2] = 0;
            }
            memcpy(keep, gate, sizeof keep);
            float *out = guard((size_t)len * sizeof *out);
            v[i].k.swiglu(out, gate, up, len);
            double bad = 0;
            for (int j = 0; j < len; j++) {
                double x = (double)keep[j], want = x / (1 + exp(-x)) * (double)up[j];
                /* e^88 is the largest factor. Below x = -88, only the magnitude matters. */
                double bound = 5e-7 * fabs(want) + 1e-34;
                bad = worst(fabs((double)out[j] - want) / bound, bad);
            }
            cr_expect(bad <= 1, "%s: n %d: %g times the bound", v[i].name, len, bad);
            v[i].k.swiglu(gate, gate, up, len);
            cr_expect(zero(int, memcmp(gate, out, (size_t)len * sizeof *out)), "%s: in place",
                      v[i].name);
            cr_expect(intact(out), "%s wrote outside", v[i].name);
        }
}

Test(geglu, equals_double_and_works_in_place)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(8);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MAX_C; len += 1 + len / 7) {
            float gate[MAX_C], up[MAX_C], keep[MAX_C];
            fill_normal(&r, gate, (size_t)len, len % 2 ? 2 : 10);
            fill_normal(&r, up, (size_t)len, 2);
            if (len > 4) {
                gate[0] = 1000;
                gate[1] = -1000;
                gate[2] = 0;
            }
            memcpy(keep, gate, sizeof keep);
            float *out = guard((size_t)len * sizeof *out);
            v[i].k.geglu(out, gate, up, len);
            double bad = 0;
            for (int j = 0; j < len; j++) {
                double x = (double)keep[j],
                       u = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
                double want = x * (1 + tanh(u)) / 2 * (double)up[j];
                /* 1 + tanh loses digits where tanh is near -1: the error is that of 1. */
                double bound = 1e-6 * fabs(want) + 3e-7 * fabs(x * (double)up[j]);
                bad = worst(fabs((double)out[j] - want) / (bound + 1e-30), bad);
            }
            cr_expect(bad <= 1, "%s: n %d: %g times the bound", v[i].name, len, bad);
            v[i].k.geglu(gate, gate, up, len);
            cr_expect(zero(int, memcmp(gate, out, (size_t)len * sizeof *out)), "%s: in place",
                      v[i].name);
            cr_expect(intact(out), "%s wrote outside", v[i].name);
        }
}

/* The slope is a difference quotient of gelu in double precision. */
static double gelu(double x)
{
    return x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))) / 2;
}

Test(geglu, gradients_equal_differences_and_work_in_place)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(9);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MAX_C; len += 1 + len / 7) {
            float gate[MAX_C], up[MAX_C], d[MAX_C], by_up[MAX_C];
            fill_normal(&r, gate, (size_t)len, len % 2 ? 2 : 10);
            fill_normal(&r, up, (size_t)len, 2);
            fill_normal(&r, d, (size_t)len, 1);
            if (len > 4) {
                gate[0] = 1000;
                gate[1] = -1000;
                gate[2] = 0;
            }
            float *out = guard((size_t)len * sizeof *out);
            v[i].k.geglu_back(out, by_up, gate, up, d, len);
            double bad = 0;
            for (int j = 0; j < len; j++) {
                double x = (double)gate[j], u = (double)up[j], by = (double)d[j], h = 1e-5;
                double slope = (gelu(x + h) - gelu(x - h)) / (2 * h);
                double bound = 4e-6 * fabs(by) * (1 + fabs(u)) + 1e-30, wide = fmax(1, fabs(x));
                bad = worst(fabs((double)out[j] - by * u * slope) / bound, bad);
                bad = worst(fabs((double)by_up[j] - by * gelu(x)) / (bound * wide), bad);
            }
            cr_expect(bad <= 1, "%s: n %d: %g times the bound", v[i].name, len, bad);
            v[i].k.geglu_back(d, by_up, gate, up, d, len);
            cr_expect(zero(int, memcmp(d, out, (size_t)len * sizeof *out)), "%s: in place",
                      v[i].name);
            cr_expect(intact(out), "%s wrote outside", v[i].name);
        }
}

/* The error is at most a few roundings of the cap. */
Test(soft_cap, equals_double)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(9);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < 70; len++) {
            float x[70], cap = len % 2 ? 50 : 3;
            fill_normal(&r, x, 70, len % 3 ? 5 : 200);
            x[0] = len % 2 ? 1e9f : -1e9f;
            float *out = guard((size_t)len * sizeof *out);
            memcpy(out, x, (size_t)len * sizeof *out);
            v[i].k.soft_cap(out, len, cap);
            for (int j = 0; j < len; j++) {
                double want = (double)cap * tanh((double)x[j] / (double)cap);
                cr_assert(fabs((double)out[j] - want) <= 5e-7 * (double)cap, "%s: cap of %g",
                          v[i].name, (double)x[j]);
            }
            cr_expect(intact(out), "%s wrote outside", v[i].name);
        }
}

Test(add, adds)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(4);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < 70; len++) {
            float x[70], y[70];
            fill_normal(&r, x, 70, 1);
            fill_normal(&r, y, 70, 1);
            float *out = guard((size_t)len * sizeof *out);
            memcpy(out, x, (size_t)len * sizeof *out);
            v[i].k.add(out, y, len);
            for (int j = 0; j < len; j++)
                cr_assert(eq(flt, out[j], x[j] + y[j]), "%s", v[i].name);
            cr_expect(intact(out), "%s wrote outside", v[i].name);
        }
}

/* test_train.c - the kernels of training compared with double precision and with the reference. */
#include "variants.h"

enum { LD = 70, SIDE = 67 };

/* Checks a tile product with `a` read along rows or columns: each output is at its place, and no
 * other memory is written. */
static void check_tile(const struct variant *v, struct rng *r, int m, int n, int k, int form)
{
    bool add = form & 1, turned = form & 2;
    size_t used = (size_t)(m - 1) * LD + (size_t)n;
    float a[SIDE * LD], b[SIDE * LD], start[SIDE * LD], *c = guard(used * sizeof *c);
    fill_normal(r, a, SIDE * LD, 1);
    fill_normal(r, b, SIDE * LD, 1);
    fill_normal(r, start, SIDE * LD, 1);
    memcpy(c, start, used * sizeof *c);
    v->k.tile_mul(&(struct tile_product){.c = c,
                                         .ld_c = LD,
                                         .a = a,
                                         .a_row = turned ? 1 : LD,
                                         .a_col = turned ? LD : 1,
                                         .b = b,
                                         .ld_b = LD,
                                         .m = m,
                                         .n = n,
                                         .k = k,
                                         .add = add});
    double bad = 0;
    bool gap = true;
    for (size_t at = 0; at < used; at++) {
        int i = (int)(at / LD), j = (int)(at % LD);
        if (j >= n) {
            gap = gap && c[at] == start[at];
            continue;
        }
        double sum = add ? (double)start[at] : 0, size = fabs(sum);
        for (int l = 0; l < k; l++) {
            double x = (double)(turned ? a[l * LD + i] : a[i * LD + l]) * (double)b[l * LD + j];
            sum += x;
            size += fabs(x);
        }
        bad = worst(fabs((double)c[at] - sum) / ((k + 1) * 0x1p-24 * size), bad);
    }
    cr_expect(bad <= 1 && gap, "%s: %d x %d x %d, form %d: %g times the bound", v->name, m, n, k,
              form, bad);
    cr_expect(intact(c), "%s wrote outside", v->name);
}

Test(train, tile_product_is_the_sum_of_products)
{
    static const int sizes[] = {1, 3, 4, 7, 8, 15, 16, 17, 33, 48, 49, 64, 67};
    struct variant v[MAX_VARIANTS];
    struct rng r = rng_seeded(1);
    int n = variants(v), n_sizes = (int)(sizeof sizes / sizeof *sizes);
    for (int i = 0; i < n; i++)
        for (int s = 0; s < n_sizes * n_sizes; s++)
            check_tile(&v[i], &r, sizes[s % n_sizes], sizes[s / n_sizes], sizes[s * 5 % n_sizes],
                       s % 4);
}

enum { ROW = 64 };

static double off(double have, double want, double size)
{
    return have == want ? 0 : fabs(have - want) / size;
}

/* exp: within 4 units of the last place, for normal numbers. */
#define EXP_BOUND 0x1p-21
#define TINY 0x1p-126

static void check_exponentials(const struct variant *v, struct rng *r, int n)
{
    float s[ROW], x[ROW], *e = guard((size_t)n * sizeof *e);
    float *w = guard((size_t)n * sizeof *w);
    for (int i = 0; i < n; i++) {
        s[i] = (float)(3 - 60 * rng_uniform(r) * (double)(i % 3));
        x[i] = (float)(-pow(rng_uniform(r), 6)) * 30;
    }
    memcpy(e, s, (size_t)n * sizeof *e);
    double sum = 0, size = 0, bad = 0, total = (double)v->k.exp_row(e, n, 4);
    int age = n - 1 + (int)rng_below(r, 400);
    v->k.exp_aged(w, x, n, age);
    for (int i = 0; i < n; i++) {
        double want = exp((double)(s[i] - 4)), power = (double)((float)(age - i) * x[i]);
        bad = worst(off((double)e[i], want, want * EXP_BOUND + TINY), bad);
        bad = worst(off((double)w[i], exp(power), exp(power) * EXP_BOUND + TINY), bad);
        sum += want;
        size += want;
    }
    bad = worst(off(total, sum, size * (EXP_BOUND + n * 0x1p-24)), bad);
    cr_expect(bad <= 1, "%s, n %d: %g times the bound", v->name, n, bad);
    cr_expect(intact(e) && intact(w), "%s wrote outside", v->name);
}

Test(train, exponentials_are_close)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(2);
    for (int i = 0; i < n; i++)
        for (int size = 1; size <= ROW; size++)
            check_exponentials(&v[i], &r, size);
}

/* Elementwise operations: exact in the order of the contract. */
static void check_rows(const struct variant *v, struct rng *r, int n)
{
    float x[ROW], y[ROW], *out[3], max = -INFINITY;
    fill_normal(r, x, ROW, 1);
    fill_normal(r, y, ROW, 1);
    for (int i = 0; i < 3; i++) {
        out[i] = guard((size_t)n * sizeof **out);
        memcpy(out[i], y, (size_t)n * sizeof **out);
    }
    v->k.add_aged(out[0], x, n, 90);
    v->k.mul(out[1], x, n);
    v->k.softmax_grad(out[2], x, n, 0.75f);
    bool ok = true;
    for (int i = 0; i < n; i++) {
        max = fmaxf(max, x[i]);
        ok = ok && out[0][i] == fmaf((float)(90 - i), x[i], y[i]) && out[1][i] == y[i] * x[i]
             && out[2][i] == x[i] * (y[i] - 0.75f);
    }
    cr_expect(ok, "%s, n %d", v->name, n);
    cr_expect(v->k.max_row(x, n) == max, "%s, n %d: maximum", v->name, n);
    for (int i = 0; i < 3; i++)
        cr_expect(intact(out[i]), "%s wrote outside", v->name);
}

Test(train, rows_are_exact)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(3);
    for (int i = 0; i < n; i++)
        for (int size = 1; size <= ROW; size++)
            check_rows(&v[i], &r, size);
}

Test(train, tile_products_agree_to_the_bit)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(4);
    float a[SIDE * LD], b[SIDE * LD], start[SIDE * LD], c[2][SIDE * LD];
    fill_normal(&r, a, SIDE * LD, 1);
    fill_normal(&r, b, SIDE * LD, 1);
    fill_normal(&r, start, SIDE * LD, 1);
    for (int i = 1; i < n; i++) {
        for (int j = 0; j < 2; j++) {
            memcpy(c[j], start, sizeof start);
            v[i * j].k.tile_mul(&(struct tile_product){.c = c[j],
                                                       .ld_c = LD,
                                                       .a = a,
                                                       .a_row = LD,
                                                       .a_col = 1,
                                                       .b = b,
                                                       .ld_b = LD,
                                                       .m = SIDE,
                                                       .n = SIDE,
                                                       .k = SIDE,
                                                       .add = true});
        }
        cr_expect(zero(int, memcmp(c[0], c[1], sizeof start)), "%s", v[i].name);
    }
}

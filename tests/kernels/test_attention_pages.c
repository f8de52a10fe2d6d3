/* test_attention_pages.c - attention that continues from integer page to integer page: every
 * variant has the bits of the reference, and the result is the softmax mean. */
#include <float.h>

#include "variants.h"

static const int dims[] = {2, 5, 16, 20, 64, 80, 130};
enum {
    N_DIMS = sizeof dims / sizeof *dims,
    MAX_D = 130,
    MAX_T = 37,
    PAGES = 3,
    ALL = PAGES * PAGE_SLOTS,
    LD_S = ALL + 5
};

static const enum kv_type types[] = {KV_I16, KV_Q8_0};

static struct world {
    enum kv_type type;
    float value[ALL][MAX_D], scores[MAX_T * LD_S];
    _Alignas(64) unsigned char pages[PAGES][(MAX_D + 2) * 2 * PAGE_SLOTS];
} w;

struct result {
    float out[MAX_T * MAX_D], sum[MAX_T * ATTN_LANES], top[MAX_T];
};

static void make_world(struct rng *r, const struct kernels *k, enum kv_type type, int D)
{
    static unsigned char keys[sizeof w.pages[0]];
    fill_normal(r, &w.value[0][0], ALL * MAX_D, 0.3);
    for (int t = 0; t < MAX_T; t++)
        for (int s = 0; s < LD_S; s++)
            w.scores[t * LD_S + s] = (float)(rng_normal(r) * (1 + t) + (s / PAGE_SLOTS * t % 7));
    memset(w.pages, 0x7f, sizeof w.pages);
    w.type = type;
    for (int s = 0; s < ALL; s++)
        k->kv_store(keys, w.pages[s / PAGE_SLOTS], type, s % PAGE_SLOTS, w.value[s], w.value[s], D);
}

static struct attn_sums rows_from(struct result *r, int t, int D)
{
    return (struct attn_sums){r->out + t * D, (size_t)D, r->sum + t * ATTN_LANES, r->top + t};
}

/* Computes rows [t0, t1) of channels [d0, d1). Row t sees seen + t * grow entries. */
static void attend(const struct kernels *k, struct result *r, int D, int t0, int t1, int seen,
                   int grow, int d0, int d1)
{
    const struct attn_sums to = rows_from(r, t0, D);
    for (int t = t0; t < t1; t++) {
        memset(r->out + t * D + d0, 0, (size_t)(d1 - d0) * sizeof(float));
        memset(r->sum + t * ATTN_LANES, 0, ATTN_LANES * sizeof(float));
        r->top[t] = ATTN_LEAST;
    }
    for (int p = 0; p < PAGES; p++) {
        const struct kv_values v = {w.pages[p],
                                    w.type,
                                    D,
                                    d0,
                                    d1,
                                    seen + t0 * grow - p * PAGE_SLOTS,
                                    p + 1 < PAGES ? w.pages[p + 1] : NULL};
        k->attn_add(&to, w.scores + t0 * LD_S + p * PAGE_SLOTS, LD_S, t1 - t0, grow, &v);
    }
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(isnan(a[i]) && isnan(b[i])) && memcmp(a + i, b + i, sizeof *a) != 0)
            return false;
    return true;
}

static void expect_bits_of_the_reference(const struct variant *v, int n, int D, int T, int seen,
                                         int grow)
{
    static struct result ref, got;
    attend(&v[0].k, &ref, D, 0, T, seen, grow, 0, D);
    for (int i = 1; i < n; i++) {
        attend(&v[i].k, &got, D, 0, T, seen, grow, 0, D);
        cr_expect(same(ref.out, got.out, (size_t)(T * D)), "%s, D %d, %d rows from %d: sums",
                  v[i].name, D, T, seen);
        cr_expect(same(ref.sum, got.sum, (size_t)(T * ATTN_LANES)), "%s, D %d, %d rows from %d",
                  v[i].name, D, T, seen);
        cr_expect(same(ref.top, got.top, (size_t)T), "%s, D %d, %d rows from %d: tops", v[i].name,
                  D, T, seen);
    }
}

Test(attention_pages, every_variant_gives_the_bits_of_the_reference)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(1);
    for (int c = 0; c < N_DIMS; c++)
        for (int T = 1; T <= MAX_T; T += T < 20 ? 1 : 9) {
            make_world(&r, &v[0].k, types[T % 2], dims[c]);
            expect_bits_of_the_reference(v, n, dims[c], T, 1 + (int)rng_below(&r, ALL - T), 1);
            expect_bits_of_the_reference(v, n, dims[c], T, 1 + (int)rng_below(&r, ALL), 0);
        }
}

/* Masked scores, NaN, the largest and smallest scores, and values that are not finite. */
Test(attention_pages, hostile_numbers_give_the_same_bits_too)
{
    static const float odd[] = {NAN,     -NAN,   INFINITY, -INFINITY, -INFINITY, FLT_MAX, -FLT_MAX,
                                FLT_MIN, 1e-45f, -0.0f,    1e30f,     -1e30f,    -87,     88};
    enum { N_ODD = sizeof odd / sizeof *odd };
    VARIANTS(v, n);
    struct rng r = rng_seeded(2);
    for (int round = 0; round < 60; round++) {
        int D = dims[round / 2 % N_DIMS], T = 1 + (int)rng_below(&r, MAX_T);
        make_world(&r, &v[0].k, types[round % 2], D);
        for (int i = 0; i < 60; i++)
            w.scores[rng_below(&r, MAX_T * LD_S)] = odd[rng_below(&r, N_ODD)];
        for (int s = 0; s < PAGE_SLOTS; s++) /* a row that sees no entry of its first page */
            w.scores[s] = -INFINITY;
        for (int i = 0; i < round % 3; i++) {
            void *page = w.pages[rng_below(&r, PAGES)];
            uint64_t slot = rng_below(&r, PAGE_SLOTS * (w.type == KV_I16 ? 1 : kv_blocks(D)));
            if (w.type == KV_I16)
                kv_i16_scales(page, D)[slot] = i ? INFINITY : 0;
            else
                kv_q8_scales(page, D)[slot] = float_to_half(i ? INFINITY : 0);
        }
        expect_bits_of_the_reference(v, n, D, T, 1 + (int)rng_below(&r, ALL - T), 1);
    }
}

Test(attention_pages, rows_do_not_depend_on_their_neighbours)
{
    static struct result all, one;
    VARIANTS(v, n);
    struct rng r = rng_seeded(3);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++) {
            int D = dims[c], seen = 1 + (int)rng_below(&r, ALL - MAX_T);
            make_world(&r, &v[i].k, types[(c + i) % 2], D);
            attend(&v[i].k, &all, D, 0, MAX_T, seen, 1, 0, D);
            for (int t = 0; t < MAX_T; t++) {
                for (int d = 0; d < D; d += KV_BLOCK)
                    attend(&v[i].k, &one, D, t, t + 1, seen, 1, d,
                           d + KV_BLOCK < D ? d + KV_BLOCK : D);
                cr_expect(same(one.out + t * D, all.out + t * D, (size_t)D), "%s, D %d, row %d",
                          v[i].name, D, t);
            }
        }
}

/* Returns the scale of the largest number of an entry. */
static double scale_of(int page, int slot, int D)
{
    double scale = 0;
    if (w.type == KV_I16)
        return (double)kv_i16_scales(w.pages[page], D)[slot];
    for (size_t b = 0; b < kv_blocks(D); b++)
        scale = fmax(scale, (double)half_to_float(
                                kv_q8_scales(w.pages[page], D)[b * PAGE_SLOTS + (size_t)slot]));
    return scale;
}

/* Returns the error of the softmax mean in double precision relative to its bound. The bound covers
 * rounding of weights (half a step of the page's largest weight times value) and of values. */
static double error_of(const struct result *got, int D, int t, int seen)
{
    const float *s = w.scores + t * LD_S;
    double top = -INFINITY, weight[ALL], total = 0, sum = 0, bad = 0, off = 0;
    for (int i = 0; i < seen; i++)
        top = fmax(top, (double)s[i]);
    for (int i = 0; i < seen; i++)
        total += weight[i] = exp((double)s[i] - top);
    for (int i = 0; i < ATTN_LANES; i++)
        sum += (double)got->sum[t * ATTN_LANES + i];
    for (int p = 0; p * PAGE_SLOTS < seen; p++) {
        double step = 0;
        for (int i = p * PAGE_SLOTS; i < seen && i < (p + 1) * PAGE_SLOTS; i++) {
            double scale = scale_of(p, i % PAGE_SLOTS, D);
            step = fmax(step, weight[i] * scale);
            off += weight[i] * scale * 0.57;
        }
        off += PAGE_SLOTS * (w.type == KV_I16 ? 4095 / 8192.0 : 127 / 510.0) * step * 1.01;
    }
    for (int d = 0; d < D; d++) {
        double exact = 0, size = 0;
        for (int i = 0; i < seen; i++) {
            exact += weight[i] * (double)w.value[i][d];
            size += weight[i] * fabs((double)w.value[i][d]);
        }
        double error = fabs((double)got->out[t * D + d] / sum - exact / total);
        bad = worst(error / ((off + 1.2e-5 * size) / total), bad);
    }
    return bad;
}

Test(attention_pages, the_mean_is_that_of_a_softmax)
{
    static struct result got;
    struct kernels k;
    double bad = 0;
    kernels_init(&k, 0);
    struct rng r = rng_seeded(4);
    for (int c = 0; c < 2 * N_DIMS; c++) {
        int seen = 1 + (int)rng_below(&r, ALL - MAX_T), D = dims[c / 2];
        make_world(&r, &k, types[c % 2], D);
        attend(&k, &got, D, 0, MAX_T, seen, 1, 0, D);
        for (int t = 0; t < MAX_T; t++)
            bad = worst(error_of(&got, D, t, seen + t), bad);
    }
    cr_expect(bad <= 1, "%g times the bound", bad);
    cr_expect(bad > 1e-3, "a bound that is never near: %g", bad);
}

/* All values at their maximum and of one sign, with equal weights. */
Test(attention_pages, the_largest_sums_do_not_overflow)
{
    static struct result got;
    VARIANTS(v, n);
    enum { D = 64 };
    struct rng r = rng_seeded(5);
    for (int round = 0; round < 2 * n; round++) {
        int i = round % n;
        make_world(&r, &v[i].k, types[round / n], D);
        for (int s = 0; s < ALL; s++) {
            float row[D];
            for (int d = 0; d < D; d++)
                row[d] = -3;
            static unsigned char keys[sizeof w.pages[0]];
            v[i].k.kv_store(keys, w.pages[s / PAGE_SLOTS], w.type, s % PAGE_SLOTS, row, row, D);
        }
        for (int j = 0; j < MAX_T * LD_S; j++)
            w.scores[j] = 0.1f;
        attend(&v[i].k, &got, D, 0, MAX_T, ALL, 0, 0, D);
        for (int t = 0; t < MAX_T; t++)
            cr_assert(fabsf(got.out[t * D] / (ALL * -3.0f) - 1) < 1e-3f, "%s", v[i].name);
    }
}

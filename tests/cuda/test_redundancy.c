/* test_redundancy.c - scores that persist over evictions, random scores, and the redundancy of
 * keys, compared with plain sums in double precision. */
#include "tests/cuda/heads_of.h"

enum { SINKS = 4, RECENT_FROM = 180 };
static const unsigned char due[HEADS] = {1, 1, 0, 1};
static const int lengths[HEADS] = {130, 90, 64, 3};

static bool asked(const struct bed *b, int h, int i)
{
    int32_t pos = b->k.pos[h * b->ld + i];
    return pos >= SINKS && pos < RECENT_FROM;
}

/* Returns the folded score F of the new score v and the past value. The result is also the value
 * that is stored. */
static double fold(int kind, double alpha, double past, double v)
{
    if (isnan(past))
        return v;
    if (kind == FOLD_AVERAGE)
        return alpha * past + (1 - alpha) * v;
    return kind == FOLD_SUM ? alpha * past + v : fmax(alpha * past, v);
}

static void expect_folded(const struct bed *b, const float *past, const struct gpu_history *x,
                          const float *out, const float *kept)
{
    for (int h = 0; h < HEADS; h++) {
        double top = 0;
        for (int i = 0; i < b->n[h]; i++)
            if (asked(b, h, i))
                top = fmax(top, (double)b->number[h * b->ld + i]);
        for (int i = 0; i < b->n[h]; i++) {
            size_t at = (size_t)(h * b->ld + i);
            double v = (double)b->number[at], old = (double)past[at], then = old;
            if (due[h]) {
                v = x->normalise && top > 0 ? v / top : v;
                v = x->alpha > 0 ? fold(x->fold, (double)x->alpha, old, v) : v;
                then = x->alpha > 0 && asked(b, h, i) ? v : old;
            }
            cr_expect(epsilon_eq(dbl, (double)out[at], v, 1e-6), "head %d, slot %d", h, i);
            cr_expect(isnan(then) ? isnan(kept[at]) : fabs((double)kept[at] - then) < 1e-6,
                      "head %d, slot %d remembers %g, not %g", h, i, (double)kept[at], then);
        }
    }
}

Test(redundancy, scores_outlive_their_cut)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(41);
    struct bed b = bed_of(g, &r, lengths, KV_F32);
    size_t all = (size_t)(HEADS * b.ld);
    float *past = NEW(float, all);
    unsigned char *d_due = device_copy(g, due, sizeof due);
    for (int i = 0; i < 8; i++) {
        for (size_t j = 0; j < all; j++) {
            b.number[j] = (float)rng_uniform(&r);
            past[j] = rng_below(&r, 3) ? (float)rng_uniform(&r) : NAN;
        }
        struct gpu_history x = {device_copy(g, past, all * 4), i / 4 ? 0.8f : 0, i % 3, i % 2};
        float *out = device_copy(g, b.number, all * 4);
        gpu_score_history(g, &b.h, d_due, &x, SINKS, RECENT_FROM, out);
        float *got = host_copy(g, out, all * 4), *kept = host_copy(g, x.history, all * 4);
        device_check(g, "history");
        expect_folded(&b, past, &x, got, kept);
    }
}

Test(redundancy, numbers_are_drawn_once)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(42);
    struct bed b = bed_of(g, &r, lengths, KV_F32);
    size_t all = (size_t)(HEADS * b.ld);
    for (size_t j = 0; j < all; j++)
        b.number[j] = j % 3 ? NAN : 0.5f;
    float *drawn = device_copy(g, b.number, all * 4), *out = device_copy(g, b.number, all * 4);
    unsigned char *d_due = device_copy(g, due, sizeof due);
    gpu_score_random(g, &b.h, d_due, 99, 2, drawn, out);
    float *got = host_copy(g, out, all * 4), *kept = host_copy(g, drawn, all * 4);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < b.n[h]; i++) {
            size_t at = (size_t)(h * b.ld + i);
            uint64_t x = rng_hash(99, (uint64_t)(h / 2), (uint64_t)(h % 2), (uint64_t)b.k.pos[at]);
            float want = at % 3 ? (float)(x >> 40) * 0x1p-24f : 0.5f;
            if (due[h])
                cr_expect(got[at] == want && kept[at] == want, "head %d, slot %d", h, i);
        }
    device_check(g, "random");
}

/* Makes keys close to a few directions, so that many are similar. The keys of one head have length
 * 0. */
static void make_similar(struct bed *b, struct rng *r)
{
    for (int h = 0; h < HEADS; h++)
        for (int s = 0; s < b->n[h]; s++) {
            int group = (int)rng_below(r, 5), per = b->ld / PAGE_SLOTS;
            size_t page = (size_t)b->k.table[h * per + s / PAGE_SLOTS] * 2 * b->k.half;
            for (int d = 0; d < D; d++) {
                double x = 3 * sin(1.7 * group + d * (group + 1)) + rng_normal(r);
                float key = h == 1 && s % 7 == 0 ? 0 : (float)x;
                size_t at = page + (size_t)(d * PAGE_SLOTS + s % PAGE_SLOTS);
                if (b->k.c.type == KV_F16)
                    ((uint16_t *)b->k.pool)[at] = float_to_half(key);
                else
                    ((float *)b->k.pool)[at] = key;
            }
        }
    gpu_put(b->g, b->k.c.pool, b->k.pool, b->k.pool_bytes);
}

static double cosine(const struct bed *b, int h, int s, int t)
{
    double dot = 0, x = 0, y = 0;
    for (int d = 0; d < D; d++) {
        double u = (double)cache_of_get(&b->k, h, s, d, false),
               v = (double)cache_of_get(&b->k, h, t, d, false);
        dot += u * v;
        x += u * u;
        y += v * v;
    }
    return x > 0 && y > 0 ? dot / sqrt(x * y) : 0;
}

/* Computes softmax(r) by rank. r_j is the mean cosine with all other keys; each key ignores its
 * newest neighbour with a cosine above 1/2. */
static int redundancy(const struct bed *b, int h, double *r)
{
    const int32_t *order = b->order + h * b->ld;
    int n = b->n[h], forgiven = 0;
    double sum = 0;
    for (int j = 0; j < n; j++)
        r[j] = 0;
    for (int i = 0; i < n; i++) {
        int newest = -1;
        for (int j = 0; j < n; j++) {
            double c = i == j ? 0 : cosine(b, h, order[i], order[j]);
            r[j] += c / n;
            newest = c > 0.5 ? j : newest;
        }
        if (newest >= 0)
            r[newest] -= cosine(b, h, order[i], order[newest]) / n;
        forgiven += newest >= 0;
    }
    for (int j = 0; j < n; j++)
        sum += exp(r[j]);
    for (int j = 0; j < n; j++)
        r[j] = exp(r[j]) / sum;
    return forgiven;
}

static void expect_redundancy(const struct bed *b, const struct gpu_redundancy *x, int h,
                              const float *got)
{
    double *r = NEW(double, (size_t)b->n[h]), lambda = (double)x->lambda, most = 0;
    const int32_t *order = b->order + h * b->ld;
    int forgiven = redundancy(b, h, r);
    cr_expect(b->n[h] < 50 || forgiven > 20, "%d are forgiven", forgiven);
    for (int j = 0; j < b->n[h]; j++)
        if (asked(b, h, order[j]))
            most = fmax(most, r[j]);
    for (int j = 0; j < b->n[h]; j++) {
        size_t at = (size_t)(h * b->ld + order[j]);
        double want = (double)b->number[at];
        if (due[h])
            want = lambda * want - (1 - lambda) * r[j] / (x->normalise ? most : 1);
        cr_expect(epsilon_eq(dbl, (double)got[at], want, 1e-5), "head %d, rank %d: %g, not %g", h,
                  j, (double)got[at], want);
    }
}

Test(redundancy, keys_that_repeat_others_are_worth_less)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(43);
    for (int i = 0; i < 4; i++) {
        struct bed b = bed_of(g, &r, lengths, i % 2 ? KV_F16 : KV_F32);
        size_t all = (size_t)(HEADS * b.ld);
        struct gpu_redundancy x = {0.3f, i / 2,
                                   device_alloc(g, gpu_redundancy_bytes(HEADS, b.ld, D), 1)};
        unsigned char *d_due = device_copy(g, due, sizeof due);
        float *out = device_copy(g, b.number, all * 4);
        make_similar(&b, &r);
        emulation_seed((unsigned long long)i);
        gpu_score_redundancy(g, &b.h, d_due, &x, SINKS, RECENT_FROM, out);
        float *got = host_copy(g, out, all * 4);
        device_check(g, "redundancy");
        for (int h = 0; h < 3; h++) /* the last head has no candidates */
            expect_redundancy(&b, &x, h, got);
    }
}

/* test_attention_ints.c - attention over integer pages of 16 and 8 bits: every variant has the bits
 * of the reference, errors stay within the rounding bounds, and NaN and infinity are handled. */
#include <float.h>

#include "variants.h"

static const int dims[] = {2, 5, 16, 20, 32, 64, 80, 96, 128, 130, 256, 300};
static const int slots[] = {1, 2, 15, 32, 33, 63, 64};
static const enum kv_type types[] = {KV_I16, KV_Q8_0};
enum {
    N_DIMS = sizeof dims / sizeof *dims,
    N_SLOTS = sizeof slots / sizeof *slots,
    MAX_D = 300,
    MAX_BLOCKS = (MAX_D + KV_BLOCK - 1) / KV_BLOCK,
    MAX_T = 37,
    LD_Q = MAX_D + 3,
    LD_P = PAGE_SLOTS + 5
};

/* A page, and the query and weight rows that use it. */
static struct world {
    float key[PAGE_SLOTS][MAX_D], value[PAGE_SLOTS][MAX_D];
    float q[MAX_T * LD_Q], p[MAX_T * LD_P], start[MAX_T * MAX_D];
    _Alignas(64) unsigned char keys[(MAX_D + 2) * 2 * PAGE_SLOTS];
    _Alignas(64) unsigned char values[(MAX_D + 2) * 2 * PAGE_SLOTS];
} w;

struct result {
    float scores[MAX_T * PAGE_SLOTS], sums[MAX_T * MAX_D];
};

/* Makes rows of weights like those of a softmax; some rows see few slots. */
static void make_world(struct rng *r)
{
    fill_normal(r, &w.key[0][0], PAGE_SLOTS * MAX_D, 2);
    fill_normal(r, &w.value[0][0], PAGE_SLOTS * MAX_D, 0.3);
    fill_normal(r, w.q, MAX_T * LD_Q, 1);
    fill_normal(r, w.start, MAX_T * MAX_D, 1);
    for (int t = 0; t < MAX_T; t++)
        for (int s = 0; s < LD_P; s++)
            w.p[t * LD_P + s] = t % 5 == 4 && s > t
                                    ? 0
                                    : (float)exp(-3 * fabs(rng_normal(r)) * (t % 4) - t);
}

static void store(const struct kernels *k, enum kv_type type, int D)
{
    memset(w.keys, 0x7f, sizeof w.keys);
    memset(w.values, 0x7f, sizeof w.values);
    for (int s = 0; s < PAGE_SLOTS; s++)
        k->kv_store(w.keys, w.values, type, s, w.key[s], w.value[s], D);
}

static void attend(const struct kernels *k, enum kv_type type, int D, int T, int n_slots,
                   struct result *ret)
{
    static int16_t q[MAX_T * (MAX_D + 1)];
    static float scale[MAX_T * MAX_BLOCKS];
    static int32_t sum[MAX_T * MAX_BLOCKS];
    const struct kv_queries queries = {type, q, scale, sum};
    const struct kv_keys keys = {w.keys, type, NULL};
    const struct kv_values values = {w.values, type, D, 0, D, n_slots, NULL};
    memcpy(ret->sums, w.start, sizeof ret->sums);
    memset(ret->scores, 0, sizeof ret->scores);
    k->attn_queries(&queries, w.q, LD_Q, T, D);
    k->attn_scores(ret->scores, PAGE_SLOTS, &queries, T, D, &keys, 0.3f);
    k->attn_av(ret->sums, (size_t)D, w.p, LD_P, T, &values);
}

/* Returns true if the bits are equal. Different NaNs count as equal. */
static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(isnan(a[i]) && isnan(b[i])) && memcmp(a + i, b + i, sizeof *a) != 0)
            return false;
    return true;
}

static void expect_bits_of_the_reference(const struct variant *v, int n, enum kv_type type, int D,
                                         int T, int n_slots)
{
    static struct result ref, got;
    static unsigned char keys[sizeof w.keys], values[sizeof w.values];
    store(&v[0].k, type, D);
    memcpy(keys, w.keys, sizeof keys);
    memcpy(values, w.values, sizeof values);
    attend(&v[0].k, type, D, T, n_slots, &ref);
    for (int i = 1; i < n; i++) {
        store(&v[i].k, type, D);
        cr_expect(memcmp(keys, w.keys, sizeof keys) == 0
                      && memcmp(values, w.values, sizeof values) == 0,
                  "%s, D %d: stored otherwise", v[i].name, D);
        attend(&v[i].k, type, D, T, n_slots, &got);
        cr_expect(same(ref.scores, got.scores, MAX_T * PAGE_SLOTS), "%s, D %d, T %d: scores",
                  v[i].name, D, T);
        cr_expect(same(ref.sums, got.sums, MAX_T * MAX_D), "%s, D %d, T %d, %d slots: sums",
                  v[i].name, D, T, n_slots);
    }
}

Test(attention_ints, every_variant_gives_the_bits_of_the_reference)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(1);
    for (int c = 0; c < N_DIMS; c++)
        for (int T = 1; T <= MAX_T; T += T < 10 ? 1 : 9) {
            make_world(&r);
            for (int i = 0; i < 2; i++)
                expect_bits_of_the_reference(v, n, types[i], dims[c], T, slots[(T + c) % N_SLOTS]);
        }
}

/* NaN, infinities, and the largest and smallest finite numbers. */
Test(attention_ints, hostile_numbers_give_the_same_bits_too)
{
    static const float odd[] = {NAN,      -NAN,     INFINITY, -INFINITY, FLT_MAX, -FLT_MAX,
                                FLT_MIN,  1e-45f,   -1e-45f,  0,         -0.0f,   1e-30f,
                                9.9e-31f, 1.1e-30f, 1e30f,    65504,     1,       -1};
    enum { N_ODD = sizeof odd / sizeof *odd };
    VARIANTS(v, n);
    struct rng r = rng_seeded(2);
    for (int round = 0; round < 120; round++) {
        int D = dims[round / 2 % N_DIMS];
        make_world(&r);
        for (int i = 0; i < 30; i++) {
            float x = odd[rng_below(&r, N_ODD)];
            float *row[] = {w.key[rng_below(&r, 64)], w.value[rng_below(&r, 64)],
                            w.q + rng_below(&r, MAX_T) * LD_Q, w.p + rng_below(&r, MAX_T) * LD_P};
            int which = (int)rng_below(&r, 4), len = which == 3 ? PAGE_SLOTS : D;
            if (rng_below(&r, 2))
                row[which][rng_below(&r, (uint64_t)len)] = x;
            else
                for (int d = 0; d < len; d++)
                    row[which][d] = x;
        }
        expect_bits_of_the_reference(v, n, types[round % 2], D, 1 + (int)rng_below(&r, MAX_T),
                                     slots[round % N_SLOTS]);
    }
}

/* A query's row has the same bits as when computed separately, and channels may be summed in
 * parts. */
Test(attention_ints, rows_do_not_depend_on_their_neighbours)
{
    static struct result all;
    VARIANTS(v, n);
    float one[PAGE_SLOTS], sum[MAX_D];
    struct rng r = rng_seeded(3);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++) {
            int D = dims[c], n_slots = slots[c % N_SLOTS];
            enum kv_type type = types[(c + i) % 2];
            static int16_t q[MAX_D + 1];
            float scale[MAX_BLOCKS];
            int32_t sums[MAX_BLOCKS];
            const struct kv_queries query = {type, q, scale, sums};
            const struct kv_keys keys = {w.keys, type, w.values};
            make_world(&r);
            store(&v[i].k, type, D);
            attend(&v[i].k, type, D, MAX_T, n_slots, &all);
            for (int t = 0; t < MAX_T; t++) {
                v[i].k.attn_queries(&query, w.q + t * LD_Q, LD_Q, 1, D);
                v[i].k.attn_scores(one, PAGE_SLOTS, &query, 1, D, &keys, 0.3f);
                cr_expect(same(one, all.scores + t * PAGE_SLOTS, PAGE_SLOTS), "%s, D %d, row %d",
                          v[i].name, D, t);
                memcpy(sum, w.start + t * D, (size_t)D * sizeof *sum);
                for (int d = 0; d < D; d += KV_BLOCK) {
                    int end = d + KV_BLOCK < D ? d + KV_BLOCK : D;
                    const struct kv_values part = {w.values, type, D, d, end, n_slots, w.keys};
                    v[i].k.attn_av(sum, MAX_D, w.p + t * LD_P, LD_P, 1, &part);
                }
                cr_expect(same(sum, all.sums + t * D, (size_t)D), "%s, D %d, row %d: sums",
                          v[i].name, D, t);
            }
        }
}

static double largest(const float *x, int n)
{
    double max = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, fabs((double)x[i]));
    return max;
}

/* Returns half a quantisation step of channel d of a row. For q8_0 this is the step of its block,
 * with the rounding of a key's scale to f16. */
static double half_step(const float *x, enum kv_type type, int D, int d)
{
    if (type == KV_I16)
        return largest(x, D) / 8190;
    int d0 = d / KV_BLOCK * KV_BLOCK;
    return largest(x + d0, D - d0 < KV_BLOCK ? D - d0 : KV_BLOCK) / 127 * (0.5 + 127 * 0x1p-11);
}

/* q.k - score| <= sum of |q| u_k + |k| u_q + u_k u_q with the half steps u, plus float rounding. */
static double score_error(const float *scores, enum kv_type type, int D, int t)
{
    const float *q = w.q + t * LD_Q;
    double bad = 0;
    for (int s = 0; s < PAGE_SLOTS; s++) {
        double exact = 0, bound = 0;
        for (int d = 0; d < D; d++) {
            double uq = half_step(q, type, D, d), uk = half_step(w.key[s], type, D, d);
            double a = (double)q[d], b = (double)w.key[s][d];
            exact += a * b;
            bound += fabs(a) * uk + fabs(b) * uq + uk * uq + 6 * 0x1p-24 * fabs(a * b);
        }
        bad = worst(fabs((double)scores[t * PAGE_SLOTS + s] - 0.3 * exact) / (0.3 * bound), bad);
    }
    return bad;
}

/* Returns the error of sums of values relative to its bound. Weights are off by half a step of the
 * largest p u. */
static double sum_error(const float *sums, int D, int t, int n_slots)
{
    double step = 0, bad = 0;
    for (int s = 0; s < n_slots; s++)
        step = fmax(step, (double)w.p[t * LD_P + s] * largest(w.value[s], D) / 4095 / 16382);
    for (int d = 0; d < D; d++) {
        double exact = (double)w.start[t * D + d], bound = 4 * 0x1p-24 * fabs(exact);
        for (int s = 0; s < n_slots; s++) {
            double p = (double)w.p[t * LD_P + s], x = (double)w.value[s][d];
            exact += p * x;
            bound += p * largest(w.value[s], D) / 8190 + 4096 * step * 1.001
                     + 6 * 0x1p-24 * fabs(p * x);
        }
        bad = worst(fabs((double)sums[t * D + d] - exact) / bound, bad);
    }
    return bad;
}

Test(attention_ints, errors_are_those_of_the_roundings)
{
    static struct result got;
    struct kernels k;
    double scores = 0, bytes = 0, sums = 0;
    kernels_init(&k, 0);
    struct rng r = rng_seeded(4);
    for (int c = 0; c < N_DIMS; c++) {
        int n_slots = slots[c % N_SLOTS];
        make_world(&r);
        store(&k, KV_Q8_0, dims[c]);
        attend(&k, KV_Q8_0, dims[c], MAX_T, n_slots, &got);
        for (int t = 0; t < MAX_T; t++)
            bytes = worst(score_error(got.scores, KV_Q8_0, dims[c], t), bytes);
        store(&k, KV_I16, dims[c]);
        attend(&k, KV_I16, dims[c], MAX_T, n_slots, &got);
        for (int t = 0; t < MAX_T; t++) {
            scores = worst(score_error(got.scores, KV_I16, dims[c], t), scores);
            sums = worst(sum_error(got.sums, dims[c], t, n_slots), sums);
        }
    }
    cr_expect(scores <= 1 && bytes <= 1, "scores: %g, %g times the bound", scores, bytes);
    cr_expect(sums <= 1, "sums: %g times the bound", sums);
    cr_expect(scores > 1e-3 && bytes > 1e-3 && sums > 1e-3,
              "bounds that are never near: %g, %g, %g", scores, bytes, sums);
}

/* The largest integer sums possible: all numbers at their maximum, with one sign. */
Test(attention_ints, the_largest_sums_do_not_overflow)
{
    static struct result got;
    VARIANTS(v, n);
    for (int i = 0; i < n; i++)
        for (int round = 0; round < 4; round++) {
            enum { D = 256 };
            int sign = round / 2 * 2 - 1;
            for (int s = 0; s < PAGE_SLOTS; s++)
                for (int d = 0; d < D; d++)
                    w.key[s][d] = w.value[s][d] = 3;
            for (int j = 0; j < MAX_T * LD_Q; j++)
                w.q[j] = (float)sign;
            for (int j = 0; j < MAX_T * LD_P; j++)
                w.p[j] = (float)sign;
            memset(w.start, 0, sizeof w.start);
            enum kv_type type = types[round % 2];
            store(&v[i].k, type, D);
            attend(&v[i].k, type, D, MAX_T, PAGE_SLOTS, &got);
            for (int j = 0; j < MAX_T * PAGE_SLOTS; j++)
                cr_assert(fabsf(got.scores[j] / (0.9f * D * (float)sign) - 1) < 1e-3f);
            for (int j = 0; j < MAX_T * D; j++)
                cr_assert(fabsf(got.sums[j] / (3.0f * PAGE_SLOTS * (float)sign) - 1) < 1e-3f);
        }
}

/* Returns true if both channels have the same scale. */
static bool in_block(enum kv_type type, int d, int other)
{
    return type == KV_I16 || d / KV_BLOCK == other / KV_BLOCK;
}

/* An entry with NaN or infinity affects only the queries that read it. */
Test(attention_ints, what_is_no_number_stays_with_its_entry)
{
    static struct result got;
    VARIANTS(v, n);
    enum { D = 64, T = 9, SLOT = 20 };
    struct rng r = rng_seeded(5);
    for (int i = 0; i < 2 * n; i++) {
        make_world(&r);
        w.key[SLOT][3] = NAN;
        w.value[SLOT][40] = INFINITY;
        enum kv_type type = types[i / n];
        const struct kernels *k = &v[i % n].k;
        store(k, type, D);
        attend(k, type, D, T, PAGE_SLOTS, &got);
        for (int t = 0; t < T; t++)
            for (int s = 0; s < PAGE_SLOTS; s++)
                cr_expect(isnan(got.scores[t * PAGE_SLOTS + s]) == (s == SLOT), "%s",
                          v[i % n].name);
        for (int j = 0; j < T * D; j++)
            cr_expect(isnan(got.sums[j]) || !in_block(type, j % D, 40), "%s", v[i % n].name);
        attend(k, type, D, T, SLOT, &got); /* only slots before it */
        for (int j = 0; j < T * D; j++)
            cr_expect(isfinite(got.sums[j]), "%s", v[i % n].name);
    }
}

/* Entries moved in a page or to another page keep their bits, and other entries do not change. */
static void expect_moved(struct rng *r, enum kv_type type, int D, bool within)
{
    _Alignas(64) static unsigned char a[2][2 * sizeof w.keys], before[sizeof a];
    size_t half = kv_half_bytes(type, D);
    for (size_t i = 0; i < sizeof a; i++)
        a[i / sizeof *a][i % sizeof *a] = (unsigned char)rng_below(r, 64);
    memcpy(before, a, sizeof a);
    unsigned char *to_page = a[!within];
    const unsigned char *to_before = before + (within ? 0 : sizeof *a);
    int n = 1 + (int)rng_below(r, PAGE_SLOTS), from = (int)rng_below(r, (unsigned)(65 - n));
    int to = (int)rng_below(r, (unsigned)(65 - n)), wrong = 0;
    kv_move(a[0], from, to_page, to, n, type, D);
    for (int s = 0; s < PAGE_SLOTS; s++)
        for (int d = 0; d < D; d++) {
            bool moved = s >= to && s < to + n;
            const unsigned char *was = moved ? before : to_before;
            int slot = moved ? s - to + from : s;
            wrong += kv_key_at(to_page, type, D, s, d) != kv_key_at(was, type, D, slot, d);
            wrong += kv_value_at(to_page + half, type, D, s, d)
                     != kv_value_at(was + half, type, D, slot, d);
        }
    cr_expect(zero(int, wrong), "D %d, %d entries from %d to %d", D, n, from, to);
}

Test(attention_ints, entries_move_whole)
{
    struct rng r = rng_seeded(6);
    for (int i = 0; i < N_DIMS; i++)
        for (int round = 0; round < 40; round++)
            expect_moved(&r, types[round / 2 % 2], dims[i], round % 2);
}

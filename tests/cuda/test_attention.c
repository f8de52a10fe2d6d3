/* test_attention.c - attention over ragged pages against the equation in double precision, for each
 * implementation. The rows of weights are also compared with the C reference. */
#include "engine/kernels/kernels_ref.h"
#include "tests/cuda/attention_of.h"

static const struct attention_case cases[] = {
    {"one entry", 1, 1, 16, 1, {1}, KV_F32, 0, 0, false, 0},
    {"a step, ragged", 3, 2, 64, 1, {1, 64, 65}, KV_F32, 0, 0, false, 0},
    {"a step of many pages", 2, 3, 20, 1, {700, 333}, KV_F16, 0, 0, false, 0},
    {"a step with windows", 2, 5, 32, 1, {130, 200}, KV_F32, 0, 20, false, 0},
    {"a step that reads pages", 2, 4, 32, 1, {130, 200}, KV_F32, 0, 20, false, 16},
    {"a step of wide heads", 1, 9, 160, 1, {70}, KV_F16, 30, 0, true, 0},
    {"a prompt", 2, 2, 16, 70, {70, 70}, KV_F32, 0, 0, false, 0},
    {"a page that the last queries alone see", 1, 2, 16, 32, {66}, KV_F32, 0, 0, false, 0},
    {"a chunk of a prompt", 2, 1, 80, 33, {101, 64}, KV_F16, 0, 0, false, 0},
    {"vertical and slash", 2, 2, 32, 40, {300, 190}, KV_F32, 0, 20, false, 0},
    {"retention and cap", 1, 2, 128, 17, {81}, KV_F32, 20, 0, true, 0},
    {"wide heads", 1, 2, 256, 5, {77}, KV_F32, 0, 20, true, 0},
};

static void check_out(struct gpu *g, const struct setting *s, const char *how)
{
    size_t n = s->in.ld_out * (size_t)s->a->T;
    float *got = host_copy(g, s->in.out, n * 4);
    cr_expect(le(dbl, distance(got, s->out, n), 1e-5), "%s: %s", s->a->what, how);
    gpu_zero(g, s->in.out, n * 4);
    device_check(g, s->a->what);
}

static void check_rows(struct gpu *g, const struct setting *s)
{
    size_t rows = (size_t)(s->in.n_heads * s->a->T), ld = (size_t)s->k.ld_slot;
    float *p = device_alloc(g, rows * ld, 4), *lse = device_alloc(g, rows, 4);
    float *entropy = device_alloc(g, rows, 4);
    int32_t *seen = device_alloc(g, rows, 4);
    gpu_rows(g, &s->in, p, ld, lse, entropy, seen);
    gpu_rows_values(g, &s->in, p, ld);
    float *got = host_copy(g, p, rows * ld * 4), *got_lse = host_copy(g, lse, rows * 4);
    float *got_entropy = host_copy(g, entropy, rows * 4);
    int32_t *got_seen = host_copy(g, seen, rows * 4);
    cr_expect(le(dbl, distance(got, s->p, rows * ld), 1e-5), "%s: rows", s->a->what);
    for (size_t i = 0; i < rows; i++) {
        cr_expect(le(dbl, fabs((double)got_lse[i] - s->lse[i]), 1e-5 * (1 + fabs(s->lse[i]))));
        cr_expect(le(dbl, fabs((double)got_entropy[i] - s->entropy[i]), 1e-5));
        cr_expect(eq(int, got_seen[i], s->seen[i]), "%s: row %zu", s->a->what, i);
    }
    check_out(g, s, "from rows");
    gpu_rows(g, &s->in, p, ld, NULL, NULL, NULL);
    device_check(g, "rows without numbers");
}

/* Cases in which sums may have any order. The queries are rounded to f16 first. */
static const struct attention_case near_cases[] = {
    {"a chunk", 2, 3, 64, 33, {200, 333}, KV_F16, 0, 0, false, 0, true},
    {"one row more than a block", 1, 5, 80, 13, {70}, KV_F16, 0, 0, false, 0, true},
    {"windows", 2, 2, 32, 40, {300, 190}, KV_F16, 0, 20, false, 0, true},
    {"pages, retention and cap", 1, 4, 128, 9, {141}, KV_F16, 20, 30, true, 16, true},
    {"another type", 2, 2, 16, 7, {70, 90}, KV_F32, 0, 0, false, 0, true},
    {"an odd head", 2, 2, 20, 7, {70, 90}, KV_F16, 0, 0, false, 0, true},
    {"a chunk of what stays", 2, 3, 64, 33, {200, 333}, KV_F16, 0, 0, false, 0, true, true},
    {"chosen pages of what stays", 1, 4, 32, 9, {141}, KV_F16, 0, 0, false, 16, true, true},
    {"more than one part", 1, 2, 16, 17, {1100}, KV_F16, 0, 0, false, 0, true},
};

static void check_near_rows(struct gpu *g, const struct setting *s)
{
    size_t rows = (size_t)(s->in.n_heads * s->a->T), ld = (size_t)s->k.ld_slot;
    float *p = device_alloc(g, rows * ld, 4), *lse = device_alloc(g, rows, 4);
    float *entropy = device_alloc(g, rows, 4);
    int32_t *seen = device_alloc(g, rows, 4);
    gpu_rows_approx(g, &s->in, p, ld, lse, entropy, seen);
    device_check(g, s->a->what);
    float *got = host_copy(g, p, rows * ld * 4), *got_lse = host_copy(g, lse, rows * 4);
    float *got_entropy = host_copy(g, entropy, rows * 4);
    int32_t *got_seen = host_copy(g, seen, rows * 4);
    for (size_t i = 0; i < rows; i++) {
        int h = (int)i / s->a->T / s->a->group, r = (int)i % s->a->T;
        int n = s->k.n[h] - (s->a->T - 1 - r);
        double worst = 0;
        for (int k = 0; k < n; k++) {
            float right = s->p[i * ld + (size_t)k];
            worst = fmax(worst, fabs((double)got[i * ld + (size_t)k] - (double)right));
        }
        cr_expect(le(dbl, worst, 1e-5), "%s: row %zu", s->a->what, i);
        cr_expect(le(dbl, fabs((double)got_lse[i] - s->lse[i]), 1e-5 * (1 + fabs(s->lse[i]))));
        cr_expect(le(dbl, fabs((double)got_entropy[i] - s->entropy[i]), 3e-5), "%s", s->a->what);
        cr_expect(eq(int, got_seen[i], s->seen[i]), "%s: row %zu", s->a->what, i);
    }
}

Test(cuda, rows_that_are_near)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(13);
    for (size_t c = 0; c < sizeof near_cases / sizeof *near_cases; c++) {
        struct setting s = prepare(g, &near_cases[c], &r);
        set_right(&s);
        emulation_seed(c);
        check_near_rows(g, &s);
    }
}

/* Heads of two layers with queries in separate places give the rows that each layer gives when
 * computed separately. */
Test(cuda, rows_of_several_layers)
{
    const struct attention_case a = {"layers", 4, 3, 40,    1, {150, 97, 64, 1},
                                     KV_F16,   0, 0, false, 0};
    enum { APART = 6 * 40 + 8 };
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(14);
    struct setting s = prepare(g, &a, &r);
    size_t ld = (size_t)s.k.ld_slot, rows = 12;
    float *p = device_alloc(g, 2 * rows * ld, 4), *q = device_alloc(g, 2 * APART, 4);
    gpu_rows(g, &s.in, p, ld, NULL, NULL, NULL);
    for (int l = 0; l < 2; l++)
        gpu_copy(g, q + l * APART, s.in.q + l * 6 * 40, 6 * 40 * 4);
    s.in.layer_heads = 6;
    s.in.ld_layer = APART;
    const float *together = s.in.q;
    s.in.q = q;
    gpu_rows(g, &s.in, p + rows * ld, ld, NULL, NULL, NULL);
    s.in.q = together;
    device_check(g, a.what);
    float *got = host_copy(g, p, 2 * rows * ld * 4);
    cr_expect(zero(int, memcmp(got, got + rows * ld, rows * ld * 4)));
}

/* Allocates rows of weights with their statistics on the device. */
static struct gpu_seen_rows rows_for(struct gpu *g, const struct setting *s)
{
    size_t heads = (size_t)s->in.n_heads, ld = (size_t)s->k.ld_slot;
    return (struct gpu_seen_rows){s->in,
                                  device_alloc(g, heads * ld, 4),
                                  ld,
                                  device_alloc(g, heads, 4),
                                  device_alloc(g, heads, 4),
                                  device_alloc(g, heads, 4)};
}

static void same_bytes(struct gpu *g, const void *a, const void *b, size_t bytes, const char *what)
{
    void *one = host_copy(g, a, bytes), *other = host_copy(g, b, bytes);
    cr_expect(zero(int, memcmp(one, other, bytes)), "%s", what);
}

/* Checks that the rows x of a sequence equal those of gpu_rows() for only this
 * sequence. */
static void expect_alone(struct gpu *g, const struct setting *s, struct gpu_seen_rows *x)
{
    size_t heads = (size_t)s->in.n_heads;
    struct gpu_seen_rows y = rows_for(g, s);
    gpu_rows(g, &s->in, y.p, y.ld, y.lse, y.entropy, y.seen);
    same_bytes(g, x->p, y.p, heads * x->ld * 4, s->a->what);
    same_bytes(g, x->lse, y.lse, heads * 4, s->a->what);
    same_bytes(g, x->entropy, y.entropy, heads * 4, s->a->what);
    same_bytes(g, x->seen, y.seen, heads * 4, s->a->what);
}

/* Sequences of different lengths in one launch. The longest is neither first nor last, and some
 * read by pages. Groups range from few query heads per KV head to more than a block has rows. */
Test(cuda, rows_of_several_sequences)
{
    static const int n[GPU_TOGETHER][2] = {{3, 64},  {70, 1},   {2, 5},    {141, 200},
                                           {65, 63}, {64, 128}, {129, 20}, {1, 9}};
    static const int n_of[] = {1, 3, GPU_TOGETHER};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(15);
    for (int k = 0; k < 6; k++) {
        struct attention_case a[GPU_TOGETHER];
        struct setting s[GPU_TOGETHER];
        struct gpu_seen_rows rows[GPU_TOGETHER];
        int count = n_of[k / 2];
        emulation_seed((unsigned long long)k);
        for (int i = 0; i < count; i++) {
            a[i] = (struct attention_case){.what = "together",
                                           .heads = 2,
                                           .group = k % 2 ? 2 : 17,
                                           .D = 24,
                                           .T = 1,
                                           .n = {n[i][0], n[i][1]},
                                           .type = k % 2 ? KV_F16 : KV_F32,
                                           .page = i % 2 ? 5 : 0};
            s[i] = prepare(g, &a[i], &r);
            rows[i] = rows_for(g, &s[i]);
        }
        gpu_rows_together(g, rows, count);
        device_check(g, "together");
        for (int i = 0; i < count; i++)
            expect_alone(g, &s[i], &rows[i]);
    }
    device_check(g, "alone");
}

Test(cuda, attention)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(11);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct setting s = prepare(g, &cases[c], &r);
        set_right(&s);
        for (int seed = 0; seed < SEEDS; seed += stride(2)) {
            emulation_seed((unsigned long long)seed);
            if (s.a->type == KV_F32) { /* test_prompt.c tests f16 */
                gpu_attend_prompt(g, &s.in);
                check_out(g, &s, "prompt");
            }
            if (s.a->T == 1) {
                float *work = device_alloc(g, gpu_step_work(&s.in), 4);
                gpu_zero(g, work, gpu_step_work(&s.in) * 4);
                gpu_attend_step(g, &s.in, &work, 1);
                check_out(g, &s, "step");
            }
        }
        check_rows(g, &s);
    }
}

/* In a plain case the rows equal those of the C reference bit for bit. A real device has a
 * different exp. */
Test(cuda, rows_are_those_of_the_reference)
{
    const struct attention_case a = {"exact", 2, 2, 64, 19, {150, 97}, KV_F32, 0, 0, false, 0};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(12);
    struct setting s = prepare(g, &a, &r);
    size_t ld = (size_t)s.k.ld_slot, rows = (size_t)(4 * a.T);
    float *p = device_alloc(g, rows * ld, 4);
    gpu_rows(g, &s.in, p, ld, NULL, NULL, NULL);
    gpu_rows_values(g, &s.in, p, ld);
    float *got = host_copy(g, p, rows * ld * 4);
    float *out = host_copy(g, s.in.out, s.in.ld_out * (size_t)a.T * 4);
    for (int q = 0; q < 4; q++)
        for (int t = 0; t < a.T; t++) {
            int h = q / 2, n = s.k.n[h] - (a.T - 1 - t);
            float *row = NEW(float, ld), sum[64] = {0};
            const float *pool = s.k.pool, *query = s.q + (size_t)t * s.in.ld_q + q * 64;
            for (int b = 0; b * PAGE_SLOTS < n; b++) {
                size_t page = (size_t)s.k.table[h * s.k.c.ld_table + b];
                const struct kv_keys keys = {.page = pool + page * 2 * s.k.half, .type = KV_F32};
                attn_qk_ref(row + b * PAGE_SLOTS, ld, query, 0, 1, 64, &keys, s.in.scale);
            }
            softmax_ref(row, n, NULL);
            for (int b = 0; b * PAGE_SLOTS < n; b++) {
                const struct kv_values values = {
                    pool + (size_t)s.k.table[h * s.k.c.ld_table + b] * 2 * s.k.half + s.k.half,
                    KV_F32,
                    64,
                    0,
                    64,
                    n - b * PAGE_SLOTS < PAGE_SLOTS ? n - b * PAGE_SLOTS : PAGE_SLOTS,
                    NULL};
                attn_av_ref(sum, 0, row + b * PAGE_SLOTS, 0, 1, &values);
            }
            cr_expect(le(dbl, distance(got + (size_t)(q * a.T + t) * ld, row, (size_t)n),
                         EMULATED ? 0 : 1e-6));
            cr_expect(le(dbl, distance(out + (size_t)t * s.in.ld_out + q * 64, sum, 64),
                         EMULATED ? 0 : 1e-6));
        }
}

/* ---- keys rotated by ranks */

enum { TURNED = 5, PER = 2 }; /* queries; query heads per KV head */

static bool same_value(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Checks the keys of a head that are rotated by rank: the key in slot i has rank[i]. The bits must
 * equal those of rope_ref(). */
static void check_keys(const struct cache_of *k, const float *pages, const int32_t *rank,
                       const float *turns, int n_rot)
{
    float key[GPU_MAX_CHANNELS];
    for (int h = 0; h < k->heads; h++)
        for (int s = 0; s < k->n[h]; s++) {
            const float *page = pages + (size_t)(h * k->c.ld_table + s / PAGE_SLOTS) * 2 * k->half;
            for (int d = 0; d < k->D; d++)
                key[d] = cache_of_get(k, h, s, d, false);
            rope_ref(key, turns + rank[h * k->ld_slot + s] * n_rot, 1, k->D, n_rot);
            for (int d = 0; d < k->D; d++) {
                cr_assert(same_value(page[d * PAGE_SLOTS + s % PAGE_SLOTS], key[d]),
                          "head %d, slot %d", h, s);
                cr_assert(same_value(page[k->half + (size_t)(s % PAGE_SLOTS * k->D + d)],
                                     cache_of_get(k, h, s, d, true)),
                          "value of head %d, slot %d", h, s);
            }
        }
}

static void check_queries(const struct cache_of *k, const float *got, const float *q, size_t ld,
                          const float *turns, int n_rot)
{
    float want[GPU_MAX_CHANNELS];
    for (int t = 0; t < TURNED; t++)
        for (int g = 0; g < k->heads * PER; g++) {
            size_t at = (size_t)t * ld + (size_t)(g * k->D);
            memcpy(want, q + at, (size_t)k->D * sizeof *want);
            rope_ref(want, turns + (k->n[g / PER] - TURNED + t) * n_rot, 1, k->D, n_rot);
            cr_assert(zero(int, memcmp(want, got + at, (size_t)k->D * sizeof *want)),
                      "query %d of head %d", t, g);
        }
}

/* Ranks run against the order of slots, and the rotation angles are unrelated. */
static void turned_case(struct gpu *g, enum kv_type type, int D, int n_rot)
{
    static const int n[] = {130, 5, 64};
    struct rng r = rng_seeded(11);
    struct cache_of k = cache_of_random(g, &r, 3, n, D, type);
    size_t slots = (size_t)(3 * k.ld_slot), ld = (size_t)(3 * PER * D + 7), rows = TURNED * ld;
    int32_t *rank = NEW(int32_t, slots);
    float *turns = NEW(float, (size_t)(130 * n_rot)), *q = NEW(float, rows);
    for (int h = 0; h < 3; h++)
        for (int s = 0; s < n[h]; s++)
            rank[h * k.ld_slot + s] = (s * 7 + 3) % n[h];
    for (int i = 0; i < 130 * n_rot; i++)
        turns[i] = (float)rng_normal(&r);
    for (size_t i = 0; i < rows; i++)
        q[i] = (float)rng_normal(&r);
    float *d_turns = device_copy(g, turns, (size_t)(130 * n_rot) * 4);
    int32_t *d_rank = device_copy(g, rank, slots * 4);
    float *d_q = device_copy(g, q, rows * 4);
    size_t bytes = (size_t)k.pages * 2 * k.half * 4;
    struct gpu_ranks how = {d_rank, n_rot ? d_turns : NULL, n_rot, device_alloc(g, bytes, 1)};
    gpu_turn_keys(g, &k.c, &how);
    gpu_turn_queries(g, &k.c, &how, d_q, ld, 3 * PER, TURNED);
    float *pages = host_copy(g, how.pages, bytes), *got = host_copy(g, d_q, rows * 4);
    device_check(g, "turned by ranks");
    check_keys(&k, pages, rank, turns, n_rot);
    check_queries(&k, got, q, ld, turns, n_rot);
    for (int t = 0; t < TURNED; t++) /* no entry after the queries */
        cr_expect(zero(int, memcmp(got + (size_t)(t + 1) * ld - 7, q + (size_t)(t + 1) * ld - 7,
                                   7 * sizeof *q)));
}

Test(attention, keys_and_queries_are_turned_by_ranks, .timeout = 60)
{
    OWNED(device_close) struct gpu *g = device_open();
    turned_case(g, KV_F32, 16, 16);
    turned_case(g, KV_F16, 20, 12);
    turned_case(g, KV_F32, 6, 0);
    turned_case(g, KV_F16, 256, 256);
}

/* test_decisions.c - decisions on the device: choosing entries to evict, appending entries, and
 * tokens. All results equal brute force bit for bit. */
#include "engine/kernels/kernels_ref.h"
#include "tests/cuda/cache_of.h"
#include "tests/engine/drawn.h"

struct entry {
    float score;
    int32_t pos, slot, head;
};

static bool older_wins;

/* Implements the order of gpu_choose(): lowest score, then smaller position (or larger), then
 * larger head. */
static int worst_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    if (x->pos != y->pos)
        return (x->pos < y->pos) != older_wins ? -1 : 1;
    return x->head > y->head ? -1 : 1;
}

enum { HEADS = 6, SLOTS = 200 };

/* Marks the entries to evict, pool by pool, and counts them per head. */
static void choose_by_sorting(const float *score, const int32_t *pos, unsigned char *mark,
                              const int32_t *n, int32_t *count, int pools, const int64_t *k)
{
    static struct entry e[HEADS * SLOTS];
    for (int p = 0; p < pools; p++) {
        int m = 0, per = HEADS / pools;
        for (int h = p * per; h < (p + 1) * per; h++) {
            count[h] = 0;
            for (int i = 0; i < n[h]; i++) {
                float x = score[h * SLOTS + i];
                if (mark[h * SLOTS + i] == 1)
                    e[m++] = (struct entry){isnan(x) ? -INFINITY : x, pos[h * SLOTS + i], i, h};
            }
        }
        qsort(e, (size_t)m, sizeof *e, worst_first);
        for (int i = 0; i < m && i < k[p]; i++) {
            mark[e[i].head * SLOTS + e[i].slot] = 2;
            count[e[i].head]++;
        }
    }
}

static void choice_case(struct gpu *g, struct rng *r, int pools, int values, bool older)
{
    static const float special[] = {-INFINITY, NAN, 0.0f, -0.0f, 1e-40f, -1e-40f, INFINITY};
    static float score[HEADS * SLOTS];
    static int32_t pos[HEADS * SLOTS], n[HEADS], count[HEADS];
    static unsigned char mark[HEADS * SLOTS];
    int64_t k[HEADS];
    memset(count, 0, sizeof count);
    for (int h = 0; h < HEADS; h++) {
        n[h] = (int32_t)rng_below(r, SLOTS + 1);
        k[h] = (int64_t)rng_below(r, (uint64_t)(HEADS / pools * SLOTS * 2 / 3)) - 5;
    }
    for (int i = 0; i < HEADS * SLOTS; i++) {
        score[i] = (float)((double)rng_below(r, (uint64_t)values) - values / 2) * 0.37f;
        if (rng_below(r, 10) == 0)
            score[i] = special[rng_below(r, 7)];
        pos[i] = i % SLOTS * 3 % SLOTS;
        mark[i] = (unsigned char)(rng_below(r, 5) ? 1 : 3 * rng_below(r, 2));
    }
    struct gpu_choice c = {device_copy(g, score, sizeof score),
                           device_copy(g, pos, sizeof pos),
                           device_copy(g, mark, sizeof mark),
                           device_copy(g, n, sizeof n),
                           device_copy(g, count, sizeof count),
                           SLOTS,
                           1,
                           2,
                           older,
                           device_alloc(g, gpu_choice_bytes(pools, HEADS / pools), 1)};
    int64_t *dk = device_copy(g, k, sizeof k);
    gpu_choose(g, &c, pools, HEADS / pools, dk);
    older_wins = older;
    choose_by_sorting(score, pos, mark, n, count, pools, k);
    unsigned char *got = host_copy(g, c.mark, sizeof mark);
    int32_t *got_count = host_copy(g, c.count, sizeof count);
    cr_expect(zero(int, memcmp(got, mark, sizeof mark)), "%d pools, %d values", pools, values);
    cr_expect(zero(int, memcmp(got_count, count, sizeof count)), "%d pools, counts", pools);
    device_check(g, "choose");
}

Test(cuda, choices)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(23);
    static const int pools[] = {1, 1, 2, 6}, values[] = {2, 3, 100000};
    for (int i = 0; i < 24; i++) { /* few distinct values: ties at the cut */
        emulation_seed((unsigned long long)i);
        choice_case(g, &r, pools[i % 4], values[i % 3], i % 8 >= 4);
    }
}

enum { N_HEADS = 3, D = 20, T = 5, ROW = 2 * N_HEADS * D + 1, FIRST_POS = 900 };

static float as_stored(float x, enum kv_type type)
{
    return type == KV_F16 ? half_to_float(float_to_half(x)) : x;
}

/* Rewrites the newest T entries of all heads. k becomes the content that the device should then
 * have. */
static void append_case(struct gpu *g, struct rng *r, struct cache_of *k)
{
    static float row[T * ROW];
    int32_t first[N_HEADS], until[T * N_HEADS];
    size_t slots = (size_t)(N_HEADS * k->ld_slot);
    fill(r, row, T * ROW, 1);
    for (int h = 0; h < N_HEADS; h++)
        first[h] = k->n[h] - T;
    for (int i = 0; i < T * N_HEADS; i++)
        until[i] = 1000 + i;
    float *d_row = device_copy(g, row, sizeof row);
    int32_t *d_first = device_copy(g, first, sizeof first);
    int32_t *d_until = device_copy(g, until, sizeof until);
    gpu_append(g, &k->c, d_row, d_row + N_HEADS * D, ROW, d_first, T, FIRST_POS, d_until);
    gpu_get(g, k->pool, k->c.pool, k->pool_bytes);
    gpu_get(g, k->pos, k->c.pos, slots * 4);
    gpu_get(g, k->until, k->c.until, slots * 4);
    for (int i = 0; i < N_HEADS * T; i++) {
        int h = i % N_HEADS, t = i / N_HEADS, slot = first[h] + t;
        const float *key = row + t * ROW + h * D, *value = key + N_HEADS * D;
        cr_expect(eq(int, k->pos[h * k->ld_slot + slot], FIRST_POS + t));
        cr_expect(eq(int, k->until[h * k->ld_slot + slot], until[i]));
        for (int d = 0; d < D; d++) {
            cr_expect(eq(flt, cache_of_get(k, h, slot, d, false), as_stored(key[d], k->c.type)));
            cr_expect(eq(flt, cache_of_get(k, h, slot, d, true), as_stored(value[d], k->c.type)));
        }
    }
    device_check(g, "append");
}

Test(cuda, appends)
{
    static const int n[N_HEADS] = {200, 64, 131};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(24);
    for (int type = KV_F32; type <= KV_F16; type++) {
        struct cache_of k = cache_of_random(g, &r, N_HEADS, n, D, (enum kv_type)type);
        append_case(g, &r, &k);
    }
}

static int32_t token(struct gpu *g, const float *d_logits, int n, const struct gpu_draw *how)
{
    int32_t id = -1, *d_id = device_copy(g, &id, sizeof id);
    gpu_draw(g, d_id, d_logits, n, how);
    gpu_get(g, &id, d_id, sizeof id);
    return id;
}

/* Rows with ties, with one likely token, with masked tokens and with NaN, in odd lengths. */
Test(cuda, tokens)
{
    enum { N = 1001, ROWS = 6 };
    static float x[ROWS * N];
    static const double u[ROWS] = {0, 0.25, 0.5, 0.9, 0.999999, 0.1}, share[] = {1, 0.9, 0.3, 1e-9};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(25);
    fill(&r, x, ROWS * N, 2);
    for (int i = 0; i < N; i++) {
        x[N + i] = (float)(i % 7);
        x[4 * N + i] = i % 3 ? -INFINITY : x[4 * N + i];
    }
    x[2 * N + N - 1] = 90;
    x[5 * N] = NAN;
    for (int k = 0; k < ROWS * 4; k++) {
        const float *row = x + k / 4 * N;
        double temperature = k % 3 ? 0.8 : 7;
        int n = N - k, want = 0, at = (k + 3 * (k / 4)) % ROWS;
        float *d_row = device_copy(g, row, (size_t)n * sizeof *row);
        double *d_u = device_copy(g, &u[at], sizeof *u);
        struct gpu_draw how = {DRAW_LOG2_E / temperature, share[k % 4], NULL,
                               device_alloc(g, gpu_draw_bytes(n), 1)};
        for (int j = 1; j < n; j++)
            want = row[j] > row[want] || isnan(row[want]) ? j : want;
        cr_expect(eq(int, token(g, d_row, n, &how), want), "row %d, %d", k / 4, n);
        how.chance = d_u;
        want = drawn(row, n, temperature, share[k % 4], u[at]);
        cr_expect(eq(int, token(g, d_row, n, &how), want), "row %d, %d", k / 4, n);
    }
    device_check(g, "tokens");
}

/* A slice of the vocabulary with an incomplete last segment. */
Test(cuda, segments)
{
    enum { N = 700, ROWS = 5, WIDE = 768, FIRST = 512, PARTS = 3 };
    static float x[ROWS * WIDE], lse[PARTS * ROWS], target[ROWS];
    static const int32_t ids[ROWS] = {FIRST, FIRST - 1, FIRST + N - 1, FIRST + N, FIRST + 256};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(26);
    fill(&r, x, ROWS * WIDE, 9);
    float *dx = device_copy(g, x, sizeof x), *d_lse = device_copy(g, lse, sizeof lse);
    float *d_target = device_copy(g, target, sizeof target);
    int32_t *d_ids = device_copy(g, ids, sizeof ids);
    gpu_segments(g, dx, WIDE, N, ROWS, FIRST, d_ids, d_lse, ROWS, d_target);
    gpu_get(g, lse, d_lse, sizeof lse);
    gpu_get(g, target, d_target, sizeof target);
    for (int i = 0; i < PARTS * ROWS; i++) {
        int from = i / ROWS * GPU_SEGMENT, left = N - from < GPU_SEGMENT ? N - from : GPU_SEGMENT;
        double want = log_sum_exp_ref(x + i % ROWS * WIDE + from, left);
        cr_expect(epsilon_eq(dbl, (double)lse[i], want, 1e-5), "%d", i);
    }
    for (int i = 0; i < ROWS; i++) {
        bool here = ids[i] >= FIRST && ids[i] < FIRST + N;
        cr_expect(eq(flt, target[i], here ? x[i * WIDE + ids[i] - FIRST] : 0), "row %d", i);
    }
    device_check(g, "segments");
}

/* test_select.c - the k worst of n candidates compared with a full sort by the rule in
 * docs/reference/methods.md. */
#include "engine/method/state.h"
#include "tests/suite.h"

static bool older_stays;

/* Lowest score first, then the smaller position (or the larger one), then the higher head. */
static int by_rule(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score < y->score || x->score > y->score)
        return x->score < y->score ? -1 : 1;
    if (x->pos != y->pos)
        return ((x->pos < y->pos) != older_stays) ? -1 : 1;
    return (x->head < y->head) - (x->head > y->head);
}

static int by_identity(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->head != y->head ? (x->head > y->head) - (x->head < y->head)
                              : (x->pos > y->pos) - (x->pos < y->pos);
}

/* Checks that the first k chosen and the first k sorted are the same set, and that [k] is equal. */
static void compare(const struct candidate *in, int64_t n, int64_t k, bool older)
{
    size_t size = sizeof *in, count = (size_t)n;
    OWNED(mem_free) struct candidate *have = MEM_NEW(struct candidate, count + 1);
    OWNED(mem_free) struct candidate *want = MEM_NEW(struct candidate, count + 1);
    struct candidate canary = {-7, -7, -7, -7};
    memcpy(have, in, count * size);
    memcpy(want, in, count * size);
    have[n] = canary;
    select_worst(have, n, k, older);
    older_stays = older;
    qsort(want, count, size, by_rule);
    cr_assert(zero(int, memcmp(&have[n], &canary, size)), "wrote behind the end");
    if (k < n)
        cr_assert(zero(int, memcmp(&have[k], &want[k], size)), "n %ld k %ld", (long)n, (long)k);
    qsort(have, (size_t)k, size, by_identity);
    qsort(want, (size_t)k, size, by_identity);
    cr_assert(zero(int, memcmp(have, want, (size_t)k * size)), "n %ld k %ld", (long)n, (long)k);
}

enum shape { RANDOM, FEW, EQUAL, RISING, FALLING, PIPE, EXTREME, SHAPES };

static float score_at(struct rng *r, enum shape shape, int64_t i, int64_t n)
{
    const float extreme[] = {-INFINITY, -3e38f, -0.0f, 0.0f, 1e-45f, 3e38f, INFINITY};
    switch (shape) {
    case RANDOM:
        return (float)rng_below(r, 1 << 20);
    case FEW:
        return (float)rng_below(r, 3);
    case RISING:
        return (float)i;
    case FALLING:
        return (float)(n - i);
    case PIPE:
        return (float)(i < n / 2 ? i : n - i);
    case EXTREME:
        return extreme[rng_below(r, 7)];
    default:
        return 1;
    }
}

/* Fills n candidates with unique (position, head) pairs. Positions of a head are in any order. */
static void fill(struct rng *r, enum shape shape, struct candidate *c, int64_t n, int heads)
{
    for (int64_t i = 0; i < n; i++)
        c[i] = (struct candidate){score_at(r, shape, i, n), (int32_t)(i / heads), (int32_t)i,
                                  (int32_t)(i % heads)};
    for (int64_t i = n - 1; i > 0 && shape != RISING && shape != FALLING; i--) {
        int64_t j = (int64_t)rng_below(r, (uint64_t)i + 1);
        struct candidate tmp = c[i];
        c[i] = c[j];
        c[j] = tmp;
    }
}

Test(select, as_a_sort_does)
{
    enum { MOST = 70 };
    struct candidate c[MOST];
    struct rng r = rng_seeded(5);
    for (int round = 0; round < 60 * SHAPES; round++) {
        int64_t n = 1 + (int64_t)rng_below(&r, MOST);
        fill(&r, (enum shape)(round % SHAPES), c, n, 1 + (int)rng_below(&r, 5));
        for (int64_t k = 0; k <= n; k++) {
            compare(c, n, k, false);
            compare(c, n, k, true);
        }
    }
}

/* The keys of device kernels order candidates as the rule does, and count NaN as -infinity. */
Test(select, keys_order_as_the_rule_does)
{
    enum { N = 40 };
    struct candidate c[N];
    struct rng r = rng_seeded(9);
    for (int round = 0; round < 20 * SHAPES; round++) {
        fill(&r, (enum shape)(round % SHAPES), c, N, 3);
        older_stays = round / SHAPES % 2;
        for (int i = 0; i < N * N; i++) {
            const struct candidate *x = &c[i / N], *y = &c[i % N];
            enum tie_rule tie = older_stays ? TIE_OLDER : TIE_NEWER;
            struct rank_key kx = rank_key(x->score, x->pos, x->head, tie);
            struct rank_key ky = rank_key(y->score, y->pos, y->head, tie);
            int want = by_rule(x, y);
            cr_assert(eq(int, rank_key_at_most(&kx, &ky), want <= 0));
            cr_assert(eq(int, candidate_worse(x, y, tie), want < 0));
        }
    }
    cr_expect(eq(u32, rank_of_score(NAN), rank_of_score(-INFINITY)));
    cr_expect(eq(u32, rank_of_score(-0.0f), rank_of_score(0.0f)));
}

Test(select, long_inputs_of_every_shape, .timeout = 30)
{
    enum { N = 30000 }; /* n^2 steps would take too long under a sanitizer */
    OWNED(mem_free) struct candidate *c = MEM_NEW(struct candidate, N);
    struct rng r = rng_seeded(6);
    for (int shape = 0; shape < SHAPES; shape++) {
        fill(&r, (enum shape)shape, c, N, 1);
        compare(c, N, N / 3, false);
        compare(c, N, 1, true);
        compare(c, N, N - 1, false);
    }
}

Test(select, nothing_to_do)
{
    struct candidate c[2] = {{2, 0, 0, 0}, {1, 1, 1, 0}};
    select_worst(c, 0, 0, false);
    select_worst(c, 1, 0, false);
    select_worst(c, 1, 1, false);
    cr_expect(eq(flt, c[0].score, 2));
    select_worst(c, 2, 2, false);
    cr_expect(eq(flt, c[0].score + c[1].score, 3));
}

Test(select, equal_scores_keep_the_newer_then_the_lower_head)
{
    struct candidate c[] = {{1, 4, 0, 0}, {1, 4, 0, 1}, {1, 9, 0, 1}, {1, 4, 0, 2}};
    select_worst(c, 4, 3, false);
    cr_expect(eq(i32, c[3].pos, 9)); /* the newest stays longest in every head */
    select_worst(c, 4, 2, false);
    cr_expect(eq(i32, c[2].head, 0)); /* of position 4, head 0 is evicted last */
    select_worst(c, 4, 1, true);
    cr_expect(eq(i32, c[0].pos, 9)); /* tie=older: it is evicted first */
}

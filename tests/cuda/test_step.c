/* test_step.c - decode attention, whose pages are distributed over blocks. Results are within 1e-5
 * of the largest value of the equation in double precision, with the same bits regardless of the
 * block that ends last. */
#include "tests/cuda/attention_of.h"

/* Runs a step in work memory that other steps have used, and returns its output. */
static float *attend(struct gpu *g, const struct setting *s, float *work, const char *what)
{
    size_t n = s->in.ld_out;
    float *noise = host_alloc(n, 4);
    memset(noise, 0xff, n * 4);
    gpu_put(g, s->in.out, noise, n * 4);
    gpu_attend_step(g, &s->in, &work, 1);
    float *got = host_copy(g, s->in.out, n * 4);
    device_check(g, what);
    return got;
}

static float *work_of(struct gpu *g, const struct gpu_attention *a)
{
    size_t n = gpu_step_work(a);
    float *work = device_alloc(g, n, 4);
    gpu_zero(g, work, n * 4);
    return work;
}

/* Runs twice in the same memory, with different orders of blocks and lanes. */
static void check_step(struct gpu *g, const struct setting *s, float *work)
{
    size_t wide = (size_t)(s->in.n_heads * s->a->D);
    float *first = NULL;
    for (int seed = 0; seed < 2; seed++) {
        emulation_seed((unsigned long long)seed);
        float *got = attend(g, s, work, s->a->what);
        cr_expect(le(dbl, distance(got, s->out, wide), 1e-5), "%s, D %d, group %d", s->a->what,
                  s->a->D, s->a->group);
        for (size_t i = wide; i < s->in.ld_out; i++)
            cr_expect(isnan(got[i]), "%s: nothing else is written", s->a->what);
        if (first)
            cr_expect(zero(int, memcmp(got, first, wide * 4)), "%s: the same bits", s->a->what);
        else
            first = host_copy(g, s->in.out, wide * 4);
    }
}

static void check_case(struct gpu *g, struct rng *r, const struct attention_case *a, int most)
{
    struct setting s = prepare(g, a, r);
    set_right(&s);
    s.in.cache.most = most ? most : s.in.cache.most;
    float *work = work_of(g, &s.in);
    check_step(g, &s, work);
}

/* All head shapes, each with ragged lengths. */
Test(cuda, step_shapes)
{
    static const int D[] = {16, 20, 22, 64, 80, 96, 128, 256}, group[] = {1, 2, 3, 4, 5, 7, 8, 16};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(21);
    for (size_t i = 0; i < sizeof D / sizeof *D; i++)
        for (size_t j = 0; j < sizeof group / sizeof *group; j++)
            for (int f16 = 0; f16 < 2; f16++) {
                struct attention_case a = {"a shape", 2, group[j], D[i], 1, {0}, KV_F32};
                a.n[0] = 1 + (int)rng_below(&r, 70);
                a.n[1] = 60 + (int)rng_below(&r, 200);
                a.type = f16 ? KV_F16 : KV_F32;
                check_case(g, &r, &a, 0);
            }
}

static const struct attention_case cases[] = {
    {"one entry", 1, 1, 16, 1, {1}, KV_F32},
    {"heads without entries", 3, 2, 64, 1, {65, 0, 1}, KV_F16},
    {"whole pages", 3, 4, 128, 1, {64, 128, 192}, KV_F16},
    {"one more than whole pages", 3, 4, 128, 1, {65, 129, 193}, KV_F16},
    {"many pages", 2, 4, 64, 1, {1000, 333}, KV_F16},
    {"more pages than blocks", 2, 2, 8, 1, {9000, 8500}, KV_F16},
    {"windows", 2, 3, 64, 1, {700, 200}, KV_F16, .window = 20},
    {"windows of many heads", 2, 13, 80, 1, {330, 200}, KV_F32, .window = 20},
    {"chosen pages", 2, 4, 128, 1, {700, 130}, KV_F16, .window = 20, .page = 16},
    {"chosen pages that are small", 2, 2, 32, 1, {60, 63}, KV_F16, .page = 1},
    {"chosen pages that are large", 2, 7, 64, 1, {900, 310}, KV_F16, .page = 96},
    {"cap", 1, 4, 128, 1, {170}, KV_F16, .cap = 20},
    {"retention", 2, 2, 64, 1, {120, 41}, KV_F16, .retention = true, .window = 20},
    {"all at once",
     2,
     9,
     96,
     1,
     {333, 65},
     KV_F32,
     .cap = 20,
     .retention = true,
     .window = 20,
     .page = 24},
    {"all at once, wide",
     1,
     16,
     256,
     1,
     {200},
     KV_F16,
     .cap = 20,
     .retention = true,
     .window = 20,
     .page = 24},
    {"more query heads than a block has", 2, 37, 64, 1, {300, 10}, KV_F16, .window = 20},
};

Test(cuda, step_cases)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(22);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        check_case(g, &r, &cases[c], 0);
}

/* Launches are sized for more entries than exist, so some blocks have no work. */
Test(cuda, step_sized_for_more)
{
    static const struct attention_case a = {"sized for more", 2, 4, 64, 1, {130, 1}, KV_F16};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(23);
    for (int most = 130; most < 100000; most *= 5)
        check_case(g, &r, &a, most);
}

/* A block processes several pages, some of them in tiles. */
Test(cuda, step_of_many_pages_of_a_block)
{
    static const struct attention_case long_cases[] = {
        {"in one tile each", 64, 1, 16, 1, {0}, KV_F16, .window = 20},
        {"in several tiles", 64, 1, 160, 1, {0}, KV_F32},
        {"chosen", 64, 2, 16, 1, {0}, KV_F16, .page = 20},
    };
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(24);
    for (size_t c = 0; c < sizeof long_cases / sizeof *long_cases; c++) {
        struct attention_case a = long_cases[c];
        for (int h = 0; h < a.heads; h++)
            a.n[h] = 640 + (int)rng_below(&r, 361);
        check_case(g, &r, &a, 0);
    }
}

/* With this many heads, a block processes all pages of its head, more than a warp handles at
 * once. */
Test(cuda, step_of_more_pages_than_lanes)
{
    struct attention_case a = {"more pages than lanes", 396, 1, 4, 1, {0}, KV_F16};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(28);
    for (a.page = 0; a.page <= 40; a.page += 40) {
        for (int h = 0; h < a.heads; h++)
            a.n[h] = 1 + h % 3;
        a.n[17] = 2300;
        a.n[395] = 2113;
        check_case(g, &r, &a, 0);
    }
}

/* Work memory that steps of other lengths have used needs no reset. */
Test(cuda, steps_share_their_memory)
{
    static const struct attention_case a = {"in turn", 2, 4, 128, 1, {700, 150}, KV_F16};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(25);
    struct setting s = prepare(g, &a, &r);
    set_right(&s);
    s.in.cache.most = 4000;
    float *work = work_of(g, &s.in);
    for (int most = 704; most <= 4000; most += 1024) {
        s.in.cache.most = most;
        check_step(g, &s, work);
    }
}

/* A query that sees no entry gets zeros, also next to a query that sees some. */
Test(cuda, step_that_sees_nothing)
{
    static const struct attention_case a = {"nothing", 2, 2, 32, 1, {150, 70}, KV_F16, .page = 32};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(26);
    struct setting s = prepare(g, &a, &r);
    set_right(&s);
    float *work = work_of(g, &s.in);
    memset(s.chosen, 0, 64);
    memset(s.out, 0, 32 * 4);
    gpu_put(g, (void *)s.in.chosen, s.chosen, 4 * 64);
    check_step(g, &s, work);
    for (int i = 0; i < s.k.ld_slot; i++)
        s.k.until[s.k.ld_slot + i] = 0;
    memset(s.out + 2 * 32, 0, 2 * 32 * 4);
    gpu_put(g, s.k.c.until, s.k.until, (size_t)(2 * s.k.ld_slot) * 4);
    check_step(g, &s, work);
}

struct newcomer_case {
    const char *what;
    int heads, group, D, n_rot;
    enum kv_type type;
    bool norms, turns, asked; /* asked: the unrotated row is also stored */
    int T;                    /* 0 means 1 */
    bool leaves;              /* some entries expire */
};

static const struct newcomer_case newcomers[] = {
    {"rotation alone", 2, 2, 64, 64, KV_F16, false, true, false},
    {"norms and rotation", 3, 4, 128, 128, KV_F16, true, true, true},
    {"some channels turn", 2, 3, 80, 32, KV_F32, true, true, true},
    {"nothing turns", 2, 1, 96, 96, KV_F16, true, false, true},
    {"nothing but storing", 1, 2, 20, 20, KV_F32, false, false, false},
    {"channels that are no whole warps", 2, 2, 18, 18, KV_F32, true, true, true},
    {"wide heads", 2, 8, 256, 256, KV_F16, true, true, false},
    {"heads of nearly all channels", 2, 1, 246, 128, KV_F32, true, true, true},
    {"tokens of a chunk", 3, 2, 64, 64, KV_F16, true, true, true, 3, true},
    {"tokens that stay", 2, 2, 40, 20, KV_F32, false, true, false, 2, false},
};

/* Tokens and their parameters, equal for both ways of processing. */
struct newcomer {
    const struct newcomer_case *a;
    struct cache_of k;
    int T;
    size_t row, pre;          /* floats per token */
    float *qkv, *norm, *turn; /* host arrays; norm [2][D] */
    float *d_norm;
    struct gpu_new_entries in;
};

static struct newcomer arrive(struct gpu *g, const struct newcomer_case *a)
{
    static const int n[] = {65, 64, 130};
    const int32_t slot[] = {64, 3, 129}, until[] = {7, 8, INT32_MAX, 9, 11, 12, 13, 14, 15};
    struct rng r = rng_seeded(27);
    struct newcomer x = {.a = a, .k = cache_of_random(g, &r, a->heads, n, a->D, a->type)};
    int D = a->D, G = a->heads * a->group, T = x.T = a->T ? a->T : 1;
    x.row = (size_t)((G + 2 * a->heads) * D);
    x.pre = (size_t)((G + a->heads) * D);
    x.qkv = NEW(float, (size_t)T *x.row);
    x.norm = NEW(float, (size_t)(2 * D));
    x.turn = NEW(float, (size_t)(T * a->n_rot));
    fill(&r, x.qkv, (size_t)T * x.row, 2);
    fill(&r, x.norm, (size_t)(2 * D), 1);
    fill(&r, x.turn, (size_t)(T * a->n_rot), 1);
    memset(x.k.until, 0, (size_t)(a->heads * x.k.ld_slot) * 4);
    gpu_put(g, x.k.c.until, x.k.until, (size_t)(a->heads * x.k.ld_slot) * 4);
    x.d_norm = device_copy(g, x.norm, (size_t)(2 * D) * 4);
    x.in = (struct gpu_new_entries){.qkv = device_copy(g, x.qkv, (size_t)T * x.row * 4),
                                    .ld = x.row,
                                    .T = T,
                                    .n_heads = G,
                                    .n_rot = a->n_rot,
                                    .q_norm = x.d_norm,
                                    .k_norm = x.d_norm + D,
                                    .eps = 1e-6f,
                                    .cos_sin = device_copy(g, x.turn, (size_t)(T * a->n_rot) * 4),
                                    .unturned = device_copy(g, x.qkv, (size_t)T * x.pre * 4),
                                    .ld_unturned = x.pre,
                                    .until = device_copy(g, until, sizeof until),
                                    .slot = device_copy(g, slot, sizeof slot)};
    return x;
}

static void settle_apart(struct gpu *g, const struct newcomer *x)
{
    int D = x->a->D, H = x->a->heads, G = x->in.n_heads, T = x->T;
    float *q = x->in.qkv, *k = q + G * D, *v = k + H * D;
    if (x->a->norms) {
        gpu_rmsnorm(g, q, q, x->row, x->in.q_norm, T, G, D, x->in.eps);
        gpu_rmsnorm(g, k, k, x->row, x->in.k_norm, T, H, D, x->in.eps);
    }
    for (int t = 0; t < T; t++)
        gpu_copy(g, x->in.unturned + (size_t)t * x->pre, q + (size_t)t * x->row, x->pre * 4);
    if (x->a->turns)
        gpu_rope(g, q, x->row, x->in.cos_sin, T, G + H, D, x->a->n_rot);
    gpu_append(g, &x->k.c, k, v, x->row, x->in.slot, T, -1, x->a->leaves ? x->in.until : NULL);
}

static void settle_at_once(struct gpu *g, const struct newcomer *x)
{
    struct gpu_new_entries in = x->in;
    in.q_norm = x->a->norms ? in.q_norm : NULL;
    in.k_norm = x->a->norms ? in.k_norm : NULL;
    in.cos_sin = x->a->turns ? in.cos_sin : NULL;
    in.unturned = x->a->asked ? in.unturned : NULL;
    in.until = x->a->leaves ? in.until : NULL;
    gpu_norm_rope_store(g, &x->k.c, &in, 1);
}

static void same_bits(struct gpu *g, const void *a, const void *b, size_t bytes, const char *what,
                      const char *where)
{
    void *x = host_copy(g, a, bytes), *y = host_copy(g, b, bytes);
    cr_expect(zero(int, memcmp(x, y, bytes)), "%s: %s", what, where);
}

/* The fused launch gives the same bits as separate launches. */
Test(cuda, newcomers)
{
    OWNED(device_close) struct gpu *g = device_open();
    for (size_t c = 0; c < sizeof newcomers / sizeof *newcomers; c++) {
        struct newcomer one = arrive(g, &newcomers[c]), other = arrive(g, &newcomers[c]);
        const char *what = newcomers[c].what;
        settle_apart(g, &one);
        settle_at_once(g, &other);
        device_check(g, what);
        same_bits(g, one.in.qkv, other.in.qkv, (size_t)one.T * one.row * 4, what, "the row");
        same_bits(g, one.k.c.pool, other.k.c.pool, one.k.pool_bytes, what, "the cache");
        same_bits(g, one.k.c.until, other.k.c.until, (size_t)(one.a->heads * one.k.ld_slot) * 4,
                  what, "until");
        if (newcomers[c].asked)
            same_bits(g, one.in.unturned, other.in.unturned, (size_t)one.T * one.pre * 4, what,
                      "unturned");
    }
}

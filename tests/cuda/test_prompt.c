/* test_prompt.c - prefill attention with keys and values in f16 on tensor cores. Results are
 * compared with the equation in double precision within the bound in gpu.h, and each row with its
 * result in other chunks. */
#include "tests/cuda/attention_of.h"

#define HALVES .type = KV_F16, .halves = true
#define ALL_AT_ONCE .cap = 20, .retention = true, .window = 20, .page = 24
static const struct attention_case cases[] = {
    {"one entry", 1, 1, 16, 1, {1}, HALVES},
    {"a row of three", 2, 4, 64, 1, {64, 65}, HALVES},
    {"few rows", 2, 3, 80, 3, {130, 3}, HALVES},
    {"channels that no fast path has", 1, 2, 20, 33, {70}, HALVES},
    {"a chunk of a prompt", 2, 1, 80, 33, {101, 64}, HALVES},
    {"a prompt", 1, 1, 128, 130, {130}, HALVES},
    {"heads that share", 2, 7, 96, 33, {97, 33}, HALVES},
    {"rows of more than one block", 2, 3, 64, 130, {200, 131}, HALVES},
    {"many strips", 1, 1, 64, 33, {2150}, HALVES},
    {"heads of many strips", 2, 2, 16, 3, {1100, 40}, HALVES},
    {"wide heads", 1, 4, 256, 33, {77}, HALVES},
    {"wide heads that are not whole", 1, 1, 160, 70, {133}, HALVES},
    {"vertical and slash", 2, 3, 64, 130, {400, 190}, HALVES, .window = 20},
    {"vertical and slash, wide", 1, 1, 256, 70, {300}, HALVES, .window = 20},
    {"windows that end in a block", 1, 1, 64, 130, {400}, HALVES, .window = 70},
    {"more than one part", 2, 2, 64, 33, {8230, 40}, HALVES},
    {"parts and windows", 1, 3, 16, 40, {16400}, HALVES, .window = 8180},
    {"parts, with all at once",
     1,
     2,
     32,
     3,
     {8200},
     HALVES,
     .cap = 20,
     .retention = true,
     .window = 20,
     .page = 1100},
    {"a look that ends in a block", 1, 1, 16, 130, {1090}, HALVES, .stay = true},
    {"strips that nobody sees", 1, 1, 16, 3, {9000}, HALVES, .page = 1100},
    {"chosen pages", 2, 4, 32, 1, {130, 200}, HALVES, .window = 20, .page = 16},
    {"chosen pages of a chunk", 1, 3, 128, 33, {330}, HALVES, .page = 24},
    {"large pages", 1, 3, 64, 50, {700}, HALVES, .page = 128},
    {"cap", 1, 4, 128, 33, {170}, HALVES, .cap = 20},
    {"retention", 2, 2, 64, 40, {120, 41}, HALVES, .retention = true, .window = 20},
    {"all at once", 1, 7, 96, 33, {200}, HALVES, ALL_AT_ONCE},
    {"wide heads with all at once", 1, 2, 256, 33, {170}, HALVES, ALL_AT_ONCE},
    {"queries that are no halves", 2, 2, 128, 33, {90, 200}, .type = KV_F16},
    {"chosen pages of many that stay", 1, 2, 16, 3, {1300}, HALVES, .page = 100, .stay = true},
};

/* Checks the outputs and that no other memory is written. The bound is 2^-9 of the sum of p |v|. If
 * queries had to be rounded, a logit is off by up to 2^-11 of its sum of |scale q k|. */
static void check_bound(struct gpu *g, const struct setting *s)
{
    size_t n = s->in.ld_out * (size_t)s->a->T, wide = (size_t)(s->in.n_heads * s->a->D);
    float *got = host_copy(g, s->in.out, n * 4);
    device_check(g, s->a->what);
    bool good = true;
    for (size_t i = 0; i < n && good; i++) {
        size_t r = i / s->in.ld_out, c = i % s->in.ld_out;
        size_t row = c / (size_t)s->a->D * (size_t)s->a->T + r;
        double most = (double)s->span[i] * 0x1p-9;
        if (c < wide && !s->a->halves)
            most += (double)s->span[i] * expm1(2 * 0x1p-11 * s->reach[row]);
        if (c >= wide)
            good = isnan(got[i]);
        else if (s->seen[row] > 0)
            good = fabs((double)got[i] - (double)s->out[i]) <= most;
        cr_expect(good, "%s: row %zu, channel %zu: %g is not %g within %g", s->a->what, r, c,
                  (double)got[i], (double)s->out[i], most);
    }
}

static void poison(struct gpu *g, const struct gpu_attention *a)
{
    size_t bytes = a->ld_out * (size_t)a->T * 4;
    void *noise = host_alloc(bytes, 1);
    memset(noise, 0xff, bytes);
    gpu_put(g, a->out, noise, bytes);
}

Test(cuda, prompt)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(13);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c += (size_t)stride(2)) {
        struct setting s = prepare(g, &cases[c], &r);
        set_right(&s);
        for (int seed = 0; seed < SEEDS; seed += stride(2)) {
            emulation_seed((unsigned long long)seed);
            poison(g, &s.in);
            gpu_attend_prompt(g, &s.in);
            check_bound(g, &s);
        }
    }
}

/* Computes the T queries from t0 on as a separate chunk and compares the bits. */
static void check_chunk(struct gpu *g, const struct setting *s, const float *whole, int t0, int T)
{
    struct gpu_attention a = s->in;
    int32_t n[3];
    a.cache.most = 0;
    for (int h = 0; h < s->a->heads; h++) {
        n[h] = s->k.n[h] - (s->a->T - t0 - T);
        a.cache.most = n[h] > a.cache.most ? n[h] : a.cache.most;
    }
    a.cache.n = device_copy(g, n, sizeof n);
    a.q += (size_t)t0 * a.ld_q;
    a.out = device_alloc(g, a.ld_out * (size_t)T, 4);
    a.T = T;
    a.pos0 += t0;
    poison(g, &a);
    gpu_attend_prompt(g, &a);
    float *got = host_copy(g, a.out, a.ld_out * (size_t)T * 4);
    device_check(g, s->a->what);
    size_t bytes = (size_t)(s->in.n_heads * s->a->D) * 4;
    for (int t = 0; t < T; t++)
        cr_expect(eq(int,
                     memcmp(got + (size_t)t * a.ld_out, whole + (size_t)(t0 + t) * a.ld_out, bytes),
                     0),
                  "%s: row %d of a chunk of %d from %d", s->a->what, t, T, t0);
}

/* A row has the same bits in every chunk. Chunks of few rows run in smaller blocks. On a device,
 * only the last cases are large enough for the large blocks. */
Test(cuda, rows_of_a_prompt_stand_alone)
{
    static const struct attention_case chunked[] = {
        {"plain", 2, 3, 128, 150, {300, 150}, HALVES},
        {"windows", 2, 2, 64, 150, {500, 190}, HALVES, .window = 20},
        {"all at once", 1, 4, 256, 70, {200}, .type = KV_F16, ALL_AT_ONCE},
        {"parts", 2, 2, 16, 90, {8240, 100}, HALVES, .window = 8100},
        {"large, 64", 3, 16, 64, 800, {900, 800, 1000}, HALVES},
        {"large, 96", 3, 16, 96, 800, {900, 800, 1000}, HALVES, .window = 20},
        {"large, 128", 3, 16, 128, 800, {900, 800, 1000}, HALVES, .window = 20},
    };
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(14);
    size_t n = EMULATED ? 4 : sizeof chunked / sizeof *chunked;
    for (size_t c = 0; c < n; c++) {
        struct setting s = prepare(g, &chunked[c], &r);
        poison(g, &s.in);
        gpu_attend_prompt(g, &s.in);
        float *whole = host_copy(g, s.in.out, s.in.ld_out * (size_t)s.a->T * 4);
        for (int t0 = 0, T = 1; t0 < s.a->T; t0 += T, T = 2 * T + 1)
            check_chunk(g, &s, whole, t0, T < s.a->T - t0 ? T : s.a->T - t0);
    }
}

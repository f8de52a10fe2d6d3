/* Attention over ragged pages against the equation in double, for each of the ways to compute it;
 * the rows that stay, also against the C reference. */
#include "engine/kernels/kernels_ref.h"
#include "tests/cuda/cache_of.h"

struct attention_case {
    const char *what;
    int heads, group, D, T;
    int n[3];
    enum kv_type type;
    float cap;
    bool windows, retention; /* some entries leave; weights fade with age */
    int page;                /* entries of a page that is read or not; 0: all */
};

static const struct attention_case cases[] = {
    {"one entry", 1, 1, 16, 1, {1}, KV_F32, 0, false, false, 0},
    {"a step, ragged", 3, 2, 64, 1, {1, 64, 65}, KV_F32, 0, false, false, 0},
    {"a step of many pages", 2, 3, 20, 1, {700, 333}, KV_F16, 0, false, false, 0},
    {"a step with windows", 2, 5, 32, 1, {130, 200}, KV_F32, 0, true, false, 0},
    {"a step that reads pages", 2, 4, 32, 1, {130, 200}, KV_F32, 0, true, false, 16},
    {"a step of wide heads", 1, 9, 160, 1, {70}, KV_F16, 30, false, true, 0},
    {"a prompt", 2, 2, 16, 70, {70, 70}, KV_F32, 0, false, false, 0},
    {"a page that the last queries alone see", 1, 2, 16, 32, {66}, KV_F32, 0, false, false, 0},
    {"a chunk of a prompt", 2, 1, 80, 33, {101, 64}, KV_F16, 0, false, false, 0},
    {"vertical and slash", 2, 2, 32, 40, {300, 190}, KV_F32, 0, true, false, 0},
    {"retention and cap", 1, 2, 128, 17, {81}, KV_F32, 20, false, true, 0},
    {"wide heads", 1, 2, 256, 5, {77}, KV_F32, 0, true, true, 0},
};

struct setting {
    const struct attention_case *a;
    struct cache_of k;
    struct gpu_attention in;
    float *q, *log_beta, *out, *p; /* out [T][G * D], p [G][T][ld_slot]: what is right */
    double *lse, *entropy;         /* [G][T] */
    int32_t *seen;
    unsigned char *chosen; /* [G][64] */
    int32_t *page;
};

static bool sees(const struct setting *s, int g, int r, int i)
{
    int h = g / s->a->group, n = s->k.n[h] - (s->a->T - 1 - r);
    if (i >= n || s->k.until[h * s->k.ld_slot + i] <= s->in.pos0 + r)
        return false;
    return s->a->page == 0 || s->chosen[g * 64 + i / s->a->page];
}

/* Row r of query head g by the equations of attention.c. */
static void right_row(struct setting *s, int g, int r)
{
    int h = g / s->a->group, D = s->a->D, n = s->k.n[h] - (s->a->T - 1 - r);
    size_t at = (size_t)(g * s->a->T + r);
    float *p = s->p + at * (size_t)s->k.ld_slot;
    float *out = s->out + (size_t)r * s->in.ld_out + (size_t)(g * D);
    double top = -INFINITY, sum = 0, *x = MEM_NEW(double, (size_t)n);
    for (int i = 0; i < n; i++) {
        x[i] = -INFINITY;
        if (!sees(s, g, r, i))
            continue;
        double dot = 0;
        for (int d = 0; d < D; d++)
            dot += (double)s->q[(size_t)r * s->in.ld_q + (size_t)(g * D + d)]
                   * (double)cache_of_get(&s->k, h, i, d, false);
        x[i] = dot * (double)s->in.scale;
        if (s->in.cap > 0)
            x[i] = (double)s->in.cap * tanh(x[i] / (double)s->in.cap);
        if (s->log_beta)
            x[i] += (s->in.pos0 + r - s->k.pos[h * s->k.ld_slot + i])
                    * (double)s->log_beta[h * s->k.ld_slot + i];
        top = fmax(top, x[i]);
        s->seen[at]++;
    }
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - top);
    s->lse[at] = top + log(sum);
    for (int i = 0; i < n; i++) {
        double w = exp(x[i] - s->lse[at]);
        p[i] = (float)w;
        s->entropy[at] -= w > 0 ? w * log(w) : 0;
        for (int d = 0; d < D && w > 0; d++)
            out[d] += (float)(w * (double)cache_of_get(&s->k, h, i, d, true));
    }
    mem_free(x);
}

/* Some entries leave after a while, but never a query's own. */
static void set_windows(struct gpu *g, struct setting *s, struct rng *r)
{
    size_t n = (size_t)(s->k.heads * s->k.ld_slot);
    for (size_t i = 0; i < n; i++) { /* three of four are gone 20 queries after theirs */
        int age = s->k.n[i / (size_t)s->k.ld_slot] - (int)(i % (size_t)s->k.ld_slot);
        if (rng_below(r, 4) != 0)
            s->k.until[i] = s->in.pos0 + s->a->T - age + 20;
    }
    for (int h = 0; h < s->k.heads; h++) /* those of the chunk stay for 20 */
        for (int t = 0; t < s->a->T; t++)
            s->k.until[h * s->k.ld_slot + s->k.n[h] - s->a->T + t] = s->in.pos0 + t + 20;
    gpu_put(g, s->k.c.until, s->k.until, n * 4);
}

static void set_pages(struct gpu *g, struct setting *s, struct rng *r)
{
    int heads = s->a->heads * s->a->group;
    s->chosen = mem_alloc((size_t)heads * 64, 1);
    s->page = MEM_NEW(int32_t, (size_t)s->a->heads);
    for (int h = 0; h < s->a->heads; h++)
        s->page[h] = s->a->page;
    for (int i = 0; i < heads; i++) {
        for (int p = 0; p < 64; p++)
            s->chosen[i * 64 + p] = rng_below(r, 3) == 0;
        s->chosen[i * 64 + (s->k.n[i / s->a->group] - 1) / s->a->page] = 1;
    }
    s->in.page = device_copy(g, s->page, (size_t)s->a->heads * 4);
    s->in.chosen = device_copy(g, s->chosen, (size_t)heads * 64);
    s->in.ld_chosen = 64;
}

static struct setting prepare(struct gpu *g, const struct attention_case *a, struct rng *r)
{
    struct setting s = {.a = a, .k = cache_of_random(g, r, a->heads, a->n, a->D, a->type)};
    int G = a->heads * a->group;
    size_t ld_q = (size_t)(G * a->D) + 3, rows = (size_t)(G * a->T);
    size_t n_beta = (size_t)(a->heads * s.k.ld_slot);
    s.q = MEM_NEW(float, ld_q *(size_t)a->T);
    fill(r, s.q, ld_q * (size_t)a->T, 1);
    s.in = (struct gpu_attention){.cache = s.k.c,
                                  .ld_q = ld_q,
                                  .ld_out = (size_t)(G * a->D) + 1,
                                  .n_heads = G,
                                  .T = a->T,
                                  .pos0 = a->n[0] + 7 - a->T,
                                  .scale = 0.3f,
                                  .cap = a->cap};
    s.in.q = device_copy(g, s.q, ld_q * (size_t)a->T * 4);
    s.out = MEM_NEW(float, s.in.ld_out *(size_t)a->T);
    s.in.out = device_copy(g, s.out, s.in.ld_out * (size_t)a->T * 4);
    s.p = MEM_NEW(float, rows *(size_t)s.k.ld_slot);
    s.lse = MEM_NEW(double, rows);
    s.entropy = MEM_NEW(double, rows);
    s.seen = MEM_NEW(int32_t, rows);
    if (a->windows)
        set_windows(g, &s, r);
    if (a->page)
        set_pages(g, &s, r);
    if (a->retention) {
        s.log_beta = MEM_NEW(float, n_beta);
        for (size_t i = 0; i < n_beta; i++)
            s.log_beta[i] = (float)(-0.1 * rng_uniform(r));
        s.in.log_beta = device_copy(g, s.log_beta, n_beta * 4);
    }
    for (int i = 0; i < G; i++)
        for (int t = 0; t < a->T; t++)
            right_row(&s, i, t);
    return s;
}

static void drop(struct gpu *g, struct setting *s)
{
    void *const device[] = {(void *)s->in.q, s->in.out, (void *)s->in.log_beta, (void *)s->in.page,
                            (void *)s->in.chosen};
    void *const host[] = {s->q,    s->out,      s->p,      s->lse, s->entropy,
                          s->seen, s->log_beta, s->chosen, s->page};
    for (int i = 0; i < 5; i++)
        gpu_free(g, device[i]);
    for (int i = 0; i < 9; i++)
        mem_free(host[i]);
    cache_of_drop(g, &s->k);
}

static void check_out(struct gpu *g, const struct setting *s, const char *how)
{
    size_t n = s->in.ld_out * (size_t)s->a->T;
    float *got = host_copy(g, s->in.out, n * 4);
    cr_expect(le(dbl, distance(got, s->out, n), 1e-5), "%s: %s", s->a->what, how);
    mem_free(got);
    gpu_zero(g, s->in.out, n * 4);
    device_check(g, s->a->what);
}

static void check_rows(struct gpu *g, const struct setting *s)
{
    size_t rows = (size_t)(s->in.n_heads * s->a->T), ld = (size_t)s->k.ld_slot;
    float *p = gpu_alloc(g, rows * ld, 4), *lse = gpu_alloc(g, rows, 4);
    float *entropy = gpu_alloc(g, rows, 4);
    int32_t *seen = gpu_alloc(g, rows, 4);
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
    mem_free(got);
    mem_free(got_lse);
    mem_free(got_entropy);
    mem_free(got_seen);
    gpu_free(g, p);
    gpu_free(g, lse);
    gpu_free(g, entropy);
    gpu_free(g, seen);
}

Test(cuda, attention)
{
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 11);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct setting s = prepare(g, &cases[c], &r);
        for (int seed = 0; seed < SEEDS; seed++) {
            emulation_seed((unsigned long long)seed);
            gpu_attend_prompt(g, &s.in);
            check_out(g, &s, "prompt");
            if (s.a->T == 1) {
                float *work = gpu_alloc(g, gpu_step_work(&s.in), 4);
                gpu_attend_step(g, &s.in, work);
                check_out(g, &s, "step");
                gpu_free(g, work);
            }
        }
        check_rows(g, &s);
        drop(g, &s);
    }
    gpu_close(g);
}

/* The rows of a plain case are those of the C reference, bit for bit: exact means exact.  On a
 * device exp is its own. */
Test(cuda, rows_are_those_of_the_reference)
{
    const struct attention_case a = {"exact", 2, 2, 64, 19, {150, 97}, KV_F32, 0, false, false, 0};
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 12);
    struct setting s = prepare(g, &a, &r);
    size_t ld = (size_t)s.k.ld_slot, rows = (size_t)(4 * a.T);
    float *p = gpu_alloc(g, rows * ld, 4);
    gpu_rows(g, &s.in, p, ld, NULL, NULL, NULL);
    gpu_rows_values(g, &s.in, p, ld);
    float *got = host_copy(g, p, rows * ld * 4);
    float *out = host_copy(g, s.in.out, s.in.ld_out * (size_t)a.T * 4);
    for (int q = 0; q < 4; q++)
        for (int t = 0; t < a.T; t++) {
            int h = q / 2, n = s.k.n[h] - (a.T - 1 - t);
            float *row = MEM_NEW(float, ld), sum[64] = {0};
            const float *pool = s.k.pool, *query = s.q + (size_t)t * s.in.ld_q + q * 64;
            for (int b = 0; b * PAGE_SLOTS < n; b++)
                attn_qk_ref(row + b * PAGE_SLOTS, ld, query, 0, 1, 64,
                            pool + (size_t)s.k.table[h * s.k.c.ld_table + b] * 2 * s.k.half, KV_F32,
                            s.in.scale);
            softmax_ref(row, n, NULL);
            for (int b = 0; b * PAGE_SLOTS < n; b++) {
                const struct kv_values values = {
                    pool + (size_t)s.k.table[h * s.k.c.ld_table + b] * 2 * s.k.half + s.k.half,
                    KV_F32,
                    64,
                    0,
                    64,
                    n - b * PAGE_SLOTS < PAGE_SLOTS ? n - b * PAGE_SLOTS : PAGE_SLOTS};
                attn_av_ref(sum, 0, row + b * PAGE_SLOTS, 0, 1, &values);
            }
            cr_expect(le(dbl, distance(got + (size_t)(q * a.T + t) * ld, row, (size_t)n),
                         EMULATED ? 0 : 1e-6));
            cr_expect(le(dbl, distance(out + (size_t)t * s.in.ld_out + q * 64, sum, 64),
                         EMULATED ? 0 : 1e-6));
            mem_free(row);
        }
    mem_free(got);
    mem_free(out);
    gpu_free(g, p);
    drop(g, &s);
    gpu_close(g);
}

/* Products, embeddings and elementwise kernels against sums in double and the C reference. */
#include "engine/kernels/kernels_ref.h"
#include "tests/cuda/device.h"

static const enum weight_type types[] = {WEIGHT_F32,  WEIGHT_F16,  WEIGHT_BF16, WEIGHT_Q8_0,
                                         WEIGHT_Q4_0, WEIGHT_Q4_1, WEIGHT_Q4_K, WEIGHT_Q6_K};
enum { N_TYPES = sizeof types / sizeof *types };

struct matrix {
    struct gpu_matrix m;
    unsigned char *bytes;
    float *w; /* [N][K] as weight_dequant says */
};

/* Sets the two bytes at p to a small half. */
static void small_half(struct rng *r, unsigned char *p)
{
    uint16_t h = float_to_half((float)(0.01 + 0.02 * rng_uniform(r)));
    memcpy(p, &h, 2);
}

/* Random bytes are any quantised weights, once the scales are numbers. */
static struct matrix make_matrix(struct gpu *g, struct rng *r, enum weight_type type, int N, int K)
{
    size_t row = weight_bytes(type, (size_t)K), all = row * (size_t)N;
    struct matrix m = {.bytes = mem_alloc(all, 1), .w = MEM_NEW(float, (size_t)N *(size_t)K)};
    size_t block = weight_bytes(type, (size_t)weight_block(type));
    for (size_t i = 0; i < all; i++)
        m.bytes[i] = (unsigned char)rng_next(r);
    for (size_t i = 0; i < all; i += block) {
        float f = (float)rng_normal(r);
        uint32_t bits;
        memcpy(&bits, &f, 4);
        uint16_t half = float_to_half(f), brain = (uint16_t)(bits >> 16);
        if (type == WEIGHT_F32)
            memcpy(m.bytes + i, &f, 4);
        else if (type == WEIGHT_F16 || type == WEIGHT_BF16)
            memcpy(m.bytes + i, type == WEIGHT_F16 ? &half : &brain, 2);
        else
            small_half(r, m.bytes + i + (type == WEIGHT_Q6_K ? 208 : 0));
        if (type == WEIGHT_Q4_1 || type == WEIGHT_Q4_K)
            small_half(r, m.bytes + i + 2);
    }
    weight_dequant(m.w, m.bytes, type, (size_t)N * (size_t)K);
    m.m = (struct gpu_matrix){device_copy(g, m.bytes, all), type, N, K, row};
    return m;
}

static void drop_matrix(struct gpu *g, struct matrix *m)
{
    gpu_free(g, (void *)m->m.data);
    mem_free(m->bytes);
    mem_free(m->w);
}

static void product_case(struct gpu *g, struct rng *r, enum weight_type type, int N, int K, int T)
{
    struct matrix m = make_matrix(g, r, type, N, K);
    size_t ld_x = (size_t)K + (K % 3 ? 0 : 4), ld = (size_t)N + 3, n_x = ld_x * (size_t)T;
    float *x = MEM_NEW(float, n_x), *exact = MEM_NEW(float, ld *(size_t)T);
    float *near = MEM_NEW(float, ld *(size_t)T);
    fill(r, x, n_x, 1);
    for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) {
            double sum = 0;
            float chain = 0;
            for (int k = 0; k < K; k++) {
                float a = x[(size_t)t * ld_x + (size_t)k],
                      b = m.w[(size_t)n * (size_t)K + (size_t)k];
                sum += (double)a * (double)b;
                chain = fmaf(a, b, chain);
            }
            near[(size_t)t * ld + (size_t)n] = (float)sum;
            exact[(size_t)t * ld + (size_t)n] = chain;
        }
    float *dx = device_copy(g, x, n_x * 4), *out = device_copy(g, near, ld * (size_t)T * 4);
    gpu_zero(g, out, ld * (size_t)T * 4);
    gpu_product(g, out, ld, dx, ld_x, T, &m.m);
    float *got = host_copy(g, out, ld * (size_t)T * 4);
    cr_expect(le(dbl, distance(got, near, ld * (size_t)T), 1e-5), "%s %d x %d, %d rows",
              weight_type_name(type), N, K, T);
    mem_free(got);
    gpu_zero(g, out, ld * (size_t)T * 4);
    gpu_product_exact(g, out, ld, dx, ld_x, T, &m.m);
    got = host_copy(g, out, ld * (size_t)T * 4);
    cr_expect(zero(int, memcmp(got, exact, ld * (size_t)T * 4)), "exact %s %d x %d, %d rows",
              weight_type_name(type), N, K, T);
    device_check(g, "product");
    mem_free(got);
    mem_free(x);
    mem_free(near);
    mem_free(exact);
    gpu_free(g, dx);
    gpu_free(g, out);
    drop_matrix(g, &m);
}

/* Products of prompts: of rounded weights and rows, each row alone with the bits that it has among
 * others, nothing behind the columns. */
static void gemm_case(struct gpu *g, struct rng *r, enum weight_type type, int N, int K, int T)
{
    struct matrix m = make_matrix(g, r, type, N, K);
    size_t parts = (size_t)(T + GPU_GEMM_ROWS - 1) / GPU_GEMM_ROWS, ld = (size_t)N + 3;
    size_t n_out = parts * GPU_GEMM_ROWS * ld, n_x = (size_t)T * (size_t)K;
    float *x = MEM_NEW(float, n_x), *none = MEM_NEW(float, n_out);
    fill(r, x, n_x, 1);
    float *dx = device_copy(g, x, n_x * 4), *out = device_copy(g, none, n_out * 4);
    if (!gpu_gemm(g, out, ld, dx, (size_t)K, T, &m.m))
        cr_skip_test("there is no cuBLAS");
    float *got = host_copy(g, out, n_out * 4);
    double most = type == WEIGHT_F32 ? 1e-5 : 1.0 / 256, worst = 0;
    for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) {
            double sum = 0, size = 1e-30;
            for (int k = 0; k < K; k++) {
                double p = (double)x[(size_t)t * (size_t)K + (size_t)k]
                           * (double)m.w[(size_t)n * (size_t)K + (size_t)k];
                sum += p;
                size += fabs(p);
            }
            double off = fabs((double)got[(size_t)t * ld + (size_t)n] - sum) / size;
            worst = fmax(worst, isnan(off) ? 1 : off);
        }
    cr_expect(le(dbl, worst, most), "%s %d x %d, %d rows", weight_type_name(type), N, K, T);
    gpu_put(g, out, none, n_out * 4);
    cr_assert(gpu_gemm(g, out, ld, dx + (size_t)(T - 1) * (size_t)K, (size_t)K, 1, &m.m));
    float *alone = host_copy(g, out, n_out * 4);
    cr_expect(zero(int, memcmp(alone, got + (size_t)(T - 1) * ld, (size_t)N * 4)),
              "%s: a row alone", weight_type_name(type));
    for (size_t i = (size_t)N; i < ld; i++)
        cr_expect(zero(dbl, (double)alone[i]), "behind the columns");
    device_check(g, "gemm");
    mem_free(x);
    mem_free(none);
    mem_free(got);
    mem_free(alone);
    gpu_free(g, dx);
    gpu_free(g, out);
    drop_matrix(g, &m);
}

Test(cuda, gemm)
{
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 7);
    for (int i = 0; i < N_TYPES; i++) {
        bool floats = weight_block(types[i]) == 1;
        emulation_seed((unsigned long long)i);
        gemm_case(g, &r, types[i], 5, floats ? 37 : 256, 3);
    }
    gemm_case(g, &r, WEIGHT_Q8_0, 4099, 32, 2); /* more rows of W than a tile has */
    gemm_case(g, &r, WEIGHT_BF16, 3, 24, GPU_GEMM_ROWS + 2);
    gpu_close(g);
}

Test(cuda, products)
{
    static const int plain[][3] = {{1, 1, 1}, {5, 7, 3}, {67, 33, 9}, {3, 172, 2}, {66, 264, 17}};
    static const int blocks[][3] = {{1, 256, 1}, {5, 512, 3}, {67, 256, 9}, {66, 768, 17}};
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 1);
    for (int i = 0; i < N_TYPES; i++) {
        emulation_seed((unsigned long long)i);
        cr_expect(gpu_reads(types[i]));
        bool floats = weight_block(types[i]) == 1;
        for (size_t c = 0; c < (floats ? 5 : 4); c++) {
            const int *s = floats ? plain[c] : blocks[c];
            product_case(g, &r, types[i], s[0], s[1], s[2]);
        }
    }
    cr_expect(not(gpu_reads(WEIGHT_Q2_K)));
    gpu_close(g);
}

Test(cuda, embeddings)
{
    enum { N = 9, K = 256, T = 4 };
    static const int32_t ids[T] = {8, 0, 3, 3};
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 2);
    for (int i = 0; i < N_TYPES; i++) {
        struct matrix m = make_matrix(g, &r, types[i], N, K);
        int32_t *d_ids = device_copy(g, ids, sizeof ids);
        float *x = gpu_alloc(g, T * K, 4);
        gpu_embed(g, x, &m.m, d_ids, T, 0.75f);
        float *got = host_copy(g, x, T * K * 4);
        bool same = true;
        for (int t = 0; t < T; t++)
            for (int k = 0; k < K; k++)
                same = same && got[t * K + k] == m.w[ids[t] * K + k] * 0.75f;
        cr_expect(same, "%s", weight_type_name(types[i]));
        device_check(g, "embed");
        mem_free(got);
        gpu_free(g, x);
        gpu_free(g, d_ids);
        drop_matrix(g, &m);
    }
    gpu_close(g);
}

Test(cuda, norms)
{
    static const int shapes[][2] = {{1, 1}, {3, 7}, {2, 64}, {5, 257}, {2, 1000}};
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 3);
    for (size_t c = 0; c < 5; c++) {
        int T = shapes[c][0], C = shapes[c][1];
        size_t n = (size_t)(T * C);
        float *x = MEM_NEW(float, n), *w = MEM_NEW(float, (size_t)C), *want = MEM_NEW(float, n);
        fill(&r, x, n, 3);
        fill(&r, w, (size_t)C, 1);
        rmsnorm_ref(want, x, w, T, C, 1e-5f);
        float *dx = device_copy(g, x, n * 4), *dw = device_copy(g, w, (size_t)C * 4);
        gpu_rmsnorm(g, dx, dx, (size_t)C, dw, T, 1, C, 1e-5f); /* in place */
        float *got = host_copy(g, dx, n * 4);
        cr_expect(le(dbl, distance(got, want, n), 1e-6), "%d x %d", T, C);
        device_check(g, "rmsnorm");
        mem_free(got);
        mem_free(x);
        mem_free(w);
        mem_free(want);
        gpu_free(g, dx);
        gpu_free(g, dw);
    }
    gpu_close(g);
}

/* Heads within rows that have more behind them. */
Test(cuda, norms_of_heads)
{
    enum { T = 3, HEADS = 2, C = 20, LD = 55 };
    float x[T * LD], w[C], want[T * LD];
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 6);
    fill(&r, x, T * LD, 2);
    fill(&r, w, C, 1);
    memcpy(want, x, sizeof x);
    for (int t = 0; t < T; t++)
        rmsnorm_ref(want + t * LD, x + t * LD, w, HEADS, C, 1e-6f);
    float *dx = device_copy(g, x, sizeof x), *dw = device_copy(g, w, sizeof w);
    gpu_rmsnorm(g, dx, dx, LD, dw, T, HEADS, C, 1e-6f);
    float *got = host_copy(g, dx, sizeof x);
    cr_expect(le(dbl, distance(got, want, T * LD), 1e-6));
    device_check(g, "norms of heads");
    mem_free(got);
    gpu_free(g, dx);
    gpu_free(g, dw);
    gpu_close(g);
}

Test(cuda, rotations)
{
    enum { T = 3, HEADS = 5, D = 12, ROT = 8, LD = HEADS * D + 7 };
    float x[T * LD], turn[T * ROT], want[T * LD];
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 4);
    fill(&r, x, T * LD, 1);
    for (int i = 0; i < T * ROT / 2; i++) {
        turn[2 * i] = (float)cos(i);
        turn[2 * i + 1] = (float)sin(i);
    }
    memcpy(want, x, sizeof x);
    for (int t = 0; t < T; t++)
        rope_ref(want + t * LD, turn + t * ROT, HEADS, D, ROT);
    float *dx = device_copy(g, x, sizeof x), *dt = device_copy(g, turn, sizeof turn);
    gpu_rope(g, dx, LD, dt, T, HEADS, D, ROT);
    float *got = host_copy(g, dx, sizeof x);
    cr_expect(zero(int, memcmp(got, want, sizeof want)));
    device_check(g, "rope");
    mem_free(got);
    gpu_free(g, dx);
    gpu_free(g, dt);
    gpu_close(g);
}

Test(cuda, activations_and_sums)
{
    enum { T = 3, N = 301, LD = 2 * N + 5 };
    static float x[T * LD], want[T * N], row[N], cap[T * LD];
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 5);
    fill(&r, x, T * LD, 3);
    fill(&r, row, N, 1);
    float *dx = device_copy(g, x, sizeof x), *out = gpu_alloc(g, T * N, 4);
    for (int gelu = 0; gelu < 2; gelu++) {
        for (int t = 0; t < T; t++)
            (gelu ? geglu_ref : swiglu_ref)(want + t * N, x + t * LD, x + t * LD + N, N);
        gpu_gated(g, out, dx, LD, T, N, gelu);
        float *got = host_copy(g, out, sizeof want);
        cr_expect(le(dbl, distance(got, want, T * N), 1e-6), "gelu %d", gelu);
        mem_free(got);
    }
    float *d_row = device_copy(g, row, sizeof row);
    gpu_add_row(g, dx, LD, d_row, T, N);
    gpu_soft_cap(g, dx, T * LD, 5);
    for (int i = 0; i < T * LD; i++)
        cap[i] = x[i] + (i % LD < N ? row[i % LD] : 0);
    soft_cap_ref(cap, T * LD, 5);
    gpu_add(g, out, out, T * N, 0.5f);
    float *got = host_copy(g, dx, sizeof x), *twice = host_copy(g, out, sizeof want);
    cr_expect(le(dbl, distance(got, cap, T * LD), 1e-6));
    for (int i = 0; i < T * N; i++)
        want[i] += want[i] * 0.5f;
    cr_expect(le(dbl, distance(twice, want, T * N), 1e-6));
    device_check(g, "elementwise");
    mem_free(got);
    mem_free(twice);
    gpu_free(g, dx);
    gpu_free(g, out);
    gpu_free(g, d_row);
    gpu_close(g);
}

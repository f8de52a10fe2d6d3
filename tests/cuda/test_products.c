/* test_products.c - matrix multiplications, embeddings and elementwise kernels compared with sums
 * in double precision and with the C reference. */
#include "engine/kernels/kernels_ref.h"
#include "tests/cuda/device.h"

static const enum weight_type types[] = {WEIGHT_F32,  WEIGHT_F16,  WEIGHT_BF16, WEIGHT_Q8_0,
                                         WEIGHT_Q4_0, WEIGHT_Q4_1, WEIGHT_Q4_K, WEIGHT_Q6_K};
enum { N_TYPES = sizeof types / sizeof *types };

struct matrix {
    struct gpu_matrix m;
    unsigned char *bytes;
    float *w; /* [N][K] weights as weight_dequant() returns them */
};

/* Sets the two bytes at p to a random half between 0.01 and 0.03. */
static void small_half(struct rng *r, unsigned char *p)
{
    uint16_t h = float_to_half((float)(0.01 + 0.02 * rng_uniform(r)));
    memcpy(p, &h, 2);
}

/* Makes a matrix of random bytes with finite scales. Any such bytes are valid quantised weights. */
static struct matrix make_matrix(struct gpu *g, struct rng *r, enum weight_type type, int N, int K)
{
    size_t row = weight_bytes(type, (size_t)K), all = row * (size_t)N;
    struct matrix m = {.bytes = host_alloc(all, 1), .w = NEW(float, (size_t)N *(size_t)K)};
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

static void product_case(struct gpu *g, struct rng *r, enum weight_type type, int N, int K, int T)
{
    struct matrix m = make_matrix(g, r, type, N, K);
    size_t ld_x = (size_t)K + (K % 3 ? 0 : 4), ld = (size_t)N + 3, n_x = ld_x * (size_t)T;
    float *x = NEW(float, n_x), *exact = NEW(float, ld *(size_t)T);
    float *near = NEW(float, ld *(size_t)T);
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
    gpu_zero(g, out, ld * (size_t)T * 4);
    gpu_product_exact(g, out, ld, dx, ld_x, T, &m.m);
    got = host_copy(g, out, ld * (size_t)T * 4);
    cr_expect(zero(int, memcmp(got, exact, ld * (size_t)T * 4)), "exact %s %d x %d, %d rows",
              weight_type_name(type), N, K, T);
    device_check(g, "product");
}

/* Tests a prefill GEMM with rounded weights and rows. Each row has the same bits when computed
 * alone, and no memory after the columns changes. */
static void gemm_case(struct gpu *g, struct rng *r, enum weight_type type, int N, int K, int T)
{
    struct matrix m = make_matrix(g, r, type, N, K);
    size_t parts = (size_t)(T + GPU_GEMM_ROWS - 1) / GPU_GEMM_ROWS, ld = (size_t)N + 3;
    size_t n_out = parts * GPU_GEMM_ROWS * ld, n_x = (size_t)T * (size_t)K;
    float *x = NEW(float, n_x), *none = NEW(float, n_out);
    fill(r, x, n_x, 1);
    float *dx = device_copy(g, x, n_x * 4), *out = device_copy(g, none, n_out * 4);
    if (!gpu_gemm(g, out, ld, dx, (size_t)K, T, &m.m, 1))
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
    cr_assert(gpu_gemm(g, out, ld, dx + (size_t)(T - 1) * (size_t)K, (size_t)K, 1, &m.m, 1));
    float *alone = host_copy(g, out, n_out * 4);
    cr_expect(zero(int, memcmp(alone, got + (size_t)(T - 1) * ld, (size_t)N * 4)),
              "%s: a row alone", weight_type_name(type));
    for (size_t i = (size_t)N; i < ld; i++)
        cr_expect(zero(dbl, (double)alone[i]), "behind the columns");
    device_check(g, "gemm");
}

/* Matrices that read the same input rows in prefill, adjacent in memory or not, of one type or of
 * two. Each gives the same result as when computed separately. */
static void gemm_of_parts(struct gpu *g, struct rng *r, bool adjoin, enum weight_type other)
{
    enum { K = 64, T = GPU_GEMM_ROWS + 5, LD = 56, ROWS = 2 * GPU_GEMM_ROWS };
    struct matrix a = make_matrix(g, r, WEIGHT_BF16, 48, K), b = make_matrix(g, r, other, 8, K);
    struct gpu_matrix part[] = {a.m, a.m, b.m};
    size_t n_out = (size_t)ROWS * LD;
    float *x = NEW(float, (size_t)T *(K + 4)), *none = NEW(float, n_out);
    part[0].N = adjoin ? 16 : 8;
    part[1].N = 48 - part[0].N;
    part[1].data = (const char *)part[1].data + (size_t)part[0].N * part[1].row_bytes;
    if (!adjoin) /* a gap between the matrices that must not be read */
        part[1].data = (const char *)part[1].data + 8 * part[1].row_bytes;
    part[1].N -= adjoin ? 0 : 8;
    fill(r, x, (size_t)T * (K + 4), 1);
    float *dx = device_copy(g, x, (size_t)T * (K + 4) * 4), *all = device_copy(g, none, n_out * 4);
    float *each = device_copy(g, none, n_out * 4);
    if (!gpu_gemm(g, all, LD, dx, K + 4, T, part, 3))
        cr_skip_test("there is no cuBLAS");
    for (int i = 0, at = 0; i < 3; at += part[i++].N)
        gpu_gemm(g, each + at, LD, dx, K + 4, T, &part[i], 1);
    float *one = host_copy(g, all, n_out * 4), *two = host_copy(g, each, n_out * 4);
    for (size_t t = 0; t < T; t++)
        for (int n = 0; n < part[0].N + part[1].N + part[2].N; n++)
            cr_assert(le(dbl, fabs((double)(one[t * LD + (size_t)n] - two[t * LD + (size_t)n])),
                         EMULATED ? 0 : 1e-4));
    device_check(g, "gemm of parts");
}

Test(cuda, gemm_of_many)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(8);
    gemm_of_parts(g, &r, true, WEIGHT_BF16);
    gemm_of_parts(g, &r, false, WEIGHT_F32);
    gemm_of_parts(g, &r, true, WEIGHT_Q8_0);
}

Test(cuda, gemm)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(7);
    for (int i = 0; i < N_TYPES; i++) {
        bool floats = weight_block(types[i]) == 1;
        emulation_seed((unsigned long long)i);
        gemm_case(g, &r, types[i], 5, floats ? 37 : 256, 3);
    }
    gemm_case(g, &r, WEIGHT_Q8_0, 4099, 32, 2); /* more rows of W than one tile */
    gemm_case(g, &r, WEIGHT_BF16, 3, 24, GPU_GEMM_ROWS + 2);
}

Test(cuda, products)
{
    static const int plain[][3] = {{1, 1, 1}, {5, 7, 3}, {67, 33, 9}, {3, 172, 2}, {66, 264, 17}};
    static const int blocks[][3] = {{1, 256, 1}, {5, 512, 3}, {67, 256, 9}, {66, 768, 17}};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(1);
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
}

/* A matrix multiplication with its fused normalisation, activation and addition, in double
 * precision. */
struct taken {
    struct matrix part[3];
    struct gpu_dense how;
    int N, K, T;
    float *x, *norm, *before; /* [T][K], [K], [T][N]: initial content of out */
};

static double taken_sum(const struct taken *c, int t, int row)
{
    const struct matrix *m = c->part;
    const float *x = c->x + (size_t)t * (size_t)c->K;
    double sum = 0, square = 0;
    while (row >= m->m.N)
        row -= m++->m.N;
    for (int k = 0; k < c->K; k++) {
        double norm = c->norm ? (double)c->norm[k] : 1;
        sum += (double)x[k] * norm * (double)m->w[(size_t)row * (size_t)c->K + (size_t)k];
        square += (double)x[k] * (double)x[k];
    }
    return c->norm ? sum / sqrt(square / c->K + (double)c->how.eps) : sum;
}

static double taken_value(const struct taken *c, int t, int n)
{
    double v = taken_sum(c, t, n);
    if (c->how.end == GPU_ADD)
        return (double)c->before[t * c->N + n] + v * (double)c->how.scale;
    if (c->how.end == GPU_PUT)
        return v;
    double up = taken_sum(c, t, c->N + n), u = 0.7978845608 * (v + 0.044715 * v * v * v);
    return up * (c->how.gelu ? 0.5 * v * (1 + tanh(u)) : v / (1 + exp(-v)));
}

/* Computes all rows at once and the last row alone: the bits must be equal. */
static void taken_check(struct gpu *g, const struct taken *c, struct gpu_dense how)
{
    size_t T = (size_t)c->T, N = (size_t)c->N, K = (size_t)c->K;
    float *want = NEW(float, T *N), *x = device_copy(g, c->x, T * K * 4);
    float *out = device_copy(g, c->before, T * N * 4), *one = device_copy(g, c->before, T * N * 4);
    float *normed = device_alloc(g, T * K, 4);
    for (int i = 0; i < c->T * c->N; i++)
        want[i] = (float)taken_value(c, i / c->N, i % c->N);
    how.normed = c->norm ? normed : NULL;
    gpu_dense(g, out, N, x, K, c->T, &how);
    how.normed = NULL;
    gpu_dense(g, one + (T - 1) * N, N, x + (T - 1) * K, K, 1, &how);
    float *got = host_copy(g, out, T * N * 4), *alone = host_copy(g, one, T * N * 4);
    device_check(g, "dense");
    cr_expect(le(dbl, distance(got, want, T * N), 1e-5), "%s, end %d, %d rows",
              weight_type_name(how.part[0].type), how.end, c->T);
    cr_expect(zero(int, memcmp(got + (T - 1) * N, alone + (T - 1) * N, N * 4)), "a row alone");
    if (c->norm) {
        float *left = host_copy(g, normed, T * K * 4), *norm = NEW(float, T *K);
        rmsnorm_ref(norm, c->x, c->norm, c->T, c->K, how.eps);
        cr_expect(le(dbl, distance(left, norm, T * K), 1e-5), "what the norm leaves");
    }
}

/* rows[i]: rows of part i; 0: no such part. */
static void taken_case(struct gpu *g, struct rng *r, const enum weight_type *type, const int *rows,
                       int K, int T, enum gpu_end end, bool normed)
{
    struct taken c = {
        .how = {.eps = 0.5f, .scale = 0.5f, .end = end, .gelu = T % 2}, .K = K, .T = T};
    for (int i = 0; i < 3 && rows[i] > 0; i++, c.how.n++) {
        c.part[i] = make_matrix(g, r, type[i], rows[i], K);
        c.how.part[i] = c.part[i].m;
        c.N += rows[i];
    }
    if (end == GPU_GATED) {
        cr_assert(gpu_dense_gates(c.how.part, c.how.n));
        c.N /= 2;
    }
    c.x = NEW(float, (size_t)T *(size_t)K);
    c.before = NEW(float, (size_t)T *(size_t)c.N);
    float *norm = NEW(float, (size_t)K);
    fill(r, c.x, (size_t)T * (size_t)K, 2);
    fill(r, c.before, (size_t)T * (size_t)c.N, 1);
    fill(r, norm, (size_t)K, 1);
    if (normed) {
        c.norm = norm;
        c.how.norm = device_copy(g, norm, (size_t)K * 4);
    }
    taken_check(g, &c, c.how);
}

Test(cuda, products_with_what_they_take_along)
{
    static const enum weight_type bf16[3] = {WEIGHT_BF16, WEIGHT_BF16, WEIGHT_BF16},
                                  q4[3] = {WEIGHT_Q4_1, WEIGHT_Q4_1, WEIGHT_Q4_1},
                                  mixed[3] = {WEIGHT_Q4_K, WEIGHT_Q4_K, WEIGHT_Q6_K};
    static const int one[3] = {7, 0, 0}, two[3] = {13, 13, 0}, three[3] = {9, 5, 6},
                     few[3] = {3, 0, 0};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(8);
    for (int T = 1; T < 10; T += 1 + T / 5) {
        emulation_seed((unsigned long long)T);
        taken_case(g, &r, bf16, one, 37, T, GPU_ADD, false);
        taken_case(g, &r, bf16, three, 1000, T, GPU_PUT, true);
        taken_case(g, &r, bf16, few, 64, T, GPU_PUT, true);
        taken_case(g, &r, mixed, three, 256, T, GPU_PUT, true);
        taken_case(g, &r, mixed, three, 512, T, GPU_ADD, false);
        taken_case(g, &r, q4, two, 1536, T, GPU_GATED, true);
        taken_case(g, &r, bf16, two, 64, T, GPU_GATED, false);
    }
    struct gpu_matrix apart[2] = {{.type = WEIGHT_F16, .N = 4}, {.type = WEIGHT_BF16, .N = 4}};
    struct gpu_matrix odd[2] = {{.type = WEIGHT_F16, .N = 4}, {.type = WEIGHT_F16, .N = 5}};
    cr_expect(not(gpu_dense_gates(apart, 2)));
    cr_expect(not(gpu_dense_gates(odd, 2)));
}

/* Blocks compute more rows of W if the matrix is large and x has several rows. Results must not
 * change. */
Test(cuda, products_of_large_matrices)
{
    static const enum weight_type bf16[3] = {WEIGHT_BF16, WEIGHT_BF16, WEIGHT_BF16};
    static const int half[3] = {1030, 1027, 1}, whole[3] = {2059, 0, 0}, gates[3] = {1033, 1033, 0};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(9);
    taken_case(g, &r, bf16, half, 4096, 2, GPU_PUT, true);
    taken_case(g, &r, bf16, whole, 8200, 5, GPU_ADD, false);
    taken_case(g, &r, bf16, gates, 8200, 6, GPU_GATED, true);
}

Test(cuda, embeddings)
{
    enum { N = 9, K = 256, T = 4 };
    static const int32_t ids[T] = {8, 0, 3, 3};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(2);
    for (int i = 0; i < N_TYPES; i++) {
        struct matrix m = make_matrix(g, &r, types[i], N, K);
        int32_t *d_ids = device_copy(g, ids, sizeof ids);
        float *x = device_alloc(g, T * K, 4);
        gpu_embed(g, x, &m.m, d_ids, T, 0.75f);
        float *got = host_copy(g, x, T * K * 4);
        bool same = true;
        for (int t = 0; t < T; t++)
            for (int k = 0; k < K; k++)
                same = same && got[t * K + k] == m.w[ids[t] * K + k] * 0.75f;
        cr_expect(same, "%s", weight_type_name(types[i]));
        device_check(g, "embed");
    }
}

Test(cuda, norms)
{
    static const int shapes[][2] = {{1, 1}, {3, 7}, {2, 64}, {5, 257}, {2, 1000}};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(3);
    for (size_t c = 0; c < 5; c++) {
        int T = shapes[c][0], C = shapes[c][1];
        size_t n = (size_t)(T * C);
        float *x = NEW(float, n), *w = NEW(float, (size_t)C), *want = NEW(float, n);
        fill(&r, x, n, 3);
        fill(&r, w, (size_t)C, 1);
        rmsnorm_ref(want, x, w, T, C, 1e-5f);
        float *dx = device_copy(g, x, n * 4), *dw = device_copy(g, w, (size_t)C * 4);
        gpu_rmsnorm(g, dx, dx, (size_t)C, dw, T, 1, C, 1e-5f); /* in place */
        float *got = host_copy(g, dx, n * 4);
        cr_expect(le(dbl, distance(got, want, n), 1e-6), "%d x %d", T, C);
        device_check(g, "rmsnorm");
    }
}

/* Heads in rows that have more data after the heads. */
Test(cuda, norms_of_heads)
{
    enum { T = 3, HEADS = 2, C = 20, LD = 55 };
    float x[T * LD], w[C], want[T * LD];
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(6);
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
}

Test(cuda, rotations)
{
    enum { T = 3, HEADS = 5, D = 12, ROT = 8, LD = HEADS * D + 7 };
    float x[T * LD], turn[T * ROT], want[T * LD];
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(4);
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
}

Test(cuda, activations_and_sums)
{
    enum { T = 3, N = 301, LD = 2 * N + 5 };
    static float x[T * LD], want[T * N], row[N], cap[T * LD];
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(5);
    fill(&r, x, T * LD, 3);
    fill(&r, row, N, 1);
    float *dx = device_copy(g, x, sizeof x), *out = device_alloc(g, T * N, 4);
    for (int gelu = 0; gelu < 2; gelu++) {
        for (int t = 0; t < T; t++)
            (gelu ? geglu_ref : swiglu_ref)(want + t * N, x + t * LD, x + t * LD + N, N);
        gpu_gated(g, out, dx, LD, T, N, gelu);
        float *got = host_copy(g, out, sizeof want);
        cr_expect(le(dbl, distance(got, want, T * N), 1e-6), "gelu %d", gelu);
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
}

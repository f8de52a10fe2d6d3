/* test_matmul.c - matrix multiplications with weights of every type compared with double
 * precision. */
#include "engine/kernels/pack_room.h"
#include "variants.h"

/* A source matrix in a file format, with its exact values. */
struct matrix {
    uint8_t *bytes;
    float *value; /* [N][K] */
    int N, K;
    enum weight_type type;
};

/* Converts a number with at most 11 significant bits and an exponent in range to f16. */
static uint16_t to_f16(float f)
{
    uint32_t b;
    memcpy(&b, &f, 4);
    if (f == 0)
        return (uint16_t)(b >> 16);
    return (uint16_t)((b >> 16 & 0x8000) | (((b >> 23 & 255) - 112) << 10) | (b >> 13 & 1023));
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* Writes a block of 32 in GGUF's layout and its values, by definition: Q8_0: d q; Q4_0: d (u - 8);
 * Q4_1: d u + m; nibbles: 16 low ones, 16 high ones. */
static size_t put_block(struct rng *r, enum weight_type type, uint8_t *p, float *value)
{
    float d = (float)(1 + rng_below(r, 1023)) / 16384, m = -(float)rng_below(r, 1024) / 2048;
    size_t head = type == WEIGHT_Q4_1 ? 4 : 2;
    put16(p, to_f16(d));
    if (type == WEIGHT_Q4_1)
        put16(p + 2, to_f16(m));
    for (int i = 0; i < 32; i++) {
        if (type == WEIGHT_Q8_0) {
            int q = (int)rng_below(r, 256) - 128;
            p[head + (size_t)i] = (uint8_t)q;
            value[i] = d * (float)q;
            continue;
        }
        int u = (int)rng_below(r, 16);
        if (i < 16)
            p[head + (size_t)i] = (uint8_t)u;
        else
            p[head + (size_t)i - 16] |= (uint8_t)(u << 4);
        value[i] = type == WEIGHT_Q4_0 ? d * (float)(u - 8) : d * (float)u + m;
    }
    return type == WEIGHT_Q8_0 ? 34 : head + 16;
}

/* Writes a block of 256 (or of 32) with random bits and ordinary f16 numbers at the given places.
 * Its values come from weight_dequant, which test_blocks.py compares with the published
 * formulas. */
static size_t put_any_block(struct rng *r, enum weight_type type, uint8_t *p, float *value)
{
    static const struct {
        enum weight_type type;
        int half[2]; /* -1: no such number */
    } places[] = {{WEIGHT_Q5_0, {0, -1}},   {WEIGHT_Q5_1, {0, 2}},    {WEIGHT_Q2_K, {80, 82}},
                  {WEIGHT_Q3_K, {108, -1}}, {WEIGHT_Q4_K, {0, 2}},    {WEIGHT_Q5_K, {0, 2}},
                  {WEIGHT_Q6_K, {208, -1}}, {WEIGHT_IQ4_NL, {0, -1}}, {WEIGHT_IQ4_XS, {0, -1}}};
    size_t n = (size_t)weight_block(type), bytes = weight_bytes(type, n);
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)rng_below(r, 256);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int h = 0; places[i].type == type && h < 2; h++)
            if (places[i].half[h] >= 0)
                put16(p + places[i].half[h], to_f16((float)(1 + rng_below(r, 1023)) / 16384));
    weight_dequant(value, p, type, n);
    return bytes;
}

static size_t put_float(struct rng *r, enum weight_type type, uint8_t *p, float *value)
{
    /* 8 significant bits: exact in every float type. */
    *value = (float)((int)rng_below(r, 255) - 127) / 128;
    if (type == WEIGHT_F16) {
        put16(p, to_f16(*value));
        return 2;
    }
    uint32_t b;
    memcpy(&b, value, 4);
    if (type == WEIGHT_BF16) {
        put16(p, (uint16_t)(b >> 16));
        return 2;
    }
    memcpy(p, &b, 4);
    return 4;
}

static struct matrix make_matrix(struct rng *r, enum weight_type type, int N, int K)
{
    struct matrix m = {.N = N, .K = K, .type = type};
    size_t n = (size_t)N * (size_t)K, at = 0;
    bool by_hand = type == WEIGHT_Q4_0 || type == WEIGHT_Q4_1 || type == WEIGHT_Q8_0;
    int block = weight_block(type);
    m.bytes = mem_alloc(n, 4);
    m.value = MEM_NEW(float, n);
    for (size_t i = 0; i < n; i += (size_t)block)
        if (by_hand)
            at += put_block(r, type, m.bytes + at, m.value + i);
        else if (block > 1)
            at += put_any_block(r, type, m.bytes + at, m.value + i);
        else
            at += put_float(r, type, m.bytes + at, m.value + i);
    cr_assert(eq(sz, at, weight_bytes(type, n)));
    return m;
}

static void free_matrix(struct matrix *m)
{
    mem_free(m->bytes);
    mem_free(m->value);
}

static const enum weight_type types[] = {WEIGHT_F32,    WEIGHT_F16,  WEIGHT_BF16,  WEIGHT_Q8_0,
                                         WEIGHT_Q4_0,   WEIGHT_Q4_1, WEIGHT_Q5_0,  WEIGHT_Q5_1,
                                         WEIGHT_IQ4_NL, WEIGHT_Q2_K, WEIGHT_Q3_K,  WEIGHT_Q4_K,
                                         WEIGHT_Q5_K,   WEIGHT_Q6_K, WEIGHT_IQ4_XS};
enum { N_TYPES = sizeof types / sizeof *types };

/* Returns K rounded up to a multiple of the type's block. */
static int whole_blocks(enum weight_type type, int K)
{
    int block = weight_block(type);
    return (K + block - 1) / block * block;
}

static struct packed pack(const struct matrix *m, int exact)
{
    struct packed w;
    struct pack_source src = {m->bytes, m->type, m->N};
    cr_assert(eq(int, packed_build(&src, 1, m->K, exact, &w), KVF_OK));
    cr_assert(zero(sz, (size_t)w.data % 64));
    return w;
}

static struct qrows make_qrows(int T, const struct packed *w, bool hi_alone)
{
    size_t n = (size_t)T * (size_t)w->K;
    return (struct qrows){.q = mem_alloc(n, 2),
                          .scale = MEM_NEW(float, n / QBLOCK),
                          .sum = MEM_NEW(float, n / QBLOCK),
                          .half = MEM_NEW(float, n / QBLOCK * 2),
                          .K = w->K,
                          .hi_alone = hi_alone,
                          .lowest = w->lowest};
}

static void free_qrows(struct qrows *q)
{
    mem_free(q->q);
    mem_free(q->scale);
    mem_free(q->sum);
    mem_free(q->half);
}

/* Multiplies T rows of x with any kind of weights. hi_alone: use 8 bits of x. */
static void multiply(const struct kernels *k, float *out, size_t ld, const float *x, int T,
                     const struct packed *w, int panel0, int n_panels, bool hi_alone)
{
    if (!packed_quantised(w)) {
        k->matmul_f(out, ld, x, (size_t)w->K, T, w, panel0, n_panels);
        return;
    }
    SCOPED(free_qrows) struct qrows q = make_qrows(T, w, hi_alone);
    k->quant_rows(&q, x, T, w->K);
    k->matmul_q(out, ld, &q, T, w, panel0, n_panels);
}

/* Each of the K terms contributes at most half an ulp of a partial sum <= sum |x w|. Rounding of
 * activations is tested separately: here x is a multiple of max/32512, or with 8 bits of
 * max/127. */
static void check_product(const struct variant *v, const struct matrix *m, const struct packed *w,
                          const float *x, int T, bool hi_alone)
{
    size_t ld = (size_t)w->n_panels * PANEL;
    float *out = guard((size_t)T * ld * sizeof *out);
    multiply(&v->k, out, ld, x, T, w, 0, w->n_panels, hi_alone);
    double bad = 0;
    for (int t = 0; t < T; t++)
        for (size_t r = 0; r < ld; r++) {
            double sum = 0, size = 0;
            for (int k = 0; (int)r < m->N && k < m->K; k++) {
                double p = (double)x[(size_t)t * (size_t)m->K + (size_t)k]
                           * (double)m->value[r * (size_t)m->K + (size_t)k];
                sum += p;
                size += fabs(p);
            }
            double bound = 2e-6 * (size + 1) + 1e-7 * m->K * size;
            bad = worst(fabs((double)out[(size_t)t * ld + r] - sum) / bound, bad);
        }
    cr_expect(bad <= 1, "%s: type %d, %d bits, T %d, N %d, K %d: %g times the bound", v->name,
              (int)m->type, hi_alone ? 8 : 16, T, m->N, m->K, bad);
    cr_expect(intact(out), "%s wrote outside", v->name);
}

/* Makes rows of integers, or of multiples of 256, with 32512 in every block of 32, so that
 * quantisation is exact. */
static float *integer_rows(struct rng *r, int T, int K, bool hi_alone)
{
    float *x = MEM_NEW(float, (size_t)T *(size_t)K);
    for (size_t i = 0; i < (size_t)T * (size_t)K; i++) {
        x[i] = (float)(hi_alone ? ((int)rng_below(r, 255) - 127) * 256
                                : (int)rng_below(r, 65025) - 32512);
        if (i % 32 == 7)
            x[i] = 32512;
    }
    return x;
}

Test(matmul, equals_plain_dequantised_product)
{
    static const int shapes[][2] = {{1, 32}, {16, 64}, {33, 96}, {50, 160}, {80, 1056}};
    VARIANTS(v, n);
    struct rng r = rng_seeded(1);
    for (int type = 0; type < N_TYPES; type++)
        for (int s = 0; s < 5; s++) {
            int N = shapes[s][0], K = whole_blocks(types[type], shapes[s][1]);
            SCOPED(free_matrix) struct matrix m = make_matrix(&r, types[type], N, K);
            SCOPED(packed_finish) struct packed w = pack(&m, 0);
            for (int c = 2; c < 36; c += s == 4 ? 15 : 1) {
                int T = c / 2;
                OWNED(mem_free) float *x = integer_rows(&r, T, K, c % 2);
                for (int i = 0; i < n; i++)
                    check_product(&v[i], &m, &w, x, T, c % 2);
            }
        }
}

Test(matmul, float_weights_need_no_block_of_32)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(2);
    for (int K = 1; K <= 40; K += 13)
        for (int type = 0; type < 3; type++) {
            SCOPED(free_matrix) struct matrix m = make_matrix(&r, types[type], 21, K);
            SCOPED(packed_finish) struct packed w = pack(&m, 0);
            OWNED(mem_free) float *x = integer_rows(&r, 5, K, false);
            for (int i = 0; i < n; i++)
                check_product(&v[i], &m, &w, x, 5, false);
        }
}

/* Many rows may be multiplied by spans of channels; one row is not, and has the same bits. */
Test(matmul, long_float_rows_have_the_bits_of_one_row)
{
    enum { ROWS = 17, LONG = 11003 };
    VARIANTS(v, n);
    struct rng r = rng_seeded(12);
    SCOPED(free_matrix) struct matrix m = make_matrix(&r, WEIGHT_F32, 70, LONG);
    SCOPED(packed_finish) struct packed w = pack(&m, 0);
    OWNED(mem_free) float *x = integer_rows(&r, ROWS, LONG, false);
    for (int i = 0; i < n; i++) {
        float all[ROWS * 80], one[80];
        check_product(&v[i], &m, &w, x, ROWS, false);
        v[i].k.matmul_f(all, 80, x, LONG, ROWS, &w, 0, w.n_panels);
        for (int t = 0; t < ROWS; t++) {
            v[i].k.matmul_f(one, 80, x + (size_t)t * LONG, LONG, 1, &w, 0, w.n_panels);
            cr_expect(zero(int, memcmp(one, all + (size_t)t * 80, sizeof one)), "%s, row %d",
                      v[i].name, t);
        }
    }
}

Test(matmul, exact_packing_keeps_every_value)
{
    struct rng r = rng_seeded(3);
    for (int type = 0; type < N_TYPES; type++) {
        int K = whole_blocks(types[type], 64);
        SCOPED(free_matrix) struct matrix m = make_matrix(&r, types[type], 19, K);
        SCOPED(packed_finish) struct packed w = pack(&m, 1);
        cr_assert(eq(int, w.kind, PACK_F32));
        const float *data = (const float *)(const void *)w.data;
        for (int row = 0; row < 32; row++)
            for (int k = 0; k < K; k++) {
                float want = row < 19 ? m.value[row * K + k] : 0;
                float got = data[(row / PANEL * K + k) * PANEL + row % PANEL];
                cr_assert(fabsf(got - want) <= 1e-7f * fabsf(want) + 1e-9f, "type %d row %d k %d",
                          (int)types[type], row, k);
            }
    }
}

/* Q4_0 blocks are stored with 8 d as f16. If f16 cannot represent it, the values are stored as
 * floats. */
Test(matmul, scales_too_large_for_f16_become_floats)
{
    struct rng r = rng_seeded(5);
    SCOPED(free_matrix) struct matrix m = make_matrix(&r, WEIGHT_Q4_0, 19, 64);
    for (int too_large = 0; too_large < 2; too_large++) {
        put16(m.bytes + 18 * 5, to_f16(too_large ? 8192 : 8064));
        SCOPED(packed_finish) struct packed w = pack(&m, 0);
        cr_expect(eq(int, w.kind, too_large ? PACK_F32 : PACK_Q4));
    }
}

/* Two sources in one matrix, as for QKV and gate-up. */
static void check_joined(struct rng *r, enum weight_type first, enum weight_type second,
                         enum packed_kind kind, int n_fine)
{
    VARIANTS(v, n);
    enum { K = 256 };
    struct matrix a = make_matrix(r, first, 10, K), b = make_matrix(r, second, 9, K);
    struct pack_source src[2] = {{a.bytes, a.type, 10}, {b.bytes, b.type, 9}};
    struct packed w;
    cr_assert(eq(int, packed_build(src, 2, K, 0, &w), KVF_OK));
    cr_expect(w.kind == kind && w.n_fine == n_fine, "types %d and %d: kind %d, form %d", (int)first,
              (int)second, (int)w.kind, w.n_fine);
    struct matrix both = {.N = 19, .K = K, .value = MEM_NEW(float, 19 * K), .type = first};
    memcpy(both.value, a.value, 10 * K * sizeof(float));
    memcpy(both.value + 10 * K, b.value, 9 * K * sizeof(float));
    float *x = integer_rows(r, 3, K, false);
    for (int i = 0; i < n; i++)
        check_product(&v[i], &both, &w, x, 3, false);
    mem_free(x);
    mem_free(both.value);
    packed_finish(&w);
    free_matrix(&a);
    free_matrix(&b);
}

Test(matmul, joined_sources_stand_one_below_the_other)
{
    struct rng r = rng_seeded(4);
    check_joined(&r, WEIGHT_Q4_0, WEIGHT_Q4_1, PACK_Q4, 0);
    check_joined(&r, WEIGHT_Q5_0, WEIGHT_Q8_0, PACK_Q8, 0);
    check_joined(&r, WEIGHT_Q4_K, WEIGHT_Q6_K, PACK_Q6, 2);
    check_joined(&r, WEIGHT_Q4_K, WEIGHT_Q5_K, PACK_Q5, 1);
    check_joined(&r, WEIGHT_Q2_K, WEIGHT_Q3_K, PACK_Q4, 2);
    check_joined(&r, WEIGHT_Q4_1, WEIGHT_Q4_K, PACK_Q4, 1);
    check_joined(&r, WEIGHT_Q6_K, WEIGHT_Q8_0, PACK_Q8, 2);
    check_joined(&r, WEIGHT_Q5_0, WEIGHT_Q4_0, PACK_Q5, 0);
    check_joined(&r, WEIGHT_Q5_1, WEIGHT_Q2_K, PACK_Q5, 2);
    check_joined(&r, WEIGHT_IQ4_XS, WEIGHT_Q5_1, PACK_Q8, 1);
    check_joined(&r, WEIGHT_F16, WEIGHT_Q8_0, PACK_F32, 0);
    check_joined(&r, WEIGHT_Q4_K, WEIGHT_BF16, PACK_F32, 0);
}

/* A subset of the panels, as a pool task computes of the output matrix. */
Test(matmul, part_of_the_panels_is_a_matrix)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(8);
    enum { N = 40, MAX_K = 256, LD = 48 };
    for (int type = 0; type < N_TYPES; type++) {
        int K = whole_blocks(types[type], 64);
        SCOPED(free_matrix) struct matrix m = make_matrix(&r, types[type], N, K);
        struct packed w = pack(&m, 0), part = packed_part(&w, 1, 2);
        float x[MAX_K], all[LD], some[LD];
        cr_expect(part.N == N - PANEL && part.n_panels == 2);
        fill_normal(&r, x, K, 1);
        for (int i = 0; i < n; i++) {
            multiply(&v[i].k, all, LD, x, 1, &w, 0, w.n_panels, false);
            multiply(&v[i].k, some, LD, x, 1, &part, 0, 2, false);
            cr_expect(zero(int, memcmp(some, all + PANEL, 2 * PANEL * sizeof *some)), "%s: type %d",
                      v[i].name, (int)types[type]);
        }
        packed_finish(&w);
    }
}

/* Row t of a batch has the bits of the separate row, and a panel has the same bits in any range of
 * panels. Independence of chunk size and thread count relies on this. */
static void check_rows(const struct variant *v, const struct packed *w, const float *x,
                       bool hi_alone)
{
    /* Tiles of many rows and of few, with all remainders. */
    static const int rows_of[] = {38, 35, 33, 31, 13};
    enum { T = 40, LD = 96 };
    float all[T * LD], some[T * LD];
    memset(all, 0xff, sizeof all); /* no result of the previous variant */
    multiply(&v->k, all, LD, x, T, w, 0, w->n_panels, hi_alone);
    for (int t = 0; t < T; t++) {
        multiply(&v->k, some, LD, x + t * w->K, 1, w, 0, w->n_panels, hi_alone);
        cr_expect(zero(int, memcmp(some, all + t * LD, LD * sizeof *some)), "%s: row %d", v->name,
                  t);
    }
    for (int c = 0; c < 5; c++) {
        multiply(&v->k, some, LD, x, rows_of[c], w, 0, w->n_panels, hi_alone);
        cr_expect(zero(int, memcmp(some, all, (size_t)(rows_of[c] * LD) * sizeof *some)),
                  "%s: %d rows", v->name, rows_of[c]);
    }
    for (int first = 0; first < T; first += 5) {
        int rows = T - first < 6 ? T - first : 6;
        for (int p = 0; p < w->n_panels; p++)
            multiply(&v->k, some, LD, x + first * w->K, rows, w, p, 1, hi_alone);
        cr_expect(zero(int, memcmp(some, all + first * LD, (size_t)(rows * LD) * sizeof *some)),
                  "%s: rows from %d, panel by panel", v->name, first);
    }
}

Test(matmul, row_and_panel_depend_on_nothing_else)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(5);
    enum { N = 90, MAX_K = 1280, T = 40 };
    for (int type = 0; type < N_TYPES; type++) {
        int K = whole_blocks(types[type], 1056);
        SCOPED(free_matrix) struct matrix m = make_matrix(&r, types[type], N, K);
        SCOPED(packed_finish) struct packed w = pack(&m, 0);
        float x[T * MAX_K];
        fill_normal(&r, x, T * K, 1);
        for (int i = 0; i < n; i++)
            for (int hi_alone = 0; hi_alone <= packed_quantised(&w); hi_alone++)
                check_rows(&v[i], &w, x, hi_alone);
    }
}

static bool same_packed(const struct packed *a, const struct packed *b)
{
    size_t blocks = (size_t)(a->n_panels * a->n_blocks), scale = 0;
    size_t step = a->lowest ? PANEL : 2 * PANEL, fine = blocks * (size_t)a->n_fine * step;
    if (blocks)
        scale = blocks / (size_t)a->super * step * sizeof *a->scale;
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes - scale - fine) == 0
           && (!scale || memcmp(a->scale, b->scale, scale) == 0)
           && (!fine || memcmp(a->fine, b->fine, fine) == 0);
}

/* Rows, scales and padding in reused memory. Matrices after it have separate memory. */
Test(matmul, matrices_that_share_memory_are_those_that_have_their_own)
{
    struct rng r = rng_seeded(8);
    for (int type = 0; type < N_TYPES; type++) {
        int K = whole_blocks(types[type], 288), exact = type % 2;
        SCOPED(free_matrix) struct matrix m = make_matrix(&r, types[type], 37, K);
        struct pack_source src = {m.bytes, m.type, 37};
        struct packed own = pack(&m, exact), w[3];
        struct pack_room room;
        pack_room_open(&room, 2 * packed_bytes(&src, 1, K, exact), 2);
        memset(room.data, 0xff, room.bytes);
        for (int i = 0; i < 3; i++) {
            cr_assert(eq(int, packed_build_in(&room, &src, 1, K, exact, &w[i]), KVF_OK));
            cr_expect(w[i].lent == (i < 2), "type %d, matrix %d", (int)m.type, i);
            cr_expect(same_packed(&own, &w[i]), "type %d, matrix %d", (int)m.type, i);
        }
        for (int i = 0; i < 3; i++)
            packed_finish(&w[i]);
        pack_room_close(&room);
        packed_finish(&own);
    }
}

/* Integer sums are exact and float operations have the order of the reference, so all variants
 * agree bit for bit. */
Test(matmul, variants_agree_to_the_bit)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(6);
    enum { N = 70, MAX_K = 1280, T = 14, LD = 80 };
    for (int type = 0; type < N_TYPES; type++) {
        int K = whole_blocks(types[type], 1056);
        SCOPED(free_matrix) struct matrix m = make_matrix(&r, types[type], N, K);
        SCOPED(packed_finish) struct packed w = pack(&m, 0);
        float x[T * MAX_K], want[T * LD], got[T * LD];
        fill_normal(&r, x, T * K, 3);
        for (int hi_alone = 0; hi_alone <= packed_quantised(&w); hi_alone++) {
            multiply(&v[0].k, want, LD, x, T, &w, 0, w.n_panels, hi_alone);
            for (int i = 1; i < n; i++) {
                multiply(&v[i].k, got, LD, x, T, &w, 0, w.n_panels, hi_alone);
                cr_expect(zero(int, memcmp(got, want, sizeof got)), "%s, type %d, %d bits",
                          v[i].name, (int)types[type], hi_alone ? 8 : 16);
            }
        }
    }
}

/* Converts all 65,536 halves by the definition of the format, and back. */
Test(packed, halves_convert_both_ways)
{
    for (unsigned h = 0; h < 65536; h++) {
        int e = (int)(h >> 10 & 31), man = (int)(h & 1023);
        double want = e == 0 ? ldexp(man, -24) : ldexp(1024 + man, e - 25);
        float f = half_to_float((uint16_t)h);
        if (e == 31) {
            bool special = man ? isnan(f) : isinf(f);
            cr_assert(special, "%04x", h);
            continue;
        }
        cr_assert(eq(dbl, (double)f, h & 0x8000 ? -want : want), "%04x", h);
        cr_assert(eq(int, float_to_half(f), (int)h), "%04x", h);
    }
}

Test(packed, float_to_half_rounds_to_even)
{
    for (unsigned h = 0; h < 0x7bff; h++) { /* between neighbouring halves */
        float a = half_to_float((uint16_t)h), b = half_to_float((uint16_t)(h + 1));
        float middle = (a + b) / 2;
        cr_assert(eq(int, float_to_half(middle), (int)(h + (h & 1))), "%04x", h);
        cr_assert(eq(int, float_to_half(nextafterf(middle, 0)), (int)h), "%04x", h);
        cr_assert(eq(int, float_to_half(nextafterf(middle, 1e9f)), (int)h + 1), "%04x", h);
    }
    cr_expect(eq(int, float_to_half(65519.0f), 0x7bff));
    cr_expect(eq(int, float_to_half(65520.0f), 0x7c00));
    cr_expect(eq(int, float_to_half(-1e9f), 0xfc00));
}

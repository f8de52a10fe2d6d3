/* test_words.c - matrix multiplications with float weights as 16-bit integers. */
#include <float.h>

#include "engine/kernels/pack_room.h"
#include "variants.h"

enum { WORDS = WBLOCK * PANEL }; /* per (panel, block) */

static struct packed pack_words(const float *w, int N, int K)
{
    struct packed p;
    struct pack_source src = {w, WEIGHT_F32, N};
    cr_assert(eq(int, packed_build(&src, 1, K, PACK_WORDS, &p), KVF_OK));
    cr_assert(eq(int, (int)p.kind, PACK_I16));
    cr_assert(zero(sz, (size_t)p.data % 64));
    return p;
}

static struct wrows quantise(const struct kernels *k, const float *x, int T, int K)
{
    size_t blocks = (size_t)T * words_blocks(K);
    struct wrows q = {MEM_NEW(int16_t, blocks * WBLOCK), MEM_NEW(float, blocks), K};
    memset(q.q, 0x5a, blocks * WBLOCK * sizeof *q.q);
    k->quant_words(&q, x, T, K);
    return q;
}

static void free_words(struct wrows *q)
{
    mem_free(q->q);
    mem_free(q->scale);
}

/* Returns the weight of row r and channel c as an integer, and the scale of its block. */
static int weight_at(const struct packed *w, int r, int c, float *scale)
{
    size_t at = (size_t)(r / PANEL * w->n_blocks + c / WBLOCK);
    int pair = c % WBLOCK / 2;
    *scale = brain_to_float(w->scale[at * PANEL + (size_t)(r % PANEL)]);
    return ((const int16_t *)(const void *)
                w->data)[at * WORDS + (size_t)(pair * 2 * PANEL) + (size_t)(r % PANEL * 2 + c % 2)];
}

static bool equal_or_none(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Integers, scales and products of every instruction set equal those of the reference bit for bit.
 * Different NaNs count as equal. */
static void check_sets(const float *w, int N, const float *x, int T, int K, const char *what)
{
    VARIANTS(v, n);
    SCOPED(packed_finish) struct packed p = pack_words(w, N, K);
    struct wrows want_q, q;
    size_t ld = (size_t)p.n_panels * PANEL, blocks = (size_t)T * words_blocks(K);
    OWNED(mem_free) float *want = MEM_NEW(float, (size_t)T *ld);
    want_q = quantise(&v[0].k, x, T, K);
    v[0].k.matmul_words(want, ld, &want_q, T, &p, 0, p.n_panels);
    for (int i = 1; i < n; i++) {
        float *got = guard((size_t)T * ld * sizeof *got);
        q = quantise(&v[i].k, x, T, K);
        v[i].k.matmul_words(got, ld, &q, T, &p, 0, p.n_panels);
        cr_expect(memcmp(q.q, want_q.q, blocks * WBLOCK * sizeof *q.q) == 0
                      && equal_or_none(q.scale, want_q.scale, blocks),
                  "%s: %s: integers of %d rows of %d", what, v[i].name, T, K);
        cr_expect(equal_or_none(got, want, (size_t)T * ld), "%s: %s: N %d, T %d, K %d", what,
                  v[i].name, N, T, K);
        cr_expect(intact(got), "%s wrote outside", v[i].name);
        free_words(&q);
    }
    free_words(&want_q);
}

Test(words, sets_agree_on_odd_shapes)
{
    static const int N[] = {1, 16, 17, 33, 50, 70, 96}, K[] = {1, 63, 64, 65, 100, 576, 1601};
    struct rng r = rng_seeded(1);
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 7; b++)
            for (int T = 1; T < 24; T += a == b ? 1 : 5) {
                OWNED(mem_free) float *w = MEM_NEW(float, (size_t)(N[a] * K[b]));
                OWNED(mem_free) float *x = MEM_NEW(float, (size_t)(T * K[b]));
                fill_normal(&r, w, (size_t)(N[a] * K[b]), 0.04);
                fill_normal(&r, x, (size_t)(T * K[b]), 3);
                check_sets(w, N[a], x, T, K[b], "normal");
            }
}

/* Fills numbers of many magnitudes, with NaN and infinity in some of the blocks. */
static void fill_hostile(struct rng *r, float *x, size_t n)
{
    static const float odd[] = {0,     -0.0f, FLT_MIN,  FLT_MIN / 8, 1e-38f,    -1e-30f,
                                1e30f, 3e38f, -FLT_MAX, INFINITY,    -INFINITY, NAN};
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(rng_below(r, 1 << 16) << 16 | rng_below(r, 1 << 16));
        memcpy(x + i, &bits, sizeof bits); /* any float */
        if (i / 64 % 4 == 1)
            x[i] = odd[rng_below(r, 12)];
        if (i / 64 % 4 > 1)
            x[i] = (float)rng_normal(r) * (i / 64 % 4 == 2 ? 1e18f : 1e-25f);
    }
}

Test(words, sets_agree_on_hostile_numbers)
{
    enum { N = 40, T = 13, K = 500 };
    struct rng r = rng_seeded(2);
    for (int round = 0; round < 20; round++) {
        static float w[N * K], x[T * K];
        fill_hostile(&r, w, N * K);
        fill_hostile(&r, x, T * K);
        check_sets(w, N, x, T, K, "hostile");
    }
}

/* Checks the norm |q| and the largest number of a block of weights or activations. */
static void check_room(const char *what, const int16_t *q, size_t step, double norm)
{
    double square = 0;
    for (int i = 0; i < WBLOCK; i++) {
        int64_t u = q[(size_t)(i / 2) * step + (size_t)(i % 2)];
        cr_expect(u >= -32767, "%s: %d", what, (int)u);
        square += (double)(u * u);
    }
    cr_expect(square <= norm * norm, "%s: |q| is %g", what, sqrt(square));
}

/* Returns numbers of a block for which a bound is tight: all equal, a single large one, or in
 * between. */
static float shaped(struct rng *r, int shape, int i)
{
    float sign = rng_below(r, 2) ? 1 : -1;
    if (shape == 0)
        return 1;
    if (shape == 1)
        return i == 17 ? -1 : 0;
    if (shape == 2)
        return sign * (i == 17 ? 1 : 1e-3f);
    if (shape < 40)
        return i < shape ? sign : 0;
    return (float)rng_normal(r);
}

/* The integers of weights and activations have the norms stated in packed.h, so that no block sum
 * overflows 32 bits. Equal numbers on both sides reach the bound. */
Test(words, sums_of_a_block_fit)
{
    enum { SHAPES = 60, K = WBLOCK };
    struct variant v[MAX_VARIANTS];
    int64_t most = 0;
    struct rng r = rng_seeded(3);
    variants(v);
    for (int shape = 0; shape < SHAPES; shape++) {
        float x[K];
        for (int i = 0; i < K; i++)
            x[i] = shaped(&r, shape, i) * 0.37f;
        struct packed w = pack_words(x, 1, K);
        struct wrows q = quantise(&v[0].k, x, 1, K);
        int64_t sum = 0;
        float scale;
        check_room("weights", (const int16_t *)(const void *)w.data, 2 * PANEL, 65535);
        check_room("activations", q.q, 2, 32767);
        for (int i = 0; i < K; i++)
            sum += (int64_t)weight_at(&w, 0, i, &scale) * q.q[i];
        most = sum > most ? sum : most;
        free_words(&q);
        packed_finish(&w);
        check_sets(x, 1, x, 1, K, "tight");
    }
    cr_expect(most > INT64_C(2130000000) && most < INT64_C(1) << 31, "largest sum %lld",
              (long long)most);
}

/* Checks a product against double precision. The bound is half a step on both sides plus the
 * rounding of scales, sums and their addition. */
static void check_dot(const struct packed *p, const struct wrows *q, const float *w, const float *x,
                      int r, int t, float got)
{
    double want = 0, bound = 0, size = 0;
    size_t nb = words_blocks(p->K);
    for (int k = 0; k < p->K; k++) {
        float d;
        double a = (double)w[r * p->K + k], b = (double)x[t * p->K + k];
        weight_at(p, r, k, &d);
        double s = (double)q->scale[(size_t)t * nb + (size_t)(k / WBLOCK)], half_d = (double)d / 2;
        want += a * b;
        size += fabs(a * b);
        bound += half_d * fabs(b) + s / 2 * fabs(a) + half_d * s / 2;
    }
    bound = bound * 1.00001 + size * 1.2e-7 * ((double)nb + 4);
    cr_expect(fabs((double)got - want) <= bound, "row %d of %d channels: %g, not %g +- %g", r, p->K,
              (double)got, want, bound);
}

Test(words, equal_the_product_within_half_a_step)
{
    static const int K[] = {1, 40, 64, 130, 576};
    enum { N = 23, T = 9, MAX_K = 576, LD = 32 };
    static float w[N * MAX_K], x[T * MAX_K];
    VARIANTS(v, n);
    struct rng r = rng_seeded(4);
    for (int c = 0; c < 5; c++) {
        float out[T * LD];
        fill_normal(&r, w, (size_t)(N * K[c]), 0.04);
        fill_normal(&r, x, (size_t)(T * K[c]), 1);
        for (int i = 0; i < T * K[c]; i += 29)
            x[i] *= 300; /* like outlier channels of models */
        SCOPED(packed_finish) struct packed p = pack_words(w, N, K[c]);
        SCOPED(free_words) struct wrows q = quantise(&v[n - 1].k, x, T, K[c]);
        v[n - 1].k.matmul_words(out, LD, &q, T, &p, 0, p.n_panels);
        for (int t = 0; t < T; t++)
            for (int o = 0; o < LD; o++)
                if (o < N)
                    check_dot(&p, &q, w, x, o, t, out[t * LD + o]);
                else
                    cr_expect(out[t * LD + o] == 0, "padding");
    }
}

/* A row or panel has the same bits for all chunk sizes and thread counts. */
Test(words, row_and_panel_depend_on_nothing_else)
{
    enum { N = 90, T = 40, K = 1984, LD = 96 };
    static float w[N * K], x[T * K], all[T * LD], some[T * LD];
    static const int rows_of[] = {38, 35, 33, 16, 13, 8, 7, 3};
    VARIANTS(v, n);
    struct rng r = rng_seeded(5);
    fill_normal(&r, w, N * K, 1);
    fill_normal(&r, x, T * K, 1);
    struct packed p = pack_words(w, N, K), part = packed_part(&p, 2, 3);
    for (int i = 0; i < n; i++) {
        const struct kernels *k = &v[i].k;
        SCOPED(free_words) struct wrows q = quantise(k, x, T, K);
        k->matmul_words(all, LD, &q, T, &p, 0, p.n_panels);
        for (int c = 0; c < 8; c++)
            for (int t = 0; t + rows_of[c] <= T; t += rows_of[c]) {
                struct wrows rows = wrows_from(&q, (size_t)t);
                k->matmul_words(some, LD, &rows, rows_of[c], &p, 0, p.n_panels);
                cr_expect(
                    zero(int, memcmp(some, all + t * LD, (size_t)(rows_of[c] * LD) * sizeof *some)),
                    "%s: %d rows from %d", v[i].name, rows_of[c], t);
            }
        for (int t = 0; t < T; t++) {
            struct wrows row = wrows_from(&q, (size_t)t);
            k->matmul_words(some, LD, &row, 1, &part, 0, 3);
            cr_expect(zero(int, memcmp(some, all + t * LD + 2 * PANEL, 3 * PANEL * sizeof *some)),
                      "%s: part of row %d", v[i].name, t);
            for (int panel = 0; panel < p.n_panels; panel++)
                k->matmul_words(some, LD, &row, 1, &p, panel, 1);
            cr_expect(zero(int, memcmp(some, all + t * LD, LD * sizeof *some)), "%s: row %d",
                      v[i].name, t);
        }
    }
    packed_finish(&p);
}

/* NaN or infinity makes exactly the sums that contain its block NaN. */
Test(words, what_is_no_number_stays_where_it_is)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    enum { N = 20, T = 3, K = 192, LD = 32 };
    VARIANTS(v, n);
    struct rng r = rng_seeded(6);
    for (int c = 0; c < 6; c++) {
        float w[N * K], x[T * K], out[T * LD];
        fill_normal(&r, w, N * K, 1);
        fill_normal(&r, x, T * K, 1);
        float *one = c < 3 ? &w[7 * K + 70] : &x[1 * K + 70];
        *one = odd[c % 3];
        SCOPED(packed_finish) struct packed p = pack_words(w, N, K);
        for (int i = 0; i < n; i++) {
            SCOPED(free_words) struct wrows q = quantise(&v[i].k, x, T, K);
            v[i].k.matmul_words(out, LD, &q, T, &p, 0, p.n_panels);
            for (int t = 0; t < T; t++)
                for (int o = 0; o < LD; o++)
                    cr_expect(isnan(out[t * LD + o]) == (c < 3 ? o == 7 : t == 1),
                              "%s: case %d, row %d, output %d: %g", v[i].name, c, t, o,
                              (double)out[t * LD + o]);
        }
    }
}

/* Huge numbers are as exact as others; numbers close to zero count as 0. */
Test(words, sizes_far_from_one_are_kept)
{
    enum { K = WBLOCK };
    VARIANTS(v, n);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) {
            static const float of[3] = {3e38f, 1e-20f, 1e-32f};
            float w[K], x[K], out[PANEL];
            for (int k = 0; k < K; k++) {
                w[k] = k % 3 ? of[c] : -of[c] / 2;
                x[k] = c == 0 ? 1e-10f : c == 1 ? 1e10f : 1e20f;
            }
            SCOPED(packed_finish) struct packed p = pack_words(w, 1, K);
            SCOPED(free_words) struct wrows q = quantise(&v[i].k, x, 1, K);
            v[i].k.matmul_words(out, PANEL, &q, 1, &p, 0, 1);
            double want = c < 2 ? (double)of[c] * (double)x[0] * (42 - 22 / 2.0) : 0;
            cr_expect(fabs((double)out[0] - want) <= 2e-4 * fabs(want), "%s: %g, not %g", v[i].name,
                      (double)out[0], want);
        }
}

/* Tests which sources become integers, in reused memory and next to other sources in one matrix. */
Test(words, floats_become_words_and_blocks_stay)
{
    static const struct {
        enum weight_type first, second;
        enum packed_kind kind;
    } of[] = {{WEIGHT_F16, WEIGHT_F16, PACK_I16},  {WEIGHT_BF16, WEIGHT_BF16, PACK_I16},
              {WEIGHT_F32, WEIGHT_F32, PACK_I16},  {WEIGHT_F16, WEIGHT_F32, PACK_I16},
              {WEIGHT_F16, WEIGHT_Q8_0, PACK_I16}, {WEIGHT_Q4_1, WEIGHT_Q4_0, PACK_Q4},
              {WEIGHT_Q8_0, WEIGHT_Q4_0, PACK_Q8}};
    enum { N = 9, K = 96 };
    for (size_t c = 0; c < sizeof of / sizeof *of; c++) {
        uint16_t bytes[2 * N * K];
        float value[2 * N * K];
        for (size_t i = 0; i < 2 * N * K; i++) /* halves of 1/16 .. 1/8 for any type */
            bytes[i] = (uint16_t)(0x2c00 + i * 37 % 1024);
        const struct pack_source src[2] = {{bytes, of[c].first, N}, {bytes, of[c].second, N}};
        struct packed w, again;
        SCOPED(pack_room_close) struct pack_room room;
        weight_dequant(value, bytes, of[c].first, N * K);
        weight_dequant(value + N * K, bytes, of[c].second, N * K);
        cr_assert(packed_build(src, 2, K, PACK_WORDS, &w) == KVF_OK);
        cr_expect(eq(int, (int)w.kind, (int)of[c].kind));
        cr_expect(eq(sz, w.bytes, packed_bytes(src, 2, K, PACK_WORDS)));
        pack_room_open(&room, w.bytes, 1);
        memset(room.data, 0xff, room.bytes);
        cr_assert(packed_build_in(&room, src, 2, K, PACK_WORDS, &again) == KVF_OK && again.lent);
        size_t data = w.kind == PACK_I16 ? (size_t)(w.n_panels * w.n_blocks) * WORDS * 2 : 0;
        cr_expect(memcmp(w.data, again.data, data) == 0 && again.bytes == w.bytes);
        for (int i = 0; w.kind == PACK_I16 && i < 2 * N * K; i++) {
            float d;
            int u = weight_at(&w, i / K, i % K, &d);
            cr_expect(fabsf((float)u * d - value[i]) <= d * 0.50002f, "pair %d, weight %d", (int)c,
                      i);
        }
        packed_finish(&w);
        packed_finish(&again);
    }
}

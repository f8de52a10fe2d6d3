/* all_bits.c - prints a hash of each kernel's output for random inputs, to compare machines;
 * tests/aarch64.sh compares NEON with AVX2.
 *
 * usage: all_bits FLAGS   CPU_* of kernels.h */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/kernels/kernels.h"
#include "tests/scoped.h"

enum { N = 203, D = 64, ROWS = 7, K = 512, OUT = 48, ROOM = 1 << 16 };

static struct kernels k;
static struct rng rng;
static float x[ROOM], y[ROOM], z[ROOM], out[ROOM];
static double sums[ROOM];
static int32_t pos[ROOM];
static int64_t whole[ROOM];

static void fill(float *to, double scale, double shift)
{
    for (int i = 0; i < ROOM; i++)
        to[i] = (float)(scale * rng_normal(&rng) + shift);
}

/* Prints the FNV-1a hash of the bytes. */
static void show(const char *name, const void *data, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3;
    printf("%-14s %016" PRIx64 "\n", name, h);
}

static void start(void)
{
    rng_init(&rng, 7);
    fill(x, 2, 0);
    fill(y, 1, 0);
    fill(z, 1, 0);
    fill(out, 1, 0);
    for (int i = 0; i < ROOM; i++) {
        sums[i] = x[i];
        pos[i] = (int32_t)rng_below(&rng, N);
        whole[i] = (int64_t)rng_below(&rng, 1 << 20);
    }
}

#define SHOW(name, call)                                                                           \
    do {                                                                                           \
        start();                                                                                   \
        call;                                                                                      \
        show(#name, out, sizeof out);                                                              \
    } while (0)

static void show_products(void)
{
    static const enum weight_type types[] = {WEIGHT_Q4_1, WEIGHT_Q8_0, WEIGHT_Q4_K,
                                             WEIGHT_Q6_K, WEIGHT_Q2_K, WEIGHT_Q5_K,
                                             WEIGHT_F32,  WEIGHT_F16,  WEIGHT_BF16};
    static int8_t bytes[ROOM];
    struct qrows q = {.q = bytes, .scale = x, .sum = y, .half = z, .K = K};
    for (size_t c = 0; c < 2 * sizeof types / sizeof *types; c++) {
        size_t i = c / 2, n = weight_bytes(types[i], (size_t)OUT * K);
        OWNED(mem_free) uint16_t *data = mem_alloc(n, 1);
        SCOPED(packed_finish) struct packed w;
        start();
        for (size_t j = 0; data && j < n / 2; j++) /* halves of 1/16 .. 1/8 for any type */
            data[j] = (uint16_t)(0x2c00 + rng_below(&rng, 1024));
        struct pack_source src = {data, types[i], OUT};
        if (!data || packed_build(&src, 1, K, 0, &w) != KVF_OK)
            exit(1);
        if (w.n_blocks) {
            q.hi_alone = c % 2;
            q.lowest = w.lowest;
            k.quant_rows(&q, out, ROWS, K);
            k.matmul_q(out, OUT, &q, ROWS, &w, 0, OUT / PANEL);
        } else {
            k.matmul_f(out, OUT, x, K, ROWS, &w, 0, OUT / PANEL);
        }
        show(weight_type_name(types[i]), out, sizeof out);
    }
    q.hi_alone = false;
    SHOW(quant_rows, k.quant_rows(&q, out, ROWS, K));
    show("bytes", bytes, sizeof bytes);
}

/* Rows that end inside a block. */
static void show_words(void)
{
    enum { SOME = K - 20 };
    static int16_t words[ROOM];
    struct wrows q = {words, y, SOME};
    struct packed w;
    start();
    struct pack_source src = {z, WEIGHT_F32, OUT};
    if (packed_build(&src, 1, SOME, PACK_WORDS, &w) != KVF_OK)
        exit(1);
    k.quant_words(&q, x, ROWS, SOME);
    show("quant_words", words, sizeof words);
    show("their scales", y, sizeof y);
    k.matmul_words(out, OUT, &q, ROWS, &w, 0, OUT / PANEL);
    show("matmul_words", out, sizeof out);
    packed_finish(&w);
}

/* Integer attention over a page. */
static void show_whole(const struct kv_keys *keys, const struct kv_values *values)
{
    static int16_t query[ROWS * (D + 1)];
    static float scale[ROWS * D], sum[ROWS * ATTN_LANES], top[ROWS];
    static int32_t of_blocks[ROWS * D];
    const struct kv_queries q = {keys->type, query, scale, of_blocks};
    const struct attn_sums so_far = {out, D, sum, top};
    memset(sum, 0, sizeof sum);
    memset(top, 0, sizeof top);
    k.attn_queries(&q, z, D, ROWS, D);
    SHOW(attn_scores, k.attn_scores(out, PAGE_SLOTS, &q, ROWS, D, keys, 0.125f));
    SHOW(attn_add, k.attn_add(&so_far, x, N, ROWS, 1, values));
    show("weights", sum, sizeof sum);
    show("tops", top, sizeof top);
}

static void show_attention(void)
{
    static _Alignas(64) char keys[ROOM], values[ROOM];
    for (int type = 0; type < KV_TYPES; type++) {
        start();
        for (int s = 0; s < PAGE_SLOTS; s++)
            k.kv_store(keys, values, (enum kv_type)type, s, x + s * D, y + s * D, D);
        show("keys", keys, kv_half_bytes((enum kv_type)type, D));
        show("values", values, kv_half_bytes((enum kv_type)type, D));
        struct kv_keys some = {keys, (enum kv_type)type, NULL};
        k.attn_qk(out, PAGE_SLOTS, z, D, ROWS, D, &some, 0.125f);
        show("attn_qk", out, sizeof out);
        struct kv_values v = {values, (enum kv_type)type, D, 0, D, PAGE_SLOTS - 3, NULL};
        k.attn_av(out, D, z, PAGE_SLOTS, ROWS, &v);
        show("attn_av", out, sizeof out);
        if (kv_whole((enum kv_type)type))
            show_whole(&some, &v);
    }
    float some;
    SHOW(softmax, out[N] = k.softmax(out, N, NULL));
    SHOW(entropy, out[N] = k.softmax(out, N, &some));
    show("of it", &some, sizeof some);
    SHOW(log_sum_exp, out[0] = k.log_sum_exp(x, N));
    SHOW(max_row, out[0] = k.max_row(x, N));
    SHOW(soft_cap, k.soft_cap(out, N, 30));
}

static void show_channels(void)
{
    SHOW(rmsnorm, k.rmsnorm(out, x, y, ROWS, N, 1e-5f));
    SHOW(rmsnorm_back, k.rmsnorm_back(out, x, y, z, ROWS, N, 1e-5f));
    SHOW(rope, k.rope(out, x, ROWS, D, D - 6));
    SHOW(swiglu, k.swiglu(out, x, y, N));
    SHOW(geglu, k.geglu(out, x, y, N));
    SHOW(geglu_back, k.geglu_back(out, out + N, x, y, z, N));
    SHOW(swiglu_back, k.swiglu_back(out, out + N, x, y, z, N));
    SHOW(add, k.add(out, x, N));
    SHOW(mul, k.mul(out, x, N));
}

static void low(float *to) /* logarithms of decay: finite, <= 0 */
{
    for (int i = 0; i < N; i++)
        to[i] = to[i] > 0 ? -to[i] / 8 : to[i] / 8;
}

static void show_training(void)
{
    struct tile_product p = {out, OUT, x, K, 1, y, OUT, ROWS, 37, K / 8, true};
    struct kl_coef c = {0.5f, 0.25f, 0.3f, 0.2f, 0.1f, 0.4f};
    struct kl_part part;
    SHOW(tile_mul, k.tile_mul(&p));
    SHOW(add_aged, k.add_aged(out, x, N, N));
    SHOW(exp_aged, (low(x), k.exp_aged(out, x, N, N)));
    SHOW(exp_row, out[N] = k.exp_row(out, 61, 1));
    SHOW(softmax_grad, k.softmax_grad(out, x, N, 0.25f));
    SHOW(capacity_sums, (low(x), k.capacity_sums(out, x, N)));
    SHOW(capacity_back, (low(x), k.capacity_back(out, x, y, N)));
    SHOW(kl_back, k.kl_back(out, x, y, N, &c));
    SHOW(kl_part, k.kl_part(&part, x, y, N));
    show("its sums", &part, sizeof part);
}

/* Two consecutive rows with their cuts; the first is followed by 0. */
static void show_two_rows(const float *p, const struct row_cut *cut)
{
    static float two[2 * N];
    uint16_t last[2][N] = {{0}};
    float top[N] = {0};
    memcpy(two, p, (N - 1) * sizeof *p);
    memcpy(two + N, p, N * sizeof *p);
    struct weight_rows rows = {two, N, N - 1, 2};
    k.mark_rows((void *const[]){last[0], last[1]}, 2, &rows, cut, 2, 77);
    show("mark_rows", last, sizeof last);
    k.mass_add_rows(sums, top, &rows);
    show("mass_add_rows", sums, sizeof sums);
    show("maxima", top, sizeof top);
}

static void show_rows(void)
{
    static const int top[] = {1, 16, 64};
    static const double tau[] = {.5, .9, .99};
    struct row_cut cut[6];
    uint16_t last[N] = {0};
    void *scratch = mem_alloc(row_cuts_scratch(N), 1);
    start();
    k.softmax(out, N, NULL);
    if (!scratch)
        exit(1);
    k.row_cuts(out, N, top, 3, tau, 3, cut, scratch);
    show("row_cuts", cut, sizeof cut);
    k.mark(last, 2, out, N, &cut[4], 77);
    show("mark", last, sizeof last);
    uint64_t bits[6][(N + 63) / 64];
    k.member_bits(bits[0], (N + 63) / 64, out, N, cut, 6);
    show("member_bits", bits, sizeof bits);
    show_two_rows(out, cut);
    mem_free(scratch);
    SHOW(mass_add, k.mass_add(sums, out, x, N));
    show("sums", sums, sizeof sums);
    SHOW(count_below, out[0] = (float)k.count_below(x, N, 0.5f));
    SHOW(next_low, out[0] = (float)k.next_low(x, pos, 3, N, 20, 40, -1));
    SHOW(reduce_sums, k.reduce_sums(out, sums, N, ROWS, N, false, 3));
    SHOW(sum_rows, k.sum_rows(out, x, N, ROWS, pos, N / 2, N, 0x1.8p20, 0.5));
    SHOW(take_share, k.take_share(out, x, pos, N, N / 2, 0.3f, TAKE_MAX));
    SHOW(sum_between, sums[0] = k.sum_between(x, pos, N, 20, 150));
    show("sum", sums, sizeof *sums);
    struct window_pair pair = {x, y, 150, 20};
    const struct window_slide slide = {
        .sum = sums, .pair = &pair, .pos = pos, .n_pairs = 1, .n = N, .magic = 0x1.8p20};
    SHOW(slide, k.slide(&slide));
    show("sums", sums, sizeof sums);
    SHOW(spread, k.spread(out, whole, whole + N, N, ROWS, 0.5));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: all_bits FLAGS\n");
        return 2;
    }
    kernels_init(&k, (unsigned)strtoul(argv[1], NULL, 16) & cpu_flags_detect());
    show_products();
    show_words();
    show_attention();
    show_channels();
    show_training();
    show_rows();
    return 0;
}

/* bench_kernels.c - measures each kernel at the shapes of SmolLM2-135M for every instruction set
 * of this CPU: the minimum time of many short runs on one thread.
 *
 *   usage: bench_kernels [NAME]         only kernels whose name contains NAME
 *          bench_kernels --count [NAME] one call of each kernel between two calls of getppid,
 *                                       without references, to count instructions
 *                                       (bench/instructions.sh) */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/kernels/kernels.h"

enum {
    D_MODEL = 576,
    D_FFN = 1536,
    D_HEAD = 64,
    N_HEADS = 9,
    N_QKV = 960,
    VOCAB = 49152,
    CHUNK = 256,
    ROWS = 16,
    ROW = 1024,
    N_TOP = 4,
    N_TAU = 3,
};

/* The data of all cases, made once. */
struct bench {
    const struct kernels *k;
    float *x, *out, *p, *work, *norm, *cos_sin, *max;
    double *sum;
    struct qrows q;
    struct wrows words;
    struct kv_queries ints[KV_TYPES];
    struct packed w[PACK_I16 + 1]; /* by kind, except Q6: [D_FFN][D_MODEL] */
    struct packed head;            /* Q4: [VOCAB][D_MODEL] */
    void *kpage[KV_TYPES], *vpage[KV_TYPES], *scratch;
    uint16_t *last;
    int T;
    int kind; /* enum packed_kind; for pages enum kv_type */
    struct row_cut cut[N_TOP + N_TAU];
};

static const int top_k[N_TOP] = {64, 128, 256, 512};
static const double tau[N_TAU] = {.90, .95, .99};

static void run_matmul_q(struct bench *b)
{
    b->k->matmul_q(b->out, D_FFN, &b->q, b->T, &b->w[b->kind], 0, D_FFN / PANEL);
}

/* Multiplies with the high halves only.  The bytes and sums of other rows can equal those for 8
 * bits. */
static void run_matmul_hi(struct bench *b)
{
    b->q.hi_alone = true;
    b->q.lowest = b->w[b->kind].lowest;
    run_matmul_q(b);
    b->q.hi_alone = false;
}

static void run_matmul_f(struct bench *b)
{
    b->k->matmul_f(b->out, D_FFN, b->x, D_MODEL, b->T, &b->w[b->kind], 0, D_FFN / PANEL);
}

static void run_matmul_words(struct bench *b)
{
    b->k->matmul_words(b->out, D_FFN, &b->words, b->T, &b->w[PACK_I16], 0, D_FFN / PANEL);
}

static void run_head(struct bench *b)
{
    b->k->matmul_q(b->out, VOCAB, &b->q, 1, &b->head, 0, VOCAB / PANEL);
}

static void run_quant_rows(struct bench *b)
{
    b->k->quant_rows(&b->q, b->x, CHUNK, D_MODEL);
}

static void run_quant_words(struct bench *b)
{
    b->k->quant_words(&b->words, b->x, CHUNK, D_MODEL);
}

static void run_rmsnorm(struct bench *b)
{
    b->k->rmsnorm(b->out, b->x, b->norm, CHUNK, D_MODEL, 1e-5f);
}

static void run_rope(struct bench *b)
{
    b->k->rope(b->work, b->cos_sin, N_HEADS, D_HEAD, D_HEAD);
}

static void run_swiglu(struct bench *b)
{
    b->k->swiglu(b->out, b->x, b->x + D_FFN, D_FFN);
}

static void run_add(struct bench *b)
{
    b->k->add(b->work, b->norm, D_MODEL);
}

static void run_attn_qk(struct bench *b)
{
    const struct kv_keys keys = {.page = b->kpage[b->kind], .type = (enum kv_type)b->kind};
    b->k->attn_qk(b->out, ROW, b->x, D_HEAD, b->T, D_HEAD, &keys, 0.125f);
}

static void run_attn_scores(struct bench *b)
{
    const struct kv_keys keys = {.page = b->kpage[b->kind], .type = (enum kv_type)b->kind};
    b->k->attn_scores(b->out, ROW, &b->ints[b->kind], b->T, D_HEAD, &keys, 0.125f);
}

static void run_attn_queries(struct bench *b)
{
    b->k->attn_queries(&b->ints[b->kind], b->x, D_HEAD, b->T, D_HEAD);
}

static void run_attn_av(struct bench *b)
{
    const struct kv_values values = {
        b->vpage[b->kind], (enum kv_type)b->kind, D_HEAD, 0, D_HEAD, PAGE_SLOTS, NULL};
    b->k->attn_av(b->out, D_HEAD, b->p, ROW, b->T, &values);
}

static void run_attn_add(struct bench *b)
{
    static float sum[32 * ATTN_LANES], top[32];
    const struct attn_sums to = {b->out, D_HEAD, sum, top};
    const struct kv_values values = {
        b->vpage[b->kind], (enum kv_type)b->kind, D_HEAD, 0, D_HEAD, PAGE_SLOTS, NULL};
    b->k->attn_add(&to, b->p, ROW, b->T, 0, &values);
}

static void run_kv_store(struct bench *b)
{
    b->k->kv_store(b->kpage[b->kind], b->vpage[b->kind], (enum kv_type)b->kind, 5, b->x, b->x,
                   D_HEAD);
}

static void run_softmax(struct bench *b)
{
    b->k->softmax(b->work, ROW, NULL);
}

static void run_entropy(struct bench *b)
{
    float entropy;
    b->k->softmax(b->work, ROW, &entropy);
}

static void run_log_sum_exp(struct bench *b)
{
    b->k->log_sum_exp(b->p, ROW);
}

static void run_mass_add(struct bench *b)
{
    b->k->mass_add(b->sum, b->max, b->p, ROW);
}

static void run_row_cuts(struct bench *b)
{
    for (int r = 0; r < ROWS; r++)
        b->k->row_cuts(b->p + r * ROW, ROW, top_k, N_TOP, tau, N_TAU, b->cut, b->scratch);
}

static void run_mark(struct bench *b)
{
    for (int c = 0; c < N_TOP + N_TAU; c++)
        b->k->mark(b->last + c * ROW, 2, b->p, ROW, &b->cut[c], 7);
}

/* work: operations (GFLOP/s, a multiply-add counts 2) or bytes read and written (GB/s) of one
 * call. */
static const struct task {
    const char *name, *shape;
    void (*run)(struct bench *b);
    double work;
    const char *unit;
    int T;
    int kind; /* see struct bench */
} tasks[] = {
#define PRODUCT(t) (2.0 * (t)*D_FFN * D_MODEL)
    {"matmul_q", "Q4 256x1536x576", run_matmul_q, PRODUCT(CHUNK), "GFLOP/s", CHUNK, PACK_Q4},
    {"matmul_q", "Q8 256x1536x576", run_matmul_q, PRODUCT(CHUNK), "GFLOP/s", CHUNK, PACK_Q8},
    {"matmul_q", "Q4 8 bits 256x1536x576", run_matmul_hi, PRODUCT(CHUNK), "GFLOP/s", CHUNK,
     PACK_Q4},
    {"matmul_q", "Q8 8 bits 256x1536x576", run_matmul_hi, PRODUCT(CHUNK), "GFLOP/s", CHUNK,
     PACK_Q8},
#define FEW_Q(name, run, t, kind)                                                                  \
    {                                                                                              \
        "matmul_q", name " " #t "x1536x576", run, PRODUCT(t), "GFLOP/s", t, kind                   \
    }
#define FEW(t)                                                                                     \
    FEW_Q("Q4", run_matmul_q, t, PACK_Q4), FEW_Q("Q8", run_matmul_q, t, PACK_Q8),                  \
        FEW_Q("Q4 8 bits", run_matmul_hi, t, PACK_Q4),                                             \
        FEW_Q("Q8 8 bits", run_matmul_hi, t, PACK_Q8),                                             \
        {"matmul_f", "F16 " #t "x1536x576", run_matmul_f, PRODUCT(t), "GFLOP/s", t, PACK_F16},     \
    {                                                                                              \
        "matmul_words", "I16 " #t "x1536x576", run_matmul_words, PRODUCT(t), "GFLOP/s", t, 0       \
    }
    FEW(2),
    FEW(4),
    FEW(8),
    FEW(16),
    FEW(24),
    FEW(32),
    FEW(48),
    {"matmul_q", "Q4 1x1536x576", run_matmul_q, D_FFN *D_MODEL * .625, "GB/s", 1, PACK_Q4},
    {"matmul_q", "Q5 1x1536x576", run_matmul_q, D_FFN *D_MODEL * .6875, "GB/s", 1, PACK_Q5},
    {"matmul_q", "Q8 1x1536x576", run_matmul_q, D_FFN *D_MODEL * 1.0625, "GB/s", 1, PACK_Q8},
    {"matmul_q", "Q4 1x49152x576", run_head, (double)VOCAB *D_MODEL * .625, "GB/s", 1, PACK_Q4},
    {"matmul_f", "F32 256x1536x576", run_matmul_f, PRODUCT(CHUNK), "GFLOP/s", CHUNK, PACK_F32},
    {"matmul_f", "F16 256x1536x576", run_matmul_f, PRODUCT(CHUNK), "GFLOP/s", CHUNK, PACK_F16},
    {"matmul_f", "BF16 256x1536x576", run_matmul_f, PRODUCT(CHUNK), "GFLOP/s", CHUNK, PACK_BF16},
    {"matmul_f", "F16 1x1536x576", run_matmul_f, D_FFN *D_MODEL * 2.0, "GB/s", 1, PACK_F16},
    {"matmul_words", "I16 256x1536x576", run_matmul_words, PRODUCT(CHUNK), "GFLOP/s", CHUNK, 0},
    {"matmul_words", "I16 1x1536x576", run_matmul_words, D_FFN *D_MODEL * 2.03125, "GB/s", 1, 0},
    {"quant_words", "256x576", run_quant_words, CHUNK *D_MODEL * 6.0, "GB/s", 0, 0},
    {"quant_rows", "256x576", run_quant_rows, CHUNK *D_MODEL * 5.25, "GB/s", 0, 0},
    {"rmsnorm", "256x576", run_rmsnorm, CHUNK *D_MODEL * 8.0, "GB/s", 0, 0},
    {"rope", "9 heads x 64", run_rope, N_HEADS *D_HEAD * 8.0, "GB/s", 0, 0},
    {"swiglu", "1536", run_swiglu, D_FFN * 12.0, "GB/s", 0, 0},
    {"add", "576", run_add, D_MODEL * 12.0, "GB/s", 0, 0},
#define PAGE_PRODUCTS(t) (2.0 * (t)*PAGE_SLOTS * D_HEAD)
    {"attn_qk", "16 queries, f16", run_attn_qk, PAGE_PRODUCTS(16), "GFLOP/s", 16, KV_F16},
    {"attn_qk", "16 queries, q8_0", run_attn_qk, PAGE_PRODUCTS(16), "GFLOP/s", 16, KV_Q8_0},
    {"attn_qk", "32 queries, f16", run_attn_qk, PAGE_PRODUCTS(32), "GFLOP/s", 32, KV_F16},
    {"attn_scores", "32 queries, i16", run_attn_scores, PAGE_PRODUCTS(32), "GFLOP/s", 32, KV_I16},
    {"attn_scores", "3 queries, i16", run_attn_scores, PAGE_PRODUCTS(3), "GFLOP/s", 3, KV_I16},
    {"attn_scores", "32 queries, q8_0", run_attn_scores, PAGE_PRODUCTS(32), "GFLOP/s", 32, KV_Q8_0},
    {"attn_scores", "3 queries, q8_0", run_attn_scores, PAGE_PRODUCTS(3), "GFLOP/s", 3, KV_Q8_0},
    {"attn_queries", "32 queries, i16", run_attn_queries, 32.0 * D_HEAD * 6, "GB/s", 32, KV_I16},
    {"attn_queries", "32 queries, q8_0", run_attn_queries, 32.0 * D_HEAD * 5, "GB/s", 32, KV_Q8_0},
    {"attn_qk", "3 queries, f16", run_attn_qk, PAGE_PRODUCTS(3), "GFLOP/s", 3, KV_F16},
    {"attn_qk", "1 query, f16", run_attn_qk, PAGE_PRODUCTS(1), "GFLOP/s", 1, KV_F16},
    {"attn_qk", "1 query, q8_0", run_attn_qk, PAGE_PRODUCTS(1), "GFLOP/s", 1, KV_Q8_0},
    {"attn_av", "16 rows, f16", run_attn_av, PAGE_PRODUCTS(16), "GFLOP/s", 16, KV_F16},
    {"attn_av", "16 rows, q8_0", run_attn_av, PAGE_PRODUCTS(16), "GFLOP/s", 16, KV_Q8_0},
    {"attn_av", "32 rows, f16", run_attn_av, PAGE_PRODUCTS(32), "GFLOP/s", 32, KV_F16},
    {"attn_av", "32 rows, i16", run_attn_av, PAGE_PRODUCTS(32), "GFLOP/s", 32, KV_I16},
    {"attn_av", "3 rows, i16", run_attn_av, PAGE_PRODUCTS(3), "GFLOP/s", 3, KV_I16},
    {"attn_add", "32 rows, i16", run_attn_add, PAGE_PRODUCTS(32), "GFLOP/s", 32, KV_I16},
    {"attn_add", "3 rows, i16", run_attn_add, PAGE_PRODUCTS(3), "GFLOP/s", 3, KV_I16},
    {"attn_add", "32 rows, q8_0", run_attn_add, PAGE_PRODUCTS(32), "GFLOP/s", 32, KV_Q8_0},
    {"attn_add", "3 rows, q8_0", run_attn_add, PAGE_PRODUCTS(3), "GFLOP/s", 3, KV_Q8_0},
    {"attn_av", "3 rows, f16", run_attn_av, PAGE_PRODUCTS(3), "GFLOP/s", 3, KV_F16},
    {"attn_av", "1 row, f16", run_attn_av, PAGE_PRODUCTS(1), "GFLOP/s", 1, KV_F16},
    {"attn_av", "1 row, q8_0", run_attn_av, PAGE_PRODUCTS(1), "GFLOP/s", 1, KV_Q8_0},
    {"kv_store", "64 channels, f16", run_kv_store, D_HEAD * 12.0, "GB/s", 0, KV_F16},
    {"kv_store", "64 channels, q8_0", run_kv_store, D_HEAD * 10.0, "GB/s", 0, KV_Q8_0},
    {"softmax", "row of 1024", run_softmax, ROW * 16.0, "GB/s", 0, 0},
    {"softmax", "and entropy of 1024", run_entropy, ROW * 16.0, "GB/s", 0, 0},
    {"log_sum_exp", "row of 1024", run_log_sum_exp, ROW * 8.0, "GB/s", 0, 0},
    {"mass_add", "row of 1024", run_mass_add, ROW * 28.0, "GB/s", 0, 0},
    {"row_cuts", "16 rows of 1024", run_row_cuts, ROWS *ROW * 4.0, "GB/s", 0, 0},
    {"mark", "7 cuts of 1024", run_mark, 7.0 * ROW * 6, "GB/s", 0, 0},
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Returns the minimum time of a call, from runs of about 1 ms within `budget` ns. */
static double least_time(struct bench *b, void (*run)(struct bench *b), double budget)
{
    double start = now_ns(), best = 1e18;
    run(b);
    double once = now_ns() - start;
    int repeats = once > 1e6 ? 1 : (int)(1e6 / (once + 1)) + 1;
    do {
        double t0 = now_ns();
        for (int i = 0; i < repeats; i++)
            run(b);
        double t = (now_ns() - t0) / repeats;
        best = t < best ? t : best;
    } while (now_ns() - start < budget);
    return best;
}

static int pack(struct packed *w, struct rng *r, enum weight_type type, int N, enum pack_how how)
{
    size_t bytes = weight_bytes(type, (size_t)N * D_MODEL);
    uint16_t *data = mem_alloc(bytes, 1);
    if (!data)
        return KVF_E_NOMEM;
    /* halves of 1/16 .. 1/8 are valid bits for every type */
    for (size_t i = 0; i < bytes / 2; i++)
        data[i] = (uint16_t)(0x2c00 + rng_below(r, 1024));
    struct pack_source src = {data, type, N};
    int err = packed_build(&src, 1, D_MODEL, how, w);
    mem_free(data);
    return err;
}

static int make_weights(struct bench *b, struct rng *r)
{
    static const enum weight_type of[] = {
        [PACK_Q4] = WEIGHT_Q4_1, [PACK_Q5] = WEIGHT_Q5_0, [PACK_Q8] = WEIGHT_Q8_0,
        [PACK_F32] = WEIGHT_F32, [PACK_F16] = WEIGHT_F16, [PACK_BF16] = WEIGHT_BF16,
        [PACK_I16] = WEIGHT_F16};
    int err = pack(&b->head, r, WEIGHT_Q4_1, VOCAB, PACK_AS_STORED);
    for (int kind = 0; !err && kind <= PACK_I16; kind++) /* Q6 has blocks of 256 */
        err = kind == PACK_Q6 ? KVF_OK
                              : pack(&b->w[kind], r, of[kind], D_FFN,
                                     kind == PACK_I16 ? PACK_WORDS : PACK_AS_STORED);
    return err;
}

/* Makes full pages of every type from the numbers of b->x. */
static int make_pages(struct bench *b)
{
    for (int type = 0; type < KV_TYPES; type++) {
        b->kpage[type] = mem_alloc(kv_half_bytes((enum kv_type)type, D_HEAD), 1);
        b->vpage[type] = mem_alloc(kv_half_bytes((enum kv_type)type, D_HEAD), 1);
        if (!b->kpage[type] || !b->vpage[type])
            return KVF_E_NOMEM;
        for (int s = 0; s < PAGE_SLOTS; s++)
            b->k->kv_store(b->kpage[type], b->vpage[type], (enum kv_type)type, s, b->x + s * D_HEAD,
                           b->x + s * D_HEAD, D_HEAD);
    }
    return KVF_OK;
}

/* Makes queries of the types that use integer multiplication, from the numbers of b->x. */
static int make_queries(struct bench *b)
{
    for (int type = 0; type < KV_TYPES; type++) {
        size_t n = CHUNK * kv_blocks(D_HEAD);
        struct kv_queries *q = &b->ints[type];
        *q = (struct kv_queries){(enum kv_type)type, MEM_NEW(int16_t, CHUNK * D_HEAD),
                                 MEM_NEW(float, n), MEM_NEW(int32_t, n)};
        if (!q->q || !q->scale || !q->sum)
            return KVF_E_NOMEM;
        if (kv_whole((enum kv_type)type))
            b->k->attn_queries(q, b->x, D_HEAD, CHUNK, D_HEAD);
    }
    return KVF_OK;
}

static int make(struct bench *b)
{
    struct rng r;
    rng_init(&r, 1);
    size_t n = (size_t)CHUNK * D_FFN;
    float **list[] = {&b->x, &b->out, &b->p, &b->work, &b->norm, &b->cos_sin, &b->max};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *list[i] = MEM_NEW(float, n);
        if (!*list[i])
            return KVF_E_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        b->x[i] = b->p[i] = (float)(2 * rng_normal(&r));
        b->norm[i] = b->cos_sin[i] = 0.5f;
    }
    b->sum = MEM_NEW(double, ROW);
    b->q = (struct qrows){.q = mem_alloc(n, 2),
                          .scale = MEM_NEW(float, n / QBLOCK),
                          .sum = MEM_NEW(float, n / QBLOCK),
                          .half = MEM_NEW(float, n / QBLOCK * 2),
                          .K = D_MODEL};
    b->words = (struct wrows){mem_alloc(n, 2), MEM_NEW(float, n / WBLOCK), D_MODEL};
    b->scratch = mem_alloc(row_cuts_scratch(ROW), 1);
    b->last = MEM_NEW(uint16_t, (N_TOP + N_TAU) * ROW);
    if (!b->sum || !b->q.q || !b->q.scale || !b->q.sum || !b->q.half || !b->words.q
        || !b->words.scale || make_pages(b) != KVF_OK || make_queries(b) != KVF_OK || !b->scratch
        || !b->last || make_weights(b, &r) != KVF_OK)
        return KVF_E_NOMEM;
    for (int i = 0; i < ROWS; i++)
        b->k->softmax(b->p + i * ROW, ROW, NULL);
    b->k->quant_rows(&b->q, b->x, CHUNK, D_MODEL);
    b->k->quant_words(&b->words, b->x, CHUNK, D_MODEL);
    run_row_cuts(b);
    return KVF_OK;
}

static void report(struct bench *b, const struct task *t, const struct kernels *sets,
                   const char *const *names, int n_sets)
{
    double reference = 0;
    for (int i = 0; i < n_sets; i++) {
        b->k = &sets[i];
        b->T = t->T;
        b->kind = t->kind;
        double ns = least_time(b, t->run, i ? 6e7 : 2e7);
        reference = i ? reference : ns;
        printf("%-12s %-22s %-10s %13.0f ns %9.2f %-8s %8.1fx\n", t->name, t->shape, names[i], ns,
               t->work / ns, t->unit, reference / ns);
    }
}

/* Counts the second call, of at most 16 rows; the first one loads tables and code. */
static void count(struct bench *b, const struct task *t, const struct kernels *sets,
                  const char *const *names, int n_sets)
{
    for (int i = 1; i < n_sets; i++) {
        b->k = &sets[i];
        b->T = t->T < 16 ? t->T : 16;
        b->kind = t->kind;
        t->run(b);
        printf("%s, %s|%s|", t->name, t->shape, names[i]);
        fflush(stdout);
        getppid();
        t->run(b);
        getppid();
    }
}

int main(int argc, char **argv)
{
    bool counts = argc > 1 && strcmp(argv[1], "--count") == 0;
    const char *part = argc > 1 + counts ? argv[1 + counts] : "";
#if defined(__aarch64__)
    static const char *const all[] = {"reference", "neon", "neon-dot"};
    static const unsigned flags[] = {0, CPU_ARM_NEON, CPU_ARM_NEON | CPU_ARM_DOT};
#else
    static const char *const all[] = {"reference", "avx2", "avx-vnni", "avx512", "amx"};
    static const unsigned flags[] = {0, CPU_X86_AVX2, CPU_X86_AVX2 | CPU_X86_AVXVNNI,
                                     CPU_X86_AVX2 | CPU_X86_AVX512,
                                     CPU_X86_AVX2 | CPU_X86_AVX512 | CPU_X86_AMX};
#endif
    enum { SETS = sizeof flags / sizeof *flags };
    struct kernels sets[SETS];
    const char *names[SETS];
    unsigned have = cpu_flags_detect();
    int n_sets = 0;
    for (int i = 0; i < SETS; i++)
        if ((flags[i] & have) == flags[i]) {
            kernels_init(&sets[n_sets], flags[i]);
            names[n_sets++] = all[i];
        }
    static struct bench b;
    b.k = &sets[n_sets - 1];
    if (make(&b) != KVF_OK) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        return 1;
    }
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (strstr(tasks[i].name, part))
            (counts ? count : report)(&b, &tasks[i], sets, names, n_sets);
    return 0;
}

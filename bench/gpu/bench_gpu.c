/* bench_gpu.c - measures the CUDA kernels of a decode step, a prefill and training in the shapes of
 * real models, compared with the bytes or operations that they need.
 *
 * bench_gpu [GB/s [TFLOP/s]]: the device's memory bandwidth and dense bf16 peak (defaults 4,800 and
 * 989, for an H200). bench/gpu/run.sh builds and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/gpu/shapes.h"
#include "engine/cuda/gpu_train.h"
#include "engine/cuda/heads.h"

enum { REPEATS = 50 };

static double bandwidth = 4800, peak = 989;

static void say(struct gpu *g, const struct shape *s, const char *what, double begun, double bytes)
{
    struct kvf_diag d = {""};
    if (gpu_wait(g, &d) != KVF_OK) {
        fprintf(stderr, "bench_gpu: %s\n", d.text);
        exit(1);
    }
    double each = (seconds() - begun) / REPEATS, rate = bytes / each / 1e9;
    printf("| %s | %s | %.1f | %.1f | %.0f | %.0f %% |\n", s->name, what, each * 1e6, bytes / 1e6,
           rate, 100 * rate / bandwidth);
}

/* Measures a matrix multiplication.  It cycles through enough copies of the matrix to keep the
 * current one out of the caches. */
static void time_product(struct gpu *g, const struct shape *s, const char *what, int N, int K)
{
    size_t row = (size_t)K * 2, bytes = row * (size_t)N, copies = (256u << 20) / bytes + 1;
    struct gpu_matrix m = {NULL, WEIGHT_BF16, N, K, row};
    unsigned char *w = zeros(g, copies, bytes);
    float *x = zeros(g, (size_t)K, 4), *out = zeros(g, (size_t)N, 4);
    double begun = 0;
    for (int i = -3; i < REPEATS; i++) {
        if (i == 0) {
            gpu_wait(g, NULL);
            begun = seconds();
        }
        m.data = w + (size_t)(i + 3) % copies * bytes;
        gpu_product(g, out, (size_t)N, x, (size_t)K, 1, &m);
    }
    say(g, s, what, begun, (double)bytes);
    gpu_free(g, w);
    gpu_free(g, x);
    gpu_free(g, out);
}

/* Makes a cache of n zero entries per head, each page distinct.  Slot i has position i. */
static struct gpu_cache make_cache(struct gpu *g, const struct shape *s, int n)
{
    int per = (n + PAGE_SLOTS - 1) / PAGE_SLOTS, slots = per * PAGE_SLOTS;
    size_t pages = (size_t)(s->kv * per), all = (size_t)(s->kv * slots);
    int32_t *table = MEM_NEW(int32_t, pages), *until = MEM_NEW(int32_t, all);
    int32_t *length = MEM_NEW(int32_t, (size_t)s->kv), *pos = MEM_NEW(int32_t, all);
    for (size_t i = 0; i < pages; i++)
        table[i] = (int32_t)i;
    for (size_t i = 0; i < all; i++) {
        until[i] = INT32_MAX;
        pos[i] = (int32_t)(i % (size_t)slots);
    }
    for (int h = 0; h < s->kv; h++)
        length[h] = n;
    int32_t *d_table = zeros(g, pages, 4), *d_n = zeros(g, (size_t)s->kv, 4);
    struct gpu_cache c = {.type = KV_F16,
                          .heads = s->kv,
                          .D = s->D,
                          .table = d_table,
                          .n = d_n,
                          .ld_table = per,
                          .ld_slot = slots,
                          .most = n};
    c.pool = zeros(g, pages * 2 * PAGE_SLOTS, (size_t)s->D * 2);
    c.pos = zeros(g, all, 4);
    c.until = zeros(g, all, 4);
    gpu_put(g, d_table, table, pages * 4);
    gpu_put(g, d_n, length, (size_t)s->kv * 4);
    gpu_put(g, c.until, until, all * 4);
    gpu_put(g, c.pos, pos, all * 4);
    gpu_wait(g, NULL);
    mem_free(table);
    mem_free(until);
    mem_free(pos);
    mem_free(length);
    return c;
}

static void time_attention(struct gpu *g, const struct shape *s, const char *what, int n)
{
    struct gpu_cache c = make_cache(g, s, n);
    size_t ld = (size_t)(s->q * s->D);
    float *q = zeros(g, ld, 4), *out = zeros(g, ld, 4);
    struct gpu_attention a = {.cache = c,
                              .q = q,
                              .out = out,
                              .ld_q = ld,
                              .ld_out = ld,
                              .n_heads = s->q,
                              .T = 1,
                              .pos0 = n - 1,
                              .scale = 0.1f};
    float *work = zeros(g, gpu_step_work(&a), 4);
    double begun = 0, bytes = (double)s->kv * n * s->D * 2 * 2;
    for (int i = -3; i < REPEATS; i++) {
        if (i == 0) {
            gpu_wait(g, NULL);
            begun = seconds();
        }
        gpu_attend_step(g, &a, &work, 1);
    }
    say(g, s, what, begun, bytes);
    void *const all[] = {c.pool, (void *)c.table, (void *)c.n, c.pos, c.until, q, out, work};
    for (int i = 0; i < 8; i++)
        gpu_free(g, all[i]);
}

/* Measures the eviction of one of n entries per head before a token: choosing, recording and
 * removing it.  It removes the worst entry of all heads, or of each.  It must read scores,
 * positions and marks. */
static void time_round(struct gpu *g, const struct shape *s, const char *what, int n, bool alone)
{
    struct shape all = *s;
    all.kv = s->kv * s->layers;
    struct gpu_cache c = make_cache(g, &all, n);
    size_t heads = (size_t)all.kv, slots = heads * (size_t)c.ld_slot;
    struct gpu_heads h = {.cache = c, .n = (int32_t *)c.n};
    int32_t **const numbers[] = {&h.gap, &h.hole, &h.slot, &h.order, &h.renamed};
    for (int i = 0; i < 5; i++)
        *numbers[i] = zeros(g, i < 3 ? heads : slots, sizeof(int32_t));
    h.mark = zeros(g, slots, 1);
    unsigned char *all_due = mem_alloc(heads, 1), *due = zeros(g, heads, 1);
    memset(all_due, 1, heads);
    gpu_put(g, due, all_due, heads);
    float *score = zeros(g, slots, 4), *score_of = zeros(g, slots, 4);
    int64_t *k = MEM_NEW(int64_t, heads), *d_k = zeros(g, heads, sizeof *k);
    for (size_t i = 0; i < heads; i++)
        k[i] = alone ? 1 : (int64_t)heads;
    gpu_put(g, d_k, k, heads * sizeof *k);
    int32_t *count = zeros(g, heads, 4), *cursor = zeros(g, 1, 4), *gone = zeros(g, slots, 4);
    struct gpu_chosen *chosen = zeros(g, heads, sizeof *chosen);
    int pools = alone ? (int)heads : 1, per = alone ? 1 : (int)heads;
    struct gpu_choice x = {.score = score,
                           .pos = c.pos,
                           .mark = h.mark,
                           .n = h.n,
                           .count = count,
                           .ld = c.ld_slot,
                           .from = GPU_CANDIDATE,
                           .to = GPU_GONE,
                           .scratch = zeros(g, gpu_choice_bytes(pools, per), 1)};
    double begun = seconds();
    for (int i = 0; i < REPEATS; i++) {
        gpu_candidates(g, &h, due, 0, n);
        gpu_choose(g, &x, pools, per, d_k);
        gpu_report(g, &h, score, false, chosen, cursor, gone, score_of);
        gpu_cut(g, &h, 1, true, n + i);
    }
    say(g, s, what, begun, (double)heads * n * 9);
    void *const room[] = {c.pool, (void *)c.table, h.n,       c.pos,  c.until, h.gap,    h.hole,
                          h.slot, h.order,         h.renamed, h.mark, due,     score,    score_of,
                          d_k,    count,           cursor,    gone,   chosen,  x.scratch};
    for (size_t i = 0; i < sizeof room / sizeof *room; i++)
        gpu_free(g, room[i]);
    mem_free(k);
    mem_free(all_due);
}

/* ---- prefill and training: bound by operations, not bytes ---- */

enum { TOKENS = 2048, CHUNK = 1024, TIMES = 5 };

static void say_operations(struct gpu *g, const struct shape *s, const char *what, double begun,
                           double operations)
{
    struct kvf_diag d = {""};
    if (gpu_wait(g, &d) != KVF_OK) {
        fprintf(stderr, "bench_gpu: %s\n", d.text);
        exit(1);
    }
    double each = (seconds() - begun) / TIMES, rate = operations / each / 1e12;
    printf("| %s | %s | %.0f | %.1f | %.1f | %.0f %% |\n", s->name, what, each * 1e6,
           operations / 1e9, rate, 100 * rate / peak);
}

/* Returns n numbers of a type (f32, bf16 or f16) between -1/2 and 1/2, because multiplying zeros
 * takes less time. */
static void *numbers(struct gpu *g, size_t n, enum weight_type type)
{
    enum { BLOCK = 1 << 20 };
    size_t size = type == WEIGHT_F32 ? 4 : 2;
    unsigned char *p = zeros(g, n, size), *block = mem_alloc(BLOCK, size);
    uint32_t state = 1;
    for (size_t i = 0; i < BLOCK; i++) {
        state = state * 1664525 + 1013904223;
        float x = (float)(state >> 8) / (1 << 24) - 0.5f;
        uint32_t bits, half = state >> 31 << 15 | 0x3400 | (state >> 8 & 0x3ff);
        memcpy(&bits, &x, sizeof bits);
        bits = type == WEIGHT_F32 ? bits : type == WEIGHT_BF16 ? bits >> 16 : half;
        memcpy(block + i * size, &bits, size);
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        gpu_put(g, p + at * size, block, (n - at < BLOCK ? n - at : BLOCK) * size);
        gpu_wait(g, NULL);
    }
    mem_free(block);
    return p;
}

/* Measures all matrix multiplications of a layer with the rows of a prefill chunk. */
static void time_layer(struct gpu *g, const struct shape *s)
{
    int q = s->q * s->D, all = q + 2 * s->kv * s->D,
        of[4][2] = {{all, s->d}, {s->d, q}, {2 * s->ffn, s->d}, {s->d, s->ffn}};
    struct gpu_matrix m[4];
    double operations = 0, begun = 0;
    for (int i = 0; i < 4; i++) {
        size_t row = (size_t)of[i][1] * 2;
        void *w = numbers(g, (size_t)of[i][0] * (size_t)of[i][1], WEIGHT_BF16);
        m[i] = (struct gpu_matrix){w, WEIGHT_BF16, of[i][0], of[i][1], row};
        operations += 2.0 * CHUNK * of[i][0] * of[i][1];
    }
    size_t wide = 2 * (size_t)s->ffn > (size_t)all ? 2 * (size_t)s->ffn : (size_t)all;
    float *x = numbers(g, CHUNK * wide, WEIGHT_F32), *out = zeros(g, CHUNK * wide, 4);
    bool done = true;
    for (int i = -1; i < TIMES; i++) {
        if (i == 0) {
            gpu_wait(g, NULL);
            begun = seconds();
        }
        for (int k = 0; k < 4; k++)
            done &= gpu_gemm(g, out, (size_t)m[k].N, x, (size_t)m[k].K, CHUNK, &m[k], 1);
    }
    if (done)
        say_operations(g, s, "products of a layer, 1,024 tokens", begun, operations);
    else
        fprintf(stderr, "bench_gpu: there is no cuBLAS\n");
    for (int i = 0; i < 4; i++)
        gpu_free(g, (void *)m[i].data);
    gpu_free(g, x);
    gpu_free(g, out);
}

/* Measures attention of the last chunk of a prompt of n tokens over the cache. */
static void time_prompt(struct gpu *g, const struct shape *s, const char *what, int n)
{
    struct gpu_cache c = make_cache(g, s, n);
    size_t ld = (size_t)(s->q * s->D), pages = (size_t)(s->kv * c.ld_table);
    gpu_free(g, c.pool);
    c.pool = numbers(g, pages * 2 * PAGE_SLOTS * (size_t)s->D, WEIGHT_F16);
    float *q = numbers(g, ld * CHUNK, WEIGHT_F32), *out = zeros(g, ld * CHUNK, 4);
    struct gpu_attention a = {.cache = c,
                              .q = q,
                              .out = out,
                              .ld_q = ld,
                              .ld_out = ld,
                              .n_heads = s->q,
                              .T = CHUNK,
                              .pos0 = n - CHUNK,
                              .scale = 0.1f};
    double begun = 0;
    for (int i = -1; i < TIMES; i++) {
        if (i == 0) {
            gpu_wait(g, NULL);
            begun = seconds();
        }
        gpu_attend_prompt(g, &a);
    }
    say_operations(g, s, what, begun, 4.0 * s->q * s->D * CHUNK * (n - CHUNK / 2.0));
    void *const all[] = {c.pool, (void *)c.table, (void *)c.n, c.pos, c.until, q, out};
    for (int i = 0; i < 7; i++)
        gpu_free(g, all[i]);
}

static void time_prompts(struct gpu *g)
{
    printf("\n| model | kernel of prompts | us | Gop | Top/s | of the peak "
           "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        time_layer(g, &shapes[i]);
        time_prompt(g, &shapes[i], "attention, the last 1,024 of 4,096", 4096);
        time_prompt(g, &shapes[i], "attention, the last 1,024 of 32,768", 32768);
    }
}

/* Measures dx = dy W of gate and up, [TOKENS, 2 ffn] by [2 ffn, d]. */
static void time_back(struct gpu *g, const struct shape *s, bool bf16)
{
    size_t d = (size_t)s->d, F = 2 * (size_t)s->ffn;
    struct gpu_multiply p = {.c = zeros(g, TOKENS * d, 4),
                             .ld_c = d,
                             .a = zeros(g, TOKENS * F, 4),
                             .a_row = F,
                             .a_col = 1,
                             .b = zeros(g, F * d, 4),
                             .b_row = d,
                             .b_col = 1,
                             .b_type = bf16 ? WEIGHT_BF16 : WEIGHT_F32,
                             .m = TOKENS,
                             .n = s->d,
                             .k = 2 * s->ffn};
    bool done = true;
    double begun = 0;
    for (int i = -1; done && i < TIMES; i++) {
        if (i == 0) {
            gpu_wait(g, NULL);
            begun = seconds();
        }
        if (bf16)
            done = gpu_multiply_bf16(g, &p);
        else
            gpu_multiply(g, &p);
    }
    if (done)
        say_operations(g, s, bf16 ? "gate, up, back, bf16" : "gate, up, back, f32", begun,
                       2.0 * TOKENS * (double)F * (double)d);
    gpu_free(g, p.c);
    gpu_free(g, (void *)p.a);
    gpu_free(g, (void *)p.b);
}

/* Runs gated attention, by tensor cores with bf16 or exactly. */
static void run_gated(struct gpu *g, const struct attention *a, const struct attention_grads *to,
                      bool back, void *room, bool bf16)
{
    float *out = (float *)to->out, *lse = (float *)to->lse;
    bool done = false;
    if (bf16)
        done = back ? gpu_gated_backward_bf16(g, a, to, room)
                    : gpu_gated_forward_bf16(g, a, out, to->ld_out, lse, room);
    else if (back)
        gpu_gated_backward(g, a, to, room);
    else
        gpu_gated_forward(g, a, out, to->ld_out, lse);
    if (bf16 && !done)
        fprintf(stderr, "bench_gpu: no tensor cores for heads of %d\n", a->D);
}

/* Measures attention with decay: two T x T / 2 multiplications forward, seven backward. */
static void time_gated(struct gpu *g, const struct shape *s, bool bf16)
{
    size_t ld = (size_t)((s->q + 2 * s->kv) * s->D), wide = (size_t)(s->q * s->D);
    float *qkv = zeros(g, TOKENS * ld, 4), *d_qkv = zeros(g, TOKENS * ld, 4);
    float *out = zeros(g, TOKENS * wide, 4), *d_out = zeros(g, TOKENS * wide, 4);
    float *rows = zeros(g, TOKENS * (size_t)s->q, 4);
    float *gates = zeros(g, 2 * TOKENS * (size_t)s->kv, 4);
    int32_t *first = zeros(g, TOKENS, 4);
    struct attention a = {.T = TOKENS,
                          .n_heads = s->q,
                          .n_kv_heads = s->kv,
                          .D = s->D,
                          .scale = 0.1f,
                          .gating = GATING_DECAY,
                          .window = 1,
                          .q = qkv,
                          .k = qkv + wide,
                          .v = qkv + wide + s->kv * s->D,
                          .ld = ld,
                          .first = first,
                          .gate = gates};
    struct attention_grads to = {.out = out,
                                 .d_out = d_out,
                                 .ld_out = wide,
                                 .lse = rows,
                                 .d_q = d_qkv,
                                 .d_k = d_qkv + wide,
                                 .d_v = d_qkv + wide + s->kv * s->D,
                                 .d_gate = gates + TOKENS * (size_t)s->kv};
    void *room = zeros(g, gpu_gated_room(&a), 1);
    double product = (double)s->q * s->D * TOKENS * (double)TOKENS;
    const char *const what[2][2] = {{"attention, 2,048 tokens, f32", "attention, back, f32"},
                                    {"attention, 2,048 tokens, bf16", "attention, back, bf16"}};
    for (int back = 0; back < 2; back++) {
        double begun = 0;
        for (int i = -1; i < TIMES; i++) {
            if (i == 0) {
                gpu_wait(g, NULL);
                begun = seconds();
            }
            run_gated(g, &a, &to, back, room, bf16);
        }
        say_operations(g, s, what[bf16][back], begun, (back ? 7 : 2) * product);
    }
    void *const all[] = {qkv, d_qkv, out, d_out, rows, gates, first, room};
    for (int i = 0; i < 8; i++)
        gpu_free(g, all[i]);
}

static void time_training(struct gpu *g)
{
    printf("\n| model | kernel of training | us | Gop | Top/s | of the peak "
           "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        time_back(g, &shapes[i], true);
        time_back(g, &shapes[i], false);
        time_gated(g, &shapes[i], true);
        time_gated(g, &shapes[i], false);
    }
}

int main(int argc, char **argv)
{
    struct gpu *g;
    struct kvf_diag d = {""};
    setvbuf(stdout, NULL, _IOLBF, 0); /* a stopped run keeps its output */
    if (argc > 1)
        bandwidth = strtod(argv[1], NULL);
    if (argc > 2)
        peak = strtod(argv[2], NULL);
    if (gpu_count(&d) == 0 || gpu_open(0, &g, &d) != KVF_OK) {
        fprintf(stderr, "bench_gpu: there is no CUDA device that can be used %s\n", d.text);
        return 77;
    }
    printf("| model | kernel | us | MB read at least | GB/s | of the bandwidth "
           "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        time_product(g, s, "query, key, value", (s->q + 2 * s->kv) * s->D, s->d);
        time_product(g, s, "gate, up", 2 * s->ffn, s->d);
        time_product(g, s, "down", s->d, s->ffn);
        time_product(g, s, "output matrix", s->vocab, s->d);
        time_attention(g, s, "attention, step, 1,024", 1024);
        time_attention(g, s, "attention, step, 32,768", 32768);
        time_round(g, s, "a cut of each head, 1,024", 1024, true);
        time_round(g, s, "a cut of all heads together, 1,024", 1024, false);
    }
    time_prompts(g);
    time_training(g);
    gpu_close(g);
    return 0;
}

/* bench_steps.c - measures complete decode steps of one or several sequences in the shapes of real
 * models, launched kernel by kernel and as a graph, compared with the bandwidth limit.
 *
 * bench_steps [GB/s [tiny]]: the device's bandwidth (default 4,800, for an H200). tiny: one small
 * shape for a test run, for example on an emulated device, whose times are meaningless.  Weights
 * are zeros in bf16 and the cache is f16. bench/gpu/run.sh builds and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/gpu/shapes.h"

enum { REPEATS = 20, MOST_ROWS = 4 };

static const struct shape small = {"tiny", 64, 4, 2, 32, 96, 300, 2};

/* The memory of a step: a cache per sequence, everything else shared. */
struct step {
    struct gpu *g;
    const struct shape *s;
    int rows, held;
    unsigned char *weights;                            /* of all layers, and the output matrix */
    float *x, *qkv, *att, *one, *logits, *work, *norm; /* work: one per row */
    size_t per_work;
    void *pool;
    int32_t *table, *n, *slot, *id;
    void *draw;
};

static size_t layer_weights(const struct shape *s)
{
    size_t d = (size_t)s->d, q = (size_t)(s->q * s->D), kv = (size_t)(s->kv * s->D);
    return d * (q + 2 * kv) + q * d + 3 * d * (size_t)s->ffn;
}

static size_t all_weights(const struct shape *s)
{
    return (size_t)s->layers * layer_weights(s) + (size_t)s->vocab * (size_t)s->d;
}

static size_t pages_of_head(int held)
{
    return ((size_t)held + PAGE_SLOTS - 1) / PAGE_SLOTS;
}

/* Makes caches in which every head of every layer and sequence has its own pages. */
static void make_caches(struct step *t)
{
    size_t heads = (size_t)(t->rows * t->s->layers * t->s->kv), per = pages_of_head(t->held);
    int32_t *table = MEM_NEW(int32_t, heads * per), *n = MEM_NEW(int32_t, 2 * heads);
    for (size_t i = 0; i < heads * per; i++)
        table[i] = (int32_t)i;
    for (size_t h = 0; h < heads; h++) {
        n[h] = t->held;
        n[heads + h] = t->held - 1; /* position of the newest entry */
    }
    t->pool = zeros(t->g, heads * per * 2 * PAGE_SLOTS, (size_t)t->s->D * 2);
    t->table = zeros(t->g, heads * per, 4);
    t->n = zeros(t->g, 2 * heads, 4);
    t->slot = t->n + heads;
    gpu_put(t->g, t->table, table, heads * per * 4);
    gpu_put(t->g, t->n, n, 2 * heads * 4);
    gpu_wait(t->g, NULL);
    mem_free(table);
    mem_free(n);
}

static struct step make(struct gpu *g, const struct shape *s, int rows, int held)
{
    struct step t = {.g = g, .s = s, .rows = rows, .held = held};
    size_t T = (size_t)rows, q = (size_t)(s->q * s->D), d = (size_t)s->d, V = (size_t)s->vocab;
    struct gpu_attention most = {.cache = {.heads = s->kv, .D = s->D, .most = held},
                                 .n_heads = s->q};
    t.weights = zeros(g, all_weights(s), 2);
    t.x = zeros(g, T * d, 4);
    t.qkv = zeros(g, T * (q + 2 * (size_t)(s->kv * s->D)), 4);
    t.att = zeros(g, T * q, 4);
    t.one = zeros(g, T * (size_t)s->ffn, 4);
    t.logits = zeros(g, T * V, 4);
    t.per_work = gpu_step_work(&most);
    t.work = zeros(g, T * t.per_work, 4);
    t.norm = zeros(g, d > 2 * (size_t)s->D ? d : 2 * (size_t)s->D, 4);
    t.id = zeros(g, T, 4);
    t.draw = zeros(g, (size_t)rows, gpu_draw_bytes(s->vocab));
    make_caches(&t);
    return t;
}

static void drop(struct step *t)
{
    void *const all[] = {t->weights, t->x,    t->qkv,   t->att, t->one, t->logits, t->work,
                         t->norm,    t->pool, t->table, t->n,   t->id,  t->draw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_free(t->g, all[i]);
}

/* Multiplies all rows with a matrix and its fused operations. *at advances past the weights. */
static void multiply(struct step *t, float *out, size_t ld, const float *x, int N, int K,
                     struct gpu_dense how, size_t *at)
{
    how.part[0] = (struct gpu_matrix){t->weights + 2 * *at, WEIGHT_BF16, N, K, (size_t)K * 2};
    how.n = 1;
    how.eps = 1e-5f;
    how.scale = 1;
    gpu_dense(t->g, out, ld, x, (size_t)K, t->rows, &how);
    *at += (size_t)N * (size_t)K;
}

/* Fills in the storing of the newest entry and the attention of a sequence in a layer. */
static void sequence_of(const struct step *t, int layer, int r, struct gpu_new_entries *ret_x,
                        struct gpu_attention *ret_a)
{
    const struct shape *s = t->s;
    size_t q = (size_t)(s->q * s->D), kv = (size_t)(s->kv * s->D), ld = q + 2 * kv;
    size_t first = (size_t)((r * s->layers + layer) * s->kv), per = pages_of_head(t->held);
    float *row = t->qkv + (size_t)r * ld;
    *ret_a = (struct gpu_attention){.cache = {.pool = t->pool,
                                              .type = KV_F16,
                                              .heads = s->kv,
                                              .D = s->D,
                                              .table = t->table + first * per,
                                              .n = t->n + first,
                                              .ld_table = (int)per,
                                              .ld_slot = (int)per * PAGE_SLOTS,
                                              .most = t->held},
                                    .q = row,
                                    .out = t->att + (size_t)r * q,
                                    .ld_q = ld,
                                    .ld_out = q,
                                    .n_heads = s->q,
                                    .T = 1,
                                    .scale = 0.1f};
    *ret_x = (struct gpu_new_entries){.qkv = row,
                                      .T = 1,
                                      .n_heads = s->q,
                                      .n_rot = s->D,
                                      .cos_sin = t->norm,
                                      .slot = t->slot + first};
}

/* Applies RoPE, stores the new entries and computes attention for all sequences, each over its own
 * cache. */
static void attend(struct step *t, int layer)
{
    struct gpu_cache cache[GPU_TOGETHER];
    struct gpu_new_entries x[GPU_TOGETHER];
    struct gpu_attention a[GPU_TOGETHER];
    float *work[GPU_TOGETHER];
    for (int r = 0; r < t->rows; r++) {
        int at = r % GPU_TOGETHER;
        sequence_of(t, layer, r, &x[at], &a[at]);
        cache[at] = a[at].cache;
        work[at] = t->work + (size_t)r * t->per_work;
        if (r < t->rows - 1 && at < GPU_TOGETHER - 1)
            continue;
        gpu_norm_rope_store(t->g, cache, x, at + 1);
        gpu_attend_step(t->g, a, work, at + 1);
    }
}

static void run(struct step *t)
{
    const struct shape *s = t->s;
    int q = s->q * s->D, all = q + 2 * s->kv * s->D, T = t->rows;
    size_t at = 0, d = (size_t)s->d, V = (size_t)s->vocab;
    const struct gpu_dense behind = {.norm = t->norm}, added = {.end = GPU_ADD},
                           gated = {.norm = t->norm, .end = GPU_GATED};
    for (int l = 0; l < s->layers; l++) {
        multiply(t, t->qkv, (size_t)all, t->x, all, s->d, behind, &at);
        attend(t, l);
        multiply(t, t->x, d, t->att, s->d, q, added, &at);
        multiply(t, t->one, (size_t)s->ffn, t->x, 2 * s->ffn, s->d, gated, &at);
        multiply(t, t->x, d, t->one, s->d, s->ffn, added, &at);
    }
    multiply(t, t->logits, V, t->x, s->vocab, s->d, behind, &at);
    for (int r = 0; r < T; r++) {
        const struct gpu_draw greedy = {.scratch = (char *)t->draw
                                                   + (size_t)r * gpu_draw_bytes(s->vocab)};
        gpu_branch(t->g, r);
        gpu_draw(t->g, t->id + r, t->logits + (size_t)r * V, s->vocab, &greedy);
    }
    gpu_branch(t->g, -1);
}

/* Returns the seconds of a step; graph NULL: separate launches.  It waits for each step, as
 * decoding does. */
static double time_of(struct step *t, struct gpu_graph **graph)
{
    double begun = 0;
    for (int i = -3; i < REPEATS; i++) {
        if (i == 0)
            begun = seconds();
        if (graph)
            gpu_graph_begin(t->g, graph);
        run(t);
        if (graph)
            gpu_graph_end(t->g);
        struct kvf_diag d = {""};
        if (gpu_wait(t->g, &d) != KVF_OK) {
            fprintf(stderr, "bench_steps: %s\n", d.text);
            exit(1);
        }
    }
    return (seconds() - begun) / REPEATS;
}

static void report(struct gpu *g, const struct shape *s, int rows, int held, double bandwidth)
{
    struct gpu_graph *graph = NULL;
    struct step t = make(g, s, rows, held);
    double cache = (double)rows * s->layers * s->kv * held * s->D * 4;
    double bytes = 2 * (double)all_weights(s) + cache, bound = bytes / (bandwidth * 1e9);
    double alone = time_of(&t, NULL), whole = time_of(&t, &graph);
    struct gpu_graph_facts f = gpu_graph_look(graph);
    printf("| %s | %d | %d | %.0f | %.0f | %.0f | %.0f | %.0f %% | %.0f | %ld, %ld, %ld |\n",
           s->name, rows, held, bytes / 1e6, 1 / bound, 1 / alone, 1 / whole, 100 * bound / whole,
           rows / whole, f.built, f.replayed, f.refused);
    gpu_graph_free(g, graph);
    drop(&t);
}

int main(int argc, char **argv)
{
    struct gpu *g;
    struct kvf_diag d = {""};
    double bandwidth = argc > 1 ? strtod(argv[1], NULL) : 4800;
    bool tiny = argc > 2 && strcmp(argv[2], "tiny") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a stopped run keeps its output */
    if (gpu_count(&d) == 0 || gpu_open(0, &g, &d) != KVF_OK) {
        fprintf(stderr, "bench_steps: there is no CUDA device that can be used %s\n", d.text);
        return 77;
    }
    printf(
        "| model | sequences | entries per head | MB per step | steps/s at most | launched | as a "
        "graph | of the bandwidth | tokens/s | graphs built, replayed, refused "
        "|\n|---|---|---|---|---|---|---|---|---|---|\n");
    if (tiny)
        report(g, &small, MOST_ROWS, 100, bandwidth);
    for (size_t i = 0; !tiny && i < sizeof shapes / sizeof *shapes; i++) {
        report(g, &shapes[i], 1, 512, bandwidth);
        report(g, &shapes[i], MOST_ROWS, 1024, bandwidth);
        report(g, &shapes[i], MOST_ROWS, 32768, bandwidth);
    }
    gpu_close(g);
    return 0;
}

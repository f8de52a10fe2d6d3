/* test_families.c - every model family compared with transformers
 * (tests/data/golden/tools/make_family_golden.py). Chunk sizes and thread counts must not change
 * results. */
#include "golden.h"
#include "tests/suite.h"

enum { N = 600, FAMILY_CASES = 19 };

/* Returns the maximum absolute difference of the stored rows of logits, relative to the largest
 * logit of the row. */
static double worst_row(const struct json *rows, const float *all, int V)
{
    double worst = 0;
    int n = 0;
    for (const struct json *r = json_first(rows); r; r = json_next(r), n++) {
        const float *mine = all + (size_t)json_int(json_get(r, "t"), -1) * (size_t)V;
        double off = 0, most = 0;
        int v = 0;
        for (const struct json *x = json_first(json_get(r, "logits")); x; x = json_next(x), v++) {
            off = fmax(off, fabs((double)mine[v] - json_num(x, NAN)));
            most = fmax(most, fabs(json_num(x, NAN)));
        }
        cr_assert(v == V);
        worst = fmax(worst, off / most);
    }
    cr_assert(n == 3);
    return worst;
}

static double worst_nll(const struct json *nll, const float *all, const int32_t *ids, int V)
{
    double worst = 0;
    int i = 0;
    for (const struct json *x = json_first(nll); x; x = json_next(x), i++) {
        const float *row = all + (size_t)i * (size_t)V;
        double mine = log_sum_exp(row, V) - (double)row[ids[i + 1]];
        worst = fmax(worst, fabs(mine - json_num(x, NAN)));
    }
    cr_assert(i == N - 1);
    return worst;
}

Test(families, agree_with_torch, .timeout = 120)
{
    OWNED(json_free) struct json *root = golden_json("family_golden.json");
    int i = 0;
    for (const struct json *c = json_first(json_get(root, "cases")); c; c = json_next(c), i++) {
        const char *scale = json_str(json_get(c, "rope_scale"), NULL);
        OWNED(engine_close) struct engine *e = open_scaled(family_path(i), scale, true, 1);
        int n, V = e->config.vocab;
        int32_t *ids = golden_ids(json_get(c, "ids"), &n);
        cr_assert(n == N);
        float *all = all_logits(e, KV_F32, ids, n);
        double rows = worst_row(json_get(c, "rows"), all, V);
        double nll = worst_nll(json_get(c, "nll"), all, ids, V);
        fprintf(stderr, "%-8s logits %.1e of the largest, nll %.1e: %s %s\n", e->config.arch, rows,
                nll, json_str(json_get(c, "args"), "?"), scale ? scale : "");
        cr_expect(rows <= 1e-3, "%s: logits differ by %g", e->config.arch, rows);
        cr_expect(nll <= 1e-3, "%s: nll differs by %g", e->config.arch, nll);
        mem_free(all);
        mem_free(ids);
    }
    cr_expect(i == FAMILY_CASES);
}

/* Returns the last logits of a prompt that is processed in chunks, with or without --exact. */
static float *last_logits(const char *path, bool exact, int threads, int chunk)
{
    OWNED(engine_close) struct engine *e = open_model(path, exact, threads);
    OWNED(session_destroy) struct session *s = open_session(e, NULL, N, chunk, NULL);
    int32_t ids[N];
    size_t V = (size_t)e->config.vocab;
    float *out = MEM_NEW(float, V);
    for (int t = 0; t < N; t++)
        ids[t] = (t * 37 + t / 11) % e->config.vocab;
    cr_assert(session_prompt(s, ids, N, NULL, NULL) == KVF_OK);
    memcpy(out, session_logits(s), V * sizeof *out);
    return out;
}

/* Tests all families; with KVFATE_TESTS=quick every third. */
Test(families, chunks_and_threads_change_nothing, .timeout = 120)
{
    const char *size = getenv("KVFATE_TESTS");
    int step = size && strcmp(size, "quick") == 0 ? 3 : 1;
    static const struct {
        int threads, chunk;
    } ways[] = {{2, 600}, {1, 33}, {2, 100}};
    for (int i = 0; i < FAMILY_CASES; i += step) {
        OWNED(mem_free) float *first = last_logits(family_path(i), true, 1, 0);
        for (int k = 0; k < 3; k++) {
            OWNED(mem_free)
            float *other = last_logits(family_path(i), true, ways[k].threads, ways[k].chunk);
            cr_expect(memcmp(first, other, 300 * sizeof *first) == 0,
                      "model %d: %d threads and chunks of %d change the logits", i, ways[k].threads,
                      ways[k].chunk);
        }
    }
}

/* Lists of steps, as the equations of families say: tiny models have 4 query heads and 2 KV heads
 * of 16 channels. */
static const struct {
    int model, kind, kinds;
    const char *steps;
} plans[] = {
    {9, 1, 2, /* SmolLM3, a layer without rotation */
     " 0 NORM   x -> normed  attn_norm\n 1 MATMUL normed -> qkv  qkv\n 2 GATES  qkv\n"
     " 3 STORE  qkv\n 4 ATTEND qkv -> att\n 5 MATMUL att -> branch  out\n"
     " 6 ADD    branch -> x\n 7 NORM   x -> ffn_in  ffn_norm\n"
     " 8 MATMUL ffn_in -> gate_up  gate_up\n 9 ACT    gate_up -> ffn\n"
     "10 MATMUL ffn -> branch  down\n11 ADD    branch -> x\n"},
    {7, 0, 1, /* OLMo 2: norms over all heads, and of outputs alone */
     " 0 MATMUL x -> qkv  qkv\n 1 NORM   qkv  q_norm\n 2 NORM   qkv  k_norm  1 x 32\n"
     " 3 ROPE   qkv  6 x 16\n 4 GATES  qkv\n 5 STORE  qkv\n 6 ATTEND qkv -> att\n"
     " 7 MATMUL att -> branch  out\n 8 NORM   branch  attn_post\n 9 ADD    branch -> x\n"
     "10 MATMUL x -> gate_up  gate_up\n11 ACT    gate_up -> ffn\n12 MATMUL ffn -> branch  down\n"
     "13 NORM   branch  ffn_post\n14 ADD    branch -> x\n"},
    {17, 0, 1, /* Llama with sinks and biases */
     " 0 NORM   x -> normed  attn_norm\n 1 MATMUL normed -> qkv  qkv\n 2 BIAS   qkv  qkv_bias\n"
     " 3 ROPE   qkv  6 x 16\n 4 GATES  qkv\n 5 STORE  qkv\n 6 ATTEND qkv -> att  sinks\n"
     " 7 MATMUL att -> branch  out\n 8 BIAS   branch  out_bias\n 9 ADD    branch -> x\n"
     "10 NORM   x -> ffn_in  ffn_norm\n11 MATMUL ffn_in -> gate_up  gate_up\n"
     "12 BIAS   gate_up  gate_up_bias\n13 ACT    gate_up -> ffn\n"
     "14 MATMUL ffn -> branch  down\n15 BIAS   branch  down_bias\n16 ADD    branch -> x\n"},
};

/* Prints the steps of a block, one per line: number, operation, slots, tensor, and the vectors of a
 * row. */
static void block_print(const struct block *b, struct buf *out)
{
    static const char *const op[] = {"NORM",  "MATMUL", "BIAS", "ROPE", "GATES",
                                     "STORE", "ATTEND", "ACT",  "ADD"};
    static const char *const slot[] = {"x",      "normed", "qkv",     "att",
                                       "branch", "ffn_in", "gate_up", "ffn"};
    for (int i = 0; i < b->n; i++) {
        const struct block_step *s = &b->step[i];
        buf_printf(out, "%2d %-6s %s", i, op[s->op], slot[s->src]);
        if (s->dst != s->src)
            buf_printf(out, " -> %s", slot[s->dst]);
        if (s->w != T_NONE)
            buf_printf(out, "  %s", tensor_name(s->w));
        if (s->heads > 1 || s->offset)
            buf_printf(out, "  %d x %d", s->heads, s->width);
        buf_char(out, '\n');
    }
}

Test(families, plans)
{
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        OWNED(engine_close) struct engine *e = open_model(family_path(plans[i].model), true, 1);
        SCOPED(buf_finish) struct buf b = {0};
        cr_expect(e->weights->plan.n == plans[i].kinds);
        block_print(&e->weights->plan.kind[plans[i].kind], &b);
        cr_expect(strcmp(b.data, plans[i].steps) == 0, "model %d:\n%s", plans[i].model, b.data);
    }
}

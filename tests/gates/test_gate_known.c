/* test_gate_known.c - gates with values that can be computed by hand. */
#include "base/par.h"
#include "file.h"

#define L0 "model.layers.0.self_attn."
#define RELU ", \"kvfate.activation\": \"relu\""
#define META(kind, layout) "\"kvfate.kind\": \"" kind "\", \"kvfate.layout\": \"" layout "\""

static struct gates *open_made(struct maker *m, const struct gates_model *model)
{
    struct gates *g;
    const struct buf *f = finish(m);
    succeeds(try_open(f->data, f->len, model, &g, &d));
    return g;
}

static double close_to(float have, double want)
{
    return fabs((double)have - want) / fabs(want);
}

/* One layer, d = I = 1, seven heads with a logit equal to their bias. */
Test(known, log_beta_is_exact_at_both_ends)
{
    enum { H = 7 };
    const float zero[H] = {0}, z[H] = {-100, -18, -1, 0, 1, 18, 80};
    const double want[H] = {-100,
                            -18.0000000152299797,
                            -1.31326168751822,
                            -0.693147180559945,
                            -0.313261687518223,
                            -1.52299796e-8,
                            -1.80485139e-35};
    const struct gates_model model = {1, 1, H, H, 2, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    float x = 3, out[H], scratch[256];
    start(&m, META("retention", "rg"));
    tensor(&m, L0 "retention_gate.linear1.weight", "[1, 1]", zero, 1);
    tensor(&m, L0 "retention_gate.linear1.bias", "[1]", zero, 1);
    tensor(&m, L0 "retention_gate.linear2.weight", "[7, 1]", zero, H);
    tensor(&m, L0 "retention_gate.bias", "[7]", z, H);
    struct gates *g = open_made(&m, &model);
    cr_assert(le(sz, gates_scratch(g), 256));
    gates_eval(g, 0, &(struct gate_input){.x = &x}, out, scratch);
    for (int h = 0; h < H; h++)
        cr_expect(close_to(out[h], want[h]) < 3e-7, "z %g: %.9g, expected %.9g", (double)z[h],
                  (double)out[h], want[h]);
    cr_expect(eq(int, gates_positions(g), INT32_MAX));
    gates_close(g);
    end(&m);
}

/* Two layers with these readouts: a weight and a bias each. */
static bool tied(const float first[2], const float second[2])
{
    const struct gates_model model = {2, 1, 1, 1, 2, 1e-5f, 1e4, NULL, reference()};
    const float zero = 0, *own[2] = {first, second};
    struct maker m = {0};
    start(&m, META("retention", "rg"));
    for (int i = 0; i < 2; i++) {
        static const char *const part[] = {"linear1.weight", "linear1.bias", "linear2.weight",
                                           "bias"};
        for (int k = 0; k < 4; k++) {
            const float *v = k < 2 ? &zero : &own[i][k - 2];
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.self_attn.retention_gate.%s", i, part[k]);
            tensor(&m, name, k % 2 ? "[1]" : "[1, 1]", v, 1);
        }
    }
    struct gates *g = open_made(&m, &model);
    bool found = gates_tied(g);
    gates_close(g);
    end(&m);
    return found;
}

Test(known, tied_readouts_have_equal_weights_and_biases)
{
    cr_expect(tied((float[]){2, 5}, (float[]){2, 5}));
    cr_expect(not(tied((float[]){2, 5}, (float[]){2, 6})), "another bias");
    cr_expect(not(tied((float[]){2, 5}, (float[]){3, 5})), "another weight");
}

/* Around 18, bf16 has steps of 1/8. Implementations that round differently differ in ties. */
Test(known, bf16_rounds_the_product_and_then_the_sum)
{
    enum { H = 6 };
    /* 0.0625 is half a step and goes to the even neighbour 18. 0.1871 first becomes 0.1875 in bf16,
     * which is again a tie and goes up to 18.25. */
    const float product[H] = {0.06f, 0.0625f, 0.07f, 0.1871f, 1.004f, -0.03f};
    const double z[H] = {18, 18, 18.125, 18.25, 19, 18};
    const float one = 1, zero = 0, bias[H] = {18, 18, 18, 18, 18, 18};
    const struct gates_model model = {1, 1, H, H, 2, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    float out[H], scratch[256];
    start(&m, META("retention", "rg") RELU ", \"kvfate.z\": \"bf16\"");
    tensor(&m, L0 "retention_gate.linear1.weight", "[1, 1]", &one, 1);
    tensor(&m, L0 "retention_gate.linear1.bias", "[1]", &zero, 1);
    tensor(&m, L0 "retention_gate.linear2.weight", "[6, 1]", product, H);
    tensor(&m, L0 "retention_gate.bias", "[6]", bias, H);
    struct gates *g = open_made(&m, &model);
    gates_eval(g, 0, &(struct gate_input){.x = &one}, out, scratch);
    for (int h = 0; h < H; h++)
        cr_expect(close_to(out[h], -log1p(exp(-z[h]))) < 1e-6, "%g: %.9g", (double)product[h],
                  (double)out[h]);
    cr_expect(eq(flt, out[0], out[1]));
    gates_close(g);
    end(&m);
}

/* k = (3, 4) has root mean square sqrt(12.5). Head 0 uses its first channel before RoPE, head 1 its
 * second one after RoPE. */
Test(known, write_gates_see_normed_keys_of_their_head)
{
    const float ones[2] = {1, 1}, half[2] = {0.5f, 2}, zero[2] = {0},
                pick[8] = {1, 0, 0, 0, 0, 0, 0, 1};
    const float out_w[2] = {2, -1}, out_b[2] = {-1, 0.5f};
    const float pre[4] = {3, 4, 9, 9}, post[4] = {9, 9, -3, 4};
    const struct gates_model model = {1, 5, 4, 2, 2, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    float out[2], scratch[256];
    start(&m, META("write", "wgkv") RELU);
    tensor(&m, L0 "g_predictors.pre_key_norm.weight", "[2]", ones, 2);
    tensor(&m, L0 "g_predictors.post_key_norm.weight", "[2]", half, 2);
    tensor(&m, L0 "g_predictors.conv1.weight", "[2, 4, 1]", pick, 8);
    tensor(&m, L0 "g_predictors.conv1.bias", "[2]", zero, 2);
    tensor(&m, L0 "g_predictors.conv2.weight", "[2, 1, 1]", out_w, 2);
    tensor(&m, L0 "g_predictors.conv2.bias", "[2]", out_b, 2);
    struct gates *g = open_made(&m, &model);
    gates_eval(g, 0, &(struct gate_input){.k_pre = pre, .k_post = post}, out, scratch);
    double z0 = 2 * 3 / sqrt(12.5) - 1, z1 = -2 * 4 / sqrt(12.5) + 0.5;
    cr_expect(close_to(out[0], 1 / (1 + exp(-z0))) < 1e-6, "%g", (double)out[0]);
    cr_expect(close_to(out[1], 1 / (1 + exp(-z1))) < 1e-6, "%g", (double)out[1]);
    gates_close(g);
    end(&m);
}

/* Each input has its own decimal digit: q heads, then k heads, then v heads. */
Test(known, importance_reads_q_k_v_in_this_order)
{
    enum { IN = 4 };
    float eye[IN * IN] = {0};
    const float digits[IN] = {1000, 100, 10, 1}, q[2] = {1, 2}, k = 3, v = 4;
    const struct gates_model model = {1, 5, 2, 1, 1, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    float out, scratch[256];
    for (int i = 0; i < IN; i++)
        eye[i * IN + i] = 1;
    start(&m, META("importance", "locret") RELU);
    tensor(&m, L0 "fc1.weight", "[4, 4]", eye, IN * IN);
    tensor(&m, L0 "fc2.weight", "[1, 4]", digits, IN);
    struct gates *g = open_made(&m, &model);
    gates_eval(g, 0, &(struct gate_input){.q_pre = q, .k_pre = &k, .v = &v}, &out, scratch);
    cr_expect(eq(flt, out, 1234));
    gates_close(g);
    end(&m);
}

/* With the average only and without rotation, the logit is mean q . mean k / sqrt(n). With a
 * rotation, it depends only on the distance of the two positions. */
Test(known, block_logits_are_products_of_means_and_relative)
{
    enum { D = 4, G = 2 };
    float wk[D * 3 * D] = {0}, wq[D * G * D] = {0}, q[D], k[D], scratch[256];
    const float junk[D] = {7, 7, 7, 7}, avg[D] = {1, 2, 3, 4},
                heads[G * D] = {1, 0, 2, 1, 3, 2, 0, 1};
    const struct gates_model model = {1, 5, G, 1, D, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    for (int i = 0; i < D; i++) {
        wk[i * 3 * D + 2 * D + i] = 1;
        wq[i * G * D + i] = wq[i * G * D + D + i] = 0.5f;
    }
    start(&m, META("blocks", "seer") ", \"kvfate.block\": \"16\"");
    tensor(&m, L0 "block_gate.k_proj.weight", "[1, 4, 12]", wk, D * 3 * D);
    tensor(&m, L0 "block_gate.q_proj.weight", "[1, 4, 8]", wq, D * G * D);
    struct gates *g = open_made(&m, &model);
    gates_block_query(g, 0, 0, heads, 0, q, scratch);
    gates_block_key(g, 0, 0, junk, junk, avg, 0, k, scratch);
    /* Means of q: 2 1 1 1. */
    cr_expect(close_to(gates_block_logit(g, q, k), (2 + 2 + 3 + 4) / 2.0) < 1e-6);
    double near[2];
    for (int i = 0; i < 2; i++) {
        gates_block_query(g, 0, 0, heads, 100 + 1000 * i, q, scratch);
        gates_block_key(g, 0, 0, junk, junk, avg, 64 + 1000 * i, k, scratch);
        near[i] = (double)gates_block_logit(g, q, k);
    }
    cr_expect(fabs(near[0] - near[1]) < 1e-5 && fabs(near[0] - 5.5) > 0.1);
    cr_expect(eq(int, gates_block_size(g), 16));
    gates_close(g);
    end(&m);
}

Test(known, given_numbers_come_by_layer_head_position)
{
    enum { L = 2, H = 3, T = 5 };
    float v[L * H * T], out[H];
    const struct gates_model model = {L, 5, 3, H, 2, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    for (int i = 0; i < L * H * T; i++)
        v[i] = (float)i;
    start(&m, META("importance", "values"));
    tensor(&m, "values", "[2, 3, 5]", v, L * H * T);
    struct gates *g = open_made(&m, &model);
    cr_assert(eq(int, gates_positions(g), T));
    for (int l = 0; l < L; l++)
        for (int t = 0; t < T; t++) {
            gates_eval(g, l, &(struct gate_input){.pos = t}, out, NULL);
            for (int h = 0; h < H; h++)
                cr_expect(eq(flt, out[h], (float)((l * H + h) * T + t)));
        }
    gates_close(g);
    start(&m, META("heads", "duo"));
    for (int i = 0; i < L * H; i++)
        v[i] = (float)i / 5;
    tensor(&m, "duo.alpha", "[2, 3]", v, L * H);
    g = open_made(&m, &model);
    cr_expect(eq(flt, gates_alpha(g, 1, 0), 0.6f));
    cr_expect(eq(flt, gates_alpha(g, 0, 2), 0.4f));
    gates_close(g);
    end(&m);
}

enum { MANY = 200, WIDTH = 40, HIDDEN = 33, HEADS = 3 };

struct crowd {
    const struct gates *g;
    const float *x;
    float *out, *scratch[4];
};

static void one_token(void *ctx, int t, int thread)
{
    struct crowd *c = ctx;
    struct gate_input in = {.x = c->x + t * WIDTH, .pos = t};
    gates_eval(c->g, 0, &in, c->out + t * HEADS, c->scratch[thread]);
}

Test(known, threads_get_the_same_bits)
{
    static float x[MANY * WIDTH], w[HIDDEN * WIDTH], alone[MANY * HEADS], all[MANY * HEADS];
    const struct gates_model model = {1, WIDTH, HEADS, HEADS, 2, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    struct par *one, *four;
    struct rng r = rng_seeded(4);
    for (size_t i = 0; i < MANY * WIDTH; i++)
        x[i] = (float)rng_normal(&r);
    for (size_t i = 0; i < HIDDEN * WIDTH; i++)
        w[i] = 0.2f * (float)rng_normal(&r);
    start(&m, META("retention", "rg"));
    tensor(&m, L0 "retention_gate.linear1.weight", "[33, 40]", w, HIDDEN * WIDTH);
    tensor(&m, L0 "retention_gate.linear1.bias", "[33]", w, HIDDEN);
    tensor(&m, L0 "retention_gate.linear2.weight", "[3, 33]", w, HEADS * HIDDEN);
    tensor(&m, L0 "retention_gate.bias", "[3]", w, HEADS);
    struct gates *g = open_made(&m, &model);
    struct crowd c = {g, x, alone, {NULL}};
    for (int i = 0; i < 4; i++)
        c.scratch[i] = MEM_NEW(float, gates_scratch(g));
    cr_assert(zero(int, par_create(1, &one)));
    cr_assert(zero(int, par_create(4, &four)));
    par_run(one, MANY, one_token, &c);
    c.out = all;
    par_run(four, MANY, one_token, &c);
    cr_expect(zero(int, memcmp(alone, all, sizeof all)));
    for (int i = 0; i < 4; i++)
        mem_free(c.scratch[i]);
    par_destroy(one);
    par_destroy(four);
    gates_close(g);
    end(&m);
}

/* gates_dump.c - prints the results of a gate file for inputs from stdin.
 *
 * usage: gates_dump FILE CPU_FLAGS L d G H D eps base MODEL_HASH|-   < inputs > numbers
 * inputs: for each token i32 pos, then f32 x[d] q[G*D] k_pre[H*D] v[H*D] k_post[H*D]
 * numbers: a line of JSON with the facts, then f32:
 *   one number per entry: [L][token][H];  heads: [L][H]
 *   blocks: [L][token][H][query vector, key vector, their logit], where k_pre, v and
 *           k_post serve as max, min and avg
 * The exit status is 1 with a message on stderr if the file is rejected, and 3 if a function wrote
 * outside its scratch or output. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/gate/gate.h"
#include "tests/scoped.h"

enum { GUARD = 16 };
static const float canary = -1.2345e33f;

struct area {
    float *all, *at;
    size_t n;
};

/* Allocates n floats, set to NaN, between canaries. */
static struct area make_area(size_t n)
{
    struct area a = {MEM_NEW(float, n + 2 * GUARD), NULL, n};
    if (!a.all)
        exit(2);
    for (size_t i = 0; i < n + 2 * GUARD; i++)
        a.all[i] = i < GUARD || i >= n + GUARD ? canary : NAN;
    a.at = a.all + GUARD;
    return a;
}

static void end_area(struct area *a)
{
    for (size_t i = 0; i < GUARD; i++)
        if (a->all[i] != canary || a->all[a->n + GUARD + i] != canary)
            exit(3);
    mem_free(a->all);
}

static void put(const float *v, size_t n)
{
    if (fwrite(v, sizeof *v, n, stdout) != n)
        exit(2);
}

static void show_blocks(const struct gates *g, const struct gates_model *m, int layer,
                        const struct gate_input *in, struct area *out, float *scratch)
{
    int n = gates_gate_dim(g);
    size_t D = (size_t)m->head_dim, group = (size_t)(m->n_heads / m->n_kv_heads);
    float *q = out->at, *k = out->at + n;
    for (int h = 0; h < m->n_kv_heads; h++) {
        size_t at = (size_t)h * D;
        gates_block_query(g, layer, h, in->q_pre + at * group, in->pos, q, scratch);
        gates_block_key(g, layer, h, in->k_pre + at, in->v + at, in->k_post + at, in->pos, k,
                        scratch);
        float logit = gates_block_logit(g, q, k);
        put(out->at, 2 * (size_t)n);
        put(&logit, 1);
    }
}

static void show_layer(const struct gates *g, const struct gates_model *m, int layer,
                       const struct gate_input *in, int n)
{
    size_t H = (size_t)m->n_kv_heads;
    for (int t = 0; t < n; t++) {
        bool blocks = gates_kind(g) == GATE_BLOCKS;
        struct area scratch = make_area(gates_scratch(g));
        SCOPED(end_area) struct area out = make_area(blocks ? 2 * (size_t)gates_gate_dim(g) : H);
        struct gate_input some = in[t];
        unsigned want = gates_inputs(g);
        some.x = want & GATE_IN_X ? some.x : NULL;
        some.q_pre = want & GATE_IN_Q ? some.q_pre : NULL;
        some.k_pre = want & GATE_IN_K_PRE ? some.k_pre : NULL;
        some.v = want & GATE_IN_V ? some.v : NULL;
        some.k_post = want & GATE_IN_K_POST ? some.k_post : NULL;
        if (blocks) {
            show_blocks(g, m, layer, &in[t], &out, scratch.at);
        } else {
            gates_eval(g, layer, &some, out.at, scratch.at);
            put(out.at, H);
        }
        end_area(&scratch);
    }
}

static struct gate_input *read_inputs(const struct gates_model *m, float *store, int most, int *n)
{
    size_t kv = (size_t)(m->n_kv_heads * m->head_dim), q = (size_t)(m->n_heads * m->head_dim);
    size_t per = (size_t)m->d_model + q + 3 * kv;
    struct gate_input *in = MEM_NEW(struct gate_input, (size_t)most);
    for (*n = 0; in && *n < most; ++*n) {
        float *x = store + (size_t)*n * per;
        int32_t pos;
        if (fread(&pos, sizeof pos, 1, stdin) != 1 || fread(x, sizeof *x, per, stdin) != per)
            break;
        float *k = x + m->d_model + q;
        in[*n] = (struct gate_input){x, x + m->d_model, k, k + kv, k + 2 * kv, pos};
    }
    return in;
}

int main(int argc, char **argv)
{
    enum { MOST = 256, STORE = 1 << 20 };
    struct kernels k;
    struct kvf_diag d = {""};
    OWNED(gates_close) struct gates *g = NULL;
    if (argc != 11)
        return 2;
    kernels_init(&k, (unsigned)strtoul(argv[2], NULL, 0) & cpu_flags_detect());
    struct gates_model m = {atoi(argv[3]),
                            atoi(argv[4]),
                            atoi(argv[5]),
                            atoi(argv[6]),
                            atoi(argv[7]),
                            strtof(argv[8], NULL),
                            atof(argv[9]),
                            strcmp(argv[10], "-") == 0 ? NULL : argv[10],
                            &k};
    if (gates_open(argv[1], &m, &g, &d)) {
        fprintf(stderr, "%s\n", d.text);
        return 1;
    }
    printf("{\"kind\": \"%s\", \"layout\": \"%s\", \"hidden\": %d, \"positions\": %d, "
           "\"tied\": %d, \"inputs\": %u, \"gate_dim\": %d, \"block\": %d, \"hash\": \"%s\"}\n",
           gates_kind_name(gates_kind(g)), gates_layout(g), gates_hidden(g), gates_positions(g),
           gates_tied(g), gates_inputs(g), gates_gate_dim(g), gates_block_size(g), gates_hash(g));
    int n;
    float *store = MEM_NEW(float, STORE);
    OWNED(mem_free) struct gate_input *in = read_inputs(&m, store, MOST, &n);
    for (int layer = 0; layer < m.n_layers; layer++) {
        if (gates_kind(g) != GATE_HEADS)
            show_layer(g, &m, layer, in, n);
        for (int h = 0; gates_kind(g) == GATE_HEADS && h < m.n_kv_heads; h++) {
            float alpha = gates_alpha(g, layer, h);
            put(&alpha, 1);
        }
    }
    mem_free(store);
    return 0;
}

/* fuzz_gates.c - a gate file: opened for a small model, and every gate value computed. */
#include <string.h>

#include "base/mem.h"
#include "engine/gate/gate.h"
#include "fuzz.h"

enum { L = 2, D_MODEL = 3, G = 4, H = 2, D = 2 }; /* shape of the small files in tests/gates */

static void use_blocks(const struct gates *g, int layer, const float *in, float *scratch)
{
    size_t n = (size_t)gates_gate_dim(g);
    float *q = MEM_NEW(float, n), *k = MEM_NEW(float, n);
    MUST(q && k && n % 2 == 0 && gates_block_size(g) >= 0);
    for (int h = 0; h < H; h++) {
        gates_block_key(g, layer, h, in, in + D, in + 2 * D, 64, k, scratch);
        gates_block_query(g, layer, h, in, INT32_MAX, q, scratch);
        gates_block_logit(g, q, k);
    }
    mem_free(q);
    mem_free(k);
}

static void use_heads(const struct gates *g, int layer)
{
    for (int h = 0; h < H; h++)
        MUST(gates_alpha(g, layer, h) >= 0 && gates_alpha(g, layer, h) <= 1);
}

static void use_layer(const struct gates *g, int layer, const float *in, float *scratch)
{
    int32_t most = gates_positions(g);
    struct gate_input x = {in, in, in, in, in, most - 1};
    float out[H];
    enum gate_kind kind = gates_kind(g);
    if (kind == GATE_BLOCKS)
        use_blocks(g, layer, in, scratch);
    if (kind == GATE_HEADS)
        use_heads(g, layer);
    if (kind == GATE_BLOCKS || kind == GATE_HEADS)
        return;
    gates_eval(g, layer, &x, out, scratch);
    for (int h = 0; h < H; h++) { /* NaN, or in its range */
        MUST(!(kind == GATE_RETENTION && out[h] > 0));
        MUST(!(kind == GATE_WRITE && (out[h] < 0 || out[h] > 1)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const float in[(G + 2 * H) * D] = {1, -2, 3, -0.5f, 0.25f, 0, 1e-3f, 7, -1, 2};
    static struct kernels kernels;
    char path[64];
    if (!kernels.matmul_f)
        kernels_init(&kernels, cpu_flags_detect());
    const struct gates_model m = {L, D_MODEL, G, H, D, 1e-5f, 1e4, "feed", &kernels};
    struct kvf_diag d = {""};
    struct gates *g = NULL;
    int fd = memory_file(data, n, path);
    int err = gates_open(path, &m, &g, &d);
    MUST((err == KVF_OK) == (g != NULL));
    MUST(!err || err == KVF_E_NOMEM || d.text[0]);
    if (g) {
        float *scratch = MEM_NEW(float, gates_scratch(g));
        MUST(scratch && strlen(gates_hash(g)) == 32 && gates_hidden(g) >= 0);
        for (int layer = 0; layer < L; layer++)
            use_layer(g, layer, in, scratch);
        mem_free(scratch);
    }
    gates_close(g);
    close(fd);
    return 0;
}

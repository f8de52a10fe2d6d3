/* gates_fit.c - checks that gates fit a model, of which only the header is read.
 *
 * usage: gates_fit MODEL GATES    (MODEL: a GGUF file, whose matrices may be holes)
 *
 * Prints kind, layout, container and hidden width, then for each layer the results of its KV heads
 * for inputs of zeros at position 0 (alphas of heads unchanged). The exit status is 1 with a
 * message on standard error if the gates or the model are rejected. */
#include <stdio.h>

#include "base/mem.h"
#include "engine/gate/gate.h"
#include "engine/model/config.h"
#include "engine/model/model_file.h"
#include "tests/scoped.h"

static void show_layers(const struct gates *g, const struct model_config *m)
{
    size_t widest = (size_t)(m->d_model + m->n_heads * m->head_dim);
    float *zeros = MEM_NEW(float, widest), *scratch = MEM_NEW(float, gates_scratch(g));
    OWNED(mem_free) float *out = MEM_NEW(float, (size_t)m->n_kv_heads);
    struct gate_input in = {zeros, zeros, zeros, zeros, zeros, 0};
    for (int l = 0; zeros && scratch && out && l < m->n_layers; l++) {
        if (gates_kind(g) == GATE_BLOCKS)
            continue;
        if (gates_kind(g) != GATE_HEADS)
            gates_eval(g, l, &in, out, scratch);
        for (int h = 0; h < m->n_kv_heads; h++)
            printf("%.9g%c", (double)(gates_kind(g) == GATE_HEADS ? gates_alpha(g, l, h) : out[h]),
                   h + 1 < m->n_kv_heads ? ' ' : '\n');
    }
    mem_free(scratch);
    mem_free(zeros);
}

int main(int argc, char **argv)
{
    static struct model_config m;
    struct kernels k;
    OWNED(gguf_close) struct gguf *file = NULL;
    OWNED(gates_close) struct gates *g = NULL;
    struct kvf_diag d = {""};
    if (argc != 3)
        return 2;
    kernels_init(&k, cpu_flags_detect());
    int err = model_file_open(argv[1], &file, &d);
    if (!err)
        err = model_config_read(file, &m, &d);
    if (!err) {
        struct gates_model model = gates_model_from(&m, NULL, &k);
        err = gates_open(argv[2], &model, &g, &d);
    }
    if (!err) {
        printf("%s %s %d\n", gates_kind_name(gates_kind(g)), gates_layout(g),
               gates_kind(g) == GATE_BLOCKS ? gates_gate_dim(g) : gates_hidden(g));
        show_layers(g, &m);
    } else {
        fprintf(stderr, "%s\n", d.text);
    }
    return err ? 1 : 0;
}

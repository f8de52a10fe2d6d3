/* gate.c - returns the facts of opened gates, and closes them. */
#include <stdio.h>

#include "base/mem.h"
#include "engine/gate/state.h"
#include "engine/model/config.h"

struct gates_model gates_model_from(const struct model_config *m, const char *hash,
                                    const struct kernels *kernels)
{
    return (struct gates_model){.n_layers = m->n_layers,
                                .d_model = m->d_model,
                                .n_heads = m->n_heads,
                                .n_kv_heads = m->n_kv_heads,
                                .head_dim = m->head_dim,
                                .norm_eps = m->norm_eps,
                                .rope_base = m->rope_base,
                                .hash = hash,
                                .kernels = kernels};
}

void gates_close(struct gates *g)
{
    if (!g)
        return;
    size_t n = g->unit ? (size_t)g->model.n_layers * (size_t)g->n_units : 0;
    for (size_t i = 0; i < n; i++)
        for (int s = 0; s < GATE_STAGES; s++) {
            packed_finish(&g->unit[i].stage[s].w);
            mem_free(g->unit[i].stage[s].bias);
        }
    mem_free_all(g->unit, g->norm[0], g->norm[1], g->given, g->theta, g->meta, g->path, g);
}

enum gate_kind gates_kind(const struct gates *g)
{
    return g->kind;
}

const char *gates_kind_name(enum gate_kind kind)
{
    static const char *const names[] = {[GATE_RETENTION] = "retention",
                                        [GATE_WRITE] = "write",
                                        [GATE_IMPORTANCE] = "importance",
                                        [GATE_HEADS] = "heads",
                                        [GATE_BLOCKS] = "blocks"};
    return names[kind];
}

const char *gates_layout(const struct gates *g)
{
    return g->unsure ? "rg or rg2" : gate_layouts[g->layout].name;
}

const char *gates_path(const struct gates *g)
{
    return g->path;
}

const char *gates_hash(const struct gates *g)
{
    return g->hash;
}

const char *gates_meta(const struct gates *g)
{
    return g->meta;
}

const struct gates_model *gates_model_of(const struct gates *g)
{
    return &g->model;
}

size_t gates_bytes(const struct gates *g)
{
    return g->bytes;
}

int gates_hidden(const struct gates *g)
{
    return g->kind == GATE_BLOCKS ? 0 : g->hidden;
}

bool gates_tied(const struct gates *g)
{
    return g->tied;
}

int32_t gates_positions(const struct gates *g)
{
    return g->layout == LAYOUT_VALUES ? g->n_given : INT32_MAX;
}

unsigned gates_inputs(const struct gates *g)
{
    return layout_inputs(&gate_layouts[g->layout]);
}

float gates_alpha(const struct gates *g, int layer, int head)
{
    return g->given[(size_t)layer * (size_t)g->model.n_kv_heads + (size_t)head];
}

int gates_gate_dim(const struct gates *g)
{
    return g->kind == GATE_BLOCKS ? g->hidden : 0;
}

int gates_block_size(const struct gates *g)
{
    return g->block;
}

void gates_tensor_name(const struct gates *g, char out[128], int layer, const struct part *p)
{
    snprintf(out, 128, "%s%d.self_attn.%s", g->prefix, layer, p->name);
}

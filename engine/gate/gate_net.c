/* gate_net.c - the network of a gate file as numbers, for who computes it elsewhere. */
#include <string.h>

#include "engine/gate/state.h"

static enum gate_gather gather_of(enum layout_id layout)
{
    switch (layout) {
    case LAYOUT_RGKV:
        return GATE_GATHER_KEYS_VALUES;
    case LAYOUT_RG2:
    case LAYOUT_RG3:
        return GATE_GATHER_ENTRIES;
    case LAYOUT_LOCRET:
        return GATE_GATHER_ALL;
    case LAYOUT_WGKV:
        return GATE_GATHER_HEAD;
    default:
        return GATE_GATHER_X;
    }
}

static const enum gate_ending endings[] = {[GATE_RETENTION] = GATE_ENDS_LOG_SIGMOID,
                                           [GATE_WRITE] = GATE_ENDS_SIGMOID,
                                           [GATE_IMPORTANCE] = GATE_ENDS};

bool gates_net(const struct gates *g, struct gate_net *ret)
{
    if (g->kind > GATE_IMPORTANCE || g->layout == LAYOUT_VALUES || g->round_z)
        return false;
    const struct layout *l = &gate_layouts[g->layout];
    *ret = (struct gate_net){.n_units = g->n_units,
                             .n_stages = l->n_stages,
                             .gather = gather_of(g->layout),
                             .activation = (enum gate_activation)g->activation,
                             .gated = l->gated,
                             .ending = endings[g->kind],
                             .norm = {g->norm[0], g->norm[1]},
                             .eps = GATE_WRITE_EPS};
    return true;
}

bool gates_blocks(const struct gates *g, struct gate_blocks *ret)
{
    if (!g || g->kind != GATE_BLOCKS)
        return false;
    *ret = (struct gate_blocks){
        .dim = g->hidden, .norm = g->norm[1], .eps = g->model.norm_eps, .theta = g->theta};
    return true;
}

struct gate_stage gates_stage(const struct gates *g, int layer, int unit, int stage)
{
    const struct dense *d = &g->unit[layer * g->n_units + unit].stage[stage];
    return (struct gate_stage){d->w.N, d->w.K, d->bias};
}

void gates_weights(const struct gates *g, int layer, int unit, int stage, float *out)
{
    const struct packed *w = &g->unit[layer * g->n_units + unit].stage[stage].w;
    size_t K = (size_t)w->K;
    for (size_t n = 0; n < (size_t)w->N; n++)
        for (size_t k = 0; k < K; k++) {
            size_t at = (n / PANEL * K + k) * PANEL + n % PANEL;
            memcpy(&out[n * K + k], (const float *)(const void *)w->data + at, sizeof *out);
        }
}

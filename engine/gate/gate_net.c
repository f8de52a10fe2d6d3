/* gate_net.c - the network of a gate file, for executors outside this module. */
#include <string.h>

#include "engine/gate/state.h"

bool gates_net(const struct gates *g, struct gate_net *ret)
{
    if (g->kind > GATE_IMPORTANCE || g->layout == LAYOUT_VALUES || g->round_z)
        return false;
    *ret = (struct gate_net){.n_units = g->n_units,
                             .stages = &gate_layouts[g->layout].stages,
                             .activation = g->activation,
                             .norm = {g->norm[0], g->norm[1]}};
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

struct gate_linear gates_linear(const struct gates *g, int layer, int unit, int stage)
{
    const struct dense *d = &g->unit[layer * g->n_units + unit].stage[stage];
    return (struct gate_linear){d->w.N, d->w.K, d->bias};
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

/* probe_queries.c - query vectors of selected heads, before or after RoPE. */
#include <stdio.h>

#include "engine/probe/probes.h"
#include "engine/probe/watch.h"

/* Declares one column for each channel of each head. */
static int arrays(const struct probe_config *cfg, struct probe_array *out)
{
    int D = cfg->shape.head_dim, n = cfg->watch ? cfg->watch->n_queries * D : 0;
    for (int i = 0; out && i < n; i++) {
        const struct watch_head *at = &cfg->watch->query[i / D];
        struct kvf_column *c = &out[i].column;
        out[i] = (struct probe_array){.column = {"", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""}};
        snprintf(c->name, sizeof c->name, "query.%s.L%dH%d.d%02d",
                 cfg->watch->turned ? "post" : "pre", at->layer, at->head, i % D);
    }
    return n;
}

static void on_queries(struct probe_state *s, const struct probe_block *b)
{
    const struct watch *w = s->cfg->watch;
    int D = s->cfg->shape.head_dim;
    if (b->turned != w->turned)
        return;
    for (int k = 0; k < w->n_queries; k++) {
        if (w->query[k].layer != b->layer)
            continue;
        for (int j = 0; j < D; j++) {
            float *out = probe_cells(s, k * D + j, 0, 0);
            for (int t = 0; t < b->n; t++)
                out[b->t0 + t] = b->q[(size_t)t * b->ld + (size_t)(w->query[k].head * D + j)];
        }
    }
}

const struct probe probe_queries = {
    .name = "queries",
    .summary = "query vectors of chosen heads",
    .wants = PROBE_QUERY,
    .by_name = true,
    .in_auto = AUTO_CPU,
    .arrays = arrays,
    .queries = on_queries,
};

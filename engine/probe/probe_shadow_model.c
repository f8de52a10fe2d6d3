/* probe_shadow_model.c - comparison with a full-cache copy of the model: NLL of each token under
 * it, KL divergence of each step's distribution, and distance of the residual streams by layer. */
#include <stdio.h>

#include "engine/probe/probes.h"

enum { NLL, KL, RESIDUAL }; /* RESIDUAL: the first of one column per layer */

static int arrays(const struct probe_config *cfg, struct probe_array *out)
{
    int n = RESIDUAL + cfg->shape.n_layers;
    for (int i = 0; out && i < n; i++) {
        struct kvf_column *c = &out[i].column;
        out[i] = (struct probe_array){.column = {"", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
                                      .start = PROBE_NAN};
        snprintf(c->name, sizeof c->name, "shadow.residual_error.L%d", i - RESIDUAL);
    }
    if (out) {
        const struct kvf_column nll = {"shadow.nll",   KVF_F32, KVF_SPACE_RUN,
                                       KVF_AXIS_TOKEN, 0,       "nat"};
        const struct kvf_column kl = {"shadow.kl", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, "nat"};
        out[NLL].column = nll;
        out[KL].column = kl;
    }
    return n;
}

static void on_full(struct probe_state *s, enum probe_full what, int layer, int32_t t, float value)
{
    static const int first[] = {[FULL_NLL] = NLL, [FULL_KL] = KL, [FULL_RESIDUAL] = RESIDUAL};
    float *out = probe_cells(s, first[what] + (what == FULL_RESIDUAL ? layer : 0), 0, 0);
    if (t < s->cfg->cap)
        out[t] = value;
}

const struct probe probe_shadow_model = {
    .name = "shadow-model",
    .summary = "NLL, KL and residual error compared with a run with a full cache",
    .shadow = "model",
    .wants = PROBE_SHADOW_MODEL,
    .arrays = arrays,
    .full = on_full,
};

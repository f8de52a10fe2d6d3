/* probe_shadow_model.c - the run beside a full-cache twin: NLL of each token under it, KL
 * of each step's distribution, and how far the residual streams part, layer by layer. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    int n_layers, cap;
    float *nll, *kl; /* [cap] */
    float *residual; /* [L][cap] */
};

static int n_columns(const struct probe_config *cfg)
{
    return 2 + cfg->shape.n_layers;
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    out[0] = (struct kvf_column){"shadow.nll", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, "nat"};
    out[1] = (struct kvf_column){"shadow.kl", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, "nat"};
    for (int l = 0; l < cfg->shape.n_layers; l++) {
        struct kvf_column *c = &out[2 + l];
        *c = (struct kvf_column){"", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""};
        snprintf(c->name, sizeof c->name, "shadow.residual_error.L%d", l);
    }
    return n_columns(cfg);
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->nll);
    mem_free(s->kl);
    mem_free(s->residual);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    struct state *s = MEM_NEW(struct state, 1);
    size_t cap = (size_t)cfg->cap, n = (size_t)cfg->shape.n_layers * cap;
    if (!s)
        return NULL;
    s->n_layers = cfg->shape.n_layers;
    s->cap = cfg->cap;
    s->nll = MEM_NEW(float, cap);
    s->kl = MEM_NEW(float, cap);
    s->residual = MEM_NEW(float, n);
    if (!s->nll || !s->kl || !s->residual) {
        destroy(s);
        return NULL;
    }
    for (size_t i = 0; i < cap; i++)
        s->nll[i] = s->kl[i] = NAN;
    for (size_t i = 0; i < n; i++)
        s->residual[i] = NAN;
    return s;
}

static void on_twin(void *state, enum probe_twin what, int layer, int32_t t, float value)
{
    struct state *s = state;
    size_t at = (size_t)layer * (size_t)s->cap + (size_t)t;
    if (t >= s->cap)
        return;
    float *column = what == TWIN_NLL ? s->nll : what == TWIN_KL ? s->kl : s->residual;
    column[what == TWIN_RESIDUAL ? at : (size_t)t] = value;
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    struct state *s = state;
    int err = probe_put(sink, 0, 0, 1, s->nll, 0, 4, t0, t1 - t0);
    if (!err)
        err = probe_put(sink, 1, 0, 1, s->kl, 0, 4, t0, t1 - t0);
    for (int l = 0; !err && l < s->n_layers; l++)
        err = probe_put(sink, 2 + l, 0, 1, s->residual + (size_t)l * (size_t)s->cap, 0, 4, t0,
                        t1 - t0);
    return err;
}

const struct probe probe_shadow_model = {
    .name = "shadow-model",
    .summary = "NLL, KL and residual error against a full-cache twin",
    .shadow = "model",
    .wants = PROBE_SHADOW_MODEL,
    .n_columns = n_columns,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .twin = on_twin,
    .stream = stream,
};

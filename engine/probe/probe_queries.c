/* probe_queries.c - query vectors of chosen heads, before or after RoPE. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/probe/probes.h"
#include "engine/probe/watch.h"

struct state {
    struct probe_config cfg;
    float *value; /* [heads][head_dim][cap]: a column of the trace is a row here */
};

static int n_columns(const struct probe_config *cfg)
{
    return cfg->watch ? cfg->watch->n_queries * cfg->shape.head_dim : 0;
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    int D = cfg->shape.head_dim;
    for (int i = 0; i < n_columns(cfg); i++) {
        const struct watch_head *at = &cfg->watch->query[i / D];
        out[i] = (struct kvf_column){"", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""};
        snprintf(out[i].name, sizeof out[i].name, "query.%s.L%dH%d.d%02d",
                 cfg->watch->turned ? "post" : "pre", at->layer, at->head, i % D);
    }
    return n_columns(cfg);
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->value);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)n_columns(cfg) * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->value = MEM_NEW(float, n);
    if (s->value)
        return s;
    destroy(s);
    return NULL;
}

static void on_queries(void *state, const struct probe_block *b)
{
    struct state *s = state;
    const struct watch *w = s->cfg.watch;
    size_t D = (size_t)s->cfg.shape.head_dim, cap = (size_t)s->cfg.cap;
    if (b->turned != w->turned)
        return;
    for (int k = 0; k < w->n_queries; k++) {
        if (w->query[k].layer != b->layer)
            continue;
        float *out = s->value + (size_t)k * D * cap + (size_t)b->t0;
        for (int t = 0; t < b->n; t++)
            for (size_t j = 0; j < D; j++)
                out[j * cap + (size_t)t] =
                    b->q[(size_t)t * b->ld + (size_t)w->query[k].head * D + j];
    }
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct state *s = state;
    int err = KVF_OK;
    for (int k = 0; !err && k < n_columns(&s->cfg); k++)
        err = probe_put(sink, k, 0, 1, s->value + (size_t)k * (size_t)s->cfg.cap, 0, 4, t0,
                        t1 - t0);
    return err;
}

const struct probe probe_queries = {
    .name = "queries",
    .summary = "query vectors of chosen heads",
    .wants = PROBE_QUERY,
    .by_name = true,
    .n_columns = n_columns,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .queries = on_queries,
    .stream = stream,
};

/* probe_gate.c - the number that trained gates gave every entry at birth. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    struct probe_config cfg;
    float *value; /* [L*H][cap] */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    if (!cfg->gate_column)
        return 0;
    out[0] = (struct kvf_column){"", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""};
    snprintf(out[0].name, sizeof out[0].name, "%s", cfg->gate_column);
    return 1;
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
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_kv_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    if (!cfg->gate_column)
        return s;
    s->value = MEM_NEW(float, n);
    for (size_t i = 0; s->value && i < n; i++)
        s->value[i] = NAN;
    if (s->value)
        return s;
    destroy(s);
    return NULL;
}

static void on_gate(void *state, int layer, int head, int32_t pos, float value)
{
    struct state *s = state;
    if (s->value)
        s->value[probe_kv_index(&s->cfg, layer, head) * (size_t)s->cfg.cap + (size_t)pos] = value;
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct state *s = state;
    const struct probe_array all = {0, s->value, 4};
    return probe_put_layers(sink, KVF_SPACE_KV, &all, s->value ? 1 : 0, t0, t1 - t0);
}

const struct probe probe_gate = {
    .name = "gate",
    .summary = "retention, write gate or importance of every entry, where the run has gates",
    .wants = PROBE_GATE,
    .lean = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .gate = on_gate,
    .stream = stream,
};

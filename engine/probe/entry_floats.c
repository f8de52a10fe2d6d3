#include <math.h>

#include "base/mem.h"
#include "engine/probe/entry_floats.h"
#include "engine/probe/probes.h"

void entry_floats_destroy(void *state)
{
    struct entry_floats *s = state;
    if (!s)
        return;
    mem_free(s->value);
    mem_free(s);
}

void *entry_floats_create(const struct probe_config *cfg, bool wanted)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_kv_heads * (size_t)cfg->cap;
    struct entry_floats *s = MEM_NEW(struct entry_floats, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    if (!wanted)
        return s;
    s->value = MEM_NEW(float, n);
    for (size_t i = 0; s->value && i < n; i++)
        s->value[i] = NAN;
    if (s->value)
        return s;
    entry_floats_destroy(s);
    return NULL;
}

void entry_floats_set(struct entry_floats *s, int layer, int head, int32_t pos, float value)
{
    if (s->value)
        s->value[probe_kv_index(&s->cfg, layer, head) * (size_t)s->cfg.cap + (size_t)pos] = value;
}

int entry_floats_stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct entry_floats *s = state;
    const struct probe_array all = {0, s->value, 4};
    return probe_put_layers(sink, KVF_SPACE_KV, &all, s->value ? 1 : 0, t0, t1 - t0);
}

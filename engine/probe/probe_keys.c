/* probe_keys.c - the length of every key as the cache holds it.  RoPE turns pairs of
 * numbers, which leaves the length as it was. */
#include <math.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    struct probe_config cfg;
    float *norm; /* [L*H][cap] */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    (void)cfg;
    out[0] = (struct kvf_column){"key_norm", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""};
    return 1;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->norm);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_kv_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->norm = MEM_NEW(float, n);
    for (size_t i = 0; s->norm && i < n; i++)
        s->norm[i] = NAN;
    if (s->norm)
        return s;
    destroy(s);
    return NULL;
}

static void on_key(void *state, int layer, int head, int32_t pos, const float *key)
{
    struct state *s = state;
    double square = 0;
    for (int d = 0; d < s->cfg.shape.head_dim; d++)
        square += (double)key[d] * (double)key[d];
    s->norm[probe_kv_index(&s->cfg, layer, head) * (size_t)s->cfg.cap + (size_t)pos] =
        (float)sqrt(square);
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct state *s = state;
    const struct probe_array all = {0, s->norm, 4};
    return probe_put_layers(sink, KVF_SPACE_KV, &all, 1, t0, t1 - t0);
}

const struct probe probe_keys = {
    .name = "keys",
    .summary = "length of every key as the cache holds it",
    .wants = PROBE_KEY,
    .full_only = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .key = on_key,
    .stream = stream,
};

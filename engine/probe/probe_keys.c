/* probe_keys.c - the length of every key as the cache holds it.  RoPE turns pairs of
 * numbers, which leaves the length as it was. */
#include <math.h>

#include "engine/probe/entry_floats.h"
#include "engine/probe/probes.h"

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    (void)cfg;
    out[0] = (struct kvf_column){"key_norm", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""};
    return 1;
}

static void *create(const struct probe_config *cfg)
{
    return entry_floats_create(cfg, true);
}

static void on_key(void *state, int layer, int head, int32_t pos, const float *key)
{
    struct entry_floats *s = state;
    double square = 0;
    for (int d = 0; d < s->cfg.shape.head_dim; d++)
        square += (double)key[d] * (double)key[d];
    entry_floats_set(s, layer, head, pos, (float)sqrt(square));
}

const struct probe probe_keys = {
    .name = "keys",
    .summary = "length of every key as the cache holds it",
    .wants = PROBE_KEY,
    .full_only = true,
    .columns = columns,
    .create = create,
    .destroy = entry_floats_destroy,
    .key = on_key,
    .stream = entry_floats_stream,
};

/* probe_keys.c - the length of every cached key. RoPE does not change it, because it rotates pairs
 * of channels. */
#include <math.h>

#include "engine/probe/probes.h"

static const struct probe_array arrays[] = {
    {.column = {"key_norm", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""}, .start = PROBE_NAN},
};

static void on_key(struct probe_state *s, int layer, int head, int32_t pos, const float *key)
{
    float *norm = probe_cells(s, 0, layer, head);
    double square = 0;
    for (int d = 0; d < s->cfg->shape.head_dim; d++)
        square += (double)key[d] * (double)key[d];
    norm[pos] = (float)sqrt(square);
}

const struct probe probe_keys = {
    .name = "keys",
    .summary = "norm of every cached key",
    .wants = PROBE_KEY,
    .full_only = true,
    .in_auto = AUTO_CPU,
    PROBE_ARRAYS(arrays),
    .key = on_key,
};

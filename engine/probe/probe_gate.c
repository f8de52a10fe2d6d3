/* probe_gate.c - the number that trained gates gave every entry at birth. */
#include <stdio.h>

#include "engine/probe/entry_floats.h"
#include "engine/probe/probes.h"

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    if (!cfg->gate_column)
        return 0;
    out[0] = (struct kvf_column){"", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""};
    snprintf(out[0].name, sizeof out[0].name, "%s", cfg->gate_column);
    return 1;
}

static void *create(const struct probe_config *cfg)
{
    return entry_floats_create(cfg, cfg->gate_column);
}

static void on_gate(void *state, int layer, int head, int32_t pos, float value)
{
    entry_floats_set(state, layer, head, pos, value);
}

const struct probe probe_gate = {
    .name = "gate",
    .summary = "retention, write gate or importance of every entry, where the run has gates",
    .wants = PROBE_GATE,
    .lean = true,
    .columns = columns,
    .create = create,
    .destroy = entry_floats_destroy,
    .gate = on_gate,
    .stream = entry_floats_stream,
};

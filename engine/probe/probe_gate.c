/* probe_gate.c - the gate value of every entry at birth. */
#include <stdio.h>

#include "engine/probe/probes.h"

/* No column if the run has no gates. */
static int arrays(const struct probe_config *cfg, struct probe_array *out)
{
    if (!cfg->gate_column)
        return 0;
    if (out) {
        *out = (struct probe_array){.column = {"", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""},
                                    .start = PROBE_NAN};
        snprintf(out->column.name, sizeof out->column.name, "%s", cfg->gate_column);
    }
    return 1;
}

static void on_gate(struct probe_state *s, int layer, int head, int32_t pos, float value)
{
    if (s->n_arrays)
        ((float *)probe_cells(s, 0, layer, head))[pos] = value;
}

const struct probe probe_gate = {
    .name = "gate",
    .summary = "gate value of every entry: retention, write gate or importance",
    .wants = PROBE_GATE,
    .lean = true,
    .arrays = arrays,
    .gate = on_gate,
};

/* probe_read.c - how often the page of an entry was read, if queries read selected pages. */
#include "engine/probe/probes.h"

static int arrays(const struct probe_config *cfg, struct probe_array *out)
{
    const struct kvf_column count = {"read.count",   KVF_U32,          KVF_SPACE_QUERY,
                                     KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "queries"};
    if (cfg->reads && out)
        *out = (struct probe_array){.column = count};
    return cfg->reads ? 1 : 0;
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    if (!s->n_arrays || !row->stepping)
        return;
    uint32_t *count = probe_cells(s, 0, row->layer, row->head);
    for (int i = 0; i < row->n; i++)
        count[row->pos ? row->pos[i] : i]++;
}

const struct probe probe_read = {
    .name = "read",
    .summary = "number of queries that read the entry, for methods that read pages",
    .wants = PROBE_ROWS,
    .arrays = arrays,
    .row = on_row,
};

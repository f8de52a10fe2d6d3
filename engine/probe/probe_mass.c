/* probe_mass.c - attention that each token received: sum and maximum. */
#include "engine/probe/probes.h"

enum { SUM, MAX };
static const struct probe_array arrays[] = {
    [SUM] = {.column = {"mass.sum", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
             .kept = PROBE_AS_DOUBLE},
    [MAX] = {.column = {"mass.max", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT,
                        ""}},
};

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    if (row->gathered)
        return;
    double *sum = probe_cells(s, SUM, row->layer, row->head);
    float *max = probe_cells(s, MAX, row->layer, row->head);
    if (!row->pos) {
        s->cfg->kernels->mass_add(sum, max, row->p, row->n);
        return;
    }
    for (int i = 0; i < row->n; i++) {
        sum[row->pos[i]] += (double)row->p[i];
        if (row->p[i] > max[row->pos[i]])
            max[row->pos[i]] = row->p[i];
    }
}

static void on_rows(struct probe_state *s, const struct probe_rows *rows)
{
    double *sum = probe_cells(s, SUM, rows->layer, rows->head);
    s->cfg->kernels->mass_add_rows(sum, probe_cells(s, MAX, rows->layer, rows->head), &rows->w);
}

const struct probe probe_mass = {
    .name = "mass",
    .summary = "attention received by each token: sum and maximum",
    .wants = PROBE_ROWS,
    PROBE_ARRAYS(arrays),
    .row = on_row,
    .rows = on_rows,
};

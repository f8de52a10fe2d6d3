/* probe_steps.c - per query: log-sum-exp of the logits and entropy of the weights. */
#include "engine/probe/probes.h"

enum { LSE, ENTROPY };
static const struct probe_array arrays[] = {
    [LSE] = {.column = {"lse", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, "nat"}},
    [ENTROPY] = {.column = {"entropy", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, "nat"}},
};

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    float *lse = probe_cells(s, LSE, row->layer, row->head);
    float *entropy = probe_cells(s, ENTROPY, row->layer, row->head);
    lse[row->t] = row->lse;
    entropy[row->t] = row->entropy;
}

const struct probe probe_steps = {
    .name = "steps",
    .summary = "log-sum-exp and entropy of every query's attention",
    .wants = PROBE_ROWS,
    PROBE_ARRAYS(arrays),
    .row = on_row,
};

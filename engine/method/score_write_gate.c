/* score_write_gate.c - the write gate of an entry (WG-KV). */
#include "engine/method/parts.h"

void score_gate_number(const struct score_input *in, float *out, float *scratch)
{
    const float *g = evidence_gate(in->m, in->layer, in->head);
    (void)scratch;
    for (int i = 0; i < in->view.n; i++)
        out[i] = g[i];
}

float score_gate_one(const struct score_input *in, int slot)
{
    return evidence_gate(in->m, in->layer, in->head)[slot];
}

const struct score score_write_gate = {
    .name = "write-gate",
    .summary = "write gate of the entry",
    .cost = "n",
    .evidence = EVIDENCE_GATE,
    .gates = 1u << GATE_WRITE,
    .calibrated = true,
    .eval = score_gate_number,
    .one = score_gate_one,
};

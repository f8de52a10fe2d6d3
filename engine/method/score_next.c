/* score_next.c - an oracle: the attention that the newest query of a full-cache run gives; that
 * run is fed the same tokens and is one query ahead. */
#include "engine/method/parts.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    int g0, n_group;
    (void)scratch;
    method_group(in->m, in->head, &g0, &n_group);
    for (int i = 0; i < in->view.n; i++) {
        float sum = 0;
        for (int g = g0; g < g0 + n_group; g++)
            sum += evidence_full_row(in->m, in->layer, g)[in->view.pos[i]];
        out[i] = sum / (float)n_group;
    }
}

const struct score score_next = {
    .name = "next-attention",
    .cost = "g n",
    .summary = "attention of the newest query in a run with a full cache (oracle)",
    .evidence = EVIDENCE_FULL,
    .calibrated = true,
    .eval = eval};

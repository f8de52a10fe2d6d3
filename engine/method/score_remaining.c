/* score_remaining.c - an oracle: the attention that a full-cache run, which is fed the same
 * tokens and runs one query ahead, will still give. */
#include "engine/method/parts.h"

/* sum_g (total_g - received so far): the attention that queries from t on will give. */
static void eval(const struct score_input *in, float *out, float *scratch)
{
    const struct method_inputs *given = method_inputs_of(in->m);
    int g0, n_group, G = method_shape_of(in->m)->n_heads;
    (void)scratch;
    method_group(in->m, in->head, &g0, &n_group);
    for (int i = 0; i < in->view.n; i++) {
        int32_t pos = in->view.pos[i];
        double left = 0;
        for (int g = g0; g < g0 + n_group; g++) {
            size_t at = ((size_t)in->layer * (size_t)G + (size_t)g) * (size_t)given->plan_len;
            double total = pos < given->plan_len ? given->plan_mass[at + (size_t)pos] : 0;
            double last = in->incoming ? (double)evidence_full_row(in->m, in->layer, g)[pos] : 0;
            left += total - (evidence_full_sum(in->m, in->layer, g)[pos] - last);
        }
        out[i] = (float)left;
    }
}

const struct score score_remaining = {
    .name = "remaining-mass",
    .cost = "g n",
    .summary = "future attention in a run with a full cache (oracle)",
    .evidence = EVIDENCE_FULL,
    .calibrated = true,
    .needs_mass = true,
    .eval = eval};

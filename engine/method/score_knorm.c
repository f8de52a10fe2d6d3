/* score_knorm.c - short keys are kept (Devoto et al. 2024): S_j = -|k_j|. */
#include "engine/method/parts.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const float *norm = evidence_norms(in->m, in->layer, in->head);
    (void)scratch;
    for (int i = 0; i < in->view.n; i++)
        out[i] = -norm[i];
}

static float one(const struct score_input *in, int slot)
{
    return -evidence_norms(in->m, in->layer, in->head)[slot];
}

const struct score score_knorm = {
    .name = "key-norm",
    .cost = "n",
    .summary = "negative norm of the key",
    .evidence = EVIDENCE_NORMS,
    .eval = eval,
    .one = one,
};

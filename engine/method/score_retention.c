/* score_retention.c - the retention that a trained gate foretold (TRIM-KV, DBTrimKV). */
#include <math.h>

#include "engine/method/parts.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    const float *b = evidence_gate(in->m, in->layer, in->head);
    const int32_t *pos = in->view.pos, from = in->t - 1 + p->offset;
    double *c = evidence_note(in->m, in->layer, in->head);
    (void)scratch;
    for (int i = in->view.n - 1; i >= 0; i--)
        if (isnan(c[i]))
            c[i] = formula_retention_sum((double)b[i], p->lookahead);
    for (int i = 0; i < in->view.n; i++)
        out[i] = formula_retention(from - pos[i], (double)b[i], c[i]);
}

static float one(const struct score_input *in, int slot)
{
    const struct method_params *p = method_params_of(in->m);
    double b = (double)evidence_gate(in->m, in->layer, in->head)[slot];
    double *c = &evidence_note(in->m, in->layer, in->head)[slot];
    int32_t age = in->t - 1 + p->offset - in->view.pos[slot];
    if (isnan(*c))
        *c = formula_retention_sum(b, p->lookahead);
    return formula_retention(age, b, *c);
}

const struct score score_retention = {
    .name = "retention",
    .cost = "n",
    .summary = "log of the retention beta^age at the next queries",
    .evidence = EVIDENCE_GATE | EVIDENCE_NOTE,
    .uses = USES_RETENTION,
    .gates = 1u << GATE_RETENTION,
    .calibrated = true,
    .eval = eval,
    .one = one,
    .falls = true};

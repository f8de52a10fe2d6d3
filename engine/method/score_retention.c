/* score_retention.c - the retention that a trained gate foretold (TRIM-KV, DBTrimKV). */
#include <math.h>

#include "engine/method/parts.h"

/* log sum_{k < N} beta^(e + k) = e b + c for b = log beta <= 0:
 * c = log((1 - e^{N b}) / (1 - e^b)); at b = 0 it is log N.  It is noted at birth. */
static double retention_sum(double b, int N)
{
    if (N == 1)
        return isnan(b) ? b : 0;
    if (b > -1e-12) /* relative error of log N below 1e-7 */
        return log(N);
    return log(expm1(N * b) / expm1(b));
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    const float *b = evidence_gate(in->m, in->layer, in->head);
    const int32_t *pos = in->view.pos, from = in->t - 1 + p->offset;
    double *c = evidence_note(in->m, in->layer, in->head);
    (void)scratch;
    for (int i = in->view.n - 1; i >= 0; i--)
        if (isnan(c[i]))
            c[i] = retention_sum((double)b[i], p->lookahead);
    for (int i = 0; i < in->view.n; i++) {
        int32_t age = from - pos[i]; /* beta^0 = 1, for beta = 0 too */
        out[i] = (float)(age == 0 ? c[i] : (double)age * (double)b[i] + c[i]);
    }
}

static float one(const struct score_input *in, int slot)
{
    const struct method_params *p = method_params_of(in->m);
    double b = (double)evidence_gate(in->m, in->layer, in->head)[slot];
    double *c = &evidence_note(in->m, in->layer, in->head)[slot];
    int32_t age = in->t - 1 + p->offset - in->view.pos[slot];
    if (isnan(*c))
        *c = retention_sum(b, p->lookahead);
    return (float)(age == 0 ? *c : (double)age * b + *c);
}

const struct score score_retention = {
    .name = "retention",
    .cost = "n",
    .summary = "log of the retention beta^age that the next queries would see",
    .evidence = EVIDENCE_GATE | EVIDENCE_NOTE,
    .uses = USES_RETENTION,
    .gates = 1u << GATE_RETENTION,
    .calibrated = true,
    .eval = eval,
    .one = one,
    .falls = true};

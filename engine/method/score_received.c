/* score_received.c - attention an entry has received from all queries so far:
 * S_j = sum_i a_ij (H2O, Zhang et al. 2023), reduced over the query heads that
 * read the entry. */
#include <math.h>

#include "engine/method/scores.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    (void)scratch;
    const struct method_params *p = method_params_of(in->m);
    int g0, n;
    method_group(in->m, in->head, &g0, &n);
    for (int i = 0; i < in->view.n; i++) {
        double s = p->group == GROUP_MAX ? -INFINITY : 0;
        for (int g = g0; g < g0 + n; g++) {
            double v = evidence_sum(in->m, in->layer, g)[i];
            s = p->group == GROUP_MAX ? fmax(s, v) : s + v;
        }
        out[i] = (float)(p->group == GROUP_MEAN ? s / n : s);
    }
}

const struct score score_received = {
    .name = "received",
    .summary = "attention received from all queries so far",
    .evidence = EVIDENCE_SUM,
    .uses = USES_GROUP,
    .eval = eval,
};

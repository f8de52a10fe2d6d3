/* score_received.c - attention an entry has received from all queries so far:
 * S_j = sum_i a_ij (H2O, Zhang et al. 2023), reduced over the query heads that
 * read the entry. */
#include "engine/method/parts.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    (void)scratch;
    const struct method_params *p = method_params_of(in->m);
    int g0, n_group;
    method_group(in->m, in->head, &g0, &n_group);
    const double *sum = evidence_sum(in->m, in->layer, g0);
    size_t ld = n_group > 1 ? (size_t)(evidence_sum(in->m, in->layer, g0 + 1) - sum) : 0;
    method_kernels(in->m)->reduce_sums(out, sum, ld, n_group, in->view.n, p->group == GROUP_MAX,
                                       p->group == GROUP_MEAN ? n_group : 1);
    for (int i = 0; i < in->view.n && p->divide == DIVIDE_QUERIES; i++)
        out[i] /= (float)(in->t - in->view.pos[i]); /* its own query and all since */
}

const struct score score_received = {
    .name = "received",
    .cost = "g n",
    .summary = "attention received from all queries so far",
    .evidence = EVIDENCE_SUM,
    .uses = USES_GROUP | USES_DIVIDE,
    .eval = eval,
};

/* score_received.c - attention an entry has received from all queries so far:
 * S_j = sum_i a_ij (H2O, Zhang et al. 2023), reduced over the query heads that
 * read the entry. */
#include <string.h>

#include "engine/method/scores.h"

enum { BLOCK = 256 }; /* slots whose sums stay in the nearest cache */

static void take(double *s, const double *v, int n, bool first, bool max)
{
    if (first)
        memcpy(s, v, (size_t)n * sizeof *s);
    else if (max)
        for (int i = 0; i < n; i++)
            s[i] = v[i] > s[i] ? v[i] : s[i];
    else
        for (int i = 0; i < n; i++)
            s[i] += v[i];
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    (void)scratch;
    const struct method_params *p = method_params_of(in->m);
    int g0, n_group, n = in->view.n;
    double s[BLOCK];
    method_group(in->m, in->head, &g0, &n_group);
    double divisor = p->group == GROUP_MEAN ? n_group : 1;
    for (int i0 = 0; i0 < n; i0 += BLOCK) {
        int m = n - i0 < BLOCK ? n - i0 : BLOCK;
        for (int g = g0; g < g0 + n_group; g++)
            take(s, evidence_sum(in->m, in->layer, g) + i0, m, g == g0, p->group == GROUP_MAX);
        for (int i = 0; i < m; i++)
            out[i0 + i] = (float)(s[i] / divisor);
    }
}

const struct score score_received = {
    .name = "received",
    .cost = "g n",
    .summary = "attention received from all queries so far",
    .evidence = EVIDENCE_SUM,
    .uses = USES_GROUP,
    .eval = eval,
};

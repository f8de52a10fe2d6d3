/* score_below.c - how often an entry fell below an even share (Scissorhands, Liu
 * et al. 2023): S_j = - #{t in W, t >= j : mean_g a_tj < 1 / n_t}. */
#include <string.h>

#include "engine/method/parts.h"

static void count_row(const struct score_input *in, int age, int g0, int n_group, float *row,
                      float *out)
{
    int32_t t;
    int seen, n = in->view.n;
    for (int g = g0; g < g0 + n_group; g++) {
        const float *a = evidence_row(in->m, in->layer, g, age, &t, &seen);
        if (g == g0)
            memcpy(row, a, (size_t)n * sizeof *row);
        for (int i = 0; g > g0 && i < n; i++)
            row[i] += a[i];
    }
    const int32_t *pos = in->view.pos;
    for (int i = 0; i < n; i++)
        out[i] -= (float)((pos[i] <= t) & formula_below_even(row[i], n_group, seen));
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    int g0, n_group;
    method_group(in->m, in->head, &g0, &n_group);
    for (int i = 0; i < in->view.n; i++)
        out[i] = 0;
    for (int w = 0; w < evidence_rows(in->m, in->layer, g0); w++)
        count_row(in, w, g0, n_group, scratch, out);
}

const struct score score_below = {
    .name = "below-even",
    .cost = "g w n",
    .summary = "how rarely the attention was below uniform in the last w queries",
    .evidence = EVIDENCE_WINDOW,
    .uses = USES_WINDOW,
    .eval = eval,
};

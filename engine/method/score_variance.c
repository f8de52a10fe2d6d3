/* score_variance.c - mean and spread of the attention from the last w queries
 * (CAKE, Qin et al. 2025): S_j = mean_g pool( mean_t a_tj + gamma Var_t a_tj ),
 * unbiased variance. */
#include "engine/method/scores.h"
#include "engine/method/window.h"

enum { BLOCK = 256 }; /* slots whose sums stay in the nearest cache */

/* v[slot] of one query head.  Sums in double: the variance is a difference, and what
 * cancels is far below the mean that it is added to. */
static void one_head(const struct score_input *in, int g, float *v)
{
    double gamma = method_params_of(in->m)->gamma, sum[BLOCK], square[BLOCK];
    float a[BLOCK];
    int rows = evidence_rows(in->m, in->layer, g), n = in->view.n;
    for (int i0 = 0; i0 < n; i0 += BLOCK) {
        int m = n - i0 < BLOCK ? n - i0 : BLOCK;
        for (int i = 0; i < m; i++)
            sum[i] = square[i] = 0;
        for (int w = rows - 1; w >= 0; w--) {
            window_row(in, g, w, i0, m, a);
            for (int i = 0; i < m; i++) {
                sum[i] += (double)a[i];
                square[i] += (double)a[i] * (double)a[i];
            }
        }
        for (int i = 0; i < m; i++) {
            double mean = rows ? sum[i] / rows : 0;
            double var = rows > 1 ? (square[i] - sum[i] * mean) / (rows - 1) : 0;
            v[i0 + i] = (float)(mean + gamma * (var > 0 ? var : 0));
        }
    }
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    int g0, n_group, n = in->view.n;
    float *v = scratch + 2 * n;
    method_group(in->m, in->head, &g0, &n_group);
    for (int i = 0; i < n; i++)
        out[i] = 0;
    for (int g = g0; g < g0 + n_group; g++) {
        one_head(in, g, v);
        window_pool_candidates(in, v, scratch);
        for (int i = 0; i < n; i++)
            out[i] += v[i];
    }
    for (int i = 0; i < n; i++)
        out[i] /= (float)n_group;
}

const struct score score_variance = {
    .name = "variance-attention",
    .cost = "g w n",
    .summary = "mean plus gamma times the variance of the attention from the last w queries",
    .evidence = EVIDENCE_WINDOW,
    .uses = USES_WINDOW | USES_POOL | USES_GAMMA,
    .eval = eval,
};

/* score_variance.c - mean and spread of the attention from the last w queries
 * (CAKE, Qin et al. 2025): S_j = mean_g pool( mean_t a_tj + gamma Var_t a_tj ),
 * unbiased variance. */
#include "engine/method/scores.h"
#include "engine/method/window.h"

/* v[slot] of one query head; sums in double, since the variance is a difference. */
static void one_head(const struct score_input *in, int g, float *v)
{
    double gamma = method_params_of(in->m)->gamma;
    int rows = evidence_rows(in->m, in->layer, g);
    for (int i = 0; i < in->view.n; i++) {
        double sum = 0, square = 0;
        for (int w = rows - 1; w >= 0; w--)
            sum += (double)evidence_row(in->m, in->layer, g, w, NULL, NULL)[i];
        double mean = rows ? sum / rows : 0;
        for (int w = rows - 1; w >= 0; w--) {
            double d = (double)evidence_row(in->m, in->layer, g, w, NULL, NULL)[i] - mean;
            square += d * d;
        }
        v[i] = (float)(mean + gamma * (rows > 1 ? square / (rows - 1) : 0));
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
    .summary = "mean plus gamma times the variance of the attention from the last w queries",
    .evidence = EVIDENCE_WINDOW,
    .uses = USES_WINDOW | USES_POOL | USES_GAMMA,
    .eval = eval,
};

/* allocation_cake.c - layers share the budget by the preference of their attention (CAKE). */
#include <math.h>

#include "engine/method/parts.h"

static double weight(const struct score_input *in, int g, int age, int slot)
{
    int32_t t;
    const float *a = evidence_row(in->m, in->layer, g, age, &t, NULL);
    return in->view.pos[slot] <= t ? (double)a[slot] : 0;
}

/* Entropy and variance of one query head's window over its candidates. */
static void add_preference(const struct score_input *in, int g, double *entropy, double *variance)
{
    int rows = evidence_rows(in->m, in->layer, g), sinks = method_params_of(in->m)->sinks;
    for (int i = 0; i < in->view.n; i++) {
        int slot = in->view.order[i];
        double sum = 0, square = 0;
        if (in->view.pos[slot] < sinks || in->view.pos[slot] >= in->recent_from)
            continue;
        for (int w = 0; w < rows; w++) {
            double a = weight(in, g, w, slot);
            *entropy -= a * log(a + 1e-10);
            sum += a;
        }
        for (int w = 0; w < rows; w++) {
            double d = weight(in, g, w, slot) - sum / rows;
            square += d * d;
        }
        *variance += rows > 1 ? square / (rows - 1) : 0;
    }
}

/* P_l = entropy * variance of the layer's window (CAKE, Qin et al. 2025). */
static void weights(const struct method_state *m, const struct cache *c, int32_t reach,
                    int32_t recent_from, double *x)
{
    (void)reach;
    const struct method_shape *s = method_shape_of(m);
    for (int l = 0; l < s->n_layers; l++) {
        double entropy = 0, variance = 0;
        for (int g = 0; g < s->n_heads; g++) {
            int h = g / (s->n_heads / s->n_kv_heads);
            struct score_input in = {m, c, l, h, cache_view(c, l, h), recent_from, 0, 0};
            if (method_owns(m, l, h))
                add_preference(&in, g, &entropy, &variance);
        }
        x[l] = entropy > 0 ? entropy * variance : 0;
    }
}

const struct allocation allocation_cake = {
    .name = "cake",
    .summary = "layer budgets by entropy and variance of attention",
    .evidence = EVIDENCE_WINDOW,
    .weights = weights};

/* score_variance.c - mean and spread of the attention from the last w queries
 * (CAKE, Qin et al. 2025): S_j = mean_g pool( mean_t a_tj + gamma Var_t a_tj ),
 * unbiased variance. */
#include "engine/method/parts.h"
#include "engine/method/state.h"
#include "engine/method/window.h"

enum { BLOCK = 512 }; /* slots whose sums stay in the nearest cache */

/* v[slot] += the score of one query head.  The sums of the weights and of their squares are stored
 * in whole units.  So they are exact and do not depend on their order, and subtracting a query
 * leaves no rounding error. */
static void one_head(const struct score_input *in, int g, const struct window_turn *turn, float *v)
{
    const struct kernels *k = method_kernels(in->m);
    size_t cap = (size_t)in->m->evidence.cap, ring = (size_t)in->m->evidence.ring;
    int rows = evidence_rows(in->m, in->layer, g), n = in->view.n;
    int64_t *square, *sum = evidence_spread(&in->m->evidence, in->layer, g, &square);
    for (int i0 = 0; i0 < n; i0 += BLOCK) {
        int m = n - i0 < BLOCK ? n - i0 : BLOCK;
        for (int i = i0; turn->afresh && i < i0 + m; i++)
            sum[i] = square[i] = 0;
        for (int w = 0; w < turn->n_enter; w++) {
            struct window_pair p = window_pair(in, g, w, turn->leaves);
            p.in += i0;
            p.out += i0;
            k->slide_spread(sum + i0, square + i0, &p, in->view.pos + i0, m, ring * cap, 2 * cap);
        }
        k->spread(v + i0, sum + i0, square + i0, m, rows, method_params_of(in->m)->gamma);
    }
}

/* Pooling by the average is linear: the group comes first. */
static bool pools_once(const struct score_input *in)
{
    return method_params_of(in->m)->pool_kind == POOL_AVG;
}

/* Sums the scores of the group's heads, each pooled first if necessary. */
static void sum_group(const struct score_input *in, float *out, float *scratch)
{
    bool once = pools_once(in);
    int g0, n_group, n = in->view.n, *known;
    float *v = once ? out : scratch + 2 * n;
    method_group(in->m, in->head, &g0, &n_group);
    evidence_recent(&in->m->evidence, in->layer, in->head, &known);
    const struct window_turn turn = window_turn(in, g0, *known);
    for (int i = 0; i < n; i++)
        out[i] = 0;
    for (int g = g0; g < g0 + n_group; g++) {
        for (int i = 0; !once && i < n; i++)
            v[i] = 0;
        one_head(in, g, &turn, v);
        if (!once)
            window_pool_candidates(in, v, scratch);
        for (int i = 0; !once && i < n; i++)
            out[i] += v[i];
    }
    *known = turn.taken;
}

static void divide(const struct score_input *in, float *out, int n)
{
    int g0, n_group;
    method_group(in->m, in->head, &g0, &n_group);
    for (int i = 0; i < n; i++)
        out[i] /= (float)n_group;
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    sum_group(in, out, scratch);
    if (pools_once(in))
        window_pool_candidates(in, out, scratch);
    divide(in, out, in->view.n);
}

static void eval_ranks(const struct score_input *in, float *out, float *scratch)
{
    float *v = scratch, *rest = scratch + in->view.n;
    sum_group(in, v, rest);
    int m = pools_once(in) ? window_pool_ranks(in, v, out, rest) : window_ranks(in, v, out);
    divide(in, out, m);
}

const struct score score_variance = {
    .name = "variance-attention",
    .cost = "g n",
    .summary = "mean plus gamma times the variance of the attention from the last w queries",
    .evidence = EVIDENCE_WINDOW | EVIDENCE_SPREAD,
    .uses = USES_WINDOW | USES_POOL | USES_GAMMA,
    .eval = eval,
    .eval_ranks = eval_ranks,
};

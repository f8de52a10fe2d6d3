/* score_window.c - attention from the last w queries (SnapKV, Li et al. 2024;
 * TOVA, Oren et al. 2024 is w = 1 without pooling; MorphKV, Ghadia et al. 2025
 * takes the maximum over the window). */
#include "engine/method/parts.h"
#include "engine/method/window.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    window_reduce(in, out, scratch);
    window_pool_candidates(in, out, scratch);
}

static void eval_ranks(const struct score_input *in, float *out, float *scratch)
{
    float *v = scratch, *rest = scratch + in->view.n;
    window_reduce(in, v, rest);
    window_pool_ranks(in, v, out, rest);
}

const struct score score_window = {
    .name = "window-attention",
    .cost = "g n",
    .cost_rows = "g w n",
    .summary = "attention from the last w queries, pooled over neighbours",
    .evidence = EVIDENCE_WINDOW,
    .uses = USES_WINDOW | USES_POOL | USES_GROUP | USES_ACROSS,
    .peaks = true,
    .eval = eval,
    .eval_ranks = eval_ranks,
};

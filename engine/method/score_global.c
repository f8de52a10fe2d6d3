/* score_global.c - the global score without other terms (G-KV, 2025, equations 2 to 5; with
 * pooling: SnapKV with the global score, its appendix D): the attention from the last w queries,
 * divided by its largest, folded into what was remembered from cut to cut; pooled when it is used.
 */
#include "engine/method/history.h"
#include "engine/method/parts.h"
#include "engine/method/window.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    window_reduce(in, out, scratch);
    history_normalise(in, out);
    history_fold(in, out);
    window_pool_candidates(in, out, scratch);
}

const struct score score_global = {
    .name = "global-attention",
    .cost = "g n",
    .cost_rows = "g w n",
    .summary = "attention from the last w queries, accumulated over evictions",
    .evidence = EVIDENCE_WINDOW | EVIDENCE_HISTORY,
    .uses = USES_WINDOW | USES_POOL | USES_GROUP | USES_ACROSS | USES_HISTORY,
    .eval = eval,
};

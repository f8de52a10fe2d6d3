/* admission_plan.c - entries are evicted at the steps of a plan, the evict steps of an earlier run.
 */
#include "engine/method/parts.h"

static int32_t until(const struct method_state *m, int layer, int head, int32_t pos, float gate)
{
    const struct method_inputs *in = method_inputs_of(m);
    size_t at = (size_t)layer * (size_t)method_shape_of(m)->n_kv_heads + (size_t)head;
    (void)gate;
    return pos < in->plan_len ? in->plan_until[at * (size_t)in->plan_len + (size_t)pos]
                              : NEVER_EXPIRES;
}

const struct admission admission_plan = {.name = "plan",
                                         .summary = "evicts entries at the steps of a plan file",
                                         .reason = KVF_REASON_PLAN,
                                         .until = until};

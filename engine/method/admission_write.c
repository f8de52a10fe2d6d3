/* admission_write.c - write gates decide which entries stay (WG-KV). */
#include "engine/method/parts.h"

/* WG-KV: an entry is admitted by its gate value, or else seen by the next W - 1 queries too. */
static int32_t until(const struct method_state *m, int layer, int head, int32_t pos, float gate)
{
    const struct method_params *p = method_params_of(m);
    bool in = admission_passes(gate, p->tau, p->compare == COMPARE_GT);
    (void)layer, (void)head;
    return in ? NEVER_EXPIRES : admission_after(pos, p->local);
}

static void judge(const struct method_state *m, float gate, float *ret_score, float *ret_margin)
{
    *ret_score = gate;
    *ret_margin = (float)(method_params_of(m)->tau - (double)gate);
}

const struct admission admission_write = {
    .name = "write-gate",
    .summary = "the write gate admits the entry, or it is evicted after W queries",
    .uses = USES_LOCAL | USES_TAU,
    .gates = 1u << GATE_WRITE,
    .reason = KVF_REASON_REFUSED,
    .until = until,
    .judge = judge};

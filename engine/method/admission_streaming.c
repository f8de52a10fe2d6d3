/* admission_streaming.c - sinks and a sliding window, in the prompt as well. */
#include "engine/method/parts.h"

int32_t admission_until_streaming(const struct method_state *m, int layer, int head, int32_t pos,
                                  float gate)
{
    const struct method_params *p = method_params_of(m);
    (void)layer, (void)head, (void)gate;
    return pos < p->sinks ? NEVER_EXPIRES : admission_after(pos, p->recent);
}

const struct admission admission_streaming = {
    .name = "streaming",
    .summary = "sinks and a sliding window, also during the prefill",
    .uses = USES_SPANS,
    .reason = KVF_REASON_WINDOW,
    .until = admission_until_streaming};

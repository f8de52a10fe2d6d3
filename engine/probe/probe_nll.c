/* probe_nll.c - -ln p(token i | preceding tokens), from the logits of query i - 1; NaN for the
 * first token. */
#include "engine/probe/probes.h"

static const struct probe_array arrays[] = {
    {.column = {"nll", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, "nat"}, .start = PROBE_NAN},
};

static void on_nll(struct probe_state *s, int32_t t, float value)
{
    ((float *)probe_cells(s, 0, 0, 0))[t] = value;
}

const struct probe probe_nll = {
    .name = "nll",
    .summary = "negative log-likelihood of every token",
    .wants = PROBE_NLL,
    PROBE_ARRAYS(arrays),
    .nll = on_nll,
};

/* probe_nll.c - -ln p(token i | tokens before it), from the logits of query
 * i - 1; NaN for the first token. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    (void)cfg;
    out[0] = (struct kvf_column){"nll", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, "nat"};
    return 1;
}

static void *create(const struct probe_config *cfg)
{
    float *nll = MEM_NEW(float, (size_t)cfg->cap);
    for (int i = 0; nll && i < cfg->cap; i++)
        nll[i] = NAN;
    return nll;
}

static void on_nll(void *state, int32_t t, float value)
{
    ((float *)state)[t] = value;
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    return probe_put(sink, 0, 0, 1, state, 0, 4, t0, t1 - t0);
}

const struct probe probe_nll = {
    .name = "nll",
    .summary = "negative log-likelihood of every token",
    .wants = PROBE_NLL,
    .lean = true,
    .columns = columns,
    .create = create,
    .destroy = mem_free,
    .nll = on_nll,
    .stream = stream,
};

/* probe_steps.c - per query: log-sum-exp of the logits and entropy of the
 * weights. */
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    struct probe_config cfg;
    float *lse, *entropy; /* [L*G][cap] */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    static const struct kvf_column col[] = {
        {"lse", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, "nat"},
        {"entropy", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, "nat"},
    };
    (void)cfg;
    memcpy(out, col, sizeof col);
    return 2;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->lse);
    mem_free(s->entropy);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->lse = MEM_NEW(float, n);
    s->entropy = MEM_NEW(float, n);
    if (!s->lse || !s->entropy) {
        destroy(s);
        return NULL;
    }
    return s;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    size_t at = probe_query_index(&s->cfg, row->layer, row->head) * (size_t)s->cfg.cap
                + (size_t)row->t;
    s->lse[at] = row->lse;
    s->entropy[at] = row->entropy;
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct state *s = state;
    const struct probe_array all[] = {{0, s->lse, 4}, {1, s->entropy, 4}};
    return probe_put_layers(sink, KVF_SPACE_QUERY, all, 2, t0, t1 - t0);
}

const struct probe probe_steps = {
    .name = "steps",
    .summary = "log-sum-exp and entropy of every query's attention",
    .wants = PROBE_ROWS,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .stream = stream,
};

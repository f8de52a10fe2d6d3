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
    struct state *s = state;
    int G = s->cfg.shape.n_heads, err = KVF_OK;
    size_t cap = (size_t)s->cfg.cap;
    for (int l = 0; !err && l < s->cfg.shape.n_layers; l++) {
        size_t at = probe_query_index(&s->cfg, l, 0) * cap;
        err = probe_put(sink, 0, l, G, s->lse + at, cap, 4, t0, t1 - t0);
        if (!err)
            err = probe_put(sink, 1, l, G, s->entropy + at, cap, 4, t0, t1 - t0);
    }
    return err;
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

/* probe_evict.c - who was evicted, when, why, by how much, and after how many others. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    struct probe_config cfg;
    uint32_t *step, *rank; /* [L*H][cap] and so on */
    uint8_t *reason, *tie;
    float *score, *margin;
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    static const struct kvf_column col[] = {
        {"evict_step", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "step"},
        {"evict_reason", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"evict_score", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"evict_margin", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"evict_tie", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"evict_rank", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
    };
    (void)cfg;
    memcpy(out, col, sizeof col);
    return 6;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->step);
    mem_free(s->rank);
    mem_free(s->reason);
    mem_free(s->tie);
    mem_free(s->score);
    mem_free(s->margin);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_kv_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->step = MEM_NEW(uint32_t, n);
    s->rank = MEM_NEW(uint32_t, n);
    s->reason = MEM_NEW(uint8_t, n);
    s->tie = MEM_NEW(uint8_t, n);
    s->score = MEM_NEW(float, n);
    s->margin = MEM_NEW(float, n);
    if (!s->step || !s->rank || !s->reason || !s->tie || !s->score || !s->margin) {
        destroy(s);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        s->step[i] = s->rank[i] = KVF_ALIVE;
        s->score[i] = s->margin[i] = NAN;
    }
    return s;
}

static void evict(void *state, const struct eviction *e)
{
    struct state *s = state;
    size_t at = probe_kv_index(&s->cfg, e->layer, e->head) * (size_t)s->cfg.cap + (size_t)e->pos;
    s->step[at] = (uint32_t)e->t;
    s->reason[at] = (uint8_t)e->reason;
    s->tie[at] = e->tie;
    s->rank[at] = (uint32_t)e->rank;
    s->score[at] = e->score;
    s->margin[at] = e->margin;
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    const struct state *s = state;
    const struct probe_array all[] = {{0, s->step, 4},   {1, s->reason, 1}, {2, s->score, 4},
                                      {3, s->margin, 4}, {4, s->tie, 1},    {5, s->rank, 4}};
    return probe_put_layers(sink, KVF_SPACE_KV, all, 6, 0, t1);
}

const struct probe probe_evict = {
    .name = "evict",
    .summary = "evict_step of every entry, with reason, score, margin and tie",
    .wants = PROBE_EVICT,
    .lean = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .evict = evict,
    .snapshot = snapshot,
};

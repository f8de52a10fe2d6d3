/* probe_evict.c - evictions: step, reason, score, margin to the next candidate, ties and rank of
 * each entry. */
#include "engine/probe/probes.h"

enum { STEP, REASON, SCORE, MARGIN, TIE, RANK };

#define COLUMN(name, dtype, unit)                                                                  \
    .column = {name, dtype, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, unit}
static const struct probe_array arrays[] = {
    [STEP] = {COLUMN("evict_step", KVF_U32, "step"), .start = PROBE_ONES},
    [REASON] = {COLUMN("evict_reason", KVF_U8, "")},
    [SCORE] = {COLUMN("evict_score", KVF_F32, ""), .start = PROBE_NAN},
    [MARGIN] = {COLUMN("evict_margin", KVF_F32, ""), .start = PROBE_NAN},
    [TIE] = {COLUMN("evict_tie", KVF_U8, "")},
    [RANK] = {COLUMN("evict_rank", KVF_U32, ""), .start = PROBE_ONES},
};

static void evict(struct probe_state *s, const struct eviction *e)
{
    uint32_t *step = probe_cells(s, STEP, e->layer, e->head);
    uint8_t *reason = probe_cells(s, REASON, e->layer, e->head);
    float *score = probe_cells(s, SCORE, e->layer, e->head);
    float *margin = probe_cells(s, MARGIN, e->layer, e->head);
    uint8_t *tie = probe_cells(s, TIE, e->layer, e->head);
    uint32_t *rank = probe_cells(s, RANK, e->layer, e->head);
    step[e->pos] = (uint32_t)e->t;
    reason[e->pos] = (uint8_t)e->reason;
    score[e->pos] = e->score;
    margin[e->pos] = e->margin;
    tie[e->pos] = e->tie;
    rank[e->pos] = (uint32_t)e->rank;
}

const struct probe probe_evict = {
    .name = "evict",
    .summary = "eviction step of every entry, with reason, score, margin and tie",
    .wants = PROBE_EVICT,
    .lean = true,
    PROBE_ARRAYS(arrays),
    .evict = evict,
};

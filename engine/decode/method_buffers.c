/* method_buffers.c - buffers that depend on the methods, and preallocation of entries. */

#include "base/mem.h"
#include "engine/decode/session_state.h"

unsigned session_points(const struct session *s)
{
    bool queries = recorder_wants(s->observers.recorder) & PROBE_QUERY;
    bool methods = s->positions_in_cache || (s->run.stepping && s->reading.chosen)
                   || method_evidence(s->method) & (EVIDENCE_MOMENTS | EVIDENCE_BLOCKS);
    const struct {
        enum block_point point;
        bool read;
    } all[] = {
        {POINT_QK_UNROTATED, queries || methods},
        {POINT_GATE_INPUTS, s->parts.gate && gates_inputs(s->gates) & (GATE_IN_Q | GATE_IN_K_PRE)},
        {POINT_QK_ROTATED, queries},
        {POINT_GATES, s->parts.gate},
        {POINT_ATTENDED, s->compare.evicted},
        {POINT_LAYER, s->compare.shadow || s->compare.compared},
        {POINT_OBSERVERS, s->observers.n_states > 0},
    };
    unsigned points = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        points |= all[i].read ? all[i].point : 0;
    return points;
}

/* Returns whether queries and keys before rotation have a buffer. */
static bool keeps_unrotated(const struct session *s, bool reads)
{
    return s->positions_in_cache || reads || session_points(s) & POINT_GATE_INPUTS
           || method_evidence(s->method) & (EVIDENCE_MOMENTS | EVIDENCE_BLOCKS);
}

int method_buffers_alloc(struct session *s)
{
    const struct model_config *m = &s->e->config;
    size_t C = (size_t)s->chunk, threads = (size_t)par_threads(s->e->pool);
    size_t scratch = PAGE_ROWS * ((size_t)m->head_dim + 1); /* floats, or ints and scales */
    size_t reads = method_read_scratch(s->method, s->cap);
    size_t gates = s->gates ? gates_scratch(s->gates) : 0;
    scratch = reads > scratch ? reads : scratch;
    scratch = gates > scratch ? gates : scratch;
    s->parts.ld_scratch = (scratch + 15) / 16 * 16;
    s->parts.ld_unrotated = (size_t)(m->n_heads + m->n_kv_heads) * (size_t)m->head_dim;
    s->parts.scratch = mem_alloc(threads, s->parts.ld_scratch * sizeof(float));
    s->parts.visible = mem_alloc(threads, s->attn.ld_strip);
    s->parts.expiry = mem_alloc(IMPORT_LAYERS * (size_t)s->cache_heads,
                                C * sizeof *s->parts.expiry);
    if (!s->parts.scratch || !s->parts.visible || !s->parts.expiry)
        return KVF_E_NOMEM;
    if (keeps_unrotated(s, reads > 0)) {
        s->parts.unrotated = mem_alloc(C, s->parts.ld_unrotated * sizeof(float));
        if (!s->parts.unrotated)
            return KVF_E_NOMEM;
    }
    return reading_alloc(s, reads > 0);
}

void method_buffers_free(struct session *s)
{
    mem_free(s->parts.scratch);
    mem_free(s->parts.visible);
    mem_free(s->parts.unrotated);
    mem_free(s->parts.gate);
    mem_free(s->parts.expiry);
    s->parts = (struct method_buffers){.scratch = NULL};
    reading_free(s);
}

int preallocate_entries(struct session *s, int T)
{
    int left = s->cap - s->n_past, ahead = PREALLOCATED_CHUNKS * s->chunk;
    return cache_stock(s->cache, T, ahead < left ? ahead : left, s->e->pool);
}

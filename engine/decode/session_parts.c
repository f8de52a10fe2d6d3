/* session_parts.c - buffers that only some methods need, and preallocation of entries. */

#include "base/mem.h"
#include "engine/decode/session_state.h"

/* Allocates and fills cos and sin of position * theta_j for every position. */
static int alloc_turns(struct session *s)
{
    const struct model_config *m = &s->e->config;
    s->rope_table = mem_alloc(2 * (size_t)s->cap, (size_t)m->rope_dim * sizeof(float));
    if (!s->rope_table)
        return KVF_E_NOMEM;
    for (int t = 0; t < s->cap; t++)
        rope_fill(s, s->rope_table, s->cap, t, t);
    return KVF_OK;
}

unsigned session_points(const struct session *s)
{
    bool queries = recorder_wants(s->recorder) & PROBE_QUERY;
    bool methods = s->positions_in_cache || (s->stepping && s->chosen)
                   || method_evidence(s->method) & (EVIDENCE_MOMENTS | EVIDENCE_BLOCKS);
    const struct {
        enum block_point point;
        bool read;
    } all[] = {
        {POINT_QK_UNROTATED, queries || methods},
        {POINT_GATE_INPUTS, s->gate && gates_inputs(s->gates) & (GATE_IN_Q | GATE_IN_K_PRE)},
        {POINT_QK_ROTATED, queries},
        {POINT_GATES, s->gate},
        {POINT_ATTENDED, s->evicted_entries},
        {POINT_LAYER, s->shadow || s->twin_for},
        {POINT_OBSERVERS, s->n_watchers > 0},
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

int alloc_part_buffers(struct session *s)
{
    const struct model_config *m = &s->e->config;
    size_t C = (size_t)s->chunk, threads = (size_t)par_threads(s->e->pool);
    size_t scratch = PAGE_ROWS * ((size_t)m->head_dim + 1); /* floats, or ints and scales */
    size_t reads = method_read_scratch(s->method, s->cap);
    size_t gates = s->gates ? gates_scratch(s->gates) : 0;
    scratch = reads > scratch ? reads : scratch;
    scratch = gates > scratch ? gates : scratch;
    s->ld_scratch = (scratch + 15) / 16 * 16;
    s->ld_pre = (size_t)(m->n_heads + m->n_kv_heads) * (size_t)m->head_dim;
    s->scratch_per_thread = mem_alloc(threads, s->ld_scratch * sizeof(float));
    s->visible = mem_alloc(threads, s->ld_strip);
    s->until = mem_alloc(IMPORT_LAYERS * (size_t)s->cache_heads, C * sizeof *s->until);
    if (!s->scratch_per_thread || !s->visible || !s->until)
        return KVF_E_NOMEM;
    if (keeps_unrotated(s, reads > 0)) {
        s->qk_unrotated = mem_alloc(C, s->ld_pre * sizeof(float));
        if (!s->qk_unrotated)
            return KVF_E_NOMEM;
    }
    if (reads > 0) {
        s->ld_chosen = (size_t)s->cap;
        s->chosen = mem_alloc((size_t)m->n_heads, s->ld_chosen);
        s->page_of_head = MEM_NEW(int, (size_t)s->cache_heads);
        if (!s->chosen || !s->page_of_head)
            return KVF_E_NOMEM;
    }
    return s->positions_in_cache ? alloc_turns(s) : KVF_OK;
}

void free_part_buffers(struct session *s)
{
    mem_free(s->scratch_per_thread);
    mem_free(s->visible);
    mem_free(s->qk_unrotated);
    mem_free(s->gate);
    mem_free(s->rope_table);
    mem_free(s->chosen);
    mem_free(s->page_of_head);
    mem_free(s->until);
    s->scratch_per_thread = s->qk_unrotated = s->gate = s->rope_table = NULL;
    s->visible = s->chosen = NULL;
    s->page_of_head = NULL;
    s->until = NULL;
}

int preallocate_entries(struct session *s, int T)
{
    int left = s->cap - s->n_past, ahead = STOCKED_CHUNKS * s->chunk;
    return cache_stock(s->cache, T, ahead < left ? ahead : left, s->e->pool);
}

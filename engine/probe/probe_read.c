/* probe_read.c - how often the page of an entry was read, where queries read a choice
 * of pages. */
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    struct probe_config cfg;
    uint32_t *count; /* [L*G][cap] */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    if (!cfg->reads)
        return 0;
    out[0] = (struct kvf_column){"read.count",   KVF_U32,          KVF_SPACE_QUERY,
                                 KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "queries"};
    return 1;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->count);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    if (cfg->reads && !(s->count = MEM_NEW(uint32_t, n))) {
        destroy(s);
        return NULL;
    }
    return s;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    if (!s->count || !row->stepping)
        return;
    uint32_t *count = s->count
                      + probe_query_index(&s->cfg, row->layer, row->head) * (size_t)s->cfg.cap;
    for (int i = 0; i < row->n; i++)
        count[row->pos ? row->pos[i] : i]++;
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    const struct state *s = state;
    const struct probe_array all = {0, s->count, 4};
    return probe_put_layers(sink, KVF_SPACE_QUERY, &all, s->count ? 1 : 0, 0, t1);
}

const struct probe probe_read = {
    .name = "read",
    .summary = "queries after the prompt that read the entry, where they read a choice of pages",
    .wants = PROBE_ROWS,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .snapshot = snapshot,
};

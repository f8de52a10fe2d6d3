/* rank_rope.c - applies RoPE to keys at their ranks in the cache (positions=cache).
 *
 * The mirror has unrotated keys, as the host's cache. Before attention of a layer, its pages are
 * copied to f32 pages, with each key rotated by its current rank. Attention reads the copies. */
#include "base/mem.h"
#include "engine/device/device.h"

/* Buffers for one layer at a time. */
struct device_ranks {
    float *turns;            /* [2][cap][rope_dim] rotations of all ranks */
    float *pages;            /* [heads][ld_table] */
    int32_t *table, *d_rank; /* [heads][ld_table] page table of the copies; [heads][ld_strip] */
    int32_t *rank;           /* host copy of d_rank */
};

void device_ranks_close(struct device_session *m)
{
    struct device_ranks *r = m->ranks;
    if (!r)
        return;
    gpu_free(m->gpu, r->turns);
    gpu_free(m->gpu, r->pages);
    gpu_free(m->gpu, r->table);
    gpu_free(m->gpu, r->d_rank);
    mem_free(r->rank);
    mem_free(r);
    m->ranks = NULL;
}

/* Uploads the identity table: page p of head h is number h * ld_table + p. */
static int put_table(struct device_session *m, size_t n)
{
    int32_t *table = MEM_NEW(int32_t, n);
    if (!table)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        table[i] = (int32_t)i;
    gpu_put(m->gpu, m->ranks->table, table, n * sizeof *table);
    mem_free(table);
    return KVF_OK;
}

static int alloc_ranks(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_ranks *r = m->ranks;
    const struct model_config *c = &s->e->config;
    size_t heads = (size_t)s->cache_heads, pages = heads * (size_t)m->pages.ld_table;
    size_t turns = 2 * (size_t)s->cap * (size_t)c->rope_dim;
    r->turns = gpu_alloc(m->gpu, turns, sizeof *r->turns);
    r->pages = gpu_alloc(m->gpu, pages, 2 * kv_half_bytes(KV_F32, c->head_dim));
    r->table = gpu_alloc(m->gpu, pages, sizeof *r->table);
    r->d_rank = gpu_alloc(m->gpu, heads * s->attn.ld_strip, sizeof *r->d_rank);
    r->rank = mem_alloc(heads, s->attn.ld_strip * sizeof *r->rank);
    if (!r->turns || !r->pages || !r->table || !r->d_rank || !r->rank)
        return KVF_E_NOMEM;
    gpu_put(m->gpu, r->turns, s->reading.rope_table, turns * sizeof *r->turns);
    return put_table(m, pages);
}

static int open_ranks(struct session *s)
{
    struct device_session *m = s->device_state;
    if (m->ranks)
        return KVF_OK;
    m->ranks = MEM_NEW(struct device_ranks, 1);
    int err = m->ranks ? alloc_ranks(s) : KVF_E_NOMEM;
    if (!err)
        return KVF_OK;
    device_ranks_close(m);
    return gpu_no_room(m->gpu, &s->e->error,
                       "the device has no room to turn the keys of %d tokens: a smaller -c, "
                       "positions=original, or --device cpu",
                       s->cap);
}

static void put_ranks(struct session *s, int layer)
{
    const struct device_session *m = s->device_state;
    const struct device_ranks *r = m->ranks;
    for (int h = 0; h < s->cache_heads; h++) {
        struct cache_head view = cache_view(s->cache, layer, h);
        for (int k = 0; k < view.n; k++)
            r->rank[(size_t)h * s->attn.ld_strip + (size_t)view.order[k]] = k;
    }
    gpu_put(m->gpu, r->d_rank, r->rank,
            (size_t)s->cache_heads * s->attn.ld_strip * sizeof *r->rank);
}

int device_rotate_by_rank(struct session *s, int layer, struct gpu_attention *a)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    int err = open_ranks(s);
    if (err)
        return err;
    const struct device_ranks *r = m->ranks;
    enum model_rope kind = model_rope(c, layer, s->cap);
    const float *turns = r->turns;
    if (kind == ROPE_LOCAL)
        turns += (size_t)s->cap * (size_t)c->rope_dim;
    const struct gpu_ranks ranks = {.rank = r->d_rank,
                                    .cos_sin = kind == ROPE_NONE ? NULL : turns,
                                    .n_rot = c->rope_dim,
                                    .pages = r->pages};
    put_ranks(s, layer);
    gpu_turn_keys(m->gpu, &a->cache, &ranks);
    gpu_turn_queries(m->gpu, &a->cache, &ranks, m->buf.qkv, s->buf.ld_qkv, a->n_heads, a->T);
    a->cache.pool = (unsigned char *)r->pages;
    a->cache.table = r->table;
    a->cache.type = KV_F32;
    return KVF_OK;
}

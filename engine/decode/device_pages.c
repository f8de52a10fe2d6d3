/* device_pages.c - the pages of a cache on a device, which follow those of the host a page at a
 * time. */
#include <string.h>

#include "base/mem.h"
#include "engine/decode/device.h"

enum { LEAST_PAGES = 256 };

/* So many pages, in a new place. */
static int grow_pool(struct session *s, int32_t pages)
{
    struct mirror *m = s->mirror;
    int32_t *list = mem_grow(m->free, (size_t)m->n_free, (size_t)pages, sizeof *list);
    if (!list)
        return KVF_E_NOMEM;
    m->free = list;
    unsigned char *pool = gpu_alloc(m->gpu, (size_t)pages, m->page_bytes);
    if (!pool)
        return kvf_fail(&s->e->said, KVF_E_NOMEM,
                        "the device has no room for %d pages of %zu bytes of the cache: take a "
                        "smaller budget or context, or --device cpu",
                        pages, m->page_bytes);
    if (m->pages)
        gpu_copy(m->gpu, pool, m->pool, (size_t)m->pages * m->page_bytes);
    int err = gpu_wait(m->gpu, &s->e->said);
    gpu_free(m->gpu, m->pool);
    m->pool = pool;
    m->pages = pages;
    return err;
}

void mirror_pages_changed(struct mirror *m, int first, int end)
{
    bool none = m->changed == m->changed_end;
    m->changed = none || first < m->changed ? first : m->changed;
    m->changed_end = none || end > m->changed_end ? end : m->changed_end;
}

int mirror_hold_pages(struct session *s, int at, int n_pages)
{
    struct mirror *m = s->mirror;
    int32_t *table = m->table + (size_t)at * (size_t)m->ld_table;
    if (m->held[at] != n_pages)
        mirror_pages_changed(m, at, at + 1);
    while (m->held[at] > n_pages)
        m->free[m->n_free++] = table[--m->held[at]];
    while (m->held[at] < n_pages) {
        if (m->n_free == 0 && m->used == m->pages) {
            int err = grow_pool(s, m->pages ? 2 * m->pages : LEAST_PAGES);
            if (err)
                return err;
        }
        table[m->held[at]++] = m->n_free > 0 ? m->free[--m->n_free] : m->used++;
    }
    return KVF_OK;
}

void mirror_reserve_pages(struct session *s, size_t n_pages)
{
    const struct mirror *m = s->mirror;
    if (n_pages > (size_t)m->pages && n_pages > LEAST_PAGES && n_pages < INT32_MAX)
        (void)grow_pool(s, (int32_t)n_pages); /* who needs fewer may have them */
}

void mirror_put_pages(struct session *s, int layer, int head, const struct cache_head *view)
{
    struct mirror *m = s->mirror;
    int at = layer * s->cache_heads + head;
    const int32_t *table = m->table + (size_t)at * (size_t)m->ld_table;
    for (int p = 0; p < m->held[at]; p++)
        if (cache_take_news(s->cache, layer, head, p))
            gpu_put(m->gpu, m->pool + (size_t)table[p] * m->page_bytes, cache_keys(view, p),
                    m->page_bytes);
}

/* Where entries stand in the text, for those who ask; false: everywhere in their slots. */
static bool put_positions(struct session *s, int layer)
{
    struct mirror *m = s->mirror;
    int H = s->cache_heads;
    bool plain = true;
    for (int h = 0; m->d_pos && h < H; h++) {
        struct cache_head view = cache_view(s->cache, layer, h);
        if (view.n > 0)
            memcpy(m->pos + (size_t)h * s->ld_strip, view.pos, (size_t)view.n * sizeof *view.pos);
        plain &= view.plain;
    }
    if (!plain)
        gpu_put(m->gpu, m->d_pos, m->pos, (size_t)H * s->ld_strip * sizeof *m->pos);
    return !plain;
}

int mirror_layer(struct session *s, int layer, int T, int pos0, struct gpu_cache *ret_cache)
{
    struct mirror *m = s->mirror;
    int H = s->cache_heads, ld_slot = (int)s->ld_strip, most = 0;
    bool leaves = false;
    for (int h = 0; h < H; h++) {
        struct cache_head view = cache_view(s->cache, layer, h);
        int err = mirror_hold_pages(s, layer * H + h, (view.n + PAGE_SLOTS - 1) / PAGE_SLOTS);
        if (err)
            return err;
        mirror_put_pages(s, layer, h, &view);
        most = view.n > most ? view.n : most;
        leaves |= view.soonest < pos0 + T;
        m->n[h] = view.n;
    }
    for (int h = 0; leaves && h < H; h++) {
        struct cache_head view = cache_view(s->cache, layer, h);
        if (view.n > 0)
            memcpy(m->until + (size_t)h * (size_t)ld_slot, view.until,
                   (size_t)view.n * sizeof *view.until);
    }
    bool moved = put_positions(s, layer);
    size_t table = (size_t)H * (size_t)m->ld_table;
    gpu_put(m->gpu, m->d_table, m->table + (size_t)layer * table, table * sizeof *m->table);
    if (leaves)
        gpu_put(m->gpu, m->d_until, m->until, (size_t)H * (size_t)ld_slot * sizeof *m->until);
    *ret_cache = (struct gpu_cache){.pool = m->pool,
                                    .type = s->kv_type,
                                    .heads = H,
                                    .D = s->e->config.head_dim,
                                    .table = m->d_table,
                                    .n = m->d_n,
                                    .pos = moved ? m->d_pos : NULL,
                                    .until = leaves ? m->d_until : NULL,
                                    .ld_table = m->ld_table,
                                    .ld_slot = ld_slot,
                                    .most = most};
    return KVF_OK;
}

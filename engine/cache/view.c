/* view.c - read access to the heads of a cache. */
#include <assert.h>

#include "engine/cache/store.h"

struct cache_head cache_view(const struct cache *c, int layer, int head)
{
    const struct head *h = store_whole(c, layer, head);
    assert(h->gap != GAP_OPEN);
    return (struct cache_head){.n = h->n,
                               .pos = h->pos,
                               .expires_at = h->until,
                               .order = h->order,
                               .page = h->page,
                               .plain = !h->moved,
                               .first_expiry = h->n ? h->soonest : NEVER_EXPIRES,
                               .n_permanent = h->firm};
}

enum kv_type cache_type(const struct cache *c)
{
    return c->cfg.type;
}

bool cache_take_dirty(struct cache *c, int layer, int head, int page)
{
    unsigned char *news = &store_whole(c, layer, head)->news[page];
    bool is = *news;
    *news = 0;
    return is;
}

const void *cache_keys(const struct cache_head *h, int page)
{
    return h->page[page];
}

const void *cache_values(const struct cache *c, const struct cache_head *h, int page)
{
    return h->page[page] + c->half_bytes;
}

void cache_key(const struct cache *c, int layer, int head, int slot, float *ret_key)
{
    const unsigned char *page = store_whole(c, layer, head)->page[slot / PAGE_SLOTS];
    for (int d = 0; d < c->cfg.head_dim; d++)
        ret_key[d] = kv_key_at(page, c->cfg.type, c->cfg.head_dim, slot % PAGE_SLOTS, d);
}

void cache_value(const struct cache *c, int layer, int head, int slot, float *ret_value)
{
    const unsigned char *page = store_whole(c, layer, head)->page[slot / PAGE_SLOTS]
                                + c->half_bytes;
    for (int d = 0; d < c->cfg.head_dim; d++)
        ret_value[d] = kv_value_at(page, c->cfg.type, c->cfg.head_dim, slot % PAGE_SLOTS, d);
}

int cache_longest(const struct cache *c)
{
    int n = 0;
    for (int i = 0; i < c->cfg.n_layers * c->cfg.n_heads; i++)
        n = c->head[i].n > n ? c->head[i].n : n;
    return n;
}

void cache_account(struct cache *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->cfg.n_layers * c->cfg.n_heads; i++)
        n += c->head[i].n;
    c->stats.entries = n;
    if (n > c->stats.entries_peak)
        c->stats.entries_peak = n;
}

struct cache_stats cache_stats(const struct cache *c)
{
    return c->stats;
}

/* fork.c - creates a second cache with the same entries that shares the pages. */
#include <string.h>

#include "base/mem.h"
#include "engine/cache/store.h"

/* Copies the lists of a head and shares its pages. */
static int fork_head(const struct cache *c, const struct head *from, struct head *to)
{
    int err = from->cap ? store_grow_head(to, from->cap) : KVF_OK;
    if (err || !from->cap)
        return err;
    memcpy(to->pos, from->pos, (size_t)used_slots(from) * sizeof *to->pos);
    memcpy(to->until, from->until, (size_t)used_slots(from) * sizeof *to->until);
    memcpy(to->order, from->order, (size_t)from->n * sizeof *to->order);
    for (int p = 0; p < from->n_pages; p++) {
        to->page[p] = from->page[p];
        to->news[p] = 1;
        atomic_fetch_add_explicit(holders(c, to->page[p]), 1, memory_order_relaxed);
    }
    to->n_pages = from->n_pages;
    to->n = from->n;
    to->gap = from->gap;
    to->hole = from->hole;
    to->moved = from->moved;
    to->soonest = from->soonest;
    to->firm = from->firm;
    to->sorted = from->sorted;
    return KVF_OK;
}

int cache_fork(struct cache *from, struct cache **ret_cache)
{
    struct cache *c = NULL;
    int err = cache_create(&from->cfg, &c);
    if (err)
        return err;
    for (int i = 0; i < from->cfg.n_layers * from->cfg.n_heads; i++)
        store_whole(from, 0, i); /* while its pages are private */
    c->forked = from->forked = true;
    c->stats = from->stats;
    c->n_pages = from->stats.pages;
    err = store_grow_free(c, c->n_pages);
    if (err)
        goto fail;
    for (int i = 0; i < c->cfg.n_layers * c->cfg.n_heads; i++) {
        err = fork_head(c, &from->head[i], &c->head[i]);
        if (err)
            goto fail;
    }
    *ret_cache = c;
    return KVF_OK;

fail:
    cache_destroy(c);
    return err;
}

int64_t cache_shared(const struct cache *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->cfg.n_layers * c->cfg.n_heads; i++)
        for (int p = 0; p < c->head[i].n_pages; p++)
            n += !is_private(c, c->head[i].page[p]);
    return n;
}

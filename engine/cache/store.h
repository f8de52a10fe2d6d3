/* store.h - internal data structures of a cache. Private to engine/cache/. */
#ifndef KVF_ENGINE_CACHE_STORE_H
#define KVF_ENGINE_CACHE_STORE_H

#include <stdatomic.h>

#include "engine/cache/cache.h"
#include "engine/cache/page_room.h"

/* The state of a head. Its members are adjacent, because a step reads every head. */
struct head {
    int n, cap;      /* entries; slots of its pages */
    int hole;        /* slot of GAP_OPEN and GAP_FILLED; n: the last slot was evicted */
    int32_t soonest; /* lower bound of until */
    int n_pages;
    int firm;             /* number of leading slots known never to expire (NEVER_EXPIRES) */
    int sorted;           /* number of leading slots i known to have order[i] == i */
    unsigned char gap;    /* enum cache_gap */
    bool moved;           /* some slot does not have the position of its number */
    unsigned char n_gone; /* slots in `gone`; keys and values after them have to move up */
    int32_t *pos;         /* [cap] */
    int32_t *until;       /* [cap] */
    int32_t *list;        /* [2 cap] contains order[] */
    int32_t *order;       /* [n] its start in list */
    unsigned char **page; /* [cap / PAGE_SLOTS] */
    unsigned char *news;  /* [cap / PAGE_SLOTS] 1: written since cache_take_dirty */
};

/* A cache: its heads, and the pages that they do not use. */
struct cache {
    struct cache_config cfg;
    size_t half_bytes; /* bytes of the keys of a page; the values follow */
    struct head *head; /* [n_layers * n_heads] */
    int32_t *gone;     /* [n_layers * n_heads][FEW_GONE] */
    struct page_room room;
    unsigned char **free; /* unused pages */
    int64_t n_free, free_cap;
    int64_t n_pages; /* used by heads or free; at most free_cap */
    bool forked;     /* some page may be shared */
    struct cache_stats stats;
};

static inline struct head *head_at(const struct cache *c, int layer, int head)
{
    return &c->head[layer * c->cfg.n_heads + head];
}

enum { FEW_GONE = 8 };

/* Returns the number of slots up to the last entry, including an open one. */
static inline int used_slots(const struct head *h)
{
    return h->n + (h->gap == GAP_OPEN && h->hole < h->n);
}

/* Returns the reference count of a page. */
static inline atomic_int *holders(const struct cache *c, unsigned char *page)
{
    return &page_tail(&c->room, page)->holders;
}

/* Returns true if only this cache uses the page, so that it may be written. Reads of another cache
 * before its release happen before later writes. */
static inline bool is_private(const struct cache *c, unsigned char *page)
{
    return atomic_load_explicit(holders(c, page), memory_order_acquire) == 1;
}

/* Grows the arrays of a head to at least `slots` slots, doubling. Returns KVF_OK or KVF_E_NOMEM. */
int store_grow_head(struct head *h, int slots);
/* Grows the free list to the number of all pages, so that returning a page never fails. Returns
 * KVF_OK or KVF_E_NOMEM. */
int store_grow_free(struct cache *c, int64_t pages);
/* Returns the head after deferred moves of keys and values are done. */
struct head *store_whole(const struct cache *c, int layer, int head);

#endif

/* store.h - what a cache is made of; private to engine/cache/. */
#ifndef KVF_ENGINE_CACHE_STORE_H
#define KVF_ENGINE_CACHE_STORE_H

#include <stdatomic.h>

#include "engine/cache/cache.h"
#include "engine/cache/page_room.h"

/* A step looks at every head: what it reads adjoins. */
struct head {
    int n, cap;      /* entries; slots that pages hold */
    int hole;        /* with GAP_OPEN and GAP_FILLED; n: the last slot went */
    int32_t soonest; /* at most the least until */
    int n_pages;
    int firm;             /* at most the leading slots whose entries stay (CACHE_STAYS) */
    int sorted;           /* at most the leading slots i with order[i] == i */
    unsigned char gap;    /* enum cache_gap */
    bool moved;           /* some slot does not hold the position of its number */
    unsigned char n_gone; /* slots in `gone`: keys and values behind them have yet to move up */
    int32_t *pos;         /* [cap] */
    int32_t *until;       /* [cap] */
    int32_t *list;        /* [2 cap] order[] lies somewhere in it */
    int32_t *order;       /* [n] where it starts in list */
    unsigned char **page; /* [cap / PAGE_SLOTS] */
    unsigned char *news;  /* [cap / PAGE_SLOTS] 1: written since cache_take_news */
};

struct cache {
    struct cache_config cfg;
    size_t half_bytes; /* of the keys of a page; the values follow */
    struct head *head; /* [n_layers * n_heads] */
    int32_t *gone;     /* [n_layers * n_heads][FEW_GONE] */
    struct page_room room;
    unsigned char **free; /* pages without an owner */
    int64_t n_free, free_cap;
    int64_t n_pages; /* held by heads or free; never more than free_cap */
    bool forked;     /* some page may be shared */
    struct cache_stats stats;
};

static inline struct head *head_at(const struct cache *c, int layer, int head)
{
    return &c->head[layer * c->cfg.n_heads + head];
}

enum { FEW_GONE = 8 };

/* Slots up to the last entry, an open one included. */
static inline int held(const struct head *h)
{
    return h->n + (h->gap == GAP_OPEN && h->hole < h->n);
}

/* Caches that hold a page. */
static inline atomic_int *holders(const struct cache *c, unsigned char *page)
{
    return &page_tail(&c->room, page)->holders;
}

/* A page that no other cache sees may be written.  What another cache reads of a
 * page before it lets go of it happens before what is written afterwards. */
static inline bool is_private(const struct cache *c, unsigned char *page)
{
    return atomic_load_explicit(holders(c, page), memory_order_acquire) == 1;
}

/* Arrays of a head for at least `slots` slots, doubling; KVF_OK or KVF_E_NOMEM. */
int store_grow_head(struct head *h, int slots);
/* Room in the free list for every page there is: returning one never fails. */
int store_grow_free(struct cache *c, int64_t pages);
/* The head, its pages as its lists say. */
struct head *store_whole(const struct cache *c, int layer, int head);

#endif

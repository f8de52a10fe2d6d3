/* cache.h - the paged, ragged KV cache.
 *
 * The cache is one pool of pages; a page has PAGE_SLOTS entries of one (layer, KV head). Every head
 * has a separate length and list of pages. A method can keep 7 entries in one head and 4,000 in the
 * next, and evicted entries free memory. Slots of a head are dense: 0 .. n-1. They are not in order
 * of time: pos[] has the positions, and order[] lists the slots by rising position.
 *
 * The eviction of one entry moves no data. The slot stays open, and the next append stores the
 * newcomer there. Open slots are not visible. To read the head before the append (cache_view,
 * cache_key, cache_value), call cache_settle, which fills the slot with the last entry.
 * cache_reopen moves that entry back, so that the newcomer still gets the slot. If more than one
 * entry is evicted between two appends, the head is compacted instead (cache_keep), once for all of
 * them. If they are few, keys and values move later, at the next read or append, because attention
 * reads them then. So the order of slots depends only on the entries evicted between each two
 * appends. It does not depend on how the evictions were grouped or on reads.
 *
 * A fork shares the pages of its origin. Pages are reference-counted and copied before the first
 * write of either cache. Copies are made only where allocation may fail: by cache_reserve before
 * appends, by cache_own before evictions. */
#ifndef KVF_ENGINE_CACHE_H
#define KVF_ENGINE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

struct cache;

enum { NEVER_EXPIRES = INT32_MAX };

/* Shape of a cache. */
struct cache_config {
    int n_layers, n_heads, head_dim; /* KV heads */
    enum kv_type type;
};

/* A head as attention and methods see it; borrowed, valid until the next append or eviction in that
 * head. If the head was compacted since its last append, only one thread may request the view. */
struct cache_head {
    int n;                      /* entries */
    const int32_t *pos;         /* [n] position of the entry in each slot */
    const int32_t *expires_at;  /* [n] first query that does not see it; NEVER_EXPIRES: unlimited */
    const int32_t *order;       /* [n] slots by rising position */
    unsigned char *const *page; /* [ceil(n / PAGE_SLOTS)] keys, then values */
    bool plain;                 /* slot i has position i, for all slots */
    int32_t first_expiry;       /* lower bound of expires_at */
    int n_permanent; /* at least this many leading slots have entries that never expire */
};

/* Evictions of a head since its last append. */
enum cache_gap {
    GAP_NONE,   /* no eviction */
    GAP_OPEN,   /* one entry: its slot is open for the newcomer */
    GAP_FILLED, /* one entry: the last entry moved to its slot */
    GAP_CLOSED, /* the head was compacted */
};

/* Size of a cache. */
struct cache_stats {
    int64_t entries, entries_peak; /* over all heads */
    int64_t pages, pages_peak;     /* in use, including shared ones */
    int64_t page_bytes;            /* bytes of one page */
};

/* Creates an empty cache. Returns KVF_OK or KVF_E_NOMEM. */
int cache_create(const struct cache_config *cfg, struct cache **ret_cache);
void cache_destroy(struct cache *c); /* accepts NULL */

/* If there are not enough pages for `now` more entries in every head, allocates pages for `ahead`
 * >= now entries. All threads touch the memory in parallel, because first access is slow on some
 * machines. Returns KVF_OK or KVF_E_NOMEM. */
int cache_stock(struct cache *c, int now, int ahead, struct par *pool);

/* Returns the bytes of the pages for `entries` entries in every head. */
int64_t cache_bytes(const struct cache_config *cfg, int entries);

/* Creates a separate cache with the same entries, open slots and statistics. Later changes of
 * either cache do not affect its counterpart. Returns KVF_OK or KVF_E_NOMEM. Different threads can
 * use the two caches, but not during the fork. */
int cache_fork(struct cache *from, struct cache **ret_cache);
int64_t cache_shared(const struct cache *c); /* pages in use that another cache shares */

/* Reserves space for n more entries in a head, from the pool. Only this function and cache_own
 * allocate pages. Returns KVF_OK or KVF_E_NOMEM. Not thread-safe. */
int cache_reserve(struct cache *c, int layer, int head, int n);

/* Makes slots from .. to-1 writable for cache_settle and cache_keep: copies the pages that another
 * cache shares. Without forks it costs almost no time. Returns KVF_OK, or KVF_E_NOMEM (the entries
 * are unchanged). Not thread-safe. */
int cache_own(struct cache *c, int layer, int head, int from, int to);

/* An entry to store. */
struct cache_entry {
    int32_t pos;              /* larger than every position in the head; otherwise order[] is the
                               * append order */
    int32_t expires_at;       /* first query that will not see it, or NEVER_EXPIRES */
    const float *key, *value; /* [head_dim] */
};

/* Appends an entry into reserved space, into the open slot if there is one, otherwise after the
 * last entry. Returns its slot. Threads may append to different heads concurrently. */
int cache_append(struct cache *c, const struct kernels *k, int layer, int head,
                 const struct cache_entry *e);
/* Appends n entries at positions pos, pos + 1, .. into reserved space of a head without an open
 * slot, with the same result as single appends; until: [n]. `pages` has their keys and values in
 * the layout of this cache, starting with the page of the first entry's slot. It is used by a
 * mirror of the cache that already has the data. Threads as in cache_append. */
void cache_append_pages(struct cache *c, int layer, int head, int32_t pos, const int32_t *until,
                        int n, const unsigned char *pages);
/* Updates the statistics. Call it once after a round of appends, from one thread. */
void cache_account(struct cache *c);

/* Returns a view of a head without an open slot. */
struct cache_head cache_view(const struct cache *c, int layer, int head);
enum kv_type cache_type(const struct cache *c);
/* Returns the keys of a page of a head. */
const void *cache_keys(const struct cache_head *h, int page);
/* Returns the values of a page of a head. */
const void *cache_values(const struct cache *c, const struct cache_head *h, int page);

/* Returns true if the page was written since the last call for it, for a mirror of the cache on a
 * device. */
bool cache_take_dirty(struct cache *c, int layer, int head, int page);

/* Copy the key and the value of a slot as f32 [head_dim]. */
void cache_key(const struct cache *c, int layer, int head, int slot, float *ret_key);
void cache_value(const struct cache *c, int layer, int head, int slot, float *ret_value);

/* Evicts one entry of a head without a gap. Its slot stays open for the next append (after the last
 * slot the next append needs no gap). Use cache_keep for a second eviction before the same append.
 */
void cache_evict(struct cache *c, int layer, int head, int slot);

/* Keeps the slots with keep[slot] != 0 and compacts the head in slot order. For a head with an open
 * slot, keep[] has one element more and is 0 at the open slot. The slots from the first evicted one
 * up to the new length must be private (cache_own). Not thread-safe. */
void cache_keep(struct cache *c, int layer, int head, const unsigned char *keep);
/* The two steps of cache_keep. cache_close_ranks compacts the lists, in time O(slots from the first
 * evicted one); threads may call it for different heads concurrently. cache_release returns free
 * pages to the pool. */
void cache_close_ranks(struct cache *c, int layer, int head, const unsigned char *keep);
void cache_release(struct cache *c, int layer, int head);

/* Lists the slots of keep[0..n) with keep[slot] == 0, rising. Returns their number, or -1 if there
 * are more than `most`. */
int cache_list_gone(const unsigned char *keep, int n, int most, int32_t *ret_gone);

/* Returns the gap of a head. For GAP_OPEN and GAP_FILLED, *ret_slot is its slot (may be NULL). */
enum cache_gap cache_gap(const struct cache *c, int layer, int head, int *ret_slot);

/* Completes deferred moves of keys and values, and fills an open slot, which must be private.
 * Returns true if the last entry, slot n, moved into it. Freed pages return to the pool. Not
 * thread-safe. */
bool cache_settle(struct cache *c, int layer, int head);

/* Reopens a filled slot. Returns true if its entry moved back to slot n. There must be space for
 * one entry (cache_reserve). */
bool cache_reopen(struct cache *c, int layer, int head);

struct cache_stats cache_stats(const struct cache *c);
/* Returns the number of entries of the longest head. */
int cache_longest(const struct cache *c);

#endif

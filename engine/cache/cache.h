/* cache.h - the paged, ragged KV store.
 *
 * One pool of pages; a page holds PAGE_SLOTS entries of one (layer, KV head).
 * Every head has its own length and its own list of pages, so a method may
 * keep 7 entries in one head and 4,000 in the next, and what is evicted really
 * frees memory.  Slots of a head are dense: 0 .. n-1.  They are not in order of
 * time: pos[] is the truth, and order[] lists the slots by rising position.
 *
 * An eviction of one entry moves nothing: it leaves the slot open, and the next append
 * stores the newcomer there.  Nobody sees an open slot: who wants to look at the head
 * before (cache_view, cache_key, cache_value) calls cache_settle, which fills the slot
 * with the last entry, and who still wants the newcomer there cache_reopen, which puts
 * that entry back.  When more than one entry leaves between two appends, the ranks are
 * closed instead (cache_keep), once for all of them; where these are few, keys and values
 * follow when somebody looks or the next append comes, since attention reads them then.  So the
 * order of slots follows from which entries left between which appends, however the cuts were split
 * and whoever looked on.
 *
 * A fork shares the pages of its origin, which are counted and copied when one
 * of the two first writes into them.  Copies are made where allocation may fail:
 * by cache_reserve before appends, by cache_own before evictions. */
#ifndef KVF_ENGINE_CACHE_H
#define KVF_ENGINE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

struct cache;

enum { NEVER_EXPIRES = INT32_MAX };

struct cache_config {
    int n_layers, n_heads, head_dim; /* KV heads */
    enum kv_type type;
};

/* One head as the attention and the methods see it; borrowed, valid until the
 * next append or eviction in that head.  Of a head whose ranks were closed since its last append
 * one thread alone may ask for it. */
struct cache_head {
    int n;                      /* entries */
    const int32_t *pos;         /* [n] position of the entry in each slot */
    const int32_t *expires_at;  /* [n] first query that does not see it; CACHE_STAYS: open */
    const int32_t *order;       /* [n] slots by rising position */
    unsigned char *const *page; /* [ceil(n / PAGE_SLOTS)] keys, then values */
    bool plain;                 /* slot i holds position i, for all slots */
    int32_t first_expiry;       /* at most the least until */
    int n_permanent; /* so many leading slots, or more, hold entries that stay: only those behind
                 them need be looked at for what leaves */
};

/* What has left a head since its last append. */
enum cache_gap {
    GAP_NONE,   /* nothing */
    GAP_OPEN,   /* one entry: its slot waits for the newcomer */
    GAP_FILLED, /* one entry: the last one took its slot */
    GAP_CLOSED, /* ranks were closed */
};

struct cache_stats {
    int64_t entries, entries_peak; /* over all heads */
    int64_t pages, pages_peak;     /* in use, shared ones included */
    int64_t page_bytes;            /* of one page */
};

/* KVF_OK or KVF_E_NOMEM. */
int cache_create(const struct cache_config *cfg, struct cache **ret_cache);
void cache_destroy(struct cache *c); /* accepts NULL */

/* Where there are no pages for `now` more entries in every head, all threads bring memory for those
 * of `ahead` >= now at once, as it comes slowly on some machines.  KVF_OK or KVF_E_NOMEM. */
int cache_stock(struct cache *c, int now, int ahead, struct par *pool);

/* Bytes of the pages for so many entries in every head. */
int64_t cache_bytes(const struct cache_config *cfg, int entries);

/* A cache of its own with the same entries, open slots and statistics; neither sees what
 * the other does from now on.  KVF_OK or KVF_E_NOMEM.  The two may be used by
 * different threads, but not while the fork is made. */
int cache_fork(struct cache *from, struct cache **ret_cache);
int64_t cache_shared(const struct cache *c); /* pages in use that another cache holds too */

/* Makes room for n more entries in a head: pages come from the pool.  With
 * cache_own the only call that allocates; KVF_OK or KVF_E_NOMEM.  Not thread-safe. */
int cache_reserve(struct cache *c, int layer, int head, int n);

/* Lets slots from .. to-1 be written by cache_settle and cache_keep: copies the
 * pages that are shared with another cache.  Costs next to nothing without forks.
 * KVF_OK, or KVF_E_NOMEM (the entries are untouched).  Not thread-safe. */
int cache_own(struct cache *c, int layer, int head, int from, int to);

/* An entry to be stored. */
struct cache_entry {
    int32_t pos;        /* exceeds every position in the head, or order[] is that of appending */
    int32_t expires_at; /* first query that will not see it, or CACHE_STAYS */
    const float *key, *value; /* [head_dim] */
};

/* Appends an entry into reserved room, into the open slot if there is one, else behind
 * the others; returns its slot.  Threads may append to different heads at once. */
int cache_append(struct cache *c, const struct kernels *k, int layer, int head,
                 const struct cache_entry *e);
/* Appends n entries at positions pos and on into reserved room, of a head without an open slot, as
 * one by one; until: [n].  Their keys and values lie in pages as here, the first of which is that
 * of the first entry's slot: who mirrors the cache has them already.  Threads as above. */
void cache_append_pages(struct cache *c, int layer, int head, int32_t pos, const int32_t *until,
                        int n, const unsigned char *pages);
/* To be called once after a round of appends, from one thread. */
void cache_account(struct cache *c);

struct cache_head cache_view(const struct cache *c, int layer, int head);
enum kv_type cache_type(const struct cache *c);
const void *cache_keys(const struct cache_head *h, int page);
const void *cache_values(const struct cache *c, const struct cache_head *h, int page);

/* Whether a page that the head holds was written since it was last asked for, for the one who
 * mirrors the cache elsewhere. */
bool cache_take_dirty(struct cache *c, int layer, int head, int page);

/* The key and the value of a slot as f32 [head_dim]. */
void cache_key(const struct cache *c, int layer, int head, int slot, float *ret_key);
void cache_value(const struct cache *c, int layer, int head, int slot, float *ret_value);

/* Removes one entry; its slot stays open for the next append (the last slot is the next
 * anyway).  Of a head without a gap: a second entry that leaves before the same append
 * takes cache_keep. */
void cache_evict(struct cache *c, int layer, int head, int slot);

/* Keeps the slots with keep[slot] != 0 and closes ranks in slot order; of a head with an
 * open slot, whose keep[] is 0, keep[] has one element more, since the entries lie around
 * it.  The slots from the first that goes up to the number of those that stay must be the
 * cache's own.  Not thread-safe. */
void cache_keep(struct cache *c, int layer, int head, const unsigned char *keep);
/* Its two halves: ranks, which threads may close in different heads at once, in time O(slots from
 * the first that goes on); and the pages that are free then. */
void cache_close_ranks(struct cache *c, int layer, int head, const unsigned char *keep);
void cache_release(struct cache *c, int layer, int head);

/* Slots of keep[0..n) with keep[slot] == 0, rising; returns how many, or -1: more than `most`. */
int cache_list_gone(const unsigned char *keep, int n, int most, int32_t *ret_gone);

/* The gap of a head; *ret_slot, for GAP_OPEN and GAP_FILLED (may be NULL): where. */
enum cache_gap cache_gap(const struct cache *c, int layer, int head, int *ret_slot);

/* Ends what was put off: keys and values follow closed ranks.  Fills an open slot, which must be
 * the cache's own: whether the entry of slot n, that is the last, moved into it.  Freed pages
 * return to the pool.  Not thread-safe. */
bool cache_settle(struct cache *c, int layer, int head);

/* Opens a filled slot again: whether its entry moved back to slot n.  There must be room
 * for one entry (cache_reserve). */
bool cache_reopen(struct cache *c, int layer, int head);

struct cache_stats cache_stats(const struct cache *c);
/* Entries of the head that has most. */
int cache_longest(const struct cache *c);

#endif

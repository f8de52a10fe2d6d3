/* evicted_entries.h - what has left the cache, kept aside (--shadow entries); private to
 * engine/decode/.
 *
 * Keys and values of every entry that leaves, for whatever reason, are copied as they
 * were stored into a second paged store.  After a query has attended, it also scores
 * what it did not see: ghosts, entries that are only removed later, and pages that it
 * did not read.  Nothing of that goes back into the run.
 *
 * For S entries held and N ghosts of a head a query costs O((S + N) D) more, and
 * O(S + N) for the set of largest weights; nothing when it saw everything.  A ghost
 * costs 2 D elements of the cache's type and 12 bytes per KV head. */
#ifndef KVF_ENGINE_GHOSTS_H
#define KVF_ENGINE_GHOSTS_H

#include "engine/cache/cache.h"
#include "engine/method/decisions.h"

struct session;

/* A query that has attended. */
struct ghost_query {
    int layer, g, h; /* query head, KV head of the cache */
    int32_t t;
    int n; /* slots of the cache that are not newer than the query */
    const struct cache_head *view;
    int page;                    /* entries per page that is read or not; 0: all are read */
    const unsigned char *chosen; /* [pages] */
    const float *q;              /* [head_dim] rotated */
    const float *out;            /* [head_dim] what it got */
    int thread;
};

/* Makes s->ghosts.  KVF_OK or KVF_E_NOMEM. */
int evicted_entries_create(struct session *s);
struct evicted_entries;
void evicted_entries_destroy(struct evicted_entries *g); /* accepts NULL */

/* Keeps a copy of an entry that is about to leave.  Lack of memory is remembered
 * (evicted_entries_err). */
void evicted_entries_add(struct session *s, const struct eviction *e);
int evicted_entries_err(const struct evicted_entries *g); /* KVF_OK, also of NULL, or KVF_E_NOMEM */

/* Tells the recorder what the query missed; threads as for attention rows. */
void evicted_entries_ask(struct session *s, const struct ghost_query *q);

#endif

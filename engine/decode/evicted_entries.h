/* evicted_entries.h - keeps a copy of evicted entries (--shadow entries); private to
 * engine/decode/.
 *
 * The keys and values of every evicted entry are copied, as stored, into a second paged store.
 * After a query has attended, it is also scored against entries that it did not see: evicted
 * entries, entries that expired but are not yet removed, and pages that it did not read. The run
 * itself does not change.
 *
 * For S cached and N evicted entries of a head, a query costs O((S + N) D) more, and O(S + N) for
 * the set of largest weights. It costs almost nothing if the query saw all entries, or all entries
 * inside its layer's window. An evicted entry costs 2 D elements of the cache's type and 12 bytes
 * per KV head.
 */
#ifndef KVF_ENGINE_EVICTED_ENTRIES_H
#define KVF_ENGINE_EVICTED_ENTRIES_H

#include "engine/cache/cache.h"
#include "engine/method/decisions.h"

struct session;

/* A query that has attended. */
struct evicted_query {
    int layer, g, h; /* layer; query head; KV head of the cache */
    int32_t t;
    int n; /* slots of the cache up to the query's own */
    const struct cache_head *view;
    int page; /* entries per page if the query reads a choice of pages; 0: reads all */
    const unsigned char *chosen; /* [pages] */
    const float *q;              /* [head_dim] with RoPE */
    const float *out;            /* [head_dim] attention output */
    int thread;
};

/* Creates s->compare.evicted. Returns KVF_OK or KVF_E_NOMEM. */
int evicted_entries_create(struct session *s);
struct evicted_entries;
void evicted_entries_destroy(struct evicted_entries *g); /* accepts NULL */

/* Copies an entry that is about to be evicted. evicted_entries_err returns a failure to allocate
 * memory. */
void evicted_entries_add(struct session *s, const struct eviction *e);
int evicted_entries_err(const struct evicted_entries *g); /* KVF_OK or KVF_E_NOMEM; accepts NULL */

/* Computes the attention that the query lost to entries it did not see, and passes it to the
 * recorder. Threads call it as they do for attention rows. */
void evicted_entries_score(struct session *s, const struct evicted_query *q);

#endif

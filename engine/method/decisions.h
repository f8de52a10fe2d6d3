/* decisions.h - evictions: when they happen and how they are reported.
 *
 * Time.  The query of step t sees the entries that are in the cache when its attention runs, its
 * own included.  Decisions are taken after the prompt, and in each later step either just before
 * entry t is appended (order=before: the evidence ends with query t - 1, and evict_step = t) or
 * after query t has run (order=after; evict_step = t + 1).  Admission may set the step at which an
 * entry is evicted when the entry is appended. */
#ifndef KVF_ENGINE_METHOD_DECISIONS_H
#define KVF_ENGINE_METHOD_DECISIONS_H

#include "engine/method/method_state.h"

/* One eviction, reported in the order of decision. */
struct eviction {
    int layer, head; /* KV head */
    int32_t pos, t;  /* position of the entry; first query that does not see it */
    enum kvf_reason reason;
    float score, margin; /* NaN: no score.  margin: lowest score of a kept entry - score */
    bool tie;            /* an entry of equal score was kept */
    int32_t rank;        /* candidates of the head that were evicted before it; -1: no score */
};
typedef void (*eviction_fn)(void *ctx, const struct eviction *e);

enum phase {
    PHASE_PROMPT, /* after a prompt or a chunk of it */
    PHASE_BEFORE, /* before a new entry is appended */
    PHASE_AFTER   /* after the query of the new entry */
};

/* Evicts, in all layers, the entries that the presets select at this phase.  t: the first query
 * that will not see the evicted entries.  Entries that expire until t are evicted first (not in
 * PHASE_AFTER).  pool may be NULL.  fn gets every eviction, in order of layer, head and, within one
 * decision, position.  *ret_cut (may be NULL): entries evicted for the budget.  KVF_OK or
 * KVF_E_NOMEM (the preset that lacked memory evicted no entry for the budget).
 *
 * After PHASE_BEFORE, a head that lost one entry since its last append has an open slot (cache.h).
 * Next, either store the new entry there or call method_settle().  After PHASE_PROMPT, PHASE_AFTER
 * and errors, no slot is open. */
int method_decide(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                  struct par *pool, eviction_fn fn, void *ctx, int64_t *ret_cut);

/* Returns the number of decode steps, up to n and from step t on, in which no preset can evict an
 * entry.  A result below the true number is possible. */
int method_free_steps(struct method_state *s, struct cache *c, int32_t t, int n);

/* Fills each open slot with the last entry of its head.  For use when no new entry follows. */
void method_settle(struct method_state *s, struct cache *c);

/* Returns true if a preset of the chain evicts entries at steps that are fixed when they are
 * appended. */
bool method_expires(const struct method_state *s);
/* Returns true if queries stop seeing entries at such steps.  A full-cache run keeps them. */
bool method_hides(const struct method_state *s);

/* Evicts the entries that query t does not see any more, in time O(entries since the first of a
 * head that expires).  fn (may be NULL) and pool: as for method_decide().  KVF_OK or KVF_E_NOMEM
 * (some presets may have evicted their entries). */
int method_expire(struct method_state *s, struct cache *c, int32_t t, struct par *pool,
                  eviction_fn fn, void *ctx);

/* Removes the entries of a KV head at the positions with gone[pos] != 0, before the next query and
 * without a preset's reason.  The state is prepared (method_prepare).  KVF_OK, or KVF_E_NOMEM
 * (no entry was removed). */
int method_remove(struct method_state *s, struct cache *c, int layer, int head,
                  const unsigned char *gone);

#endif

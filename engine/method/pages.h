/* pages.h - what is kept of pages, the entries that are read together: page b holds
 * the slots [b * size, (b + 1) * size), which stand in order of time; private to
 * engine/method/. */
#ifndef KVF_ENGINE_PAGES_H
#define KVF_ENGINE_PAGES_H

#include "engine/cache/cache.h"
#include "engine/gate/gate.h"

struct pages {
    bool bounds;                      /* least and most are kept */
    const struct gates *gates;        /* block keys are kept; NULL: not */
    int size, n_heads, dim, gate_dim; /* n_heads: layers * KV heads */
    int cap;                          /* pages per head */
    float *least, *most;              /* [n_heads][cap][dim] of the keys as stored */
    int *valid;                       /* [n_heads] leading slots that least and most cover */
    float *run;     /* [n_heads][3][dim] most, least and sum of the block that fills */
    float *key;     /* [n_heads][cap][gate_dim] of full blocks */
    float *scratch; /* [n_heads][scratch_len] for the gates: heads run in parallel */
    size_t scratch_len;
};

void pages_init(struct pages *p, unsigned kinds, int size, int n_heads, int dim,
                const struct gates *gates);
void pages_finish(struct pages *p);
int pages_reserve(struct pages *p, int slots); /* KVF_OK, KVF_E_NOMEM */

/* Slots from this one on have changed. */
void pages_changed(struct pages *p, int head, int slot);
/* Brings least and most of a head up to date. */
void pages_update(struct pages *p, const struct cache *c, int layer, int head, int at, int n);
/* Takes the unrotated key of a new entry.  Blocks never lose entries, so its slot is its
 * position. */
void pages_take_key(struct pages *p, int layer, int head, int n_kv_heads, int slot,
                    const float *k_pre);

#endif

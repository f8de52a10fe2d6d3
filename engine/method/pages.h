/* pages.h - the data of pages, which are entries that are read together.  Page b has the slots
 * [b * size, (b + 1) * size), in order of time.  Private to engine/method/. */
#ifndef KVF_ENGINE_PAGES_H
#define KVF_ENGINE_PAGES_H

#include "engine/cache/cache.h"
#include "engine/gate/gate.h"

struct pages {
    bool bounds;                      /* `least` and `most` are stored */
    const struct gates *gates;        /* makes block keys, which are stored; NULL: no block keys */
    int size, n_heads, dim, gate_dim; /* n_heads: layers * KV heads */
    int cap;                          /* pages per head */
    float *least, *most;              /* [n_heads][cap][dim] minimum, maximum of stored keys */
    int *valid;                       /* [n_heads] leading slots that `least` and `most` cover */
    float *run;     /* [n_heads][3][dim] maximum, minimum and sum of the incomplete block */
    float *key;     /* [n_heads][cap][gate_dim] block keys of full blocks */
    float *scratch; /* [n_heads][scratch_len] for the gates: heads run in parallel */
    size_t scratch_len;
};

void pages_init(struct pages *p, unsigned kinds, int size, int n_heads, int dim,
                const struct gates *gates);
void pages_finish(struct pages *p);
/* Reserves pages for `slots` entries per head.  KVF_OK or KVF_E_NOMEM. */
int pages_reserve(struct pages *p, int slots);

/* Records that slots from this one on have changed. */
void pages_changed(struct pages *p, int head, int slot);
/* Updates `least` and `most` of a head. */
void pages_update(struct pages *p, const struct cache *c, int layer, int head, int at, int n);
/* Adds the key of a new entry, before RoPE, to its block.  Entries of blocks are never evicted, so
 * the slot of an entry is its position. */
void pages_take_key(struct pages *p, int layer, int head, int n_kv_heads, int slot,
                    const float *k_pre);

#endif

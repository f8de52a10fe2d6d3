/* merges.h - the list of merges that a file carries, as a table of pairs of tokens; private to the
 * tokenizer. */
#ifndef KVF_ENGINE_MERGES_H
#define KVF_ENGINE_MERGES_H

#include "engine/model/merging.h"
#include "engine/model/vocab.h"

struct merge { /* one slot of the open-addressing table; left < 0: free */
    int32_t left, right, rank, result;
};

struct merges {
    struct merge *merge;
    size_t n_slots; /* power of two; 0: no table */
};

/* spelled: the tokens as the file spells them.  KVF_OK, KVF_E_FORMAT with a sentence where merges
 * are missing or name no tokens, KVF_E_NOMEM. */
int merges_load(struct merges *m, const struct gguf *g, const struct names *spelled,
                struct kvf_diag *d);
void merges_finish(struct merges *m); /* accepts a zeroed one */
/* Whether two tokens can be merged; ids below 0 are no tokens. */
bool merges_find(const struct merges *m, int32_t left, int32_t right, struct merge_cand *ret);

#endif

/* merges.h - private to the tokenizer: the list of merges of a file, as a hash table of pairs of
 * tokens. */
#pragma once

#include "engine/model/merging.h"
#include "engine/model/vocab.h"

struct merge { /* a slot of the open-addressing table; left < 0 if free */
    int32_t left, right, rank, result;
};

struct merges {
    struct merge *merge;
    size_t n_slots; /* power of two; 0 if there is no table */
};

/* Loads the merges. spelled: the tokens as the file spells them. Returns KVF_OK, KVF_E_FORMAT with
 * a sentence if merges are missing or refer to unknown tokens, or KVF_E_NOMEM. */
int merges_load(struct merges *m, const struct gguf *g, const struct names *spelled,
                struct kvf_diag *d);
void merges_finish(struct merges *m); /* accepts a zeroed struct */
/* Returns true if two tokens can be merged, and sets *ret; ids below 0 are not tokens. */
bool merges_find(const struct merges *m, int32_t left, int32_t right, struct merge_cand *ret);

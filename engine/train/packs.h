/* packs.h - training text as packs of T tokens with documents in them.
 *
 * Texts are tokenised once; the ids are kept in a cache file beside nothing else, found
 * again by the hash of the text, of the tokenizer and of what cuts it. */
#ifndef KVF_ENGINE_TRAIN_PACKS_H
#define KVF_ENGINE_TRAIN_PACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/model/tokenizer.h"

enum packing {
    PACK_RUN,      /* documents of exactly T tokens, as engine/experiment/documents.h cuts them */
    PACK_DOCUMENTS /* a line of JSONL, or a heading's text, is a document; longer than T: cut
                      into pieces; best-fit decreasing into packs of at most T tokens */
};

struct pack {
    const int32_t *ids;   /* [n] borrowed */
    const int32_t *first; /* [n] the first token of the document of token t */
    int n;                /* 2 .. T */
    const int32_t *gone;  /* [L, n, H] recorded evictions, as attention.h has them; borrowed; NULL:
                             none are recorded */
};

struct packs_source {
    const char *const *path; /* [n_paths] JSONL or text */
    int n_paths, length;     /* T */
    enum packing packing;
    double from, to;       /* the share of each file, by bytes, at line ends: [0, 1] */
    const char *cache_dir; /* NULL: no cache */
};

struct packs;

/* Documents of fewer than 2 tokens are left out.  A cache that is damaged is made again, one
 * that cannot be written is done without.  KVF_OK; KVF_E_ARG, KVF_E_IO, KVF_E_FORMAT,
 * KVF_E_LIMIT (nothing left of the data), KVF_E_NOMEM with a sentence that names file and
 * line. */
int packs_open(const struct tokenizer *t, const struct packs_source *from, struct packs **ret,
               struct kvf_diag *d);
/* One pack for each of n texts with recorded evictions, which are taken over, in any case; ids are
 * copied.  per: layers times KV heads.  KVF_OK or KVF_E_NOMEM. */
struct packs_text {
    const int32_t *ids;
    int n;         /* at least 2 */
    int32_t *gone; /* [per * n] of mem_alloc */
};
int packs_gather(const struct packs_text *text, int n, size_t per, struct packs **ret);
void packs_close(struct packs *p); /* accepts NULL */
int packs_count(const struct packs *p);
int64_t packs_tokens(const struct packs *p);
/* XXH3-64 of all ids, document starts and recorded evictions: what a checkpoint remembers. */
uint64_t packs_hash(const struct packs *p);
/* Pack number i (of packs_count) of epoch e, from 0, in an order that depends on seed and e
 * alone; the order is kept in p, so that one thread at a time may ask. */
struct pack packs_get(struct packs *p, uint64_t seed, int64_t epoch, int i);

#endif

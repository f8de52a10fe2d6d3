/* packs.h - training text as packs of at most T tokens, with one or more documents each.
 *
 * Texts are tokenised once. Token ids are stored in a cache file, which is found by the hash of the
 * text, the tokenizer and the packing options. */
#ifndef KVF_ENGINE_TRAIN_PACKS_H
#define KVF_ENGINE_TRAIN_PACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/model/tokenizer.h"

/* How documents are packed. */
enum packing {
    PACK_RUN,      /* documents of exactly T tokens, as defined in engine/experiment/documents.h */
    PACK_DOCUMENTS /* a line of JSONL or the text of a heading is a document; documents longer than
                      T are split; best-fit decreasing into packs of at most T tokens */
};

/* One pack. */
struct pack {
    const int32_t *ids;        /* [n] borrowed */
    const int32_t *first;      /* [n] first token of the document of each token */
    int n;                     /* 2 .. T */
    const int32_t *evicted_at; /* [L, n, H] recorded evictions, as in engine/kernels/gated.h;
                            borrowed; NULL: not recorded */
};

/* The source of training text and its packing options. */
struct packs_source {
    const char *const *path; /* [n_paths] JSONL or text */
    int n_paths, length;     /* T */
    enum packing packing;
    double from, to;       /* fraction of each file by bytes, rounded to line ends: [0, 1] */
    const char *cache_dir; /* NULL: no cache */
};

struct packs;

/* Reads and packs the text. Documents of fewer than 2 tokens are left out. A damaged cache is
 * rebuilt; a cache that cannot be written is ignored. Returns KVF_OK, or with a message that names
 * file and line: KVF_E_ARG, KVF_E_IO, KVF_E_FORMAT, KVF_E_LIMIT (no data left), KVF_E_NOMEM. */
int packs_open(const struct tokenizer *t, const struct packs_source *from, struct packs **ret,
               struct kvf_diag *d);
/* A text with recorded evictions. */
struct packs_text {
    const int32_t *ids;
    int n;               /* at least 2 */
    int32_t *evicted_at; /* [per * n] allocated by mem_alloc */
};
/* Makes one pack of each of n texts. ids are copied; ownership of every evicted_at passes to the
 * packs, also after an error. per: layers times KV heads. Returns KVF_OK or KVF_E_NOMEM. */
int packs_gather(const struct packs_text *text, int n, size_t per, struct packs **ret);
void packs_close(struct packs *p); /* accepts NULL */
/* Returns the number of packs. */
int packs_count(const struct packs *p);
/* Returns the number of tokens in all packs. */
int64_t packs_tokens(const struct packs *p);
/* Returns an XXH3-64 of all ids, document starts and recorded evictions, for checkpoints. */
uint64_t packs_hash(const struct packs *p);
/* Returns pack i < packs_count of an epoch (from 0), in an order that depends only on seed and
 * epoch. The order is stored in p, so only one thread at a time can call this. */
struct pack packs_get(struct packs *p, uint64_t seed, int64_t epoch, int i);

#endif

/* bpe.h - vocabulary and merges of a byte-level BPE; private to the tokenizer. */
#ifndef KVF_ENGINE_BPE_H
#define KVF_ENGINE_BPE_H

#include "base/buf.h"
#include "engine/model/gguf.h"

struct bpe_text {
    const char *s;
    size_t len;
};

struct bpe_merge { /* one slot of the open-addressing table; left < 0: free */
    int32_t left, right, rank, result;
};

struct bpe {
    int n_tokens;
    struct buf text;      /* raw bytes of all tokens */
    size_t *start;        /* [n_tokens + 1] */
    int32_t byte_id[256]; /* token of each single byte */
    struct bpe_merge *merge;
    size_t n_slots; /* power of two */
    void *numeral;  /* compiled \p{N} */
};

struct bpe_scratch { /* grows as needed */
    struct bpe_node *node;
    struct bpe_cand *heap;
    size_t cap;
};

/* hash: XXH3-128 of vocabulary and merges, in hex. */
int bpe_load(struct bpe *b, const struct gguf *g, char hash[33], struct kvf_diag *d);
void bpe_finish(struct bpe *b);
void bpe_scratch_finish(struct bpe_scratch *s);

struct bpe_text bpe_token(const struct bpe *b, int32_t id); /* "" outside the vocabulary */
/* Appends the tokens of one word to ids (int32 values). KVF_OK or KVF_E_NOMEM. */
int bpe_encode(const struct bpe *b, const char *s, size_t n, struct bpe_scratch *scratch,
               struct buf *ids);

bool bpe_is_numeral(const struct bpe *b, const char *s, size_t n); /* one code point */

#endif

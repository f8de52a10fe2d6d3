/* bpe.h - private to the tokenizer: the vocabulary and the merges of a byte-level BPE. */
#pragma once

#include "engine/model/merges.h"

/* A byte-level BPE. */
struct bpe {
    struct vocab vocab;
    int32_t byte_id[256]; /* token of each single byte; -1 if there is none */
    struct merges merges;
    struct names words; /* ordinary tokens by their bytes; empty unless whole_words */
};

/* Loads the vocabulary and the merges. whole_words: a word that is a token becomes that token
 * without merging. Sets hash to the hash of vocabulary and merges. Returns KVF_OK, KVF_E_FORMAT
 * with a sentence, or KVF_E_NOMEM. */
int bpe_load(struct bpe *b, const struct gguf *g, bool whole_words, char hash[33],
             struct kvf_diag *d);
void bpe_finish(struct bpe *b);

/* Appends the tokens of one word to ids (int32 values). Returns KVF_OK, KVF_E_LIMIT for a word
 * over MERGING_MOST bytes, or KVF_E_NOMEM. */
int bpe_encode(const struct bpe *b, const char *s, size_t n, struct merging *scratch,
               struct buf *ids);

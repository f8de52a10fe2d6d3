/* spm.h - SentencePiece vocabularies (Kudo and Richardson 2018): BPE by scores and unigram;
 * private to the tokenizer.
 *
 * Tokens stand for their bytes with U+2581 as the space that it means, and a normalised text has
 * spaces too, so that decoding is nothing but joining. */
#ifndef KVF_ENGINE_SPM_H
#define KVF_ENGINE_SPM_H

#include "engine/model/merges.h"
#include "engine/model/normalize.h"
#include "engine/model/vocab.h"

struct spm {
    struct vocab vocab;
    float *score;           /* [vocab.n]; NULL: merges are those of the list */
    struct merges merges;   /* without scores */
    int32_t byte_id[256];   /* tokens of bytes, for characters that no token holds */
    bool has_bytes;         /* all of them are there */
    int32_t unknown;        /* token of such characters where has_bytes is not set; -1: none */
    bool unigram;           /* the likeliest row of tokens; otherwise merges */
    bool every_space;       /* a word ends before each space, a run of them too */
    bool words;             /* no token goes on behind a space: words can be taken one by one */
    size_t longest;         /* bytes of the longest token that text can become */
    float unknown_score;    /* of a character without a token, in the unigram */
    struct names names;     /* of ordinary tokens; merges alone */
    struct prefixes pieces; /* the same, the unigram alone */
    struct normalizer normalizer;
};

struct spm_scratch { /* grows as needed; zeroed to begin with */
    struct merging merging;
    struct buf text; /* normalised */
    size_t begin;    /* bytes of ids that are of what stands before the text */
    struct spm_step *step;
    size_t n_steps;
};

/* hash: of vocabulary and scores.  KVF_OK, KVF_E_FORMAT or KVF_E_LIMIT with a sentence,
 * KVF_E_NOMEM. */
int spm_load(struct spm *m, const struct gguf *g, bool unigram, char hash[33], struct kvf_diag *d);
void spm_finish(struct spm *m);
void spm_scratch_finish(struct spm_scratch *x); /* accepts a zeroed one */

/* Appends the tokens of a text to ids (int32 values).  Ill-formed bytes stand for themselves.
 * first: nothing stands before the text.  KVF_OK, KVF_E_NOMEM or KVF_E_LIMIT. */
int spm_encode(const struct spm *m, const char *s, size_t n, bool first, struct spm_scratch *x,
               struct buf *ids);

/* What segment.c does for it: tokens of n normalised bytes. */
int spm_merge(const struct spm *m, const char *s, size_t n, struct spm_scratch *x, struct buf *ids);
/* *score: of the best row up to here, taken on from word to word. */
int spm_viterbi(const struct spm *m, const char *s, size_t n, float *score, struct spm_scratch *x,
                struct buf *ids);

#endif

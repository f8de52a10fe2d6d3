/* spm.h - private to the tokenizer: SentencePiece vocabularies (Kudo and Richardson 2018), BPE
 * with scores and unigram.
 *
 * The bytes of a token have a space for U+2581, and a normalized text has spaces, too. Decoding
 * therefore only joins tokens.
 */
#pragma once

#include "engine/model/merges.h"
#include "engine/model/normalize.h"
#include "engine/model/vocab.h"

/* A SentencePiece vocabulary. */
struct spm {
    struct vocab vocab;
    float *score;         /* [vocab.n]; NULL if merges come from a list */
    struct merges merges; /* used without scores */
    int32_t byte_id[256]; /* byte tokens, for characters without a token */
    bool has_bytes;       /* all byte tokens exist */
    int32_t unknown;  /* token for such characters if has_bytes is not set; -1 if there is none */
    bool unigram;     /* segmentation with the largest sum of scores; otherwise merges */
    bool every_space; /* a word ends before each space, also within runs of spaces */
    bool words;       /* no token continues after a space, so words are segmented separately */
    size_t longest;   /* bytes of the longest ordinary token */
    float unknown_score;    /* score of a character without a token, for the unigram */
    struct names names;     /* ordinary tokens; only for merges */
    struct prefixes pieces; /* ordinary tokens; only for the unigram */
    struct normalizer normalizer;
};

struct spm_scratch { /* scratch memory that grows as needed; zero it first */
    struct merging merging;
    struct buf text; /* normalized text */
    size_t begin;    /* bytes of ids that precede this text */
    struct spm_step *step;
    size_t n_steps;
};

/* Loads a vocabulary and sets hash to the hash of vocabulary and scores. Returns KVF_OK,
 * KVF_E_FORMAT or KVF_E_LIMIT with a sentence, or KVF_E_NOMEM. */
int spm_load(struct spm *m, const struct gguf *g, bool unigram, char hash[33], struct kvf_diag *d);
void spm_finish(struct spm *m);
void spm_scratch_finish(struct spm_scratch *x); /* accepts a zeroed struct */

/* Appends the tokens of a text to ids (int32 values). Ill-formed bytes are treated as characters.
 * first: the text is the start of the complete input. Returns KVF_OK, KVF_E_NOMEM or
 * KVF_E_LIMIT. */
int spm_encode(const struct spm *m, const char *s, size_t n, bool first, struct spm_scratch *x,
               struct buf *ids);

/* Segments n normalized bytes by merges (segment.c). */
int spm_merge(const struct spm *m, const char *s, size_t n, struct spm_scratch *x, struct buf *ids);
/* Segments n normalized bytes by Viterbi search (segment.c). *score is the best score so far and
 * is carried from word to word. */
int spm_viterbi(const struct spm *m, const char *s, size_t n, float *score, struct spm_scratch *x,
                struct buf *ids);

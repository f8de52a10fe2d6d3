/* hf_tokens.h - private to engine/model: the parts of reading tokenizer.json or tokenizer.model. */
#pragma once

#include "base/json_tape.h"
#include "engine/model/hf.h"
#include "engine/model/vocab.h"

enum { HF_STRIPS_LEFT = 1, HF_STRIPS_RIGHT = 2 };

/* A token of the vocabulary. */
struct hf_token {
    size_t at, n;  /* range of its text in hf_tokens.bytes */
    uint8_t type;  /* enum token_type; 0 if no token has this id */
    uint8_t strip; /* sides on which adjacent blanks are removed */
    bool added;    /* it is listed in added_tokens */
    float score;   /* if the vocabulary has scores */
};

enum hf_model { HF_BYTE_LEVEL, HF_PIECES, HF_UNIGRAM };

/* A tokenizer that is being read. */
struct hf_tokens {
    const char *path;             /* path of the file, for messages */
    const struct json_tape *tape; /* NULL for a tokenizer.model */
    const struct json *decoder;   /* added_tokens_decoder of tokenizer_config.json, or NULL */
    struct buf scratch;           /* texts with resolved escapes */
    enum hf_model model;
    bool scored;      /* tokens have scores */
    bool whole_words; /* ignore_merges */
    bool nfc;
    bool prefix;       /* a space is added before a text */
    bool prefix_first; /* only if it is the start of the complete input */
    bool prefix_new;   /* only if the text does not begin with a space */
    bool collapse;     /* runs of spaces become one space */
    bool spaces;       /* a step replaces spaces by U+2581 */
    bool words;        /* each space begins a word, and no token extends beyond a word */
    uint32_t rules;    /* precompiled_charsmap, a text of the tape */
    /* patterns of the pre-tokenizer, each ended by a NUL; only for byte-level models */
    struct buf patterns;
    int n_patterns;
    struct buf bytes;       /* texts of the tokens */
    struct hf_token *token; /* [n] */
    int32_t n;
    int32_t most;       /* ids must be less */
    struct names names; /* texts of all tokens */
    struct kvf_diag *d;
};

/* Reads the steps before the model, normalizer and pre_tokenizer. Rejects unsupported steps by
 * name. Returns KVF_OK, KVF_E_FORMAT or KVF_E_NOMEM. */
int hf_steps_read(struct hf_tokens *x, uint32_t root);
/* Converts a published regular expression (Oniguruma syntax) to a PCRE2 expression with equal
 * matches, and appends it to out. Returns KVF_E_FORMAT for a construct that the two may interpret
 * differently, and sets *ret_at to its position. */
int hf_regex(const char *s, size_t n, struct buf *out, size_t *ret_at);
/* Allocates x->most tokens. Returns KVF_OK or KVF_E_NOMEM. */
int hf_tokens_open(struct hf_tokens *x);
/* Reads the tokens of the model and the added tokens. */
int hf_tokens_read(struct hf_tokens *x, uint32_t root);
/* Assigns an id to a text, which may already have this id. Returns KVF_OK, KVF_E_FORMAT or
 * KVF_E_NOMEM. */
int hf_token_put(struct hf_tokens *x, int64_t id, const char *s, size_t n, uint8_t type);
/* Reads the tokens of x->decoder. */
int hf_tokens_decoder(struct hf_tokens *x);
/* Builds x->names after all tokens are read; each text has one id. */
int hf_tokens_index(struct hf_tokens *x);
void hf_tokens_finish(struct hf_tokens *x);
/* Writes tokens, types and scores, if there are any, to put. */
void hf_tokens_put(const struct hf_tokens *x, struct gguf_put *put);

/* hf_tokens.h - the parts of reading tokenizer.json or tokenizer.model; private to the room. */
#ifndef KVF_ENGINE_HF_TOKENS_H
#define KVF_ENGINE_HF_TOKENS_H

#include "base/json_tape.h"
#include "engine/model/hf.h"
#include "engine/model/vocab.h"

enum { HF_STRIPS_LEFT = 1, HF_STRIPS_RIGHT = 2 };

struct hf_token {
    size_t at, n;  /* bytes in hf_tokens.bytes */
    uint8_t type;  /* enum token_type; 0: no token has this id */
    uint8_t strip; /* what goes of the blanks around it */
    bool added;    /* it stands in added_tokens */
    float score;   /* where the vocabulary has scores */
};

enum hf_model { HF_BYTE_LEVEL, HF_PIECES, HF_UNIGRAM };

struct hf_tokens {
    const char *path;             /* of the file, for sentences */
    const struct json_tape *tape; /* NULL: of a tokenizer.model */
    const struct json *decoder;   /* added_tokens_decoder of tokenizer_config.json, or NULL */
    struct buf scratch;           /* texts with escapes */
    enum hf_model model;
    bool scored;      /* tokens have scores */
    bool whole_words; /* ignore_merges */
    bool nfc;
    bool prefix;         /* a space goes before a text */
    bool prefix_first;   /* only where it is the start of all */
    bool prefix_new;     /* only where the text does not begin with one */
    bool collapse;       /* runs of spaces become one */
    bool spaces;         /* a step turns spaces into U+2581 */
    bool words;          /* each space begins a word, which no token goes beyond */
    uint32_t rules;      /* precompiled_charsmap, a text of the tape */
    struct buf patterns; /* each ended by a NUL: what cuts words, byte-level alone */
    int n_patterns;
    struct buf bytes;       /* of tokens */
    struct hf_token *token; /* [n] */
    int32_t n;
    int32_t most;       /* ids must be below */
    struct names names; /* of all tokens */
    struct kvf_diag *d;
};

/* The steps before the model: normalizer, pre_tokenizer.  What no step of ours does is refused by
 * name.  KVF_OK, KVF_E_FORMAT, KVF_E_NOMEM. */
int hf_steps_read(struct hf_tokens *x, uint32_t root);
/* A published regular expression (Oniguruma's syntax) as one of PCRE2 with the same matches;
 * appended to out.  KVF_E_FORMAT: it has something that the two may read in different ways, which
 * *ret_at is the place of. */
int hf_regex(const char *s, size_t n, struct buf *out, size_t *ret_at);
/* Room for x->most tokens.  KVF_OK or KVF_E_NOMEM. */
int hf_tokens_open(struct hf_tokens *x);
/* The tokens of the model and those that were added. */
int hf_tokens_read(struct hf_tokens *x, uint32_t root);
/* Gives an id to a text; it may have it already.  KVF_OK, KVF_E_FORMAT, KVF_E_NOMEM. */
int hf_token_put(struct hf_tokens *x, int64_t id, const char *s, size_t n, uint8_t type);
/* The tokens of x->decoder. */
int hf_tokens_decoder(struct hf_tokens *x);
/* The names of all tokens, once all are there; each text has one id. */
int hf_tokens_index(struct hf_tokens *x);
void hf_tokens_finish(struct hf_tokens *x);
/* Puts tokens, types and, where there are any, scores. */
void hf_tokens_put(const struct hf_tokens *x, struct gguf_put *put);

#endif

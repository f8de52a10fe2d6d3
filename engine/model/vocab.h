/* vocab.h - private to the tokenizer: the tokens of a vocabulary with their bytes and types, and
 * search by bytes. */
#pragma once

#include "base/buf.h"
#include "engine/model/gguf.h"

/* A byte sequence. */
struct piece {
    const char *s;
    size_t len;
};

enum token_type { /* numbers of the types in GGUF files */
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN,
                  /* a mark such as <s>; recognized in a text only with TOKENIZER_MARKS */
                  TOKEN_CONTROL,
                  TOKEN_USER, /* split off from every text before all other steps */
                  TOKEN_UNUSED,
                  TOKEN_BYTE, /* "<0x41>": a byte of a character that the vocabulary lacks */
};

/* The tokens of a vocabulary. */
struct vocab {
    int n;
    struct buf bytes; /* bytes of all tokens, concatenated */
    size_t *start;    /* [n + 1] */
    uint8_t *type;    /* [n] enum token_type */
};

/* Reads the number and the types of the tokens; their bytes are added later. Returns KVF_OK,
 * KVF_E_FORMAT with a sentence if the file has no tokens, or KVF_E_NOMEM. */
int vocab_open(struct vocab *v, const struct gguf *g, struct kvf_diag *d);
void vocab_finish(struct vocab *v); /* accepts a zeroed struct */
/* Ends token i after its bytes were appended to v->bytes; call it for the tokens in order. */
void vocab_end_token(struct vocab *v, int64_t i);
struct piece vocab_piece(const struct vocab *v, int32_t id); /* "" outside the vocabulary */

/* Sets out to the XXH3-128 in hex of the spellings of tokens and merges, and of the n scores
 * unless score is NULL. Returns KVF_OK or KVF_E_NOMEM. */
int vocab_hash(const struct gguf *g, const float *score, int n, char out[33]);

/* Mixes the name of a pre-tokenizer into a hash, because one vocabulary gives different ids with
 * different pre-tokenizers. */
void vocab_hash_name(const char *name, char hash[33]);

/* A hash table of tokens by their bytes, with open addressing. */
struct names {
    int32_t *slot; /* [n_slots] token ids; -1 if free */
    size_t n_slots;
    struct piece *name; /* [n] borrowed bytes */
};

int names_open(struct names *x, int n); /* for tokens 0 to n - 1; KVF_OK or KVF_E_NOMEM */
void names_finish(struct names *x);     /* accepts a zeroed struct */
/* Adds a token. If several tokens have equal bytes, names_find() returns the first one added. */
void names_add(struct names *x, int32_t id, struct piece p);
int32_t names_find(const struct names *x, struct piece p); /* -1 if there is none */

/* Tokens of some types sorted by their bytes, to find all prefixes of a text. */
struct prefixes {
    const struct vocab *vocab;
    int32_t *id; /* [n] */
    int n;
};

/* A position of the search. */
struct prefix_walk {
    int lo, hi;   /* range of the tokens that begin with the bytes walked so far */
    size_t depth; /* bytes walked */
};

/* Lists the tokens of the types in `types`, a bit 1 << type each. Omits tokens without bytes.
 * Returns KVF_OK or KVF_E_NOMEM. */
int prefixes_open(struct prefixes *p, const struct vocab *v, unsigned types);
void prefixes_finish(struct prefixes *p); /* accepts a zeroed struct */
struct prefix_walk prefixes_walk(const struct prefixes *p);
/* Advances by one byte. Returns false if no token begins with these bytes. *ret_id is the token
 * that ends here, or -1. */
bool prefixes_step(const struct prefixes *p, struct prefix_walk *w, char byte, int32_t *ret_id);

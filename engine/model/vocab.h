/* vocab.h - the tokens of a vocabulary: the bytes and the kind of each, and how one is found by
 * its bytes; private to the tokenizer. */
#ifndef KVF_ENGINE_VOCAB_H
#define KVF_ENGINE_VOCAB_H

#include "base/buf.h"
#include "engine/model/gguf.h"

struct piece {
    const char *s;
    size_t len;
};

enum token_type { /* as GGUF files number them */
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN,
                  TOKEN_CONTROL, /* a mark such as <s>; in a text it counts only where marks are
                                    asked for */
                  TOKEN_USER,    /* a word that is cut out of every text before all else */
                  TOKEN_UNUSED,
                  TOKEN_BYTE, /* "<0x41>": a byte of a character that the vocabulary lacks */
};

struct vocab {
    int n;
    struct buf bytes; /* what the tokens stand for, one behind the other */
    size_t *start;    /* [n + 1] */
    uint8_t *type;    /* [n] enum token_type */
};

/* The number and the types of the tokens; their bytes are added afterwards.  KVF_E_FORMAT with a
 * sentence where the file has no tokens, KVF_E_NOMEM. */
int vocab_open(struct vocab *v, const struct gguf *g, struct kvf_diag *d);
void vocab_finish(struct vocab *v); /* accepts a zeroed one */
/* Ends token i, whose bytes were appended to v->bytes; tokens come in order. */
void vocab_end_token(struct vocab *v, int64_t i);
struct piece vocab_piece(const struct vocab *v, int32_t id); /* "" outside the vocabulary */

/* XXH3-128 in hex of the spellings of tokens and merges, and of the n scores where there are
 * any.  KVF_OK or KVF_E_NOMEM. */
int vocab_hash(const struct gguf *g, const float *score, int n, char out[33]);

/* Mixes the name of a pre-tokenizer into a hash: the same vocabulary gives other ids with another.
 */
void vocab_hash_name(const char *name, char hash[33]);

/* Tokens by their bytes: open addressing over token numbers. */
struct names {
    int32_t *slot; /* [n_slots] -1: free */
    size_t n_slots;
    struct piece *name; /* [n] borrowed bytes */
};

int names_open(struct names *x, int n); /* room for tokens 0 to n - 1; KVF_OK or KVF_E_NOMEM */
void names_finish(struct names *x);     /* accepts a zeroed one */
/* Of several tokens with the same bytes the first that was added is found. */
void names_add(struct names *x, int32_t id, struct piece p);
int32_t names_find(const struct names *x, struct piece p); /* -1: there is none */

/* The tokens of some types in the order of their bytes, for finding all that a text begins with. */
struct prefixes {
    const struct vocab *vocab;
    int32_t *id; /* [n] */
    int n;
};

struct prefix_walk {
    int lo, hi;   /* the tokens that begin with the bytes walked so far */
    size_t depth; /* bytes walked */
};

/* types: a bit 1 << type for each.  Tokens without bytes are left out.  KVF_OK or KVF_E_NOMEM. */
int prefixes_open(struct prefixes *p, const struct vocab *v, unsigned types);
void prefixes_finish(struct prefixes *p); /* accepts a zeroed one */
struct prefix_walk prefixes_walk(const struct prefixes *p);
/* Goes on by one byte.  False: no token begins so.  *ret_id: the token that ends here, or -1. */
bool prefixes_step(const struct prefixes *p, struct prefix_walk *w, char byte, int32_t *ret_id);

#endif

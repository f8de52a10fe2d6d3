/* tokenizer.h - converts text to tokens and back with the vocabulary of a GGUF file. */
#pragma once

#include "base/buf.h"
#include "engine/model/gguf.h"

struct tokenizer;

/* A kind of tokenizer by its name in tokenizer.ggml.model: "gpt2" (byte-level BPE with the
 * pre-tokenizer in tokenizer.ggml.pre), "llama" (SentencePiece BPE) or "t5" (SentencePiece
 * unigram). */
struct tokenizer_kind {
    const char *key, *what;
};
/* Returns the i-th kind; NULL beyond the last. */
const struct tokenizer_kind *tokenizer_kind_at(int i);
/* Returns the kind of a file; NULL if it is not supported. */
const struct tokenizer_kind *tokenizer_kind(const struct gguf *g);
/* Returns the name of the i-th known pre-tokenizer; NULL beyond the last. */
const char *tokenizer_pre_at(int i);

/* Checks that the file has a supported kind, without loading the vocabulary. Returns KVF_OK, or
 * KVF_E_FORMAT with a sentence. */
int tokenizer_check(const struct gguf *g, struct kvf_diag *d);
/* Loads the tokenizer of a file with the pre-tokenizer `pre`; NULL selects the file's. Returns
 * KVF_OK, KVF_E_FORMAT or KVF_E_LIMIT with a sentence, KVF_E_NOMEM, or KVF_E_ARG if the file's
 * model does not use a pre-tokenizer. */
int tokenizer_create_as(const struct gguf *g, const char *pre, struct tokenizer **ret_tokenizer,
                        struct kvf_diag *d);
/* Returns the name of the file's pre-tokenizer, not NUL-terminated. It comes from the key of the
 * file, or for a byte-level BPE without this key, from the vocabulary. NULL if unknown. */
const char *tokenizer_pre(const struct gguf *g, size_t *ret_len);
void tokenizer_destroy(struct tokenizer *t); /* accepts NULL */

enum tokenizer_flags {
    TOKENIZER_MARKS = 1u << 0, /* names of control tokens in the text become these tokens */
    /* prepend the start mark if the vocabulary requires it and the text does not begin with it */
    TOKENIZER_BOS = 1u << 1,
    /* prepend the start mark, if the vocabulary has one, unless the text begins with it */
    TOKENIZER_BOS_ALWAYS = 1u << 2,
};

/* Converts n bytes of text to tokens. User-defined tokens are split off first. The stretches
 * between them, and between control tokens, are tokenized separately.
 *
 * Any bytes are allowed. Byte-level BPE decodes to the same bytes, except that bytes without a
 * token are dropped. SentencePiece decodes to the normalized text, usually with a space before it.
 * Without byte tokens, unknown characters become the unknown token. The caller owns *ret_ids
 * (mem_free). Returns KVF_OK, KVF_E_NOMEM, or KVF_E_LIMIT for a text over 64 MiB or a word over 16
 * MiB.
 */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                     int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

/* Appends the text of n tokens to b, as the transformers library decodes them: the result of
 * tokenizer_encode() gives the text again, without the space that SentencePiece adds before it.
 * Of byte-level BPE, bytes that are not UTF-8 become U+FFFD, one for each start of a character.
 * marks: control tokens and the unknown token give their names; otherwise they give nothing.
 * Failures are in b->err. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int n, bool marks,
                      struct buf *b);

/* Returns the bytes of a token, borrowed; "" for an id outside the vocabulary. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len);
/* Returns the number of bytes of a text that a token covers. before: the preceding token, -1 at
 * the start. rest: the remaining text. Excludes the space that SentencePiece adds before each
 * text. Returns 0 for a mark that is not in the text, such as the start mark. */
size_t tokenizer_covers(const struct tokenizer *t, int32_t before, int32_t id, const char *rest,
                        size_t n_rest);

/* Sets end[i] to the byte of the text at which token i ends, for the n_ids tokens of a text of n
 * bytes. Tokens beyond the text add the number of their bytes. If the tokenizer converts the text
 * to normal form C, a token that ends inside a converted cluster of characters ends before the last
 * byte of the cluster in the text. Returns KVF_OK, KVF_E_NOMEM, or KVF_E_FORMAT if the bytes of the
 * tokens differ from the text. */
int tokenizer_ends(const struct tokenizer *t, const char *text, size_t n, const int32_t *ids,
                   int n_ids, int64_t *end);

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id); /* the token ends generation */
/* the token is a control or user-defined token */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
int tokenizer_vocab(const struct tokenizer *t);
/* The start mark and the end mark of a vocabulary, each -1 if there is none. */
struct tokenizer_marks {
    int32_t bos, eos;
    bool adds_bos; /* TOKENIZER_BOS prepends the start mark */
};
struct tokenizer_marks tokenizer_marks(const struct tokenizer *t);
/* Returns the token before the start of a text: the start mark, or else the end mark; -1 if the
 * vocabulary has neither. */
int32_t tokenizer_before_text(const struct tokenizer *t);
/* Sets out to the hash of vocabulary and merges, and of the pre-tokenizer's name if one was
 * given. */
void tokenizer_hash(const struct tokenizer *t, char out[33]);

/* tokenizer.h - text to tokens and back, by the vocabulary that a GGUF file carries. */
#ifndef KVF_ENGINE_TOKENIZER_H
#define KVF_ENGINE_TOKENIZER_H

#include "engine/model/gguf.h"

struct tokenizer;

/* What tokenizer.ggml.model may say: "gpt2" (byte-level BPE, words cut by the pre-tokenizer that
 * tokenizer.ggml.pre names), "llama" (SentencePiece BPE) and "t5" (SentencePiece unigram). */
struct tokenizer_kind {
    const char *key, *what;
};
/* The i-th kind; NULL behind the last. */
const struct tokenizer_kind *tokenizer_kind_at(int i);
/* The one of a file; NULL: another. */
const struct tokenizer_kind *tokenizer_kind(const struct gguf *g);
/* The name of the i-th pre-tokenizer that is known; NULL behind the last. */
const char *tokenizer_pre_at(int i);

/* Whether a kind is known for the file, which costs nothing: KVF_OK, or KVF_E_FORMAT with a
 * sentence. */
int tokenizer_check(const struct gguf *g, struct kvf_diag *d);
/* KVF_OK, KVF_E_FORMAT or KVF_E_LIMIT with a sentence, KVF_E_NOMEM. */
int tokenizer_create(const struct gguf *g, struct tokenizer **ret_tokenizer, struct kvf_diag *d);
/* With the pre-tokenizer of a name in place of the file's own, of byte-level BPE; NULL: the file's.
 * KVF_E_ARG: the file's words are not cut by one. */
int tokenizer_create_as(const struct gguf *g, const char *pre, struct tokenizer **ret_tokenizer,
                        struct kvf_diag *d);
/* Returns the name of the pre-tokenizer that a file has, by its key or, if it has byte-level BPE
 * and no such key, by its vocabulary.  NULL: unknown.  Not NUL-terminated. */
const char *tokenizer_pre(const struct gguf *g, size_t *ret_len);
void tokenizer_destroy(struct tokenizer *t); /* accepts NULL */

enum tokenizer_flags {
    TOKENIZER_MARKS = 1u << 0, /* names of control tokens in the text become those tokens */
    TOKENIZER_BOS = 1u << 1,   /* the mark of the start goes before it where the vocabulary asks
                                  for one, unless the text begins with it */
};

/* Tokens of n bytes of text.  User-defined tokens are cut out first; what stands between them, and
 * between control tokens, is tokenised as a text of its own.
 *
 * Any bytes are allowed.  Byte-level BPE decodes back to them, except bytes for which the
 * vocabulary has no token: they are dropped.  SentencePiece decodes back to the text as it
 * normalises it, most often with a space before; without tokens of bytes, unknown characters
 * become the unknown token.  *ret_ids is owned by the caller (mem_free).
 * KVF_OK, KVF_E_NOMEM, or KVF_E_LIMIT for a text over 64 MiB, or one of which 16 MiB are one
 * word. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                     int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

/* The bytes a token stands for; borrowed.  An id outside the vocabulary: "". */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len);
/* How many bytes of a text a token stands for, behind a token before (-1: the start), where `rest`
 * is left of the text: without the space that SentencePiece puts before each text, and 0 for a
 * mark that is not there, such as that of the start. */
size_t tokenizer_covers(const struct tokenizer *t, int32_t before, int32_t id, const char *rest,
                        size_t n_rest);

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);     /* ends the generation */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* control or user-defined */
int tokenizer_vocab(const struct tokenizer *t);
/* What stands before a text that nothing stands before: the mark of the start, or else that of the
 * end; -1: the vocabulary has neither. */
int32_t tokenizer_before_text(const struct tokenizer *t);
/* Of vocabulary and merges, and of the name of a pre-tokenizer that was given. */
void tokenizer_hash(const struct tokenizer *t, char out[33]);

#endif

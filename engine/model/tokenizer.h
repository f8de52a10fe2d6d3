/* tokenizer.h - byte-level BPE from the GGUF's own vocabulary and merges. */
#ifndef KVF_ENGINE_TOKENIZER_H
#define KVF_ENGINE_TOKENIZER_H

#include "engine/model/gguf.h"

struct tokenizer;

/* Supports tokenizer.ggml.model "gpt2" with the pre-tokenizers smollm, gpt-2,
 * default, llama-bpe and qwen2.  KVF_OK, KVF_E_FORMAT with a sentence, KVF_E_NOMEM. */
int tokenizer_create(const struct gguf *g, struct tokenizer **ret_tokenizer, struct kvf_diag *d);
void tokenizer_destroy(struct tokenizer *t); /* accepts NULL */

/* Tokens of n bytes of text; any bytes are allowed and decode back to themselves,
 * except bytes for which the vocabulary has no token: they are dropped.
 * special: names of special tokens in the text become those tokens.  *ret_ids is
 * owned by the caller (mem_free). */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

/* The bytes a token stands for; borrowed.  An id outside the vocabulary: "". */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len);

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id); /* ends the generation */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
int tokenizer_vocab(const struct tokenizer *t);
void tokenizer_hash(const struct tokenizer *t, char out[33]); /* of vocabulary and merges */

#endif

/* keys.h - which metadata keys of a GGUF file are understood; private to engine/model/.
 *
 * A key under the architecture's name or under "tokenizer." may change the result.  Such a key must
 * be in a table of keys.c: as a key that the loader reads, as one that has no effect on tokens and
 * logits, or as one that has no effect with a certain value.  Others are errors, and so are values
 * of a wrong kind.  Keys under other names ("general.", "quantize.", ...) describe the file. */
#ifndef KVF_ENGINE_KEYS_H
#define KVF_ENGINE_KEYS_H

#include "engine/model/config.h"

/* Checks the names and the kinds of all keys, except those of the tokenizer.  KVF_OK, or
 * KVF_E_FORMAT with a sentence that names the key. */
int keys_check(const struct gguf *g, const char *arch, struct kvf_diag *d);
/* Checks the values of keys that a model which was read has no use for: each must be the one
 * without an effect.  Codes as keys_check. */
int keys_check_values(const struct gguf *g, const struct model_config *m, struct kvf_diag *d);
/* Checks the names, kinds and values of the keys of the tokenizer.  Codes as keys_check. */
int keys_check_tokenizer(const struct gguf *g, struct kvf_diag *d);

#endif

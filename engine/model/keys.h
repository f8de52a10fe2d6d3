/* keys.h - private to engine/model: the metadata keys of a GGUF file that the loader understands.
 *
 * A key with the prefix of the architecture or "tokenizer." may change the result. It must be in a
 * table of keys.c: as a key that the loader reads, as a key that does not affect tokens and
 * logits, or as a key that has no effect with a certain value. Other keys and values of a wrong
 * kind are errors. Keys with other prefixes ("general.", "quantize.", ...) describe the file.
 */
#pragma once

#include "engine/model/config.h"

/* Checks the names and the kinds of all keys except those of the tokenizer. Returns KVF_OK, or
 * KVF_E_FORMAT with a sentence that names the key. */
int keys_check(const struct gguf *g, const char *arch, struct kvf_diag *d);
/* Checks that keys which the model does not use have the value without an effect. Returns as
 * keys_check() does. */
int keys_check_values(const struct gguf *g, const struct model_config *m, struct kvf_diag *d);
/* Checks the names, kinds and values of the tokenizer keys. Returns as keys_check() does. */
int keys_check_tokenizer(const struct gguf *g, struct kvf_diag *d);

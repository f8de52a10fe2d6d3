/* pre_known.h - private to the tokenizer: the pre-tokenizer of a published vocabulary.
 *
 * Byte-level files made before the key tokenizer.ggml.pre existed do not name it.
 */
#pragma once

#include "engine/model/gguf.h"

/* Returns the name of the pre-tokenizer (pretok.h), from the number of merges and the id of a
 * special token; NULL if the vocabulary is unknown. */
const char *pre_known(const struct gguf *g);

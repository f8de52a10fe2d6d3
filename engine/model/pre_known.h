/* pre_known.h - the pre-tokenizer that belongs to a published vocabulary; private to the tokenizer.
 *
 * Byte-level files that were made before tokenizer.ggml.pre existed do not name it. */
#ifndef KVF_ENGINE_PRE_KNOWN_H
#define KVF_ENGINE_PRE_KNOWN_H

#include "engine/model/gguf.h"

/* Returns its name (pretok.h) by the number of merges and the place of a special token, or NULL: it
 * is none of the vocabularies that are known. */
const char *pre_known(const struct gguf *g);

#endif

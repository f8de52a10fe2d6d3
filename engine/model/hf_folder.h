/* hf_folder.h - opens a folder that the transformers library saved as if it were a GGUF file.
 *
 * It reads config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
 * chat_template.jinja, tokenizer.model if there is no tokenizer.json, and the weights:
 * model.safetensors, or the files that model.safetensors.index.json names. Weights are mapped
 * read-only and not copied, except norms that GGUF stores in another form.
 *
 * The hash of a folder is the XXH3-128 over all existing files except the index, in the above
 * order, with the weights sorted by name. Each file contributes its name, a NUL, and the XXH3-128
 * of its content in canonical form (big-endian).
 */
#pragma once

#include "engine/model/gguf.h"

/* Opens a folder. Sets the metadata entry "<architecture>.rope.halves" to true. Returns as
 * gguf_open() does. */
int hf_folder_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d);

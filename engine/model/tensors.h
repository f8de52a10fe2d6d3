/* tensors.h - which tensors of a GGUF file are understood; private to engine/model/. */
#ifndef KVF_ENGINE_TENSORS_H
#define KVF_ENGINE_TENSORS_H

#include "engine/model/config.h"

/* Checks that the file has no tensor but those that the loader reads: every other one would change
 * the result.  KVF_OK, or KVF_E_FORMAT with a sentence that names the tensor. */
int tensors_check(const struct gguf *g, const struct model_config *m, struct kvf_diag *d);

#endif

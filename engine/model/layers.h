/* layers.h - private to engine/model: properties that differ between the layers of a model. */
#pragma once

#include "engine/model/config.h"

/* Sets window, local and no_rope_every of a config with known family and sizes. They come from a
 * period or a list in attention.sliding_window_pattern, or else from the table of families.
 * Returns KVF_OK, or KVF_E_FORMAT with a sentence. */
int layers_read(const struct gguf *g, struct model_config *m, struct kvf_diag *d);

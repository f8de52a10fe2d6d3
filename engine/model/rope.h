/* rope.h - the angles of a model's rotary positions; private to engine/model/. */
#ifndef KVF_ENGINE_ROPE_H
#define KVF_ENGINE_ROPE_H

#include "engine/model/config.h"

/* Fills theta, turn_gain and n_ctx_plain of a config whose sizes, base and windows are set:
 *     theta_j = base^(-2 j / rope_dim) / factor_j
 * with the factors of the tensors rope_freqs, or rope_factors_short and rope_factors_long, or one
 * factor for all (linear scaling).  KVF_OK, or KVF_E_FORMAT with a sentence. */
int rope_read(const struct gguf *g, struct model_config *m, struct kvf_diag *d);

#endif

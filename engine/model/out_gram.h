/* out_gram.h - the norm of values after the output projection.
 *
 * Entry i contributes a_ti W_g v_i to the residual stream through query head g at query t, where
 * W_g [d_model, head_dim] are the columns of W_O for that head. Its norm is a_ti |W_g v_i|, and
 * |W_g v|^2 = v' M v with M = W_g' W_g. This takes head_dim^2 operations per value instead of
 * d_model head_dim.
 */
#pragma once

#include "base/par.h"
#include "engine/model/config.h"
#include "engine/model/gguf.h"

/* Computes M of every query head from the stored weights: *ret [n_layers *
 * n_heads][head_dim][head_dim], to be freed with mem_free(). The model was loaded, so the shapes
 * of its tensors are known to be right. Returns KVF_OK, KVF_E_FORMAT with a sentence, or
 * KVF_E_NOMEM. */
int out_gram(const struct gguf *g, const struct model_config *m, struct par *pool, double **ret,
             struct kvf_diag *d);

/* out_gram.h - how long values become behind the output projection.
 *
 * What entry i gives to the residual stream through query head g at query t is
 * a_ti W_g v_i, W_g [d_model, head_dim] the columns of W_O that read the head.  Its length is
 * a_ti |W_g v_i|, and |W_g v|^2 = v' M v with M = W_g' W_g: head_dim^2 operations for a value,
 * not d_model head_dim. */
#ifndef KVF_ENGINE_OUT_GRAM_H
#define KVF_ENGINE_OUT_GRAM_H

#include "base/par.h"
#include "engine/model/config.h"
#include "engine/model/gguf.h"

/* M of every query head: *ret [n_layers * n_heads][head_dim][head_dim], for mem_free, from the
 * weights as stored.  The model has been loaded, so its tensors are known to fit.  KVF_OK,
 * KVF_E_FORMAT with a sentence, or KVF_E_NOMEM. */
int out_gram(const struct gguf *g, const struct model_config *m, struct par *pool, double **ret,
             struct kvf_diag *d);

#endif

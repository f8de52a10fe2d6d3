/* weights.h - a model's matrices, packed for the kernels. */
#ifndef KVF_ENGINE_WEIGHTS_H
#define KVF_ENGINE_WEIGHTS_H

#include "base/par.h"
#include "engine/kernels/packed.h"
#include "engine/model/config.h"

struct layer_weights {
    float *attn_norm, *ffn_norm; /* [d_model] owned */
    struct packed qkv;     /* [(n_heads + 2 n_kv_heads) head_dim, d_model]: Q, K, V rows */
    struct packed out;     /* [d_model, n_heads head_dim] */
    struct packed gate_up; /* [2 d_ffn, d_model]: gate rows, then up rows */
    struct packed down;    /* [d_model, d_ffn] */
};

struct weights {
    int n_layers, d_model;
    struct layer_weights *layer; /* [n_layers] */
    float *out_norm;             /* [d_model] */
    struct packed head;          /* [vocab, d_model]; the embedding when tied */
    const struct gguf_tensor *embedding; /* borrowed */
};

/* exact: everything as f32.  KVF_OK, KVF_E_FORMAT naming a tensor, KVF_E_NOMEM. */
int weights_load(const struct gguf *g, const struct model_config *m, bool exact, struct par *pool,
                 struct weights **ret_weights, struct kvf_diag *d);
void weights_free(struct weights *w); /* accepts NULL */

/* The embedding of a token in [0, vocab), dequantised. out: [d_model]. */
void weights_embed(const struct weights *w, int32_t token, float *out);

#endif

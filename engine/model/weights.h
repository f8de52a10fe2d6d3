/* weights.h - a model's matrices, packed for the kernels.
 *
 * Channels of queries and keys are in the order of the kernels, RoPE turning 2j and 2j + 1,
 * whatever the order of the file: channel 2j of a head is its j, 2j + 1 its j + rope_dim / 2
 * where the file has halves.  Products of queries and keys are the same in either order. */
#ifndef KVF_ENGINE_WEIGHTS_H
#define KVF_ENGINE_WEIGHTS_H

#include "base/par.h"
#include "engine/kernels/pack_room.h"
#include "engine/model/config.h"
#include "engine/model/block.h"

struct layer_weights {
    struct packed matrix[LAYER_MATRICES]; /* by enum tensor_role */
    float *vector[LAYER_TENSORS];         /* owned; NULL: the model has no such tensor */
};

struct weights {
    int n_layers, d_model;
    struct block_plan plan;
    struct layer_weights *layer;         /* [n_layers] */
    float *out_norm;                     /* [d_model], logit_scale divided out */
    struct packed head;                  /* [vocab, d_model]; the embedding when tied */
    const struct gguf_tensor *embedding; /* borrowed */
    float embedding_scale;
    bool has_i16;          /* some matrix has integers of 16 bits for floats */
    struct pack_room room; /* of the matrices */
};

/* Receives the matrices of a model as its file holds them, rows in the order of the kernels: the
 * sources of a role lie one below the other. */
/* layer: -1 of the head.  src is borrowed for the call.  KVF_OK or KVF_E_NOMEM. */
typedef int (*weight_sink)(void *ctx, int layer, enum tensor_role role,
                           const struct pack_source *src, int n_src, int K);
/* Hands over every matrix, one after the other.  KVF_OK, KVF_E_FORMAT naming a tensor, or what the
 * sink returned. */
int weights_visit(const struct gguf *g, const struct model_config *m, weight_sink sink, void *ctx,
                  struct kvf_diag *d);

/* Row of the file that holds row r of queries or keys. */
int weights_row_of(const struct model_config *m, int r);

/* progress, unless NULL, is told how many layers are there.  KVF_OK,
 * KVF_E_FORMAT naming a tensor, KVF_E_NOMEM. */
int weights_load(const struct gguf *g, const struct model_config *m, enum pack_how how,
                 struct par *pool, const struct progress_callback *progress,
                 struct weights **ret_weights, struct kvf_diag *d);
/* The bytes that the packed matrices would take, by the types of the tensors alone: nothing of them
 * is read.  KVF_OK, or KVF_E_FORMAT naming a tensor. */
int weights_bytes(const struct gguf *g, const struct model_config *m, enum pack_how how,
                  uint64_t *ret_bytes, struct kvf_diag *d);
void weights_free(struct weights *w); /* accepts NULL */

/* The embedding of a token in [0, vocab), dequantised and scaled. out: [d_model]. */
void weights_embed(const struct weights *w, int32_t token, float *out);

#endif

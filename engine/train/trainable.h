/* trainable.h - weights of a model that learn: f32 master copies and the packs made of them.
 *
 * Rows lie in the order of the kernels (weights.h).  A vector of the same n floats holds
 * derivatives, and each moment of the optimizer. */
#ifndef KVF_ENGINE_TRAIN_TUNED_H
#define KVF_ENGINE_TRAIN_TUNED_H

#include "engine/train/compute.h"
#include "engine/train/frozen.h"

/* The first float of each tensor of a layer (tensors.h) in w. */
struct trainable_layer {
    size_t at[LAYER_TENSORS];
};

struct trainable {
    const struct model_config *config; /* borrowed */
    struct trainable_layer *layer;     /* [n_layers] */
    size_t embedding;                  /* rows before their scale */
    size_t out_norm;                   /* the model's divided by logit_scale */
    size_t head; /* the embedding's where the model has no output matrix of its own */
    struct compute c;
    float *w;        /* [n] here */
    float *w_device; /* [n] its device copy */
    size_t n;
    unsigned learns; /* 1 << enum tensor_role: matrices whose derivatives are wanted, T_HEAD with
                        all that is no matrix of a layer; all of them at the start */

    struct gguf_tensor rows; /* of the embedding, in w */
    struct weights weights;  /* packs and norms of w */
    struct frozen frozen;
};

/* from: loaded exact; tied: its output matrix is the embedding.  The new weights are those of
 * `from`, which may be freed.  KVF_OK or KVF_E_NOMEM, with a sentence. */
int trainable_create(const struct compute *c, const struct model_config *config,
                     const struct weights *from, bool tied, struct trainable **ret,
                     struct kvf_diag *d);
void trainable_destroy(struct trainable *t); /* accepts NULL */
/* Packs the matrices again, for the processor; to be called after w has changed. */
void trainable_refresh(struct trainable *t, struct par *pool);
/* For gguf_write (gguf_write.h): the values of the tensors of g that learn.  trainable: a struct
 * trainable.
 */
bool trainable_fill(void *tuned, const struct gguf_tensor *tensor, float *out);
/* Returns whether derivatives by the tensors of a role are wanted. */
static inline bool trainable_learns(const struct trainable *t, enum tensor_role role)
{
    return t->learns & 1u << (role < LAYER_MATRICES ? role : T_HEAD);
}

#endif

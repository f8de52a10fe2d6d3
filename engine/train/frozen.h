/* frozen.h - the base model's matrices for both directions of a pass, in f32. */
#ifndef KVF_ENGINE_TRAIN_FROZEN_H
#define KVF_ENGINE_TRAIN_FROZEN_H

#include "engine/model/config.h"
#include "engine/model/weights.h"
#include "engine/train/quality.h"

struct frozen_layer {
    struct packed qkv, out, gate_up, down; /* of the transposed matrices: dx = W^T dy */
};

struct frozen {
    const struct model_config *config; /* borrowed */
    const struct weights *weights;     /* borrowed; loaded exact: y = W x */
    struct frozen_layer *back;         /* [n_layers] */
    struct output_matrix output;
};

/* Whether derivatives through a model are supported: KVF_OK, or KVF_E_ARG with a sentence. */
int frozen_check(const struct model_config *config, struct kvf_diag *d);
/* weights: loaded with exact = true.  KVF_OK or KVF_E_NOMEM with a sentence. */
int frozen_build(const struct model_config *config, const struct weights *w, struct par *pool,
                 struct frozen *ret, struct kvf_diag *d);
void frozen_finish(struct frozen *f); /* accepts a zeroed struct */

#endif

/* frozen.h - the base model's matrices for both directions of a pass, where they are computed with
 * (ops.h): packs in f32, or what a device has of them. */
#pragma once

#include "engine/model/config.h"
#include "engine/model/weights.h"
#include "engine/train/compute.h"
#include "engine/train/quality.h"

struct frozen_layer {
    struct packed matrix[LAYER_MATRICES]; /* of the transposed matrices: dx = W^T dy */
};

/* The vectors of a layer by enum tensor_role, there; NULL: the model has no such tensor. */
struct frozen_vectors {
    const float *of[LAYER_TENSORS];
};

struct frozen {
    struct compute c;
    const struct model_config *config; /* borrowed */
    const struct weights *weights;     /* borrowed; loaded exact: y = W x */
    struct frozen_vectors *vector;     /* [n_layers] */
    const float *out_norm;             /* there */
    struct output_matrix output;
    struct frozen_layer *back; /* [n_layers] of the processor */
    void *device;              /* matrices of a device (ops.h) */
};

/* The features (enum block_feature) that a model may have beyond the block of Llama and Qwen: for
 * saliency, for gates, and on devices. */
enum {
    FEATURES_OF_SALIENCY = 1 << FEATURE_SINKS | 1 << FEATURE_BIASES,
    FEATURES_OF_GATES = FEATURES_OF_SALIENCY | 1 << FEATURE_WINDOW | 1 << FEATURE_NORMS
                        | 1 << FEATURE_GELU,
    FEATURES_OF_DEVICES = 0
};
/* Checks that a model has no other features.  KVF_OK, or KVF_E_ARG with a sentence. */
int frozen_check(const struct model_config *config, unsigned features, struct kvf_diag *d);
/* weights: loaded with exact = true.  KVF_OK, KVF_E_NOMEM, or KVF_E_ARG of a device, with a
 * sentence. */
int frozen_build(const struct compute *c, const struct model_config *config,
                 const struct weights *w, struct frozen *ret, struct kvf_diag *d);
void frozen_finish(struct frozen *f); /* accepts a zeroed struct */

/* Of the processor: points vector at the weights' own, and packs the transposes of the matrices.
 * KVF_OK or KVF_E_NOMEM. */
int frozen_transpose(struct frozen *f, struct par *pool);
void frozen_point(struct frozen *f);
void frozen_drop(struct frozen *f);
/* The rows [N, K] of a packed f32 matrix. */
void frozen_unpack(const struct packed *p, float *to);

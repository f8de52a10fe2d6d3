/* lora.h - low-rank changes of matrices that learn: W = W_0 + (alpha / rank) B A
 * (Hu et al. 2021), A [rank, inputs] random at the start, B [outputs, rank] 0.
 *
 * Derivatives by A and B come from those by W: dA = (alpha / rank) B^T dW,
 * dB = (alpha / rank) dW A^T. */
#ifndef KVF_ENGINE_TRAIN_LORA_H
#define KVF_ENGINE_TRAIN_LORA_H

#include "engine/train/trainable.h"

enum lora_target { LORA_Q, LORA_K, LORA_V, LORA_O, LORA_GATE, LORA_UP, LORA_DOWN, LORA_TARGETS };
/* The module's name in the common layout: "self_attn.q_proj". */
const char *lora_target_name(enum lora_target t);
/* "q,k,v,o" of q, k, v, o, gate, up and down: bits 1 << LORA_*.  KVF_OK, or KVF_E_ARG with a
 * sentence. */
int lora_parse_targets(const char *text, unsigned *ret, struct kvf_diag *d);

struct lora_options {
    int rank;         /* at least 1 */
    double alpha;     /* over 0 */
    unsigned targets; /* 1 << LORA_*, or of them */
    uint64_t seed;
};

/* A pair of one layer and target, at floats of w. */
struct lora_pair {
    int layer, rows, columns;
    enum lora_target target;
    size_t a, b;   /* [rank, columns], [rows, rank], in the order of the kernels */
    size_t matrix; /* where the rows begin in tuned->w */
};

struct lora {
    struct lora_options opt;
    struct trainable *trainable; /* borrowed; its w and what it learns are written */
    float *base;                 /* there: W_0 of the pairs' matrices, one behind the other */
    struct lora_pair *pair;      /* [n_pairs] */
    int n_pairs;
    float *w;        /* [n] parameters here */
    float *w_device; /* [n] their device copy */
    size_t n;
    float *turned; /* there, scratch of lora_gradient: A^T */
};

/* KVF_OK, or KVF_E_NOMEM with a sentence. */
int lora_create(struct trainable *t, const struct lora_options *opt, struct lora **ret,
                struct kvf_diag *d);
void lora_destroy(struct lora *l); /* accepts NULL */
/* Writes W of all pairs into the tuned weights and packs them; after w has changed, both. */
void lora_refresh(struct lora *l, const struct compute *c);
/* grad [n] is set from the derivatives by the weights, d_w [tuned->n]; both there. */
void lora_gradient(struct lora *l, const struct compute *c, const float *d_w, float *grad);
/* Writes A and B as PEFT does: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
 * and so on, in f32, r and lora_alpha among the metadata, rows of queries and keys in the order of
 * Hugging Face's models; beside a file of the name adapter_model.safetensors goes PEFT's
 * adapter_config.json.  record: JSON, kept under "training".  Errors of safetensors_write. */
int lora_write(const struct lora *l, const char *path, const char *hash, const char *record,
               struct kvf_diag *d);

#endif

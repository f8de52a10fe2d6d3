/* tensors.h - the weight tensors of a layer: their roles, shapes and names in GGUF files.  Loading,
 * training, writing and devices loop over the roles; no other file lists tensors.
 *
 * To add a tensor: one role here and one row in tensors.c, and a step that uses it in block.c. */
#pragma once

#include "engine/model/config.h"

/* The purpose of a tensor in a layer.  Several tensors of a file can share a role: their rows lie
 * one below the other.  Weights that are trained lie in this order. */
enum tensor_role {
    T_QKV,     /* [(n_heads + 2 n_kv_heads) head_dim, d_model]: rows of Q, then K, then V */
    T_OUT,     /* [d_model, n_heads head_dim] */
    T_GATE_UP, /* [2 d_ffn, d_model]: rows of gate, then up */
    T_DOWN,    /* [d_model, d_ffn] */
    LAYER_MATRICES,
    T_ATTN_NORM = LAYER_MATRICES, /* [d_model] */
    T_FFN_NORM,                   /* [d_model] */
    T_ATTN_POST,                  /* [d_model] norm of the output of attention */
    T_FFN_POST,                   /* [d_model] norm of the output of the feed-forward branch */
    T_Q_NORM,                     /* [head_dim], or [n_heads head_dim] */
    T_K_NORM,                     /* [head_dim], or [n_kv_heads head_dim] */
    T_QKV_BIAS,                   /* [rows of T_QKV] */
    T_SINKS,                      /* [n_heads] one more logit in the softmax of each query head */
    T_OUT_BIAS,                   /* [d_model] */
    T_GATE_UP_BIAS,               /* [2 d_ffn] */
    T_DOWN_BIAS,                  /* [d_model] */
    LAYER_TENSORS,
    T_HEAD = LAYER_TENSORS, /* [vocab, d_model]: the output matrix, which is in no layer */
    T_NONE
};

/* One tensor of a file: the name behind "blk.N.", its rows (of a vector: its elements), and how
 * many of these, from the first on, are channels of queries or keys.  Those are reordered
 * (weights.h). */
struct tensor_part {
    const char *name;
    int rows, rotated;
};
struct tensor_shape {
    struct tensor_part part[3];
    int n_parts;
    int rows; /* of all parts */
    int K;    /* columns; 0: a vector */
};

/* Returns false and a shape without rows if layers of the model have no such tensor. */
bool tensor_shape(const struct model_config *m, enum tensor_role role, struct tensor_shape *ret);
/* Returns the name of a role: "qkv". */
const char *tensor_name(enum tensor_role role);
/* Returns the rows, the columns (1 of a vector), or their product; 0 if there is no tensor. */
int tensor_rows(const struct model_config *m, enum tensor_role role);
int tensor_columns(const struct model_config *m, enum tensor_role role);
size_t tensor_floats(const struct model_config *m, enum tensor_role role);

/* Notes which optional tensors the file has.  KVF_OK, or KVF_E_FORMAT naming one that only some
 * layers have. */
int tensors_find(const struct gguf *g, struct model_config *m, struct kvf_diag *d);
/* Checks that the file has only tensors that the loader reads: any other one would change the
 * result.  KVF_OK, or KVF_E_FORMAT with a sentence that names the tensor. */
int tensors_check(const struct gguf *g, const struct model_config *m, struct kvf_diag *d);

/* block.h - one transformer block as a list of steps.
 *
 * The family of a model and its tensors produce the list.  The CPU, devices and training execute
 * it.  An executor has one function for each operation. That function may run the steps that follow
 * too, if it has a kernel for all of them.
 *
 * To add a property of a family: a tensor (tensors.h) or a number (config.h), one step in block.c,
 * and the kernels of the step.  An executor that has no kernel lists no support for the feature. */
#pragma once

#include "engine/model/tensors.h"

enum block_op {
    OP_NORM,   /* dst = rmsnorm(src) w, over `heads` vectors of `width` channels from `offset` on */
    OP_MATMUL, /* dst = W src */
    OP_BIAS,   /* dst = src + w */
    OP_ROPE,   /* rotates `heads` vectors of `width` channels: queries, then keys */
    OP_GATES,  /* numbers of the gates of a session, if it has any */
    OP_STORE,  /* keys and values enter the cache */
    OP_ATTEND, /* dst = attention of the queries in src over the cache; w: sinks or T_NONE */
    OP_ACT,    /* dst = silu(gate) up, or gelu(gate) up in families with gelu */
    OP_ADD,    /* dst = dst + residual_scale src */
    BLOCK_OPS
};

/* The rows that a step reads or writes.  An executor maps each name to one of its buffers. */
enum block_slot {
    SLOT_X,       /* residual stream [d_model] */
    SLOT_NORMED,  /* input of attention [d_model] */
    SLOT_QKV,     /* queries, keys, values */
    SLOT_ATT,     /* output of the heads [n_heads head_dim] */
    SLOT_BRANCH,  /* output of a branch [d_model] */
    SLOT_FFN_IN,  /* input of the feed-forward branch [d_model] */
    SLOT_GATE_UP, /* [2 d_ffn] */
    SLOT_FFN,     /* [d_ffn] */
    SLOTS
};

struct block_step {
    enum block_op op;
    enum block_slot src, dst;
    enum tensor_role w; /* T_NONE: the step has no weight */
    int offset, heads, width;
};

enum { BLOCK_STEPS = 24, BLOCK_KINDS = 4 };

struct block {
    int n;
    struct block_step step[BLOCK_STEPS];
};

/* The lists of a model: layers of the same list share a kind. */
struct block_plan {
    int n;
    struct block kind[BLOCK_KINDS];
    unsigned char of[MODEL_LAYERS]; /* the kind of each layer */
};

void block_plan_build(const struct model_config *m, struct block_plan *ret);
static inline const struct block *block_of(const struct block_plan *p, int layer)
{
    return &p->kind[p->of[layer]];
}

/* Properties of a model that an executor may lack kernels for, as bits. */
enum block_feature {
    FEATURE_WINDOW,      /* layers with an attention window */
    FEATURE_CAP,         /* capped attention scores or logits */
    FEATURE_NORMS,       /* norms behind branches, and those before them */
    FEATURE_LATE_NORMS,  /* norms only behind branches, or norms over all heads */
    FEATURE_GELU,        /* a GELU gate */
    FEATURE_NOPE,        /* layers without rotations */
    FEATURE_MULTIPLIERS, /* of the embedding, of branches, of logits */
    FEATURE_SINKS,       /* one more logit in the softmax of each head */
    FEATURE_BIASES,      /* of the output of attention and of the feed-forward branch */
    FEATURES
};
/* Returns what a model has beyond the supported features (1 << FEATURE_*), in words for a sentence;
 * NULL: nothing. */
const char *executor_lacks(const struct model_config *m, unsigned supported);

/* Returns how many steps there are from step i to the next `op`. */
int steps_before(const struct block *b, int i, enum block_op op);

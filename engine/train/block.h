/* block.h - one layer of the model with gated attention, both directions; by weights too where
 * they learn.
 *
 * A tape holds what the backward pass needs of one layer; with recomputation one tape
 * serves all layers and the forward pass of a layer runs again before its backward one. */
#pragma once

#include "engine/train/ops.h"
#include "engine/train/trainable.h"

/* What T tokens share in all layers. */
struct block_run {
    const struct compute *c;
    const struct frozen *f;
    const struct net *net; /* NULL: the teacher */
    enum gating gating;    /* GATING_NONE: the teacher */
    int window, T;
    const int32_t *first;      /* [T] there, as all arrays */
    const int32_t *local;      /* [T] the first key that a token sees in a layer with a window
                                  (NULL: there are none) */
    const int32_t *evicted_at; /* [n_layers, T, n_kv_heads] as attention.h has it, or NULL */
    const struct trainable *trainable; /* with d_w: weights that learn */
    float *d_w;                        /* [tuned->n] derivatives are added; NULL: not wanted */
    int max_tokens;                    /* tokens that there may be: how positions turn */
    const float *rope, *rope_inverse;  /* [ROPE_KINDS][most][rope_dim] cos, sin by position;
                                       turn_back:  the other way */
};

struct tape {
    float *normed;               /* [T, d] after the attention norm */
    float *qkv;                  /* [T, ld_qkv] after RoPE */
    float *k_pre;                /* [T, H * D] before RoPE */
    float *att;                  /* [T, ld_att] */
    float *lse;                  /* [G, T] */
    float *saved[LAYER_TENSORS]; /* [T, channels] inputs of norms in place, by their weight */
    float *mid;                  /* [T, d] the residual stream between attention and feed-forward */
    float *gate_up;              /* [T, ld_ffn] */
    float *net;                  /* net_tape */
    float *value;                /* [T, H] log beta or max(g, least) */
    float *number;               /* [T, H] what attention uses: log beta or log of value */
    size_t ld_qkv, ld_att, ld_ffn;
    float *memory; /* owns all of the above, there */
};

/* most: tokens.  KVF_OK or KVF_E_NOMEM. */
int tape_create(const struct frozen *f, const struct net *net, int most, struct tape *ret);
void tape_finish(const struct compute *c, struct tape *t); /* accepts a zeroed struct */

/* Scratch of both passes, for up to `most` tokens and the threads of c. */
struct block_scratch {
    float *wide;               /* [most, ld_ffn], and no less than [most, ld] */
    float *narrow;             /* [most, d padded or ld_qkv, whichever is larger] */
    float *branch;             /* [most, as narrow] */
    float *d_branch;           /* [most, d] if branches have a scale */
    float *d_att;              /* [most, ld_att] */
    float *d_number, *d_value; /* [most, H] */
    float *net;
    void *attention;
    size_t ld, ld_ffn;
    float *memory;
};
int block_scratch_create(const struct frozen *f, const struct net *net, int most,
                         struct block_scratch *ret);
void block_scratch_finish(const struct compute *c, struct block_scratch *s);

/* Runs the layer forward: y [T, d] from x [T, d]; y may not be x. */
void block_forward(const struct block_run *r, int layer, const float *x, float *y, struct tape *t,
                   struct block_scratch *s);

/* Runs the layer backward: dx [T, d] holds the derivative by the output and gets that by the input.
 * d_value_more [T, H]: derivatives by the gates' values from losses on them, or NULL.
 * Parameters' derivatives are added to grad (NULL: they are not wanted).  d_number, when
 * not NULL, gets the derivative by what attention uses, [T, H]. */
void block_backward(const struct block_run *r, int layer, const float *x, float *dx, struct tape *t,
                    const float *d_value_more, float *grad, float *d_number,
                    struct block_scratch *s);

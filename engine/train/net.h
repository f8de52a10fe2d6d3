/* net.h - gates that learn: parameters, their values for a sequence, and derivatives.
 *
 * The layouts rg, rg10, linear, rgkv and wgkv of engine/gate, whose tensor names and shapes
 * are used.  Retention gates give log beta, write gates g, one number per token and KV head. */
#ifndef KVF_ENGINE_TRAIN_NET_H
#define KVF_ENGINE_TRAIN_NET_H

#include "base/rng.h"
#include "engine/gate/layouts.h"
#include "engine/train/compute.h"

/* A tensor of the parameters. */
struct net_tensor {
    char name[112];
    const struct part *part;
    int layer;
    int n_dims;
    uint64_t dim[3];
    size_t at, n; /* floats [at, at + n); tied layers share those of layer 0 */
};

/* One linear layer of one network: w [out, in] at w_at, bias at b_at (n: none). */
struct net_dense {
    int in, out;
    size_t w_at, b_at;
    struct packed_pair packs;
};

struct net {
    struct net_facts {
        struct gates_model model;
        enum layout_id layout;
        enum gate_activation activation;
        int hidden;
    } facts;
    const struct layout *layout;
    int L, H, D, n_stages;
    int n_units;               /* networks per layer: 1 or H */
    bool tied;                 /* the last stage is that of layer 0 in every layer */
    struct net_tensor *tensor; /* [n_tensors] by layer, then as in the layout */
    int n_tensors;
    struct net_dense *dense; /* [L][n_units][n_stages] */
    size_t *norm_at;         /* [L][2], wgkv */
    float *w;                /* [n] all parameters */
    float *w_device;         /* [n] the device copy of w, borrowed */
    size_t n;
};

struct net_options {
    enum layout_id layout; /* RG, RG10, LINEAR, RGKV or WGKV */
    int hidden;            /* I; of no meaning for LINEAR */
    bool tied;             /* the last stage: of LINEAR that is the whole network */
    double bias;           /* of the readout: retention gates; wgkv: added to z at the start */
    double deviation;      /* of random weights, retention gates */
    uint64_t seed;
};

/* KVF_OK or KVF_E_NOMEM.  The parameters are initialised and packed. */
int net_create(const struct gates_model *m, const struct net_options *opt, struct net **ret_net);
void net_destroy(struct net *n); /* accepts NULL */
/* Packs the matrices again; to be called after w has changed. */
void net_refresh(struct net *n, struct par *pool);

/* What a layer gives its gates, T rows each.  The inputs of a layout (layout_inputs) are
 * read, others may be NULL.  Keys before RoPE are those that RoPE turns: after the norm that
 * Qwen3 has on each head's keys and after the bias of Qwen2, channels in pairs. */
struct net_input {
    const float *x;                  /* [T, d_model] after the attention norm */
    const float *k_pre, *k_post, *v; /* rows of [H, D]: keys before and after RoPE; values */
    size_t ld_pre, ld_post, ld_v;
    int T;
};

/* Floats of one layer's record of a forward pass, and of scratch for both passes. */
size_t net_tape(const struct net *n, int T);
size_t net_scratch(const struct net *n, int T, int n_threads);

/* value: [T, H] log beta or g. */
void net_forward(const struct net *n, const struct compute *c, int layer,
                 const struct net_input *in, float *tape, float *value, float *scratch);

/* The backward pass, from d_value [T, H].  Derivatives by parameters are added to grad [n->n],
 * those by the layout's inputs are added to dx [T, d_model], dk_pre, dk_post and dv (rows of [H, D]
 * at ld_pre, ld_post and ld_v floats); others may be NULL. */
struct net_grads {
    float *grad, *dx, *dk_pre, *dk_post, *dv;
};
void net_backward(const struct net *n, const struct compute *c, int layer,
                  const struct net_input *in, const float *tape, const float *d_value,
                  const struct net_grads *to, float *scratch);

#endif

/* train_gates.c - trains gate networks on a device: one unit after another, all tokens at a time.
 * net_run.c defines the functions. The tape has the layout of the CPU. */
#include "engine/device/train.h"

#define WGKV_EPS 1e-6f /* from the published code, as in engine/gate/gate_eval.c */

/* A unit with its buffers in the scratch, all floats. */
struct unit {
    const struct compute *c;
    const struct net *n;
    const struct net_input *in;
    int layer, u, stages, of_readout; /* of_readout: heads that the last stage outputs */
    bool write;
    float *tape, *z;    /* the layer's tape; the unit's columns of z */
    float *rows, *d_in; /* [T][ld_in] gathered inputs; their gradients */
    float *act, *d_pre; /* [stages - 1][T][ld] */
    float *d_z;         /* [T][ld_z] */
    size_t ld_in, ld, ld_z;
};

static bool gathers(const struct net *n)
{
    return n->layout->inputs != GATE_IN_X;
}

static size_t hidden_floats(const struct net *n, int T)
{
    return (size_t)(n->layout->n_stages - 1) * (size_t)T * padded(n->facts.hidden);
}

size_t device_net_scratch(const struct compute *c, const struct net *n, int T)
{
    size_t t = (size_t)T;
    (void)c;
    return 2 * t * padded(n->dense[0].in) + 2 * hidden_floats(n, T) + t * padded(n->H);
}

static struct unit unit_of(const struct compute *c, const struct net *n, int layer, int u,
                           const struct net_input *in, float *tape, float *scratch)
{
    size_t T = (size_t)in->T, hidden = hidden_floats(n, in->T);
    struct unit r = {.c = c,
                     .n = n,
                     .in = in,
                     .layer = layer,
                     .u = u,
                     .stages = n->layout->n_stages,
                     .of_readout = n->layout->per_head ? 1 : n->H,
                     .write = n->facts.layout == LAYOUT_WGKV,
                     .tape = tape + (size_t)u * hidden,
                     .z = tape + (size_t)n->n_units * hidden + (n->layout->per_head ? u : 0),
                     .ld_in = padded(n->dense[0].in),
                     .ld = padded(n->facts.hidden),
                     .ld_z = padded(n->H)};
    r.rows = scratch;
    r.d_in = r.rows + T * r.ld_in;
    r.act = r.d_in + T * r.ld_in;
    r.d_pre = r.act + hidden;
    r.d_z = r.d_pre + hidden;
    return r;
}

static const struct net_dense *dense_of(const struct unit *r, int stage)
{
    return &r->n->dense[(r->layer * r->n->n_units + r->u) * r->stages + stage];
}

static float *hidden_at(const struct unit *r, float *area, int stage)
{
    return area + (size_t)stage * (size_t)r->in->T * r->ld;
}

static enum gpu_act act_of(const struct net *n)
{
    if (n->facts.activation == ACT_SILU)
        return GPU_SILU;
    return n->facts.activation == ACT_GELU ? GPU_GELU : GPU_RELU;
}

/* Returns the norm of a head's keys before RoPE (0) or after it (1). */
static struct gpu_norm key_norm(const struct unit *r, int which)
{
    const struct net *n = r->n;
    return (struct gpu_norm){r->in->T, 1, n->D, WGKV_EPS,
                             n->there + n->norm_at[2 * r->layer + which]};
}

/* Returns the inputs of a unit: rows of x, or rows gathered from keys and values. */
static const float *inputs(const struct unit *r, size_t *ret_ld)
{
    const struct net *n = r->n;
    const struct net_input *in = r->in;
    struct gpu *g = gpu_of(r->c);
    int kv = n->H * n->D;
    size_t head = (size_t)r->u * (size_t)n->D;
    *ret_ld = gathers(n) ? r->ld_in : (size_t)n->facts.model.d_model;
    if (!gathers(n))
        return in->x;
    if (n->layout->per_head) {
        struct gpu_norm pre = key_norm(r, 0), post = key_norm(r, 1);
        gpu_norm(g, &pre, r->rows, r->ld_in, in->k_pre + head, in->ld_pre);
        gpu_norm(g, &post, r->rows + n->D, r->ld_in, in->k_post + head, in->ld_post);
    } else {
        gpu_copy_rows(g, r->rows, r->ld_in, in->k_pre, in->ld_pre, in->T, kv);
        gpu_copy_rows(g, r->rows + kv, r->ld_in, in->v, in->ld_v, in->T, kv);
    }
    return r->rows;
}

/* y [T, out] = x [T, in] W^T. */
static void forward(const struct unit *r, int stage, float *y, size_t ld_y, const float *x,
                    size_t ld_x)
{
    const struct net_dense *d = dense_of(r, stage);
    device_multiply(r->c, &(struct gpu_multiply){.c = y,
                                                 .ld_c = ld_y,
                                                 .a = x,
                                                 .a_row = ld_x,
                                                 .a_col = 1,
                                                 .b = r->n->there + d->w_at,
                                                 .b_row = 1,
                                                 .b_col = (size_t)d->in,
                                                 .b_type = WEIGHT_F32,
                                                 .m = r->in->T,
                                                 .n = d->out,
                                                 .k = d->in});
}

void device_net(const struct compute *c, const struct net *n, int layer, const struct net_input *in,
                float *tape, float *value, float *scratch)
{
    for (int u = 0; u < n->n_units; u++) {
        struct unit r = unit_of(c, n, layer, u, in, tape, scratch);
        size_t ld_x;
        const float *x = inputs(&r, &ld_x);
        for (int s = 0; s < r.stages - 1; s++) {
            const struct net_dense *d = dense_of(&r, s);
            float *y = hidden_at(&r, r.tape, s), *a = hidden_at(&r, r.act, s);
            forward(&r, s, y, r.ld, x, ld_x);
            gpu_activate(gpu_of(c), act_of(n), y, a, r.ld, n->there + d->b_at, in->T, d->out);
            x = a;
            ld_x = r.ld;
        }
        forward(&r, r.stages - 1, r.z, r.ld_z, x, ld_x);
        gpu_read_out(gpu_of(c), r.z, r.ld_z, n->there + dense_of(&r, r.stages - 1)->b_at,
                     value + (n->layout->per_head ? u : 0), (size_t)n->H, in->T, r.of_readout,
                     r.write);
    }
}

/* Adds the weight gradients of a stage, from the gradient dy of its output and its input x. */
static void learn(const struct unit *r, int stage, float *grad, const float *dy, size_t ld_dy,
                  const float *x, size_t ld_x)
{
    const struct net_dense *d = dense_of(r, stage);
    ops(r->c)->weight_grad(r->c, grad + d->w_at, dy, ld_dy, d->out, x, ld_x, d->in, r->in->T);
    gpu_sum_rows(gpu_of(r->c), grad + d->b_at, dy, ld_dy, r->in->T, d->out);
}

/* dx [T, in] = or += dy [T, out] W. */
static void backward(const struct unit *r, int stage, float *dx, size_t ld_dx, const float *dy,
                     size_t ld_dy, bool add)
{
    const struct net_dense *d = dense_of(r, stage);
    device_multiply(r->c, &(struct gpu_multiply){.c = dx,
                                                 .ld_c = ld_dx,
                                                 .a = dy,
                                                 .a_row = ld_dy,
                                                 .a_col = 1,
                                                 .b = r->n->there + d->w_at,
                                                 .b_row = (size_t)d->in,
                                                 .b_col = 1,
                                                 .b_type = WEIGHT_F32,
                                                 .m = r->in->T,
                                                 .n = d->in,
                                                 .k = d->out,
                                                 .add = add});
}

/* Passes the gradients of the gathered inputs on to keys and values. */
static void inputs_back(const struct unit *r, const struct net_grads *to)
{
    const struct net *n = r->n;
    const struct net_input *in = r->in;
    struct gpu *g = gpu_of(r->c);
    int kv = n->H * n->D;
    size_t head = (size_t)r->u * (size_t)n->D;
    if (!n->layout->per_head) {
        gpu_add_rows(g, to->dk_pre, in->ld_pre, r->d_in, r->ld_in, in->T, kv);
        gpu_add_rows(g, to->dv, in->ld_v, r->d_in + kv, r->ld_in, in->T, kv);
        return;
    }
    const float *const key[] = {in->k_pre + head, in->k_post + head};
    float *const d_key[] = {to->dk_pre + head, to->dk_post + head};
    const size_t ld[] = {in->ld_pre, in->ld_post};
    for (int which = 0; which < 2; which++) {
        struct gpu_norm k = key_norm(r, which);
        const float *dy = r->d_in + which * n->D;
        gpu_norm_back(g, &k, d_key[which], ld[which], key[which], ld[which], dy, r->ld_in, false);
        gpu_norm_learn(g, &k, to->grad + n->norm_at[2 * r->layer + which], key[which], ld[which],
                       dy, r->ld_in);
    }
}

void device_net_back(const struct compute *c, const struct net *n, int layer,
                     const struct net_input *in, const float *tape, const float *d_value,
                     const struct net_grads *to, float *scratch)
{
    for (int u = 0; u < n->n_units; u++) {
        struct unit r = unit_of(c, n, layer, u, in, (float *)(uintptr_t)tape, scratch);
        size_t ld_x, ld_dy = r.ld_z;
        const float *x = inputs(&r, &ld_x);
        float *dy = r.d_z;
        gpu_read_out_back(gpu_of(c), dy, ld_dy, r.z, r.ld_z,
                          d_value + (n->layout->per_head ? u : 0), (size_t)n->H, in->T,
                          r.of_readout, r.write);
        for (int s = r.stages - 1; s > 0; s--) {
            float *a = hidden_at(&r, r.act, s - 1), *dx = hidden_at(&r, r.d_pre, s - 1);
            backward(&r, s, dx, r.ld, dy, ld_dy, false);
            gpu_activate_back(gpu_of(c), act_of(n), a, dx, hidden_at(&r, r.tape, s - 1), r.ld,
                              in->T, dense_of(&r, s)->in);
            learn(&r, s, to->grad, dy, ld_dy, a, r.ld);
            dy = dx;
            ld_dy = r.ld;
        }
        learn(&r, 0, to->grad, dy, ld_dy, x, ld_x);
        if (!gathers(n)) {
            backward(&r, 0, to->dx, ld_x, dy, ld_dy, true);
            continue;
        }
        backward(&r, 0, r.d_in, r.ld_in, dy, ld_dy, false);
        inputs_back(&r, to);
    }
}

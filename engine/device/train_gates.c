/* train_gates.c - training of gate networks on a device: runs the list of stages of a layout
 * (engine/gate/gate.h), one unit after the other, all tokens at a time.  The tape is that of
 * net_run.c. */
#include "engine/device/train.h"

/* A unit with its buffers in the scratch, all floats. */
struct unit {
    const struct compute *c;
    const struct net *n;
    const struct net_input *in;
    int layer, u, of_readout; /* of_readout: heads that the last stage outputs */
    float *tape, *z;          /* the layer's tape; the unit's columns of z */
    float *rows, *d_in;       /* [T][ld_in] gathered inputs; their gradients */
    float *act, *d_pre;       /* [stages - 1][T][ld] */
    float *d_z;               /* [T][ld_z] */
    size_t ld_in, ld, ld_z;
};

static bool gathers(const struct net *n)
{
    struct gate_segment x;
    return layout_segment(n->layout, &n->facts.model, 0, 0, &x);
}

static size_t hidden_floats(const struct net *n, int T)
{
    return (size_t)(n->n_stages - 1) * (size_t)T * padded(n->facts.hidden);
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
                     .of_readout = n->layout->per_head ? 1 : n->H,
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
    return &r->n->dense[(r->layer * r->n->n_units + r->u) * r->n->n_stages + stage];
}

static float *hidden_at(const struct unit *r, float *area, int stage)
{
    return area + (size_t)stage * (size_t)r->in->T * r->ld;
}

/* The norm of an input. */
static struct gpu_norm norm_of(const struct unit *r, int input, int channels)
{
    return (struct gpu_norm){r->in->T, 1, channels, GATE_NORM_EPS,
                             r->n->w_device + r->n->norm_at[2 * r->layer + input]};
}

/* An input vector of the layer, rows ld floats apart, and the derivatives by it. */
struct vector {
    const float *v;
    float *d;
    size_t ld;
};

static struct vector vector_of(const struct unit *r, unsigned from, const struct net_grads *to)
{
    const struct net_input *in = r->in;
    switch (from) {
    case GATE_IN_K_PRE:
        return (struct vector){in->k_pre, to->dk_pre, in->ld_pre};
    case GATE_IN_K_POST:
        return (struct vector){in->k_post, to->dk_post, in->ld_post};
    default:
        return (struct vector){in->v, to->dv, in->ld_v};
    }
}

/* Rows that the unit reads: those of x, or copies of segments of the layer's vectors. */
static const float *inputs(const struct unit *r, size_t *ret_ld)
{
    const struct net_grads none = {NULL, NULL, NULL, NULL, NULL};
    const struct net *n = r->n;
    struct gate_segment x;
    struct gpu *g = gpu_of(r->c);
    *ret_ld = gathers(n) ? r->ld_in : (size_t)n->facts.model.d_model;
    for (int i = 0; layout_segment(n->layout, &n->facts.model, r->u, i, &x); i++) {
        const struct gate_source *from = &n->layout->stages.input[x.input];
        const struct vector v = vector_of(r, from->from, &none);
        const struct gpu_norm norm = from->norm ? norm_of(r, x.input, x.n) : (struct gpu_norm){0};
        if (from->norm)
            gpu_norm(g, &norm, r->rows + x.to, r->ld_in, v.v + x.at, v.ld);
        else
            gpu_copy_rows(g, r->rows + x.to, r->ld_in, v.v + x.at, v.ld, r->in->T, x.n);
    }
    return gathers(n) ? r->rows : r->in->x;
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
                                                 .b = r->n->w_device + d->w_at,
                                                 .b_row = 1,
                                                 .b_col = (size_t)d->in,
                                                 .b_type = WEIGHT_F32,
                                                 .m = r->in->T,
                                                 .n = d->out,
                                                 .k = d->in});
}

/* Returns the input of a stage: the network's input, or the output of an earlier stage. */
static const float *stage_input(const struct unit *r, int s, const float *x, size_t *ld)
{
    int reads = r->n->layout->stages.stage[s].reads;
    *ld = reads ? r->ld : *ld;
    return reads ? hidden_at(r, r->act, reads - 1) : x;
}

/* Operations after the linear layer of a stage, bias included, and derivatives.  The layouts that
 * training offers have no GATE_THEN_MULTIPLY. */
typedef void (*then_fn)(const struct unit *r, int s, float *value);

static void activate(const struct unit *r, int s, float *value)
{
    const struct net_dense *d = dense_of(r, s);
    (void)value;
    gpu_activate(gpu_of(r->c), r->n->facts.activation, hidden_at(r, r->tape, s),
                 hidden_at(r, r->act, s), r->ld, r->n->w_device + d->b_at, r->in->T, d->out);
}

static void write_output(const struct unit *r, int s, float *value)
{
    gpu_read_out(gpu_of(r->c), r->z, r->ld_z, r->n->w_device + dense_of(r, s)->b_at, value,
                 (size_t)r->n->H, r->in->T, r->of_readout, r->n->layout->stages.output);
}

static const then_fn then_run[] = {[GATE_THEN_ACTIVATE] = activate,
                                   [GATE_THEN_MULTIPLY] = NULL,
                                   [GATE_THEN_OUTPUT] = write_output};

void device_net(const struct compute *c, const struct net *n, int layer, const struct net_input *in,
                float *tape, float *value, float *scratch)
{
    for (int u = 0; u < n->n_units; u++) {
        struct unit r = unit_of(c, n, layer, u, in, tape, scratch);
        size_t ld_in;
        const float *input = inputs(&r, &ld_in);
        for (int s = 0; s < n->n_stages; s++) {
            enum gate_then then = n->layout->stages.stage[s].then;
            bool last = then == GATE_THEN_OUTPUT;
            size_t ld_x = ld_in;
            const float *x = stage_input(&r, s, input, &ld_x);
            forward(&r, s, last ? r.z : hidden_at(&r, r.tape, s), last ? r.ld_z : r.ld, x, ld_x);
            then_run[then](&r, s, value + (n->layout->per_head ? u : 0));
        }
    }
}

/* Adds the derivatives by the weights of a stage.  dy: by its output.  x: its input. */
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
                                                 .b = r->n->w_device + d->w_at,
                                                 .b_row = (size_t)d->in,
                                                 .b_col = 1,
                                                 .b_type = WEIGHT_F32,
                                                 .m = r->in->T,
                                                 .n = d->in,
                                                 .k = d->out,
                                                 .add = add});
}

/* Adds the derivatives by the inputs of a unit to those by the layer's vectors and norms. */
static void inputs_back(const struct unit *r, const struct net_grads *to)
{
    const struct net *n = r->n;
    struct gpu *g = gpu_of(r->c);
    struct gate_segment x;
    for (int i = 0; layout_segment(n->layout, &n->facts.model, r->u, i, &x); i++) {
        const struct gate_source *from = &n->layout->stages.input[x.input];
        const struct vector v = vector_of(r, from->from, to);
        const float *dy = r->d_in + x.to;
        if (!from->norm) {
            gpu_add_rows(g, v.d + x.at, v.ld, dy, r->ld_in, r->in->T, x.n);
            continue;
        }
        const struct gpu_norm k = norm_of(r, x.input, x.n);
        gpu_norm_back(g, &k, v.d + x.at, v.ld, v.v + x.at, v.ld, dy, r->ld_in, false);
        gpu_norm_learn(g, &k, to->grad + n->norm_at[2 * r->layer + x.input], v.v + x.at, v.ld, dy,
                       r->ld_in);
    }
}

/* The derivatives by y of a stage, from those by its output. */
static void activate_back(const struct unit *r, int s, const float *d_value)
{
    (void)d_value;
    gpu_activate_back(gpu_of(r->c), r->n->facts.activation, hidden_at(r, r->act, s),
                      hidden_at(r, r->d_pre, s), hidden_at(r, r->tape, s), r->ld, r->in->T,
                      dense_of(r, s)->out);
}

static void output_back(const struct unit *r, int s, const float *d_value)
{
    (void)s;
    gpu_read_out_back(gpu_of(r->c), r->d_z, r->ld_z, r->z, r->ld_z, d_value, (size_t)r->n->H,
                      r->in->T, r->of_readout, r->n->layout->stages.output);
}

typedef void (*back_fn)(const struct unit *r, int s, const float *d_value);
static const back_fn then_back[] = {[GATE_THEN_ACTIVATE] = activate_back,
                                    [GATE_THEN_MULTIPLY] = NULL,
                                    [GATE_THEN_OUTPUT] = output_back};

void device_net_back(const struct compute *c, const struct net *n, int layer,
                     const struct net_input *in, const float *tape, const float *d_value,
                     const struct net_grads *to, float *scratch)
{
    for (int u = 0; u < n->n_units; u++) {
        struct unit r = unit_of(c, n, layer, u, in, (float *)(uintptr_t)tape, scratch);
        size_t ld_in;
        const float *input = inputs(&r, &ld_in);
        for (int s = n->n_stages - 1; s >= 0; s--) {
            const struct gate_stage *stage = &n->layout->stages.stage[s];
            bool last = stage->then == GATE_THEN_OUTPUT;
            float *dy = last ? r.d_z : hidden_at(&r, r.d_pre, s);
            size_t ld_dy = last ? r.ld_z : r.ld;
            then_back[stage->then](&r, s, d_value + (n->layout->per_head ? u : 0));
            if (stage->reads)
                backward(&r, s, hidden_at(&r, r.d_pre, stage->reads - 1), r.ld, dy, ld_dy, false);
            else if (gathers(n))
                backward(&r, s, r.d_in, r.ld_in, dy, ld_dy, false);
            else
                backward(&r, s, to->dx, ld_in, dy, ld_dy, true);
        }
        for (int s = 0; s < n->n_stages; s++) { /* the outputs of all stages are there again */
            bool last = s == n->n_stages - 1;
            size_t ld_x = ld_in;
            const float *x = stage_input(&r, s, input, &ld_x);
            learn(&r, s, to->grad, last ? r.d_z : hidden_at(&r, r.d_pre, s), last ? r.ld_z : r.ld,
                  x, ld_x);
        }
        inputs_back(&r, to);
    }
}

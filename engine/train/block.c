/* block.c - x += W_O attention(...), x += W_down (silu(W_gate n) * W_up n), and back. */
#include <string.h>

#include "engine/train/block.h"

static size_t at_least(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t row_raw(const struct model_config *m)
{
    return m->family->qk_norm ? (size_t)((m->n_heads + m->n_kv_heads) * m->head_dim) : 0;
}

static size_t row_qkv(const struct model_config *m)
{
    return padded((m->n_heads + 2 * m->n_kv_heads) * m->head_dim);
}

/* Whether what branches give is added as it is. */
static bool plain_branches(const struct model_config *m)
{
    return !m->family->post_norm && m->residual_scale == 1;
}

/* Divides one allocation into areas, each on a cache line. */
struct area {
    float **to;
    size_t n;
};

static int divide(const struct compute *c, const struct area *area, int n, float **ret_memory)
{
    size_t total = 0;
    for (int i = 0; i < n; i++)
        total += (area[i].n + PANEL - 1) / PANEL * PANEL;
    float *at = ops(c)->alloc(c, total, sizeof *at);
    if (!at)
        return KVF_E_NOMEM;
    *ret_memory = at;
    for (int i = 0; i < n; i++) {
        *area[i].to = at;
        at += (area[i].n + PANEL - 1) / PANEL * PANEL;
    }
    return KVF_OK;
}

int tape_create(const struct frozen *f, const struct net *net, int most, struct tape *t)
{
    const struct model_config *m = f->config;
    size_t T = (size_t)most, d = (size_t)m->d_model, H = (size_t)m->n_kv_heads;
    memset(t, 0, sizeof *t);
    t->ld_qkv = row_qkv(m);
    t->ld_att = padded(m->n_heads * m->head_dim);
    t->ld_ffn = padded(2 * m->d_ffn);
    const struct area areas[] = {{&t->normed, T * d},
                                 {&t->qkv, T * t->ld_qkv},
                                 {&t->k_pre, T * H * (size_t)m->head_dim},
                                 {&t->att, T * t->ld_att},
                                 {&t->lse, T * (size_t)m->n_heads},
                                 {&t->att_raw, m->family->post_norm ? T * d : 0},
                                 {&t->ffn_raw, m->family->post_norm ? T * d : 0},
                                 {&t->mid, T * d},
                                 {&t->gate_up, T * t->ld_ffn},
                                 {&t->net, net ? net_tape(net, most) : 0},
                                 {&t->value, T * H},
                                 {&t->number, T * H},
                                 {&t->raw, T * row_raw(m)}};
    return divide(&f->c, areas, sizeof areas / sizeof *areas, &t->memory);
}

void tape_finish(const struct compute *c, struct tape *t)
{
    ops(c)->free(c, t->memory);
    memset(t, 0, sizeof *t);
}

int block_scratch_create(const struct frozen *f, const struct net *net, int most,
                         struct block_scratch *s)
{
    const struct model_config *m = f->config;
    const struct compute *c = &f->c;
    size_t T = (size_t)most, H = (size_t)m->n_kv_heads;
    struct attention a = {.kernels = &c->k,
                          .T = most,
                          .n_heads = m->n_heads,
                          .n_kv_heads = m->n_kv_heads,
                          .D = m->head_dim};
    memset(s, 0, sizeof *s);
    s->ld = at_least(padded(m->d_model), row_qkv(m));
    s->ld_ffn = padded(2 * m->d_ffn) + PANEL; /* rows apart by a power of two share cache sets */
    float *attention = NULL;
    const struct area areas[] = {
        {&s->wide, T * at_least(s->ld_ffn, s->ld)},
        {&s->narrow, T * s->ld},
        {&s->branch, T * s->ld},
        {&s->d_branch, plain_branches(m) ? 0 : T * (size_t)m->d_model},
        {&s->d_att, T * padded(m->n_heads * m->head_dim)},
        {&s->d_number, T * H},
        {&s->d_value, T * H},
        {&s->net, net ? ops(c)->net_scratch(c, net, most) : 0},
        {&attention, ops(c)->attention_scratch(c, &a) / sizeof(float) + PANEL}};
    int err = divide(c, areas, sizeof areas / sizeof *areas, &s->memory);
    s->attention = attention;
    return err;
}

void block_scratch_finish(const struct compute *c, struct block_scratch *s)
{
    ops(c)->free(c, s->memory);
    memset(s, 0, sizeof *s);
}

/* ---- what the steps below are called with ---- */

static struct matrix_use matrix(const struct block_run *r, int layer, enum weight_role role)
{
    return (struct matrix_use){r->f, layer, role, r->T};
}

static void product(const struct block_run *r, int layer, enum weight_role role, float *out,
                    size_t ld_out, const float *x, size_t ld_x)
{
    struct matrix_use w = matrix(r, layer, role);
    ops(r->c)->product(r->c, &w, out, ld_out, x, ld_x);
}

static void product_back(const struct block_run *r, int layer, enum weight_role role, float *dx,
                         size_t ld_dx, const float *dy, size_t ld_dy)
{
    struct matrix_use w = matrix(r, layer, role);
    ops(r->c)->product_back(r->c, &w, dx, ld_dx, dy, ld_dy);
}

/* A norm of the residual stream. */
static struct norm whole(const struct block_run *r, const float *w)
{
    const struct model_config *m = r->f->config;
    return (struct norm){.T = r->T, .heads = 1, .C = m->d_model, .eps = m->norm_eps, .w = w};
}

/* The norms of a token's queries, or of its keys, before RoPE. */
static struct norm by_head(const struct block_run *r, const float *w, int heads)
{
    const struct model_config *m = r->f->config;
    bool wide = m->family->qk_norm_wide;
    return (struct norm){.T = r->T,
                         .heads = wide ? 1 : heads,
                         .C = wide ? heads * m->head_dim : m->head_dim,
                         .eps = m->norm_eps,
                         .w = w,
                         .set = true};
}

static void normed(const struct block_run *r, float *y, const float *x, const float *w)
{
    struct norm n = whole(r, w);
    size_t d = (size_t)n.C;
    if (w)
        ops(r->c)->norm(r->c, &n, y, d, x, d);
    else
        ops(r->c)->copy(r->c, y, x, (size_t)r->T * d * sizeof *y);
}

/* y = x + branch, behind its norm, whose input goes to raw, and times its scale. */
static void residual(const struct block_run *r, float *y, const float *x, const float *post,
                     float *raw, const struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    size_t d = (size_t)m->d_model;
    if (post) {
        struct norm n = whole(r, post);
        ops(r->c)->copy_rows(r->c, raw, d, s->branch, s->ld, r->T, n.C);
        ops(r->c)->norm(r->c, &n, s->branch, s->ld, raw, d);
    }
    if (m->residual_scale != 1)
        ops(r->c)->scale_add(r->c, s->branch, NULL, (size_t)r->T * s->ld, m->residual_scale);
    ops(r->c)->copy(r->c, y, x, (size_t)r->T * d * sizeof *y);
    ops(r->c)->add_rows(r->c, y, d, s->branch, s->ld, r->T, (int)d);
}

/* ---- forward ---- */

/* Where keys and values begin in a row of qkv. */
static size_t k_at(const struct model_config *m)
{
    return (size_t)(m->n_heads * m->head_dim);
}

static size_t v_at(const struct model_config *m)
{
    return (size_t)((m->n_heads + m->n_kv_heads) * m->head_dim);
}

static struct attention attention_of(const struct block_run *r, int layer, const struct tape *t)
{
    const struct model_config *m = r->f->config;
    size_t entries = (size_t)r->T * (size_t)m->n_kv_heads;
    size_t k0 = k_at(m), kv = (size_t)(m->n_kv_heads * m->head_dim);
    return (struct attention){.kernels = &r->c->k,
                              .T = r->T,
                              .n_heads = m->n_heads,
                              .n_kv_heads = m->n_kv_heads,
                              .D = m->head_dim,
                              .scale = m->attn_scale,
                              .cap = m->attn_cap,
                              .gating = r->gating,
                              .window = r->window,
                              .q = t->qkv,
                              .k = t->qkv + k0,
                              .v = t->qkv + k0 + kv,
                              .ld = t->ld_qkv,
                              .first = model_window(m, layer) ? r->local : r->first,
                              .gone = r->evicted_at ? r->evicted_at + (size_t)layer * entries
                                                    : NULL,
                              .gate = r->gating ? t->number : NULL};
}

static struct net_input net_input_of(const struct block_run *r, const struct tape *t)
{
    const struct model_config *m = r->f->config;
    return (struct net_input){.x = t->normed,
                              .k_pre = t->k_pre,
                              .k_post = t->qkv + k_at(m),
                              .v = t->qkv + v_at(m),
                              .ld_pre = (size_t)(m->n_kv_heads * m->head_dim),
                              .ld_post = t->ld_qkv,
                              .ld_v = t->ld_qkv,
                              .T = r->T};
}

static void gates_forward(const struct block_run *r, int layer, struct tape *t,
                          struct block_scratch *s)
{
    size_t n = (size_t)r->T * (size_t)r->f->config->n_kv_heads;
    if (r->net) {
        struct net_input in = net_input_of(r, t);
        ops(r->c)->net(r->c, r->net, layer, &in, t->net, t->value, s->net);
    }
    ops(r->c)->gates(r->c, t->number, t->value, n, r->gating == GATING_WRITE);
}

/* Rotates queries and keys as the layer does. */
static void turn(const struct block_run *r, int layer, float *qkv, size_t ld, const float *turns)
{
    const struct model_config *m = r->f->config;
    enum model_rope kind = model_rope(m, layer, r->max_tokens);
    size_t from = (size_t)kind * (size_t)r->max_tokens * (size_t)m->rope_dim;
    if (kind != ROPE_NONE)
        ops(r->c)->rope(r->c, qkv, ld, turns + from, r->first, r->T, m->n_heads + m->n_kv_heads,
                        m->head_dim, m->rope_dim);
}

/* Biases and norms of queries and keys, where the model has them, and RoPE; the keys before it are
 * kept when gates see them. */
static void finish_projection(const struct block_run *r, int layer, struct tape *t)
{
    const struct ops *on = ops(r->c);
    const struct model_config *m = r->f->config;
    const struct frozen_vectors *v = &r->f->vector[layer];
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    float *key = t->qkv + k_at(m);
    if (v->qkv_bias)
        on->add_row(r->c, t->qkv, t->ld_qkv, v->qkv_bias, r->T, q + 2 * kv);
    if (v->q_norm) {
        struct norm of_q = by_head(r, v->q_norm, m->n_heads);
        struct norm of_k = by_head(r, v->k_norm, m->n_kv_heads);
        on->copy_rows(r->c, t->raw, row_raw(m), t->qkv, t->ld_qkv, r->T, q + kv);
        on->norm(r->c, &of_q, t->qkv, t->ld_qkv, t->qkv, t->ld_qkv);
        on->norm(r->c, &of_k, key, t->ld_qkv, key, t->ld_qkv);
    }
    on->copy_rows(r->c, t->k_pre, (size_t)kv, key, t->ld_qkv, r->T, kv);
    turn(r, layer, t->qkv, t->ld_qkv, r->rope);
}

static void attend(const struct block_run *r, int layer, const float *x, struct tape *t,
                   struct block_scratch *s)
{
    size_t d = (size_t)r->f->config->d_model;
    normed(r, t->normed, x, r->f->vector[layer].attn_norm);
    product(r, layer, ROLE_QKV, t->qkv, t->ld_qkv, t->normed, d);
    finish_projection(r, layer, t);
    if (r->gating)
        gates_forward(r, layer, t, s);
    struct attention a = attention_of(r, layer, t);
    ops(r->c)->attention(r->c, &a, t->att, t->ld_att, t->lse, s->attention);
    product(r, layer, ROLE_OUT, s->branch, s->ld, t->att, t->ld_att);
    residual(r, t->mid, x, r->f->vector[layer].attn_post, t->att_raw, s);
}

/* What the last product reads. */
static void gated(const struct block_run *r, const struct tape *t, const struct block_scratch *s)
{
    const struct ops *on = ops(r->c);
    bool gelu = r->f->config->family->gelu;
    (gelu ? on->geglu : on->swiglu)(r->c, s->wide, s->ld_ffn, t->gate_up, t->ld_ffn, r->T,
                                    r->f->config->d_ffn);
}

void block_forward(const struct block_run *r, int layer, const float *x, float *y, struct tape *t,
                   struct block_scratch *s)
{
    size_t d = (size_t)r->f->config->d_model;
    attend(r, layer, x, t, s);
    normed(r, s->narrow, t->mid, r->f->vector[layer].ffn_norm);
    product(r, layer, ROLE_GATE_UP, t->gate_up, t->ld_ffn, s->narrow, d);
    gated(r, t, s);
    product(r, layer, ROLE_DOWN, s->branch, s->ld, s->wide, s->ld_ffn);
    residual(r, y, t->mid, r->f->vector[layer].ffn_post, t->ffn_raw, s);
}

/* The derivative by what it read, in its place. */
static void gated_back(const struct block_run *r, const struct tape *t,
                       const struct block_scratch *s)
{
    const struct ops *on = ops(r->c);
    bool gelu = r->f->config->family->gelu;
    (gelu ? on->geglu_back : on->swiglu_back)(r->c, s->wide, s->ld_ffn, t->gate_up, t->ld_ffn, r->T,
                                              r->f->config->d_ffn);
}

/* ---- derivatives by the weights ---- */

static bool learns(const struct block_run *r, enum weight_role role)
{
    return r->d_w && trainable_learns(r->trainable, role);
}

/* dW of a matrix += dy^T x, where it learns. */
static void learn(const struct block_run *r, int layer, enum weight_role role, const float *dy,
                  size_t ld_dy, const float *x, size_t ld_x)
{
    const struct model_config *m = r->f->config;
    if (learns(r, role))
        ops(r->c)->weight_grad(r->c, r->d_w + r->trainable->layer[layer].matrix[role], dy, ld_dy,
                               trainable_rows(m, role), x, ld_x, trainable_columns(m, role), r->T);
}

/* Of the norms of queries and keys; s->branch has derivatives by what they gave. */
static void learn_head_norms(const struct block_run *r, const struct norm *q, const struct norm *k,
                             int layer, const struct tape *t, const struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    size_t k0 = k_at(m), raw = row_raw(m);
    if (!learns(r, ROLE_HEAD))
        return;
    const struct trainable_layer *at = &r->trainable->layer[layer];
    ops(r->c)->norm_weight_grad(r->c, q, r->d_w + at->q_norm, t->raw, raw, s->branch, s->ld);
    ops(r->c)->norm_weight_grad(r->c, k, r->d_w + at->k_norm, t->raw + k0, raw, s->branch + k0,
                                s->ld);
}

static void learn_qkv(const struct block_run *r, int layer, const struct tape *t,
                      const float *d_qkv)
{
    const struct model_config *m = r->f->config;
    learn(r, layer, ROLE_QKV, d_qkv, t->ld_qkv, t->normed, (size_t)m->d_model);
    if (learns(r, ROLE_HEAD) && r->f->vector[layer].qkv_bias)
        ops(r->c)->sum_rows(r->c, r->d_w + r->trainable->layer[layer].bias, d_qkv, t->ld_qkv, r->T,
                            trainable_rows(m, ROLE_QKV));
}

/* ---- backward ---- */

/* The derivative by what a branch gives, from that by the residual stream: dx itself where it is
 * added as it is.  post and at: of its norm, whose input is raw. */
static const float *branch_back(const struct block_run *r, const float *post, const size_t *at,
                                const float *raw, const float *dx, const struct block_scratch *s)
{
    const struct ops *on = ops(r->c);
    const struct model_config *m = r->f->config;
    struct norm n = whole(r, post);
    size_t d = (size_t)n.C;
    float *to = post ? s->branch : s->d_branch;
    if (plain_branches(m))
        return dx;
    on->copy(r->c, to, dx, (size_t)r->T * d * sizeof *to);
    if (m->residual_scale != 1)
        on->scale_add(r->c, to, NULL, (size_t)r->T * d, m->residual_scale);
    if (!post)
        return to;
    n.set = true;
    if (learns(r, ROLE_HEAD))
        on->norm_weight_grad(r->c, &n, r->d_w + *at, raw, d, to, d);
    on->norm_back(r->c, &n, s->d_branch, d, raw, d, to, d);
    return s->d_branch;
}

/* dx += through the norm of x, if there is one, from s->branch; and the norm's own derivatives, at
 * float `at` of d_w. */
static void norm_back(const struct block_run *r, const float *w, const size_t *at, const float *x,
                      float *dx, const struct block_scratch *s)
{
    struct norm n = whole(r, w);
    size_t d = (size_t)n.C;
    if (!w) {
        ops(r->c)->add_rows(r->c, dx, d, s->branch, s->ld, r->T, n.C);
        return;
    }
    if (learns(r, ROLE_HEAD))
        ops(r->c)->norm_weight_grad(r->c, &n, r->d_w + *at, x, d, s->branch, s->ld);
    ops(r->c)->norm_back(r->c, &n, dx, d, x, d, s->branch, s->ld);
}

static void feed_forward_back(const struct block_run *r, int layer, float *dx, const struct tape *t,
                              struct block_scratch *s)
{
    const struct frozen_vectors *v = &r->f->vector[layer];
    size_t d = (size_t)r->f->config->d_model;
    const struct trainable_layer *at = r->d_w ? &r->trainable->layer[layer] : NULL;
    const float *dy = branch_back(r, v->ffn_post, at ? &at->ffn_post : NULL, t->ffn_raw, dx, s);
    if (learns(r, ROLE_DOWN))
        gated(r, t, s);
    learn(r, layer, ROLE_DOWN, dy, d, s->wide, s->ld_ffn);
    product_back(r, layer, ROLE_DOWN, s->wide, s->ld_ffn, dy, d);
    gated_back(r, t, s);
    if (learns(r, ROLE_GATE_UP))
        normed(r, s->narrow, t->mid, v->ffn_norm);
    learn(r, layer, ROLE_GATE_UP, s->wide, s->ld_ffn, s->narrow, d);
    product_back(r, layer, ROLE_GATE_UP, s->branch, s->ld, s->wide, s->ld_ffn);
    norm_back(r, v->ffn_norm, at ? &at->ffn_norm : NULL, t->mid, dx, s);
}

/* Derivatives by queries and keys after their norms become those before; the branch holds
 * the former meanwhile. */
static void head_norms_back(const struct block_run *r, int layer, const struct tape *t,
                            struct block_scratch *s, float *d_qkv)
{
    const struct ops *on = ops(r->c);
    const struct model_config *m = r->f->config;
    const struct frozen_vectors *v = &r->f->vector[layer];
    struct norm q = by_head(r, v->q_norm, m->n_heads), k = by_head(r, v->k_norm, m->n_kv_heads);
    size_t k0 = k_at(m), raw = row_raw(m);
    on->copy_rows(r->c, s->branch, s->ld, d_qkv, t->ld_qkv, r->T, (int)raw);
    on->norm_back(r->c, &q, d_qkv, t->ld_qkv, t->raw, raw, s->branch, s->ld);
    on->norm_back(r->c, &k, d_qkv + k0, t->ld_qkv, t->raw + k0, raw, s->branch + k0, s->ld);
    learn_head_norms(r, &q, &k, layer, t, s);
}

/* Gates' parameters and what flows on through their inputs: into wide [T, d] of x or [T, H * D]
 * of keys before RoPE, and into d_qkv's keys after it and values. */
static void gates_back(const struct block_run *r, int layer, const struct tape *t,
                       const float *d_value_more, float *grad, float *wide, float *d_qkv,
                       struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    size_t n = (size_t)r->T * (size_t)m->n_kv_heads;
    struct net_input in = net_input_of(r, t);
    struct net_grads to = {.grad = grad,
                           .dx = wide,
                           .dk_pre = wide,
                           .dk_post = d_qkv + k_at(m),
                           .dv = d_qkv + v_at(m)};
    ops(r->c)->gates_back(r->c, s->d_value, s->d_number, t->value, d_value_more, n,
                          r->gating == GATING_WRITE);
    ops(r->c)->net_back(r->c, r->net, layer, &in, t->net, s->d_value, &to, s->net);
}

/* d_qkv: [T, ld_qkv]. */
static void attention_back(const struct block_run *r, const float *dx, int layer,
                           const struct tape *t, struct block_scratch *s, float *d_qkv)
{
    const struct model_config *m = r->f->config;
    struct attention a = attention_of(r, layer, t);
    const float *post = r->f->vector[layer].attn_post;
    const size_t *at = r->d_w ? &r->trainable->layer[layer].attn_post : NULL;
    size_t d = (size_t)m->d_model;
    const float *dy = branch_back(r, post, at, t->att_raw, dx, s);
    learn(r, layer, ROLE_OUT, dy, d, t->att, t->ld_att);
    product_back(r, layer, ROLE_OUT, s->d_att, t->ld_att, dy, d);
    struct attention_grads g = {.out = t->att,
                                .d_out = s->d_att,
                                .ld_out = t->ld_att,
                                .lse = t->lse,
                                .d_q = d_qkv,
                                .d_k = d_qkv + k_at(m),
                                .d_v = d_qkv + v_at(m),
                                .d_gate = r->gating ? s->d_number : NULL};
    ops(r->c)->attention_back(r->c, &a, &g, s->attention);
}

void block_backward(const struct block_run *r, int layer, const float *x, float *dx,
                    const struct tape *t, const float *d_value_more, float *grad, float *d_number,
                    struct block_scratch *s)
{
    const struct ops *on = ops(r->c);
    const struct model_config *m = r->f->config;
    const struct frozen_vectors *v = &r->f->vector[layer];
    int d = m->d_model, H = m->n_kv_heads, kv = H * m->head_dim;
    float *d_qkv = s->narrow, *d_in = s->wide; /* d_in: by the gates' inputs */
    bool gates = grad && r->net, keys = gates && layout_inputs(r->net->layout) & GATE_IN_K_PRE;
    feed_forward_back(r, layer, dx, t, s);
    attention_back(r, dx, layer, t, s, d_qkv);
    if (d_number && r->gating)
        on->copy(r->c, d_number, s->d_number, (size_t)r->T * (size_t)H * sizeof *d_number);
    if (gates) {
        on->zero(r->c, d_in, (size_t)r->T * (size_t)(keys ? kv : d) * sizeof *d_in);
        gates_back(r, layer, t, d_value_more, grad, d_in, d_qkv, s);
    }
    turn(r, layer, d_qkv, t->ld_qkv, r->rope_inverse);
    if (keys)
        on->add_rows(r->c, d_qkv + k_at(m), t->ld_qkv, d_in, (size_t)kv, r->T, kv);
    if (v->q_norm)
        head_norms_back(r, layer, t, s, d_qkv);
    learn_qkv(r, layer, t, d_qkv);
    product_back(r, layer, ROLE_QKV, s->branch, s->ld, d_qkv, t->ld_qkv);
    if (gates && !keys)
        on->add_rows(r->c, s->branch, s->ld, d_in, (size_t)d, r->T, d);
    norm_back(r, v->attn_norm, r->d_w ? &r->trainable->layer[layer].attn_norm : NULL, x, dx, s);
}

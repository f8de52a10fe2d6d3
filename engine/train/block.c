/* block.c - the steps of a block (engine/model/block.h) over whole sequences, and their
 * derivatives in reverse order. */
#include <string.h>

#include "engine/train/block.h"

static size_t at_least(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t row_qkv(const struct model_config *m)
{
    return padded((m->n_heads + 2 * m->n_kv_heads) * m->head_dim);
}

/* Returns how many floats per row of its input a step overwrites although its derivative needs
 * them: the input of a norm in place. */
static size_t saved_row(const struct block_step *p)
{
    return p->op == OP_NORM && p->src == p->dst ? (size_t)(p->heads * p->width) : 0;
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
    struct area areas[10 + BLOCK_STEPS] = {{&t->normed, T * d},
                                           {&t->qkv, T * t->ld_qkv},
                                           {&t->k_pre, T * H * (size_t)m->head_dim},
                                           {&t->att, T * t->ld_att},
                                           {&t->lse, T * (size_t)m->n_heads},
                                           {&t->mid, T * d},
                                           {&t->gate_up, T * t->ld_ffn},
                                           {&t->net, net ? net_tape(net, most) : 0},
                                           {&t->value, T * H},
                                           {&t->number, T * H}};
    const struct block *b = block_of(&f->weights->plan, 0); /* all layers have the same norms */
    int n = 10;
    for (int i = 0; i < b->n; i++)
        if (saved_row(&b->step[i]) > 0)
            areas[n++] = (struct area){&t->saved[b->step[i].w], T * saved_row(&b->step[i])};
    return divide(&f->c, areas, n, &t->memory);
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
        {&s->d_branch, m->residual_scale == 1 ? 0 : T * (size_t)m->d_model},
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

/* ---- the buffers of steps ---- */

struct rows {
    float *p;
    size_t ld;
};

/* The state of a layer between its steps. */
struct walk {
    const struct block_run *r;
    const struct block *b;
    int layer;
    float *x, *y; /* input and output of the layer; y: NULL backward */
    struct tape *t;
    struct block_scratch *s;
    /* Backward: */
    float *dx;
    struct rows d_branch;   /* by the output of the branch at hand */
    const float *d_value;   /* derivatives by the gates' values from losses on them, or NULL */
    float *grad, *d_number; /* as in block_backward */
    bool from_gates;        /* s->wide holds the derivative by the gates' inputs */
};

static size_t channels(const struct walk *w)
{
    return (size_t)w->r->f->config->d_model;
}

/* Returns the residual stream before step i. */
static float *stream(const struct walk *w, int i)
{
    float *const at[] = {w->x, w->t->mid, w->y};
    int added = 0;
    for (int k = 0; k < i; k++)
        added += w->b->step[k].op == OP_ADD;
    return at[added];
}

/* Returns the rows that step i finds in a slot. */
static struct rows value(const struct walk *w, int i, enum block_slot slot)
{
    const struct tape *t = w->t;
    const struct block_scratch *s = w->s;
    const struct rows at[SLOTS] = {
        [SLOT_X] = {stream(w, i), channels(w)},   [SLOT_NORMED] = {t->normed, channels(w)},
        [SLOT_QKV] = {t->qkv, t->ld_qkv},         [SLOT_ATT] = {t->att, t->ld_att},
        [SLOT_BRANCH] = {s->branch, s->ld},       [SLOT_FFN_IN] = {s->narrow, channels(w)},
        [SLOT_GATE_UP] = {t->gate_up, t->ld_ffn}, [SLOT_FFN] = {s->wide, s->ld_ffn},
    };
    return at[slot];
}

/* Returns the buffer of the derivative by a slot. */
static struct rows derivative(const struct walk *w, enum block_slot slot)
{
    const struct tape *t = w->t;
    const struct block_scratch *s = w->s;
    const struct rows at[SLOTS] = {
        [SLOT_X] = {w->dx, channels(w)},       [SLOT_NORMED] = {s->branch, s->ld},
        [SLOT_QKV] = {s->narrow, t->ld_qkv},   [SLOT_ATT] = {s->d_att, t->ld_att},
        [SLOT_BRANCH] = w->d_branch,           [SLOT_FFN_IN] = {s->branch, s->ld},
        [SLOT_GATE_UP] = {s->wide, s->ld_ffn}, [SLOT_FFN] = {s->wide, s->ld_ffn},
    };
    return at[slot];
}

static struct matrix_use matrix(const struct walk *w, enum tensor_role role)
{
    return (struct matrix_use){w->r->f, w->layer, role, w->r->T};
}

static const float *vector(const struct walk *w, const struct block_step *p)
{
    return w->r->f->vector[w->layer].of[p->w];
}

static struct norm norm_of(const struct walk *w, const struct block_step *p)
{
    return (struct norm){.T = w->r->T,
                         .heads = p->heads,
                         .C = p->width,
                         .eps = w->r->f->config->norm_eps,
                         .w = vector(w, p),
                         .set = p->src == p->dst};
}

/* Where keys and values begin in a row of qkv. */
static size_t k_at(const struct model_config *m)
{
    return (size_t)(m->n_heads * m->head_dim);
}

static size_t v_at(const struct model_config *m)
{
    return (size_t)((m->n_heads + m->n_kv_heads) * m->head_dim);
}

/* ---- forward ---- */

static void norm_run(struct walk *w, int i)
{
    const struct ops *on = ops(w->r->c);
    const struct block_step *p = &w->b->step[i];
    struct rows x = value(w, i, p->src), y = value(w, i, p->dst);
    struct norm n = norm_of(w, p);
    size_t row = saved_row(p);
    if (row > 0) {
        float *saved = w->t->saved[p->w];
        on->copy_rows(w->r->c, saved, row, x.p + p->offset, x.ld, w->r->T, (int)row);
        on->norm(w->r->c, &n, y.p + p->offset, y.ld, saved, row);
    } else {
        on->norm(w->r->c, &n, y.p, y.ld, x.p, x.ld);
    }
}

static void matmul_run(struct walk *w, int i)
{
    const struct block_step *p = &w->b->step[i];
    struct rows x = value(w, i, p->src), y = value(w, i, p->dst);
    struct matrix_use m = matrix(w, p->w);
    ops(w->r->c)->product(w->r->c, &m, y.p, y.ld, x.p, x.ld);
}

static void bias_run(struct walk *w, int i)
{
    const struct block_step *p = &w->b->step[i];
    struct rows y = value(w, i, p->dst);
    ops(w->r->c)->add_row(w->r->c, y.p, y.ld, vector(w, p), w->r->T, p->width);
}

/* Rotates queries and keys as the layer does. */
static void turn(const struct walk *w, float *qkv, const float *turns)
{
    const struct block_run *r = w->r;
    const struct model_config *m = r->f->config;
    enum model_rope kind = model_rope(m, w->layer, r->max_tokens);
    size_t from = (size_t)kind * (size_t)r->max_tokens * (size_t)m->rope_dim;
    ops(r->c)->rope(r->c, qkv, w->t->ld_qkv, turns + from, r->first, r->T,
                    m->n_heads + m->n_kv_heads, m->head_dim, m->rope_dim);
}

/* Keeps the keys before their rotation, which gates may read. */
static void rope_run(struct walk *w, int i)
{
    const struct model_config *m = w->r->f->config;
    int kv = m->n_kv_heads * m->head_dim;
    (void)i;
    ops(w->r->c)->copy_rows(w->r->c, w->t->k_pre, (size_t)kv, w->t->qkv + k_at(m), w->t->ld_qkv,
                            w->r->T, kv);
    turn(w, w->t->qkv, w->r->rope);
}

static struct net_input net_input_of(const struct walk *w)
{
    const struct model_config *m = w->r->f->config;
    const struct tape *t = w->t;
    return (struct net_input){.x = t->normed,
                              .k_pre = t->k_pre,
                              .k_post = t->qkv + k_at(m),
                              .v = t->qkv + v_at(m),
                              .ld_pre = (size_t)(m->n_kv_heads * m->head_dim),
                              .ld_post = t->ld_qkv,
                              .ld_v = t->ld_qkv,
                              .T = w->r->T};
}

static void gates_run(struct walk *w, int i)
{
    const struct block_run *r = w->r;
    struct tape *t = w->t;
    (void)i;
    if (r->gating == GATING_NONE)
        return;
    if (r->net) {
        struct net_input in = net_input_of(w);
        ops(r->c)->net(r->c, r->net, w->layer, &in, t->net, t->value, w->s->net);
    }
    ops(r->c)->gates(r->c, t->number, t->value, (size_t)r->T * (size_t)r->f->config->n_kv_heads,
                     r->gating == GATING_WRITE);
}

/* Does nothing: attention reads the keys and values of all tokens in the tape. */
static void store_run(struct walk *w, int i)
{
    (void)w;
    (void)i;
}

static struct attention attention_of(const struct walk *w)
{
    const struct block_run *r = w->r;
    const struct tape *t = w->t;
    const struct model_config *m = r->f->config;
    size_t entries = (size_t)r->T * (size_t)m->n_kv_heads;
    return (struct attention){
        .kernels = &r->c->k,
        .T = r->T,
        .n_heads = m->n_heads,
        .n_kv_heads = m->n_kv_heads,
        .D = m->head_dim,
        .scale = m->attn_scale,
        .cap = m->attn_cap,
        .gating = r->gating,
        .window = r->window,
        .q = t->qkv,
        .k = t->qkv + k_at(m),
        .v = t->qkv + v_at(m),
        .ld = t->ld_qkv,
        .first = model_window(m, w->layer) ? r->local : r->first,
        .evicted_at = r->evicted_at ? r->evicted_at + (size_t)w->layer * entries : NULL,
        .sinks = r->f->vector[w->layer].of[T_SINKS],
        .gate = r->gating ? t->number : NULL};
}

static void attend_run(struct walk *w, int i)
{
    struct attention a = attention_of(w);
    (void)i;
    ops(w->r->c)->attention(w->r->c, &a, w->t->att, w->t->ld_att, w->t->lse, w->s->attention);
}

static void act_run(struct walk *w, int i)
{
    const struct ops *on = ops(w->r->c);
    const struct model_config *m = w->r->f->config;
    struct rows x = value(w, i, SLOT_GATE_UP), y = value(w, i, SLOT_FFN);
    (m->family->gelu ? on->geglu : on->swiglu)(w->r->c, y.p, y.ld, x.p, x.ld, w->r->T, m->d_ffn);
}

static void add_run(struct walk *w, int i)
{
    const struct ops *on = ops(w->r->c);
    float scale = w->r->f->config->residual_scale;
    size_t d = channels(w), T = (size_t)w->r->T;
    float *x = stream(w, i), *y = stream(w, i + 1);
    struct rows branch = value(w, i, SLOT_BRANCH);
    if (scale != 1)
        on->scale_add(w->r->c, branch.p, NULL, T * branch.ld, scale);
    on->copy(w->r->c, y, x, T * d * sizeof *y);
    on->add_rows(w->r->c, y, d, branch.p, branch.ld, w->r->T, (int)d);
}

typedef void (*walk_fn)(struct walk *w, int i);
static const walk_fn forward_steps[BLOCK_OPS] = {
    [OP_NORM] = norm_run,     [OP_MATMUL] = matmul_run, [OP_BIAS] = bias_run,
    [OP_ROPE] = rope_run,     [OP_GATES] = gates_run,   [OP_STORE] = store_run,
    [OP_ATTEND] = attend_run, [OP_ACT] = act_run,       [OP_ADD] = add_run,
};

void block_forward(const struct block_run *r, int layer, const float *x, float *y, struct tape *t,
                   struct block_scratch *s)
{
    struct walk w = {.r = r, .layer = layer, .x = (float *)(uintptr_t)x, .y = y, .t = t, .s = s};
    w.b = block_of(&r->f->weights->plan, layer);
    for (int i = 0; i < w.b->n; i++)
        forward_steps[w.b->step[i].op](&w, i);
}

/* ---- backward ---- */

static bool learns(const struct walk *w, enum tensor_role role)
{
    return w->r->d_w && trainable_learns(w->r->trainable, role);
}

/* Returns where the derivative by a tensor of the layer lies. */
static float *d_weight(const struct walk *w, enum tensor_role role)
{
    return w->r->d_w + w->r->trainable->layer[w->layer].at[role];
}

/* The derivative by the branch is that by the residual stream, times the scale. */
static void add_back(struct walk *w, int i)
{
    const struct ops *on = ops(w->r->c);
    float scale = w->r->f->config->residual_scale;
    size_t n = (size_t)w->r->T * channels(w);
    (void)i;
    w->d_branch = (struct rows){w->dx, channels(w)};
    if (scale == 1)
        return;
    w->d_branch.p = w->s->d_branch;
    on->copy(w->r->c, w->d_branch.p, w->dx, n * sizeof *w->dx);
    on->scale_add(w->r->c, w->d_branch.p, NULL, n, scale);
}

/* A norm in place replaces the derivative; another one adds to that by the residual stream. */
static void norm_back(struct walk *w, int i)
{
    const struct ops *on = ops(w->r->c);
    const struct block_step *p = &w->b->step[i];
    struct rows dy = derivative(w, p->dst), dx = derivative(w, p->src), x = value(w, i, p->src);
    struct norm n = norm_of(w, p);
    size_t row = saved_row(p);
    if (row > 0)
        x = (struct rows){w->t->saved[p->w], row};
    if (row > 0 && p->src == SLOT_QKV) {
        dx.p += p->offset;
        on->copy_rows(w->r->c, w->s->branch, w->s->ld, dx.p, dx.ld, w->r->T, (int)row);
        dy = (struct rows){w->s->branch, w->s->ld};
    } else if (row > 0) {
        dx = w->d_branch = (struct rows){w->s->branch, channels(w)};
    }
    if (learns(w, p->w))
        on->norm_weight_grad(w->r->c, &n, d_weight(w, p->w), x.p, x.ld, dy.p, dy.ld);
    on->norm_back(w->r->c, &n, dx.p, dx.ld, x.p, x.ld, dy.p, dy.ld);
}

/* Computes the input of a product of the feed-forward branch again if its weights learn. */
static void matmul_back(struct walk *w, int i)
{
    const struct ops *on = ops(w->r->c);
    const struct block_step *p = &w->b->step[i];
    struct rows dy = derivative(w, p->dst), dx = derivative(w, p->src), x = value(w, i, p->src);
    const struct model_config *m = w->r->f->config;
    struct matrix_use use = matrix(w, p->w);
    if (learns(w, p->w)) {
        if (p->src == SLOT_FFN_IN || p->src == SLOT_FFN)
            forward_steps[w->b->step[i - 1].op](w, i - 1);
        on->weight_grad(w->r->c, d_weight(w, p->w), dy.p, dy.ld, tensor_rows(m, p->w), x.p, x.ld,
                        tensor_columns(m, p->w), w->r->T);
    }
    if (p->src == SLOT_X)
        dx = derivative(w, SLOT_NORMED);
    on->product_back(w->r->c, &use, dx.p, dx.ld, dy.p, dy.ld);
    if (p->w == T_QKV && w->from_gates)
        on->add_rows(w->r->c, dx.p, dx.ld, w->s->wide, channels(w), w->r->T, m->d_model);
    if (p->src == SLOT_X)
        on->add_rows(w->r->c, w->dx, channels(w), dx.p, dx.ld, w->r->T, m->d_model);
}

static void bias_back(struct walk *w, int i)
{
    const struct block_step *p = &w->b->step[i];
    struct rows dy = derivative(w, p->dst);
    if (learns(w, p->w))
        ops(w->r->c)->sum_rows(w->r->c, d_weight(w, p->w), dy.p, dy.ld, w->r->T, p->width);
}

/* Returns whether gates learn that read keys before their rotation. */
static bool gates_read_keys(const struct walk *w)
{
    return w->grad && w->r->net && layout_inputs(w->r->net->layout) & GATE_IN_K_PRE;
}

static void rope_back(struct walk *w, int i)
{
    const struct model_config *m = w->r->f->config;
    struct rows d = derivative(w, SLOT_QKV);
    int kv = m->n_kv_heads * m->head_dim;
    (void)i;
    turn(w, d.p, w->r->rope_inverse);
    if (gates_read_keys(w))
        ops(w->r->c)->add_rows(w->r->c, d.p + k_at(m), d.ld, w->s->wide, (size_t)kv, w->r->T, kv);
}

/* Parameters of the gates, and derivatives by their inputs: into s->wide [T, d_model] of the
 * branch's input, or [T, H * D] of keys before their rotation; and added to keys after it and
 * values. */
static void gates_back(struct walk *w, int i)
{
    const struct block_run *r = w->r;
    const struct model_config *m = r->f->config;
    struct block_scratch *s = w->s;
    size_t n = (size_t)r->T * (size_t)m->n_kv_heads;
    struct rows d = derivative(w, SLOT_QKV);
    bool keys = gates_read_keys(w);
    (void)i;
    if (!w->grad || !r->net)
        return;
    struct net_input in = net_input_of(w);
    struct net_grads to = {.grad = w->grad,
                           .dx = s->wide,
                           .dk_pre = s->wide,
                           .dk_post = d.p + k_at(m),
                           .dv = d.p + v_at(m)};
    size_t row = keys ? (size_t)(m->n_kv_heads * m->head_dim) : channels(w);
    ops(r->c)->zero(r->c, s->wide, (size_t)r->T * row * sizeof *s->wide);
    ops(r->c)->gates_back(r->c, s->d_value, s->d_number, w->t->value, w->d_value, n,
                          r->gating == GATING_WRITE);
    ops(r->c)->net_back(r->c, r->net, w->layer, &in, w->t->net, s->d_value, &to, s->net);
    w->from_gates = !keys;
}

static void attend_back(struct walk *w, int i)
{
    const struct block_run *r = w->r;
    const struct model_config *m = r->f->config;
    struct attention a = attention_of(w);
    struct rows d = derivative(w, SLOT_QKV), d_att = derivative(w, SLOT_ATT);
    struct attention_grads g = {.out = w->t->att,
                                .d_out = d_att.p,
                                .ld_out = d_att.ld,
                                .lse = w->t->lse,
                                .d_q = d.p,
                                .d_k = d.p + k_at(m),
                                .d_v = d.p + v_at(m),
                                .d_gate = r->gating ? w->s->d_number : NULL,
                                .d_sinks = a.sinks && learns(w, T_SINKS) ? d_weight(w, T_SINKS)
                                                                         : NULL};
    (void)i;
    ops(r->c)->attention_back(r->c, &a, &g, w->s->attention);
    if (w->d_number && r->gating)
        ops(r->c)->copy(r->c, w->d_number, w->s->d_number,
                        (size_t)r->T * (size_t)m->n_kv_heads * sizeof *w->d_number);
}

static void act_back(struct walk *w, int i)
{
    const struct ops *on = ops(w->r->c);
    const struct model_config *m = w->r->f->config;
    struct rows x = value(w, i, SLOT_GATE_UP), d = derivative(w, SLOT_FFN);
    (m->family->gelu ? on->geglu_back : on->swiglu_back)(w->r->c, d.p, d.ld, x.p, x.ld, w->r->T,
                                                         m->d_ffn);
}

static const walk_fn backward_steps[BLOCK_OPS] = {
    [OP_NORM] = norm_back,     [OP_MATMUL] = matmul_back, [OP_BIAS] = bias_back,
    [OP_ROPE] = rope_back,     [OP_GATES] = gates_back,   [OP_STORE] = store_run,
    [OP_ATTEND] = attend_back, [OP_ACT] = act_back,       [OP_ADD] = add_back,
};

void block_backward(const struct block_run *r, int layer, const float *x, float *dx, struct tape *t,
                    const float *d_value_more, float *grad, float *d_number,
                    struct block_scratch *s)
{
    struct walk w = {.r = r,
                     .layer = layer,
                     .x = (float *)(uintptr_t)x,
                     .t = t,
                     .s = s,
                     .dx = dx,
                     .d_value = d_value_more,
                     .grad = grad,
                     .d_number = d_number};
    w.b = block_of(&r->f->weights->plan, layer);
    for (int i = w.b->n - 1; i >= 0; i--)
        backward_steps[w.b->step[i].op](&w, i);
}

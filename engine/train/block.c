/* block.c - x += W_O attention(...), x += W_down (silu(W_gate n) * W_up n), and back. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
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

/* Divides one allocation into areas, each on a cache line. */
struct area {
    float **to;
    size_t n;
};

static int divide(const struct area *area, int n, float **ret_memory)
{
    size_t total = 0;
    for (int i = 0; i < n; i++)
        total += (area[i].n + PANEL - 1) / PANEL * PANEL;
    float *at = MEM_NEW(float, total);
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
                                 {&t->mid, T * d},
                                 {&t->gate_up, T * t->ld_ffn},
                                 {&t->net, net ? net_tape(net, most) : 0},
                                 {&t->value, T * H},
                                 {&t->number, T * H},
                                 {&t->raw, T * row_raw(m)}};
    return divide(areas, sizeof areas / sizeof *areas, &t->memory);
}

void tape_finish(struct tape *t)
{
    mem_free(t->memory);
    memset(t, 0, sizeof *t);
}

int block_scratch_create(const struct frozen *f, const struct net *net, const struct compute *c,
                         int most, struct block_scratch *s)
{
    const struct model_config *m = f->config;
    size_t T = (size_t)most, H = (size_t)m->n_kv_heads;
    struct attention a = {.kernels = &c->k,
                          .T = most,
                          .n_heads = m->n_heads,
                          .n_kv_heads = m->n_kv_heads,
                          .D = m->head_dim};
    int threads = par_threads(c->pool);
    memset(s, 0, sizeof *s);
    s->ld = at_least(padded(m->d_model), row_qkv(m));
    s->ld_ffn = padded(2 * m->d_ffn) + PANEL; /* rows apart by a power of two share cache sets */
    float *attention = NULL;
    const struct area areas[] = {
        {&s->wide, T * at_least(s->ld_ffn, s->ld)},
        {&s->narrow, T * s->ld},
        {&s->branch, T * s->ld},
        {&s->d_att, T * padded(m->n_heads * m->head_dim)},
        {&s->d_number, T * H},
        {&s->d_value, T * H},
        {&s->net, net ? net_scratch(net, most, threads) : 0},
        {&attention, attention_scratch(&a, threads) / sizeof(float) + PANEL}};
    int err = divide(areas, sizeof areas / sizeof *areas, &s->memory);
    s->attention = attention;
    return err;
}

void block_scratch_finish(struct block_scratch *s)
{
    mem_free(s->memory);
    memset(s, 0, sizeof *s);
}

/* ---- steps that run along rows ---- */

struct rows_job {
    const struct block_run *r;
    const struct tape *t;
    struct block_scratch *s;
    const float *x, *w; /* [T, d], weights of a norm */
    float *y;
    const struct layer_weights *layer;
};

static size_t model_row(const struct rows_job *j, int t0)
{
    return (size_t)t0 * (size_t)j->r->f->config->d_model;
}

static void norm_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    const struct model_config *m = j->r->f->config;
    (void)thread;
    j->r->c->k.rmsnorm(j->y + model_row(j, t0), j->x + model_row(j, t0), j->w, n, m->d_model,
                       m->norm_eps);
}

static void norm(const struct block_run *r, float *y, const float *x, const float *w)
{
    struct rows_job j = {.r = r, .x = x, .w = w, .y = y};
    each_rows(r->c, r->T, norm_rows, &j);
}

/* y = x + branch */
static void residual_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    int d = j->r->f->config->d_model;
    (void)thread;
    memcpy(j->y + model_row(j, t0), j->x + model_row(j, t0), (size_t)n * (size_t)d * sizeof *j->y);
    for (int t = t0; t < t0 + n; t++)
        j->r->c->k.add(j->y + model_row(j, t), j->s->branch + (size_t)t * j->s->ld, d);
}

/* Biases and norms of a token's queries and keys, where the model has them. */
static void finish_projection(const struct rows_job *j, int t, float *row)
{
    const struct kernels *k = &j->r->c->k;
    const struct model_config *m = j->r->f->config;
    const struct layer_weights *w = j->layer;
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    if (w->qkv_bias)
        k->add(row, w->qkv_bias, q + 2 * kv);
    if (!w->q_norm)
        return;
    memcpy(j->t->raw + (size_t)t * row_raw(m), row, row_raw(m) * sizeof *row);
    k->rmsnorm(row, row, w->q_norm, m->n_heads, m->head_dim, m->norm_eps);
    k->rmsnorm(row + q, row + q, w->k_norm, m->n_kv_heads, m->head_dim, m->norm_eps);
}

/* Rotates queries and keys; the keys before it are kept when gates see them. */
static void rope_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    const struct model_config *m = j->r->f->config;
    size_t kv = (size_t)(m->n_kv_heads * m->head_dim), k0 = (size_t)(m->n_heads * m->head_dim);
    (void)thread;
    for (int t = t0; t < t0 + n; t++) {
        float *row = j->t->qkv + (size_t)t * j->t->ld_qkv;
        finish_projection(j, t, row);
        memcpy(j->t->k_pre + (size_t)t * kv, row + k0, kv * sizeof *row);
        size_t pos = (size_t)(t - j->r->first[t]);
        j->r->c->k.rope(row, j->r->turn + pos * (size_t)m->rope_dim, m->n_heads + m->n_kv_heads,
                        m->head_dim, m->rope_dim);
    }
}

static void swiglu_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    int F = j->r->f->config->d_ffn;
    (void)thread;
    for (int t = t0; t < t0 + n; t++) {
        const float *gate = j->t->gate_up + (size_t)t * j->t->ld_ffn;
        j->r->c->k.swiglu(j->s->wide + (size_t)t * j->s->ld_ffn, gate, gate + F, F);
    }
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
                              .gating = r->gating,
                              .window = r->window,
                              .q = t->qkv,
                              .k = t->qkv + k0,
                              .v = t->qkv + k0 + kv,
                              .ld = t->ld_qkv,
                              .first = r->first,
                              .gone = r->gone ? r->gone + (size_t)layer * entries : NULL,
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
        net_forward(r->net, r->c, layer, &in, t->net, t->value, s->net);
    }
    for (size_t i = 0; i < n; i++) {
        if (r->gating == GATING_WRITE)
            t->value[i] = fmaxf(t->value[i], LEAST_G);
        t->number[i] = r->gating == GATING_WRITE ? logf(t->value[i]) : t->value[i];
    }
}

static void attend(const struct block_run *r, int layer, const float *x, struct tape *t,
                   struct block_scratch *s)
{
    const struct layer_weights *w = &r->f->weights->layer[layer];
    size_t d = (size_t)r->f->config->d_model;
    struct rows_job j = {.r = r, .t = t, .s = s, .x = x, .y = t->mid, .layer = w};
    norm(r, t->normed, x, w->attn_norm);
    product(r->c, t->qkv, t->ld_qkv, t->normed, d, r->T, &w->qkv);
    each_rows(r->c, r->T, rope_rows, &j);
    if (r->gating)
        gates_forward(r, layer, t, s);
    struct attention a = attention_of(r, layer, t);
    attention_forward(&a, t->att, t->ld_att, t->lse, r->c->pool, s->attention);
    product(r->c, s->branch, s->ld, t->att, t->ld_att, r->T, &w->out);
    each_rows(r->c, r->T, residual_rows, &j);
}

void block_forward(const struct block_run *r, int layer, const float *x, float *y, struct tape *t,
                   struct block_scratch *s)
{
    const struct layer_weights *w = &r->f->weights->layer[layer];
    size_t d = (size_t)r->f->config->d_model;
    attend(r, layer, x, t, s);
    struct rows_job j = {.r = r, .t = t, .s = s, .x = t->mid, .y = y};
    norm(r, s->narrow, t->mid, w->ffn_norm);
    product(r->c, t->gate_up, t->ld_ffn, s->narrow, d, r->T, &w->gate_up);
    each_rows(r->c, r->T, swiglu_rows, &j);
    product(r->c, s->branch, s->ld, s->wide, s->ld_ffn, r->T, &w->down);
    each_rows(r->c, r->T, residual_rows, &j);
}

/* ---- backward ---- */

/* In place of dh [T, F] in s->wide's first half: [d_gate, d_up] of each row. */
static void swiglu_back_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    int F = j->r->f->config->d_ffn;
    (void)thread;
    for (int t = t0; t < t0 + n; t++) {
        const float *gate = j->t->gate_up + (size_t)t * j->t->ld_ffn;
        float *row = j->s->wide + (size_t)t * j->s->ld_ffn;
        j->r->c->k.swiglu_back(row, row + F, gate, gate + F, row, F);
    }
}

/* dx += through the norm of x, from s->branch. */
static void norm_back_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    const struct model_config *m = j->r->f->config;
    (void)thread;
    for (int t = t0; t < t0 + n; t++)
        j->r->c->k.rmsnorm_back(j->y + model_row(j, t), j->x + model_row(j, t), j->w,
                                j->s->branch + (size_t)t * j->s->ld, 1, m->d_model, m->norm_eps);
}

/* ---- derivatives by the weights ---- */

/* Where the derivatives of a matrix lie; NULL when nothing learns. */
static float *d_matrix(const struct block_run *r, int layer, enum weight_role role)
{
    return r->d_w ? r->d_w + r->tuned->layer[layer].matrix[role] : NULL;
}

/* dW_down, from the inputs of the last product, which are formed again. */
static void learn_down(const struct block_run *r, int layer, const struct rows_job *j,
                       const float *dx)
{
    const struct model_config *m = r->f->config;
    if (!r->d_w)
        return;
    each_rows(r->c, r->T, swiglu_rows, (void *)(uintptr_t)j);
    outer(r->c, d_matrix(r, layer, ROLE_DOWN), dx, (size_t)m->d_model, m->d_model, j->s->wide,
          j->s->ld_ffn, m->d_ffn, r->T);
}

static void learn_gate_up(const struct block_run *r, int layer, const struct tape *t,
                          struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    size_t d = (size_t)m->d_model;
    if (!r->d_w)
        return;
    norm(r, s->narrow, t->mid, r->f->weights->layer[layer].ffn_norm);
    outer(r->c, d_matrix(r, layer, ROLE_GATE_UP), s->wide, s->ld_ffn, 2 * m->d_ffn, s->narrow, d,
          m->d_model, r->T);
}

static void learn_out(const struct block_run *r, int layer, const struct tape *t, const float *dx)
{
    const struct model_config *m = r->f->config;
    if (r->d_w)
        outer(r->c, d_matrix(r, layer, ROLE_OUT), dx, (size_t)m->d_model, m->d_model, t->att,
              t->ld_att, m->n_heads * m->head_dim, r->T);
}

/* Of a norm over d_model, whose outputs have the derivatives s->branch. */
static void learn_norm(const struct block_run *r, size_t at, const float *x,
                       const struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    struct norm_rows dy = {s->branch, s->ld, r->T, 1};
    if (r->d_w)
        norm_learn(r->d_w + at, x, (size_t)m->d_model, &dy, m->d_model, m->norm_eps);
}

/* Of the norms of queries and keys; s->branch has derivatives by what they gave. */
static void learn_head_norms(const struct block_run *r, int layer, const struct tape *t,
                             const struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    size_t k0 = k_at(m), raw = row_raw(m);
    struct norm_rows q = {s->branch, s->ld, r->T, m->n_heads};
    struct norm_rows k = {s->branch + k0, s->ld, r->T, m->n_kv_heads};
    if (!r->d_w)
        return;
    const struct tuned_layer *at = &r->tuned->layer[layer];
    norm_learn(r->d_w + at->q_norm, t->raw, raw, &q, m->head_dim, m->norm_eps);
    norm_learn(r->d_w + at->k_norm, t->raw + k0, raw, &k, m->head_dim, m->norm_eps);
}

static void learn_qkv(const struct block_run *r, int layer, const struct tape *t,
                      const float *d_qkv)
{
    const struct model_config *m = r->f->config;
    int rows = (m->n_heads + 2 * m->n_kv_heads) * m->head_dim;
    if (!r->d_w)
        return;
    outer(r->c, d_matrix(r, layer, ROLE_QKV), d_qkv, t->ld_qkv, rows, t->normed, (size_t)m->d_model,
          m->d_model, r->T);
    for (int i = 0; r->f->weights->layer[layer].qkv_bias && i < r->T; i++)
        r->c->k.add(r->d_w + r->tuned->layer[layer].bias, d_qkv + (size_t)i * t->ld_qkv, rows);
}

static void feed_forward_back(const struct block_run *r, int layer, float *dx, const struct tape *t,
                              struct block_scratch *s)
{
    const struct frozen_layer *b = &r->f->back[layer];
    size_t d = (size_t)r->f->config->d_model;
    const struct layer_weights *w = &r->f->weights->layer[layer];
    struct rows_job j = {.r = r, .t = t, .s = s, .x = t->mid, .w = w->ffn_norm, .y = dx};
    learn_down(r, layer, &j, dx);
    product(r->c, s->wide, s->ld_ffn, dx, d, r->T, &b->down);
    each_rows(r->c, r->T, swiglu_back_rows, &j);
    learn_gate_up(r, layer, t, s);
    product(r->c, s->branch, s->ld, s->wide, s->ld_ffn, r->T, &b->gate_up);
    if (r->d_w)
        learn_norm(r, r->tuned->layer[layer].ffn_norm, t->mid, s);
    each_rows(r->c, r->T, norm_back_rows, &j);
}

/* Derivatives by the gates' values from those by the numbers that attention used. */
static void value_back(const struct block_run *r, const struct tape *t, const float *more,
                       struct block_scratch *s)
{
    size_t n = (size_t)r->T * (size_t)r->f->config->n_kv_heads;
    for (size_t i = 0; i < n; i++) {
        float d = s->d_number[i], g = t->value[i], own = more ? more[i] : 0.0f;
        if (r->gating == GATING_WRITE)
            s->d_value[i] = g > LEAST_G ? d / g + own : 0.0f; /* below, the clamp is flat */
        else
            s->d_value[i] = d + own;
    }
}

/* Rotates derivatives by queries and keys back; then those by keys before RoPE are added. */
static void rope_back_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    const struct model_config *m = j->r->f->config;
    (void)thread;
    for (int t = t0; t < t0 + n; t++) {
        size_t pos = (size_t)(t - j->r->first[t]);
        j->r->c->k.rope(j->y + (size_t)t * j->t->ld_qkv,
                        j->r->turn_back + pos * (size_t)m->rope_dim, m->n_heads + m->n_kv_heads,
                        m->head_dim, m->rope_dim);
    }
}

static void add_pre_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    const struct model_config *m = j->r->f->config;
    int kv = m->n_kv_heads * m->head_dim, k0 = m->n_heads * m->head_dim;
    (void)thread;
    for (int t = t0; t < t0 + n; t++)
        j->r->c->k.add(j->y + (size_t)t * j->t->ld_qkv + k0, j->x + (size_t)t * (size_t)kv, kv);
}

/* Derivatives by queries and keys after their norms become those before; the branch holds
 * the former meanwhile. */
static void head_norm_back_rows(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    const struct kernels *k = &j->r->c->k;
    const struct model_config *m = j->r->f->config;
    const struct layer_weights *w = j->layer;
    size_t q = (size_t)(m->n_heads * m->head_dim), all = row_raw(m);
    (void)thread;
    for (int t = t0; t < t0 + n; t++) {
        const float *raw = j->t->raw + (size_t)t * all;
        float *row = j->y + (size_t)t * j->t->ld_qkv, *dy = j->s->branch + (size_t)t * j->s->ld;
        memcpy(dy, row, all * sizeof *row);
        memset(row, 0, all * sizeof *row);
        k->rmsnorm_back(row, raw, w->q_norm, dy, m->n_heads, m->head_dim, m->norm_eps);
        k->rmsnorm_back(row + q, raw + q, w->k_norm, dy + q, m->n_kv_heads, m->head_dim,
                        m->norm_eps);
    }
}

/* Gates' parameters and what flows on through their inputs: into wide [T, d] of x or [T, H * D]
 * of keys before RoPE, and into d_qkv's keys after it and values. */
static void gates_back(const struct block_run *r, int layer, const struct tape *t, float *grad,
                       float *wide, float *d_qkv, struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    struct net_input in = net_input_of(r, t);
    struct net_grads to = {.grad = grad,
                           .dx = wide,
                           .dk_pre = wide,
                           .dk_post = d_qkv + k_at(m),
                           .dv = d_qkv + v_at(m)};
    net_backward(r->net, r->c, layer, &in, t->net, s->d_value, &to, s->net);
}

/* d_qkv: [T, ld_qkv]. */
static void attention_back(const struct block_run *r, const float *dx, int layer,
                           const struct tape *t, struct block_scratch *s, float *d_qkv)
{
    const struct model_config *m = r->f->config;
    size_t k0 = (size_t)(m->n_heads * m->head_dim), kv = (size_t)(m->n_kv_heads * m->head_dim);
    struct attention a = attention_of(r, layer, t);
    learn_out(r, layer, t, dx);
    product(r->c, s->d_att, t->ld_att, dx, (size_t)m->d_model, r->T, &r->f->back[layer].out);
    struct attention_grads g = {.out = t->att,
                                .d_out = s->d_att,
                                .ld_out = t->ld_att,
                                .lse = t->lse,
                                .d_q = d_qkv,
                                .d_k = d_qkv + k0,
                                .d_v = d_qkv + k0 + kv,
                                .d_gate = r->gating ? s->d_number : NULL};
    attention_backward(&a, &g, r->c->pool, s->attention);
}

void block_backward(const struct block_run *r, int layer, const float *x, float *dx,
                    const struct tape *t, const float *d_value_more, float *grad, float *d_number,
                    struct block_scratch *s)
{
    const struct model_config *m = r->f->config;
    size_t d = (size_t)m->d_model, T = (size_t)r->T, kv = (size_t)(m->n_kv_heads * m->head_dim);
    float *d_qkv = s->narrow, *d_pre = s->wide, *d_normed = s->wide;
    bool learn = grad && r->net, keys = learn && r->net->layout->inputs & GATE_IN_K_PRE;
    feed_forward_back(r, layer, dx, t, s);
    attention_back(r, dx, layer, t, s, d_qkv);
    if (d_number && r->gating)
        memcpy(d_number, s->d_number, T * (size_t)m->n_kv_heads * sizeof *d_number);
    if (learn) {
        memset(s->wide, 0, T * (keys ? kv : d) * sizeof *s->wide);
        value_back(r, t, d_value_more, s);
        gates_back(r, layer, t, grad, s->wide, d_qkv, s);
    }
    const struct layer_weights *w = &r->f->weights->layer[layer];
    struct rows_job j = {.r = r, .t = t, .s = s, .x = d_pre, .y = d_qkv, .layer = w};
    each_rows(r->c, r->T, rope_back_rows, &j);
    if (keys)
        each_rows(r->c, r->T, add_pre_rows, &j);
    if (w->q_norm) {
        each_rows(r->c, r->T, head_norm_back_rows, &j);
        learn_head_norms(r, layer, t, s);
    }
    learn_qkv(r, layer, t, d_qkv);
    product(r->c, s->branch, s->ld, d_qkv, t->ld_qkv, r->T, &r->f->back[layer].qkv);
    for (size_t i = 0; learn && !keys && i < T; i++)
        r->c->k.add(s->branch + i * s->ld, d_normed + i * d, (int)d);
    if (r->d_w)
        learn_norm(r, r->tuned->layer[layer].attn_norm, x, s);
    struct rows_job n = {.r = r, .t = t, .s = s, .x = x, .w = w->attn_norm, .y = dx};
    each_rows(r->c, r->T, norm_back_rows, &n);
}

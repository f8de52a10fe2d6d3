/* layer.c - one block of a model, in the order of its equations:
 *     x += W_O attention(rope(W_Q n), rope(W_K n), W_V n),   n = rmsnorm(x)
 *     x += W_down (silu(W_gate n) * W_up n),                 n = rmsnorm(x)
 * and what the row of its family (model/family.h) says: biases of the three projections, norms of
 * queries and keys before RoPE, n = x, a norm of what is added, gelu for silu. */
#include <math.h>
#include <string.h>

#include "engine/decode/session_state.h"

struct job {
    struct session *s;
    int layer, T, pos0;
    const struct imported_token *x; /* that is stored; NULL: those in the session's own rows */
};

/* What becomes of a token's queries, keys and values before anything else sees them. */
static void project_task(void *ctx, int t, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct kernels *k = &s->e->kernels;
    const struct model_config *m = &s->e->config;
    const struct layer_weights *w = &s->e->weights->layer[j->layer];
    int D = m->head_dim, G = m->n_heads, H = m->n_kv_heads;
    float *q = s->qkv + (size_t)t * s->ld_qkv, *key = q + (size_t)G * (size_t)D;
    (void)thread;
    if (w->qkv_bias)
        k->add(q, w->qkv_bias, (G + 2 * H) * D);
    if (w->q_norm && m->family->qk_norm_wide) {
        k->rmsnorm(q, q, w->q_norm, 1, G * D, m->norm_eps);
        k->rmsnorm(key, key, w->k_norm, 1, H * D, m->norm_eps);
    } else if (w->q_norm) {
        k->rmsnorm(q, q, w->q_norm, G, D, m->norm_eps);
        k->rmsnorm(key, key, w->k_norm, H, D, m->norm_eps);
    }
}

/* Turns n heads of rows [t0, t1), from channel c on. */
static void turn_heads(const struct job *j, int t0, int t1, int c, int n)
{
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    for (int t = t0; t < t1; t++) {
        const float *turn = rope_row(s, j->layer, s->cos_sin, s->chunk, t);
        if (turn)
            s->e->kernels.rope(s->qkv + (size_t)t * s->ld_qkv + c, turn, n, m->head_dim,
                               m->rope_dim);
    }
}

static int row_tasks(int T)
{
    return (T + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

/* Queries alone, or with the keys that lie beside them. */
static void turn_rows(const struct job *j, int task, bool keys)
{
    const struct model_config *m = &j->s->e->config;
    int t0 = task * ROWS_PER_TASK, t1 = t0 + ROWS_PER_TASK < j->T ? t0 + ROWS_PER_TASK : j->T;
    turn_heads(j, t0, t1, 0, m->n_heads + (keys ? m->n_kv_heads : 0));
}

static void rope_task(void *ctx, int task, int thread)
{
    (void)thread;
    turn_rows(ctx, task, true);
}

/* Queries and keys before their rotation, for those who need them. */
static void keep_unrotated(struct session *s, const struct job *j)
{
    if (!s->needs_unrotated)
        return;
    for (int t = 0; t < j->T; t++)
        memcpy(s->qk_unrotated + (size_t)t * s->ld_pre, s->qkv + (size_t)t * s->ld_qkv,
               s->ld_pre * sizeof *s->qkv);
    if (method_evidence(s->method) & EVIDENCE_MOMENTS)
        method_queries(s->method, j->layer, j->pos0, j->T, s->qk_unrotated, s->ld_pre,
                       session_pool(s));
}

/* turned: RoPE has been applied. */
static void record_queries(struct session *s, const struct job *j, bool turned)
{
    struct probe_block b = {.layer = j->layer,
                            .turned = turned,
                            .t0 = j->pos0,
                            .n = j->T,
                            .q = s->qkv,
                            .ld = s->ld_qkv};
    if (recorder_wants(s->recorder) & PROBE_QUERY)
        recorder_queries(s->recorder, &b);
}

static void gate_task(void *ctx, int t, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    size_t D = (size_t)m->head_dim, k0 = (size_t)m->n_heads * D;
    const float *row = s->qkv + (size_t)t * s->ld_qkv;
    const float *pre = s->qk_unrotated ? s->qk_unrotated + (size_t)t * s->ld_pre : NULL;
    struct gate_input in = {.x = s->normed + (size_t)t * (size_t)m->d_model,
                            .q_pre = pre,
                            .k_pre = pre ? pre + k0 : NULL,
                            .v = row + k0 + (size_t)m->n_kv_heads * D,
                            .k_post = row + k0,
                            .pos = j->pos0 + t};
    gates_eval(s->gates, j->layer, &in, s->gate + (size_t)t * (size_t)m->n_kv_heads,
               s->scratch_per_thread + (size_t)thread * s->ld_scratch);
}

static void record_key(struct session *s, const struct job *j, int head, int slot, int32_t pos,
                       int thread)
{
    float *key = s->scratch_per_thread + (size_t)thread * s->ld_scratch;
    cache_key(s->cache, j->layer, head, slot, key);
    recorder_key(s->recorder, j->layer, head, pos, key);
}

static void record_value(struct session *s, const struct job *j, int head, int slot, int32_t pos,
                         int thread)
{
    float *value = s->scratch_per_thread + (size_t)thread * s->ld_scratch;
    cache_value(s->cache, j->layer, head, slot, value);
    recorder_value(s->recorder, j->layer, head, pos, value);
}

/* Tells who watches of an entry that is in its slot. */
static void notify_entry(const struct job *j, int h, int slot, int32_t pos, float gate,
                         const float *pre, int thread)
{
    struct session *s = j->s;
    if (recorder_wants(s->recorder) & PROBE_KEY)
        record_key(s, j, h, slot, pos, thread);
    if (recorder_wants(s->recorder) & PROBE_VALUE)
        record_value(s, j, h, slot, pos, thread);
    watch_appended(s, j->layer, h, slot, gate, pre);
}

static struct imported_token own_token(const struct session *s, int t)
{
    size_t row = (size_t)t;
    return (struct imported_token){
        .qkv = s->qkv + row * s->ld_qkv,
        .pre = s->qk_unrotated ? s->qk_unrotated + row * s->ld_pre : NULL,
        .gate = s->gate ? s->gate + row * (size_t)s->e->config.n_kv_heads : NULL,
    };
}

/* Stores the entries of one head of the cache; query heads may have one each. */
static void store_task(void *ctx, int h, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    size_t D = (size_t)m->head_dim, kv = (size_t)(h * m->n_kv_heads / s->cache_heads);
    size_t k0 = (size_t)m->n_heads * D + kv * D, v0 = k0 + (size_t)m->n_kv_heads * D;
    for (int t = 0; t < j->T; t++) {
        const struct imported_token x = j->x ? *j->x : own_token(s, t);
        const float *row = x.qkv, *pre = s->qk_unrotated ? x.pre + k0 : NULL;
        float gate = s->gate ? x.gate[kv] : NAN;
        struct cache_entry e = {j->pos0 + t, 0, s->positions_in_cache ? pre : row + k0, row + v0};
        if (s->gate && recorder_wants(s->recorder) & PROBE_GATE)
            recorder_gate(s->recorder, j->layer, h, e.pos, gate);
        e.expires_at = method_until(s->method, j->layer, h, e.pos, gate);
        int slot = cache_append(s->cache, &s->e->kernels, j->layer, h, &e);
        notify_entry(j, h, slot, e.pos, gate, pre, thread);
    }
}

/* Where every head of the cache has keys of its own and nobody asks for them first, they are turned
 * by the task that stores them, beside the queries. */
static bool turns_as_stored(const struct session *s)
{
    return !s->gate && s->cache_heads == s->e->config.n_kv_heads;
}

static void turn_or_store_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    const struct model_config *m = &j->s->e->config;
    if (task >= m->n_kv_heads) {
        turn_rows(j, task - m->n_kv_heads, false);
        return;
    }
    turn_heads(j, 0, j->T, (m->n_heads + task) * m->head_dim, 1);
    store_task(ctx, task, thread);
}

/* Queries and keys are turned, who asks for them told, and entries stored. */
static void turn_and_store(struct session *s, struct job *j)
{
    if (turns_as_stored(s)) {
        par_run(s->e->pool, s->cache_heads + row_tasks(j->T), turn_or_store_task, j);
        record_queries(s, j, true);
        return;
    }
    par_run(s->e->pool, row_tasks(j->T), rope_task, j);
    record_queries(s, j, true);
    if (s->gate)
        par_run(s->e->pool, j->T, gate_task, j);
    par_run(s->e->pool, s->cache_heads, store_task, j);
}

struct learning {
    struct job j; /* of the first layer */
    const struct imported_pages *x;
};

/* The entries of one head, whose number is that of its KV head, which another has stored. */
static void learn_task(void *ctx, int task, int thread)
{
    const struct learning *l = ctx;
    struct job of = l->j;
    struct session *s = of.s;
    size_t H = (size_t)s->cache_heads;
    const struct imported_pages *x = &l->x[task / s->cache_heads];
    const struct job *j = &of;
    int32_t *until = s->until + (size_t)task * (size_t)s->chunk;
    int h = task % s->cache_heads;
    const float *gate = x->gate ? x->gate + h : NULL;
    of.layer += task / s->cache_heads;
    int first = cache_view(s->cache, j->layer, h).n;
    for (int t = 0; t < j->T; t++) {
        float number = gate ? gate[(size_t)t * H] : NAN;
        if (gate && recorder_wants(s->recorder) & PROBE_GATE)
            recorder_gate(s->recorder, j->layer, h, j->pos0 + t, number);
        until[t] = method_until(s->method, j->layer, h, j->pos0 + t, number);
    }
    cache_append_pages(s->cache, j->layer, h, j->pos0, until, j->T,
                       x->pages + (size_t)h * x->head_bytes);
    for (int t = 0; t < j->T; t++)
        notify_entry(j, h, first + t, j->pos0 + t, gate ? gate[(size_t)t * H] : NAN, NULL, thread);
}

/* x += the branch, behind its norm and times its scale where there are such. */
static void add_rows(struct session *s, const float *post_norm, int t0, int n)
{
    const struct model_config *m = &s->e->config;
    int d = m->d_model;
    for (int t = t0; t < t0 + n; t++) {
        float *row = s->branch + (size_t)t * s->ld_out;
        if (post_norm)
            s->e->kernels.rmsnorm(row, row, post_norm, 1, d, m->norm_eps);
        for (int c = 0; m->residual_scale != 1 && c < d; c++)
            row[c] *= m->residual_scale;
        s->e->kernels.add(s->x + (size_t)t * (size_t)d, row, d);
    }
}

struct branch {
    struct session *s;
    int T;
    const float *post_norm;
};

static void branch_task(void *ctx, int task, int thread)
{
    const struct branch *b = ctx;
    int t0 = task * ROWS_PER_TASK, left = b->T - t0;
    (void)thread;
    add_rows(b->s, b->post_norm, t0, left < ROWS_PER_TASK ? left : ROWS_PER_TASK);
}

static void add_branch(struct session *s, int T, const float *post_norm)
{
    struct branch b = {s, T, post_norm};
    par_run(s->e->pool, row_tasks(T), branch_task, &b);
}

/* What a branch reads: x behind its norm, or x itself. */
static void make_normed(struct session *s, const void *pre_norm, int t0, int n, float *to,
                        size_t ld)
{
    const struct model_config *m = &s->e->config;
    size_t d = (size_t)m->d_model;
    const float *x = s->x + (size_t)t0 * d;
    (void)ld; /* is d */
    if (pre_norm)
        s->e->kernels.rmsnorm(to, x, pre_norm, n, m->d_model, m->norm_eps);
    else
        memcpy(to, x, (size_t)n * d * sizeof *x);
}

/* What the second branch of a layer reads, once the first is added. */
static void make_second(struct session *s, const void *layer, int t0, int n, float *to, size_t ld)
{
    const struct layer_weights *w = layer;
    add_rows(s, w->attn_post, t0, n);
    make_normed(s, w->ffn_norm, t0, n, to, ld);
}

struct embedding {
    struct session *s;
    const int32_t *ids;
    int T;
};

static void embed_task(void *ctx, int task, int thread)
{
    const struct embedding *j = ctx;
    size_t d = (size_t)j->s->e->config.d_model;
    int end = (task + 1) * ROWS_PER_TASK;
    (void)thread;
    for (int t = task * ROWS_PER_TASK; t < end && t < j->T; t++)
        weights_embed(j->s->e->weights, j->ids[t], j->s->x + (size_t)t * d);
}

void embed_tokens(struct session *s, const int32_t *ids, int T)
{
    struct embedding j = {s, ids, T};
    par_run(session_pool(s), row_tasks(T), embed_task, &j);
}

void layer_project(struct session *s, int layer, int T)
{
    const struct layer_weights *w = &s->e->weights->layer[layer];
    const struct matmul_input in = {.x = s->normed,
                                    .ld = (size_t)s->e->config.d_model,
                                    .prologue = make_normed,
                                    .how = w->attn_norm,
                                    .kept = s->normed_kept};
    linear(s, s->qkv, s->ld_qkv, &in, T, &w->qkv);
    struct job j = {s, layer, T, 0};
    if (w->qkv_bias || w->q_norm)
        par_run(s->e->pool, T, project_task, &j);
}

bool layers_learn_apart(const struct session *s)
{
    return !(recorder_wants(s->recorder) & PROBE_QUERY) && !s->chosen;
}

void layer_import_token(struct session *s, int layer, const struct imported_token *x)
{
    struct job j = {s, layer, 1, s->n_past, x};
    if (recorder_wants(s->recorder) & PROBE_QUERY) {
        memcpy(s->qkv, x->pre, s->ld_pre * sizeof *s->qkv);
        record_queries(s, &j, false);
        memcpy(s->qkv, x->qkv, s->ld_qkv * sizeof *s->qkv);
        record_queries(s, &j, true);
    }
    par_run(session_pool(s), s->cache_heads, store_task, &j);
    count_reads(s, layer);
}

void layer_learn_apart(struct session *s, int layer, const struct imported_token *x, int thread)
{
    struct job j = {s, layer, 1, s->n_past, x};
    for (int h = 0; h < s->cache_heads; h++)
        store_task(&j, h, thread);
}

int layer_reserve(struct session *s, int layer, int T)
{
    int err = KVF_OK;
    for (int h = 0; !err && h < s->cache_heads; h++)
        err = cache_reserve(s->cache, layer, h, T);
    return err;
}

void layers_import_pages(struct session *s, int layer, int n, int T, const struct imported_pages *x)
{
    struct learning l = {{s, layer, T, s->n_past}, x};
    par_run(s->e->pool, n * s->cache_heads, learn_task, &l);
}

int layer_attend(struct session *s, int layer, int T, int pos0)
{
    struct job j = {s, layer, T, pos0};
    int err = layer_reserve(s, layer, T);
    if (err)
        return err;
    keep_unrotated(s, &j);
    record_queries(s, &j, false);
    turn_and_store(s, &j);
    if (s->stepping && s->chosen)
        choose_pages(s, layer);
    if (s->stepping)
        count_reads(s, layer);
    return s->e->backend->attend(s, layer, T, pos0);
}

/* Of many rows a task adds its sums to x, unless all sums of a row have to be there first. */
static bool added_at_once(int T, const float *post_norm)
{
    return T > 1 && !post_norm;
}

/* W times what a branch multiplies last: added to x, or left in s->branch. */
static void end_branch(struct session *s, const struct matmul_input *in, int T,
                       const struct packed *w, const float *post_norm)
{
    if (added_at_once(T, post_norm))
        add_linear(s, in, T, w);
    else
        linear(s, s->branch, s->ld_out, in, T, w);
}

void layer_finish(struct session *s, int layer, int T)
{
    const struct layer_weights *w = &s->e->weights->layer[layer];
    const struct matmul_input att = {.x = s->att, .ld = s->ld_att};
    struct matmul_input in = {
        .x = s->normed, .ld = (size_t)s->e->config.d_model, .prologue = make_second, .how = w};
    end_branch(s, &att, T, &w->out, w->attn_post);
    if (added_at_once(T, w->attn_post)) {
        in.prologue = make_normed;
        in.how = w->ffn_norm;
    }
    const struct matmul_input gated = gated_rows(s, &in, T, w);
    end_branch(s, &gated, T, &w->down, w->ffn_post);
    if (!added_at_once(T, w->ffn_post))
        add_branch(s, T, w->ffn_post);
}

int layer_forward(struct session *s, int layer, int T, int pos0)
{
    const struct backend *b = s->e->backend;
    b->project(s, layer, T);
    int err = layer_attend(s, layer, T, pos0);
    if (err)
        return err;
    b->finish(s, layer, T);
    return b->check(s);
}

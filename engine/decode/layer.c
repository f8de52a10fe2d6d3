/* layer.c - the steps of a block between the projections and attention: RoPE, gates, and new cache
 * entries. */
#include <math.h>
#include <string.h>

#include "engine/decode/session_state.h"

struct job {
    struct session *s;
    int layer, T, pos0;
    const struct imported_token
        *x; /* the token to store; NULL: the rows in the session's buffers */
};

/* Applies RoPE to n heads of rows [t0, t1), from channel c on. */
static void turn_heads(const struct job *j, int t0, int t1, int c, int n)
{
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    for (int t = t0; t < t1; t++) {
        const float *turn = rope_row(s, j->layer, s->buf.cos_sin, s->chunk, t);
        if (turn)
            s->e->kernels.rope(s->buf.qkv + (size_t)t * s->buf.ld_qkv + c, turn, n, m->head_dim,
                               m->rope_dim);
    }
}

static int row_tasks(int T)
{
    return (T + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

/* Applies RoPE to the queries of a task's rows. keys: also to the keys, which follow them. */
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

/* Keeps queries and keys before RoPE, if they are read. */
static void keep_unrotated(struct session *s, const struct job *j)
{
    if (!s->parts.unrotated)
        return;
    for (int t = 0; t < j->T; t++)
        memcpy(s->parts.unrotated + (size_t)t * s->parts.ld_unrotated,
               s->buf.qkv + (size_t)t * s->buf.ld_qkv, s->parts.ld_unrotated * sizeof *s->buf.qkv);
    if (method_evidence(s->method) & EVIDENCE_MOMENTS)
        method_queries(s->method, j->layer, j->pos0, j->T, s->parts.unrotated,
                       s->parts.ld_unrotated, session_pool(s));
}

/* Passes queries to the recorder. turned: RoPE has been applied. */
static void record_queries(struct session *s, const struct job *j, bool turned)
{
    struct probe_block b = {.layer = j->layer,
                            .turned = turned,
                            .t0 = j->pos0,
                            .n = j->T,
                            .q = s->buf.qkv,
                            .ld = s->buf.ld_qkv};
    if (recorder_wants(s->observers.recorder) & PROBE_QUERY)
        recorder_queries(s->observers.recorder, &b);
}

static void gate_task(void *ctx, int t, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    size_t D = (size_t)m->head_dim, k0 = (size_t)m->n_heads * D;
    const float *row = s->buf.qkv + (size_t)t * s->buf.ld_qkv;
    const float *pre = s->parts.unrotated ? s->parts.unrotated + (size_t)t * s->parts.ld_unrotated
                                          : NULL;
    const float *x = s->e->weights->layer[j->layer].vector[T_ATTN_NORM] ? s->buf.normed : s->buf.x;
    struct gate_input in = {.x = x + (size_t)t * (size_t)m->d_model,
                            .q_pre = pre,
                            .k_pre = pre ? pre + k0 : NULL,
                            .v = row + k0 + (size_t)m->n_kv_heads * D,
                            .k_post = row + k0,
                            .pos = j->pos0 + t};
    gates_eval(s->gates, j->layer, &in, s->parts.gate + (size_t)t * (size_t)m->n_kv_heads,
               s->parts.scratch + (size_t)thread * s->parts.ld_scratch);
}

static void record_key(struct session *s, const struct job *j, int head, int slot, int32_t pos,
                       int thread)
{
    float *key = s->parts.scratch + (size_t)thread * s->parts.ld_scratch;
    cache_key(s->cache, j->layer, head, slot, key);
    recorder_key(s->observers.recorder, j->layer, head, pos, key);
}

static void record_value(struct session *s, const struct job *j, int head, int slot, int32_t pos,
                         int thread)
{
    float *value = s->parts.scratch + (size_t)thread * s->parts.ld_scratch;
    cache_value(s->cache, j->layer, head, slot, value);
    recorder_value(s->observers.recorder, j->layer, head, pos, value);
}

/* Notifies the observers of an entry that is in its slot. */
static void notify_entry(const struct job *j, int h, int slot, int32_t pos, float gate,
                         const float *pre, int thread)
{
    struct session *s = j->s;
    if (recorder_wants(s->observers.recorder) & PROBE_KEY)
        record_key(s, j, h, slot, pos, thread);
    if (recorder_wants(s->observers.recorder) & PROBE_VALUE)
        record_value(s, j, h, slot, pos, thread);
    watch_appended(s, j->layer, h, slot, gate, pre);
}

static struct imported_token own_token(const struct session *s, int t)
{
    size_t row = (size_t)t;
    return (struct imported_token){
        .qkv = s->buf.qkv + row * s->buf.ld_qkv,
        .pre = s->parts.unrotated ? s->parts.unrotated + row * s->parts.ld_unrotated : NULL,
        .gate = s->parts.gate ? s->parts.gate + row * (size_t)s->e->config.n_kv_heads : NULL,
    };
}

/* Stores the entries of one head of the cache. Query heads can have heads of their own there. */
static void store_task(void *ctx, int h, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    size_t D = (size_t)m->head_dim, kv = (size_t)(h * m->n_kv_heads / s->cache_heads);
    size_t k0 = (size_t)m->n_heads * D + kv * D, v0 = k0 + (size_t)m->n_kv_heads * D;
    for (int t = 0; t < j->T; t++) {
        const struct imported_token x = j->x ? *j->x : own_token(s, t);
        const float *row = x.qkv, *pre = s->parts.unrotated ? x.pre + k0 : NULL;
        float gate = s->parts.gate ? x.gate[kv] : NAN;
        struct cache_entry e = {j->pos0 + t, 0, s->positions_in_cache ? pre : row + k0, row + v0};
        if (s->parts.gate && recorder_wants(s->observers.recorder) & PROBE_GATE)
            recorder_gate(s->observers.recorder, j->layer, h, e.pos, gate);
        e.expires_at = method_until(s->method, j->layer, h, e.pos, gate);
        int slot = cache_append(s->cache, &s->e->kernels, j->layer, h, &e);
        notify_entry(j, h, slot, e.pos, gate, pre, thread);
    }
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

/* Applies RoPE, notifies probes, runs the gates and stores the entries. If each head of the cache
 * has its own keys and no gate reads them first, the task that stores keys also applies their RoPE.
 */
static void turn_and_store(struct session *s, struct job *j)
{
    bool gates = session_points(s) & POINT_GATES;
    if (!gates && s->cache_heads == s->e->config.n_kv_heads) {
        par_run(s->e->pool, s->cache_heads + row_tasks(j->T), turn_or_store_task, j);
        record_queries(s, j, true);
        return;
    }
    par_run(s->e->pool, row_tasks(j->T), rope_task, j);
    record_queries(s, j, true);
    if (gates)
        par_run(s->e->pool, j->T, gate_task, j);
    par_run(s->e->pool, s->cache_heads, store_task, j);
}

struct learning {
    struct job j; /* of the first layer */
    const struct imported_pages *x;
};

/* Imports the entries of one KV head from the pages of a device. */
static void learn_task(void *ctx, int task, int thread)
{
    const struct learning *l = ctx;
    struct job of = l->j;
    struct session *s = of.s;
    size_t H = (size_t)s->cache_heads;
    const struct imported_pages *x = &l->x[task / s->cache_heads];
    const struct job *j = &of;
    int32_t *until = s->parts.expiry + (size_t)task * (size_t)s->chunk;
    int h = task % s->cache_heads;
    const float *gate = x->gate ? x->gate + h : NULL;
    of.layer += task / s->cache_heads;
    int first = cache_view(s->cache, j->layer, h).n;
    for (int t = 0; t < j->T; t++) {
        float number = gate ? gate[(size_t)t * H] : NAN;
        if (gate && recorder_wants(s->observers.recorder) & PROBE_GATE)
            recorder_gate(s->observers.recorder, j->layer, h, j->pos0 + t, number);
        until[t] = method_until(s->method, j->layer, h, j->pos0 + t, number);
    }
    cache_append_pages(s->cache, j->layer, h, j->pos0, until, j->T,
                       x->pages + (size_t)h * x->head_bytes);
    for (int t = 0; t < j->T; t++)
        notify_entry(j, h, first + t, j->pos0 + t, gate ? gate[(size_t)t * H] : NAN, NULL, thread);
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
        weights_embed(j->s->e->weights, j->ids[t], j->s->buf.x + (size_t)t * d);
}

void embed_tokens(struct session *s, const int32_t *ids, int T)
{
    struct embedding j = {s, ids, T};
    par_run(session_pool(s), row_tasks(T), embed_task, &j);
}

bool layers_import_in_parallel(const struct session *s)
{
    return !(recorder_wants(s->observers.recorder) & PROBE_QUERY) && !s->reading.chosen;
}

void layer_import_token(struct session *s, int layer, const struct imported_token *x)
{
    struct job j = {s, layer, 1, s->n_past, x};
    if (recorder_wants(s->observers.recorder) & PROBE_QUERY) {
        memcpy(s->buf.qkv, x->pre, s->parts.ld_unrotated * sizeof *s->buf.qkv);
        record_queries(s, &j, false);
        memcpy(s->buf.qkv, x->qkv, s->buf.ld_qkv * sizeof *s->buf.qkv);
        record_queries(s, &j, true);
    }
    par_run(session_pool(s), s->cache_heads, store_task, &j);
    count_reads(s, layer, 1);
}

void layer_import_serial(struct session *s, int layer, const struct imported_token *x, int thread)
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

int step_store(struct layer_run *r, int i)
{
    struct session *s = r->s;
    struct job j = {s, r->layer, r->T, r->pos0, NULL};
    int err = layer_reserve(s, r->layer, r->T);
    if (err)
        return err;
    keep_unrotated(s, &j);
    record_queries(s, &j, false);
    turn_and_store(s, &j);
    if (s->run.stepping && s->reading.chosen)
        choose_pages(s, r->layer);
    if (s->run.stepping)
        count_reads(s, r->layer, r->T);
    return steps_before(r->b, i, OP_ATTEND);
}

/* batch.c - one token of many sessions.
 *
 * A separate session, the shared session, has the rows: row i belongs to session i. The steps of a
 * layer before and after its cache run over all rows of the shared session. Between them, each
 * session uses its row as its own buffers. All its tasks run in one thread, and threads run
 * different sessions. */
#include <string.h>

#include "base/mem.h"
#include "engine/decode/sampler.h"
#include "engine/decode/session_state.h"

struct batch {
    struct session *rows_session;
    struct engine alone; /* the engine without its thread pool */
    struct session *own; /* [most] copies of the sessions, to restore */
    struct session **s;  /* [most] the session of each row */
    int32_t *id;         /* [most] */
    int *err;            /* [most] */
    float **logits;      /* [most] their logits */
    int most;
    const struct layer_run *run; /* the current block */
    int first;                   /* its first step that uses the cache */
};

int batch_create(struct engine *e, int most, struct batch **ret_batch)
{
    struct batch *b = MEM_NEW(struct batch, 1);
    int rows = most < e->config.n_ctx ? most : e->config.n_ctx;
    struct session_options opt = {.cap = rows, .chunk = rows, .no_preallocation = true};
    if (!b)
        return KVF_E_NOMEM;
    b->alone = *e;
    b->alone.pool = NULL;
    b->most = rows;
    b->own = MEM_NEW(struct session, (size_t)rows);
    b->err = MEM_NEW(int, (size_t)rows);
    b->s = MEM_NEW(struct session *, (size_t)rows);
    b->id = MEM_NEW(int32_t, (size_t)rows);
    int err = KVF_E_NOMEM;
    b->logits = MEM_NEW(float *, (size_t)rows);
    if (!b->own || !b->err || !b->s || !b->id || !b->logits)
        goto fail;
    err = session_create(e, &opt, &b->rows_session, NULL);
    if (err)
        goto fail;
    b->rows_session->buf.keeps_normed = true; /* some session can have gates */
    *ret_batch = b;
    return KVF_OK;

fail:
    batch_destroy(b);
    return err;
}

void batch_destroy(struct batch *b)
{
    if (!b)
        return;
    session_destroy(b->rows_session);
    mem_free(b->own);
    mem_free(b->err);
    mem_free(b->s);
    mem_free(b->id);
    mem_free(b->logits);
    mem_free(b);
}

/* Lets session i use row i of the shared session until unbind_row(). */
static void bind_row(struct batch *b, int i)
{
    struct session *s = b->s[i], *shared = b->rows_session;
    size_t row = (size_t)i;
    b->own[i] = *s;
    s->e = &b->alone;
    s->buf.x = shared->buf.x + row * (size_t)shared->e->config.d_model;
    s->buf.normed = shared->buf.normed + row * (size_t)shared->e->config.d_model;
    s->buf.qkv = shared->buf.qkv + row * shared->buf.ld_qkv;
    s->buf.att = shared->buf.att + row * shared->buf.ld_att;
    b->logits[i] = s->buf.logits;
}

static void unbind_row(struct batch *b, int i)
{
    struct session *s = b->s[i];
    const struct session *own = &b->own[i];
    s->e = own->e;
    s->buf.x = own->buf.x;
    s->buf.normed = own->buf.normed;
    s->buf.qkv = own->buf.qkv;
    s->buf.att = own->buf.att;
}

static void begin_task(void *ctx, int i, int thread)
{
    struct batch *b = ctx;
    struct session *s = b->s[i];
    (void)thread;
    b->err[i] = s->n_past < s->cap ? session_begin_step(s, 1) : KVF_E_LIMIT;
    if (b->err[i])
        return;
    if (records_nll(s) && s->run.has_logits)
        nll_next(s, b->id[i], s->n_past);
    weights_embed(s->e->weights, b->id[i], s->buf.x);
    rope_fill(s, s->buf.cos_sin, s->chunk, 0, s->n_past);
}

static void attend_task(void *ctx, int i, int thread)
{
    struct batch *b = ctx;
    struct session *s = b->s[i];
    (void)thread;
    struct layer_run r = {s, b->run->b, b->run->layer, 1, s->n_past, false, NULL};
    int n = steps_cpu[r.b->step[b->first].op](&r, b->first);
    b->err[i] = n < 0 ? n : steps_cpu[OP_ATTEND](&r, b->first + n);
    if (b->err[i] > 0)
        b->err[i] = KVF_OK;
}

static void end_task(void *ctx, int i, int thread)
{
    struct batch *b = ctx;
    struct session *s = b->s[i];
    (void)thread;
    memcpy(b->own[i].buf.normed, s->buf.normed,
           (size_t)s->e->config.d_model * sizeof *s->buf.normed);
    cap_logits(s, s->buf.logits, s->e->config.vocab);
    cache_account(s->cache);
    s->run.has_logits = true;
    s->sampling.has_token = s->sampling.sampler != NULL;
    if (s->sampling.sampler)
        s->sampling.token = sampler_draw(s->sampling.sampler, s->buf.logits);
    s->n_past++;
    if (s->observers.recorder) /* a write error of a trace ends only its session */
        (void)recorder_advance(s->observers.recorder, s->n_past);
    b->err[i] = session_end_step(s, 1);
}

static int first_error(const struct batch *b, int n)
{
    for (int i = 0; i < n; i++)
        if (b->err[i])
            return b->err[i];
    return KVF_OK;
}

/* Runs the steps from RoPE to attention of each session with its own cache. */
static int each_session(struct layer_run *r, int i)
{
    struct batch *b = r->ctx;
    b->run = r;
    b->first = i;
    par_run(r->s->e->pool, r->T, attend_task, b);
    int err = first_error(b, r->T);
    return err ? err : steps_before(r->b, i, OP_ATTEND) + 1;
}

static int forward(struct batch *b, int n)
{
    struct session *shared = b->rows_session;
    const struct model_config *m = &shared->e->config;
    step_fn steps[BLOCK_OPS];
    memcpy(steps, steps_cpu, sizeof steps);
    steps[OP_ROPE] = steps[OP_GATES] = each_session;
    par_run(shared->e->pool, n, begin_task, b);
    int err = first_error(b, n);
    for (int l = 0; !err && l < m->n_layers; l++) {
        struct layer_run r = {shared, block_of(&shared->e->weights->plan, l), l, n, 0, false, b};
        err = run_block(steps, &r);
    }
    if (err)
        return err;
    shared->e->kernels.rmsnorm(shared->buf.normed, shared->buf.x, shared->e->weights->out_norm, n,
                               m->d_model, m->norm_eps);
    const struct matmul_input in = {.x = shared->buf.normed,
                                    .ld = (size_t)shared->e->config.d_model};
    linear_to_rows(shared, b->logits, &in, n, &shared->e->weights->head);
    par_run(shared->e->pool, n, end_task, b);
    return first_error(b, n);
}

/* Runs a step of the first n sessions, with the tokens in b->id. */
static int step_rows(struct batch *b, int n)
{
    const struct backend *backend = b->rows_session->e->backend;
    if (backend->decode_batch)
        return n > 0 ? backend->decode_batch(b->rows_session, b->s, n, b->id) : KVF_OK;
    for (int i = 0; i < n; i++)
        bind_row(b, i);
    int err = n > 0 ? forward(b, n) : KVF_OK;
    for (int i = 0; i < n; i++)
        unbind_row(b, i);
    return err;
}

int batch_step(struct batch *b, struct session *const *s, int n, const int32_t *ids)
{
    const struct backend *backend = b->rows_session->e->backend;
    int rows = 0;
    for (int i = 0; i < n; i++) {
        int err = KVF_OK;
        bool elsewhere = backend->can_batch && !backend->can_batch(s[i]);
        if (s[i]->compare.full_cache
            || elsewhere) { /* two sessions in one, or a step that runs layer by layer */
            err = session_step(s[i], ids[i]);
        } else {
            b->s[rows] = s[i];
            b->id[rows++] = ids[i];
        }
        if (rows == b->most) {
            err = step_rows(b, rows);
            rows = 0;
        }
        if (err)
            return err;
    }
    return step_rows(b, rows);
}

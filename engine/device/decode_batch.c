/* decode_batch.c - a decode step of one session or many. Matrix multiplications run on the rows of
 * all sessions, attention on the cache of each session, and the host waits once. */
#include <string.h>

#include "base/mem.h"
#include "engine/device/decode.h"

enum { MARK_SOON, MARK_LAYERS }; /* attention of the last layer is done; the layers are done */

/* A session of the step. It uses its own buffers, or a row of the shared session's. */
struct row {
    struct session *s;
    int32_t id; /* the token */
    struct device_eviction round;
    float *x, *normed, *att, *logits, *kept; /* its own buffers, to restore */
    size_t ld_kept;
    struct gpu_attention attention; /* of the current layer */
    int err;
};

static void lend(struct session *shared, struct row *row, int i)
{
    struct device_session *m = row->s->device_state;
    const struct device_session *of = shared->device_state;
    size_t at = (size_t)i, d = (size_t)shared->e->config.d_model;
    row->x = m->buf.x;
    row->normed = m->buf.normed;
    row->att = m->buf.att;
    row->logits = m->buf.logits;
    row->kept = m->buf.attn_in;
    row->ld_kept = m->buf.ld_attn_in;
    m->buf.attn_in = of->buf.attn_in ? of->buf.attn_in + at * d : NULL;
    m->buf.ld_attn_in = of->buf.ld_attn_in;
    m->buf.x = of->buf.x + at * d;
    m->buf.normed = of->buf.normed + at * d;
    m->buf.att = of->buf.att + at * shared->buf.ld_att;
    m->buf.logits = of->buf.logits + at * shared->buf.ld_logits;
}

static float *own_logits(const struct row *row)
{
    return row->x ? row->logits : ((struct device_session *)row->s->device_state)->buf.logits;
}

static void take_back(struct row *row)
{
    struct device_session *m = row->s->device_state;
    m->buf.x = row->x;
    m->buf.normed = row->normed;
    m->buf.att = row->att;
    m->buf.logits = row->logits;
    m->buf.attn_in = row->kept;
    m->buf.ld_attn_in = row->ld_kept;
}

/* Runs all steps up to attention of all sessions: norms of heads, RoPE, new entries. Gates run
 * once, after the last layer. */
static int store_step(struct layer_run *r, int i0)
{
    struct session *shared = r->s;
    struct row *row = r->ctx;
    struct device_session *m = shared->device_state;
    int n = r->T, layer = r->layer;
    struct gpu_cache cache[GPU_TOGETHER];
    struct gpu_new_entries x[GPU_TOGETHER];
    for (int i = 0; i < n; i++) {
        int at = i % GPU_TOGETHER;
        gpu_branch(m->gpu, i);
        x[at] = step_new_entry(row[i].s, layer, m->buf.qkv + (size_t)i * shared->buf.ld_qkv,
                               &cache[at]);
        gpu_branch(m->gpu, -1);
        if (i == n - 1 || at == GPU_TOGETHER - 1)
            gpu_norm_rope_store(m->gpu, cache, x, at + 1);
    }
    return steps_before(r->b, i0, OP_ATTEND);
}

static int norm_step(struct layer_run *r, int i)
{
    return device_stores_norm(r, i) ? store_step(r, i) : steps_device[OP_NORM](r, i);
}

/* Runs the attention of all sessions, after all have chosen their pages. */
static void attend_all(struct session *shared, const struct row *row, int n)
{
    struct device_session *m = shared->device_state;
    struct gpu_attention a[GPU_TOGETHER];
    float *work[GPU_TOGETHER];
    for (int i = 0; i < n; i++) {
        int at = i % GPU_TOGETHER;
        a[at] = row[i].attention;
        work[at] = ((struct device_session *)row[i].s->device_state)->layer.work;
        if (i == n - 1 || at == GPU_TOGETHER - 1)
            gpu_attend_step(m->gpu, a, work, at + 1);
    }
}

/* Collects up to GPU_TOGETHER sessions for which takes_part() is true, from *at on, and advances
 * *at. Returns their number. */
static int next_group(const struct row *row, int n, int *at,
                      bool (*takes_part)(const struct session *s), struct session **ret_s)
{
    int count = 0;
    for (; *at < n && count < GPU_TOGETHER; ++*at)
        if (takes_part(row[*at].s))
            ret_s[count++] = row[*at].s;
    return count;
}

/* Updates evidence from attention rows. The step does not wait for it. */
static void look_at_rows(const struct row *row, int n, int layer)
{
    struct session *s[GPU_TOGETHER];
    int at = 0, count = next_group(row, n, &at, step_shares_rows, s);
    for (; count > 0; count = next_group(row, n, &at, step_shares_rows, s))
        step_process_rows(s, count, layer);
}

static bool has_gates(const struct session *s)
{
    return s->parts.gate;
}

/* Computes the gate values of all sessions. The step does not wait for it. */
static void run_gates(struct session *shared, const struct row *row, int n)
{
    struct session *s[GPU_TOGETHER];
    int at = 0, count = next_group(row, n, &at, has_gates, s);
    for (; count > 0; count = next_group(row, n, &at, has_gates, s))
        step_gates(shared, s, count);
}

/* Runs attention. Work that sessions do not share runs in parallel branches. */
static int attend_step(struct layer_run *r, int i)
{
    struct session *shared = r->s;
    struct row *row = r->ctx;
    struct device_session *m = shared->device_state;
    (void)i;
    for (int k = 0; k < r->T; k++) {
        gpu_branch(m->gpu, k);
        row[k].attention = step_attention(row[k].s, r->layer);
    }
    gpu_branch(m->gpu, -1);
    if (!shared->e->exact)
        attend_all(shared, row, r->T);
    for (int k = 0; k < r->T; k++) {
        gpu_branch(m->gpu, k);
        step_after_attention(row[k].s, r->layer);
    }
    gpu_branch(m->gpu, -1);
    look_at_rows(row, r->T, r->layer);
    if (r->layer == shared->e->config.n_layers - 1) {
        gpu_mark(m->gpu, MARK_SOON);
        run_gates(shared, row, r->T);
    }
    return 1;
}

/* Runs all layers for the rows of all sessions. */
static void run_layers(struct session *shared, struct row *row, int n)
{
    step_fn steps[BLOCK_OPS];
    memcpy(steps, steps_device, sizeof steps);
    steps[OP_NORM] = norm_step;
    steps[OP_ROPE] = steps[OP_GATES] = store_step;
    steps[OP_ATTEND] = attend_step;
    for (int l = 0; l < shared->e->config.n_layers; l++) {
        struct layer_run r = {shared, block_of(&shared->e->weights->plan, l), l, n, 0, false, row};
        (void)run_block(steps, &r); /* no function of these fails */
    }
}

/* Uploads the inputs and runs the evictions of all sessions, in parallel branches. */
static void enter(struct session *shared, struct row *row, int n, bool rounds)
{
    struct device_session *m = shared->device_state;
    struct gpu_parts parts = {.n = 0};
    for (int i = 0; i < n; i++) {
        step_parts(row[i].s, &parts);
        if (i == n - 1 || parts.n + MOST_STEP_PARTS > GPU_MAX_PARTS) {
            gpu_send_parts(m->gpu, &parts);
            parts.n = 0;
        }
    }
    for (int i = 0; i < n; i++) {
        gpu_branch(m->gpu, i);
        step_launch_evictions(row[i].s, own_logits(&row[i]), &row[i].round, rounds);
    }
    gpu_branch(m->gpu, -1);
}

/* Launches the step. Values that change from step to step are in device memory, so the launches are
 * mostly those of the last step, and run as one graph. */
static void launch(struct session *shared, struct row *row, int n)
{
    struct device_session *m = shared->device_state;
    bool rounds = false;
    for (int i = 0; i < n; i++)
        rounds |= row[i].round.due;
    shared->run.stepping = true;
    gpu_graph_begin(m->gpu, &m->graph[rounds ? GRAPH_ROUND : GRAPH_STEP]);
    enter(shared, row, n, rounds);
    run_layers(shared, row, n);
    device_norm(shared, n);
    for (int i = 0; i < n; i++) {
        gpu_branch(m->gpu, i);
        step_fetch_normed(row[i].s);
    }
    gpu_branch(m->gpu, -1);
    gpu_mark(m->gpu, MARK_LAYERS);
    if (shared != row[0].s || !shared->compare.no_logits)
        device_logits(shared, m->buf.normed, n);
    for (int i = 0; i < n; i++) {
        gpu_branch(m->gpu, i);
        step_fetch(row[i].s, own_logits(&row[i]));
    }
    gpu_graph_end(m->gpu);
}

static void leave(struct session *shared, const struct row *row, int n)
{
    struct device_session *m = shared->device_state;
    gpu_graph_begin(m->gpu, &m->graph[GRAPH_AFTER]);
    for (int i = 0; i < n; i++) {
        gpu_branch(m->gpu, i);
        step_after_launch(row[i].s, &row[i].round);
    }
    gpu_graph_end(m->gpu);
}

/* Runs the decisions after the queries. Waits once if some entry is evicted. */
static int after(struct session *shared, struct row *row, int n)
{
    struct device_session *m = shared->device_state;
    bool due = false;
    int err = KVF_OK;
    for (int i = 0; !err && i < n; i++) {
        err = step_after_begin(row[i].s, &row[i].round);
        due |= row[i].round.due;
    }
    if (!err && due) {
        leave(shared, row, n);
        err = gpu_wait(m->gpu, &shared->e->error);
    }
    for (int i = 0; !err && i < n; i++)
        err = step_after_end(row[i].s, &row[i].round);
    return err;
}

static void decide_task(void *ctx, int task, int thread)
{
    struct row *row = (struct row *)ctx + task;
    (void)thread;
    row->err = step_decide(row->s, row->id, &row->round);
}

static void learn_task(void *ctx, int task, int thread)
{
    struct row *row = (struct row *)ctx + task;
    (void)thread;
    row->err = step_import(row->s, &row->round);
}

static void layer_task(void *ctx, int task, int thread)
{
    struct row *row = ctx;
    int L = row->s->e->config.n_layers;
    if (step_imports_in_parallel(row[task / L].s))
        step_import_layer(row[task / L].s, task % L, thread);
}

static void learned_task(void *ctx, int task, int thread)
{
    (void)thread;
    step_import_end(((struct row *)ctx)[task].s);
}

static void end_task(void *ctx, int task, int thread)
{
    (void)thread;
    step_end(((struct row *)ctx)[task].s);
}

/* Runs a task for each session, in parallel if there are several. Returns the first error. */
static int side_by_side(struct session *shared, struct row *row, int n, par_fn task)
{
    for (int i = 0; i < n; i++)
        row[i].s->run.in_task = n > 1;
    par_run(n > 1 ? shared->e->pool : NULL, n, task, row);
    for (int i = 0; i < n; i++)
        row[i].s->run.in_task = false;
    for (int i = 0; i < n; i++)
        if (row[i].err)
            return row[i].err;
    return KVF_OK;
}

/* Updates the host: sessions in parallel, then all their layers. */
static int learn_all(struct session *shared, struct row *row, int n)
{
    struct par *pool = shared->e->pool;
    int err = side_by_side(shared, row, n, learn_task);
    if (err)
        return err;
    par_run(pool, n * shared->e->config.n_layers, layer_task, row);
    par_run(n > 1 ? pool : NULL, n, learned_task, row);
    return KVF_OK;
}

/* Waits for the step. The host imports the layers while the device computes logits. It wakes its
 * threads a little earlier. */
static int finish(struct session *shared, struct row *row, int n)
{
    struct device_session *m = shared->device_state;
    if (gpu_marked(m->gpu, MARK_SOON))
        par_rouse(shared->e->pool);
    int err = gpu_marked(m->gpu, MARK_LAYERS) ? learn_all(shared, row, n) : KVF_OK;
    int failed = gpu_wait(m->gpu, &shared->e->error);
    err = failed ? failed : err;
    if (!err)
        par_run(n > 1 ? shared->e->pool : NULL, n, end_task, row);
    return err;
}

/* Advances the recorder. Its error ends the step only if there is a single session. */
static int record(const struct row *row, bool alone)
{
    struct session *s = row->s;
    if (!s->observers.recorder)
        return KVF_OK;
    int err = recorder_advance(s->observers.recorder, s->n_past);
    return alone ? err : KVF_OK;
}

static int run(struct session *shared, struct row *row, int n, const int32_t *ids)
{
    int err = device_reserve_logits(shared, n);
    for (int i = 0; !err && i < n; i++) {
        err = row[i].s->parts.gate ? device_reserve_attn_in(shared, n) : KVF_OK;
        err = err ? err : device_gates_open_step(shared, row[i].s, n);
    }
    for (int i = 0; !err && i < n; i++) {
        if (shared != row[i].s)
            lend(shared, &row[i], i);
        row[i].id = ids[i];
        err = step_begin(row[i].s);
    }
    err = err ? err : side_by_side(shared, row, n, decide_task);
    for (int i = 0; !err && i < n; i++)
        err = step_prepare(row[i].s, ids[i], &row[i].round);
    if (err)
        return err;
    launch(shared, row, n);
    err = finish(shared, row, n);
    for (int i = 0; !err && i < n; i++)
        err = record(&row[i], shared == row[i].s);
    return err ? err : after(shared, row, n);
}

int device_decode_batch(struct session *shared, struct session *const *s, int n, const int32_t *ids)
{
    struct row one = {.s = s[0]}, *row = shared ? MEM_NEW(struct row, (size_t)n) : &one;
    if (!row)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++)
        row[i].s = s[i];
    int err = run(shared ? shared : s[0], row, n, ids);
    for (int i = 0; i < n; i++)
        if (row[i].x)
            take_back(&row[i]);
    if (shared)
        mem_free(row);
    return err;
}

int device_decode_step(struct session *s, int32_t id)
{
    if (device_can_batch(s))
        return device_decode_batch(NULL, &s, 1, &id);
    int err = device_sync_evidence(s);
    return err ? err : RUN_LAYERWISE;
}

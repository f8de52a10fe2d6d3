/* recorder.c - records a run: passes events to the active probes and writes their columns to the
 * trace. */
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/progress.h"
#include "engine/probe/arrays.h"
#include "engine/probe/gather.h"
#include "engine/probe/probes.h"
#include "engine/probe/recorder.h"
#include "libtrace/sparse.h"

enum { MAX_PROBES = 32, BLOCK = 1024, TAIL_SECONDS = 60, TAIL_BYTES = 64 << 20 };

/* Columns of every trace, before the columns of the probes. */
enum { COL_ID, COL_ROLE, N_FIXED };
static const struct kvf_column fixed_columns[N_FIXED] = {
    {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
    {"tokens.role", KVF_U8, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
};

struct thread_scratch {
    float *p;
    int32_t *pos;
    void *cuts;
    struct probe_cuts known;
    float *room;
};

struct recorder {
    struct probe_config cfg;
    struct kvf_writer *writer; /* used by the pen until it ends */
    struct probe_sink sink;
    struct probe_state active[MAX_PROBES];
    int n_active;
    struct gather *gather;
    unsigned wants;
    struct recorder_elsewhere elsewhere;
    int32_t held; /* step count at the device copies that the pen holds tasks for; 0: no held
                   * tasks */
    struct thread_scratch *scratch;
    int n_threads;
    int32_t block;    /* see struct recorder_run */
    int32_t streamed; /* steps of stream columns written so far */
    struct {
        double at, wait; /* seconds: time of the last tail, and wait until the next */
        double rest;     /* minimum wait, independent of the bytes written */
        uint64_t bytes;  /* size of the trace at that time */
        bool begun;      /* a tail is queued; the pen has its times */
    } tail;
    int32_t n_tokens;
    int32_t *id;        /* [cap] */
    uint8_t *role;      /* [cap] */
    uint32_t *text_end; /* [cap] offsets into text */
    struct buf text;
    int err;
};

double probes_bytes_per_token(unsigned set, const struct probe_config *cfg)
{
    const struct method_shape *m = &cfg->shape;
    double bytes = 5; /* id and role */
    for (int i = 0; probe_table[i]; i++) {
        if (!(set >> i & 1))
            continue;
        int n = probe_columns(probe_table[i], cfg, NULL);
        bytes += probe_table[i]->blob_bytes ? probe_table[i]->blob_bytes(cfg) : 0;
        struct probe_array *a = MEM_NEW(struct probe_array, (size_t)n);
        if (a && n > 0)
            probe_columns(probe_table[i], cfg, a);
        for (int k = 0; a && k < n; k++) {
            const double heads[] = {[KVF_SPACE_RUN] = 1,
                                    [KVF_SPACE_KV] = (double)m->n_layers * m->n_kv_heads,
                                    [KVF_SPACE_QUERY] = (double)m->n_layers * m->n_heads};
            bytes += heads[a[k].column.space] * (double)kvf_dtype_size(a[k].column.dtype);
        }
        mem_free(a);
    }
    return bytes;
}

/* Opens the trace with the n columns of the active probes. */
static int open_writer(struct recorder *r, const char *path, const struct recorder_run *run, int n,
                       struct kvf_diag *d)
{
    int L = r->cfg.shape.n_layers, err = KVF_E_NOMEM;
    struct kvf_column *col = MEM_NEW(struct kvf_column, (size_t)n);
    uint16_t *heads = MEM_NEW(uint16_t, 2 * (size_t)L);
    if (!col || !heads)
        goto done;
    memcpy(col, fixed_columns, sizeof fixed_columns);
    for (int i = 0; i < r->n_active; i++)
        for (int k = 0; k < r->active[i].n_arrays; k++)
            col[r->active[i].column0 + k] = r->active[i].array[k].column;
    for (int l = 0; l < L; l++) {
        heads[l] = (uint16_t)r->cfg.shape.n_kv_heads;
        heads[L + l] = (uint16_t)r->cfg.shape.n_heads;
    }
    struct kvf_shape shape = {L, heads, heads + L};
    const struct kvf_writer_options opt = {
        .existing = run->existing, .prompt = run->prompt, .n_prompt = run->n_prompt};
    err = kvf_writer_open(path, run->header, &shape, col, n, &opt, &r->writer, d);
    for (int i = 0; !err && r->cfg.every > 1 && i < r->n_active; i++)
        if (r->active[i].probe == &probe_dilution)
            writer_sparse(r->writer, r->active[i].column0,
                          r->active[i].column0 + r->active[i].n_arrays);
done:
    mem_free_all(heads, col);
    return err;
}

static int make_scratch(struct recorder *r, int n_threads)
{
    size_t cap = (size_t)r->cfg.cap;
    r->n_threads = n_threads;
    r->scratch = MEM_NEW(struct thread_scratch, (size_t)n_threads);
    for (int i = 0; r->scratch && i < n_threads; i++) {
        struct thread_scratch *s = &r->scratch[i];
        s->p = MEM_NEW(float, cap);
        s->pos = MEM_NEW(int32_t, cap);
        s->cuts = mem_alloc(row_cuts_scratch(r->cfg.cap), 1);
        s->room = MEM_NEW(float, cap);
        s->known.words = (cap + 63) / 64;
        s->known.member = MEM_NEW(uint64_t, KVF_N_CRITERIA * s->known.words);
        s->known.by_entry = MEM_NEW(uint64_t, KVF_N_CRITERIA * s->known.words);
        if (!s->p || !s->pos || !s->cuts || !s->room || !s->known.member || !s->known.by_entry)
            return KVF_E_NOMEM;
    }
    r->id = MEM_NEW(int32_t, cap);
    r->role = MEM_NEW(uint8_t, cap);
    r->text_end = MEM_NEW(uint32_t, cap);
    return r->scratch && r->id && r->role && r->text_end ? KVF_OK : KVF_E_NOMEM;
}

/* Opens the probes of a set; *ret_columns: total number of columns of the trace. */
static int open_probes(struct recorder *r, unsigned set, int *ret_columns)
{
    int n = N_FIXED;
    for (int i = 0; probe_table[i]; i++) {
        if (!(set >> i & 1))
            continue;
        struct probe_state *s = &r->active[r->n_active++];
        int err = probe_state_open(s, probe_table[i], &r->cfg);
        if (err)
            return err;
        s->column0 = n;
        n += s->n_arrays;
        r->wants |= probe_table[i]->wants;
    }
    *ret_columns = n;
    return gather_create(r->active, r->n_active, &r->cfg, r->n_threads, &r->gather);
}

int recorder_create(const char *path, const struct recorder_run *run, unsigned set,
                    const struct probe_config *cfg, int n_threads, struct recorder **ret_rec,
                    struct kvf_diag *d)
{
    int n_columns;
    struct recorder *r = MEM_NEW(struct recorder, 1);
    if (!r)
        return KVF_E_NOMEM;
    r->cfg = *cfg;
    r->block = run->block ? run->block : BLOCK;
    int err = make_scratch(r, n_threads);
    if (!err)
        err = open_probes(r, set, &n_columns);
    if (err)
        goto no_memory;
    err = open_writer(r, path, run, n_columns, d);
    if (!err)
        err = pen_create(r->writer, &r->sink.pen, d);
    if (err)
        goto fail;
    if (run->kept)
        pen_log(r->sink.pen);
    r->tail.at = clock_seconds();
    r->tail.wait = run->without_tail ? INFINITY : 1;
    r->tail.rest = run->without_tail ? INFINITY : 0;
    *ret_rec = r;
    return KVF_OK;

no_memory:
    kvf_fail(d, err, "not enough memory to record %d tokens; use fewer --probes", cfg->cap);
fail:
    recorder_abandon(r);
    return err;
}

static void free_recorder(struct recorder *r)
{
    if (r->elsewhere.forget)
        r->elsewhere.forget(r->elsewhere.ctx);
    for (int i = 0; i < r->n_active; i++)
        probe_state_close(&r->active[i]);
    gather_free(r->gather);
    for (int i = 0; r->scratch && i < r->n_threads; i++) {
        struct thread_scratch *s = &r->scratch[i];
        mem_free_all(s->p, s->pos, s->cuts, s->room, s->known.member, s->known.by_entry);
    }
    mem_free_all(r->scratch, r->id, r->role, r->text_end);
    buf_finish(&r->text);
    mem_free(r);
}

/* Waits for the device copies and releases the held tasks, or discards them if the copies
 * failed. */
static int release_held(struct recorder *r)
{
    int err = r->held ? r->elsewhere.settle(r->elsewhere.ctx) : KVF_OK;
    if (err)
        pen_discard(r->sink.pen);
    else if (r->held)
        pen_release(r->sink.pen);
    r->held = 0;
    return err;
}

void recorder_settle(struct recorder *r)
{
    int err = release_held(r);
    gather_settle(r->gather);
    r->err = r->err ? r->err : err;
    (void)pen_settle(r->sink.pen); /* pen_error keeps its error */
}

void recorder_abandon(struct recorder *r)
{
    if (!r)
        return;
    if (r->sink.pen)
        recorder_settle(r);
    pen_destroy(r->sink.pen);
    (r->n_tokens > 0 ? kvf_writer_abandon : kvf_writer_drop)(r->writer);
    free_recorder(r);
}

unsigned recorder_wants(const struct recorder *r)
{
    return r ? r->wants : 0;
}

struct probe_state *recorder_probes(struct recorder *r, int *ret_n)
{
    *ret_n = r->n_active;
    return r->active;
}

void recorder_move(struct recorder *r, const struct recorder_elsewhere *e)
{
    r->elsewhere = e ? *e : (struct recorder_elsewhere){.ctx = NULL};
    r->wants = 0;
    for (int i = 0; i < r->n_active; i++) {
        unsigned there = r->active[i].away ? PROBE_ROWS | PROBE_GROUPS | PROBE_VALUE : 0;
        r->wants |= r->active[i].probe->wants & ~there;
    }
}

void recorder_row(struct recorder *r, const struct attn_row *row, const struct cache_head *view,
                  float lse, float entropy, int thread)
{
    struct thread_scratch *s = &r->scratch[thread];
    struct probe_row out = {.layer = row->layer,
                            .head = row->head,
                            .t = row->t,
                            .n = row->seen,
                            .p = row->p,
                            .lse = lse,
                            .entropy = entropy,
                            .stepping = row->stepping,
                            .scratch = s->cuts,
                            .cuts = &s->known,
                            .room = s->room};
    s->known.known = s->known.listed = false;
    if (!view->plain || row->visible) {
        /* order[] also has entries of later queries, after the entries of this row */
        for (int i = 0, n = 0; n < row->seen; i++) {
            int slot = view->order[i];
            if (row->visible && !row->visible[slot])
                continue;
            s->p[n] = row->p[slot];
            s->pos[n++] = view->pos[slot];
        }
        out.p = s->p;
        out.pos = s->pos;
    }
    gather_expect(r->gather, &out, thread);
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->row && !r->active[i].away)
            r->active[i].probe->row(&r->active[i], &out);
    gather_take(r->gather, &out, thread);
}

void recorder_begin_rows(struct recorder *r, int thread)
{
    gather_open(r->gather, thread);
}

void recorder_end_rows(struct recorder *r, int thread)
{
    gather_close(r->gather, thread);
}

void recorder_evict(struct recorder *r, const struct eviction *e)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->evict)
            r->active[i].probe->evict(&r->active[i], e);
}

void recorder_gate(struct recorder *r, int layer, int head, int32_t pos, float value)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->gate)
            r->active[i].probe->gate(&r->active[i], layer, head, pos, value);
}

void recorder_key(struct recorder *r, int layer, int head, int32_t pos, const float *key)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->key)
            r->active[i].probe->key(&r->active[i], layer, head, pos, key);
}

void recorder_value(struct recorder *r, int layer, int head, int32_t pos, const float *value)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->value && !r->active[i].away)
            r->active[i].probe->value(&r->active[i], layer, head, pos, value);
}

void recorder_queries(struct recorder *r, const struct probe_block *b)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->queries)
            r->active[i].probe->queries(&r->active[i], b);
}

void recorder_nll(struct recorder *r, int32_t t, float nll)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->nll)
            r->active[i].probe->nll(&r->active[i], t, nll);
}

void recorder_missed(struct recorder *r, const struct probe_missed *m)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->missed)
            r->active[i].probe->missed(&r->active[i], m);
}

bool recorder_reads_all(const struct recorder *r, int32_t t)
{
    bool any = false;
    for (int i = 0; i < r->n_active; i++)
        any |= r->active[i].probe->reads_all && r->active[i].probe->reads_all(&r->active[i], t);
    return any;
}

void recorder_full(struct recorder *r, enum probe_full what, int layer, int32_t t, float value)
{
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->full)
            r->active[i].probe->full(&r->active[i], what, layer, t, value);
}

int recorder_token(struct recorder *r, int32_t id, enum kvf_role role, const char *text, size_t len)
{
    if (r->n_tokens >= r->cfg.cap)
        return r->err = KVF_E_LIMIT;
    for (int i = 0; i < r->n_active; i++)
        if (r->active[i].probe->token)
            r->active[i].probe->token(&r->active[i], r->n_tokens, id);
    r->id[r->n_tokens] = id;
    r->role[r->n_tokens] = (uint8_t)role;
    buf_add(&r->text, text, len);
    r->text_end[r->n_tokens++] = (uint32_t)r->text.len;
    return r->text.err;
}

/* Holds later tasks of the pen until device copies complete, which is after a later step. Waits
 * first until the pen has read the preceding copies. */
static void hold_pen(struct recorder *r, int32_t t1)
{
    if (!r->elsewhere.bring)
        return;
    if (!r->held)
        pen_await_readers(r->sink.pen);
    pen_hold(r->sink.pen);
    r->held = t1;
}

/* Returns true if a device has arrays with stream columns. Only then must a write between snapshots
 * wait for the device. */
static bool streams_away(const struct recorder *r)
{
    bool any = false;
    for (int i = 0; i < r->n_active; i++)
        any |= r->active[i].away && probe_streams(&r->active[i]);
    return any;
}

static int write_probes(struct recorder *r, bool snapshots, int32_t t0, int32_t t1)
{
    gather_settle(r->gather);
    if (snapshots || streams_away(r)) {
        hold_pen(r, t1);
        if (r->elsewhere.bring)
            r->elsewhere.bring(r->elsewhere.ctx, snapshots, t0, t1);
    }
    for (int i = 0; i < r->n_active; i++) {
        int err = probe_write(&r->active[i], &r->sink, snapshots, t0, t1);
        if (err)
            return err;
    }
    return KVF_OK;
}

static int write_texts(const struct pen_task *t, struct kvf_writer *w)
{
    const uint32_t *end = (const void *)t->data;
    return kvf_write_token_bytes(w, t->t0, t->n, end, (const char *)(end + t->n));
}

static int put_texts(struct recorder *r, int32_t t0, int32_t n)
{
    uint32_t first = t0 ? r->text_end[t0 - 1] : 0, bytes = r->text_end[t0 + n - 1] - first;
    struct pen_task *t = pen_task((size_t)n * sizeof first + bytes, write_texts);
    if (!t)
        return KVF_E_NOMEM;
    uint32_t *end = (void *)t->data;
    t->t0 = (uint32_t)t0;
    t->n = (uint32_t)n;
    for (int32_t i = 0; i < n; i++)
        end[i] = r->text_end[t0 + i] - first;
    if (bytes > 0)
        memcpy(end + n, r->text.data + first, bytes);
    pen_put(r->sink.pen, t);
    return KVF_OK;
}

/* Writes token columns and stream columns of steps [t0, t1). */
static int write_streams(struct recorder *r, int32_t t0, int32_t t1)
{
    int32_t n = t1 - t0;
    if (n <= 0)
        return KVF_OK;
    int err = put_texts(r, t0, n);
    if (!err)
        err = probe_put_tokens(r->sink.pen, COL_ID, r->id, sizeof *r->id, t0, n);
    if (!err)
        err = probe_put_tokens(r->sink.pen, COL_ROLE, r->role, sizeof *r->role, t0, n);
    return err ? err : write_probes(r, false, t0, t1);
}

/* Writes the stream columns that are not written yet. If a snapshot follows, the pen is held first,
 * so that the snapshot does not wait for these tasks. */
static int stream(struct recorder *r, int32_t t1, bool snapshot_follows)
{
    if (snapshot_follows)
        hold_pen(r, t1);
    int err = write_streams(r, r->streamed, t1);
    r->streamed = t1 > r->streamed ? t1 : r->streamed;
    return err;
}

static int commit(const struct pen_task *t, struct kvf_writer *w)
{
    return kvf_writer_commit(w, t->epoch, t->n);
}

static int snapshot(struct recorder *r, int32_t n_steps)
{
    r->sink.epoch++;
    int err = n_steps > 0 ? write_probes(r, true, 0, n_steps) : KVF_OK;
    struct pen_task *t = err ? NULL : pen_task(0, commit);
    if (!t)
        return err ? err : KVF_E_NOMEM;
    t->epoch = r->sink.epoch;
    t->n = (uint32_t)n_steps;
    pen_put(r->sink.pen, t);
    return KVF_OK;
}

int32_t recorder_boundary(const struct recorder *r, int32_t t)
{
    int32_t block = r ? r->block : BLOCK;
    return t / block * block + block;
}

/* Returns true if an epoch ends: at 1, 2, 4, ... blocks. All snapshots together then cost at most
 * twice the final one. */
static bool epoch_due(const struct recorder *r, int32_t n_steps)
{
    int32_t blocks = n_steps / r->block;
    return n_steps % r->block == 0 && blocks > 0 && (blocks & (blocks - 1)) == 0;
}

/* Writes the newest state to a tail, so that the bytes of the trace do not depend on the clock. */
static int write_tail(struct recorder *r, int32_t n_steps)
{
    const uint32_t own = r->sink.epoch;
    int err = pen_begin_tail(r->sink.pen);
    if (err)
        return err;
    r->sink.epoch = 0;
    hold_pen(r, n_steps);
    err = write_streams(r, r->streamed, n_steps);
    if (!err)
        err = snapshot(r, n_steps);
    r->sink.epoch = own;
    r->tail.begun = true;
    int ended = pen_end_tail(r->sink.pen);
    return err ? err : ended;
}

/* Computes the wait after a tail: twice the last wait, at most TAIL_SECONDS, and at least ten times
 * the duration of the tail. */
static void note_tail(struct recorder *r, double begun, double ended)
{
    double wait = 2 * r->tail.wait;
    wait = wait < TAIL_SECONDS ? wait : TAIL_SECONDS;
    r->tail.begun = false;
    r->tail.at = ended;
    r->tail.rest = 10 * (ended - begun);
    r->tail.wait = wait > r->tail.rest ? wait : r->tail.rest;
    r->tail.bytes = kvf_writer_bytes(r->writer);
}

/* Returns true if a tail is due: after 1, 2, 4, ... and then every 60 seconds, or after TAIL_BYTES.
 * Tails use at most a tenth of the time, and start only when the pen is idle. */
static bool tail_due(struct recorder *r)
{
    double begun, ended;
    if (!pen_idle(r->sink.pen, &begun, &ended))
        return false;
    if (r->tail.begun)
        note_tail(r, begun, ended);
    double since = clock_seconds() - r->tail.at;
    bool much = kvf_writer_bytes(r->writer) - r->tail.bytes >= TAIL_BYTES;
    return since >= r->tail.wait || (much && since >= r->tail.rest);
}

int recorder_advance(struct recorder *r, int32_t n_steps)
{
    if (r->held && n_steps > r->held) {
        pen_release(r->sink.pen);
        r->held = 0;
    }
    if (!r->err && n_steps % r->block == 0)
        r->err = stream(r, n_steps, epoch_due(r, n_steps));
    if (!r->err && epoch_due(r, n_steps))
        r->err = snapshot(r, n_steps);
    if (!r->err && n_steps > 0 && tail_due(r))
        r->err = write_tail(r, n_steps);
    return recorder_err(r);
}

int recorder_err(const struct recorder *r)
{
    int err = r ? r->err : KVF_OK;
    return r && !err ? pen_error(r->sink.pen) : err;
}

void recorder_cut(struct recorder *r, int32_t n_tokens)
{
    if (n_tokens < r->n_tokens && n_tokens >= r->streamed)
        r->n_tokens = n_tokens;
}

struct recorder_past {
    struct probe_config cfg; /* its cap is that of the states */
    struct probe_state state[MAX_PROBES];
    int n_states;
    int32_t n_steps, streamed;
    uint32_t epoch;
    struct pen_task *written; /* the tasks of the trace so far */
};

void recorder_forget(struct recorder_past *past)
{
    for (int i = 0; past && i < past->n_states; i++)
        probe_state_close(&past->state[i]);
    if (past)
        pen_tasks_free(past->written);
    mem_free(past);
}

int recorder_keep(struct recorder *r, int32_t n_steps, struct recorder_past **ret_past)
{
    struct recorder_past *p = r->elsewhere.bring ? NULL : MEM_NEW(struct recorder_past, 1);
    if (!p)
        return r->elsewhere.bring ? KVF_E_LIMIT : KVF_E_NOMEM;
    gather_settle(r->gather);
    p->cfg = r->cfg;
    p->n_steps = n_steps;
    p->streamed = r->streamed;
    p->epoch = r->sink.epoch;
    for (int i = 0; i < r->n_active; i++) {
        struct probe_state *s = &p->state[p->n_states++];
        int err = probe_state_open(s, r->active[i].probe, &p->cfg);
        if (err) {
            recorder_forget(p);
            return err;
        }
        probe_state_copy(s, &r->active[i], n_steps);
    }
    p->written = pen_take_log(r->sink.pen);
    *ret_past = p;
    return KVF_OK;
}

int recorder_continue(struct recorder *r, const struct recorder_past *p)
{
    bool same = r->n_active == p->n_states && !r->elsewhere.bring && p->n_steps <= r->cfg.cap;
    for (int i = 0; same && i < p->n_states; i++) {
        const struct probe_state *a = &r->active[i], *b = &p->state[i];
        same = a->probe == b->probe && a->n_arrays == b->n_arrays && a->narrow == b->narrow;
    }
    if (!same)
        return KVF_E_LIMIT;
    for (int i = 0; i < p->n_states; i++)
        probe_state_copy(&r->active[i], &p->state[i], p->n_steps);
    r->streamed = p->streamed;
    r->sink.epoch = p->epoch;
    return r->err = pen_put_copies(r->sink.pen, p->written);
}

static int write_note(const struct pen_task *t, struct kvf_writer *w)
{
    return kvf_writer_note(w, "result", (const char *)t->data);
}

/* Queues the remaining data. Returns the error of the run, if any. */
static int queue_rest(struct recorder *r, const char *result_json)
{
    if (r->err)
        return r->err;
    int err = stream(r, r->n_tokens, true);
    if (!err)
        err = snapshot(r, r->n_tokens);
    if (err || !result_json)
        return err;
    size_t n = strlen(result_json) + 1;
    struct pen_task *t = pen_task(n, write_note);
    if (!t)
        return KVF_E_NOMEM;
    memcpy(t->data, result_json, n);
    pen_put(r->sink.pen, t);
    return KVF_OK;
}

/* Writes the remaining data and ends the pen; returns the first error of the recording. */
static int write_rest(struct recorder *r, const char *result_json)
{
    int err = queue_rest(r, result_json);
    recorder_settle(r);
    err = err ? err : recorder_err(r);
    pen_destroy(r->sink.pen);
    r->sink.pen = NULL;
    return err;
}

int recorder_finish(struct recorder *r, const char *result_json, struct kvf_diag *d)
{
    int err = write_rest(r, result_json);
    if (!err || err == KVF_E_IO || err == KVF_E_FORMAT) { /* then it does not close the trace,
                                                           * and reports the reason */
        int closed = kvf_writer_close(r->writer, d);
        err = err ? err : closed;
    } else {
        kvf_writer_abandon(r->writer);
    }
    free_recorder(r);
    return err;
}

/* session.c - creates sessions, runs prompts and decode steps. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/decode/sampler.h"
#include "engine/decode/session_state.h"

int session_cache_heads(const struct model_config *m, const struct method *row,
                        const struct method_params *p)
{
    return row && method_per_query_head(row, p) ? m->n_heads : m->n_kv_heads;
}

static const struct method_params no_params = {.pool = 1, .every = 1, .page = 1};

/* Creates the method of all heads, and the methods that replace it for some heads. */
static int create_methods(struct session *s, const struct session_options *opt)
{
    const struct model_config *m = &s->e->config;
    struct method_shape shape = {m->n_layers, m->n_heads, s->cache_heads, m->head_dim};
    struct method_inputs in = opt->inputs ? *opt->inputs : (struct method_inputs){0};
    in.gates = opt->gates;
    in.kernels = &s->e->kernels;
    in.model = m;
    in.length = s->cap;
    in.keeps_all = opt->keeps_all;
    int err = method_state_create(opt->method ? opt->method : &method_presets[0],
                                  opt->method ? opt->params : &no_params, &shape, &in, &s->method);
    if (err)
        return err;
    for (int i = 0; i < opt->n_overrides; i++) {
        const struct session_override *o = &opt->overrides[i];
        struct method_state *other;
        err = method_state_create(o->method, o->params, &shape, &in, &other);
        if (err)
            return err;
        err = method_override(s->method, other, o->heads);
        if (err) {
            method_state_destroy(other);
            return err;
        }
    }
    return KVF_OK;
}

/* Creates a session with a full cache that is fed the same tokens just before this session, chunk
 * by chunk. Oracles use it to look one query ahead, and --shadow model compares with it. */
static int create_full(struct session *s)
{
    struct session_options opt = {
        .kv_type = s->kv_type, .cap = s->cap, .chunk = s->chunk, .keeps_all = true};
    struct kvf_diag unused;
    bool oracle = method_evidence(s->method) & EVIDENCE_FULL;
    bool compared = recorder_wants(s->observers.recorder) & PROBE_SHADOW_MODEL;
    if (!oracle && !compared)
        return KVF_OK;
    int err = session_create(s->e, &opt, &s->compare.full_cache, &unused);
    if (err)
        return err;
    s->compare.full_cache->compare.no_logits = true;
    s->compare.full_cache->compare.oracle = oracle ? s->method : NULL;
    return compared ? shadow_create(s) : KVF_OK;
}

static int alloc_parts(struct session *s, const struct session_options *opt)
{
    const struct model_config *m = &s->e->config;
    s->cache_heads = session_cache_heads(m, opt->method, opt->params);
    s->positions_in_cache = opt->params && opt->params->positions == POSITIONS_CACHE;
    s->gates = opt->gates;
    s->count.peak = mem_alloc((size_t)m->n_layers, (size_t)m->n_heads * sizeof *s->count.peak);
    if (!s->count.peak)
        return KVF_E_NOMEM;
    struct cache_config cfg = {m->n_layers, s->cache_heads, m->head_dim, opt->kv_type};
    int err = cache_create(&cfg, &s->cache);
    if (err)
        return err;
    err = create_methods(s, opt);
    if (err)
        return err;
    if (s->gates && (opt->watched_gates || method_uses_gates(s->method))) {
        s->parts.gate = mem_alloc((size_t)s->chunk, (size_t)m->n_kv_heads * sizeof *s->parts.gate);
        if (!s->parts.gate)
            return KVF_E_NOMEM;
        s->buf.keeps_normed = true;
    }
    err = method_buffers_alloc(s);
    if (err)
        return err;
    if (recorder_wants(s->observers.recorder) & PROBE_SHADOW_ENTRIES) {
        err = evicted_entries_create(s);
        if (err)
            return err;
    }
    return create_full(s);
}

/* Creates everything except the data of the backend. */
static int open_parts(struct session *s, const struct session_options *opt)
{
    int err = session_alloc_buffers(s);
    if (!err)
        err = attention_alloc(s);
    if (!err && records_nll(s))
        err = nll_alloc(s);
    return err ? err : alloc_parts(s, opt);
}

/* Returns true if the session can be fed more tokens than the model's context. */
static bool outlives(const struct model_config *m, const struct session_options *opt)
{
    struct method_shape shape = {m->n_layers, m->n_heads, 0, m->head_dim};
    shape.n_kv_heads = session_cache_heads(m, opt->method, opt->params);
    bool all = opt->method && method_outlives(opt->method, opt->params, &shape, m->n_ctx);
    for (int i = 0; i < opt->n_overrides; i++)
        all = all
              && method_outlives(opt->overrides[i].method, opt->overrides[i].params, &shape,
                                 m->n_ctx);
    return all;
}

/* Rejects methods whose protected tokens were not found in a prompt (method_protect). */
static int check_protection(const struct session_options *opt, struct kvf_diag *d)
{
    for (int i = -1; i < opt->n_overrides; i++) {
        const struct method *m = i < 0 ? opt->method : opt->overrides[i].method;
        const struct method_params *p = i < 0 ? opt->params : opt->overrides[i].params;
        if (m && p->n_protected < 0)
            return kvf_fail(d, KVF_E_ARG,
                            "method %s: this command does not support protect=%s; leave it out",
                            m->name, p->protect);
    }
    return KVF_OK;
}

/* Returns true if a fraction was not resolved for a prompt. */
static bool has_open_budget(const struct session_options *opt)
{
    bool open = opt->params && opt->params->open;
    for (int i = 0; i < opt->n_overrides; i++)
        open |= opt->overrides[i].params->open;
    return open;
}

int session_prepare(struct engine *e, const struct session_options *opt,
                    struct session **ret_session, struct kvf_diag *d)
{
    bool longer = opt->cap > e->config.n_ctx_max;
    if (longer && recorder_wants(opt->recorder) & PROBE_SHADOW_MODEL)
        return kvf_fail(d, KVF_E_ARG,
                        "--shadow model runs the full cache too, which ends at the model's context "
                        "of %d tokens; give a smaller -n or -c",
                        e->config.n_ctx_max);
    if (opt->cap < 1 || (longer && !outlives(&e->config, opt)))
        return kvf_fail(d, KVF_E_LIMIT, "%d tokens do not fit into the model's context of %d",
                        opt->cap, e->config.n_ctx_max);
    if (opt->params && opt->params->positions == POSITIONS_CACHE
        && recorder_wants(opt->recorder) & PROBE_SHADOW_ENTRIES)
        return kvf_fail(d, KVF_E_ARG,
                        "--shadow entries: with positions=cache, as in streamingllm, evicted "
                        "entries have no positions; omit --shadow, or use --method window");
    if (has_open_budget(opt))
        return kvf_fail(d, KVF_E_ARG, "a budget in percent needs a prompt that it is a part of");
    int err = check_protection(opt, d);
    if (err)
        return err;
    struct session *s = MEM_NEW(struct session, 1);
    if (!s)
        return KVF_E_NOMEM;
    s->e = e;
    s->cap = opt->cap;
    s->turn_end = opt->turn_end;
    s->n_turns = opt->n_turns;
    s->kv_type = opt->kv_type;
    s->chunk = session_chunk(opt->chunk, e->backend->rows, opt->cap);
    s->observers.recorder = opt->recorder;
    err = open_parts(s, opt);
    if (err) {
        session_destroy(s);
        return kvf_fail(d, err, "not enough memory for a session of %d tokens", opt->cap);
    }
    *ret_session = s;
    return KVF_OK;
}

int session_create(struct engine *e, const struct session_options *opt,
                   struct session **ret_session, struct kvf_diag *d)
{
    struct session *s = NULL;
    int err = session_prepare(e, opt, &s, d);
    if (!err)
        err = e->backend->begin(s, opt, d);
    if (err)
        session_destroy(s);
    else
        *ret_session = s;
    return err;
}

void session_destroy(struct session *s)
{
    if (!s)
        return;
    s->e->backend->end(s);
    session_free_buffers(s);
    attention_free(s);
    nll_free(s);
    method_buffers_free(s);
    session_destroy(s->compare.full_cache);
    shadow_destroy(s->compare.shadow);
    evicted_entries_destroy(s->compare.evicted);
    mem_free(s->count.peak);
    cache_destroy(s->cache);
    method_state_destroy(s->method);
    mem_free(s);
}

void session_notify_eviction(struct session *s, const struct eviction *e)
{
    if (s->compare.evicted)
        evicted_entries_add(s, e);
    if (recorder_wants(s->observers.recorder) & PROBE_EVICT)
        recorder_evict(s->observers.recorder, e);
    if (s->observers.on_evict)
        s->observers.on_evict(s->observers.on_evict_ctx, e);
}

static bool evictions_told(const struct session *s)
{
    return s->compare.evicted || s->observers.on_evict
           || recorder_wants(s->observers.recorder) & PROBE_EVICT;
}

static void on_evict(void *ctx, const struct eviction *e)
{
    session_notify_eviction(ctx, e);
}

int session_decide(struct session *s, enum phase phase)
{
    int64_t cut = 0;
    int err = method_decide(s->method, s->cache, s->n_past, phase, s->e->pool, on_evict, s, &cut);
    s->count.cuts += cut > 0;
    return err ? err : evicted_entries_err(s->compare.evicted);
}

static void note_peak(struct session *s)
{
    for (int l = 0; l < s->e->config.n_layers; l++)
        for (int h = 0; h < s->cache_heads; h++) {
            int n = cache_view(s->cache, l, h).n, *peak = &s->count.peak[l * s->cache_heads + h];
            *peak = n > *peak ? n : *peak;
        }
}

/* Reports the layers of a chunk that are done. Only the report at the end of a chunk can stop the
 * prompt. */
static void tell_layer(const struct session *s, int layers)
{
    const struct prompt_progress *w = s->observers.progress;
    int L = s->e->config.n_layers;
    if (w)
        w->fn(w->ctx, w->done + (int)((int64_t)w->T * (w->run * L + layers) / (w->runs * L)));
}

/* Runs T tokens through all layers, one layer after another. */
static int run_layers(struct session *s, const int32_t *ids, int T)
{
    int err = T > 1 ? preallocate_entries(s, T) : KVF_OK;
    if (err)
        return err;
    s->e->backend->embed(s, ids, T);
    fill_chunk_angles(s, T);
    for (int l = 0; l < s->e->config.n_layers; l++) {
        struct layer_run r = {s, block_of(&s->e->weights->plan, l), l, T, s->n_past, false, NULL};
        err = run_block(s->e->backend->steps, &r);
        if (!err)
            err = s->e->backend->check(s);
        if (err)
            return err;
        shadow_layer(s, l, T);
        tell_layer(s, l + 1);
    }
    return KVF_OK;
}

/* Runs T tokens through all layers. next[i] is the token after ids[i], known for the first n_next
 * of them. */
static int forward(struct session *s, const int32_t *ids, int T, const int32_t *next, int n_next)
{
    const struct backend *b = s->e->backend;
    size_t d = (size_t)s->e->config.d_model;
    bool nll = records_nll(s);
    if (nll && s->run.has_logits) /* row 0 still has the last query of the previous chunk */
        nll_next(s, ids[0], s->n_past);
    int err = b->prefill && !s->run.stepping ? b->prefill(s, ids, T) : RUN_LAYERWISE;
    if (err == RUN_LAYERWISE)
        err = run_layers(s, ids, T);
    if (err)
        return err;
    cache_account(s->cache);
    err = b->final_norm(s, nll ? 0 : T - 1, T);
    if (err)
        return err;
    if (nll && n_next > 0)
        nll_rows(s, s->buf.normed, next, n_next, s->n_past + 1);
    shadow_tokens(s, T);
    memmove(s->buf.normed, s->buf.normed + (size_t)(T - 1) * d, d * sizeof *s->buf.normed);
    err = nll ? b->check(s) : KVF_OK;
    if (err)
        return err;
    s->run.has_logits = n_next < T; /* the NLL of a known successor is done */
    s->n_past += T;
    return s->observers.recorder ? recorder_advance(s->observers.recorder, s->n_past) : KVF_OK;
}

static void last_logits(struct session *s)
{
    if (s->compare.no_logits)
        return;
    s->e->backend->lm_head(s);
    s->sampling.has_token = false;
    cap_logits(s, s->buf.logits, s->e->config.vocab);
}

/* Returns the tokens until the method next evicts: of n tokens of a prompt, `done` have been fed.
 */
static int to_next_cut(const struct session *s, int done, int n)
{
    int every = method_params_of(s->method)->chunk, T = n - done;
    if (every && T > every - done % every)
        T = every - done % every;
    for (int i = 0; i < s->n_turns && method_cuts_turns(s->method); i++)
        if (s->turn_end[i] > s->n_past && T > s->turn_end[i] - s->n_past)
            T = s->turn_end[i] - s->n_past;
    return T;
}

/* Returns the number of tokens in the next chunk of a prompt. Chunks end at the recorder's
 * boundaries, so that their size does not change results, and where the method evicts. */
static int next_part(const struct session *s, int done, int n)
{
    int T = to_next_cut(s, done, n);
    int room = recorder_boundary(s->observers.recorder, s->n_past) - s->n_past;
    if (T > s->chunk)
        T = s->chunk;
    if (T > room)
        T = room;
    if (method_expires(s->method) && T > EXPIRE_EVERY - s->n_past % EXPIRE_EVERY)
        T = EXPIRE_EVERY - s->n_past % EXPIRE_EVERY;
    return T;
}

/* Runs a chunk through the session or its full-cache run. */
static int watched_forward(struct session *s, struct prompt_progress *w, const int32_t *ids,
                           int n_next)
{
    s->observers.progress = w->fn ? w : NULL;
    int err = forward(s, ids, w->T, ids + 1, n_next);
    s->observers.progress = NULL;
    w->run++;
    return err;
}

/* Runs T tokens of a prompt. The method next evicts at position next_cut. The successors of the
 * first n_next tokens are known. */
static int run_part(struct session *s, struct prompt_progress *w, const int32_t *ids, int n_next,
                    int32_t next_cut)
{
    int err = watch_prepare(s, next_cut - s->n_past, next_cut);
    if (err)
        return err;
    s->run.tokens_to_next_cut = next_cut - s->n_past;
    if (s->n_past % EXPIRE_EVERY == 0) {
        err = method_expire(s->method, s->cache, s->n_past, s->e->pool,
                            evictions_told(s) ? on_evict : NULL, s);
        if (err)
            return err;
    }
    err = evicted_entries_err(s->compare.evicted);
    if (err)
        return err;
    if (s->compare.full_cache) {
        err = watched_forward(s->compare.full_cache, w, ids, n_next);
        if (err)
            return err;
    }
    return watched_forward(s, w, ids, n_next);
}

static int run_prompt(struct session *s, const int32_t *ids, int n, session_progress_fn progress,
                      void *ctx)
{
    for (int done = 0; done < n;) {
        int T = next_part(s, done, n);
        int32_t next_cut = s->n_past + to_next_cut(s, done, n);
        struct prompt_progress w = {progress, ctx, done, T, s->compare.full_cache ? 2 : 1, 0};
        int err = run_part(s, &w, ids + done, done + T < n ? T : T - 1, next_cut);
        done += T;
        if (!err && s->n_past == next_cut)
            err = session_decide(s, PHASE_PROMPT);
        if (progress && progress(ctx, done) != 0 && !err)
            err = KVF_E_CANCEL;
        if (err)
            return err;
    }
    return KVF_OK;
}

int session_prompt(struct session *s, const int32_t *ids, int n, session_progress_fn progress,
                   void *ctx)
{
    if (n < 1 || n > s->cap - s->n_past)
        return KVF_E_LIMIT;
    s->run.stepping = false;
    int err = s->e->backend->sync_evidence(s);
    if (err)
        return err;
    err = run_prompt(s, ids, n, progress, ctx);
    if (!err)
        last_logits(s);
    return err;
}

int session_reserve(struct session *s, int T)
{
    for (int i = 0; i < s->e->config.n_layers * s->cache_heads; i++) {
        int err = cache_reserve(s->cache, i / s->cache_heads, i % s->cache_heads, T);
        if (err)
            return err;
    }
    return KVF_OK;
}

int session_begin_step(struct session *s, int T)
{
    int after = method_params_of(s->method)->order == ORDER_AFTER;
    s->run.stepping = true;
    int err = watch_prepare(s, T, s->n_past + after);
    if (err)
        goto fail;
    err = session_decide(s, PHASE_BEFORE);
    if (err)
        goto fail;
    err = session_reserve(s, T);
    if (err)
        goto fail;
    return KVF_OK;

fail:
    method_settle(s->method, s->cache); /* no new entry uses the open slots */
    return err;
}

void session_count_steps(struct session *s, int T)
{
    note_peak(s);
    s->count.n_steps += T;
}

int session_end_step(struct session *s, int T)
{
    session_count_steps(s, T);
    return session_decide(s, PHASE_AFTER);
}

int session_step(struct session *s, int32_t id)
{
    if (s->n_past >= s->cap)
        return KVF_E_LIMIT;
    int done = s->e->backend->decode_step ? s->e->backend->decode_step(s, id) : RUN_LAYERWISE;
    if (done != RUN_LAYERWISE)
        return done;
    if (s->compare.full_cache && s->compare.full_cache->n_past == s->n_past) {
        int err = session_step(s->compare.full_cache, id);
        if (err)
            return err;
    }
    int err = session_begin_step(s, 1);
    if (err)
        return err;
    err = forward(s, &id, 1, NULL, 0);
    if (err)
        return err;
    last_logits(s);
    return session_end_step(s, 1);
}

/* Returns how many of the next n known tokens run together as a chunk. Their steps cannot evict an
 * entry, and read all entries. The result has the bits of single steps. */
static int next_block(const struct session *s, int n)
{
    const struct session *full = s->compare.full_cache;
    int room = recorder_boundary(s->observers.recorder, s->n_past) - s->n_past;
    if (!s->e->backend->host_memory || s->reading.chosen || (full && full->compare.oracle))
        return 1;
    n = n < s->chunk ? n : s->chunk;
    n = n < room ? n : room;
    return n > 1 ? method_free_steps(s->method, s->cache, s->n_past, n) : 1;
}

/* Feeds T known tokens together.  The successors of the first n_next are known. */
static int feed_block(struct session *s, const int32_t *ids, int T, int n_next)
{
    struct session *full = s->compare.full_cache;
    int err = full ? feed_block(full, ids, T, n_next) : KVF_OK;
    if (!err)
        err = session_begin_step(s, T);
    if (!err)
        err = forward(s, ids, T, ids + 1, n_next);
    return err ? err : session_end_step(s, T);
}

int session_feed(struct session *s, const int32_t *ids, int n, session_progress_fn progress,
                 void *ctx)
{
    bool without = s->compare.no_logits, skip = !records_nll(s);
    int err = n > s->cap - s->n_past ? KVF_E_LIMIT : KVF_OK;
    for (int done = 0, T; !err && done < n; done += T) {
        T = next_block(s, n - done);
        bool last = done + T >= n;
        if (T > 1) {
            err = feed_block(s, ids + done, T, last ? T - 1 : T);
            if (!err && last)
                last_logits(s);
        } else {
            T = 1;
            s->compare.no_logits = without || (skip && !last); /* only the last logits are read */
            err = session_step(s, ids[done]);
            s->compare.no_logits = without;
        }
        if (!err && progress && progress(ctx, done + T) != 0)
            err = KVF_E_CANCEL;
    }
    return err;
}

int session_peak(const struct session *s, const unsigned char *heads)
{
    int most = 0;
    for (int i = 0; i < s->e->config.n_layers * s->cache_heads; i++)
        if ((!heads || heads[i]) && s->count.peak[i] > most)
            most = s->count.peak[i];
    return most;
}

int64_t session_cuts(const struct session *s)
{
    return s->count.cuts;
}

double session_reads(const struct session *s)
{
    double queries = (double)s->count.n_steps * s->e->config.n_layers * s->e->config.n_heads;
    return queries > 0 ? (double)s->count.reads / queries : NAN;
}

bool session_read_all(const struct session *s)
{
    return s->count.unread == 0;
}

const float *session_logits(const struct session *s)
{
    if (s->e->backend->logits)
        s->e->backend->logits(s);
    return s->buf.logits;
}

void session_set_sampler(struct session *s, struct sampler *sampler)
{
    s->sampling.sampler = sampler;
    s->sampling.has_token = false;
}

int32_t session_next(struct session *s)
{
    if (!s->sampling.has_token)
        return sampler_next(s->sampling.sampler, session_logits(s));
    s->sampling.has_token = false; /* another draw would use a new random number */
    sampler_advance(s->sampling.sampler);
    return s->sampling.token;
}

int session_length(const struct session *s)
{
    return s->n_past;
}
struct cache_stats session_cache_stats(const struct session *s)
{
    return cache_stats(s->cache);
}
const struct cache *session_cache(const struct session *s)
{
    return s->cache;
}
struct method_state *session_method(const struct session *s)
{
    s->e->backend->sync_evidence((struct session *)s);
    return s->method;
}

void session_on_evict(struct session *s, eviction_fn fn, void *ctx)
{
    s->observers.on_evict = fn;
    s->observers.on_evict_ctx = ctx;
}

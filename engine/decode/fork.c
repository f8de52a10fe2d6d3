/* fork.c - forks a session, and changes the method or the entries of a session. */
#include <string.h>

#include "base/mem.h"
#include "engine/decode/session_state.h"

/* Reallocates the buffers that the methods of s need. */
static int renew_parts(struct session *s, bool gate)
{
    size_t C = (size_t)s->chunk, H = (size_t)s->e->config.n_kv_heads;
    method_buffers_free(s);
    if (gate) {
        s->parts.gate = mem_alloc(C, H * sizeof *s->parts.gate);
        if (!s->parts.gate)
            return KVF_E_NOMEM;
    }
    return method_buffers_alloc(s);
}

/* Replaces the cache and methods of s by forks of another session's. */
static int take_parts(struct session *s, const struct session *from)
{
    struct method_state *method = NULL;
    struct cache *cache = NULL;
    int err = method_state_fork(from->method, &method);
    if (err)
        return err;
    err = cache_fork(from->cache, &cache);
    if (err) {
        method_state_destroy(method);
        return err;
    }
    method_state_destroy(s->method);
    cache_destroy(s->cache);
    s->method = method;
    s->cache = cache;
    s->cache_heads = from->cache_heads;
    s->positions_in_cache = from->positions_in_cache;
    s->gates = from->gates;
    return renew_parts(s, from->parts.gate != NULL);
}

static void take_past(struct session *s, const struct session *from)
{
    s->n_past = from->n_past;
    s->run.has_logits = from->run.has_logits;
    s->run.stepping = from->run.stepping;
    memcpy(s->count.peak, from->count.peak,
           (size_t)s->e->config.n_layers * (size_t)s->e->config.n_heads * sizeof *s->count.peak);
    s->count.cuts = from->count.cuts;
    s->count.n_steps = from->count.n_steps;
    s->count.reads = from->count.reads;
    s->count.unread = from->count.unread;
    memcpy(s->buf.logits, session_logits(from), s->buf.ld_logits * sizeof *s->buf.logits);
    memcpy(s->buf.normed, from->buf.normed, (size_t)s->e->config.d_model * sizeof *s->buf.normed);
}

static int fork_one(const struct session *from, const struct session_options *opt,
                    struct session **ret_session, struct kvf_diag *d)
{
    struct session *s = NULL;
    int err = session_prepare(from->e, opt, &s, d);
    if (err)
        return err;
    err = take_parts(s, from);
    if (err)
        kvf_fail(d, err, "not enough memory to fork a session of %d tokens", from->n_past);
    else
        err = s->e->backend->begin(s, opt, d);
    if (err) {
        session_destroy(s);
        return err;
    }
    take_past(s, from);
    *ret_session = s;
    return KVF_OK;
}

int session_fork(const struct session *from, const struct session_options *opt,
                 struct session **ret_session, struct kvf_diag *d)
{
    struct session_options own = {.kv_type = from->kv_type,
                                  .cap = opt ? opt->cap : from->cap,
                                  .chunk = opt ? opt->chunk : from->chunk,
                                  .recorder = opt ? opt->recorder : NULL,
                                  .no_preallocation = true};
    struct session *s = NULL;
    if (own.cap < from->n_past)
        return kvf_fail(d, KVF_E_LIMIT, "a session of %d tokens cannot go on after %d", own.cap,
                        from->n_past);
    int plain = from->e->config.n_ctx_orig;
    if ((own.cap > plain) != (from->cap > plain))
        return kvf_fail(d, KVF_E_LIMIT,
                        "a session of %d tokens cannot go on as one of %d: the model turns keys "
                        "in another way beyond %d",
                        from->cap, own.cap, plain);
    int err = from->e->backend->sync_evidence((struct session *)from);
    if (!err)
        err = fork_one(from, &own, &s, d);
    if (err)
        return err;
    if (from->compare.full_cache) {
        own.recorder = NULL;
        err = fork_one(from->compare.full_cache, &own, &s->compare.full_cache, d);
        if (err) {
            session_destroy(s);
            return err;
        }
        s->compare.full_cache->compare.oracle = s->method;
    }
    *ret_session = s;
    return KVF_OK;
}

int session_adopt(struct session *s, const struct method_state *state)
{
    struct method_state *method = NULL;
    int err = s->e->backend->sync_evidence(s);
    if (!err)
        err = method_state_fork(state, &method);
    if (err)
        return err;
    method_state_destroy(s->method);
    s->method = method;
    err = renew_parts(s, method_uses_gates(s->method));
    if (err)
        return err;
    err = watch_prepare(s, 1, s->n_past);
    if (err)
        return err;
    return session_decide(s, PHASE_PROMPT);
}

int session_remove(struct session *s, const unsigned char *heads, const unsigned char *gone)
{
    int n = s->e->config.n_layers * s->cache_heads, H = s->cache_heads;
    int err = s->e->backend->sync_evidence(s);
    if (!err)
        err = watch_prepare(s, 1, s->n_past);
    for (int i = 0; !err && i < n; i++)
        if (heads[i])
            err = method_remove(s->method, s->cache, i / H, i % H, gone);
    cache_account(s->cache);
    return err;
}

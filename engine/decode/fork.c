/* fork.c - two futures of one past. */
#include <string.h>

#include "engine/decode/session_state.h"

/* What the next token depends on: cache, method, and the last token's results. */
static int take_past(struct session *s, const struct session *from)
{
    struct method_state *method = NULL;
    struct cache *cache = NULL;
    int err = method_state_fork(from->method, &method);
    if (!err)
        err = cache_fork(from->cache, &cache);
    if (err) {
        method_state_destroy(method);
        return err;
    }
    method_state_destroy(s->method);
    cache_destroy(s->cache);
    s->method = method;
    s->cache = cache;
    s->n_past = from->n_past;
    s->has_logits = from->has_logits;
    memcpy(s->logits, from->logits, s->ld_vocab * sizeof *s->logits);
    memcpy(s->normed, from->normed, (size_t)s->e->config.d_model * sizeof *s->normed);
    return KVF_OK;
}

int session_fork(const struct session *from, const struct session_options *opt,
                 struct session **ret_session, struct kvf_diag *d)
{
    struct session_options own = {.kv_type = from->kv_type,
                                  .cap = opt ? opt->cap : from->cap,
                                  .chunk = opt ? opt->chunk : from->chunk};
    struct session *s = NULL;
    if (own.cap < from->n_past)
        return kvf_fail(d, KVF_E_LIMIT, "a session of %d tokens cannot go on after %d", own.cap,
                        from->n_past);
    int err = session_create(from->e, &own, &s, d);
    if (err)
        return err;
    err = take_past(s, from);
    if (err) {
        session_destroy(s);
        return kvf_fail(d, err, "not enough memory to fork a session of %d tokens", from->n_past);
    }
    *ret_session = s;
    return KVF_OK;
}

int session_adopt(struct session *s, const struct method_state *state)
{
    struct method_state *method = NULL;
    int err = method_state_fork(state, &method);
    if (err)
        return err;
    method_state_destroy(s->method);
    s->method = method;
    err = watch_prepare(s, s->cap, s->n_past);
    return err ? err : session_decide(s, 0);
}

int session_reserve(struct session *s)
{
    const struct model_config *m = &s->e->config;
    int err = KVF_OK;
    for (int i = 0; !err && i < m->n_layers * m->n_kv_heads; i++)
        err = cache_reserve(s->cache, i / m->n_kv_heads, i % m->n_kv_heads, 1);
    return err;
}

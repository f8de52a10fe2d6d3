/* watch.c - passes evidence to the method of a session and to further states that observe it. */
#include "engine/decode/session_state.h"

void session_watch(struct session *s, struct method_state *const *state, int n)
{
    s->observers.state = state;
    s->observers.n_states = n;
}

void session_on_row(struct session *s, attn_row_fn fn, void *ctx)
{
    s->observers.on_row = fn;
    s->observers.on_row_ctx = ctx;
}

/* Returns the capacity for a head: the longest head and `more` entries, rounded up to strides of an
 * eighth or less, so that steps rarely allocate. On a device it is the capacity of the complete
 * run. */
static int slots_for(const struct session *s, int more)
{
    int n = cache_longest(s->cache), stride = 64;
    /* The method also receives rows of the full-cache run, which is one token ahead. */
    int beside = s->compare.full_cache ? cache_longest(s->compare.full_cache->cache) + 1 : 0;
    n = (n > beside ? n : beside) + more;
    while (stride < n / 8)
        stride *= 2;
    n = (n + stride - 1) / stride * stride;
    return !s->e->backend->host_memory || n > s->cap ? s->cap : n;
}

int watch_prepare(struct session *s, int more, int32_t next_decision)
{
    int slots = slots_for(s, more);
    int err = method_prepare(s->method, slots, next_decision);
    if (err)
        return err;
    for (int i = 0; i < s->observers.n_states; i++) {
        err = method_prepare(s->observers.state[i], slots, next_decision);
        if (err)
            return err;
    }
    return KVF_OK;
}

void watch_appended(struct session *s, int layer, int head, int slot, float gate,
                    const float *k_pre)
{
    method_appended(s->method, s->cache, layer, head, slot, gate, k_pre);
    for (int i = 0; i < s->observers.n_states; i++)
        method_appended(s->observers.state[i], s->cache, layer, head, slot, gate, k_pre);
}

bool rows_observed(const struct session *s, int32_t t0, int T)
{
    bool any = s->observers.on_row || s->compare.oracle
               || recorder_wants(s->observers.recorder) & PROBE_ROWS;
    for (int i = -1; !any && i < s->observers.n_states; i++)
        for (int32_t t = t0; !any && t < t0 + T; t++)
            any = method_wants_row(i < 0 ? s->method : s->observers.state[i], t);
    return any;
}

void watch_row(struct session *s, const struct attn_row *row)
{
    if (s->observers.on_row)
        s->observers.on_row(s->observers.on_row_ctx, row);
    if (!s->run.evidence_on_device && method_wants_row(s->method, row->t))
        method_row(s->method, row);
    for (int i = 0; i < s->observers.n_states; i++)
        if (method_wants_row(s->observers.state[i], row->t))
            method_row(s->observers.state[i], row);
}

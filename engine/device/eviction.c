/* eviction.c - evictions of a session with decode steps on a device. The host computes how many
 * entries are evicted and the device selects them. Both then compact their caches in the same
 * way. */
#include <string.h>

#include "engine/device/decode.h"

static struct device_decode *device_decode_of(const struct session *s)
{
    return ((struct device_session *)s->device_state)->decode;
}

void eviction_buffers(struct session *s, struct buffer_list *a)
{
    struct device_decode *r = device_decode_of(s);
    struct device_rounds *x = &r->evict;
    const struct model_config *c = &s->e->config;
    const struct device_evidence e = device_evidence(s->method, s->cache);
    size_t L = (size_t)c->n_layers, n = L * (size_t)s->cache_heads, ld = (size_t)r->ld;
    const struct device_score *score = device_score_of(method_of(s->method),
                                                       method_params_of(s->method));
    if (score && score->scratch)
        buffers_add(a, &x->scratch, score->scratch(s), 1);
    buffers_add(a, &x->choice, gpu_choice_bytes(c->n_layers, (int)n), 1);
    buffers_add(a, &x->score, n * ld, sizeof *x->score);
    buffers_add(a, &x->pooled, n * ld, sizeof *x->pooled);
    buffers_add(a, &x->count, n, sizeof *x->count);
    buffers_add(a, &x->chosen, n, sizeof *x->chosen);
    buffers_add(a, &x->cursor, 1, sizeof *x->cursor);
    buffers_add_pinned(a, &x->host.chosen, n, sizeof *x->chosen);
    if (e.rows)
        buffers_add(a, &x->fraction, L * (size_t)c->n_heads * (size_t)e.ring, sizeof *x->fraction);
    if (e.query_sum)
        buffers_add_pinned(a, &x->host.mean_turns, L * (size_t)c->head_dim,
                           sizeof *x->host.mean_turns);
}

void eviction_free(struct gpu *g, struct device_rounds *x)
{
    gpu_free(g, x->evicted);
    gpu_free(g, x->evicted_score);
    gpu_free(g, x->expired_head);
    gpu_free(g, x->expired_slot);
    gpu_unpin(g, x->host.evicted);
    gpu_unpin(g, x->host.evicted_score);
    gpu_unpin(g, x->host.expired_head);
    gpu_unpin(g, x->host.expired_slot);
}

/* Grows a list on the device and its pinned host copy to at least n elements. The contents are
 * lost. */
static int grow_list(struct gpu *g, void *device, void *pinned, int64_t n, size_t size)
{
    void *old[2];
    memcpy(&old[0], device, sizeof old[0]);
    memcpy(&old[1], pinned, sizeof old[1]);
    gpu_free(g, old[0]);
    gpu_unpin(g, old[1]);
    set_pointer(device, gpu_alloc(g, (size_t)n, size));
    set_pointer(pinned, gpu_pin(g, (size_t)n, size));
    memcpy(&old[0], device, sizeof old[0]);
    memcpy(&old[1], pinned, sizeof old[1]);
    return old[0] && old[1] ? KVF_OK : KVF_E_NOMEM;
}

/* Grows the lists of evicted and expired entries. Returns KVF_OK or KVF_E_NOMEM. */
static int reserve_lists(struct session *s, int64_t evicted, int64_t expired)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    int err = KVF_OK;
    if (evicted > r->evict.n_evicted) {
        r->evict.n_evicted = 2 * evicted;
        err = grow_list(m->gpu, &r->evict.evicted, &r->evict.host.evicted, r->evict.n_evicted,
                        sizeof *r->evict.evicted);
        if (!err)
            err = grow_list(m->gpu, &r->evict.evicted_score, &r->evict.host.evicted_score,
                            r->evict.n_evicted, sizeof *r->evict.evicted_score);
    }
    if (!err && expired > r->evict.n_expired) {
        r->evict.n_expired = 2 * expired;
        err = grow_list(m->gpu, &r->evict.expired_head, &r->evict.host.expired_head,
                        r->evict.n_expired, sizeof *r->evict.expired_head);
        if (!err)
            err = grow_list(m->gpu, &r->evict.expired_slot, &r->evict.host.expired_slot,
                            r->evict.n_expired, sizeof *r->evict.expired_slot);
    }
    return err;
}

/* Lists the entries that expire at query t, as the host will find them. */
static int list_expired(struct session *s, int32_t t, int64_t *ret_n)
{
    struct device_decode *r = device_decode_of(s);
    int H = s->cache_heads;
    int64_t n = 0;
    for (int at = 0; at < r->heads.cache.heads; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        for (int i = 0; view.first_expiry <= t && i < view.n; i++)
            n += view.expires_at[i] <= t;
    }
    int err = reserve_lists(s, 0, n);
    *ret_n = n;
    for (int at = 0; !err && n > 0 && at < r->heads.cache.heads; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        for (int i = 0; view.first_expiry <= t && i < view.n; i++)
            if (view.expires_at[i] <= t) {
                r->evict.host.expired_head[--n] = at;
                r->evict.host.expired_slot[n] = i;
            }
    }
    return err;
}

static void cut(struct session *s, int together, bool newcomer)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    if (r->evidence.anchor && together)
        gpu_drop_keys(m->gpu, &r->heads, together, r->evidence.anchor);
    gpu_cut(m->gpu, &r->heads, together, newcomer, 0);
}

static void launch_expired(struct session *s, int64_t n)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    if (n == 0)
        return;
    gpu_put(m->gpu, r->evict.expired_head, r->evict.host.expired_head,
            (size_t)n * sizeof *r->evict.expired_head);
    gpu_put(m->gpu, r->evict.expired_slot, r->evict.host.expired_slot,
            (size_t)n * sizeof *r->evict.expired_slot);
    gpu_list_gone(m->gpu, &r->heads, r->evict.expired_head, r->evict.expired_slot, (int)n);
    cut(s, 1, false);
}

/* Stores the parameters of a round in the inputs of the step. A round that is not due has no
 * candidates. */
void eviction_set_inputs(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    size_t heads = (size_t)r->heads.cache.heads;
    if (!round->due) {
        memset(r->evict.host.due, 0, heads);
        return;
    }
    memcpy(r->evict.host.due, round->head, heads);
    memcpy(r->evict.host.go, round->go, (size_t)round->pools * sizeof *r->evict.go);
    if (round->may)
        memcpy(r->evict.host.may, round->may, heads * sizeof *r->evict.may);
    r->evict.last.pools = round->pools;
    r->evict.last.heads_of_pool = round->heads_of_pool;
    r->evict.last.recent = round->recent_from - r->in.host.now[0];
    r->evict.last.floor = round->may != NULL;
}

/* Returns the round in the form for kernels, which count positions from the query of the step. If
 * no round is due, it returns the last round, so that the same kernels run. */
static struct device_eviction round_of(const struct device_decode *r,
                                       const struct device_eviction *of)
{
    return (struct device_eviction){.t = of->t - r->in.host.now[0],
                                    .recent_from = r->evict.last.recent,
                                    .pools = r->evict.last.pools,
                                    .heads_of_pool = r->evict.last.heads_of_pool};
}

/* Starts the copy of the selected entries to the host. No kernel waits for it. */
static void fetch_chosen(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    size_t n = (size_t)r->evict.n_evicted;
    gpu_low_priority(m->gpu, true);
    gpu_fetch(m->gpu, r->evict.host.chosen, r->evict.chosen,
              (size_t)r->heads.cache.heads * sizeof *r->evict.chosen);
    gpu_fetch(m->gpu, r->evict.host.evicted, r->evict.evicted, n * sizeof *r->evict.evicted);
    gpu_fetch(m->gpu, r->evict.host.evicted_score, r->evict.evicted_score,
              n * sizeof *r->evict.evicted_score);
    gpu_low_priority(m->gpu, false);
}

/* Computes the scores and selects the entries. */
void eviction_launch(struct session *s, const struct device_eviction *of)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    const struct method_params *p = method_params_of(s->method);
    const struct device_eviction round = round_of(r, of);
    size_t heads = (size_t)r->heads.cache.heads;
    int ring = r->evidence.window.ring;
    r->evidence.window.held = r->evidence.n_rows < p->window ? r->evidence.n_rows : p->window;
    r->evidence.window.newest = ring
                                    ? (r->evidence.n_rows + 2 * ring - 1 - r->in.host.now[1]) % ring
                                    : 0;
    device_score_of(method_of(s->method), p)->eval(s, &round);
    gpu_candidates(m->gpu, &r->heads, r->evict.due, p->sinks, round.recent_from);
    struct gpu_choice c = {.score = r->evict.score,
                           .pos = r->heads.cache.pos,
                           .mark = r->heads.mark,
                           .n = r->heads.n,
                           .count = r->evict.count,
                           .ld = r->ld,
                           .from = GPU_CANDIDATE,
                           .to = GPU_LAST,
                           .older = p->tie == TIE_OLDER,
                           .scratch = r->evict.choice};
    if (r->evict.last.floor) {
        gpu_choose(m->gpu, &c, (int)heads, 1, r->evict.may);
        c.from = GPU_LAST;
    }
    c.to = GPU_GONE;
    gpu_choose(m->gpu, &c, round.pools, round.heads_of_pool, r->evict.go);
    gpu_report(m->gpu, &r->heads, r->evict.score, c.older, r->evict.chosen, r->evict.cursor,
               r->evict.evicted, r->evict.evicted_score);
    fetch_chosen(s);
}

static void on_evict(void *ctx, const struct eviction *e)
{
    session_notify_eviction(ctx, e);
}

/* Applies the result of a round to the host's cache. */
int eviction_finish(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    int64_t cut = 0;
    for (int at = 0; round->due && at < r->heads.cache.heads; at++) {
        const struct gpu_chosen *c = &r->evict.host.chosen[at];
        struct device_eviction_cut x = {at,
                                        c->n,
                                        r->evict.host.evicted + c->first,
                                        r->evict.host.evicted_score + c->first,
                                        c->kept,
                                        c->kept_score};
        if (c->n > 0)
            device_eviction_take(s->method, s->cache, &x);
    }
    int err = device_eviction_end(s->method, s->cache, round, on_evict, s, &cut);
    s->count.cuts += cut > 0;
    return err;
}

/* Returns the number of heads for which the first head decides. */
static int speaks_for(const struct session *s)
{
    return method_of(s->method)->scope == SCOPE_LAYER ? s->cache_heads : 1;
}

void eviction_cut(struct session *s, bool chosen, bool newcomer)
{
    cut(s, chosen ? speaks_for(s) : 0, newcomer);
}

int eviction_begin(struct session *s, enum phase phase, struct device_eviction *ret_round)
{
    return device_eviction_begin(s->method, s->cache, s->n_past, phase, on_evict, s, ret_round);
}

int eviction_reserve(struct session *s, const struct device_eviction *round)
{
    return reserve_lists(s, round->most, 0);
}

int eviction_expire(struct session *s)
{
    int64_t n = 0;
    int err = method_expires(s->method) ? list_expired(s, s->n_past, &n) : KVF_OK;
    if (!err)
        launch_expired(s, n);
    return err;
}

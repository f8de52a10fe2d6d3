/* eviction.c - evictions of a session with decode steps on a device. The host computes how many
 * entries are evicted and the device selects them. Both then compact their caches in the same
 * way. */
#include <string.h>

#include "engine/device/decode.h"

static struct device_decode *device_decode_of(const struct session *s)
{
    return ((struct device_session *)s->device_state)->decode;
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
    int err = device_decode_reserve_lists(s, 0, n);
    *ret_n = n;
    for (int at = 0; !err && n > 0 && at < r->heads.cache.heads; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        for (int i = 0; view.first_expiry <= t && i < view.n; i++)
            if (view.expires_at[i] <= t) {
                r->host.gone_head[--n] = at;
                r->host.gone_slot[n] = i;
            }
    }
    return err;
}

static void cut(struct session *s, int together, bool newcomer)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    if (r->anchor && together)
        gpu_drop_keys(m->gpu, &r->heads, together, r->anchor);
    gpu_cut(m->gpu, &r->heads, together, newcomer, 0);
}

static void launch_expired(struct session *s, int64_t n)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    if (n == 0)
        return;
    gpu_put(m->gpu, r->gone_head, r->host.gone_head, (size_t)n * sizeof *r->gone_head);
    gpu_put(m->gpu, r->gone_slot, r->host.gone_slot, (size_t)n * sizeof *r->gone_slot);
    gpu_list_gone(m->gpu, &r->heads, r->gone_head, r->gone_slot, (int)n);
    cut(s, 1, false);
}

/* Stores the parameters of a round in the inputs of the step. A round that is not due has no
 * candidates. */
void round_note(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    size_t heads = (size_t)r->heads.cache.heads;
    if (!round->due) {
        memset(r->host.due, 0, heads);
        return;
    }
    memcpy(r->host.due, round->head, heads);
    memcpy(r->host.go, round->go, (size_t)round->pools * sizeof *r->go);
    if (round->may)
        memcpy(r->host.may, round->may, heads * sizeof *r->may);
    r->last.pools = round->pools;
    r->last.heads_of_pool = round->heads_of_pool;
    r->last.recent = round->recent_from - r->host.now[0];
    r->last.floor = round->may != NULL;
}

/* Returns the round in the form for kernels, which count positions from the query of the step. If
 * no round is due, it returns the last round, so that the same kernels run. */
static struct device_eviction round_of(const struct device_decode *r,
                                       const struct device_eviction *of)
{
    return (struct device_eviction){.t = of->t - r->host.now[0],
                                    .recent_from = r->last.recent,
                                    .pools = r->last.pools,
                                    .heads_of_pool = r->last.heads_of_pool};
}

/* Starts the copy of the selected entries to the host. No kernel waits for it. */
static void fetch_chosen(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    size_t n = (size_t)r->n_victims;
    gpu_low_priority(m->gpu, true);
    gpu_fetch(m->gpu, r->host.chosen, r->chosen, (size_t)r->heads.cache.heads * sizeof *r->chosen);
    gpu_fetch(m->gpu, r->host.victim, r->victim, n * sizeof *r->victim);
    gpu_fetch(m->gpu, r->host.victim_score, r->victim_score, n * sizeof *r->victim_score);
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
    int ring = r->window.ring;
    r->window.held = r->taken < p->window ? r->taken : p->window;
    r->window.newest = ring ? (r->taken + 2 * ring - 1 - r->host.now[1]) % ring : 0;
    device_score_of(method_of(s->method), p)->eval(s, &round);
    gpu_candidates(m->gpu, &r->heads, r->due, p->sinks, round.recent_from);
    struct gpu_choice c = {.score = r->score,
                           .pos = r->heads.cache.pos,
                           .mark = r->heads.mark,
                           .n = r->heads.n,
                           .count = r->count,
                           .ld = r->ld,
                           .from = GPU_CANDIDATE,
                           .to = GPU_LAST,
                           .older = p->tie == TIE_OLDER,
                           .scratch = r->choice};
    if (r->last.floor) {
        gpu_choose(m->gpu, &c, (int)heads, 1, r->may);
        c.from = GPU_LAST;
    }
    c.to = GPU_GONE;
    gpu_choose(m->gpu, &c, round.pools, round.heads_of_pool, r->go);
    gpu_report(m->gpu, &r->heads, r->score, c.older, r->chosen, r->cursor, r->victim,
               r->victim_score);
    fetch_chosen(s);
}

static void on_evict(void *ctx, const struct eviction *e)
{
    session_evicted(ctx, e);
}

/* Applies the result of a round to the host's cache. */
int round_take(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    int64_t cut = 0;
    for (int at = 0; round->due && at < r->heads.cache.heads; at++) {
        const struct gpu_chosen *c = &r->host.chosen[at];
        struct device_eviction_cut x = {
            at,      c->n,         r->host.victim + c->first, r->host.victim_score + c->first,
            c->kept, c->kept_score};
        if (c->n > 0)
            device_eviction_take(s->method, s->cache, &x);
    }
    int err = device_eviction_end(s->method, s->cache, round, on_evict, s, &cut);
    s->cuts += cut > 0;
    return err;
}

/* Returns the number of heads for which the first head decides. */
static int speaks_for(const struct session *s)
{
    return method_of(s->method)->scope == SCOPE_LAYER ? s->cache_heads : 1;
}

void eviction_apply(struct session *s, bool chosen, bool newcomer)
{
    cut(s, chosen ? speaks_for(s) : 0, newcomer);
}

int round_begin(struct session *s, enum phase phase, struct device_eviction *ret_round)
{
    return device_eviction_begin(s->method, s->cache, s->n_past, phase, on_evict, s, ret_round);
}

int round_reserve(struct session *s, const struct device_eviction *round)
{
    return device_decode_reserve_lists(s, round->most, 0);
}

int round_expire(struct session *s)
{
    int64_t n = 0;
    int err = method_expires(s->method) ? list_expired(s, s->n_past, &n) : KVF_OK;
    if (!err)
        launch_expired(s, n);
    return err;
}

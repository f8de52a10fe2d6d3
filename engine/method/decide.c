/* decide.c - one round of decisions: choose, cut, report.  Scoring and choosing run
 * in parallel (choose.c); cutting and reporting run in order on the caller. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/par.h"
#include "engine/method/state.h"

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Reports the cuts of one KV head, positions rising; `from`: the head that decided.
 * Uses scratch of thread 0. */
static void report(const struct round *r, int layer, int head, int from, eviction_fn fn, void *ctx)
{
    struct method_state *s = r->s;
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)from;
    const float *score = s->value + at * (size_t)s->cap;
    const int32_t *victim = s->victim + at * (size_t)s->cap;
    int n = s->n_cut[at];
    int stays = n < s->cap ? victim[n] : -1;
    bool scored = s->method->reason != KVF_REASON_WINDOW;
    struct cache_head view = cache_view(r->cache, layer, head);
    int32_t *pair = (int32_t *)(void *)s->scratch; /* position, slot */
    for (int i = 0; i < n; i++) {
        pair[2 * i] = view.pos[victim[i]];
        pair[2 * i + 1] = victim[i];
    }
    qsort(pair, (size_t)n, 2 * sizeof *pair, by_value);
    for (int i = 0; i < n; i++) {
        float v = score[pair[2 * i + 1]];
        float margin = stays >= 0 ? score[stays] - v : NAN;
        struct eviction e = {layer, head, pair[2 * i], r->t, s->method->reason,
                             scored ? v : NAN, scored ? margin : NAN,
                             scored && stays >= 0 && score[stays] == v};
        fn(ctx, &e);
    }
}

static void cut_one(struct round *r, int layer, int head, int slot)
{
    int last = cache_view(r->cache, layer, head).n - 1;
    cache_evict(r->cache, layer, head, slot);
    if (slot != last)
        evidence_move(&r->s->evidence, layer, head, last, slot);
}

static void cut_many(struct round *r, int layer, int head, const int32_t *victim, int n_cut)
{
    struct method_state *s = r->s;
    int n = cache_view(r->cache, layer, head).n;
    for (int i = 0; i < n; i++)
        s->keep[i] = 1;
    for (int i = 0; i < n_cut; i++)
        s->keep[victim[i]] = 0;
    cache_keep(r->cache, layer, head, s->keep);
    evidence_keep(&s->evidence, layer, head, s->keep, n);
}

static void apply(struct round *r, int layer, int head, eviction_fn fn, void *ctx)
{
    struct method_state *s = r->s;
    int from = s->method->scope == SCOPE_LAYER ? 0 : head;
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)from;
    const int32_t *victim = s->victim + at * (size_t)s->cap;
    int n_cut = s->n_cut[at];
    if (n_cut == 0)
        return;
    if (fn)
        report(r, layer, head, from, fn, ctx);
    if (n_cut == 1)
        cut_one(r, layer, head, victim[0]);
    else
        cut_many(r, layer, head, victim, n_cut);
}

static int reserve_scratch(struct method_state *s, int n_threads)
{
    size_t len = choose_scratch(s);
    if (s->scratch && s->scratch_len >= len && s->n_threads >= n_threads)
        return KVF_OK;
    mem_free(s->scratch);
    s->scratch = mem_alloc((size_t)n_threads * len, sizeof(float));
    s->scratch_len = len;
    s->n_threads = n_threads;
    return s->scratch ? KVF_OK : KVF_E_NOMEM;
}

int method_decide(struct method_state *s, struct cache *c, int32_t t, int incoming,
                  struct par *pool, eviction_fn fn, void *ctx)
{
    if (!s->method->score)
        return KVF_OK;
    struct round r = {s, c, t, incoming};
    int L = s->shape.n_layers, H = s->shape.n_kv_heads;
    int err = reserve_scratch(s, par_threads(pool));
    if (err)
        return err;
    if (!s->shares_known) {
        if (!choose_due(&r))
            return KVF_OK;
        s->method->allocation->shares(s, c, t + incoming - s->params.recent, s->share_scratch,
                                      s->share);
        s->shares_known = true;
    }
    for (int i = 0; i < L * H; i++)
        s->n_cut[i] = 0;
    par_run(pool, choose_units(s), choose_unit, &r);
    for (int l = 0; l < L; l++)
        for (int h = 0; h < H; h++)
            apply(&r, l, h, fn, ctx);
    cache_account(c);
    return KVF_OK;
}

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

/* Reports the cuts of one KV head, positions rising; `from`: the head that decided. */
static void report(const struct round *r, int layer, int head, size_t from, eviction_fn fn,
                   void *ctx)
{
    struct method_state *s = r->s;
    const float *score = s->value + from * (size_t)s->cap;
    const int32_t *victim = s->victim + from * (size_t)s->cap;
    int n = s->n_cut[from];
    int stays = n < s->cap ? victim[n] : -1;
    bool scored = s->method->reason != KVF_REASON_WINDOW;
    struct cache_head view = cache_view(r->cache, layer, head);
    for (int i = 0; i < n; i++) {
        s->pair[2 * i] = view.pos[victim[i]];
        s->pair[2 * i + 1] = victim[i];
    }
    qsort(s->pair, (size_t)n, 2 * sizeof *s->pair, by_value);
    for (int i = 0; i < n; i++) {
        float v = score[s->pair[2 * i + 1]];
        float margin = stays >= 0 ? score[stays] - v : NAN;
        struct eviction e = {layer, head, s->pair[2 * i], r->t, s->method->reason,
                             scored ? v : NAN, scored ? margin : NAN,
                             scored && stays >= 0 && score[stays] == v};
        fn(ctx, &e);
    }
}

static void cut_one(struct method_state *s, struct cache *c, int layer, int head, int slot)
{
    int last = cache_view(c, layer, head).n - 1;
    cache_evict(c, layer, head, slot);
    if (slot != last)
        evidence_move(&s->evidence, layer, head, last, slot);
}

/* Keeps the slots with s->keep; slots stay in order. */
static void cut_many(struct method_state *s, struct cache *c, int layer, int head)
{
    int n = cache_view(c, layer, head).n, to = 0;
    cache_keep(c, layer, head, s->keep);
    for (int i = 0; i < n; i++) {
        if (!s->keep[i])
            continue;
        if (to != i)
            evidence_move(&s->evidence, layer, head, i, to);
        to++;
    }
}

/* Removes slots.  Pages that are read by choice stand in order of time, so their
 * entries close ranks; elsewhere one hole is filled by the last entry. */
static void cut(struct method_state *s, struct cache *c, int layer, int head,
                const int32_t *victim, int n_cut)
{
    if (n_cut == 1 && s->method->read->all) {
        cut_one(s, c, layer, head, victim[0]);
        return;
    }
    int n = cache_view(c, layer, head).n;
    for (int i = 0; i < n; i++)
        s->keep[i] = 1;
    for (int i = 0; i < n_cut; i++)
        s->keep[victim[i]] = 0;
    cut_many(s, c, layer, head);
}

static void apply(struct round *r, int layer, int head, eviction_fn fn, void *ctx)
{
    struct method_state *s = r->s;
    int from = s->method->scope == SCOPE_LAYER ? 0 : head;
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)from;
    if (s->n_cut[at] == 0 || !method_owns(s, layer, head))
        return;
    if (fn)
        report(r, layer, head, at, fn, ctx);
    cut(s, r->cache, layer, head, s->victim + at * (size_t)s->cap, s->n_cut[at]);
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

static int decide_row(struct round *r, struct par *pool, eviction_fn fn, void *ctx, int64_t *cuts)
{
    struct method_state *s = r->s;
    int L = s->shape.n_layers, H = s->shape.n_kv_heads;
    int err = reserve_scratch(s, par_threads(pool));
    if (err)
        return err;
    if (!s->shares_known) {
        if (!choose_over(r))
            return KVF_OK;
        s->method->allocation->shares(s, r->cache, r->t + r->incoming - s->params.recent,
                                      s->share_scratch, s->share);
        s->shares_known = true;
    }
    if (!choose_due(r))
        return KVF_OK;
    for (int i = 0; i < L * H; i++)
        s->n_cut[i] = 0;
    par_run(pool, L * H, choose_score, r);
    par_run(pool, choose_pools(s), choose_pool, r);
    for (int l = 0; l < L; l++)
        for (int h = 0; h < H; h++) {
            *cuts += s->n_cut[l * H + (s->method->scope == SCOPE_LAYER ? 0 : h)];
            apply(r, l, h, fn, ctx);
        }
    return KVF_OK;
}

/* Entries of one head that query t does not see any more. */
static void expire_head(struct method_state *s, struct cache *c, int layer, int head, int32_t t,
                        eviction_fn fn, void *ctx)
{
    const struct admission *a = s->method->admission;
    struct cache_head view = cache_view(c, layer, head);
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)head;
    int32_t *victim = s->victim + at * (size_t)s->cap;
    int n = 0;
    for (int i = 0; i < view.n; i++) {
        int slot = view.order[i];
        if (view.until[slot] > t)
            continue;
        struct eviction e = {layer, head, view.pos[slot], view.until[slot], a->reason, NAN, NAN,
                             false};
        if (a->judge)
            a->judge(s, evidence_gate(s, layer, head)[slot], &e.score, &e.margin);
        if (fn)
            fn(ctx, &e);
        victim[n++] = slot;
    }
    if (n > 0)
        cut(s, c, layer, head, victim, n);
}

bool method_expires(const struct method_state *s)
{
    for (; s; s = s->next)
        if (s->method->admission->until)
            return true;
    return false;
}

void method_expire(struct method_state *s, struct cache *c, int32_t t, eviction_fn fn, void *ctx)
{
    int H = s->shape.n_kv_heads;
    for (; s; s = s->next)
        for (int at = 0; s->method->admission->until && at < s->shape.n_layers * H; at++)
            if (method_owns(s, at / H, at % H) && cache_view(c, at / H, at % H).soonest <= t)
                expire_head(s, c, at / H, at % H, t, fn, ctx);
}

/* Whether a row decides at this phase. */
static bool acts(const struct method_state *s, enum phase phase)
{
    if (!s->method->score || s->params.budget == 0)
        return false;
    return phase == PHASE_PROMPT
           || (phase == PHASE_AFTER) == (s->params.order == ORDER_AFTER);
}

int method_decide(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                  struct par *pool, eviction_fn fn, void *ctx, int64_t *ret_cut)
{
    int err = KVF_OK;
    int64_t cuts = 0;
    if (phase != PHASE_AFTER)
        method_expire(s, c, t, fn, ctx);
    for (; !err && s; s = s->next) {
        struct round r = {s, c, t, phase == PHASE_BEFORE};
        if (acts(s, phase))
            err = decide_row(&r, pool, fn, ctx, &cuts);
    }
    cache_account(c);
    if (ret_cut)
        *ret_cut = cuts;
    return err;
}

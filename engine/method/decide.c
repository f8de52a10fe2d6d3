/* decide.c - one round of decisions: score, choose, cut, report.
 *
 * Scoring and choosing run in parallel, one task per decision; cutting and
 * reporting run in order on the caller.  The rule of choice is the same for all
 * methods: the entries of least score go first; among equal scores the smaller
 * position goes first, so the larger position is kept. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/par.h"
#include "engine/method/state.h"

struct round {
    struct method_state *s;
    struct cache *cache;
    int32_t t;
    int incoming;
};

struct candidate {
    float score;
    int32_t pos, slot;
};

static int worse_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

static void group_of(const struct method_state *s, int group, int *layer, int *head)
{
    int per_layer = s->method->scope == SCOPE_LAYER ? 1 : s->shape.n_kv_heads;
    *layer = group / per_layer;
    *head = group % per_layer;
}

static bool is_protected(const struct round *r, int32_t pos)
{
    const struct method_params *p = &r->s->params;
    return pos < p->sinks || pos >= r->t + r->incoming - p->recent;
}

/* The single worst of n candidates to the front; the next worst behind it. */
static void two_worst(struct candidate *c, int n)
{
    for (int k = 0; k < 2 && k < n; k++) {
        int best = k;
        for (int i = k + 1; i < n; i++)
            if (worse_first(&c[i], &c[best]) < 0)
                best = i;
        struct candidate tmp = c[k];
        c[k] = c[best];
        c[best] = tmp;
    }
}

static void choose(void *ctx, int group, int thread)
{
    struct round *r = ctx;
    struct method_state *s = r->s;
    int layer, head, m = 0;
    group_of(s, group, &layer, &head);
    struct cache_head view = cache_view(r->cache, layer, head);
    int share = s->method->allocation->share(s, layer, head);
    int target = s->method->trigger->target(s, share, view.n, r->incoming);
    int n_cut = view.n - (target < view.n ? target : view.n);
    s->n_cut[group] = 0;
    if (n_cut == 0)
        return;
    float *score = s->value + (size_t)group * (size_t)s->cap;
    int32_t *victim = s->victim + (size_t)group * (size_t)s->cap;
    float *scratch = s->scratch + (size_t)thread * (size_t)s->scratch_len;
    struct score_input in = {s, r->cache, layer, head, view,
                             r->t + r->incoming - s->params.recent};
    s->method->score->eval(&in, score, scratch);
    /* scratch is free again: it holds the candidates, 3 words each */
    struct candidate *c = (struct candidate *)(void *)scratch;
    for (int i = 0; i < view.n; i++) {
        if (isnan(score[i]))
            score[i] = -INFINITY;
        if (!is_protected(r, view.pos[i]))
            c[m++] = (struct candidate){score[i], view.pos[i], i};
    }
    if (n_cut > m)
        n_cut = m; /* cannot happen once method_parse has checked the protected sets */
    if (n_cut == 1)
        two_worst(c, m);
    else
        qsort(c, (size_t)m, sizeof *c, worse_first);
    int listed = n_cut < m ? n_cut + 1 : n_cut; /* one more: the worst that stays */
    for (int i = 0; i < listed; i++)
        victim[i] = c[i].slot;
    if (listed == n_cut && n_cut < s->cap)
        victim[n_cut] = -1;
    s->n_cut[group] = n_cut;
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Reports the cuts of one KV head, positions rising.  Uses scratch of thread 0. */
static void report(const struct round *r, int group, int layer, int head, eviction_fn fn, void *ctx)
{
    struct method_state *s = r->s;
    const float *score = s->value + (size_t)group * (size_t)s->cap;
    const int32_t *victim = s->victim + (size_t)group * (size_t)s->cap;
    int n = s->n_cut[group];
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
    int n = cache_view(r->cache, layer, head).n, to = 0;
    for (int i = 0; i < n; i++)
        s->keep[i] = 1;
    for (int i = 0; i < n_cut; i++)
        s->keep[victim[i]] = 0;
    cache_keep(r->cache, layer, head, s->keep);
    for (int i = 0; i < n; i++) {
        if (!s->keep[i])
            continue;
        if (to != i)
            evidence_move(&s->evidence, layer, head, i, to);
        to++;
    }
}

static void apply(struct round *r, int group, eviction_fn fn, void *ctx)
{
    struct method_state *s = r->s;
    int layer, head0, n_cut = s->n_cut[group];
    group_of(s, group, &layer, &head0);
    int n_heads = s->method->scope == SCOPE_LAYER ? s->shape.n_kv_heads : 1;
    const int32_t *victim = s->victim + (size_t)group * (size_t)s->cap;
    for (int head = head0; n_cut && head < head0 + n_heads; head++) {
        if (fn)
            report(r, group, layer, head, fn, ctx);
        if (n_cut == 1)
            cut_one(r, layer, head, victim[0]);
        else
            cut_many(r, layer, head, victim, n_cut);
    }
}

static int reserve_scratch(struct method_state *s, int n_threads)
{
    int len = 4 * s->cap + 4 * s->shape.head_dim;
    len = (len + 15) / 16 * 16;
    if (s->scratch && s->scratch_len >= len && s->n_threads >= n_threads)
        return KVF_OK;
    mem_free(s->scratch);
    s->scratch = mem_alloc((size_t)n_threads * (size_t)len, sizeof(float));
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
    int err = reserve_scratch(s, par_threads(pool));
    if (err)
        return err;
    par_run(pool, s->n_groups, choose, &r);
    for (int g = 0; g < s->n_groups; g++)
        apply(&r, g, fn, ctx);
    cache_account(c);
    return KVF_OK;
}

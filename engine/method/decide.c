/* decide.c - one round of decisions: choose, cut, report.  Scoring and choosing run
 * in parallel (choose.c); cutting and reporting run in order on the caller. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/par.h"
#include "engine/method/external.h"
#include "engine/method/lows.h"
#include "engine/method/parts.h"
#include "engine/method/peaks.h"
#include "engine/method/shares.h"

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Reports the evictions of one KV head in order of position.  from: the head that decided. */
static void report(const struct round *r, int layer, int head, size_t from, eviction_fn fn,
                   void *ctx)
{
    struct method_state *s = r->s;
    const struct candidate *c = s->candidate + from * (size_t)s->cap;
    const int32_t *victim = s->victim + from * (size_t)s->cap;
    int n = s->n_cut[from];
    bool scored = s->method->reason != KVF_REASON_WINDOW;
    bool stays = n < s->n_candidates[from]; /* c[n] is the worst of those */
    struct cache_head view = cache_view(r->cache, layer, head);
    for (int i = 0; i < n; i++) {
        s->pair[2 * i] = view.pos[victim[i]];
        s->pair[2 * i + 1] = i;
    }
    if (n > 1)
        qsort(s->pair, (size_t)n, 2 * sizeof *s->pair, by_value);
    for (int i = 0; i < n; i++) {
        int rank = s->pair[2 * i + 1];
        float v = c[rank].score, margin = stays ? c[n].score - v : NAN;
        struct eviction e = {layer,
                             head,
                             s->pair[2 * i],
                             r->t,
                             s->method->reason,
                             scored ? v : NAN,
                             scored ? margin : NAN,
                             scored && stays && c[n].score == v,
                             scored ? rank : -1};
        fn(ctx, &e);
    }
}

static void move_entry(struct method_state *s, int layer, int head, int from, int to)
{
    evidence_move(&s->evidence, layer, head, from, to);
    lows_move(s, layer * s->shape.n_kv_heads + head, from, to);
    peaks_move(s, layer * s->shape.n_kv_heads + head, from, to);
}

/* Moves the last entry of a head to the open slot, if there is one. */
static void settle(struct method_state *s, struct cache *c, int layer, int head)
{
    int hole;
    cache_gap(c, layer, head, &hole);
    if (cache_settle(c, layer, head))
        move_entry(s, layer, head, cache_view(c, layer, head).n, hole);
}

void method_settle(struct method_state *s, struct cache *c)
{
    int H = s->shape.n_kv_heads;
    for (; s; s = s->next)
        for (int at = 0; at < s->shape.n_layers * H; at++)
            if (method_owns(s, at / H, at % H))
                settle(s, c, at / H, at % H);
}

/* Reopens the slot of an entry that was evicted since the last append, for the new entry. */
int decide_reopen(struct method_state *s, struct cache *c)
{
    int H = s->shape.n_kv_heads, hole;
    for (; s; s = s->next)
        for (int at = 0; at < s->shape.n_layers * H; at++) {
            int l = at / H, h = at % H;
            if (!method_owns(s, l, h) || cache_gap(c, l, h, &hole) != GAP_FILLED)
                continue;
            int n = cache_view(c, l, h).n;
            int err = cache_reserve(c, l, h, 1);
            if (!err && hole < n)
                err = cache_own(c, l, h, hole, hole + 1);
            if (err)
                return err;
            if (cache_reopen(c, l, h))
                move_entry(s, l, h, hole, n);
        }
    return KVF_OK;
}

/* Returns true if an eviction opens a slot: it evicts one entry, and no other was evicted since the
 * last append.  Otherwise the head is compacted.  Selected pages need entries in order of time, so
 * their heads are always compacted.  Several evictions before one query have the same result as one
 * eviction of all these entries.  So the order of slots, and the rounding of sums over them,
 * depends only on which entries were evicted when. */
static bool leaves_hole(const struct method_state *s, const struct cache *c, int layer, int head,
                        int n_cut)
{
    return n_cut == 1 && cache_gap(c, layer, head, NULL) == GAP_NONE && s->method->read->all;
}

/* Compacts a settled head.  keep: scratch [cap]. */
static void close_ranks(struct method_state *s, struct cache *c, int layer, int head,
                        const int32_t *victim, int n_cut, unsigned char *keep)
{
    int n = cache_view(c, layer, head).n, hole, at = layer * s->shape.n_kv_heads + head;
    enum cache_gap gap = cache_gap(c, layer, head, &hole);
    memset(keep, 1, (size_t)n);
    for (int i = 0; i < n_cut; i++)
        keep[victim[i]] = 0;
    if (gap == GAP_FILLED && cache_reopen(c, layer, head)) {
        move_entry(s, layer, head, hole, n);
        keep[n++] = keep[hole];
        keep[hole] = 0;
    }
    cache_close_ranks(c, layer, head, keep);
    evidence_keep(&s->evidence, layer, head, keep, n);
    lows_keep(s, at, keep, n);
    peaks_keep(s, at, keep, n);
}

/* Removes slots of a settled head.  A single removed slot stays open for the new entry. */
static void cut(struct method_state *s, struct cache *c, int layer, int head, const int32_t *victim,
                int n_cut)
{
    int at = layer * s->shape.n_kv_heads + head;
    if (leaves_hole(s, c, layer, head, n_cut)) {
        cache_evict(c, layer, head, victim[0]);
        lows_drop(s, at, victim[0]);
        peaks_drop(s, at, victim[0]);
        return;
    }
    close_ranks(s, c, layer, head, victim, n_cut, s->keep);
    cache_release(c, layer, head);
}

/* Copies the slots that the eviction will write if they are shared with a forked cache.  A lack of
 * memory must show before the first eviction. */
static int own_slots(const struct method_state *s, struct cache *c, int layer, int head,
                     const int32_t *victim, int n_cut)
{
    int hole, err = KVF_OK;
    enum cache_gap gap = cache_gap(c, layer, head, &hole);
    int n = cache_view(c, layer, head).n, end = n - n_cut, first = n;
    if (gap == GAP_FILLED && n_cut > 0) {
        err = cache_reserve(c, layer, head, 1); /* the entry that filled the slot moves back */
        first = hole;
    }
    for (int i = 0; i < n_cut; i++)
        if (victim[i] < first)
            first = victim[i];
    if (n_cut == 1 && gap == GAP_NONE && s->method->read->all && end > first + 1)
        end = first + 1;
    return err ? err : cache_own(c, layer, head, first, end);
}

static int own_all(struct round *r)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    for (int i = 0; i < s->shape.n_layers * H; i++) {
        int at = s->method->scope == SCOPE_LAYER ? i / H * H : i;
        if (!s->n_cut[at] || !method_owns(s, i / H, i % H))
            continue;
        int err = own_slots(s, r->cache, i / H, i % H, s->victim + (size_t)at * (size_t)s->cap,
                            s->n_cut[at]);
        if (err)
            return err;
    }
    return KVF_OK;
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

bool decide_shares(const struct round *r)
{
    struct method_state *s = r->s;
    const struct allocation *a = s->method->allocation;
    int32_t reach = r->t + r->incoming;
    bool known = s->shares_known;
    if (a->heads) {
        if (!known)
            a->heads(s, reach, s->head_share);
        s->shares_known = true;
        return true;
    }
    if (!known && !choose_over(r))
        return false;
    s->shares_known = true;
    for (int l = 0; l < s->shape.n_layers && (!known || s->params.of == BUDGET_OF_SEEN); l++)
        s->share[l] = method_budget_at(&s->params, reach);
    if (!a->weights)
        return true;
    if (!known || !a->evidence)
        a->weights(s, r->cache, reach, reach - s->params.recent, s->share_weight);
    shares_deal(s, reach, s->share_weight, s->share_scratch, s->share);
    return true;
}

int decide_apply(struct round *r, eviction_fn fn, void *ctx, int64_t *cuts)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads, err = own_all(r);
    for (int i = 0; !err && i < s->shape.n_layers * H; i++) {
        *cuts += s->n_cut[s->method->scope == SCOPE_LAYER ? i / H * H : i];
        apply(r, i / H, i % H, fn, ctx);
    }
    return err;
}

static int decide_row(struct round *r, struct par *pool, eviction_fn fn, void *ctx, int64_t *cuts)
{
    struct method_state *s = r->s;
    int n = s->shape.n_layers * s->shape.n_kv_heads;
    int err = reserve_scratch(s, par_threads(pool));
    if (err)
        return err;
    if (!decide_shares(r) || !choose_due(r))
        return KVF_OK;
    for (int i = 0; i < n; i++)
        s->n_cut[i] = 0;
    par_run(s->method->score->serial ? NULL : pool, n, choose_score, r);
    if (s->method->score->serial && s->inputs.external->err)
        return s->inputs.external->err;
    par_run(pool, choose_pools(s), choose_pool, r);
    return decide_apply(r, fn, ctx, cuts);
}

/* Returns the eviction of an entry that expires.  The reason is the layer's window if the step
 * equals its end, else the admission. */
static struct eviction expired(const struct method_state *s, const struct cache_head *view,
                               int layer, int head, int slot)
{
    const struct admission *a = s->method->admission;
    struct eviction e = {layer, head, view->pos[slot], view->expires_at[slot], a->reason, NAN, NAN,
                         false, -1};
    if (e.t == method_window_end(s, layer, e.pos))
        e.reason = KVF_REASON_ARCHITECTURE;
    else if (a->judge)
        a->judge(s, evidence_gate(s, layer, head)[slot], &e.score, &e.margin);
    return e;
}

/* The expiry of entries that query t does not see.  own: only entries that admission evicts. */
struct expiry {
    struct method_state *s;
    struct cache *c;
    int32_t t;
    bool own;
};

/* Lists the slots of a head that expire, in order of position.  Returns their number. */
static int list_expired(const struct expiry *x, const struct cache_head *view, int layer, int head,
                        int32_t *victim)
{
    int n = 0;
    bool rising = true;
    for (int i = view->n_permanent; i < view->n; i++) {
        if (view->expires_at[i] > x->t
            || (x->own && expired(x->s, view, layer, head, i).reason == KVF_REASON_ARCHITECTURE))
            continue;
        rising &= n == 0 || view->pos[victim[n - 1]] < view->pos[i];
        victim[n++] = i;
    }
    if (rising)
        return n;
    n = 0;
    for (int i = 0; i < view->n; i++) {
        int slot = view->order[i];
        if (view->expires_at[slot] <= x->t
            && !(x->own
                 && expired(x->s, view, layer, head, slot).reason == KVF_REASON_ARCHITECTURE))
            victim[n++] = slot;
    }
    return n;
}

static void list_task(void *ctx, int at, int thread)
{
    const struct expiry *x = ctx;
    struct method_state *s = x->s;
    int l = at / s->shape.n_kv_heads, h = at % s->shape.n_kv_heads;
    (void)thread;
    s->n_cut[at] = 0;
    if (!method_owns(s, l, h))
        return;
    struct cache_head view = cache_view(x->c, l, h);
    if (view.first_expiry <= x->t)
        s->n_cut[at] = list_expired(x, &view, l, h, s->victim + (size_t)at * (size_t)s->cap);
}

static void close_task(void *ctx, int at, int thread)
{
    const struct expiry *x = ctx;
    struct method_state *s = x->s;
    int l = at / s->shape.n_kv_heads, h = at % s->shape.n_kv_heads, n = s->n_cut[at];
    if (n > 0 && !leaves_hole(s, x->c, l, h, n))
        close_ranks(s, x->c, l, h, s->victim + (size_t)at * (size_t)s->cap, n,
                    s->keep + (size_t)thread * (size_t)s->cap);
}

/* Reserves `keep` for n_threads threads. */
static int reserve_keeps(struct method_state *s, int n_threads)
{
    if (s->n_keeps >= n_threads)
        return KVF_OK;
    mem_free(s->keep);
    s->keep = mem_alloc((size_t)n_threads, (size_t)s->cap);
    s->n_keeps = s->keep ? n_threads : 0;
    return s->keep ? KVF_OK : KVF_E_NOMEM;
}

int method_remove(struct method_state *s, struct cache *c, int layer, int head,
                  const unsigned char *gone)
{
    while (s->next && !method_owns(s, layer, head))
        s = s->next;
    struct cache_head view = cache_view(c, layer, head);
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)head;
    int32_t *victim = s->victim + at * (size_t)s->cap;
    int n = 0;
    for (int i = 0; i < view.n; i++)
        if (gone[view.pos[view.order[i]]])
            victim[n++] = view.order[i];
    if (n == 0)
        return KVF_OK;
    int err = own_slots(s, c, layer, head, victim, n);
    if (err)
        return err;
    cut(s, c, layer, head, victim, n);
    settle(s, c, layer, head);
    return KVF_OK;
}

static bool windowed(const struct method_state *s)
{
    return s->inputs.model && s->inputs.model->window;
}

bool method_expires(const struct method_state *s)
{
    for (; s; s = s->next)
        if (s->method->admission->until || (windowed(s) && !s->inputs.keeps_all))
            return true;
    return false;
}

bool method_hides(const struct method_state *s)
{
    for (; s; s = s->next)
        if (s->method->admission->until || windowed(s))
            return true;
    return false;
}

/* Reports the entries of a head that expire, before they are removed. */
static void tell_expired(const struct expiry *x, int layer, int head, eviction_fn fn, void *ctx)
{
    struct method_state *s = x->s;
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)head;
    struct cache_head view = cache_view(x->c, layer, head);
    for (int i = 0; i < s->n_cut[at]; i++) {
        struct eviction e = expired(s, &view, layer, head,
                                    s->victim[at * (size_t)s->cap + (size_t)i]);
        fn(ctx, &e);
    }
}

/* Copies all shared slots that will be written.  *ret_some: heads that lose entries. */
static int own_expired(const struct expiry *x, int n_threads, int *ret_some)
{
    struct method_state *s = x->s;
    int H = s->shape.n_kv_heads, err = KVF_OK;
    *ret_some = 0;
    for (int at = 0; !err && at < s->shape.n_layers * H; at++) {
        if (s->n_cut[at] == 0)
            continue;
        (*ret_some)++;
        err = own_slots(s, x->c, at / H, at % H, s->victim + (size_t)at * (size_t)s->cap,
                        s->n_cut[at]);
    }
    return err || *ret_some == 0 ? err : reserve_keeps(s, n_threads);
}

/* Evicts the entries that expire.  Threads list them and compact heads.  Then one thread releases
 * pages and opens slots. */
static int expire_row(const struct expiry *x, struct par *pool, eviction_fn fn, void *ctx)
{
    struct method_state *s = x->s;
    int H = s->shape.n_kv_heads, heads = s->shape.n_layers * H, some;
    if (!s->method->admission->until && (!windowed(s) || s->inputs.keeps_all))
        return KVF_OK;
    par_run(pool, heads, list_task, (void *)x);
    int err = own_expired(x, par_threads(pool), &some);
    if (err || some == 0)
        return err;
    for (int at = 0; fn && at < heads; at++)
        if (s->n_cut[at] > 0) /* heads of rows before have open slots */
            tell_expired(x, at / H, at % H, fn, ctx);
    par_run(pool, heads, close_task, (void *)x);
    for (int at = 0; at < heads; at++) {
        const int32_t *victim = s->victim + (size_t)at * (size_t)s->cap;
        if (s->n_cut[at] > 0 && leaves_hole(s, x->c, at / H, at % H, s->n_cut[at]))
            cut(s, x->c, at / H, at % H, victim, 1);
        else if (s->n_cut[at] > 0)
            cache_release(x->c, at / H, at % H);
    }
    return KVF_OK;
}

int method_expire(struct method_state *s, struct cache *c, int32_t t, struct par *pool,
                  eviction_fn fn, void *ctx)
{
    int err = KVF_OK;
    for (struct method_state *row = s; !err && row; row = row->next) {
        const struct expiry x = {row, c, t, false};
        err = expire_row(&x, pool, fn, ctx);
    }
    method_settle(s, c);
    return err;
}

bool decide_acts(const struct method_state *s, enum phase phase, int32_t t)
{
    if (!s->method->score || s->params.budget == 0)
        return false;
    if (phase == PHASE_PROMPT)
        return true;
    if (s->params.cut != CUT_ALWAYS)
        return false;
    if (s->params.stride && t % s->params.stride != 1 % s->params.stride)
        return false;
    return (phase == PHASE_AFTER) == (s->params.order == ORDER_AFTER);
}

int method_free_steps(struct method_state *s, struct cache *c, int32_t t, int n)
{
    if (method_expires(s))
        return 0;
    for (; s && n > 0; s = s->next)
        if (s->method->score && s->params.budget > 0 && s->params.cut == CUT_ALWAYS)
            n = choose_free_steps(s, c, t, n);
    return n > 0 ? n : 0;
}

/* Evicts entries for all presets of the chain.  Before a new entry, also reopens slots. */
static int decide_rows(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                       struct par *pool, eviction_fn fn, void *ctx, int64_t *cuts)
{
    for (struct method_state *row = s; row; row = row->next) {
        /* a plan's run may cut after its last query */
        if (phase == PHASE_AFTER && row->method->admission->reason != KVF_REASON_PLAN)
            continue;
        const struct expiry x = {row, c, t, phase == PHASE_AFTER};
        int err = expire_row(&x, NULL, fn, ctx); /* few entries expire in a step */
        if (err)
            return err;
    }
    for (struct method_state *row = s; row; row = row->next) {
        struct round r = {row, c, t, phase == PHASE_BEFORE};
        if (!decide_acts(row, phase, t))
            continue;
        method_settle(s, c);
        int err = decide_row(&r, pool, fn, ctx, cuts);
        if (err)
            return err;
    }
    return phase == PHASE_BEFORE ? decide_reopen(s, c) : KVF_OK;
}

int method_decide(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                  struct par *pool, eviction_fn fn, void *ctx, int64_t *ret_cut)
{
    int64_t cuts = 0;
    method_settle(s, c); /* of a step that failed */
    int err = decide_rows(s, c, t, phase, pool, fn, ctx, &cuts);
    if (err || phase != PHASE_BEFORE)
        method_settle(s, c);
    cache_account(c);
    if (ret_cut)
        *ret_cut = cuts;
    return err;
}

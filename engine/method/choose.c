/* choose.c - chooses the entries to evict from a KV head, or from heads that share a budget.  All
 * methods use one rule: the lowest score first.  Among equal scores it is the smaller position
 * (with tie=older the larger position), then the lower layer, then the lower head.
 *
 * Two passes over units that run in parallel: score the heads that are due, then
 * choose within each pool (a head, a layer, or all heads). */
#include <math.h>

#include "engine/method/lows.h"
#include "engine/method/peaks.h"
#include "engine/method/window.h"

enum {
    ASK_MOST = 1 << 10, /* entries of a head that fit into a second cache with their evidence */
    LISTS_AHEAD = 4     /* heads whose lists are prefetched */
};

static int32_t recent_from(const struct round *r)
{
    return r->t + r->incoming - r->s->params.recent;
}

/* Returns the number of heads that share a budget. */
static int heads_of_pool(const struct method_state *s)
{
    switch (s->method->allocation->pool) {
    case POOL_ALL:
        return s->shape.n_layers * s->shape.n_kv_heads;
    case POOL_LAYER:
        return s->shape.n_kv_heads;
    default:
        return 1;
    }
}

/* Returns the heads [*first, *end) of a pool. */
static void pool_heads(const struct method_state *s, int pool, int *first, int *end)
{
    *first = pool * heads_of_pool(s);
    *end = *first + heads_of_pool(s);
}

int choose_pools(const struct method_state *s)
{
    return s->shape.n_layers * s->shape.n_kv_heads / heads_of_pool(s);
}

/* Returns true if a head decides: an owned head, or with SCOPE_LAYER the first of its layer. */
static bool decides(const struct method_state *s, int at)
{
    int H = s->shape.n_kv_heads;
    if (s->method->scope == SCOPE_LAYER && at % H != 0)
        return false;
    return method_owns(s, at / H, at % H);
}

/* Returns the number of heads of a pool that decide, and the sum of their entries. */
static int count_pool(const struct method_state *s, const struct cache *c, int pool,
                      int64_t *ret_total)
{
    int H = s->shape.n_kv_heads, first, end, heads = 0;
    int64_t total = 0;
    pool_heads(s, pool, &first, &end);
    for (int at = first; at < end; at++)
        if (decides(s, at)) {
            total += cache_view(c, at / H, at % H).n;
            heads++;
        }
    *ret_total = total;
    return heads;
}

/* Returns the entries that a head of the pool may keep, if its heads have n on average. */
static int target_of(const struct method_state *s, int pool, int n, int incoming)
{
    int first = pool * heads_of_pool(s);
    int share = s->head_share ? s->head_share[first] : s->share[first / s->shape.n_kv_heads];
    return s->method->trigger->target(s, share, n, incoming);
}

/* Sets target, the entries that the pool may keep with protected ones (-1: no eviction), and over,
 * the entries to evict. */
static void set_target(const struct round *r, int pool)
{
    struct method_state *s = r->s;
    int64_t total;
    int heads = count_pool(s, r->cache, pool, &total);
    s->target[pool] = -1;
    if (heads == 0)
        return;
    int mean = (int)((total + heads - 1) / heads);
    int target = target_of(s, pool, mean, r->incoming);
    if (target >= mean)
        return;
    s->target[pool] = (int64_t)target * heads;
    s->over[pool] = total - s->target[pool];
}

/* Prefetches the list of a head.  A decode step displaces the data of decisions from the CPU
 * caches. Addresses that need no other read come first. */
static void ask_for_lists(const struct round *r, int at)
{
    int H = r->s->shape.n_kv_heads, recent = r->s->params.recent;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    int middle = view.n > recent ? view.n - recent : 0;
    if (view.n == 0)
        return;
    __builtin_prefetch(view.order);
    __builtin_prefetch(view.order + middle);
    __builtin_prefetch(view.order + view.n - 1);
    if (r->s->lows)
        for (size_t i = 0; i < sizeof *r->s->lows; i += 64)
            __builtin_prefetch((const char *)&r->s->lows[at] + i);
}

/* Prefetches the data of the listed entries with the lowest scores.  Scoring a head changes its
 * list.  So a single scoring thread prefetches it, or it is prefetched before the threads start. */
static void ask_for_lows(const struct round *r, int at)
{
    const struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    if (at < 0 || !s->lows || !s->due[at])
        return;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    for (int i = 0; i < s->lows[at].n && i < LOWS_CUTS; i++) {
        int slot = s->lows[at].entry[i].slot;
        __builtin_prefetch(view.pos + slot);
        evidence_ask(&s->evidence, at / H, at % H, slot, slot + 1, false);
    }
}

void choose_ask_limits(const struct round *r, int at)
{
    const struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    if (at >= s->shape.n_layers * H || !s->due[at])
        return;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    int middle = view.n > s->params.recent ? view.n - s->params.recent : 0;
    if (view.n == 0)
        return;
    __builtin_prefetch(view.pos + view.order[0]);
    __builtin_prefetch(view.pos + view.order[middle < view.n ? middle : view.n - 1]);
    __builtin_prefetch(view.pos + view.order[middle > 0 ? middle - 1 : 0]);
    __builtin_prefetch(view.pos + view.order[view.n - 1]);
}

/* Prefetches the positions that limit a head's candidates, and other data of its entries. */
static void ask_for_limits(const struct round *r, int at)
{
    const struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    choose_ask_limits(r, at);
    if (at >= s->shape.n_layers * H || !s->due[at])
        return;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    if (s->n_threads == 1)
        ask_for_lows(r, at);
    for (int i = 0; s->lows && i < view.n && i < ASK_MOST; i += 16)
        __builtin_prefetch(view.order + i, 0, 2);
}

/* Sets the targets of all pools, and the heads that are due. */
bool choose_due(const struct round *r)
{
    struct method_state *s = r->s;
    int first, end, n_due = 0;
    for (int p = 0; p < choose_pools(s); p++) {
        set_target(r, p);
        pool_heads(s, p, &first, &end);
        for (int at = first; at < end; at++) {
            s->due[at] = s->target[p] >= 0 && decides(s, at);
            if (s->due[at])
                ask_for_lists(r, at);
            if (s->n_threads > 1)
                ask_for_lows(r, at - LISTS_AHEAD);
        }
        n_due += s->target[p] >= 0;
    }
    return n_due > 0;
}

/* Returns the number of entries that the longest head can still take: negative if it is over the
 * budget. */
static int room_of(const struct round *r)
{
    const struct method_state *s = r->s;
    int H = s->shape.n_kv_heads, longest = 0;
    for (int at = 0; at < s->shape.n_layers * H; at++) {
        int n = method_owns(s, at / H, at % H) ? cache_view(r->cache, at / H, at % H).n : 0;
        longest = n > longest ? n : longest;
    }
    return method_budget_at(&s->params, r->t + r->incoming) - r->incoming + s->params.slack
           - longest;
}

bool choose_over(const struct round *r)
{
    return room_of(r) < 0;
}

int choose_free_steps(struct method_state *s, struct cache *c, int32_t t, int n)
{
    const struct allocation *a = s->method->allocation;
    int k = 0;
    if (!s->shares_known && !a->heads) {
        const struct round now = {s, c, t, 1};
        int room = room_of(&now) + 1;
        return room < n ? room : n;
    }
    if (!s->shares_known || a->weights || s->params.of == BUDGET_OF_SEEN)
        return 0;
    for (int p = 0; p < choose_pools(s); p++) {
        int64_t total;
        int heads = count_pool(s, c, p, &total);
        if (heads == 0)
            continue;
        int mean = (int)((total + heads - 1) / heads);
        for (k = 0; k < n && target_of(s, p, mean + k, 1) >= mean + k; k++)
            ;
        n = k;
    }
    return n;
}

static void list_all(const struct round *r, int at, float *score)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads, m = 0;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    struct candidate *c = s->candidate + (size_t)at * (size_t)s->cap;
    for (int i = 0; i < view.n; i++) {
        if (isnan(score[i]))
            score[i] = -INFINITY;
        if (view.pos[i] >= s->params.sinks && view.pos[i] < recent_from(r)
            && !is_protected(s, view.pos[i]))
            c[m++] = (struct candidate){score[i], view.pos[i], i, at};
    }
    s->n_candidates[at] = m;
    s->n_listed[at] = 0;
}

static size_t score_row(const struct method_state *s)
{
    return ((size_t)s->cap + 15) / 16 * 16;
}

/* Returns true if the kernel that updates window sums, or adds sums, prefetches the next head. */
static bool kernel_asks(const struct method_state *s)
{
    bool slides = s->params.every == 1 && s->params.window > 2 && s->params.across == ACROSS_MEAN
                  && s->params.support == SUPPORT_ALL;
    return s->evidence.kinds & EVIDENCE_SUM || (s->evidence.kinds & EVIDENCE_WINDOW && slides);
}

/* Prefetches the evidence of the head that this thread scores next. */
static void ask_for_next(const struct round *r, const struct score_input *in)
{
    const struct method_state *s = r->s;
    int H = s->shape.n_kv_heads, at = in->layer * H + in->head + (int)window_next(in);
    if (at >= s->shape.n_layers * H || !s->due[at] || s->method->score->rising)
        return;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    if (s->peaks && view.n > s->params.recent)
        peaks_ask(s, at, view.order[view.n - s->params.recent]);
    if (view.n > ASK_MOST)
        return;
    for (int i = 0; i < view.n; i += 16) {
        __builtin_prefetch(view.order + i, 0, 2);
        if (s->evidence.kinds & (EVIDENCE_WINDOW | EVIDENCE_NOTE | EVIDENCE_SUM))
            __builtin_prefetch(view.pos + i, 0, 2);
    }
    if (s->evidence.kinds & EVIDENCE_WINDOW)
        evidence_ask_turn(&s->evidence, at / H, at % H);
    if (!kernel_asks(s))
        evidence_ask(&s->evidence, at / H, at % H, 0, view.n, s->peaks);
}

/* Scores a head and lists its unprotected entries, or the worst of them.  If heads do not share a
 * budget, the scores are in scratch memory, which stays in the L1 cache. */
void choose_score(void *round, int at, int thread)
{
    const struct round *r = round;
    struct method_state *s = r->s;
    if (!s->due[at])
        return;
    int first, end;
    ask_for_limits(r, at + 3);
    float *scratch = s->scratch + (size_t)thread * s->scratch_len;
    float *score = s->value ? s->value + (size_t)at * (size_t)s->cap : scratch;
    struct score_input in = shortlist_input(r, at);
    int pool = at / heads_of_pool(s);
    pool_heads(s, pool, &first, &end);
    int k = shortlist_length(r, pool, end - first);
    if (k > 0 && s->lows && lows_fill(r, &in, k, score, scratch + score_row(s)))
        return;
    ask_for_next(r, &in);
    if (k > 0 && s->peaks && peaks_fill(r, &in, k, scratch))
        return;
    const struct score *c = s->method->score;
    if (k > 0 && shortlist_by_ranks(s)) {
        c->eval_ranks(&in, score, scratch + score_row(s));
        shortlist_fill_ranks(r, at, k, score);
        return;
    }
    if (k == 0 || !c->rising)
        c->eval(&in, score, scratch + score_row(s));
    if (k > 0)
        shortlist_fill(r, at, k, score);
    else
        list_all(r, at, score);
}

void choose_victims(struct method_state *s, int at, int n_cut)
{
    struct candidate *c = s->candidate + (size_t)at * (size_t)s->cap;
    int32_t *victim = s->victim + (size_t)at * (size_t)s->cap;
    int m = s->n_candidates[at];
    select_order(c, n_cut, tie_of(s));
    for (int i = 0; i < n_cut; i++)
        victim[i] = c[i].slot;
    if (n_cut < s->cap)
        victim[n_cut] = n_cut < m ? c[n_cut].slot : -1;
    s->n_cut[at] = n_cut;
}

/* Chooses the n_cut worst candidates of one head. */
static void cut_worst(struct method_state *s, int at, int n_cut)
{
    struct candidate *c = s->candidate + (size_t)at * (size_t)s->cap;
    int m = s->n_candidates[at];
    if (n_cut > m)
        n_cut = m;
    if (s->n_listed[at] == 0)
        select_worst(c, m, n_cut, tie_of(s));
    choose_victims(s, at, n_cut);
}

int64_t choose_floor(const struct method_state *s, int64_t places, int heads)
{
    return heads > 0 ? (int64_t)(s->params.floor * (double)places / heads) : 0;
}

/* Keeps the best min(F, n) candidates of every head, F = choose_floor().  The remaining places go
 * to the best of all other candidates. */
static void share_out(const struct round *r, int pool, int64_t places, int64_t candidates,
                      int heads, float *scratch)
{
    struct method_state *s = r->s;
    int64_t even = choose_floor(s, places, heads), m = 0;
    int first, end;
    pool_heads(s, pool, &first, &end);
    if (shortlist_length(r, pool, end - first) > 0) {
        shortlist_merge(r, first, end, candidates - places, even, scratch);
        return;
    }
    struct candidate *rest = s->pooled + (size_t)first * (size_t)s->cap;
    for (int at = first; at < end; at++) {
        if (!s->due[at])
            continue;
        struct candidate *c = s->candidate + (size_t)at * (size_t)s->cap;
        int n = s->n_candidates[at], safe = n < even ? n : (int)even;
        if (safe > 0)
            select_worst(c, n, n - safe, tie_of(s));
        places -= safe;
        for (int i = 0; i < n - safe; i++)
            rest[m++] = c[i];
    }
    int64_t lost = m - places;
    if (lost <= 0)
        return;
    select_worst(rest, m, lost, tie_of(s));
    for (int64_t i = 0; i < lost; i++)
        s->n_cut[rest[i].head]++;
}

/* Rounds in which every head drops max(1, fraction * m) of the m candidates it has
 * left (WG-KV's global limit), until `over` entries are gone. */
static void drop_rounds(struct method_state *s, int first, int end, int64_t over)
{
    bool some = true;
    while (over > 0 && some) {
        some = false;
        for (int at = first; at < end; at++) {
            int left = s->due[at] ? s->n_candidates[at] - s->n_cut[at] : 0;
            int drop = (int)floor(s->params.fraction * left + 1e-9);
            if (left == 0)
                continue;
            drop = drop > 1 ? drop : 1;
            s->n_cut[at] += drop;
            over -= drop;
            some = true;
        }
    }
}

struct choose_numbers choose_numbers(const struct round *r, int pool)
{
    struct method_state *s = r->s;
    struct choose_numbers x = {0};
    int H = s->shape.n_kv_heads, first, end;
    pool_heads(s, pool, &first, &end);
    for (int at = first; at < end; at++) {
        if (!s->due[at])
            continue;
        x.total += cache_view(r->cache, at / H, at % H).n;
        x.candidates += s->n_candidates[at];
        x.heads++;
    }
    x.places = s->target[pool] - (x.total - x.candidates);
    x.places = x.places > 0 ? x.places : 0;
    return x;
}

void choose_counts(const struct round *r, int pool)
{
    struct method_state *s = r->s;
    struct choose_numbers x = choose_numbers(r, pool);
    int first, end;
    pool_heads(s, pool, &first, &end);
    if (s->method->trigger->rounds)
        drop_rounds(s, first, end, x.total - s->target[pool]);
    else
        s->n_cut[first] = (int)(x.total - s->target[pool]);
}

void choose_pool(void *round, int pool, int thread)
{
    const struct round *r = round;
    struct method_state *s = r->s;
    int first, end;
    if (s->target[pool] < 0)
        return;
    pool_heads(s, pool, &first, &end);
    if (s->method->trigger->rounds || s->method->allocation->pool == POOL_HEAD) {
        choose_counts(r, pool);
    } else {
        struct choose_numbers x = choose_numbers(r, pool);
        share_out(r, pool, x.places, x.candidates, x.heads,
                  s->scratch + (size_t)thread * s->scratch_len);
    }
    for (int at = first; at < end; at++)
        if (s->due[at] && s->n_cut[at] > 0)
            cut_worst(s, at, s->n_cut[at]);
}

size_t choose_scratch(const struct method_state *s)
{
    int more = s->method->score->scratch_rows, D = s->shape.head_dim;
    size_t rows = 4 + (size_t)(more > 0 ? more : 0);
    rows += s->peaks ? PEAKS_STRIDES : s->lows != NULL; /* the minimum of now and later */
    rows += s->params.slots == SLOTS_SCORE ? 5 : 0;     /* the order of slots, and its candidates */
    size_t len = rows * (size_t)s->cap + 4 * (size_t)D + score_row(s);
    if (more == KEYS_AS_PAGE)
        len += 2 * PAGE_SLOTS * ((size_t)D + PAGE_SLOTS);
    if (more == MOMENTS_AS_ROWS)
        len += 2 * ((size_t)D + 1) * (size_t)D; /* doubles: mean and covariance */
    return (len + 15) / 16 * 16;
}

/* shortlist.c - lists the worst candidates of each head in one pass over its scores, for decisions
 * that evict few entries. Heads that share a budget are merged, with the worst candidates first. */
#include <math.h>

#include "engine/method/state.h"

enum {
    LONG = 64,    /* maximum length of a list that is found without reading positions */
    PER_HEAD = 7, /* initial number of listed evictions of a head in a pool */
    FEW = 8,      /* at most 1 / FEW of all entries are marked */
};

int shortlist_length(const struct round *r, int pool, int heads)
{
    const struct method_state *s = r->s;
    bool shared = s->method->allocation->pool != POOL_HEAD;
    int64_t over = s->over[pool], k = over + 1;
    if (s->method->trigger->rounds || (shared && over > 4 * heads))
        return 0;
    if (shared && k > PER_HEAD + 1)
        k = PER_HEAD + 1;
    return k <= SHORTLIST ? (int)k : 0;
}

static int32_t recent_from(const struct round *r)
{
    return r->t + r->incoming - r->s->params.recent;
}

struct score_input shortlist_input(const struct round *r, int at)
{
    int H = r->s->shape.n_kv_heads;
    return (struct score_input){
        r->s,           r->cache, at / H,     at % H, cache_view(r->cache, at / H, at % H),
        recent_from(r), r->t,     r->incoming};
}

/* Scores by slot, of candidates at positions from .. to-1. pos NULL: the scores of all other
 * entries are infinite. order, unless NULL: the slots of the scores; all are candidates. */
struct pick {
    float *score;
    const int32_t *pos, *order;
    int n;
    int32_t from, to;
};

/* Returns the index, in time order, of the first entry at position p or later. Positions are rising
 * integers, so its distance from the oldest or the newest entry is at most that of the positions.
 * The distances are equal if no entry between them was evicted. */
static int first_from(const struct cache_head *view, int32_t p, bool front)
{
    int lo = 0, hi = view->n;
    if (hi == 0)
        return 0;
    int64_t oldest = view->pos[view->order[0]], newest = view->pos[view->order[hi - 1]];
    if (p <= oldest || p > newest)
        return p <= oldest ? 0 : hi;
    if (p - oldest < hi)
        hi = (int)(p - oldest);
    if (hi < view->n - (newest - p + 1))
        return hi; /* not with rising positions */
    if (view->n - (newest - p + 1) > lo)
        lo = (int)(view->n - (newest - p + 1));
    for (int mid = front ? hi - 1 : lo; lo < hi; mid = lo + (hi - lo) / 2) {
        if (view->pos[view->order[mid]] < p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Sets the scores of protected entries to infinity, so that positions need not be read. Returns
 * false if they are too many. */
static bool mark(const struct cache_head *view, float *score, int first, int end)
{
    if ((view->n - (end - first)) * FEW > view->n)
        return false;
    for (int i = 0; i < first; i++)
        score[view->order[i]] = INFINITY;
    for (int i = end; i < view->n; i++)
        score[view->order[i]] = INFINITY;
    return true;
}

/* Lists the k oldest candidates, for scores that rise with the position. */
static int take_oldest(const struct cache_head *view, int first, int end, int k, int at,
                       struct candidate *list)
{
    int n = end - first < k ? end - first : k;
    for (int i = 0; i < n; i++) {
        int slot = view->order[first + i];
        int32_t pos = view->pos[slot];
        list[i] = (struct candidate){(float)pos, pos, slot, at};
    }
    return n;
}

/* Returns the k-th lowest score; candidates above it are not among the k worst. Does not read
 * positions, which can be far away in memory. NaN counts as -inf. */
static float kth_least(const struct method_state *s, const struct pick *t, int k)
{
    float least[LONG], bar = INFINITY;
    int n = 0;
    for (int i = -1;;) {
        i = s->kernels.next_low(t->score, t->pos, i + 1, t->n, t->from, t->to, bar);
        if (i == t->n)
            return bar;
        if (isnan(t->score[i]))
            t->score[i] = -INFINITY;
        float x = t->score[i];
        int at = n < k ? n++ : k - 1;
        for (; at > 0 && x < least[at - 1]; at--)
            least[at] = least[at - 1];
        least[at] = x;
        bar = n == k ? least[k - 1] : INFINITY;
    }
}

static int take_worst(struct method_state *s, const struct cache_head *view, const struct pick *t,
                      int k, int at)
{
    struct candidate *list = s->candidate + (size_t)at * (size_t)s->cap;
    float bar = k <= LONG ? kth_least(s, t, k) : INFINITY;
    int n = 0;
    for (int i = -1;;) {
        i = s->kernels.next_low(t->score, t->pos, i + 1, t->n, t->from, t->to, bar);
        if (i == t->n)
            return n;
        int slot = t->order ? t->order[i] : i;
        int32_t pos = view->pos[slot];
        if (pos < t->from || pos >= t->to)
            continue; /* marked, where few scores are finite */
        if (isnan(t->score[i]))
            t->score[i] = -INFINITY;
        n = select_insert(list, n, k, &(struct candidate){t->score[i], pos, slot, at}, tie_of(s));
    }
}

int shortlist_range(const struct round *r, int at, int *ret_first, int *ret_end)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    int first = first_from(&view, s->params.sinks, true);
    int end = first_from(&view, recent_from(r), false);
    *ret_first = first;
    *ret_end = end > first ? end : first;
    return *ret_end - first;
}

void shortlist_fill(const struct round *r, int at, int k, float *score)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    int first, end;
    s->n_candidates[at] = shortlist_range(r, at, &first, &end);
    bool rising = s->method->score->rising, marked = !rising && mark(&view, score, first, end);
    struct pick t = {.score = score,
                     .pos = marked ? NULL : view.pos,
                     .n = view.n,
                     .from = s->params.sinks,
                     .to = recent_from(r)};
    if (rising)
        s->n_listed[at] = take_oldest(&view, first, end, k, at,
                                      s->candidate + (size_t)at * (size_t)s->cap);
    else
        s->n_listed[at] = take_worst(s, &view, &t, k, at);
}

bool shortlist_by_ranks(const struct method_state *s)
{
    return s->method->score->eval_ranks && s->params.pool > 1;
}

void shortlist_fill_ranks(const struct round *r, int at, int k, float *score)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads, first, end;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    int n = shortlist_range(r, at, &first, &end);
    const struct pick t = {.score = score,
                           .order = view.order + first,
                           .n = n,
                           .from = s->params.sinks,
                           .to = recent_from(r)};
    s->n_candidates[at] = n;
    s->n_listed[at] = take_worst(s, &view, &t, k, at);
}

/* Returns the next entry that a head would lose. Returns NULL if it can lose no more. */
static const struct candidate *next(const struct round *r, int at, int64_t even, float *scratch)
{
    struct method_state *s = r->s;
    int n = s->n_candidates[at], cut = s->n_cut[at];
    if (cut >= n - (n < even ? n : even))
        return NULL;
    if (cut + 1 >= s->n_listed[at]
        && s->n_listed[at] < n) { /* the candidate after it is needed too */
        const struct score_input in = shortlist_input(r, at);
        float *score = s->value + (size_t)at * (size_t)s->cap;
        int k = 4 * (cut + 2) < n ? 4 * (cut + 2) : n;
        if (shortlist_by_ranks(s)) {
            shortlist_fill_ranks(r, at, k, score);
        } else {
            if (s->lows) /* else the scores are known; a history is updated only once */
                s->method->score->eval(&in, score, scratch);
            shortlist_fill(r, at, k, score);
        }
    }
    return s->candidate + (size_t)at * (size_t)s->cap + cut;
}

/* Returns true if head x is before head y in the heap: its next entry is worse. */
static bool before(const struct method_state *s, int x, int y)
{
    size_t cap = (size_t)s->cap;
    return candidate_worse(s->candidate + (size_t)x * cap + s->n_cut[x],
                           s->candidate + (size_t)y * cap + s->n_cut[y], tie_of(s));
}

static void sift(const struct method_state *s, int *heap, int n, int i)
{
    for (int child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && before(s, heap[child + 1], heap[child]))
            child++;
        if (!before(s, heap[child], heap[i]))
            return;
        int tmp = heap[i];
        heap[i] = heap[child];
        heap[child] = tmp;
        i = child;
    }
}

void shortlist_merge(const struct round *r, int first, int end, int64_t lost, int64_t even,
                     float *scratch)
{
    struct method_state *s = r->s;
    int *heap = s->heap + first, n = 0;
    for (int at = first; at < end; at++)
        if (s->due[at] && next(r, at, even, scratch))
            heap[n++] = at;
    for (int i = n / 2 - 1; i >= 0; i--)
        sift(s, heap, n, i);
    for (; lost > 0 && n > 0; lost--) {
        s->n_cut[heap[0]]++;
        if (!next(r, heap[0], even, scratch))
            heap[0] = heap[--n];
        sift(s, heap, n, 0);
    }
}

/* shortlist.c - where few entries are cut, as before every token, the few worst of each
 * head are found in one pass over its scores; no list of all candidates is made.  Heads
 * that share places are merged, worst first. */
#include <math.h>

#include "engine/method/state.h"

enum {
    SHORT = 16,    /* longest list that is worth it */
    PER_HEAD = 7,  /* cuts that a head of a pool is prepared for at first */
    BLOCK = 32,    /* slots that are passed over together */
    FEW = 8,       /* the part of all entries that are marked at most: 1 / FEW */
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
    return k <= SHORT ? (int)k : 0;
}

/* Puts x into the sorted list of at most k. */
static int insert(struct candidate *list, int n, int k, const struct candidate *x, bool older)
{
    if (n == k && !candidate_worse(x, &list[k - 1], older))
        return n;
    int i = n < k ? n : k - 1;
    for (; i > 0 && candidate_worse(x, &list[i - 1], older); i--)
        list[i] = list[i - 1];
    list[i] = *x;
    return n < k ? n + 1 : n;
}

/* Whether any of a block could enter a list whose last score is `bar`; NaN could. */
static bool any_below(const float *score, int n, float bar)
{
    int any = 0;
    for (int i = 0; i < n; i++)
        any |= !(score[i] > bar);
    return any;
}

/* The same of those at positions from .. to-1. */
static bool any_open(const float *score, const int32_t *pos, int n, int32_t from, int32_t to,
                     float bar)
{
    int any = 0;
    for (int i = 0; i < n; i++)
        any |= (pos[i] >= from) & (pos[i] < to) & !(score[i] > bar);
    return any;
}

/* The first in order of time whose position is at least p; from the front or from the
 * back, in steps that double, since it is likely near. */
static int first_from(const struct cache_head *view, int32_t p, bool front)
{
    int lo = 0, hi = view->n, step = 1, mid = front ? 0 : hi - 1;
    while (lo < hi) {
        bool before = view->pos[view->order[mid]] < p;
        if (before)
            lo = mid + 1;
        else
            hi = mid;
        step = before == front && step < view->n ? 2 * step : view->n; /* passed it: halve */
        mid = front ? lo + step - 1 : hi - step;
        if (mid < lo || mid >= hi)
            mid = lo + (hi - lo) / 2;
    }
    return lo;
}

/* Marks what is protected, so that no position needs to be looked at, if it is little. */
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

/* Scores are positions: the worst come first in order of time. */
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

void shortlist_fill(const struct round *r, int at, int k, float *score)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads, n = 0;
    struct cache_head view = cache_view(r->cache, at / H, at % H);
    int32_t from = s->params.sinks, to = r->t + r->incoming - s->params.recent;
    int first = first_from(&view, from, true);
    int end = first_from(&view, to, 2 * s->params.recent > view.n);
    struct candidate *list = s->candidate + (size_t)at * (size_t)s->cap;
    bool older = s->params.tie == TIE_OLDER, rising = s->method->score->rising;
    end = end > first ? end : first;
    bool marked = !rising && mark(&view, score, first, end);
    if (rising)
        n = take_oldest(&view, first, end, k, at, list);
    for (int i0 = 0; i0 < view.n && !rising; i0 += BLOCK) {
        int stop = view.n - i0 < BLOCK ? view.n : i0 + BLOCK;
        float bar = n == k ? list[k - 1].score : INFINITY;
        bool any = marked ? any_below(score + i0, stop - i0, bar)
                          : any_open(score + i0, view.pos + i0, stop - i0, from, to, bar);
        for (int i = i0; any && i < stop; i++) {
            if (score[i] > bar || view.pos[i] < from || view.pos[i] >= to)
                continue;
            if (isnan(score[i]))
                score[i] = -INFINITY;
            n = insert(list, n, k, &(struct candidate){score[i], view.pos[i], i, at}, older);
        }
    }
    s->n_candidates[at] = end - first;
    s->n_listed[at] = n;
}

/* The next entry that a head would lose; NULL: it loses no more. */
static const struct candidate *next(const struct round *r, int at, int64_t even)
{
    struct method_state *s = r->s;
    int n = s->n_candidates[at], cut = s->n_cut[at];
    if (cut >= n - (n < even ? n : even))
        return NULL;
    if (cut + 1 >= s->n_listed[at] && s->n_listed[at] < n) /* the one behind it is needed too */
        shortlist_fill(r, at, 4 * (cut + 2) < n ? 4 * (cut + 2) : n,
                       s->value + (size_t)at * (size_t)s->cap);
    return s->candidate + (size_t)at * (size_t)s->cap + cut;
}

/* Whether head x goes before head y in the heap: its next entry is worse. */
static bool before(const struct method_state *s, int x, int y)
{
    size_t cap = (size_t)s->cap;
    return candidate_worse(s->candidate + (size_t)x * cap + s->n_cut[x],
                           s->candidate + (size_t)y * cap + s->n_cut[y],
                           s->params.tie == TIE_OLDER);
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

void shortlist_merge(const struct round *r, int first, int end, int64_t lost, int64_t even)
{
    struct method_state *s = r->s;
    int *heap = s->heap + first, n = 0;
    for (int at = first; at < end; at++)
        if (s->due[at] && next(r, at, even))
            heap[n++] = at;
    for (int i = n / 2 - 1; i >= 0; i--)
        sift(s, heap, n, i);
    for (; lost > 0 && n > 0; lost--) {
        s->n_cut[heap[0]]++;
        if (!next(r, heap[0], even))
            heap[0] = heap[--n];
        sift(s, heap, n, 0);
    }
}

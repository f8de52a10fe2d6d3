/* ahead.c - asks for the memory of a head while another one is worked on.  A decode step
 * leaves nothing of a method's state in the caches, and a head is so short that the
 * processor's own streams hardly start before it ends. */
#include "engine/method/state.h"

enum { LINE = 64 };

static void ask(const void *p, size_t n, size_t size)
{
    for (size_t i = 0; i < n * size; i += LINE)
        __builtin_prefetch((const char *)p + i, 0, 2);
}

/* The rows of the window that the next score looks at, unless it looks at all. */
static void ask_rows(const struct method_state *s, int layer, int head, size_t n)
{
    const struct evidence *e = &s->evidence;
    int g0, n_group, *known;
    bool sums = s->params.across == ACROSS_MEAN && s->params.support == SUPPORT_ALL;
    if (s->method->score->cost_rows == NULL || !sums)
        return;
    method_group(s, head, &g0, &n_group);
    for (int g = g0; g < g0 + n_group; g++) {
        ask(evidence_row(s, layer, g, 0, NULL, NULL), n, sizeof(float));
        if (s->params.window > 2 && evidence_taken(e, layer, g) > s->params.window)
            ask(evidence_row(s, layer, g, s->params.window, NULL, NULL), n, sizeof(float));
    }
    if (s->params.window > 2)
        ask(evidence_recent(e, layer, head, &known), n, sizeof(double));
}

static void ask_evidence(const struct method_state *s, int layer, int head, size_t n)
{
    unsigned kinds = s->method->score->evidence;
    int g0, n_group;
    if (kinds & EVIDENCE_NORMS)
        ask(evidence_norms(s, layer, head), n, sizeof(float));
    if (kinds & EVIDENCE_HISTORY && !(kinds & EVIDENCE_KEYS))
        ask(evidence_history(s, layer, head), n, sizeof(float));
    if (kinds & EVIDENCE_NOTE)
        ask(evidence_note(s, layer, head), n, sizeof(double));
    if (kinds & EVIDENCE_GATE)
        ask(evidence_gate(s, layer, head), n, sizeof(float));
    method_group(s, head, &g0, &n_group);
    for (int g = g0; kinds & EVIDENCE_SUM && g < g0 + n_group; g++)
        ask(evidence_sum(s, layer, g), n, sizeof(double));
    if (kinds & EVIDENCE_WINDOW)
        ask_rows(s, layer, head, n);
}

/* The next head that is due from `at` on; -1: none. */
static int next_due(const struct method_state *s, int at)
{
    int n = s->shape.n_layers * s->shape.n_kv_heads;
    while (at < n && !s->due[at])
        at++;
    return at < n ? at : -1;
}

void ahead_score(const struct round *r, int at)
{
    const struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    for (int step = 2; step > 0; step--) { /* the ends of the order of time lead further */
        int to = at;
        for (int i = 0; to >= 0 && i < step; i++)
            to = next_due(s, to + s->n_threads);
        if (to < 0)
            continue;
        struct cache_head view = cache_view(r->cache, to / H, to % H);
        if (step == 2 && view.n > 0) {
            __builtin_prefetch(view.order);
            __builtin_prefetch(view.order + view.n - 1);
        } else if (view.n > 0) {
            bool all = s->method->score->evidence & (EVIDENCE_WINDOW | EVIDENCE_SUM);
            ask(view.pos, all ? (size_t)view.n : 1, sizeof *view.pos);
            __builtin_prefetch(view.pos + view.order[0]);
            __builtin_prefetch(view.pos + view.order[view.n - 1]);
            ask_evidence(s, to / H, to % H, (size_t)view.n);
            __builtin_prefetch(s->candidate + (size_t)to * (size_t)s->cap, 1);
            __builtin_prefetch(s->victim + (size_t)to * (size_t)s->cap, 1);
        }
    }
}

void ahead_cut(const struct round *r, int kv_head)
{
    const struct method_state *s = r->s;
    int H = s->shape.n_kv_heads, to = kv_head + 1;
    int at = s->method->scope == SCOPE_LAYER ? to / H * H : to;
    if (to >= s->shape.n_layers * H || s->n_cut[at] == 0)
        return;
    struct cache_head view = cache_view(r->cache, to / H, to % H);
    __builtin_prefetch(view.pos + s->victim[(size_t)at * (size_t)s->cap]);
    ask(view.order, s->method->score->rising ? 1 : (size_t)view.n, sizeof *view.order);
}

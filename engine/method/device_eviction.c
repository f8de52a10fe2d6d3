/* device_eviction.c - prepares and applies eviction rounds with scores on a device
 * (device_eviction.h). */
#include "engine/method/device_eviction.h"

#include <math.h>

#include "base/mem.h"
#include "engine/method/lows.h"
#include "engine/method/parts.h"
#include "engine/method/peaks.h"

enum { HEADS_AHEAD = 8 }; /* number of heads with prefetched positions */

bool device_eviction_supported(const struct method_state *s)
{
    const struct method *m = s->method;
    bool shares_need = m->score && m->allocation->evidence && !s->shares_known;
    return !s->next && !s->owned && m->admission->reason != KVF_REASON_PLAN && !shares_need;
}

enum device_admits device_admission(const struct method_state *s, struct device_admission *ret)
{
    bool any = false;
    for (const struct method_state *row = s; row; row = row->next)
        any |= row->method->admission == &admission_write;
    if (any && s->next)
        return ADMITS_APART;
    *ret = (struct device_admission){s->params.tau, s->params.compare == COMPARE_GT,
                                     s->params.local};
    return any ? ADMITS_BY_NUMBER : ADMITS_WITHOUT;
}

static int reserve(struct method_state *s)
{
    size_t n = (size_t)s->shape.n_layers * (size_t)s->shape.n_kv_heads;
    if (!s->go)
        s->go = MEM_NEW(int64_t, n);
    if (!s->may)
        s->may = MEM_NEW(int64_t, n);
    return s->go && s->may ? KVF_OK : KVF_E_NOMEM;
}

static void count_candidates(const struct round *r)
{
    struct method_state *s = r->s;
    for (int at = 0; at < s->shape.n_layers * s->shape.n_kv_heads; at++) {
        int first, end;
        choose_ask_limits(r, at + HEADS_AHEAD);
        s->n_cut[at] = s->n_listed[at] = 0;
        s->n_candidates[at] = s->due[at] ? shortlist_range(r, at, &first, &end) : 0;
    }
}

/* Fills the round if every head is a pool. */
static void ask_heads(const struct round *r, struct device_eviction *out)
{
    struct method_state *s = r->s;
    out->pools = s->shape.n_layers * s->shape.n_kv_heads;
    out->heads_of_pool = 1;
    for (int at = 0; at < out->pools; at++) {
        int n = s->n_candidates[at];
        s->go[at] = s->n_cut[at] < n ? s->n_cut[at] : n;
        out->most += s->go[at];
        s->n_cut[at] = 0;
    }
}

/* Fills the round if the heads of a pool share a budget. Each head keeps its best choose_floor()
 * entries. */
static void ask_pools(const struct round *r, struct device_eviction *out)
{
    struct method_state *s = r->s;
    bool some_safe = false;
    out->pools = choose_pools(s);
    out->heads_of_pool = s->shape.n_layers * s->shape.n_kv_heads / out->pools;
    for (int p = 0; p < out->pools; p++) {
        struct choose_numbers x = choose_numbers(r, p);
        int64_t even = choose_floor(s, x.places, x.heads);
        s->go[p] = x.heads && x.candidates > x.places ? x.candidates - x.places : 0;
        out->most += s->go[p];
        for (int at = p * out->heads_of_pool; at < (p + 1) * out->heads_of_pool; at++) {
            int n = s->n_candidates[at];
            s->may[at] = n < even ? 0 : n - even;
            some_safe |= even > 0;
        }
    }
    out->may = some_safe ? s->may : NULL;
}

static void ask(const struct round *r, struct device_eviction *out)
{
    struct method_state *s = r->s;
    out->recent_from = r->t + r->incoming - s->params.recent;
    out->head = s->due;
    out->go = s->go;
    count_candidates(r);
    bool alone = s->method->allocation->pool == POOL_HEAD;
    for (int p = 0; p < choose_pools(s) && (alone || s->method->trigger->rounds); p++)
        if (s->target[p] >= 0)
            choose_counts(r, p);
    if (alone || s->method->trigger->rounds)
        ask_heads(r, out);
    else
        ask_pools(r, out);
    out->due = out->most > 0;
}

int device_eviction_begin(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                          eviction_fn fn, void *ctx, struct device_eviction *ret)
{
    struct round r = {s, c, t, phase == PHASE_BEFORE};
    *ret = (struct device_eviction){.t = t, .incoming = r.incoming, .phase = phase};
    int err = reserve(s);
    lows_forget(s);
    peaks_forget(s);
    method_settle(s, c);
    if (!err && phase == PHASE_BEFORE)
        err = method_expire(s, c, t, NULL, fn, ctx);
    if (err || !decide_acts(s, phase, t) || !decide_shares(&r) || !choose_due(&r))
        return err;
    ask(&r, ret);
    return KVF_OK;
}

void device_eviction_take(struct method_state *s, const struct cache *c,
                          const struct device_eviction_cut *cut)
{
    int H = s->shape.n_kv_heads;
    struct cache_head view = cache_view(c, cut->at / H, cut->at % H);
    struct candidate *list = s->candidate + (size_t)cut->at * (size_t)s->cap;
    for (int i = 0; i < cut->n; i++) {
        float score = isnan(cut->score[i]) ? -INFINITY : cut->score[i];
        list[i] = (struct candidate){score, view.pos[cut->slot[i]], cut->slot[i], cut->at};
    }
    s->n_candidates[cut->at] = cut->n;
    if (cut->kept >= 0)
        list[s->n_candidates[cut->at]++] = (struct candidate){cut->kept_score, view.pos[cut->kept],
                                                              cut->kept, cut->at};
    choose_victims(s, cut->at, cut->n);
}

int device_eviction_end(struct method_state *s, struct cache *c, const struct device_eviction *r,
                        eviction_fn fn, void *ctx, int64_t *cuts)
{
    struct round round = {s, c, r->t, r->incoming};
    int err = r->due ? decide_apply(&round, fn, ctx, cuts) : KVF_OK;
    if (!err && r->phase == PHASE_BEFORE)
        err = decide_reopen(s, c);
    if (err || r->phase != PHASE_BEFORE)
        method_settle(s, c);
    cache_account(c);
    return err;
}

struct device_evidence device_evidence(struct method_state *s, const struct cache *c)
{
    struct evidence *e = &s->evidence;
    int H = s->shape.n_kv_heads;
    for (int at = 0; e->anchor && at < s->shape.n_layers * H; at++)
        evidence_sync_anchor(e, at / H, at % H, cache_view(c, at / H, at % H).n);
    for (int at = 0; e->rows && at < s->shape.n_layers * H; at++)
        evidence_close_rows(e, (size_t)at);
    return (struct device_evidence){.cap = e->cap,
                                    .ring = e->ring,
                                    .sum = e->sum,
                                    .rows = e->rows,
                                    .n_rows = e->n_rows,
                                    .row_t = e->row_t,
                                    .row_n = e->row_n,
                                    .row_lse = e->row_lse,
                                    .norms = e->norms,
                                    .gate = e->gate,
                                    .history = e->history,
                                    .anchor = e->anchor,
                                    .values = e->values,
                                    .n_queries = e->n_queries,
                                    .query_sum = e->query_sum,
                                    .query_outer = e->query_outer,
                                    .block_key = e->pages.key,
                                    .block_cap = e->pages.cap};
}

void device_rows_received(struct method_state *s, const struct cache *c, int taken)
{
    struct evidence *e = &s->evidence;
    int H = s->shape.n_kv_heads, per = s->shape.n_heads / H;
    size_t ring = (size_t)e->ring;
    for (int q = 0; q < s->shape.n_layers * s->shape.n_heads; q++) {
        int at = q / per;
        struct row_ranks now = {e->n_left[at], cache_view(c, at / H, at % H).n};
        e->n_rows[q] = taken;
        e->recent_at[at] = -1;
        memmove(e->row_t + (size_t)q * ring, e->row_t, ring * sizeof *e->row_t);
        for (size_t w = 0; w < ring; w++)
            e->row_ranks[(size_t)q * ring + w] = now;
    }
}

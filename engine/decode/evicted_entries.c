/* evicted_entries.c - keeps evicted entries and computes the attention that queries lost.
 *
 * Let w be the weights of a query over all entries that it could have seen, E the entries it saw, o
 * its output over E and v the values. Then
 *
 *     kept = sum_E w,   oracle = sum of the |E| largest w,
 *     o_all = sum w v = o + d,   d = sum_{not E} w v - (1 - kept) o,
 *     error = |d| / |o_all|.
 *
 * d is summed only over unseen entries, so that no two close numbers are subtracted. */
#include "engine/decode/evicted_entries.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/decode/session_state.h"

struct evicted_entries {
    struct cache *cache; /* order[] is the order of eviction */
    int err;
    int found; /* slot after the last found entry; the search for the next one starts here */
    /* Scratch per thread. */
    float *weight;       /* [threads][ld] by position */
    float *row;          /* [threads][ld] by slot */
    float *gap;          /* [threads][head_dim] */
    unsigned char *seen; /* [threads][ld] by position */
    unsigned char *cuts; /* [threads][cuts_bytes] */
    size_t ld, cuts_bytes;
};

int evicted_entries_create(struct session *s)
{
    const struct model_config *m = &s->e->config;
    struct cache_config cfg = {m->n_layers, s->cache_heads, m->head_dim, s->kv_type};
    size_t threads = (size_t)par_threads(s->e->pool);
    struct evicted_entries *g = s->compare.evicted = MEM_NEW(struct evicted_entries, 1);
    if (!g)
        return KVF_E_NOMEM;
    g->ld = s->attn.ld_strip;
    g->cuts_bytes = (row_cuts_scratch(s->cap) + 63) / 64 * 64;
    g->weight = mem_alloc(threads * g->ld, sizeof *g->weight);
    g->row = mem_alloc(threads * g->ld, sizeof *g->row);
    g->gap = mem_alloc(threads * (size_t)m->head_dim, sizeof *g->gap);
    g->seen = mem_alloc(threads, g->ld);
    g->cuts = mem_alloc(threads, g->cuts_bytes);
    if (!g->weight || !g->row || !g->gap || !g->seen || !g->cuts)
        return KVF_E_NOMEM;
    return cache_create(&cfg, &g->cache);
}

void evicted_entries_destroy(struct evicted_entries *g)
{
    if (!g)
        return;
    cache_destroy(g->cache);
    mem_free(g->weight);
    mem_free(g->row);
    mem_free(g->gap);
    mem_free(g->seen);
    mem_free(g->cuts);
    mem_free(g);
}

int evicted_entries_err(const struct evicted_entries *g)
{
    return g ? g->err : KVF_OK;
}

static int slot_of(const struct cache_head *view, int32_t pos, int start)
{
    if (view->plain)
        return pos;
    for (int i = 0, slot = start; i < view->n; i++, slot++) {
        slot = slot < view->n ? slot : 0;
        if (view->pos[slot] == pos)
            return slot;
    }
    return -1;
}

/* Reading f16 as f32 and storing it again keeps its bits. */
void evicted_entries_add(struct session *s, const struct eviction *e)
{
    struct evicted_entries *g = s->compare.evicted;
    struct cache_head view = cache_view(s->cache, e->layer, e->head);
    int slot = slot_of(&view, e->pos, g->found);
    float *key = s->parts.scratch, *value = key + s->e->config.head_dim;
    if (slot < 0 || g->err || e->reason == KVF_REASON_ARCHITECTURE)
        return;
    g->found = slot + 1;
    g->err = cache_reserve(g->cache, e->layer, e->head, 1);
    if (g->err)
        return;
    struct cache_entry copy = {e->pos, NEVER_EXPIRES, key, value};
    cache_key(s->cache, e->layer, e->head, slot, key);
    cache_value(s->cache, e->layer, e->head, slot, value);
    cache_append(g->cache, &s->e->kernels, e->layer, e->head, &copy);
}

/* The scratch of one thread. */
struct desk {
    float *weight, *row, *gap;
    unsigned char *seen;
    void *cuts;
};

static struct desk desk_of(const struct session *s, int thread)
{
    const struct evicted_entries *g = s->compare.evicted;
    size_t i = (size_t)thread;
    return (struct desk){g->weight + i * g->ld, g->row + i * g->ld,
                         g->gap + i * (size_t)s->e->config.head_dim, g->seen + i * g->ld,
                         g->cuts + i * g->cuts_bytes};
}

/* Computes the logits of n slots of a head and stores them by position. */
static void logits_of(const struct session *s, const struct evicted_query *q,
                      const struct cache_head *view, int n, const struct desk *k)
{
    const struct model_config *m = &s->e->config;
    int D = m->head_dim;
    for (int p = 0; p * PAGE_SLOTS < n; p++) {
        const struct kv_keys keys = {.page = cache_keys(view, p), .type = s->kv_type};
        s->e->kernels.attn_qk(k->row + p * PAGE_SLOTS, s->attn.ld_strip, q->q, (size_t)D, 1, D,
                              &keys, m->attn_scale);
        if (m->attn_cap > 0)
            s->e->kernels.soft_cap(k->row + p * PAGE_SLOTS, PAGE_SLOTS, m->attn_cap);
    }
    for (int i = 0; i < n; i++)
        k->weight[view->pos[i]] = k->row[i];
}

/* Weights over all positions, and which of them the query saw; returns how many.  *ret_sink: the
 * weight of the head's sink, which has no value; 0: there is none. */
static int weigh(const struct session *s, const struct evicted_query *q,
                 const struct cache_head *gone, const struct desk *k, double *ret_sink)
{
    const float *sinks = sinks_of(s, q->layer);
    int n = q->t + 1, n_seen = 0, window = model_window(&s->e->config, q->layer);
    for (int i = 0; i < n; i++)
        k->weight[i] = -INFINITY;
    memset(k->seen, 0, (size_t)n);
    logits_of(s, q, q->view, q->n, k);
    logits_of(s, q, gone, gone->n, k);
    for (int i = 0; i < q->n; i++) {
        bool seen = slot_seen(q->view, q->page, q->chosen, i, q->t);
        k->seen[q->view->pos[i]] = seen;
        n_seen += seen;
    }
    for (int i = 0; window && i <= q->t - window; i++)
        k->weight[i] = -INFINITY; /* outside the layer's window */
    double lse = (double)s->e->kernels.softmax(k->weight, n, NULL);
    double more = sinks ? exp((double)sinks[q->g] - lse) : 0;
    for (int i = 0; sinks && i < n; i++)
        k->weight[i] = (float)((double)k->weight[i] / (1 + more));
    *ret_sink = more / (1 + more);
    return n_seen;
}

/* Sums the weights in double, by rising position, so that equal sets have equal sums. Returns the
 * sum of all weights. */
static double masses(const struct session *s, int n_seen, double sink, const struct desk *k,
                     struct probe_missed *m)
{
    double all = sink, kept = 0, best = 0;
    if (n_seen > 0)
        s->e->kernels.row_cuts(k->weight, m->n, &n_seen, 1, NULL, 0, &m->cut, k->cuts);
    for (int i = 0; i < m->n; i++) {
        double w = (double)k->weight[i];
        all += w;
        kept += k->seen[i] ? w : 0;
        best += n_seen > 0 && row_cut_has(&m->cut, k->weight[i], i) ? w : 0;
    }
    m->kept = (float)(kept / all);
    m->oracle = (float)(fmax(best, kept) / all); /* rounding can make best smaller than kept */
    return all;
}

/* gap += sum of w v over the unseen slots of a head. Returns the sum of w. */
static double add_missed(const struct session *s, const struct cache_head *view,
                         const struct cache *c, int n, const struct desk *k)
{
    int D = s->e->config.head_dim;
    double mass = 0;
    for (int p = 0; p * PAGE_SLOTS < n; p++) {
        int end = n - p * PAGE_SLOTS < PAGE_SLOTS ? n - p * PAGE_SLOTS : PAGE_SLOTS, missed = 0;
        for (int i = 0; i < end; i++) {
            int32_t pos = view->pos[p * PAGE_SLOTS + i];
            k->row[i] = k->seen[pos] ? 0 : k->weight[pos];
            mass += (double)k->row[i];
            missed += !k->seen[pos];
        }
        const struct kv_values values = {cache_values(c, view, p), s->kv_type, D, 0, D, end, NULL};
        if (missed > 0)
            s->e->kernels.attn_av(k->gap, (size_t)D, k->row, s->attn.ld_strip, 1, &values);
    }
    return mass;
}

static float output_error(const struct session *s, const struct evicted_query *q,
                          const struct cache_head *gone, double all, const struct desk *k)
{
    int D = s->e->config.head_dim;
    double off = 0, norm = 0;
    memset(k->gap, 0, (size_t)D * sizeof *k->gap);
    double mass = add_missed(s, q->view, s->cache, q->n, k);
    mass += add_missed(s, gone, s->compare.evicted->cache, gone->n, k);
    for (int d = 0; d < D; d++) {
        double diff = ((double)k->gap[d] - mass * (double)q->out[d]) / all;
        double o = (double)q->out[d] + diff;
        off += diff * diff;
        norm += o * o;
    }
    return off == 0 ? 0 : (float)sqrt(off / norm);
}

/* Returns true if the query reads all entries inside its layer's window and only these. Then the
 * entries that it does not see have weight 0, and it lost no attention. */
static bool only_window_hides(const struct session *s, const struct evicted_query *q,
                              const struct cache_head *gone)
{
    int window = model_window(&s->e->config, q->layer);
    if (gone->n > 0 || q->page > 0 || window == 0 || sinks_of(s, q->layer))
        return false;
    for (int i = 0; i < q->n; i++)
        if (slot_seen(q->view, 0, NULL, i, q->t) != (q->view->pos[i] > q->t - window))
            return false;
    return true;
}

void evicted_entries_score(struct session *s, const struct evicted_query *q)
{
    struct cache_head gone = cache_view(s->compare.evicted->cache, q->layer, q->h);
    struct probe_missed m = {.layer = q->layer, .head = q->g, .t = q->t, .kept = 1, .oracle = 1};
    bool hidden = gone.n > 0 || q->page > 0 || q->view->first_expiry <= q->t;
    if (hidden
        && (recorder_reads_all(s->observers.recorder, q->t) || !only_window_hides(s, q, &gone))) {
        struct desk k = desk_of(s, q->thread);
        m.n = q->t + 1;
        m.p = k.weight;
        m.seen = k.seen;
        m.scratch = k.cuts;
        double sink;
        int n_seen = weigh(s, q, &gone, &k, &sink);
        double all = masses(s, n_seen, sink, &k, &m);
        m.error = output_error(s, q, &gone, all, &k);
    }
    recorder_missed(s->observers.recorder, &m);
}

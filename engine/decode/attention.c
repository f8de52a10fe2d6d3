/* attention.c - a_ti = softmax_i(cap(q_t . k_i scale)), o_t = sum_i a_ti v_i over the
 * ragged cache; scale = 1 / sqrt(D) and cap(x) = x unless the model says otherwise.
 *
 * A task is TASK_ROWS queries of one query head; each head's tasks run one after
 * the other, so everything that watches rows (evidence, probes) sees those of a
 * head in order.  Tasks are handed out with all heads in turn: few heads would not
 * divide evenly among threads, and a task hardly ever waits for its predecessor,
 * which was handed out a whole turn before.  The scores of QUERY_BLOCK queries are
 * held as whole rows: O(T) memory, and every statistic of a row is exact.  Where a
 * probe compares the rows of query heads that share a KV head (PROBE_GROUPS), a task
 * computes all of these: QUERY_BLOCK queries of the first, then of the next.
 *
 * The one query of a step over long heads waits for memory: there the query heads that share a KV
 * head meet its entries together, in three rounds of tasks: scores of some pages, whole rows, sums
 * of some channels.  The bits are the same, as every score and every channel is one sum in order.
 */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "engine/decode/session_state.h"

_Static_assert(QUERY_BLOCK <= (int)PROBE_GROUP_ROWS, "what probes hold rows for");

struct job {
    struct session *s;
    int layer, T, pos0;
    int together; /* query heads of a task, which share a KV head */
};

/* The queries of one head in [r0, r0 + R), and what they may see. */
struct block {
    int g, h, r0, R; /* query head; KV head of the cache */
    const struct cache_head *view;
    int n_last;                  /* slots that the last row sees */
    int page;                    /* entries per page that is read or not; 0: all are read */
    const unsigned char *chosen; /* [pages] */
    int thread;
};

/* Whether any entry of a stored page is read. */
static bool touched(const struct block *b, int stored)
{
    if (b->page == 0)
        return true;
    int first = stored * PAGE_SLOTS / b->page;
    int last = (stored * PAGE_SLOTS + PAGE_SLOTS - 1) / b->page;
    for (int p = first; p <= last && p * b->page < b->n_last; p++)
        if (b->chosen[p])
            return true;
    return false;
}

/* The capped products, times their scale, of the rows with every stored page.  Keys kept unrotated
 * were turned by their rank (reading.c); a query then has the rank of its own entry. */
static void logits_of(const struct job *j, const struct block *b, float *strip)
{
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    int D = m->head_dim;
    const float *q = s->qkv + (size_t)b->r0 * s->ld_qkv + (size_t)b->g * (size_t)D;
    size_t ld = s->ld_qkv;
    if (s->by_rank) {
        float *turned = s->part_scratch + (size_t)b->thread * s->ld_scratch;
        for (int r = 0; r < b->R; r++) {
            int rank = b->view->n - (j->T - (b->r0 + r));
            memcpy(turned + r * D, s->qk_pre + (size_t)(b->r0 + r) * s->ld_pre + b->g * D,
                   (size_t)D * sizeof *turned);
            const float *turn = turn_row(s, j->layer, s->turns, s->cap, rank);
            if (turn)
                s->e->kernels.rope(turned + r * D, turn, 1, D, m->rope_dim);
        }
        q = turned;
        ld = (size_t)D;
    }
    for (int p = 0; p * PAGE_SLOTS < b->n_last; p++) {
        const void *keys = cache_keys(b->view, p);
        if (s->by_rank)
            keys = s->turned + ((size_t)b->h * s->ld_strip + (size_t)(p * PAGE_SLOTS)) * (size_t)D;
        if (!touched(b, p))
            continue;
        s->e->kernels.attn_qk(strip + p * PAGE_SLOTS, s->ld_strip, q, ld, b->R, D, keys,
                              s->by_rank ? KV_F32 : s->kv_type, m->attn_scale);
        for (int r = 0; m->attn_cap > 0 && r < b->R; r++)
            s->e->kernels.soft_cap(strip + p * PAGE_SLOTS + (size_t)r * s->ld_strip, PAGE_SLOTS,
                                   m->attn_cap);
    }
}

/* What query t sees of n slots: not what has left by then, and only pages that are
 * read.  Marks visible[], hides the rest in the row; returns how many it sees. */
static int hide(const struct block *b, int32_t t, int n, float *row, unsigned char *visible)
{
    int seen = 0;
    for (int i = 0; i < n; i++) {
        visible[i] = slot_seen(b->view, b->page, b->chosen, i, t);
        seen += visible[i];
        if (!visible[i])
            row[i] = -INFINITY;
    }
    return seen;
}

void tell_row(struct session *s, const struct attn_row *row, const struct cache_head *view,
              float entropy, int thread)
{
    if (s->twin_of)
        method_twin_row(s->twin_of, row);
    watch_row(s, row);
    if (recorder_wants(s->recorder) & PROBE_ROWS)
        recorder_row(s->recorder, row, view, row->lse, entropy, thread);
}

/* Softmax and watchers of row r of the block. */
static void finish_row(const struct job *j, const struct block *b, int r, float *row)
{
    struct session *s = j->s;
    bool watched = recorder_wants(s->recorder) & PROBE_ROWS;
    /* the chunk's entries are the newest slots: row r sees all but those after it */
    int n = b->view->n - (j->T - 1 - (b->r0 + r));
    struct attn_row seen = {.layer = j->layer,
                            .head = b->g,
                            .t = j->pos0 + b->r0 + r,
                            .n = n,
                            .seen = n,
                            .stepping = s->stepping,
                            .p = row};
    if (b->page || b->view->soonest <= seen.t) {
        unsigned char *visible = s->visible + (size_t)b->thread * s->ld_strip;
        seen.seen = hide(b, seen.t, n, row, visible);
        seen.visible = visible;
    }
    float entropy = 0;
    seen.lse = s->e->kernels.softmax(row, n, watched ? &entropy : NULL);
    memset(row + n, 0, (size_t)(b->n_last - n) * sizeof *row);
    tell_row(s, &seen, b->view, entropy, b->thread);
}

/* What each query of the block missed; out: what it got. */
static void ask_ghosts(const struct job *j, const struct block *b, const float *out)
{
    struct session *s = j->s;
    size_t D = (size_t)s->e->config.head_dim;
    for (int r = 0; r < b->R; r++) {
        size_t row = (size_t)(b->r0 + r);
        struct ghost_query q = {.layer = j->layer,
                                .g = b->g,
                                .h = b->h,
                                .t = j->pos0 + b->r0 + r,
                                .n = b->view->n - (j->T - 1 - (b->r0 + r)),
                                .view = b->view,
                                .page = b->page,
                                .chosen = b->chosen,
                                .q = s->qkv + row * s->ld_qkv + (size_t)b->g * D,
                                .out = out + (size_t)r * s->ld_att,
                                .thread = b->thread};
        ghosts_ask(s, &q);
    }
}

/* Channels [d0, d1) of the entries of a page, of n in the head. */
static struct kv_values values_of(const struct session *s, const struct cache_head *view, int page,
                                  int n, int d0, int d1)
{
    int left = n - page * PAGE_SLOTS;
    return (struct kv_values){.page = cache_values(s->cache, view, page),
                              .type = s->kv_type,
                              .D = s->e->config.head_dim,
                              .d0 = d0,
                              .d1 = d1,
                              .n_slots = left < PAGE_SLOTS ? left : PAGE_SLOTS};
}

static void query_block(const struct job *j, struct block *b)
{
    struct session *s = j->s;
    const struct kernels *k = &s->e->kernels;
    int D = s->e->config.head_dim;
    float *strip = s->strip + (size_t)b->thread * QUERY_BLOCK * s->ld_strip;
    float *out = s->att + (size_t)b->r0 * s->ld_att + (size_t)b->g * (size_t)D;
    b->n_last = b->view->n - (j->T - (b->r0 + b->R));
    logits_of(j, b, strip);
    for (int r = 0; r < b->R; r++)
        finish_row(j, b, r, strip + (size_t)r * s->ld_strip);
    for (int r = 0; r < b->R; r++)
        memset(out + (size_t)r * s->ld_att, 0, (size_t)D * sizeof *out);
    for (int p = 0; p * PAGE_SLOTS < b->n_last; p++) {
        const struct kv_values values = values_of(s, b->view, p, b->n_last, 0, D);
        if (touched(b, p))
            k->attn_av(out, s->ld_att, strip + p * PAGE_SLOTS, s->ld_strip, b->R, &values);
    }
    if (s->ghosts)
        ask_ghosts(j, b, out);
}

/* The pages that a query head reads, where there is a choice. */
static void choose_head(const struct session *s, int g, struct block *b)
{
    b->g = g;
    if (s->stepping && s->chosen) {
        b->page = s->page_of_head[b->h];
        b->chosen = s->chosen + (size_t)g * s->ld_chosen;
    }
}

static void head_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    const struct model_config *m = &j->s->e->config;
    int turn = m->n_heads / j->together;
    int g0 = task % turn * j->together, first = task / turn * TASK_ROWS;
    int end = j->T - first < TASK_ROWS ? j->T : first + TASK_ROWS;
    atomic_int *done = &j->s->rows_done[g0];
    struct session *s = j->s;
    int h = g0 / (m->n_heads / s->cache_heads);
    struct cache_head view = cache_view(s->cache, j->layer, h);
    struct block b = {.h = h, .view = &view, .thread = thread};
    while (atomic_load_explicit(done, memory_order_acquire) != first)
        sched_yield();
    for (b.r0 = first; b.r0 < end; b.r0 += QUERY_BLOCK) {
        b.R = end - b.r0 < QUERY_BLOCK ? end - b.r0 : QUERY_BLOCK;
        for (int g = g0; g < g0 + j->together; g++) {
            choose_head(s, g, &b);
            query_block(j, &b);
        }
    }
    atomic_store_explicit(done, end, memory_order_release);
}

/* ---- the one query of a step over long heads */

enum {
    STEP_ENTRIES = 512, /* heads shorter than that are one task per query head */
    STEP_PAGES = 8      /* of a task that computes scores */
};

/* KV heads [h0, h0 + n_kv) of a layer, with `per` query heads each; row g - h0 * per of the strip
 * is that of query head g. */
struct step {
    struct job j;
    int per, h0, n_kv;
    int parts; /* tasks of a KV head */
};

static int longest_head(const struct session *s, int layer)
{
    int most = 0;
    for (int h = 0; h < s->cache_heads; h++) {
        int n = cache_view(s->cache, layer, h).n;
        most = n > most ? n : most;
    }
    return most;
}

/* Whether the rounds give what query_block would: one query that reads all entries as they lie. */
static bool in_rounds(const struct session *s, const struct job *j)
{
    int per = s->e->config.n_heads / s->cache_heads;
    return j->T == 1 && !s->by_rank && !(s->stepping && s->chosen) && !s->ghosts
           && per <= QUERY_BLOCK && longest_head(s, j->layer) >= STEP_ENTRIES;
}

/* Asks for the bytes [from, to) of each of n rows that are read soon: the processor itself looks
 * ahead no further than a page of memory, which half a page of the cache soon leaves. */
static void ask_for(const char *rows, size_t bytes, int n, size_t from, size_t to)
{
    for (int i = 0; i < n; i++)
        for (size_t at = from; at < to; at += 64)
            __builtin_prefetch(rows + (size_t)i * bytes + at, 0, 2);
}

static size_t element_bytes(enum kv_type type)
{
    static const size_t bytes[KV_TYPES] = {[KV_F32] = 4, [KV_F16] = 2, [KV_Q8_0] = 1};
    return bytes[type];
}

static void scores_task(void *ctx, int task, int thread)
{
    const struct step *x = ctx;
    struct session *s = x->j.s;
    const struct model_config *m = &s->e->config;
    size_t D = (size_t)m->head_dim, row = (size_t)(task / x->parts * x->per);
    size_t size = element_bytes(s->kv_type);
    int h = x->h0 + task / x->parts, first = task % x->parts * STEP_PAGES;
    struct cache_head view = cache_view(s->cache, x->j.layer, h);
    const float *q = s->qkv + (size_t)(h * x->per) * D;
    (void)thread;
    for (int p = first; p < first + STEP_PAGES && p * PAGE_SLOTS < view.n; p++) {
        float *at = s->strip + row * s->ld_strip + p * PAGE_SLOTS;
        if (p + 1 < first + STEP_PAGES && (p + 1) * PAGE_SLOTS < view.n)
            ask_for(cache_keys(&view, p + 1), D * PAGE_SLOTS * size, 1, 0, D * PAGE_SLOTS * size);
        s->e->kernels.attn_qk(at, s->ld_strip, q, D, x->per, m->head_dim, cache_keys(&view, p),
                              s->kv_type, m->attn_scale);
        for (int r = 0; m->attn_cap > 0 && r < x->per; r++)
            s->e->kernels.soft_cap(at + (size_t)r * s->ld_strip, PAGE_SLOTS, m->attn_cap);
    }
}

/* The rows of a query head, or where they are compared of those that share a KV head. */
static void rows_task(void *ctx, int task, int thread)
{
    const struct step *x = ctx;
    struct session *s = x->j.s;
    int first = task * x->j.together;
    int h = x->h0 + first / x->per;
    struct cache_head view = cache_view(s->cache, x->j.layer, h);
    struct block b = {.h = h, .R = 1, .view = &view, .n_last = view.n, .thread = thread};
    for (int row = first; row < first + x->j.together; row++) {
        b.g = x->h0 * x->per + row;
        finish_row(&x->j, &b, 0, s->strip + (size_t)row * s->ld_strip);
    }
}

/* Blocks of channels are lines of memory in themselves, so that tasks share none. */
static void values_task(void *ctx, int task, int thread)
{
    const struct step *x = ctx;
    struct session *s = x->j.s;
    int D = s->e->config.head_dim, h = x->h0 + task / x->parts, d0 = task % x->parts * KV_BLOCK;
    int d1 = d0 + KV_BLOCK < D ? d0 + KV_BLOCK : D;
    size_t size = element_bytes(s->kv_type);
    struct cache_head view = cache_view(s->cache, x->j.layer, h);
    const float *rows = s->strip + (size_t)((h - x->h0) * x->per) * s->ld_strip;
    float *out = s->att + (size_t)(h * x->per) * (size_t)D;
    (void)thread;
    for (int g = 0; g < x->per; g++)
        memset(out + g * D + d0, 0, (size_t)(d1 - d0) * sizeof *out);
    for (int p = 0; p * PAGE_SLOTS < view.n; p++) {
        const struct kv_values values = values_of(s, &view, p, view.n, d0, d1);
        if ((p + 1) * PAGE_SLOTS < view.n)
            ask_for(cache_values(s->cache, &view, p + 1), (size_t)D * size, PAGE_SLOTS,
                    (size_t)d0 * size, (size_t)d1 * size);
        s->e->kernels.attn_av(out, (size_t)D, rows + p * PAGE_SLOTS, s->ld_strip, x->per, &values);
    }
}

/* As many KV heads at a time as the strip has rows for. */
static void attend_in_rounds(const struct job *j)
{
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    struct par *pool = s->e->pool;
    struct step x = {.j = *j, .per = m->n_heads / s->cache_heads};
    int at_once = par_threads(pool) * QUERY_BLOCK / x.per;
    int pages = (longest_head(s, j->layer) + PAGE_SLOTS - 1) / PAGE_SLOTS;
    for (; x.h0 < s->cache_heads; x.h0 += x.n_kv) {
        x.n_kv = s->cache_heads - x.h0 < at_once ? s->cache_heads - x.h0 : at_once;
        x.parts = (pages + STEP_PAGES - 1) / STEP_PAGES;
        par_run(pool, x.n_kv * x.parts, scores_task, &x);
        par_run(pool, x.n_kv * x.per / j->together, rows_task, &x);
        x.parts = (m->head_dim + KV_BLOCK - 1) / KV_BLOCK;
        par_run(pool, x.n_kv * x.parts, values_task, &x);
    }
}

int attention(struct session *s, int layer, int T, int pos0)
{
    struct job j = {s, layer, T, pos0, 1};
    int n_heads = s->e->config.n_heads;
    if (recorder_wants(s->recorder) & PROBE_GROUPS)
        j.together = n_heads / s->cache_heads;
    if (in_rounds(s, &j)) {
        attend_in_rounds(&j);
        return KVF_OK;
    }
    for (int g = 0; g < n_heads; g++)
        atomic_store_explicit(&s->rows_done[g], 0, memory_order_relaxed);
    par_run(s->e->pool, n_heads / j.together * ((T + TASK_ROWS - 1) / TASK_ROWS), head_task, &j);
    return KVF_OK;
}

/* attention.c - attention of a chunk over the ragged cache:
 *
 *     a_ti = softmax_i(cap(q_t . k_i scale)),   o_t = sum_i a_ti v_i.
 *
 * scale = 1 / sqrt(D) and cap(x) = x unless the model has other values.
 *
 * A task computes TASK_ROWS queries of one query head. The tasks of a head run in order, so
 * observers receive its rows in order. Threads take tasks of all heads in turn. This balances
 * threads even with few heads, and a task rarely waits for the previous task of its head.
 *
 * The scores of STRIP_ROWS queries are complete rows, so memory is O(T) and all statistics of a row
 * are exact. With pages of integers (q8_0, i16) and without observers, only the scores of one page
 * exist at a time. If a probe compares query heads that share a KV head (PROBE_GROUPS), a task
 * computes all of them, QUERY_BLOCK queries of each head in turn.
 *
 * The single query of a decode step uses attention_step.c if possible. */
#include <string.h>

#include "base/mem.h"
#include "engine/decode/attention.h"

_Static_assert(QUERY_BLOCK <= (int)PROBE_GROUP_ROWS, "what probes hold rows for");

/* Returns true if the first query of the block sees some entry of a page. */
static bool is_left(const struct attn_job *j, const struct attn_block *b, int stored)
{
    const struct cache_head *view = b->view;
    int first = stored * PAGE_SLOTS,
        end = first + PAGE_SLOTS < view->n ? first + PAGE_SLOTS : view->n;
    int32_t t = j->pos0 + b->r0;
    if (view->first_expiry > t || first < view->n_permanent)
        return true;
    for (int i = first; i < end; i++)
        if (view->expires_at[i] > t)
            return true;
    return false;
}

/* Returns true if a query of the block reads some entry of a page. */
static bool touched(const struct attn_job *j, const struct attn_block *b, int stored)
{
    if (!is_left(j, b, stored))
        return false;
    if (b->page == 0)
        return true;
    int first = stored * PAGE_SLOTS / b->page;
    int last = (stored * PAGE_SLOTS + PAGE_SLOTS - 1) / b->page;
    for (int p = first; p <= last && p * b->page < b->n_last; p++)
        if (b->chosen[p])
            return true;
    return false;
}

/* Returns the first row that sees a page, rounded down to the first row of a kernel tile. */
static int first_row(const struct attn_block *b, int stored)
{
    int r = stored * PAGE_SLOTS + b->R - b->n_last;
    return r > 0 ? r - r % KERNEL_ROWS : 0;
}

/* Returns the queries of a block. If the cache has unrotated keys, RoPE is applied at the rank of
 * the query's own entry, as reading.c does for keys. */
static struct query_rows queries_of(const struct attn_job *j, const struct attn_block *b)
{
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    int D = m->head_dim;
    const float *q = s->buf.qkv + (size_t)b->r0 * s->buf.ld_qkv + (size_t)b->g * (size_t)D;
    if (!s->positions_in_cache)
        return query_rows(s, q, s->buf.ld_qkv, b->R, b->thread);
    float *turned = s->parts.scratch + (size_t)b->thread * s->parts.ld_scratch;
    for (int r = 0; r < b->R; r++) {
        int rank = b->view->n - (j->T - (b->r0 + r));
        memcpy(turned + r * D,
               s->parts.unrotated + (size_t)(b->r0 + r) * s->parts.ld_unrotated + b->g * D,
               (size_t)D * sizeof *turned);
        const float *turn = rope_row(s, j->layer, s->reading.rope_table, s->cap, rank);
        if (turn)
            s->e->kernels.rope(turned + r * D, turn, 1, D, m->rope_dim);
    }
    return query_rows(s, turned, (size_t)D, b->R, b->thread);
}

/* Computes the scaled and capped logits of R queries for the keys of a page. */
static void logits_of_page(const struct attn_job *j, const struct attn_block *b,
                           const struct query_rows *q, int page, float *to, size_t ld)
{
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    struct kv_keys k = {.page = cache_keys(b->view, page), .type = s->kv_type};
    if (kv_whole(s->kv_type))
        k.next = cache_values(s->cache, b->view, page);
    int r0 = first_row(b, page);
    if (s->positions_in_cache) {
        size_t slot = (size_t)b->h * s->attn.ld_strip + (size_t)(page * PAGE_SLOTS);
        k = (struct kv_keys){.page = s->reading.rotated_keys + slot * (size_t)m->head_dim,
                             .type = KV_F32};
    }
    to += (size_t)r0 * ld;
    scores_of(s, to, ld, q, r0, b->R - r0, &k);
    for (int r = r0; m->attn_cap > 0 && r < b->R; r++, to += ld)
        s->e->kernels.soft_cap(to, PAGE_SLOTS, m->attn_cap);
}

/* Computes how much each query of the block would attend to evicted entries. out: its attention
 * output. */
static void score_evicted(const struct attn_job *j, const struct attn_block *b, const float *out)
{
    struct session *s = j->s;
    size_t D = (size_t)s->e->config.head_dim;
    for (int r = 0; r < b->R; r++) {
        size_t row = (size_t)(b->r0 + r);
        struct evicted_query q = {.layer = j->layer,
                                  .g = b->g,
                                  .h = b->h,
                                  .t = j->pos0 + b->r0 + r,
                                  .n = b->view->n - (j->T - 1 - (b->r0 + r)),
                                  .view = b->view,
                                  .page = b->page,
                                  .chosen = b->chosen,
                                  .q = s->buf.qkv + row * s->buf.ld_qkv + (size_t)b->g * D,
                                  .out = out + (size_t)r * s->buf.ld_att,
                                  .thread = b->thread};
        evicted_entries_score(s, &q);
    }
}

/* Applies the softmax to rows [r0, r1), at most QUERY_BLOCK rows, and notifies the observers. */
static void finish_rows(const struct attn_job *j, const struct attn_block *b, int r0, int r1,
                        float *strip)
{
    struct session *s = j->s;
    bool gather = recorder_wants(s->observers.recorder) & PROBE_ROWS;
    if (gather)
        recorder_begin_rows(s->observers.recorder, b->thread);
    for (int r = r0; r < r1; r++)
        finish_row(j, b, r, strip + (size_t)r * s->attn.ld_strip);
    if (gather)
        recorder_end_rows(s->observers.recorder, b->thread);
}

static void finish_all(const struct attn_job *j, const struct attn_block *b, float *strip)
{
    for (int r = 0; r < b->R; r += QUERY_BLOCK)
        finish_rows(j, b, r, b->R - r < QUERY_BLOCK ? b->R : r + QUERY_BLOCK, strip);
}

/* Computes complete rows, their softmax, and then the sums of values. */
static void attend_rows(const struct attn_job *j, const struct attn_block *b,
                        const struct query_rows *q, float *strip, float *out)
{
    struct session *s = j->s;
    for (int p = 0; p * PAGE_SLOTS < b->n_last; p++)
        if (touched(j, b, p))
            logits_of_page(j, b, q, p, strip + p * PAGE_SLOTS, s->attn.ld_strip);
    finish_all(j, b, strip);
    for (int r = 0; r < b->R; r++)
        memset(out + (size_t)r * s->buf.ld_att, 0, (size_t)s->e->config.head_dim * sizeof *out);
    for (int p = 0; p * PAGE_SLOTS < b->n_last; p++) {
        const struct kv_values values = values_of(s, b->view, p, b->n_last);
        size_t r0 = (size_t)first_row(b, p);
        if (touched(j, b, p))
            s->e->kernels.attn_av(out + r0 * s->buf.ld_att, s->buf.ld_att,
                                  strip + r0 * s->attn.ld_strip + p * PAGE_SLOTS, s->attn.ld_strip,
                                  b->R - (int)r0, &values);
    }
}

/* Computes the scores of page `p` of integers, in rows ld floats apart, and adds them to the
 * sums. */
static void attend_page(const struct attn_job *j, const struct attn_block *b,
                        const struct query_rows *q, int p, float *scores, size_t ld,
                        const struct attn_sums *all)
{
    struct session *s = j->s;
    int r0 = first_row(b, p), first = b->n_last - (b->R - 1 - r0); /* slots that row r0 sees */
    struct attn_sums rows = {all->out + (size_t)r0 * all->ld, all->ld, all->sum + r0 * ATTN_LANES,
                             all->top + r0};
    struct kv_values values = values_of(s, b->view, p, b->n_last);
    logits_of_page(j, b, q, p, scores, ld);
    for (int r = r0; hides_some(j, b) && r < b->R; r++)
        hide_in_page(j, b, r, p, scores + (size_t)r * ld);
    values.n_slots = first - p * PAGE_SLOTS;
    if ((p + 1) * PAGE_SLOTS < b->n_last)
        values.next = cache_keys(b->view, p + 1);
    s->e->kernels.attn_add(&rows, scores + (size_t)r0 * ld, ld, b->R - r0, 1, &values);
}

/* Adds page after page. Complete rows are kept only for observers. */
static void attend_pages(const struct attn_job *j, const struct attn_block *b,
                         const struct query_rows *q, float *strip, float *out)
{
    struct session *s = j->s;
    _Alignas(64) float scores[PAGE_ROWS * PAGE_SLOTS];
    float sum[PAGE_ROWS * ATTN_LANES], top[PAGE_ROWS];
    const struct attn_sums all = {out, s->buf.ld_att, sum, top};
    sums_begin(&all, b->R, 0, s->e->config.head_dim);
    for (int p = 0; p * PAGE_SLOTS < b->n_last; p++)
        if (touched(j, b, p) && j->watched)
            attend_page(j, b, q, p, strip + p * PAGE_SLOTS, s->attn.ld_strip, &all);
        else if (touched(j, b, p))
            attend_page(j, b, q, p, scores, PAGE_SLOTS, &all);
    const float *sinks = sinks_of(s, j->layer);
    sums_end(&all, b->R, 0, s->e->config.head_dim, sinks ? sinks + b->g : NULL, 0);
    if (j->watched)
        finish_all(j, b, strip);
}

static void query_block(const struct attn_job *j, struct attn_block *b)
{
    struct session *s = j->s;
    float *strip = s->attn.scores + (size_t)b->thread * STRIP_ROWS * s->attn.ld_strip;
    float *out = s->buf.att + (size_t)b->r0 * s->buf.ld_att
                 + (size_t)(b->g * s->e->config.head_dim);
    b->n_last = b->view->n - (j->T - (b->r0 + b->R));
    const struct query_rows q = queries_of(j, b);
    if (kv_whole(s->kv_type))
        attend_pages(j, b, &q, strip, out);
    else
        attend_rows(j, b, &q, strip, out);
    if (s->compare.evicted)
        score_evicted(j, b, out);
}

/* Sets the pages that a query head reads, if there is a choice. */
static void choose_head(const struct session *s, int g, struct attn_block *b)
{
    b->g = g;
    if (s->run.stepping && s->reading.chosen) {
        b->page = s->reading.page_of_head[b->h];
        b->chosen = s->reading.chosen + (size_t)g * s->reading.ld_chosen;
    }
}

static void head_task(void *ctx, int task, int thread)
{
    const struct attn_job *j = ctx;
    const struct model_config *m = &j->s->e->config;
    int turn = m->n_heads / j->heads_per_task;
    int g0 = task % turn * j->heads_per_task, first = task / turn * TASK_ROWS;
    int end = j->T - first < TASK_ROWS ? j->T : first + TASK_ROWS;
    atomic_int *done = &j->s->attn.rows_done[g0];
    struct session *s = j->s;
    int h = g0 / (m->n_heads / s->cache_heads);
    struct cache_head view = cache_view(s->cache, j->layer, h);
    struct attn_block b = {.h = h, .view = &view, .thread = thread};
    par_wait(done, first);
    int block = j->heads_per_task > 1 ? QUERY_BLOCK : STRIP_ROWS;
    if (kv_whole(s->kv_type) && !j->watched)
        block = PAGE_ROWS;
    for (b.r0 = first; b.r0 < end; b.r0 += block) {
        b.R = end - b.r0 < block ? end - b.r0 : block;
        for (int g = g0; g < g0 + j->heads_per_task; g++) {
            choose_head(s, g, &b);
            query_block(j, &b);
        }
    }
    atomic_store_explicit(done, end, memory_order_release);
}

int attention_alloc(struct session *s)
{
    const struct model_config *m = &s->e->config;
    struct attention_buffers *a = &s->attn;
    size_t heads = (size_t)m->n_heads, blocks = heads * (size_t)step_blocks(m);
    a->rows_done = MEM_NEW(atomic_int, heads);
    a->step_rows = MEM_NEW(atomic_int, heads);
    a->step_sums = MEM_NEW(atomic_int, blocks);
    a->step_weights = MEM_NEW(float, blocks *ATTN_LANES);
    a->step_tops = MEM_NEW(float, blocks);
    return a->rows_done && a->step_rows && a->step_sums && a->step_weights && a->step_tops
               ? KVF_OK
               : KVF_E_NOMEM;
}

void attention_free(struct session *s)
{
    mem_free(s->attn.rows_done);
    mem_free(s->attn.step_rows);
    mem_free(s->attn.step_sums);
    mem_free(s->attn.step_weights);
    mem_free(s->attn.step_tops);
}

int attention(struct session *s, int layer, int T, int pos0)
{
    struct attn_job j = {.s = s, .layer = layer, .T = T, .pos0 = pos0, .heads_per_task = 1};
    int n_heads = s->e->config.n_heads;
    if (recorder_wants(s->observers.recorder) & PROBE_GROUPS)
        j.heads_per_task = n_heads / s->cache_heads;
    j.watched = rows_observed(s, pos0, T);
    if (s->positions_in_cache)
        rotate_by_rank(s, layer);
    if (step_reads_all(&j)) {
        attend_step(&j);
        return KVF_OK;
    }
    for (int g = 0; g < n_heads; g++)
        atomic_store_explicit(&s->attn.rows_done[g], 0, memory_order_relaxed);
    par_run(s->e->pool, n_heads / j.heads_per_task * ((T + TASK_ROWS - 1) / TASK_ROWS), head_task,
            &j);
    return KVF_OK;
}

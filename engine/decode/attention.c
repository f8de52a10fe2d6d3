/* attention.c - a_ti = softmax_i(q_t . k_i / sqrt(D)), o_t = sum_i a_ti v_i over
 * the ragged cache.
 *
 * A task is TASK_ROWS queries of one query head; each head's tasks run one after
 * the other, so everything that watches rows (evidence, probes) sees those of a
 * head in order.  Tasks are handed out with all heads in turn: few heads would not
 * divide evenly among threads, and a task hardly ever waits for its predecessor,
 * which was handed out a whole turn before.  The scores of QUERY_BLOCK queries are
 * held as whole rows: O(T) memory, and every statistic of a row is exact. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "engine/decode/session_state.h"

struct job {
    struct session *s;
    int layer, T, pos0;
};

/* Rows [r0, r0 + R) of head g: scores, softmax, watchers.  Returns how many
 * entries the last row sees. */
static int score_rows(const struct job *j, int g, const struct cache_head *view, int r0, int R,
                      float *strip, int thread)
{
    struct session *s = j->s;
    const struct kernels *k = &s->e->kernels;
    const struct model_config *m = &s->e->config;
    int D = m->head_dim, n_last = view->n - (j->T - (r0 + R));
    bool watched = recorder_wants(s->recorder) & PROBE_ROWS;
    float scale = 1.0f / sqrtf((float)D);
    const float *q = s->qkv + (size_t)r0 * s->ld_qkv + (size_t)g * (size_t)D;
    for (int p = 0; p * PAGE_SLOTS < n_last; p++)
        k->attn_qk(strip + p * PAGE_SLOTS, s->ld_strip, q, s->ld_qkv, R, D, cache_keys(view, p),
                   s->kv_type, scale);
    for (int r = 0; r < R; r++) {
        /* the chunk's entries are the newest slots: row r sees all but those after it */
        int n = view->n - (j->T - 1 - (r0 + r));
        float *row = strip + (size_t)r * s->ld_strip;
        float entropy = 0, lse = k->softmax(row, n, watched ? &entropy : NULL);
        memset(row + n, 0, (size_t)(n_last - n) * sizeof *row);
        struct attn_row seen = {j->layer, g, j->pos0 + r0 + r, n, row};
        if (method_wants_row(s->method, seen.t))
            method_row(s->method, &seen);
        if (watched)
            recorder_row(s->recorder, &seen, view, lse, entropy, thread);
    }
    return n_last;
}

static void query_block(const struct job *j, int g, const struct cache_head *view, int r0, int R,
                        int thread)
{
    struct session *s = j->s;
    const struct kernels *k = &s->e->kernels;
    int D = s->e->config.head_dim;
    float *strip = s->strip + (size_t)thread * QUERY_BLOCK * s->ld_strip;
    float *out = s->att + (size_t)r0 * s->ld_att + (size_t)g * (size_t)D;
    int n = score_rows(j, g, view, r0, R, strip, thread);
    for (int r = 0; r < R; r++)
        memset(out + (size_t)r * s->ld_att, 0, (size_t)D * sizeof *out);
    for (int p = 0; p * PAGE_SLOTS < n; p++) {
        int slots = n - p * PAGE_SLOTS < PAGE_SLOTS ? n - p * PAGE_SLOTS : PAGE_SLOTS;
        k->attn_av(out, s->ld_att, strip + p * PAGE_SLOTS, s->ld_strip, R, D,
                   cache_values(s->cache, view, p), s->kv_type, slots);
    }
}

static void head_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    const struct model_config *m = &j->s->e->config;
    int g = task % m->n_heads, first = task / m->n_heads * TASK_ROWS;
    int end = j->T - first < TASK_ROWS ? j->T : first + TASK_ROWS;
    atomic_int *done = &j->s->rows_done[g];
    struct cache_head view = cache_view(j->s->cache, j->layer, g / (m->n_heads / m->n_kv_heads));
    while (atomic_load_explicit(done, memory_order_acquire) != first)
        sched_yield();
    for (int r0 = first; r0 < end; r0 += QUERY_BLOCK)
        query_block(j, g, &view, r0, end - r0 < QUERY_BLOCK ? end - r0 : QUERY_BLOCK, thread);
    atomic_store_explicit(done, end, memory_order_release);
}

void attention(struct session *s, int layer, int T, int pos0)
{
    struct job j = {s, layer, T, pos0};
    int n_heads = s->e->config.n_heads;
    for (int g = 0; g < n_heads; g++)
        atomic_store_explicit(&s->rows_done[g], 0, memory_order_relaxed);
    par_run(s->e->pool, n_heads * ((T + TASK_ROWS - 1) / TASK_ROWS), head_task, &j);
}

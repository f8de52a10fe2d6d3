/* attention_rows.c - attention rows: products with pages, masks, softmax, and their observers. */
#include <math.h>
#include <string.h>

#include "engine/decode/attention.h"

#define LOG2_E 1.4426950408889634

struct query_rows query_rows(const struct session *s, const float *q, size_t ld, int rows,
                             int thread)
{
    int D = s->e->config.head_dim;
    float *scratch = s->parts.scratch + (size_t)thread * s->parts.ld_scratch;
    size_t blocks = kv_blocks(D), room = PAGE_ROWS * kv_channels(KV_Q8_0, D) / sizeof(float);
    struct query_rows x = {.q = q, .ld = ld};
    if (!kv_whole(s->kv_type) || s->positions_in_cache)
        return x;
    if (s->kv_type == KV_I16)
        room = PAGE_ROWS * kv_channels(KV_I16, D) / 2;
    x.ints.type = s->kv_type;
    x.ints.q = scratch;
    x.ints.scale = scratch + room;
    x.ints.sum = (int32_t *)(void *)(x.ints.scale + PAGE_ROWS * blocks);
    s->e->kernels.attn_queries(&x.ints, q, ld, rows, D);
    return x;
}

/* Returns the queries from row r on. */
static struct kv_queries queries_from(const struct kv_queries *q, size_t r, int D)
{
    size_t width = q->type == KV_I16 ? 2 : 1, blocks = q->type == KV_I16 ? 1 : kv_blocks(D);
    return (struct kv_queries){
        .type = q->type,
        .q = (unsigned char *)q->q + r * kv_channels(q->type, D) * width,
        .scale = q->scale + r * blocks,
        .sum = q->sum + r * blocks,
    };
}

void scores_of(const struct session *s, float *out, size_t ld, const struct query_rows *q, int r0,
               int rows, const struct kv_keys *k)
{
    const struct model_config *m = &s->e->config;
    size_t r = (size_t)r0;
    if (!kv_whole(k->type)) {
        s->e->kernels.attn_qk(out, ld, q->q + r * q->ld, q->ld, rows, m->head_dim, k,
                              m->attn_scale);
        return;
    }
    const struct kv_queries ints = queries_from(&q->ints, r, m->head_dim);
    s->e->kernels.attn_scores(out, ld, &ints, rows, m->head_dim, k, m->attn_scale);
}

/* Masks the slots of a row that query t does not see: expired entries and pages that it does not
 * read. Sets visible[n]. Returns the number of visible slots. */
static int hide(const struct attn_block *b, int32_t t, int n, float *row, unsigned char *visible)
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

void hide_in_page(const struct attn_job *j, const struct attn_block *b, int r, int page,
                  float *scores)
{
    int first = page * PAGE_SLOTS, n = b->view->n - (j->T - 1 - (b->r0 + r)) - first;
    int32_t t = j->pos0 + b->r0 + r;
    for (int i = 0; i < n && i < PAGE_SLOTS; i++)
        if (!slot_seen(b->view, b->page, b->chosen, first + i, t))
            scores[i] = -INFINITY;
}

void sums_begin(const struct attn_sums *to, int rows, int d0, int d1)
{
    for (int r = 0; r < rows; r++) {
        memset(to->out + (size_t)r * to->ld + d0, 0, (size_t)(d1 - d0) * sizeof *to->out);
        memset(to->sum + r * ATTN_LANES, 0, ATTN_LANES * sizeof *to->sum);
        to->top[r] = ATTN_LEAST;
    }
}

void sums_end(const struct attn_sums *to, int rows, int d0, int d1, const float *sink, int next)
{
    for (int r = 0; r < rows; r++) {
        float *out = to->out + (size_t)r * to->ld, *sum = to->sum + r * ATTN_LANES;
        for (int n = ATTN_LANES / 2; n > 0; n /= 2)
            for (int i = 0; i < n; i++)
                sum[i] += sum[n + i];
        float inverse = 1 / sum[0];
        if (sink)
            inverse = (float)(1
                              / ((double)sum[0]
                                 + exp2((double)sink[r * next] * LOG2_E - (double)to->top[r])));
        for (int d = d0; d < d1; d++)
            out[d] *= inverse;
    }
}

/* Rescales the weights of a row for the sink of its head. Their sum is then less than 1. */
static void add_sink(struct attn_row *seen, float *row, float sink, float *entropy)
{
    double more = exp((double)sink - (double)seen->lse), kept = 1 / (1 + more);
    for (int i = 0; i < seen->n; i++)
        row[i] = (float)((double)row[i] * kept);
    *entropy = (float)(kept > 0 ? kept * ((double)*entropy - log(kept)) : 0);
    seen->lse = (float)((double)seen->lse + log1p(more));
}

void notify_row(struct session *s, const struct attn_row *row, const struct cache_head *view,
                float entropy, int thread)
{
    if (s->compare.oracle)
        method_full_row(s->compare.oracle, row);
    watch_row(s, row);
    if (recorder_wants(s->observers.recorder) & PROBE_ROWS)
        recorder_row(s->observers.recorder, row, view, row->lse, entropy, thread);
}

void finish_row(const struct attn_job *j, const struct attn_block *b, int r, float *row)
{
    struct session *s = j->s;
    bool watched = recorder_wants(s->observers.recorder) & PROBE_ROWS;
    /* the chunk's entries are the newest slots; row r does not see later ones */
    int n = b->view->n - (j->T - 1 - (b->r0 + r));
    struct attn_row seen = {.layer = j->layer,
                            .head = b->g,
                            .t = j->pos0 + b->r0 + r,
                            .n = n,
                            .seen = n,
                            .stepping = s->run.stepping,
                            .p = row};
    if (b->page || b->view->first_expiry <= seen.t) {
        unsigned char *visible = s->parts.visible + (size_t)b->thread * s->attn.ld_strip;
        seen.seen = hide(b, seen.t, n, row, visible);
        seen.visible = visible;
    }
    float entropy = 0;
    seen.lse = s->e->kernels.softmax(row, n, watched ? &entropy : NULL);
    if (sinks_of(s, j->layer))
        add_sink(&seen, row, sinks_of(s, j->layer)[b->g], &entropy);
    memset(row + n, 0, (size_t)(b->n_last - n) * sizeof *row);
    notify_row(s, &seen, b->view, entropy, b->thread);
}

struct kv_values values_of(const struct session *s, const struct cache_head *view, int page, int n)
{
    int left = n - page * PAGE_SLOTS, D = s->e->config.head_dim;
    return (struct kv_values){.page = cache_values(s->cache, view, page),
                              .type = s->kv_type,
                              .D = D,
                              .d1 = D,
                              .n_slots = left < PAGE_SLOTS ? left : PAGE_SLOTS};
}

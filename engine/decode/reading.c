/* reading.c - prepares attention of each KV head: RoPE by cache rank (positions=cache), and the
 * selection of the pages that queries after the prompt read. */
#include "engine/decode/session_state.h"

struct job {
    struct session *s;
    int layer;
};

/* Applies RoPE at rank r to the r-th oldest key. Pages are channel-major, as in the cache. */
static void rotate_task(void *ctx, int h, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    struct cache_head view = cache_view(s->cache, j->layer, h);
    size_t D = (size_t)m->head_dim;
    float *out = s->rotated_keys + (size_t)h * s->ld_strip * D;
    float *key = s->scratch_per_thread + (size_t)thread * s->ld_scratch;
    for (int r = 0; r < view.n; r++) {
        size_t slot = (size_t)view.order[r];
        float *page = out + slot / PAGE_SLOTS * PAGE_SLOTS * D;
        cache_key(s->cache, j->layer, h, (int)slot, key);
        const float *turn = rope_row(s, j->layer, s->rope_table, s->cap, r);
        if (turn)
            s->e->kernels.rope(key, turn, 1, m->head_dim, m->rope_dim);
        for (size_t d = 0; d < D; d++)
            page[d * PAGE_SLOTS + slot % PAGE_SLOTS] = key[d];
    }
}

void rotate_by_rank(struct session *s, int layer)
{
    struct job j = {s, layer};
    par_run(s->e->pool, s->cache_heads, rotate_task, &j);
}

static void choose_task(void *ctx, int h, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    int per = m->n_heads / s->cache_heads;
    size_t at = (size_t)(h * per) * (size_t)m->head_dim;
    s->page_of_head[h] = 0;
    if (!method_reads_pages(s->method, j->layer, h))
        return;
    struct read_input in = {.m = s->method,
                            .cache = s->cache,
                            .kernels = &s->e->kernels,
                            .layer = j->layer,
                            .head = h,
                            .view = cache_view(s->cache, j->layer, h),
                            .t = s->n_past,
                            .kv_type = s->kv_type,
                            .q = s->qkv + at,
                            .q_pre = s->qk_unrotated + at,
                            .n_q = per};
    s->page_of_head[h] = method_read(&in, s->chosen + (size_t)(h * per) * s->ld_chosen,
                                     s->ld_chosen,
                                     s->scratch_per_thread + (size_t)thread * s->ld_scratch);
}

void choose_pages(struct session *s, int layer)
{
    struct job j = {s, layer};
    par_run(s->e->pool, s->cache_heads, choose_task, &j);
}

/* Returns the number of entries in the selected pages, of n cached entries. */
static int64_t read_of(const unsigned char *chosen, int page, int n)
{
    int64_t sum = 0;
    for (int b = 0; (int64_t)b * page < n; b++) {
        int left = n - b * page;
        if (chosen[b])
            sum += left < page ? left : page;
    }
    return sum;
}

void count_reads(struct session *s, int layer)
{
    int per = s->e->config.n_heads / s->cache_heads;
    for (int h = 0; h < s->cache_heads; h++) {
        int n = cache_view(s->cache, layer, h).n, page = s->chosen ? s->page_of_head[h] : 0;
        for (int g = h * per; g < (h + 1) * per; g++)
            s->reads += page ? read_of(s->chosen + (size_t)g * s->ld_chosen, page, n) : n;
    }
}

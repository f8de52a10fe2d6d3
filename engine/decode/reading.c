/* reading.c - prepares attention of each KV head: RoPE by cache rank (positions=cache), and the
 * selection of the pages that queries after the prompt read. */
#include "base/mem.h"
#include "engine/decode/session_state.h"

/* Allocates and fills cos and sin of position * theta_j for every position. */
static int alloc_turns(struct session *s)
{
    const struct model_config *m = &s->e->config;
    s->reading.rope_table = mem_alloc(2 * (size_t)s->cap, (size_t)m->rope_dim * sizeof(float));
    if (!s->reading.rope_table)
        return KVF_E_NOMEM;
    for (int t = 0; t < s->cap; t++)
        rope_fill(s, s->reading.rope_table, s->cap, t, t);
    return KVF_OK;
}

int reading_alloc(struct session *s, bool pages)
{
    struct reading_buffers *r = &s->reading;
    if (pages) {
        r->ld_chosen = (size_t)s->cap;
        r->chosen = mem_alloc((size_t)s->e->config.n_heads, r->ld_chosen);
        r->page_of_head = MEM_NEW(int, (size_t)s->cache_heads);
        if (!r->chosen || !r->page_of_head)
            return KVF_E_NOMEM;
    }
    return s->positions_in_cache ? alloc_turns(s) : KVF_OK;
}

void reading_free(struct session *s)
{
    mem_free(s->reading.rope_table);
    mem_free(s->reading.chosen);
    mem_free(s->reading.page_of_head);
    s->reading.rope_table = NULL;
    s->reading.chosen = NULL;
    s->reading.page_of_head = NULL;
}

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
    float *out = s->reading.rotated_keys + (size_t)h * s->attn.ld_strip * D;
    float *key = s->parts.scratch + (size_t)thread * s->parts.ld_scratch;
    for (int r = 0; r < view.n; r++) {
        size_t slot = (size_t)view.order[r];
        float *page = out + slot / PAGE_SLOTS * PAGE_SLOTS * D;
        cache_key(s->cache, j->layer, h, (int)slot, key);
        const float *turn = rope_row(s, j->layer, s->reading.rope_table, s->cap, r);
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
    s->reading.page_of_head[h] = 0;
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
                            .q = s->buf.qkv + at,
                            .q_pre = s->parts.unrotated + at,
                            .n_q = per};
    s->reading.page_of_head[h] = method_read(
        &in, s->reading.chosen + (size_t)(h * per) * s->reading.ld_chosen, s->reading.ld_chosen,
        s->parts.scratch + (size_t)thread * s->parts.ld_scratch);
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

void count_reads(struct session *s, int layer, int T)
{
    int per = s->e->config.n_heads / s->cache_heads;
    for (int h = 0; h < s->cache_heads; h++) {
        int n = cache_view(s->cache, layer, h).n,
            page = s->reading.chosen ? s->reading.page_of_head[h] : 0;
        for (int g = h * per; g < (h + 1) * per; g++) {
            int64_t all = (int64_t)T * n - (int64_t)T * (T - 1) / 2, read = all;
            if (page)
                read = read_of(s->reading.chosen + (size_t)g * s->reading.ld_chosen, page, n);
            s->count.reads += read;
            s->count.unread += all - read;
        }
    }
}

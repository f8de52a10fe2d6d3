/* page_positions.c - updates the pages of a mirror between two prefill chunks with evictions.
 *
 * The device already has all entries, but in the slots of before the evictions. An entry is
 * identified by its position: this finds its slot on the device. Changed pages are rebuilt on the
 * device from the old pages, which are then returned to the pool. */
#include <string.h>

#include "base/mem.h"
#include "engine/device/device.h"

enum { JOB = 1 + PAGE_SLOTS }; /* numbers per page in the input of gpu_join_entries */

static int pages_for(int n)
{
    return (n + PAGE_SLOTS - 1) / PAGE_SLOTS;
}

static int all_heads(const struct session *s)
{
    return s->cache_heads * s->e->config.n_layers;
}

static struct cache_head view_of(const struct session *s, int at)
{
    return cache_view(s->cache, at / s->cache_heads, at % s->cache_heads);
}

void page_positions_close(struct device_session *m)
{
    struct page_positions *f = &m->page_positions;
    mem_free(f->pos);
    mem_free(f->n);
    mem_free(f->first);
    mem_free(f->job);
    gpu_unpin(m->gpu, f->list);
    gpu_free(m->gpu, f->d_list);
    *f = (struct page_positions){.valid = false};
}

static int open_follow(struct session *s)
{
    struct page_positions *f = &((struct device_session *)s->device_state)->page_positions;
    size_t heads = (size_t)all_heads(s);
    if (f->job)
        return KVF_OK;
    mem_free(f->pos);
    mem_free(f->n);
    mem_free(f->first);
    f->pos = mem_alloc(heads, s->attn.ld_strip * sizeof *f->pos);
    f->n = MEM_NEW(int32_t, heads);
    f->first = MEM_NEW(int32_t, heads);
    f->job = MEM_NEW(int32_t, heads + 1);
    return f->pos && f->n && f->first && f->job ? KVF_OK : KVF_E_NOMEM;
}

static int hold_list(struct device_session *m, int jobs)
{
    struct page_positions *f = &m->page_positions;
    if (jobs <= f->cap)
        return KVF_OK;
    gpu_unpin(m->gpu, f->list);
    gpu_free(m->gpu, f->d_list);
    f->cap = jobs + jobs / 2;
    f->list = gpu_pin(m->gpu, (size_t)f->cap, JOB * sizeof *f->list);
    f->d_list = gpu_alloc(m->gpu, (size_t)f->cap, JOB * sizeof *f->list);
    if (f->list && f->d_list)
        return KVF_OK;
    f->cap = 0;
    return KVF_E_NOMEM;
}

/* Finds the first page of a head that the host has written since the last update, or the number of
 * its pages. */
static void look_task(void *ctx, int at, int thread)
{
    struct session *s = ctx;
    struct page_positions *f = &((struct device_session *)s->device_state)->page_positions;
    int pages = pages_for(view_of(s, at).n);
    (void)thread;
    f->first[at] = pages;
    for (int p = pages - 1; p >= 0; p--)
        if (cache_take_dirty(s->cache, at / s->cache_heads, at % s->cache_heads, p))
            f->first[at] = p;
}

/* Finds the slots on the device of the entries in a head's changed pages. Returns false if some are
 * missing or their order in time differs. */
static bool find_entries(const struct session *s, int at, int32_t *job)
{
    const struct device_session *m = s->device_state;
    const struct page_positions *f = &m->page_positions;
    const int32_t *table = m->pages.table + (size_t)at * (size_t)m->pages.ld_table;
    const int32_t *old = f->pos + (size_t)at * s->attn.ld_strip;
    struct cache_head view = view_of(s, at);
    int from = f->first[at] * PAGE_SLOTS, end = pages_for(view.n) * PAGE_SLOTS, j = from;
    for (int i = from; i < end; i++) {
        int32_t *slot = &job[(i - from) / PAGE_SLOTS * JOB + 1 + i % PAGE_SLOTS];
        *slot = -1;
        if (i >= view.n)
            continue;
        while (j < f->n[at] && old[j] < view.pos[i])
            j++;
        if (j == f->n[at] || old[j] != view.pos[i])
            return false;
        *slot = table[j / PAGE_SLOTS] * PAGE_SLOTS + j % PAGE_SLOTS;
    }
    return true;
}

static void find_task(void *ctx, int at, int thread)
{
    struct session *s = ctx;
    struct page_positions *f = &((struct device_session *)s->device_state)->page_positions;
    int32_t *job = f->list + (size_t)f->job[at] * JOB;
    int n = f->job[at + 1] - f->job[at];
    bool found = n > 0 && find_entries(s, at, job);
    (void)thread;
    for (int i = 0; i < n; i++)
        job[(size_t)i * JOB] = found ? 0 : -1;
}

/* Takes a page from the pool for each page to rebuild. */
static int take_pages(struct session *s)
{
    struct device_session *m = s->device_state;
    struct page_positions *f = &m->page_positions;
    int err = KVF_OK;
    for (int i = 0; !err && i < f->job[all_heads(s)]; i++) {
        int32_t *to = &f->list[(size_t)i * JOB];
        if (*to >= 0)
            err = device_alloc_page(s, to);
    }
    return err;
}

/* Replaces the rebuilt pages in a head's table and uploads pages that could not be rebuilt. */
static void change_pages(struct session *s, int at)
{
    struct device_session *m = s->device_state;
    const struct page_positions *f = &m->page_positions;
    int32_t *table = m->pages.table + (size_t)at * (size_t)m->pages.ld_table;
    struct cache_head view = view_of(s, at);
    for (int i = f->job[at], p = f->first[at]; i < f->job[at + 1]; i++, p++) {
        int32_t to = f->list[(size_t)i * JOB];
        if (to >= 0) {
            m->pages.free[m->pages.n_free++] = table[p];
            table[p] = to;
        } else {
            gpu_put(m->gpu, m->pages.pool + (size_t)table[p] * m->pages.page_bytes,
                    cache_keys(&view, p), m->pages.page_bytes);
        }
    }
    if (f->job[at + 1] > f->job[at])
        device_pages_changed(m, at, at + 1);
}

static int move_entries(struct session *s)
{
    struct device_session *m = s->device_state;
    struct page_positions *f = &m->page_positions;
    int heads = all_heads(s), jobs;
    par_run(s->e->pool, heads, look_task, s);
    for (int at = 0; at < heads; at++)
        f->job[at + 1] = f->job[at] + pages_for(view_of(s, at).n) - f->first[at];
    jobs = f->job[heads];
    int err = hold_list(m, jobs);
    if (err || jobs == 0)
        return err;
    par_run(s->e->pool, heads, find_task, s);
    err = take_pages(s);
    if (err)
        return err;
    gpu_put(m->gpu, f->d_list, f->list, (size_t)jobs * JOB * sizeof *f->list);
    gpu_join_entries(m->gpu, m->pages.pool, s->kv_type, s->e->config.head_dim, f->d_list, jobs);
    for (int at = 0; at < heads; at++)
        change_pages(s, at);
    return KVF_OK;
}

int device_pages_sync(struct session *s)
{
    struct device_session *m = s->device_state;
    struct page_positions *f = &m->page_positions;
    bool leave = method_expires(s->method) || method_params_of(s->method)->chunk > 0;
    int err = leave ? open_follow(s) : KVF_OK;
    if (!err && f->valid)
        err = move_entries(s);
    for (int at = 0; !err && at < all_heads(s); at++)
        err = device_set_page_count(s, at, pages_for(view_of(s, at).n));
    return err || f->valid ? err : device_upload_pages(s, 0, all_heads(s));
}

void device_pages_appended(struct session *s, int T)
{
    struct device_session *m = s->device_state;
    struct page_positions *f = &m->page_positions;
    for (int at = 0; f->pos && at < all_heads(s); at++) {
        struct cache_head view = view_of(s, at);
        int32_t *pos = f->pos + (size_t)at * s->attn.ld_strip;
        int from = f->valid ? f->first[at] * PAGE_SLOTS : 0;
        if (from < view.n)
            memcpy(pos + from, view.pos + from, (size_t)(view.n - from) * sizeof *pos);
        for (int t = 0; t < T; t++)
            pos[view.n + t] = s->n_past + t;
        f->n[at] = view.n + T;
    }
    f->valid = f->pos != NULL;
}

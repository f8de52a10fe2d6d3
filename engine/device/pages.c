/* pages.c - the KV pages on a device, kept equal to the host's pages by page-wise uploads. */
#include <string.h>

#include "base/mem.h"
#include "engine/device/device.h"

enum { LEAST_PAGES = 256 };

/* Moves the pool to an allocation of `pages` pages. */
static int grow_pool(struct session *s, int32_t pages)
{
    struct device_session *m = s->device_state;
    int32_t *list = mem_grow(m->pages.free, (size_t)m->pages.n_free, (size_t)pages, sizeof *list);
    if (!list)
        return KVF_E_NOMEM;
    m->pages.free = list;
    unsigned char *pool = gpu_alloc(m->gpu, (size_t)pages, m->pages.page_bytes);
    if (!pool)
        return gpu_no_room(m->gpu, &s->e->error,
                           "the device has no room for %d pages of %zu bytes of the cache: take a "
                           "smaller budget or context, fewer probes, or --device cpu",
                           pages, m->pages.page_bytes);
    if (m->pages.n)
        gpu_copy(m->gpu, pool, m->pages.pool, (size_t)m->pages.n * m->pages.page_bytes);
    int err = gpu_wait(m->gpu, &s->e->error);
    gpu_free(m->gpu, m->pages.pool);
    m->pages.pool = pool;
    m->pages.n = pages;
    return err;
}

void device_pages_changed(struct device_session *m, int first, int end)
{
    bool none = m->pages.changed == m->pages.changed_end;
    m->pages.changed = none || first < m->pages.changed ? first : m->pages.changed;
    m->pages.changed_end = none || end > m->pages.changed_end ? end : m->pages.changed_end;
}

int device_alloc_page(struct session *s, int32_t *ret_page)
{
    struct device_session *m = s->device_state;
    if (m->pages.n_free == 0 && m->pages.used == m->pages.n) {
        int err = grow_pool(s, m->pages.n ? 2 * m->pages.n : LEAST_PAGES);
        if (err)
            return err;
    }
    *ret_page = m->pages.n_free > 0 ? m->pages.free[--m->pages.n_free] : m->pages.used++;
    return KVF_OK;
}

int device_set_page_count(struct session *s, int at, int n_pages)
{
    struct device_session *m = s->device_state;
    int32_t *table = m->pages.table + (size_t)at * (size_t)m->pages.ld_table;
    if (m->pages.n_pages[at] != n_pages)
        device_pages_changed(m, at, at + 1);
    while (m->pages.n_pages[at] > n_pages)
        m->pages.free[m->pages.n_free++] = table[--m->pages.n_pages[at]];
    while (m->pages.n_pages[at] < n_pages) {
        int err = device_alloc_page(s, &table[m->pages.n_pages[at]]);
        if (err)
            return err;
        m->pages.n_pages[at]++;
    }
    return KVF_OK;
}

void device_reserve_pages(struct session *s, size_t n_pages)
{
    const struct device_session *m = s->device_state;
    if (n_pages > (size_t)m->pages.n && n_pages > LEAST_PAGES && n_pages < INT32_MAX)
        (void)grow_pool(s, (int32_t)n_pages); /* a session that needs fewer pages can still run */
}

/* ---- uploads of pages */

enum { POST_BYTES = 8 << 20, POST_PAGES = 1 << 10 }; /* limits of a half */

static int pages_of_half(const struct device_session *m)
{
    size_t n = POST_BYTES / m->pages.page_bytes;
    return n < POST_PAGES ? (int)n : POST_PAGES;
}

/* The half that is being filled. */
struct filling {
    struct session *s;
    struct page_upload *post;
    unsigned char *page;
    int32_t *where;
    int n;
};

static int open_post(struct session *s, struct page_upload *p)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    if (p->page)
        return KVF_OK;
    p->page = gpu_pin(g, 2, POST_BYTES);
    p->where = gpu_pin(g, 2, POST_PAGES * sizeof *p->where);
    p->from = mem_alloc(POST_PAGES, sizeof *p->from);
    p->waits = -1;
    if (p->page && p->where && p->from)
        return KVF_OK;
    device_uploads_close(g, p);
    return gpu_no_room(g, &s->e->error, "there is no room to send pages to the device");
}

void device_uploads_close(struct gpu *g, struct page_upload *p)
{
    gpu_unpin(g, p->page);
    gpu_unpin(g, p->where);
    mem_free(p->from);
    *p = (struct page_upload){.page = NULL};
}

static void copy_task(void *ctx, int i, int thread)
{
    const struct filling *f = ctx;
    size_t bytes = ((const struct device_session *)f->s->device_state)->pages.page_bytes;
    (void)thread;
    memcpy(f->page + (size_t)i * bytes, f->post->from[i], bytes);
}

static void start_half(struct filling *f)
{
    f->page = f->post->page + (size_t)f->post->half * POST_BYTES;
    f->where = f->post->where + f->post->half * POST_PAGES;
    f->n = 0;
}

/* Starts the upload of the filled half. If the second half can still be in use, it waits first.
 * Then fills continue in the second half. */
static int send_half(struct filling *f)
{
    struct session *s = f->s;
    struct device_session *m = s->device_state;
    int err = KVF_OK;
    if (f->n == 0)
        return KVF_OK;
    par_run(session_pool(s), f->n, copy_task, f);
    if (f->post->waits == gpu_waits(m->gpu))
        err = gpu_wait(m->gpu, &s->e->error);
    gpu_pages_in(m->gpu, m->pages.pool, m->pages.page_bytes, f->where, f->page, f->n);
    f->post->waits = gpu_waits(m->gpu);
    f->post->half = 1 - f->post->half;
    start_half(f);
    return err;
}

int device_upload_pages(struct session *s, int first, int end)
{
    struct device_session *m = s->device_state;
    struct device_weights *w = s->e->device;
    struct filling f = {.s = s, .post = &w->uploads};
    int H = s->cache_heads, most = pages_of_half(m), err = open_post(s, f.post);
    if (!err)
        start_half(&f);
    for (int at = first; !err && at < end; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        const int32_t *table = m->pages.table + (size_t)at * (size_t)m->pages.ld_table;
        for (int p = 0; !err && p * PAGE_SLOTS < view.n; p++) {
            if (!cache_take_dirty(s->cache, at / H, at % H, p))
                continue;
            f.post->from[f.n] = cache_keys(&view, p);
            f.where[f.n++] = table[p];
            if (f.n == most)
                err = send_half(&f);
        }
    }
    return err ? err : send_half(&f);
}

/* Uploads the positions of entries for probes. Returns false if no probe needs them or each entry
 * is in the slot of its position. */
static bool put_positions(struct session *s, int layer)
{
    struct device_session *m = s->device_state;
    int H = s->cache_heads;
    bool plain = true;
    for (int h = 0; m->layer.d_pos && h < H; h++) {
        struct cache_head view = cache_view(s->cache, layer, h);
        if (view.n > 0)
            memcpy(m->layer.pos + (size_t)h * s->attn.ld_strip, view.pos,
                   (size_t)view.n * sizeof *view.pos);
        plain &= view.plain;
    }
    if (!plain)
        gpu_put(m->gpu, m->layer.d_pos, m->layer.pos,
                (size_t)H * s->attn.ld_strip * sizeof *m->layer.pos);
    return !plain;
}

int device_session_layer(struct session *s, int layer, int T, int pos0, struct gpu_cache *ret_cache)
{
    struct device_session *m = s->device_state;
    int H = s->cache_heads, ld_slot = (int)s->attn.ld_strip, most = 0;
    bool leaves = false;
    device_pages_invalidate(m);
    for (int h = 0; h < H; h++) {
        struct cache_head view = cache_view(s->cache, layer, h);
        int err = device_set_page_count(s, layer * H + h, (view.n + PAGE_SLOTS - 1) / PAGE_SLOTS);
        if (err)
            return err;
        most = view.n > most ? view.n : most;
        leaves |= view.first_expiry < pos0 + T;
        m->layer.n[h] = view.n;
    }
    int err = device_upload_pages(s, layer * H, (layer + 1) * H);
    if (err)
        return err;
    for (int h = 0; leaves && h < H; h++) {
        struct cache_head view = cache_view(s->cache, layer, h);
        if (view.n > 0)
            memcpy(m->layer.until + (size_t)h * (size_t)ld_slot, view.expires_at,
                   (size_t)view.n * sizeof *view.expires_at);
    }
    bool moved = put_positions(s, layer);
    size_t table = (size_t)H * (size_t)m->pages.ld_table;
    gpu_put(m->gpu, m->layer.d_table, m->pages.table + (size_t)layer * table,
            table * sizeof *m->pages.table);
    if (leaves)
        gpu_put(m->gpu, m->layer.d_until, m->layer.until,
                (size_t)H * (size_t)ld_slot * sizeof *m->layer.until);
    *ret_cache = (struct gpu_cache){.pool = m->pages.pool,
                                    .type = s->kv_type,
                                    .heads = H,
                                    .D = s->e->config.head_dim,
                                    .table = m->layer.d_table,
                                    .n = m->layer.d_n,
                                    .pos = moved ? m->layer.d_pos : NULL,
                                    .until = leaves ? m->layer.d_until : NULL,
                                    .ld_table = m->pages.ld_table,
                                    .ld_slot = ld_slot,
                                    .most = most};
    return KVF_OK;
}

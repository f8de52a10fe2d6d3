/* evidence.c - the device memory of decode steps, the upload of cache and evidence, and the copy of
 * evidence back to the host. */
#include <string.h>

#include "base/mem.h"
#include "engine/device/probes.h"
#include "engine/device/decode.h"

/* Lists the arrays with a number for each head or each entry. */
static void add_heads(struct session *s, struct device_decode *r, struct buffer_list *a)
{
    size_t n = (size_t)s->cache_heads * (size_t)s->e->config.n_layers, ld = (size_t)r->ld;
    struct gpu_heads *h = &r->heads;
    buffers_add(a, &h->n, n, sizeof *h->n);
    buffers_add(a, &h->gap, n, sizeof *h->gap);
    buffers_add(a, &h->hole, n, sizeof *h->hole);
    buffers_add(a, &h->slot, n, sizeof *h->slot);
    buffers_add(a, &h->order, n * ld, sizeof *h->order);
    buffers_add(a, &h->renamed, n * ld, sizeof *h->renamed);
    buffers_add(a, &h->mark, n * ld, sizeof *h->mark);
    buffers_add(a, &h->cache.pos, n * ld, sizeof *h->cache.pos);
    buffers_add(a, &h->cache.table,
                n * (size_t)((struct device_session *)s->device_state)->pages.ld_table,
                sizeof *h->cache.table);
}

static void add_evidence(struct session *s, struct device_decode *r, struct buffer_list *a)
{
    const struct device_evidence e = device_evidence(s->method, s->cache);
    size_t n = (size_t)s->cache_heads * (size_t)s->e->config.n_layers, ld = (size_t)r->ld;
    size_t Q = (size_t)s->e->config.n_heads * (size_t)s->e->config.n_layers;
    size_t rows = Q * (size_t)e.ring, D = (size_t)s->e->config.head_dim;
    if (e.sum)
        buffers_add(a, &r->evidence.sum, Q * ld, sizeof *r->evidence.sum);
    if (e.norms)
        buffers_add(a, &r->evidence.norms, n * ld, sizeof *r->evidence.norms);
    if (e.gate)
        buffers_add(a, &r->evidence.gate, n * ld, sizeof *r->evidence.gate);
    if (e.values)
        buffers_add(a, &r->evidence.values, n * ld, sizeof *r->evidence.values);
    if (e.query_sum) {
        buffers_add(a, &r->evidence.query_sum, Q * D, sizeof *r->evidence.query_sum);
        buffers_add(a, &r->evidence.query_outer, Q * D * D, sizeof *r->evidence.query_outer);
    }
    if (e.history)
        buffers_add(a, &r->evidence.history, n * ld, sizeof *r->evidence.history);
    if (e.anchor)
        buffers_add(a, &r->evidence.anchor, n * D, sizeof *r->evidence.anchor);
    if (!e.rows)
        return;
    buffers_add(a, &r->evidence.window.rows, rows * ld, sizeof *r->evidence.window.rows);
    buffers_add(a, &r->evidence.window.row_t, (size_t)e.ring, sizeof *r->evidence.window.row_t);
    buffers_add(a, &r->evidence.window.row_n, rows, sizeof *r->evidence.window.row_n);
    buffers_add(a, &r->evidence.window.row_lse, rows, sizeof *r->evidence.window.row_lse);
}

int buffers_alloc(struct gpu *g, const struct buffer_list *a, struct buffers_owned *owned)
{
    for (int i = 0; i < a->n; i++) {
        size_t n = a->of[i].n, size = a->of[i].size;
        bool pinned = a->of[i].pinned;
        void *p = pinned ? gpu_pin(g, n, size) : gpu_alloc(g, n, size);
        if (!p)
            return KVF_E_NOMEM;
        set_pointer(a->of[i].at, p);
        owned->of[owned->n++] = (struct device_array){p, pinned};
    }
    return KVF_OK;
}

void buffers_free(struct gpu *g, struct buffers_owned *owned)
{
    while (owned->n > 0) {
        owned->n--;
        (owned->of[owned->n].pinned ? gpu_unpin : gpu_free)(g, owned->of[owned->n].p);
    }
}

static void free_arrays(struct gpu *g, struct device_decode *r)
{
    buffers_free(g, &r->owned);
    eviction_free(g, &r->evict);
    memset(r, 0, sizeof *r);
}

void device_decode_free(struct device_session *m)
{
    if (m->decode)
        free_arrays(m->gpu, m->decode);
    mem_free(m->decode);
    m->decode = NULL;
}

static bool want_rows(const struct session *s)
{
    return s->observers.on_row || recorder_wants(s->observers.recorder) & PROBE_ROWS;
}

bool step_keeps_rows(const struct session *s)
{
    return s->e->exact || want_rows(s) || device_probes_any(s)
           || method_evidence(s->method) & EVIDENCE_OF_ROWS;
}

/* Lists the columns that move with their entries. */
static void list_columns(struct session *s, struct device_decode *r)
{
    struct gpu_heads *h = &r->heads;
    int per = s->e->config.n_heads / s->cache_heads;
    const struct gpu_column all[] = {
        {r->evidence.sum, sizeof *r->evidence.sum, per, GPU_STARTS_0},
        {r->evidence.window.rows, sizeof *r->evidence.window.rows, per * r->evidence.window.ring,
         GPU_STARTS_LATER},
        {r->evidence.norms, sizeof *r->evidence.norms, 1, GPU_STARTS_LATER},
        {r->evidence.gate, sizeof *r->evidence.gate, 1, GPU_STARTS_LATER},
        {r->evidence.values, sizeof *r->evidence.values, 1, GPU_STARTS_LATER},
        {r->evidence.history, sizeof *r->evidence.history, 1, GPU_STARTS_NAN}};
    h->n_columns = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].data)
            h->column[h->n_columns++] = all[i];
}

static int allocate(struct session *s, struct device_decode *r, int most)
{
    struct device_session *m = s->device_state;
    const struct device_evidence e = device_evidence(s->method, s->cache);
    struct buffer_list a = {.n = 0};
    int ld = (most + most / 4 + 4 * PAGE_SLOTS) / PAGE_SLOTS * PAGE_SLOTS;
    free_arrays(m->gpu, r);
    r->ld = ld < (int)s->attn.ld_strip ? ld : (int)s->attn.ld_strip;
    r->has_rows = want_rows(s);
    r->keeps_rows = step_keeps_rows(s);
    r->method = s->method;
    r->evidence.window.ring = e.rows ? e.ring : 0;
    add_heads(s, r, &a);
    add_evidence(s, r, &a);
    eviction_buffers(s, &a);
    step_buffers(s, &a);
    device_reads_buffers(s, &a);
    int err = buffers_alloc(m->gpu, &a, &r->owned);
    if (err)
        return gpu_no_room(m->gpu, &s->e->error,
                           "the device memory is too small for the state of %d slots of each head: "
                           "use a smaller budget, or --device cpu",
                           r->ld);
    r->heads.cache = (struct gpu_cache){.type = s->kv_type,
                                        .heads = s->cache_heads * s->e->config.n_layers,
                                        .D = s->e->config.head_dim,
                                        .table = r->heads.cache.table,
                                        .n = r->heads.n,
                                        .pos = r->heads.cache.pos,
                                        .ld_table = m->pages.ld_table,
                                        .ld_slot = r->ld};
    r->heads.closes = s->reading.chosen != NULL;
    step_lay_out(s);
    r->heads.now = r->evidence.window.now = r->in.now;
    list_columns(s, r);
    device_pages_changed(m, 0, r->heads.cache.heads);
    return err;
}

/* Uploads the heads of the host's cache: lengths, gaps, positions, order and pages. */
static int put_heads(struct session *s, struct device_decode *r)
{
    struct device_session *m = s->device_state;
    int H = s->cache_heads, heads = r->heads.cache.heads, err = KVF_OK;
    int32_t *n = mem_alloc(3, (size_t)heads * sizeof *n);
    if (!n)
        return KVF_E_NOMEM;
    device_pages_invalidate(m);
    for (int at = 0; !err && at < heads; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        int hole = 0;
        size_t first = (size_t)at * (size_t)r->ld, bytes = (size_t)view.n * sizeof *n;
        n[at] = view.n;
        n[heads + at] = (int32_t)cache_gap(s->cache, at / H, at % H, &hole);
        n[2 * heads + at] = hole;
        gpu_put(m->gpu, r->heads.cache.pos + first, view.pos, bytes);
        gpu_put(m->gpu, r->heads.order + first, view.order, bytes);
        err = device_set_page_count(s, at, (view.n + PAGE_SLOTS - 1) / PAGE_SLOTS);
    }
    if (!err)
        err = device_upload_pages(s, 0, heads);
    gpu_put(m->gpu, r->heads.n, n, (size_t)heads * sizeof *n);
    gpu_put(m->gpu, r->heads.gap, n + heads, (size_t)heads * sizeof *n);
    gpu_put(m->gpu, r->heads.hole, n + 2 * heads, (size_t)heads * sizeof *n);
    mem_free(n);
    return err;
}

/* Copies a column of evidence, `rows` rows over all heads, to the device or to the host
 * (`home`). */
static void move_column(struct session *s, bool home, void *device, void *host, size_t size,
                        size_t rows, int cap, int most)
{
    struct device_session *m = s->device_state;
    size_t ld = (size_t)m->decode->ld * size, own = (size_t)cap * size, width = (size_t)most * size;
    if (!host)
        return;
    if (home)
        gpu_get_rows(m->gpu, host, own, device, ld, width, rows);
    else
        gpu_put_rows(m->gpu, device, ld, host, own, width, rows);
}

/* Copies the evidence that steps change. */
static void move_rows(struct session *s, bool home, const struct device_evidence *e, int most)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    const struct model_config *c = &s->e->config;
    size_t Q = (size_t)c->n_heads * (size_t)c->n_layers, n = (size_t)r->heads.cache.heads;
    size_t rows = Q * (size_t)e->ring;
    move_column(s, home, r->evidence.sum, e->sum, sizeof *e->sum, Q, e->cap, most);
    move_column(s, home, r->evidence.window.rows, e->rows, sizeof *e->rows, rows, e->cap, most);
    move_column(s, home, r->evidence.history, e->history, sizeof *e->history, n, e->cap, most);
    if (e->rows && home) {
        gpu_get(m->gpu, e->row_t, r->evidence.window.row_t, (size_t)e->ring * sizeof *e->row_t);
        gpu_get(m->gpu, e->row_n, r->evidence.window.row_n, rows * sizeof *e->row_n);
        gpu_get(m->gpu, e->row_lse, r->evidence.window.row_lse, rows * sizeof *e->row_lse);
        device_rows_received(s->method, s->cache, r->evidence.n_rows);
    } else if (e->rows) {
        gpu_put(m->gpu, r->evidence.window.row_t, e->row_t, (size_t)e->ring * sizeof *e->row_t);
        gpu_put(m->gpu, r->evidence.window.row_n, e->row_n, rows * sizeof *e->row_n);
        gpu_put(m->gpu, r->evidence.window.row_lse, e->row_lse, rows * sizeof *e->row_lse);
    }
}

/* Copies the moments of the queries. */
static void move_moments(struct session *s, bool home, const struct device_evidence *e)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    const struct model_config *c = &s->e->config;
    size_t D = (size_t)c->head_dim, n = (size_t)c->n_heads * (size_t)c->n_layers * D;
    if (!e->query_sum)
        return;
    if (home) {
        gpu_get(m->gpu, e->query_sum, r->evidence.query_sum, n * sizeof *e->query_sum);
        gpu_get(m->gpu, e->query_outer, r->evidence.query_outer, n * D * sizeof *e->query_outer);
    } else {
        gpu_put(m->gpu, r->evidence.query_sum, e->query_sum, n * sizeof *e->query_sum);
        gpu_put(m->gpu, r->evidence.query_outer, e->query_outer, n * D * sizeof *e->query_outer);
        r->evidence.n_queries = e->n_queries[0];
    }
    for (int l = 0; l < c->n_layers; l++) /* all layers have seen the same number */
        e->n_queries[l] = r->evidence.n_queries;
}

/* Returns true if the buffers include the rows that the session needs. */
static bool rows_fit(const struct session *s, const struct device_decode *r)
{
    return r->has_rows == want_rows(s) && (r->keeps_rows || !step_keeps_rows(s));
}

bool device_decode_fits(const struct session *s)
{
    const struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    return r && r->newer && r->ld > cache_longest(s->cache) && rows_fit(s, r);
}

int device_decode_upload(struct session *s)
{
    struct device_session *m = s->device_state;
    int most = cache_longest(s->cache) + 1;
    if (!m->decode)
        m->decode = MEM_NEW(struct device_decode, 1);
    struct device_decode *r = m->decode;
    if (!r)
        return KVF_E_NOMEM;
    bool fits = r->method == s->method && r->ld >= most && rows_fit(s, r);
    int err = fits ? KVF_OK : allocate(s, r, most);
    if (!err)
        err = put_heads(s, r);
    if (!err)
        err = device_reads_init(s);
    if (err)
        return err;
    const struct device_evidence e = device_evidence(s->method, s->cache);
    size_t n = (size_t)r->heads.cache.heads, D = (size_t)s->e->config.head_dim;
    move_rows(s, false, &e, most - 1);
    move_column(s, false, r->evidence.norms, e.norms, sizeof *e.norms, n, e.cap, most - 1);
    move_column(s, false, r->evidence.gate, e.gate, sizeof *e.gate, n, e.cap, most - 1);
    move_column(s, false, r->evidence.values, e.values, sizeof *e.values, n, e.cap, most - 1);
    move_moments(s, false, &e);
    if (e.anchor)
        gpu_put(m->gpu, r->evidence.anchor, e.anchor, n * D * sizeof *e.anchor);
    r->evidence.n_rows = e.rows ? e.n_rows[0] : 0;
    r->newer = s->run.evidence_on_device = true;
    return KVF_OK;
}

int device_sync_evidence(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m ? m->decode : NULL;
    if (!r || !r->newer)
        return KVF_OK;
    const struct device_evidence e = device_evidence(s->method, s->cache);
    move_rows(s, true, &e, cache_longest(s->cache));
    move_moments(s, true, &e);
    r->newer = s->run.evidence_on_device = false;
    return gpu_wait(m->gpu, &s->e->error);
}

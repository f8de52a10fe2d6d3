/* evidence.c - the device memory of decode steps, its upload, and the copy of evidence back to the
 * host. */
#include <string.h>

#include "base/mem.h"
#include "engine/device/probes.h"
#include "engine/device/decode.h"

static void add(struct buffer_list *a, void *at, size_t n, size_t size)
{
    buffers_add(a, at, n, size, false);
}

static void add_pinned(struct buffer_list *a, void *at, size_t n, size_t size)
{
    buffers_add(a, at, n, size, true);
}

/* Lists the arrays with a number for each head or each entry. */
static void add_heads(struct session *s, struct device_decode *r, struct buffer_list *a)
{
    size_t n = (size_t)s->cache_heads * (size_t)s->e->config.n_layers, ld = (size_t)r->ld;
    struct gpu_heads *h = &r->heads;
    add(a, &h->n, n, sizeof *h->n);
    add(a, &h->gap, n, sizeof *h->gap);
    add(a, &h->hole, n, sizeof *h->hole);
    add(a, &h->slot, n, sizeof *h->slot);
    add(a, &h->order, n * ld, sizeof *h->order);
    add(a, &h->renamed, n * ld, sizeof *h->renamed);
    add(a, &h->mark, n * ld, sizeof *h->mark);
    add(a, &h->cache.pos, n * ld, sizeof *h->cache.pos);
    add(a, &h->cache.table, n * (size_t)((struct device_session *)s->device_state)->ld_table,
        sizeof *h->cache.table);
    add(a, &r->choice, gpu_choice_bytes(s->e->config.n_layers, (int)n), 1);
    add(a, &r->score, n * ld, sizeof *r->score);
    add(a, &r->copy, n * ld, sizeof *r->copy);
    add(a, &r->count, n, sizeof *r->count);
    add(a, &r->chosen, n, sizeof *r->chosen);
    add(a, &r->cursor, 1, sizeof *r->cursor);
    add_pinned(a, &r->host.chosen, n, sizeof *r->chosen);
}

static void add_evidence(struct session *s, struct device_decode *r, struct buffer_list *a)
{
    const struct device_evidence e = device_evidence(s->method, s->cache);
    size_t n = (size_t)s->cache_heads * (size_t)s->e->config.n_layers, ld = (size_t)r->ld;
    size_t Q = (size_t)s->e->config.n_heads * (size_t)s->e->config.n_layers;
    size_t rows = Q * (size_t)e.ring, D = (size_t)s->e->config.head_dim;
    if (e.sum)
        add(a, &r->sum, Q * ld, sizeof *r->sum);
    if (e.norms)
        add(a, &r->norms, n * ld, sizeof *r->norms);
    if (e.gate)
        add(a, &r->gate, n * ld, sizeof *r->gate);
    if (e.values)
        add(a, &r->values, n * ld, sizeof *r->values);
    if (e.query_sum) {
        add(a, &r->query_sum, Q * D, sizeof *r->query_sum);
        add(a, &r->query_outer, Q * D * D, sizeof *r->query_outer);
        add_pinned(a, &r->host.mean_turns, (size_t)s->e->config.n_layers * D,
                   sizeof *r->host.mean_turns);
    }
    if (e.history)
        add(a, &r->history, n * ld, sizeof *r->history);
    if (e.anchor)
        add(a, &r->anchor, n * D, sizeof *r->anchor);
    const struct device_score *score = device_score_of(method_of(s->method),
                                                       method_params_of(s->method));
    if (score && score->scratch)
        add(a, &r->scratch, score->scratch(s), 1);
    if (!e.rows)
        return;
    add(a, &r->window.rows, rows * ld, sizeof *r->window.rows);
    add(a, &r->window.row_t, (size_t)e.ring, sizeof *r->window.row_t);
    add(a, &r->window.row_n, rows, sizeof *r->window.row_n);
    add(a, &r->window.row_lse, rows, sizeof *r->window.row_lse);
    add(a, &r->share, rows, sizeof *r->share);
}

static void put_pointer(void *at, void *p)
{
    memcpy(at, &p, sizeof p);
}

/* Places the inputs of a step other than x in one block, on the device and on the host, so that one
 * copy uploads them. Sets no pointers if r has no block. Returns the size in bytes. */
static size_t lay_out(const struct session *s, struct device_decode *r)
{
    size_t n = (size_t)s->cache_heads * (size_t)s->e->config.n_layers, at = 0;
    size_t turns = 2 * (size_t)s->e->config.rope_dim;
    const struct {
        void *there, *here;
        size_t bytes;
    } of[] = {{&r->go, &r->host.go, n * sizeof *r->go},
              {&r->may, &r->host.may, n * sizeof *r->may},
              {&r->turns, &r->host.turns, turns * sizeof *r->turns},
              {&r->numbers, &r->host.numbers, n * sizeof *r->numbers},
              {&r->now, &r->host.now, 2 * sizeof *r->now},
              {&r->due, &r->host.due, n * sizeof *r->due}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (r->step_inputs) {
            put_pointer(of[i].there, r->step_inputs + at);
            put_pointer(of[i].here, r->host.step_inputs + at);
        }
        at += (of[i].bytes + 15) / 16 * 16;
    }
    return at;
}

/* Lists the inputs and outputs of a step. */
static void add_step(struct session *s, struct device_decode *r, struct buffer_list *a)
{
    const struct model_config *m = &s->e->config;
    size_t L = (size_t)m->n_layers, G = (size_t)m->n_heads;
    size_t layers = r->keeps_rows ? L : 1;
    r->n_taken_along = lay_out(s, r);
    add(a, &r->step_inputs, r->n_taken_along, 1);
    add_pinned(a, &r->host.step_inputs, r->n_taken_along, 1);
    add(a, &r->qkv, L * s->ld_qkv, sizeof(float));
    add(a, &r->pre, L * s->ld_pre, sizeof(float));
    add(a, &r->rows, layers * G * (size_t)r->ld, sizeof(float));
    add(a, &r->lse, layers * G, sizeof(float));
    add(a, &r->entropy, layers * G, sizeof(float));
    add(a, &r->seen, layers * G, sizeof(int32_t));
    add_pinned(a, &r->host.x, (size_t)m->d_model, sizeof(float));
    add_pinned(a, &r->host.qkv, L * s->ld_qkv, sizeof(float));
    add_pinned(a, &r->host.pre, L * s->ld_pre, sizeof(float));
    add_pinned(a, &r->host.logits, s->ld_vocab, sizeof(float));
    add_pinned(a, &r->host.normed, (size_t)m->d_model, sizeof(float));
    if (!r->has_rows)
        return;
    add_pinned(a, &r->host.rows, L * G * (size_t)r->ld, sizeof(float));
    add_pinned(a, &r->host.lse, L * G, sizeof(float));
    add_pinned(a, &r->host.entropy, L * G, sizeof(float));
    add_pinned(a, &r->host.seen, L * G, sizeof(int32_t));
}

int buffers_alloc(struct gpu *g, const struct buffer_list *a, struct buffers_owned *owned)
{
    for (int i = 0; i < a->n; i++) {
        size_t n = a->of[i].n, size = a->of[i].size;
        bool pinned = a->of[i].pinned;
        void *p = pinned ? gpu_pin(g, n, size) : gpu_alloc(g, n, size);
        if (!p)
            return KVF_E_NOMEM;
        put_pointer(a->of[i].at, p);
        owned->of[owned->n++] = (struct device_decode_array){p, pinned};
    }
    return KVF_OK;
}

void buffers_drop(struct gpu *g, struct buffers_owned *owned)
{
    while (owned->n > 0) {
        owned->n--;
        (owned->of[owned->n].pinned ? gpu_unpin : gpu_free)(g, owned->of[owned->n].p);
    }
}

static void free_arrays(struct gpu *g, struct device_decode *r)
{
    buffers_drop(g, &r->owned);
    gpu_free(g, r->victim);
    gpu_free(g, r->victim_score);
    gpu_free(g, r->gone_head);
    gpu_free(g, r->gone_slot);
    gpu_unpin(g, r->host.victim);
    gpu_unpin(g, r->host.victim_score);
    gpu_unpin(g, r->host.gone_head);
    gpu_unpin(g, r->host.gone_slot);
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
    return s->on_row || recorder_wants(s->recorder) & PROBE_ROWS;
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
        {r->sum, sizeof *r->sum, per, GPU_STARTS_0},
        {r->window.rows, sizeof *r->window.rows, per * r->window.ring, GPU_STARTS_LATER},
        {r->norms, sizeof *r->norms, 1, GPU_STARTS_LATER},
        {r->gate, sizeof *r->gate, 1, GPU_STARTS_LATER},
        {r->values, sizeof *r->values, 1, GPU_STARTS_LATER},
        {r->history, sizeof *r->history, 1, GPU_STARTS_NAN}};
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
    r->ld = ld < (int)s->ld_strip ? ld : (int)s->ld_strip;
    r->has_rows = want_rows(s);
    r->keeps_rows = step_keeps_rows(s);
    r->of = s->method;
    r->window.ring = e.rows ? e.ring : 0;
    add_heads(s, r, &a);
    add_evidence(s, r, &a);
    add_step(s, r, &a);
    device_reads_buffers(s, &a);
    int err = buffers_alloc(m->gpu, &a, &r->owned);
    if (err)
        return gpu_no_room(m->gpu, &s->e->said,
                           "the device has no room for what steps remember of %d slots of each "
                           "head: take a smaller budget, or --device cpu",
                           r->ld);
    r->heads.cache = (struct gpu_cache){.type = s->kv_type,
                                        .heads = s->cache_heads * s->e->config.n_layers,
                                        .D = s->e->config.head_dim,
                                        .table = r->heads.cache.table,
                                        .n = r->heads.n,
                                        .pos = r->heads.cache.pos,
                                        .ld_table = m->ld_table,
                                        .ld_slot = r->ld};
    r->heads.closes = s->chosen != NULL;
    lay_out(s, r);
    r->heads.now = r->window.now = r->now;
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
        err = device_session_hold_pages(s, at, (view.n + PAGE_SLOTS - 1) / PAGE_SLOTS);
    }
    if (!err)
        err = device_session_put_pages(s, 0, heads);
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
    move_column(s, home, r->sum, e->sum, sizeof *e->sum, Q, e->cap, most);
    move_column(s, home, r->window.rows, e->rows, sizeof *e->rows, rows, e->cap, most);
    move_column(s, home, r->history, e->history, sizeof *e->history, n, e->cap, most);
    if (e->rows && home) {
        gpu_get(m->gpu, e->row_t, r->window.row_t, (size_t)e->ring * sizeof *e->row_t);
        gpu_get(m->gpu, e->row_n, r->window.row_n, rows * sizeof *e->row_n);
        gpu_get(m->gpu, e->row_lse, r->window.row_lse, rows * sizeof *e->row_lse);
        device_rows_received(s->method, s->cache, r->taken);
    } else if (e->rows) {
        gpu_put(m->gpu, r->window.row_t, e->row_t, (size_t)e->ring * sizeof *e->row_t);
        gpu_put(m->gpu, r->window.row_n, e->row_n, rows * sizeof *e->row_n);
        gpu_put(m->gpu, r->window.row_lse, e->row_lse, rows * sizeof *e->row_lse);
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
        gpu_get(m->gpu, e->query_sum, r->query_sum, n * sizeof *e->query_sum);
        gpu_get(m->gpu, e->query_outer, r->query_outer, n * D * sizeof *e->query_outer);
    } else {
        gpu_put(m->gpu, r->query_sum, e->query_sum, n * sizeof *e->query_sum);
        gpu_put(m->gpu, r->query_outer, e->query_outer, n * D * sizeof *e->query_outer);
        r->n_queries = e->n_queries[0];
    }
    for (int l = 0; l < c->n_layers; l++) /* all layers have seen the same number */
        e->n_queries[l] = r->n_queries;
}

/* Returns true if the buffers include the rows that the session needs. */
static bool rows_fit(const struct session *s, const struct device_decode *r)
{
    return r->has_rows == want_rows(s) && (r->keeps_rows || !step_keeps_rows(s));
}

bool device_decode_fits(const struct session *s)
{
    const struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    return r && r->here && r->ld > cache_longest(s->cache) && rows_fit(s, r);
}

int device_decode_enter(struct session *s)
{
    struct device_session *m = s->device_state;
    int most = cache_longest(s->cache) + 1;
    if (!m->decode)
        m->decode = MEM_NEW(struct device_decode, 1);
    struct device_decode *r = m->decode;
    if (!r)
        return KVF_E_NOMEM;
    bool fits = r->of == s->method && r->ld >= most && rows_fit(s, r);
    int err = fits ? KVF_OK : allocate(s, r, most);
    if (!err)
        err = put_heads(s, r);
    if (!err)
        err = device_reads_enter(s);
    if (err)
        return err;
    const struct device_evidence e = device_evidence(s->method, s->cache);
    size_t n = (size_t)r->heads.cache.heads, D = (size_t)s->e->config.head_dim;
    move_rows(s, false, &e, most - 1);
    move_column(s, false, r->norms, e.norms, sizeof *e.norms, n, e.cap, most - 1);
    move_column(s, false, r->gate, e.gate, sizeof *e.gate, n, e.cap, most - 1);
    move_column(s, false, r->values, e.values, sizeof *e.values, n, e.cap, most - 1);
    move_moments(s, false, &e);
    if (e.anchor)
        gpu_put(m->gpu, r->anchor, e.anchor, n * D * sizeof *e.anchor);
    r->taken = e.rows ? e.n_rows[0] : 0;
    r->here = s->evidence_on_device = true;
    return KVF_OK;
}

int device_home(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m ? m->decode : NULL;
    if (!r || !r->here)
        return KVF_OK;
    const struct device_evidence e = device_evidence(s->method, s->cache);
    move_rows(s, true, &e, cache_longest(s->cache));
    move_moments(s, true, &e);
    r->here = s->evidence_on_device = false;
    return gpu_wait(m->gpu, &s->e->said);
}

/* Grows a list on the device and its pinned host copy to at least n elements. The contents are
 * lost. */
static int grow_list(struct gpu *g, void *device, void *pinned, int64_t n, size_t size)
{
    void *old[2];
    memcpy(&old[0], device, sizeof old[0]);
    memcpy(&old[1], pinned, sizeof old[1]);
    gpu_free(g, old[0]);
    gpu_unpin(g, old[1]);
    put_pointer(device, gpu_alloc(g, (size_t)n, size));
    put_pointer(pinned, gpu_pin(g, (size_t)n, size));
    memcpy(&old[0], device, sizeof old[0]);
    memcpy(&old[1], pinned, sizeof old[1]);
    return old[0] && old[1] ? KVF_OK : KVF_E_NOMEM;
}

int device_decode_reserve_lists(struct session *s, int64_t victims, int64_t gone)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    int err = KVF_OK;
    if (victims > r->n_victims) {
        r->n_victims = 2 * victims;
        err = grow_list(m->gpu, &r->victim, &r->host.victim, r->n_victims, sizeof *r->victim);
        if (!err)
            err = grow_list(m->gpu, &r->victim_score, &r->host.victim_score, r->n_victims,
                            sizeof *r->victim_score);
    }
    if (!err && gone > r->n_gone) {
        r->n_gone = 2 * gone;
        err = grow_list(m->gpu, &r->gone_head, &r->host.gone_head, r->n_gone, sizeof *r->gone_head);
        if (!err)
            err = grow_list(m->gpu, &r->gone_slot, &r->host.gone_slot, r->n_gone,
                            sizeof *r->gone_slot);
    }
    return err;
}

/* prefill.c - a prefill chunk that runs on the device from its tokens to the last layer.
 *
 * The layers are put on the stream one by one. The host keeps a complete cache: the pages with a
 * layer's new entries, and its gate values, are copied to the host while the next layers run. The
 * host imports them while the device is up to GPU_PARCELS layers ahead. The host waits for the
 * stream only at the end of the chunk, unless observers need attention rows. It then imports the
 * entries of a layer before its rows. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/device/probes.h"
#include "engine/device/decode.h"

/* Inputs and outputs of a chunk, and their pinned host copies. Arrays [parcel] have one part for
 * each copy-back in flight. */
struct device_prompt {
    struct buffers_owned owned;
    struct {
        float *x, *turns;     /* [C][d_model], [2][C][rope_dim] */
        int32_t *first, *n;   /* [L * H] slot of the first new entry; [L][blocks + 1][H] entries */
        int32_t *firm;        /* [L * H] leading slots with entries that do not expire */
        unsigned char *pages; /* [parcel][H][n_pages] */
        float *numbers;       /* [parcel][C][H] gate values */
        int32_t *until, *pos; /* [parcel][H][ld_strip] expiry, NULL: no entry expires; positions,
                                 NULL: not needed */
        int32_t *coming;      /* [parcel][C][H] expiry of new entries */
    } host;
    float *turns, *pre, *numbers;
    int32_t *first, *n, *firm, *table, *coming;
    unsigned char *pages;
    int n_pages;
    const struct method_state *of; /* the arrays fit this method */
    bool net;                      /* the device computes gate values */
    enum device_admits admits;
    struct device_admission admission;
};

/* A running chunk. */
struct chunk {
    struct session *s;
    struct device_prompt *p;
    const int32_t *ids;
    int T, most, layer; /* most: entries of the longest head after the chunk */
    /* Of the current layer: */
    struct gpu_attention attention;
    const int32_t *coming; /* from put_until() */
    float *numbers;        /* gate values; NULL: no gates */
    bool watched;          /* observers on the host need attention rows */
    int sent, learned;     /* layers with copies to the host that have begun; layers that were
                          imported */
};

static bool has_net(const struct session *s)
{
    return s->parts.gate && gates_inputs(s->gates) != 0;
}

/* The places in a block that chunks on the device serve. */
enum { PREFILL_POINTS = POINT_GATES | POINT_GATE_INPUTS };

/* Returns true if a chunk can run on the device. */
static bool takes(const struct session *s)
{
    const struct model_config *c = &s->e->config;
    struct device_admission unused;
    bool gates = !has_net(s)
                 || (device_gates_supported(s->gates)
                     && device_admission(s->method, &unused) != ADMITS_APART);
    bool open = false;
    for (int at = 0; at < s->cache_heads * c->n_layers; at++)
        open |= cache_gap(s->cache, at / s->cache_heads, at % s->cache_heads, NULL) == GAP_OPEN;
    return s->device_state && !(session_points(s) & ~(unsigned)PREFILL_POINTS) && gates && !open
           && s->cache_heads == c->n_kv_heads;
}

/* ---- memory */

/* Lists the arrays of pages, gate values and expiry. */
static void add_parcels(struct session *s, struct device_prompt *p, struct buffer_list *a)
{
    const struct device_session *m = s->device_state;
    size_t H = (size_t)s->cache_heads, C = (size_t)s->chunk, strip = H * s->attn.ld_strip;
    size_t pages = GPU_PARCELS * H * (size_t)p->n_pages;
    buffers_add(a, &p->pages, pages, m->pages.page_bytes);
    buffers_add_pinned(a, &p->host.pages, pages, m->pages.page_bytes);
    if (s->parts.gate) {
        buffers_add(a, &p->numbers, GPU_PARCELS * C * H, sizeof *p->numbers);
        buffers_add_pinned(a, &p->host.numbers, GPU_PARCELS * C * H, sizeof *p->numbers);
    }
    if (m->layer.d_pos)
        buffers_add_pinned(a, &p->host.pos, GPU_PARCELS * strip, sizeof *p->host.pos);
    if (!method_hides(s->method))
        return;
    buffers_add(a, &p->coming, C * H, sizeof *p->coming);
    buffers_add_pinned(a, &p->host.coming, GPU_PARCELS * C * H, sizeof *p->coming);
    buffers_add_pinned(a, &p->host.until, GPU_PARCELS * strip, sizeof *p->host.until);
}

static int make(struct session *s, struct device_prompt *p)
{
    const struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    size_t H = (size_t)s->cache_heads, L = (size_t)c->n_layers, C = (size_t)s->chunk;
    size_t turns = 2 * C * (size_t)c->rope_dim,
           n = L * (size_t)(device_session_blocks(s->chunk) + 1) * H;
    struct buffer_list a = {.n = 0};
    p->of = s->method;
    p->net = has_net(s);
    p->admits = device_admission(s->method, &p->admission);
    p->n_pages = (PAGE_SLOTS - 1 + s->chunk - 1) / PAGE_SLOTS + 1;
    buffers_add_pinned(&a, &p->host.x, C * (size_t)c->d_model, sizeof(float));
    buffers_add_pinned(&a, &p->host.turns, turns, sizeof(float));
    buffers_add_pinned(&a, &p->host.first, L * H, sizeof *p->first);
    buffers_add_pinned(&a, &p->host.n, n, sizeof *p->n);
    buffers_add_pinned(&a, &p->host.firm, L * H, sizeof *p->firm);
    buffers_add(&a, &p->turns, turns, sizeof(float));
    buffers_add(&a, &p->first, L * H, sizeof *p->first);
    buffers_add(&a, &p->n, n, sizeof *p->n);
    buffers_add(&a, &p->firm, L * H, sizeof *p->firm);
    buffers_add(&a, &p->table, L * H * (size_t)m->pages.ld_table, sizeof *p->table);
    if (p->net)
        buffers_add(&a, &p->pre, C * s->parts.ld_unrotated, sizeof *p->pre);
    add_parcels(s, p, &a);
    return buffers_alloc(m->gpu, &a, &p->owned);
}

void device_prompt_close(struct session *s)
{
    struct device_session *m = s->device_state;
    if (m->prompt)
        buffers_free(m->gpu, &m->prompt->owned);
    mem_free(m->prompt);
    m->prompt = NULL;
}

static int open_prompt(struct session *s)
{
    struct device_session *m = s->device_state;
    if (m->prompt && m->prompt->of == s->method)
        return device_gates_open(s, s->chunk);
    device_prompt_close(s);
    m->prompt = MEM_NEW(struct device_prompt, 1);
    int err = m->prompt && gpu_parcels_open(m->gpu) ? make(s, m->prompt) : KVF_E_NOMEM;
    if (!err)
        return device_gates_open(s, s->chunk);
    device_prompt_close(s);
    return gpu_no_room(m->gpu, &s->e->error,
                       "the device has no room for %d tokens of a prompt at once: take a smaller "
                       "--chunk, or --device cpu",
                       s->chunk);
}

/* ---- inputs */

static int pages_for(int n)
{
    return (n + PAGE_SLOTS - 1) / PAGE_SLOTS;
}

/* Returns the factor by which page memory is reserved in advance if entries expire: the likely need
 * of the rest of the prompt, at least 1.125 and at most 2. */
static double foresight(const struct chunk *k)
{
    const struct session *s = k->s;
    double rest = (double)(s->n_past + s->run.tokens_to_next_cut) / (double)(s->n_past + k->T);
    return fmin(fmax(rest, 1.125), 2);
}

/* Reserves pages for all entries until the next eviction, so that the pool grows once. */
static void reserve(const struct chunk *k)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    bool expires = method_expires(s->method);
    int H = s->cache_heads,
        more = expires || s->run.tokens_to_next_cut < k->T ? k->T : s->run.tokens_to_next_cut;
    size_t pages = 0;
    for (int at = 0; at < H * s->e->config.n_layers; at++)
        pages += (size_t)pages_for(cache_view(s->cache, at / H, at % H).n + more);
    if (expires && pages > (size_t)m->pages.n)
        pages = (size_t)((double)pages * foresight(k));
    device_reserve_pages(s, pages);
}

/* Assigns pages for the new entries of every head, and uploads tables and lengths. */
static int hold_pages(struct chunk *k)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    struct device_prompt *p = k->p;
    int H = s->cache_heads, heads = H * s->e->config.n_layers,
        ld = device_session_blocks(s->chunk) + 1;
    int err = device_pages_sync(s);
    device_pages_appended(s, k->T);
    for (int at = 0; at < heads; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        int n = view.n + k->T;
        if (!err)
            err = device_set_page_count(s, at, pages_for(n));
        if (err)
            return err;
        p->host.first[at] = view.n;
        p->host.firm[at] = view.n_permanent;
        p->host.n[at / H * ld * H + at % H] = n;
        k->most = n > k->most ? n : k->most;
    }
    for (int l = 0; l < s->e->config.n_layers; l++)
        device_session_lengths(s, k->T, p->host.n + l * ld * H);
    gpu_put(m->gpu, p->first, p->host.first, (size_t)heads * sizeof *p->first);
    gpu_put(m->gpu, p->firm, p->host.firm, (size_t)heads * sizeof *p->firm);
    gpu_put(m->gpu, p->n, p->host.n, (size_t)(heads * ld) * sizeof *p->n);
    gpu_put(m->gpu, p->table, m->pages.table,
            (size_t)heads * (size_t)m->pages.ld_table * sizeof *p->table);
    return KVF_OK;
}

static void token_task(void *ctx, int task, int thread)
{
    const struct chunk *k = ctx;
    const struct session *s = k->s;
    size_t d = (size_t)s->e->config.d_model;
    int end = (task + 1) * ROWS_PER_TASK;
    (void)thread;
    for (int t = task * ROWS_PER_TASK; t < end && t < k->T; t++) {
        weights_embed(s->e->weights, k->ids[t], k->p->host.x + (size_t)t * d);
        rope_fill(s, k->p->host.turns, s->chunk, t, s->n_past + t);
    }
}

static void put_tokens(struct chunk *k)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    struct device_prompt *p = k->p;
    size_t d = (size_t)s->e->config.d_model, turn = (size_t)s->e->config.rope_dim;
    size_t half = (size_t)s->chunk * turn, T = (size_t)k->T;
    par_run(s->e->pool, (k->T + ROWS_PER_TASK - 1) / ROWS_PER_TASK, token_task, k);
    gpu_put(m->gpu, m->buf.x, p->host.x, T * d * sizeof(float));
    gpu_put(m->gpu, p->turns, p->host.turns, T * turn * sizeof(float));
    if (model_has_local_rope(&s->e->config))
        gpu_put(m->gpu, p->turns + half, p->host.turns + half, T * turn * sizeof(float));
}

static struct gpu_cache cache_of(const struct chunk *k, bool leaves, bool moved)
{
    const struct session *s = k->s;
    const struct device_session *m = s->device_state;
    int H = s->cache_heads, first = k->layer * H, ld = device_session_blocks(s->chunk) + 1;
    return (struct gpu_cache){.pool = m->pages.pool,
                              .type = s->kv_type,
                              .heads = H,
                              .D = s->e->config.head_dim,
                              .table = k->p->table + (size_t)first * (size_t)m->pages.ld_table,
                              .n = k->p->n + first * ld,
                              .pos = moved ? m->layer.d_pos : NULL,
                              .until = leaves ? m->layer.d_until : NULL,
                              .firm = k->p->firm + first,
                              .ld_table = m->pages.ld_table,
                              .ld_slot = (int)s->attn.ld_strip,
                              .most = k->most};
}

/* Stores the given gate values of a layer. */
static void give_numbers(const struct chunk *k, float *numbers)
{
    const struct session *s = k->s;
    for (int t = 0; s->parts.gate && !k->p->net && t < k->T; t++) {
        struct gate_input in = {.pos = s->n_past + t};
        gates_eval(s->gates, k->layer, &in, numbers + t * s->cache_heads, s->parts.scratch);
    }
}

/* Computes the expiry of new entries, as far as the host knows their gate values. Returns the
 * minimum. */
static int32_t find_coming(const struct chunk *k, const float *numbers, int32_t *coming)
{
    const struct session *s = k->s;
    int H = s->cache_heads;
    int32_t least = NEVER_EXPIRES;
    for (int i = 0; i < k->T * H; i++) {
        float number = numbers && !k->p->net ? numbers[i] : NAN;
        coming[i] = method_until(s->method, k->layer, i % H, s->n_past + i / H, number);
        least = coming[i] < least ? coming[i] : least;
    }
    return least;
}

/* Uploads the expiry of entries. Returns false if no entry expires before the last query of the
 * chunk. *ret_coming: the expiry of new entries; NULL: they do not expire, or gates decide later.
 */
static bool put_until(const struct chunk *k, const float *numbers, const int32_t **ret_coming)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    struct device_prompt *p = k->p;
    int H = s->cache_heads, i = k->layer % GPU_PARCELS;
    bool later = p->net && p->admits == ADMITS_BY_NUMBER;
    *ret_coming = NULL;
    if (!p->host.until)
        return false;
    int32_t *until = p->host.until + (size_t)(i * H) * s->attn.ld_strip;
    int32_t *coming = p->host.coming + i * H * s->chunk;
    int32_t least = later ? s->n_past : find_coming(k, numbers, coming);
    for (int h = 0; h < H; h++) {
        struct cache_head view = cache_view(s->cache, k->layer, h);
        least = view.first_expiry < least ? view.first_expiry : least;
    }
    if (least >= s->n_past + k->T)
        return false;
    for (int h = 0; h < H; h++) {
        struct cache_head view = cache_view(s->cache, k->layer, h);
        size_t from = (size_t)h * s->attn.ld_strip + (size_t)view.n_permanent;
        if (view.n > view.n_permanent)
            memcpy(until + from, view.expires_at + view.n_permanent,
                   (size_t)(view.n - view.n_permanent) * sizeof *until);
    }
    struct gpu_cache c = cache_of(k, true, false);
    gpu_put_until(m->gpu, &c, until, p->first + k->layer * H);
    if (later)
        return true;
    gpu_put(m->gpu, p->coming, coming, (size_t)(k->T * H) * sizeof *coming);
    *ret_coming = p->coming;
    return true;
}

/* Uploads the positions of entries for probes. Returns false if slots are positions, or if no probe
 * needs them. */
static bool put_positions(const struct chunk *k)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    int H = s->cache_heads, i = k->layer % GPU_PARCELS;
    size_t ld = s->attn.ld_strip;
    bool plain = true;
    for (int h = 0; k->p->host.pos && h < H; h++) {
        struct cache_head view = cache_view(s->cache, k->layer, h);
        int32_t *pos = k->p->host.pos + (size_t)(i * H + h) * ld;
        if (view.n > 0)
            memcpy(pos, view.pos, (size_t)view.n * sizeof *pos);
        for (int t = 0; t < k->T; t++)
            pos[view.n + t] = s->n_past + t;
        plain &= view.plain && view.n == s->n_past;
    }
    if (!plain)
        gpu_put_rows(m->gpu, m->layer.d_pos, ld * sizeof(int32_t),
                     k->p->host.pos + (size_t)(i * H) * ld, ld * sizeof(int32_t),
                     (size_t)k->most * sizeof(int32_t), (size_t)H);
    return !plain;
}

/* ---- a layer */

/* Runs norms of heads and RoPE, and stores keys and values. */
static void settle(const struct chunk *k, const struct gpu_cache *cache, const int32_t *coming)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    size_t half = (size_t)s->chunk * (size_t)s->e->config.rope_dim;
    struct gpu_new_entries x = device_new_entries(s, k->layer, k->T, k->p->turns, half);
    x.qkv = m->buf.qkv;
    x.ld = s->buf.ld_qkv;
    x.unturned = k->p->pre;
    x.ld_unturned = s->parts.ld_unrotated;
    x.slot = k->p->first + k->layer * s->cache_heads;
    x.until = coming;
    gpu_norm_rope_store(m->gpu, cache, &x, 1);
}

/* Copies gate values to the probes that need them. */
static void watch_numbers(const struct chunk *k, const float *numbers)
{
    struct session *s = k->s;
    int H = s->cache_heads, cap;
    float *all = device_probes_numbers(s, &cap);
    if (all)
        gpu_watch_numbers(((struct device_session *)s->device_state)->gpu, numbers, H, k->T,
                          s->n_past, all + (size_t)(k->layer * H) * (size_t)cap, cap);
}

/* Computes gate values, and the admission of new entries by them. */
static void run_gates(const struct chunk *k, const struct gpu_cache *cache, float *numbers)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    const struct device_prompt *p = k->p;
    const struct device_tokens x = {device_normed(s, k->layer), p->pre, m->buf.qkv,
                                    (size_t)s->e->config.d_model, k->T};
    if (!p->net)
        return;
    device_gates_run(s, k->layer, &x, numbers);
    watch_numbers(k, numbers);
    if (p->admits != ADMITS_BY_NUMBER)
        return;
    const struct gpu_admission how = {.tau = p->admission.tau,
                                      .above = p->admission.above,
                                      .stays = p->admission.stays,
                                      .window = model_window(&s->e->config, k->layer)};
    gpu_admit(m->gpu, cache, &how, numbers, p->first + k->layer * s->cache_heads, k->T, s->n_past);
}

/* Returns the maximum number of pages of a head with new entries. */
static int pages_of(const struct chunk *k)
{
    int H = k->s->cache_heads, most = 0;
    for (int h = 0; h < H; h++) {
        int first = k->p->host.first[k->layer * H + h];
        int n = (first + k->T - 1) / PAGE_SLOTS - first / PAGE_SLOTS + 1;
        most = n > most ? n : most;
    }
    return most;
}

/* Starts the copy of a layer's new entries to the host. */
static void send(const struct chunk *k, const struct gpu_cache *cache, const float *numbers)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    struct device_prompt *p = k->p;
    int H = s->cache_heads, i = k->layer % GPU_PARCELS, n = pages_of(k);
    size_t at = (size_t)(i * H * p->n_pages) * m->pages.page_bytes,
           row = (size_t)(i * H * s->chunk);
    gpu_gather_pages(m->gpu, cache, p->first + k->layer * H, k->T, n, p->pages + at);
    gpu_copyback_begin(m->gpu, i);
    gpu_parcel_add(m->gpu, p->host.pages + at, p->pages + at,
                   (size_t)(H * n) * m->pages.page_bytes);
    if (p->net)
        gpu_parcel_add(m->gpu, p->host.numbers + row, numbers,
                       (size_t)(k->T * H) * sizeof *numbers);
    gpu_parcel_end(m->gpu, i);
}

/* Prepares the inputs of a layer: given gate values, expiry, positions. */
static void prepare_layer(struct chunk *k)
{
    struct session *s = k->s;
    struct device_prompt *p = k->p;
    size_t row = (size_t)(k->layer % GPU_PARCELS * s->cache_heads * s->chunk);
    float *given = s->parts.gate ? p->host.numbers + row : NULL;
    k->numbers = s->parts.gate ? p->numbers + row : NULL;
    k->attention = device_session_queries(s, k->T, s->n_past);
    k->attention.sinks = device_sinks(s, k->layer);
    give_numbers(k, given);
    bool leaves = put_until(k, given, &k->coming);
    k->attention.cache = cache_of(k, leaves, put_positions(k));
}

/* Runs all steps up to attention: norms of heads, RoPE, new entries, gates. */
static int store_step(struct layer_run *r, int i)
{
    struct chunk *k = r->ctx;
    settle(k, &k->attention.cache, k->coming);
    run_gates(k, &k->attention.cache, k->numbers);
    send(k, &k->attention.cache, k->numbers);
    k->sent++;
    return steps_before(r->b, i, OP_ATTEND);
}

static int norm_step(struct layer_run *r, int i)
{
    return device_stores_norm(r, i) ? store_step(r, i) : steps_device[OP_NORM](r, i);
}

/* ---- on the host */

/* Returns the host copies of a layer's new KV pages and gate values. */
static struct imported_pages imported_pages(const struct chunk *k, int layer)
{
    const struct session *s = k->s;
    const struct device_session *m = s->device_state;
    const struct device_prompt *p = k->p;
    struct chunk of = *k;
    int H = s->cache_heads, i = layer % GPU_PARCELS;
    of.layer = layer;
    return (struct imported_pages){
        .pages = p->host.pages + (size_t)(i * H * p->n_pages) * m->pages.page_bytes,
        .head_bytes = (size_t)pages_of(&of) * m->pages.page_bytes,
        .gate = s->parts.gate ? p->host.numbers + i * H * s->chunk : NULL};
}

/* Imports the entries of n layers after their copies are complete. The call for layer 0 allocates
 * the memory of all layers while the device computes. */
static int learn(const struct chunk *k, int layer, int n)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    struct imported_pages x[IMPORT_LAYERS];
    int err = layer == 0 ? preallocate_entries(s, k->T) : KVF_OK;
    for (int i = 0; !err && i < n; i++) {
        err = layer_reserve(s, layer + i, k->T);
        x[i] = imported_pages(k, layer + i);
    }
    if (err)
        return err;
    for (int i = 0; i < n; i++)
        if (!gpu_parcel_wait(m->gpu, (layer + i) % GPU_PARCELS))
            return gpu_wait(m->gpu, &s->e->error);
    layers_import_pages(s, layer, n, k->T, x);
    return KVF_OK;
}

static int attend_step(struct layer_run *r, int i)
{
    struct chunk *k = r->ctx;
    int err = k->watched ? learn(k, k->learned++, 1) : KVF_OK;
    (void)i;
    if (err)
        return err;
    device_session_attend(k->s, k->layer, &k->attention);
    return 1;
}

/* Runs all layers. The host is at most GPU_PARCELS layers behind; with observers of rows, none. */
static int run_layers(struct chunk *k)
{
    struct session *s = k->s;
    struct device_session *m = s->device_state;
    int L = s->e->config.n_layers, err = KVF_OK;
    step_fn steps[BLOCK_OPS];
    memcpy(steps, steps_device, sizeof steps);
    steps[OP_NORM] = norm_step;
    steps[OP_ROPE] = steps[OP_GATES] = store_step;
    steps[OP_ATTEND] = attend_step;
    k->watched = rows_observed(s, s->n_past, k->T);
    for (k->layer = 0; !err && k->layer < L; k->layer++) {
        struct layer_run r = {
            s, block_of(&s->e->weights->plan, k->layer), k->layer, k->T, s->n_past, false, k};
        if (k->layer - k->learned == GPU_PARCELS) {
            err = learn(k, k->learned, IMPORT_LAYERS);
            k->learned += IMPORT_LAYERS;
        }
        if (err)
            break;
        prepare_layer(k);
        err = run_block(steps, &r);
    }
    for (int n; !err && k->learned < L; k->learned += n) {
        n = L - k->learned < IMPORT_LAYERS ? L - k->learned : IMPORT_LAYERS;
        err = learn(k, k->learned, n);
    }
    if (k->sent > 0)
        gpu_parcels_join(m->gpu, (k->sent - 1) % GPU_PARCELS);
    return err;
}

int device_prefill(struct session *s, const int32_t *ids, int T)
{
    struct device_session *m = s->device_state;
    if (!takes(s))
        return RUN_LAYERWISE;
    int err = open_prompt(s);
    if (err)
        return err;
    struct chunk k = {.s = s, .p = m->prompt, .ids = ids, .T = T};
    reserve(&k);
    err = hold_pages(&k);
    if (!err) {
        put_tokens(&k);
        err = run_layers(&k);
    }
    if (err)
        device_pages_invalidate(m);
    return err;
}

/* probes.c - probes on a device: the table of probes with kernels, and their arrays. */
#include <stddef.h>

#include "base/mem.h"
#include "engine/device/device.h"
#include "engine/device/probes.h"
#include "engine/device/decode.h"
#include "engine/probe/probes.h"
#include "engine/probe/watch.h"

/* A probe with its arrays on the device. */
struct moved {
    struct probe_state *s;
    const struct device_probe *how;
    struct probe_copy *array;
    int n;
    char *memory;
};

struct device_probes {
    struct gpu *gpu;
    struct engine *e;
    struct recorder *recorder;
    struct moved *moved;
    int n;
    struct row_cut *cuts; /* [n_heads][most_rows][KVF_N_CRITERIA] */
    double *gram;         /* out_gram of the configuration; NULL: probe_contrib stays on the host */
    float *contributions; /* [n_heads][most_rows][ld_strip] */
    int32_t *first, *token; /* pairs of probe_received for all layers, as in gpu_query_cells */
    struct device_dilution *dilution;
};

/* The outputs that the probes request in a layer. */
struct wishes {
    struct gpu_entry_cells entries;
    struct gpu_query_cells queries;
    bool any_entries, any_queries, dilution;
    float *window, *norm;
    void *contributed;
};

/* How a probe runs on the device. */
struct device_probe {
    const struct probe *probe;
    /* Adds the probe's requests for a layer to w. */
    void (*ask)(const struct device_probes *d, const struct moved *m, int layer, struct wishes *w);
    /* Returns a state that the probe keeps outside its arrays. NULL: rows change no such state. */
    struct probe_copy (*own)(const struct probe_state *s);
    /* Returns true if the probe has kernels for this run. NULL: always. */
    bool (*can)(const struct session *s, const struct probe_state *p);
    /* Uploads further inputs. Returns false if memory is exhausted. NULL: no further inputs. */
    bool (*beside)(struct device_probes *d, struct session *s, const struct moved *m);
};

static void *cells(const struct device_probes *d, const struct moved *m, int array, int layer)
{
    const struct probe_copy *a = &m->array[array];
    size_t of_layer = a->rows / (size_t)d->e->config.n_layers;
    return a->device + (size_t)layer * of_layer * (size_t)m->s->cfg->cap * a->size;
}

/* ---- the probes */

/* Returns the maximum number of rows per query head that are processed together: a block of
 * queries, or a group of layers. */
static size_t most_rows(const struct session *s)
{
    int block = ((struct device_session *)s->device_state)->rows.block,
        layers = step_layers_together(s);
    return (size_t)(block > layers ? block : layers);
}

static void ask_survival(const struct device_probes *d, const struct moved *m, int layer,
                         struct wishes *w)
{
    for (int c = 0; c < KVF_N_CRITERIA; c++)
        w->entries.last[c] = cells(d, m, c, layer);
    w->entries.n_cuts = KVF_N_CRITERIA;
    w->any_entries = true;
}

static void ask_mass(const struct device_probes *d, const struct moved *m, int layer,
                     struct wishes *w)
{
    w->entries.sum = cells(d, m, 0, layer);
    w->entries.max = cells(d, m, 1, layer);
    w->any_entries = true;
}

static void ask_steps(const struct device_probes *d, const struct moved *m, int layer,
                      struct wishes *w)
{
    w->queries.lse = cells(d, m, 0, layer);
    w->queries.entropy = cells(d, m, 1, layer);
    w->any_queries = true;
}

static void ask_read(const struct device_probes *d, const struct moved *m, int layer,
                     struct wishes *w)
{
    if (m->n == 0)
        return;
    w->entries.read = cells(d, m, 0, layer);
    w->any_entries = true;
}

static void ask_calibration(const struct device_probes *d, const struct moved *m, int layer,
                            struct wishes *w)
{
    for (int c = 0; c < KVF_N_CRITERIA; c++) {
        w->entries.at[c] = cells(d, m, 2 * c, layer);
        w->entries.first[c] = cells(d, m, 2 * c + 1, layer);
    }
    w->entries.n_cuts = KVF_N_CRITERIA;
    w->any_entries = true;
}

_Static_assert(sizeof(struct gpu_visits) == sizeof(struct probe_visits)
                   && offsetof(struct gpu_visits, count) == offsetof(struct probe_visits, count),
               "what a kernel writes");
_Static_assert((int)PROBE_RETURNS <= (int)GPU_MAX_VISITS && (int)KVF_N_CRITERIA <= (int)GPU_MAX_CUTS
                   && (int)KVF_N_UNDER <= (int)GPU_MAX_SHARES,
               "what kernels have places for");

static struct probe_copy own_returns(const struct probe_state *s)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_heads;
    return (struct probe_copy){.host = (char *)probe_returns_visits(s),
                               .rows = heads * PROBE_RETURNS,
                               .size = sizeof(struct gpu_visits)};
}

static void ask_returns(const struct device_probes *d, const struct moved *m, int layer,
                        struct wishes *w)
{
    w->entries.visits = cells(d, m, 0, layer);
    w->entries.n_visits = PROBE_RETURNS;
    for (int c = 0; c < PROBE_RETURNS; c++)
        w->entries.visits_cut[c] = probe_returns_of[c];
    w->entries.n_cuts = KVF_N_CRITERIA;
    w->any_entries = true;
}

static void ask_under(const struct device_probes *d, const struct moved *m, int layer,
                      struct wishes *w)
{
#define X(name, p) p,
    static const double share[KVF_N_UNDER] = {KVF_UNDER_MAP(X)};
#undef X
    for (int k = 0; k < KVF_N_UNDER; k++) {
        w->queries.under[k] = cells(d, m, k, layer);
        w->queries.share[k] = share[k];
    }
    w->queries.seen = cells(d, m, KVF_N_UNDER, layer);
    w->queries.n_shares = KVF_N_UNDER;
    w->any_queries = true;
}

static void ask_received(const struct device_probes *d, const struct moved *m, int layer,
                         struct wishes *w)
{
    if (m->n == 0)
        return;
    w->queries.first = d->first + (size_t)layer * (size_t)d->e->config.n_heads;
    w->queries.token = d->token;
    w->queries.received = (float *)(void *)m->array[0].device;
    w->any_queries = true;
}

static struct probe_copy own_window(const struct probe_state *s)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_kv_heads;
    return (struct probe_copy){.host = (char *)probe_window_sums(s),
                               .rows = heads * PROBE_WINDOW_RING,
                               .size = sizeof(float)};
}

static void ask_window(const struct device_probes *d, const struct moved *m, int layer,
                       struct wishes *w)
{
    w->window = cells(d, m, 0, layer);
}

static void ask_contrib(const struct device_probes *d, const struct moved *m, int layer,
                        struct wishes *w)
{
    w->norm = cells(d, m, 0, layer);
    w->contributed = cells(d, m, 1, layer);
}

/* Uploads the matrices that probe_contrib reads, and allocates its buffers. */
static bool put_gram(struct device_probes *d, struct session *s, const struct moved *m)
{
    const struct model_config *c = &d->e->config;
    size_t D = (size_t)c->head_dim, heads = (size_t)c->n_heads;
    size_t n = (size_t)c->n_layers * heads * D * D;
    d->gram = gpu_alloc(d->gpu, n, sizeof *d->gram);
    d->contributions = gpu_alloc(d->gpu, heads * most_rows(s) * s->attn.ld_strip,
                                 sizeof *d->contributions);
    if (d->gram && d->contributions)
        gpu_put(d->gpu, d->gram, m->s->cfg->out_gram, n * sizeof *d->gram);
    return d->gram && d->contributions;
}

static void ask_dilution(const struct device_probes *d, const struct moved *m, int layer,
                         struct wishes *w)
{
    (void)d;
    (void)m;
    (void)layer;
    w->entries.n_cuts = KVF_N_CRITERIA;
    w->dilution = true;
}

static bool open_dilution(struct device_probes *d, struct session *s, const struct moved *m)
{
    d->dilution = device_dilution_open(s, m->s, m->array);
    return d->dilution != NULL;
}

static const struct device_probe table[] = {
    {&probe_survival, ask_survival, NULL, NULL, NULL},
    {&probe_mass, ask_mass, NULL, NULL, NULL},
    {&probe_steps, ask_steps, NULL, NULL, NULL},
    {&probe_read, ask_read, NULL, NULL, NULL},
    {&probe_calibration, ask_calibration, NULL, NULL, NULL},
    {&probe_returns, ask_returns, own_returns, NULL, NULL},
    {&probe_under, ask_under, NULL, NULL, NULL},
    {&probe_received, ask_received, NULL, NULL, NULL},
    {&probe_window, ask_window, own_window, NULL, NULL},
    {&probe_contrib, ask_contrib, NULL, NULL, put_gram},
    {&probe_dilution, ask_dilution, NULL, device_dilution_supported, open_dilution},
};
enum { N_TABLE = sizeof table / sizeof *table };

static const struct device_probe *kernels_of(const struct session *s, const struct probe_state *p)
{
    for (int i = 0; i < N_TABLE; i++)
        if (table[i].probe == p->probe)
            return table[i].can && !table[i].can(s, p) ? NULL : &table[i];
    return NULL;
}

/* ---- arrays of the probes */

static size_t bytes_of(const struct probe_state *s, const struct probe_copy *a)
{
    return a->rows * (size_t)s->cfg->cap * a->size;
}

/* Places the arrays of a probe in one allocation and uploads them. m->memory is NULL if memory is
 * exhausted. */
static int list_arrays(struct device_probes *d, struct moved *m)
{
    size_t all = 0;
    int n = 0;
    m->array = MEM_NEW(struct probe_copy, (size_t)m->s->n_arrays + 1);
    if (!m->array)
        return KVF_E_NOMEM;
    for (int i = 0; i < m->s->n_arrays; i++)
        if (m->s->data[i])
            m->array[n++] = (struct probe_copy){.host = m->s->data[i],
                                                .rows = probe_rows(m->s, i),
                                                .size = probe_cell_size(m->s, i),
                                                .snapshot = m->s->array[i].column.flags
                                                            & KVF_COL_SNAPSHOT};
    if (m->how->own) {
        m->array[n] = m->how->own(m->s);
        m->array[n++].snapshot = true;
    }
    for (int i = 0; i < n; i++)
        all += bytes_of(m->s, &m->array[i]) + m->array[i].size;
    m->memory = gpu_alloc(d->gpu, all, 1);
    size_t at = 0;
    for (int i = 0; m->memory && i < n; i++) {
        struct probe_copy *a = &m->array[i];
        at = (at + a->size - 1) / a->size * a->size;
        a->device = m->memory + at;
        gpu_put(d->gpu, a->device, a->host, bytes_of(m->s, a));
        gpu_take(d->gpu, a->host, bytes_of(m->s, a));
        at += bytes_of(m->s, a);
    }
    m->n = n;
    return KVF_OK;
}

/* Uploads the start of the pairs of each query head, and the tokens of the pairs. */
static int put_pairs(struct device_probes *d, const struct watch *w)
{
    size_t heads = (size_t)d->e->config.n_layers * (size_t)d->e->config.n_heads;
    int n = w ? w->n_pairs : 0;
    int32_t *first = MEM_NEW(int32_t, heads + 1), *token = MEM_NEW(int32_t, (size_t)n + 1);
    d->first = gpu_alloc(d->gpu, heads + 1, sizeof *d->first);
    d->token = gpu_alloc(d->gpu, (size_t)n + 1, sizeof *d->token);
    bool room = first && token && d->first && d->token;
    for (int i = 0; room && i < n; i++) {
        const struct watch_head *at = &w->pair[i].at;
        first[(size_t)at->layer * (size_t)d->e->config.n_heads + (size_t)at->head + 1]++;
        token[i] = w->pair[i].token;
    }
    for (size_t h = 0; room && h < heads; h++)
        first[h + 1] += first[h];
    if (room) {
        gpu_put(d->gpu, d->first, first, (heads + 1) * sizeof *first);
        gpu_put(d->gpu, d->token, token, (size_t)n * sizeof *token);
    }
    mem_free(first);
    mem_free(token);
    return room ? KVF_OK : KVF_E_NOMEM;
}

static void bring(void *ctx, bool snapshots, int32_t t0, int32_t t1)
{
    struct device_probes *d = ctx;
    for (int i = 0; i < d->n; i++)
        for (int k = 0; k < d->moved[i].n; k++) {
            const struct probe_copy *a = &d->moved[i].array[k];
            size_t ld = (size_t)d->moved[i].s->cfg->cap * a->size, from = (size_t)t0 * a->size;
            if (a->snapshot == snapshots && t1 > t0)
                gpu_fetch_rows(d->gpu, a->host + from, ld, a->device + from, ld,
                               (size_t)(t1 - t0) * a->size, a->rows);
        }
}

/* Waits for copies to the host. The recorder checks the error, so that an incomplete copy is never
 * written. */
static int settle(void *ctx)
{
    struct device_probes *d = ctx;
    return gpu_wait(d->gpu, &d->e->error);
}

/* Gives the host arrays back to the host. */
static void leave(const struct device_probes *d, struct moved *m)
{
    for (int k = 0; k < m->n; k++)
        gpu_leave(d->gpu, m->array[k].host);
}

static void forget(void *ctx)
{
    struct device_probes *d = ctx;
    for (int i = 0; i < d->n; i++)
        leave(d, &d->moved[i]);
    d->recorder = NULL;
}

static void give_up(const struct device_probes *d, struct moved *m)
{
    if (m->memory)
        leave(d, m);
    gpu_free(d->gpu, m->memory);
    mem_free(m->array);
}

/* Moves the probes that have kernels, while memory suffices. */
static int move(struct device_probes *d, struct session *s)
{
    int n;
    struct probe_state *all = recorder_probes(d->recorder, &n);
    d->moved = MEM_NEW(struct moved, (size_t)n + 1);
    if (!d->moved)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++) {
        struct moved *m = &d->moved[d->n];
        *m = (struct moved){.s = &all[i], .how = kernels_of(s, &all[i])};
        if (!m->how)
            continue;
        int err = list_arrays(d, m);
        d->n++;
        if (err)
            return err;
        all[i].away = m->memory && (!m->how->beside || m->how->beside(d, s, m));
        if (!all[i].away)
            give_up(d, &d->moved[--d->n]);
    }
    return KVF_OK;
}

int device_probes_open(struct session *s)
{
    struct device_session *m = s->device_state;
    size_t rows = (size_t)s->e->config.n_heads * most_rows(s);
    if (!s->observers.recorder)
        return KVF_OK;
    struct device_probes *d = m->probes = MEM_NEW(struct device_probes, 1);
    if (!d)
        return KVF_E_NOMEM;
    *d = (struct device_probes){.gpu = m->gpu, .e = s->e, .recorder = s->observers.recorder};
    int err = move(d, s);
    if (!err && d->n > 0) {
        const struct probe_config *cfg = d->moved[0].s->cfg;
        d->cuts = gpu_alloc(m->gpu, rows * KVF_N_CRITERIA, sizeof *d->cuts);
        m->layer.d_pos = gpu_alloc(m->gpu, (size_t)s->cache_heads * s->attn.ld_strip,
                                   sizeof *m->layer.d_pos);
        m->layer.pos = mem_alloc((size_t)s->cache_heads, s->attn.ld_strip * sizeof *m->layer.pos);
        err = d->cuts && m->layer.d_pos && m->layer.pos ? put_pairs(d, cfg->watch) : KVF_E_NOMEM;
    }
    const struct recorder_elsewhere there = {
        .ctx = d, .bring = bring, .settle = settle, .forget = forget};
    recorder_move(s->observers.recorder, &there);
    return err;
}

void device_probes_close(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_probes *d = m->probes;
    if (!d)
        return;
    if (d->recorder) {
        recorder_settle(d->recorder);
        bring(d, true, 0, s->n_past);
        bring(d, false, 0, s->n_past);
        (void)settle(d); /* the same error is returned where it matters */
        for (int i = 0; i < d->n; i++)
            d->moved[i].s->away = false;
        recorder_move(d->recorder, NULL);
        forget(d);
    }
    for (int i = 0; i < d->n; i++) {
        gpu_free(d->gpu, d->moved[i].memory);
        mem_free(d->moved[i].array);
    }
    gpu_free(d->gpu, d->cuts);
    gpu_free(d->gpu, d->gram);
    gpu_free(d->gpu, d->contributions);
    device_dilution_close(d->gpu, d->dilution);
    gpu_free(d->gpu, d->first);
    gpu_free(d->gpu, d->token);
    mem_free(d->moved);
    mem_free(d);
    m->probes = NULL;
}

bool device_probes_any(const struct session *s)
{
    const struct device_session *m = s->device_state;
    return m->probes && m->probes->n > 0;
}

/* Finds the largest contributions of each row, with the kernel that finds the other sets of
 * entries. */
static void take_contributions(const struct device_probes *d, int layer,
                               const struct gpu_seen_rows *rows, const struct wishes *w)
{
    static const int top = PROBE_CONTRIB_TOP;
    static const struct gpu_criteria largest = {1, 0, &top, NULL};
    const struct model_config *c = &d->e->config;
    size_t of_layer = (size_t)c->n_heads * (size_t)c->head_dim * (size_t)c->head_dim;
    const struct gpu_entry_cells in_set = {
        .cap = w->entries.cap, .n_cuts = 1, .wide = w->entries.wide, .last = {w->contributed}};
    struct gpu_seen_rows own = *rows;
    gpu_out_norms(d->gpu, rows, d->gram + (size_t)layer * of_layer, w->norm, in_set.cap);
    gpu_contributions(d->gpu, rows, w->norm, in_set.cap, d->contributions);
    own.p = d->contributions;
    gpu_row_cuts(d->gpu, &own, &largest, d->cuts);
    gpu_watch_entries(d->gpu, &own, d->cuts, &in_set);
}

void device_probes_take(struct session *s, int layer, const struct gpu_seen_rows *rows)
{
    const struct device_probes *d = ((struct device_session *)s->device_state)->probes;
    static const struct gpu_criteria criteria = {PROBE_N_TOP, PROBE_N_TAU, probe_top_k, probe_tau};
    struct wishes w = {.window = NULL};
    if (!device_probes_any(s))
        return;
    for (int i = 0; i < d->n; i++)
        d->moved[i].how->ask(d, &d->moved[i], layer, &w);
    const struct probe_state *any = d->moved[0].s;
    w.entries.cap = w.queries.cap = any->cfg->cap;
    w.entries.wide = w.queries.wide = !any->narrow;
    if (!s->run.stepping)
        w.entries.read = NULL;
    if (w.entries.n_cuts > 0)
        gpu_row_cuts(d->gpu, rows, &criteria, d->cuts);
    if (w.any_entries)
        gpu_watch_entries(d->gpu, rows, d->cuts, &w.entries);
    if (w.dilution)
        device_dilution_take(d->gpu, d->dilution, layer, rows, d->cuts);
    if (w.any_queries)
        gpu_watch_queries(d->gpu, rows, &w.queries);
    if (w.window)
        gpu_watch_window(d->gpu, rows, w.window, any->cfg->cap, KVF_WINDOW_BLOCK,
                         PROBE_WINDOW_RING);
    if (w.norm)
        take_contributions(d, layer, rows, &w);
}

float *device_probes_numbers(const struct session *s, int *ret_cap)
{
    const struct device_probes *d = ((struct device_session *)s->device_state)->probes;
    *ret_cap = 0;
    return d && d->dilution ? device_dilution_numbers(d->dilution, ret_cap) : NULL;
}

void device_probes_put_numbers(struct session *s, int layer, int T, int pos0)
{
    const struct device_probes *d = ((struct device_session *)s->device_state)->probes;
    if (d && d->dilution)
        device_dilution_put_numbers(d->gpu, d->dilution, layer, T, pos0);
}

/* dilution.c - runs probe_dilution on a device: its columns, span sets, plan and gate numbers
 * there. */
#include "base/mem.h"
#include "engine/device/device.h"
#include "engine/device/probes.h"
#include "engine/device/decode.h"
#include "engine/probe/dilution.h"
#include "engine/probe/probes.h"

_Static_assert((int)KVF_N_CRITERIA == (int)GPU_USEFUL_CUTS
                   && (int)DILUTION_PREFIX == (int)GPU_PREFIXES
                   && (int)PROBE_SPAN_SETS == (int)GPU_MAX_SPANS
                   && (int)DILUTION_SETS == (int)GPU_MAX_SETS
                   && (int)DILUTION_NEAR == (int)GPU_NEAR,
               "what kernels have places for");

/* Inputs of the probe's kernels. */
struct device_dilution {
    const struct probe_state *s;
    struct gpu_useful how; /* without the query heads of a layer */
    struct gpu_useful_columns *columns;
    unsigned char *spans;
    uint32_t *plan;
    float *log_beta;
};

/* Entries that queries needed after eviction are found on the host, and the host has the gate
 * numbers that were given as input. The probe then stays on the host. */
bool device_dilution_supported(const struct session *s, const struct probe_state *p)
{
    bool given = s->gates && gates_inputs(s->gates) == 0;
    return !p->cfg->shadow_entries && !(given && probe_dilution_view(p).log_beta);
}

static void *device_of(const struct probe_copy *a, int array)
{
    return array == DILUTION_NONE ? NULL : a[array].device;
}

static void list_columns(const struct dilution_layout *at, const struct probe_copy *a,
                         struct gpu_useful_columns *to)
{
    for (int u = 0; u < DILUTION_SETS; u++) {
        to->useful[u] = device_of(a, at->real[DILUTION_USEFUL][u]);
        to->dilution[u] = device_of(a, at->real[DILUTION_DILUTION][u]);
        to->kept[u] = device_of(a, at->real[DILUTION_KEPT][u]);
        to->aged_kept[u] = device_of(a, at->real[DILUTION_BETA_KEPT][u]);
        to->aged_in[u] = device_of(a, at->real[DILUTION_BETA_RHO_U][u]);
        to->aged_out[u] = device_of(a, at->real[DILUTION_BETA_RHO_D][u]);
        to->size[u] = device_of(a, at->size[u]);
    }
    for (int which = 0; which < 2 + PROBE_SPAN_SETS; which++)
        for (int k = 0; at->near[which] != DILUTION_NONE && k < DILUTION_NEAR; k++)
            to->near[which][k] = device_of(a, at->near[which] + k);
}

/* Copies bytes of the host to the device. Returns false if memory is exhausted. */
static bool put(struct gpu *g, void *ret, const void *host, size_t bytes)
{
    void *p = gpu_alloc(g, bytes, 1);
    *(void **)ret = p;
    if (p)
        gpu_put(g, p, host, bytes);
    return p != NULL;
}

/* Allocates the slot order of all KV heads that are processed together. */
static bool hold_order(struct gpu *g, const struct session *s, struct gpu_useful *how)
{
    size_t heads = (size_t)s->cache_heads * (size_t)step_layers_together(s);
    how->ld_order = (int)s->attn.ld_strip;
    how->ld_bits = (int)(s->attn.ld_strip / 32 + 1);
    how->order = gpu_alloc(g, heads * s->attn.ld_strip, sizeof *how->order);
    how->bits = gpu_alloc(g, heads * 2, (size_t)how->ld_bits * sizeof *how->bits);
    return how->order && how->bits;
}

static bool put_all(struct session *s, struct device_dilution *x, const struct probe_copy *arrays)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    const struct probe_config *c = x->s->cfg;
    struct dilution_view v = probe_dilution_view(x->s);
    struct gpu_useful_columns columns = {.useful = {NULL}};
    size_t layers = (size_t)c->shape.n_layers, cap = (size_t)c->cap;
    size_t plan = layers * (size_t)c->plan_heads * (size_t)c->plan_tokens * sizeof *x->plan;
    size_t gates = layers * (size_t)c->shape.n_kv_heads * cap * sizeof *x->log_beta;
    list_columns(v.at, arrays, &columns);
    return put(g, &x->columns, &columns, sizeof columns) && put(g, &x->spans, v.spans, cap)
           && (!c->plan_until || put(g, &x->plan, c->plan_until, plan))
           && (!v.log_beta || put(g, &x->log_beta, v.log_beta, gates))
           && (!c->evicts || hold_order(g, s, &x->how));
}

static void describe(struct device_dilution *x)
{
    const struct probe_config *c = x->s->cfg;
    struct dilution_view v = probe_dilution_view(x->s);
    struct gpu_useful *how = &x->how;
    how->cap = c->cap;
    how->wide = !x->s->narrow;
    how->columns = x->columns;
    how->n_spans = c->n_span_sets;
    how->spans = x->spans;
    how->plan = x->plan;
    how->plan_tokens = c->plan_tokens;
    how->plan_per = c->plan_until ? c->shape.n_heads / c->plan_heads : 1;
    how->log_beta = x->log_beta;
    for (int j = 0; j < DILUTION_SLACK; j++)
        how->slack[j] = v.slack[j];
    for (int k = 0; k < DILUTION_NEAR; k++)
        how->near[k] = v.near[k];
    for (int k = 0; k < c->n_span_sets; k++)
        how->first[k] = c->span_set[k].n > 0 ? c->span_set[k].range[0][0] : INT32_MAX;
}

struct device_dilution *device_dilution_open(struct session *s, const struct probe_state *p,
                                             const struct probe_copy *arrays)
{
    struct device_dilution *x = MEM_NEW(struct device_dilution, 1);
    if (!x)
        return NULL;
    x->s = p;
    if (!put_all(s, x, arrays)) {
        device_dilution_close(((struct device_session *)s->device_state)->gpu, x);
        return NULL;
    }
    describe(x);
    return x;
}

void device_dilution_close(struct gpu *g, struct device_dilution *x)
{
    if (!x)
        return;
    gpu_free(g, x->columns);
    gpu_free(g, x->spans);
    gpu_free(g, x->plan);
    gpu_free(g, x->log_beta);
    gpu_free(g, x->how.order);
    gpu_free(g, x->how.bits);
    mem_free(x);
}

void device_dilution_take(struct gpu *g, const struct device_dilution *x, int layer,
                          const struct gpu_seen_rows *rows, const struct row_cut *cuts)
{
    struct gpu_useful how = x->how;
    how.head = layer * x->s->cfg->shape.n_heads;
    gpu_watch_useful(g, rows, cuts, &how);
}

float *device_dilution_numbers(const struct device_dilution *x, int *ret_cap)
{
    *ret_cap = x->how.cap;
    return x->log_beta;
}

void device_dilution_put_numbers(struct gpu *g, const struct device_dilution *x, int layer, int T,
                                 int pos0)
{
    size_t heads = (size_t)x->s->cfg->shape.n_kv_heads, ld = (size_t)x->s->cfg->cap;
    size_t at = (size_t)layer * heads * ld + (size_t)pos0, size = sizeof *x->log_beta;
    if (x->log_beta)
        gpu_put_rows(g, x->log_beta + at, ld * size, probe_dilution_view(x->s).log_beta + at,
                     ld * size, (size_t)T * size, heads);
}

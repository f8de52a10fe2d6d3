/* page_choice.c - page-wise attention on a device: page summaries, and the selection of the pages
 * that the query of a step attends to. */
#include <math.h>

#include "base/mem.h"
#include "engine/device/decode.h"
#include "engine/method/parts.h"

static struct gpu *gpu_of(const struct session *s)
{
    return ((struct device_session *)s->device_state)->gpu;
}

static struct device_reads *reads_of(const struct session *s)
{
    return &((struct device_session *)s->device_state)->decode->reads;
}

static bool reads_by(const struct session *s, const struct read *part)
{
    return method_of(s->method)->read == part;
}

bool device_reads_can(const struct session *s)
{
    struct gate_blocks unused;
    if (!reads_by(s, &read_seer))
        return reads_by(s, &read_all) || reads_by(s, &read_quest) || reads_by(s, &read_seer_oracle);
    return gates_blocks(s->gates, &unused) && !method_of(s->method)->score
           && !method_expires(s->method);
}

/* Returns the number of floats of the matrix that projects the queries of a head. */
static size_t matrix_floats(const struct session *s, int dim)
{
    const struct model_config *c = &s->e->config;
    return (size_t)dim * (size_t)(c->n_heads / s->cache_heads * c->head_dim);
}

void device_reads_buffers(struct session *s, struct buffer_list *a)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    struct device_reads *x = &r->reads;
    const struct model_config *c = &s->e->config;
    const struct method_params *p = method_params_of(s->method);
    size_t L = (size_t)c->n_layers, heads = L * (size_t)s->cache_heads, G = (size_t)c->n_heads;
    struct gate_blocks gate = {.dim = 0};
    if (!s->reading.chosen)
        return;
    x->how.page = p->page;
    x->how.ld = (r->ld + p->page - 1) / p->page;
    size_t ld = (size_t)x->how.ld, D = (size_t)c->head_dim;
    buffers_add(a, &x->how.score, G * ld, sizeof(float));
    buffers_add(a, &x->how.number, G * ld, sizeof(int32_t));
    buffers_add(a, &x->how.n_open, G, sizeof(int32_t));
    buffers_add(a, &x->how.lost, G, sizeof(int64_t));
    buffers_add(a, &x->how.count, G, sizeof(int32_t));
    buffers_add(a, &x->page, heads, sizeof *x->page);
    buffers_add(a, &x->chosen, L * G * ld, 1);
    buffers_add_pinned(a, &x->host_page, heads, sizeof *x->page);
    buffers_add_pinned(a, &x->host_chosen, L * G * ld, 1);
    if (reads_by(s, &read_quest)) {
        buffers_add(a, &r->heads.valid, heads, sizeof(int32_t));
        buffers_add(a, &x->bounds.least, heads * D * ld, sizeof(float));
        buffers_add(a, &x->bounds.most, heads * D * ld, sizeof(float));
    }
    if (!reads_by(s, &read_seer))
        return;
    gates_blocks(s->gates, &gate);
    x->dim = gate.dim;
    size_t dim = (size_t)gate.dim;
    buffers_add(a, &x->key, heads * ld * dim, sizeof(float));
    buffers_add(a, &x->vector, (size_t)s->cache_heads * dim, sizeof(float));
    buffers_add(a, &x->weights, heads * matrix_floats(s, gate.dim), sizeof(float));
    buffers_add(a, &x->norm, L * dim, sizeof(float));
    buffers_add(a, &x->turns, dim, sizeof(float));
    buffers_add_pinned(a, &x->host_turns, dim, sizeof(float));
}

static int put_weights(struct session *s)
{
    struct device_reads *x = reads_of(s);
    size_t n = matrix_floats(s, x->dim);
    float *w = MEM_RAW(float, n);
    struct gate_blocks gate;
    if (!w)
        return KVF_E_NOMEM;
    gates_blocks(s->gates, &gate);
    for (int at = 0; at < s->e->config.n_layers * s->cache_heads; at++) {
        gates_weights(s->gates, at / s->cache_heads, at % s->cache_heads, 1, w);
        gpu_put(gpu_of(s), x->weights + (size_t)at * n, w, n * sizeof *w);
    }
    if (gate.norm)
        gpu_put(gpu_of(s), x->norm, gate.norm,
                (size_t)s->e->config.n_layers * (size_t)x->dim * sizeof *x->norm);
    mem_free(w);
    return KVF_OK;
}

int device_reads_enter(struct session *s)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    struct device_reads *x = &r->reads;
    const struct method *row = method_of(s->method);
    const struct method_params *p = method_params_of(s->method);
    size_t G = (size_t)s->e->config.n_heads, heads = (size_t)r->heads.cache.heads;
    if (!s->reading.chosen)
        return KVF_OK;
    int32_t *number = MEM_RAW(int32_t, (size_t)x->how.ld);
    if (!number)
        return KVF_E_NOMEM;
    for (int b = 0; b < x->how.ld; b++)
        number[b] = b;
    for (size_t g = 0; g < G; g++)
        gpu_put(gpu_of(s), x->how.number + g * (size_t)x->how.ld, number,
                (size_t)x->how.ld * sizeof *number);
    mem_free(number);
    x->how.budget = p->budget;
    x->how.per = (int)G / s->cache_heads;
    x->how.local = row->admission->uses & USES_LOCAL && p->local > 1 ? p->local : 1;
    x->how.together = row->read->shared || p->group == GROUP_MAX;
    x->known = 0;
    gpu_zero(gpu_of(s), x->page, heads * sizeof *x->page);
    if (r->heads.valid)
        gpu_zero(gpu_of(s), r->heads.valid, heads * sizeof *r->heads.valid);
    return x->key ? put_weights(s) : KVF_OK;
}

/* Uploads the vectors of new full blocks, which the host computes, and prepares the rotation of the
 * query for upload with the step. */
void device_reads_begin(struct session *s)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    struct device_reads *x = &r->reads;
    struct gate_blocks gate;
    if (s->reading.chosen)
        x->how.budget = method_budget_at(method_params_of(s->method), s->n_past + 1);
    if (!s->reading.chosen || !x->key)
        return;
    const struct device_evidence e = device_evidence(s->method, s->cache);
    size_t dim = (size_t)x->dim, row = dim * sizeof(float);
    for (int full = cache_view(s->cache, 0, 0).n / x->how.page; x->known < full; x->known++)
        gpu_put_rows(gpu_of(s), x->key + (size_t)x->known * dim, (size_t)x->how.ld * row,
                     e.block_key + (size_t)x->known * dim, (size_t)e.block_cap * row, row,
                     (size_t)r->heads.cache.heads);
    gates_blocks(s->gates, &gate);
    for (int j = 0; j < x->dim / 2; j++) {
        x->host_turns[2 * j] = (float)cos(s->n_past * gate.theta[j]);
        x->host_turns[2 * j + 1] = (float)sin(s->n_past * gate.theta[j]);
    }
}

void device_reads_parts(struct session *s, struct gpu_parts *p)
{
    struct device_reads *x = reads_of(s);
    if (s->reading.chosen && x->key)
        gpu_part(p, x->turns, x->host_turns, (size_t)x->dim * sizeof *x->turns);
}

/* Projects the queries of all heads of a layer to gate vectors. */
static void make_vectors(struct session *s, int layer, const float *pre)
{
    struct device_reads *x = reads_of(s);
    int K = s->e->config.n_heads / s->cache_heads * s->e->config.head_dim;
    struct gate_blocks gate;
    gates_blocks(s->gates, &gate);
    for (int h = 0; h < s->cache_heads; h++) {
        size_t at = (size_t)(layer * s->cache_heads + h);
        const struct gpu_matrix w = {.data = x->weights + at * matrix_floats(s, x->dim),
                                     .type = WEIGHT_F32,
                                     .N = x->dim,
                                     .K = K,
                                     .row_bytes = (size_t)K * sizeof(float)};
        (s->e->exact ? gpu_product_exact : gpu_product)(
            gpu_of(s), x->vector + h * x->dim, (size_t)x->dim, pre + h * K, (size_t)K, 1, &w);
    }
    if (gate.norm)
        gpu_rmsnorm(gpu_of(s), x->vector, x->vector, (size_t)(s->cache_heads * x->dim),
                    x->norm + layer * x->dim, 1, s->cache_heads, x->dim, gate.eps);
    gpu_rope(gpu_of(s), x->vector, (size_t)(s->cache_heads * x->dim), x->turns, 1, s->cache_heads,
             x->dim, x->dim);
}

static void score(struct session *s, int layer, const float *pre, const struct gpu_attention *a)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    struct device_reads *x = &r->reads;
    int H = s->cache_heads, first = layer * H, l = r->keeps_rows ? layer : 0;
    float *p = r->out.rows + (size_t)l * (size_t)s->e->config.n_heads * (size_t)r->ld;
    if (reads_by(s, &read_quest)) {
        gpu_take_bounds(gpu_of(s), &r->heads, &x->how, first, H, &x->bounds);
        gpu_score_bounds(gpu_of(s), &r->heads, &x->how, first, H, &x->bounds, a->q);
    } else if (reads_by(s, &read_seer)) {
        make_vectors(s, layer, pre);
        gpu_score_blocks(gpu_of(s), &r->heads, &x->how, first, H, x->key, x->vector, x->dim);
    } else { /* weights of all entries, in the buffer for the weights of the selected ones */
        gpu_rows(gpu_of(s), a, p, (size_t)r->ld, NULL, NULL, NULL);
        gpu_score_weights(gpu_of(s), &r->heads, &x->how, first, H, p, (size_t)r->ld);
    }
}

void device_reads_run(struct session *s, int layer, const float *pre, struct gpu_attention *a)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    struct device_reads *x = &r->reads;
    int H = s->cache_heads, first = layer * H;
    size_t rows = (size_t)layer * (size_t)s->e->config.n_heads;
    if (!s->reading.chosen || layer < method_params_of(s->method)->dense)
        return;
    unsigned char *chosen = x->chosen + rows * (size_t)x->how.ld;
    gpu_count_pages(gpu_of(s), &r->heads, &x->how, first, H, x->page + first, chosen);
    score(s, layer, pre, a);
    gpu_choose_pages(gpu_of(s), &x->how, H, chosen);
    device_reads_of(s, layer, a);
}

void device_reads_of(const struct session *s, int layer, struct gpu_attention *a)
{
    const struct device_reads *x = reads_of(s);
    if (!s->reading.chosen)
        return;
    a->page = x->page + layer * s->cache_heads;
    a->chosen = x->chosen + (size_t)(layer * s->e->config.n_heads) * (size_t)x->how.ld;
    a->ld_chosen = x->how.ld;
}

void device_reads_fetch(struct session *s)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    struct device_reads *x = &r->reads;
    size_t rows = (size_t)s->e->config.n_layers * (size_t)s->e->config.n_heads;
    if (!s->reading.chosen)
        return;
    gpu_fetch(gpu_of(s), x->host_page, x->page, (size_t)r->heads.cache.heads * sizeof *x->page);
    gpu_fetch(gpu_of(s), x->host_chosen, x->chosen, rows * (size_t)x->how.ld);
}

void device_reads_learn(struct session *s, int layer)
{
    const struct device_reads *x = s->reading.chosen ? reads_of(s) : NULL;
    int G = s->e->config.n_heads, per = G / s->cache_heads;
    for (int g = 0; x && g < G; g++) {
        int h = g / per, page = x->host_page[layer * s->cache_heads + h];
        int n = cache_view(s->cache, layer, h).n + 1; /* the new entry is not stored yet */
        const unsigned char *from = x->host_chosen + (size_t)(layer * G + g) * (size_t)x->how.ld;
        s->reading.page_of_head[h] = page;
        for (int b = 0; page && b < (n + page - 1) / page; b++)
            s->reading.chosen[(size_t)g * s->reading.ld_chosen + (size_t)b] = from[b] != 0;
    }
}

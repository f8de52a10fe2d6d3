/* access.c - read access to the state of a method, for its parts: parameters and evidence. */
#include "engine/method/parts.h"
#include "engine/method/state.h"

bool method_owns(const struct method_state *s, int layer, int head)
{
    return !s->owned || s->owned[layer * s->shape.n_kv_heads + head];
}

const struct kernels *method_kernels(const struct method_state *s)
{
    return &s->kernels;
}

const struct method *method_of(const struct method_state *s)
{
    return s->method;
}

const struct method_params *method_params_of(const struct method_state *s)
{
    return &s->params;
}

const struct method_shape *method_shape_of(const struct method_state *s)
{
    return &s->shape;
}

const struct method_inputs *method_inputs_of(const struct method_state *s)
{
    return &s->inputs;
}

static size_t query_index(const struct method_state *s, int layer, int g)
{
    return (size_t)layer * (size_t)s->shape.n_heads + (size_t)g;
}

const double *evidence_sum(const struct method_state *s, int layer, int query_head)
{
    return s->evidence.sum + query_index(s, layer, query_head) * (size_t)s->evidence.cap;
}

int evidence_rows(const struct method_state *s, int layer, int query_head)
{
    int n = s->evidence.n_rows[query_index(s, layer, query_head)];
    return n < s->evidence.window ? n : s->evidence.window;
}

const float *evidence_row(const struct method_state *s, int layer, int query_head, int age,
                          int32_t *ret_t, int *ret_n)
{
    const struct evidence *e = &s->evidence;
    size_t q = query_index(s, layer, query_head);
    size_t per = (size_t)(s->shape.n_heads / s->shape.n_kv_heads);
    int row = (e->n_rows[q] - 1 - age) % e->ring;
    size_t at = q * (size_t)e->ring + (size_t)row;
    if (e->n_left[q / per] > 0)
        evidence_close_row(e, q / per, row);
    if (ret_t)
        *ret_t = e->row_t[at];
    if (ret_n)
        *ret_n = e->row_n[at];
    return e->rows + at * (size_t)e->cap;
}

float evidence_row_lse(const struct method_state *s, int layer, int query_head, int age)
{
    const struct evidence *e = &s->evidence;
    size_t q = query_index(s, layer, query_head);
    return e->row_lse[q * (size_t)e->ring + (size_t)((e->n_rows[q] - 1 - age) % e->ring)];
}

static size_t kv_at(const struct method_state *s, int layer, int head)
{
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)head;
    return at * (size_t)s->evidence.cap;
}

const float *evidence_key(const struct method_state *s, int layer, int head, int slot)
{
    return s->evidence.keys + (kv_at(s, layer, head) + (size_t)slot) * (size_t)s->shape.head_dim;
}

const float *evidence_norms(const struct method_state *s, int layer, int head)
{
    return s->evidence.norms + kv_at(s, layer, head);
}

const double *evidence_anchor(const struct method_state *s, int layer, int head, int n)
{
    return evidence_sync_anchor(&s->evidence, layer, head, n);
}

double *evidence_note(const struct method_state *s, int layer, int head)
{
    return s->evidence.note + kv_at(s, layer, head);
}

float *evidence_history(const struct method_state *s, int layer, int head)
{
    return s->evidence.history + kv_at(s, layer, head);
}

const float *evidence_value_norms(const struct method_state *s, int layer, int head)
{
    return s->evidence.values + kv_at(s, layer, head);
}

const float *evidence_gate(const struct method_state *s, int layer, int head)
{
    return s->evidence.gate + kv_at(s, layer, head);
}

int64_t evidence_moments(const struct method_state *s, int layer, int query_head,
                         const double **ret_sum, const double **ret_outer)
{
    size_t q = query_index(s, layer, query_head), D = (size_t)s->shape.head_dim;
    *ret_sum = s->evidence.query_sum + q * D;
    *ret_outer = s->evidence.query_outer + q * D * D;
    return s->evidence.n_queries[layer];
}

const double *evidence_full_sum(const struct method_state *s, int layer, int query_head)
{
    return s->evidence.full_sum + query_index(s, layer, query_head) * (size_t)s->evidence.cap;
}

const float *evidence_full_row(const struct method_state *s, int layer, int query_head)
{
    return s->evidence.full_row + query_index(s, layer, query_head) * (size_t)s->evidence.cap;
}

void method_group(const struct method_state *s, int head, int *ret_first, int *ret_n)
{
    int per = s->shape.n_heads / s->shape.n_kv_heads;
    bool layer = s->method->scope == SCOPE_LAYER;
    *ret_first = layer ? 0 : head * per;
    *ret_n = layer ? s->shape.n_heads : per;
}

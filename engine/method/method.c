/* method.c - parsing of "--method" and the state that a row needs. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/method/state.h"

static const struct method *find_preset(const char *name)
{
    for (const struct method *m = method_presets; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

static int unknown_preset(const char *name, struct kvf_diag *d)
{
    char list[256] = "";
    size_t n = 0;
    for (const struct method *m = method_presets; m->name && n < sizeof list - 32; m++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", m->name);
    return kvf_fail(d, KVF_E_ARG, "--method: no method '%s'; there are %s", name, list);
}

int method_parse(const char *text, int budget, const struct method **ret_method,
                 struct method_params *ret_params, struct kvf_diag *d)
{
    char name[64];
    size_t n = strcspn(text, ":");
    if (n == 0 || n >= sizeof name)
        return unknown_preset(text, d);
    memcpy(name, text, n);
    name[n] = 0;
    const struct method *m = find_preset(name);
    if (!m)
        return unknown_preset(name, d);
    if (m->score && budget < 1)
        return kvf_fail(d, KVF_E_ARG, "--method %s needs --budget N with N >= 1: entries that each "
                        "KV head may hold", name);
    int err = method_options_parse(m, text[n] ? text + n + 1 : text + n, budget, ret_params, d);
    if (!err)
        *ret_method = m;
    return err;
}

int method_state_create(const struct method *m, const struct method_params *p,
                        const struct method_shape *shape, struct method_state **ret_state)
{
    struct method_state *s = MEM_NEW(struct method_state, 1);
    if (!s)
        return KVF_E_NOMEM;
    *s = (struct method_state){.method = m, .params = *p, .shape = *shape};
    kernels_init(&s->kernels, 0);
    s->n_cut = MEM_NEW(int, (size_t)shape->n_layers * (size_t)shape->n_kv_heads);
    s->share = MEM_NEW(int, (size_t)shape->n_layers);
    s->share_scratch = MEM_NEW(double, (size_t)shape->n_layers);
    int err = s->n_cut && s->share && s->share_scratch ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        err = evidence_init(&s->evidence, m->score ? m->score->evidence : 0, p->window, shape);
    if (err) {
        method_state_destroy(s);
        return err;
    }
    *ret_state = s;
    return KVF_OK;
}

void method_state_destroy(struct method_state *s)
{
    if (!s)
        return;
    evidence_finish(&s->evidence);
    mem_free(s->share);
    mem_free(s->share_scratch);
    mem_free(s->n_cut);
    mem_free(s->victim);
    mem_free(s->value);
    mem_free(s->keep);
    mem_free(s->scratch);
    mem_free(s);
}

void method_use_kernels(struct method_state *s, const struct kernels *k)
{
    s->kernels = *k;
}

const struct kernels *method_kernels(const struct method_state *s) { return &s->kernels; }
const struct method *method_of(const struct method_state *s) { return s->method; }
const struct method_params *method_params_of(const struct method_state *s) { return &s->params; }
const struct method_shape *method_shape_of(const struct method_state *s) { return &s->shape; }

int method_prepare(struct method_state *s, int slots, int32_t next_decision)
{
    s->next_decision = next_decision;
    if (!s->method->score || slots <= s->cap)
        return KVF_OK;
    int err = evidence_reserve(&s->evidence, slots);
    if (err)
        return err;
    size_t n = (size_t)s->shape.n_layers * (size_t)s->shape.n_kv_heads * (size_t)slots;
    mem_free(s->victim);
    mem_free(s->value);
    mem_free(s->keep);
    s->cap = 0;
    s->victim = MEM_NEW(int32_t, n);
    s->value = MEM_NEW(float, n);
    s->keep = MEM_NEW(unsigned char, (size_t)slots);
    if (!s->victim || !s->value || !s->keep)
        return KVF_E_NOMEM;
    s->cap = slots;
    return KVF_OK;
}

void method_appended(struct method_state *s, const struct cache *c, int layer, int head, int slot)
{
    if (s->evidence.kinds)
        evidence_appended(&s->evidence, c, layer, head, slot);
}

bool method_wants_row(const struct method_state *s, int32_t t)
{
    if (s->evidence.kinds & EVIDENCE_SUM)
        return true;
    return s->evidence.kinds & EVIDENCE_WINDOW && t >= s->next_decision - s->params.window;
}

void method_row(struct method_state *s, const struct attn_row *row)
{
    evidence_take(&s->evidence, row);
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
    size_t at = q * (size_t)e->ring + (size_t)((e->n_rows[q] - 1 - age) % e->ring);
    if (ret_t)
        *ret_t = e->row_t[at];
    if (ret_n)
        *ret_n = e->row_n[at];
    return e->rows + at * (size_t)e->cap;
}

static size_t kv_at(const struct method_state *s, int layer, int head)
{
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)head;
    return at * (size_t)s->evidence.cap;
}

const float *evidence_key(const struct method_state *s, int layer, int head, int slot)
{
    return s->evidence.keys
           + (kv_at(s, layer, head) + (size_t)slot) * (size_t)s->shape.head_dim;
}

const float *evidence_norms(const struct method_state *s, int layer, int head)
{
    return s->evidence.norms + kv_at(s, layer, head);
}

const double *evidence_anchor(const struct method_state *s, int layer, int head, int n)
{
    return evidence_sync_anchor(&s->evidence, layer, head, n);
}

float *evidence_history(const struct method_state *s, int layer, int head)
{
    return s->evidence.history + kv_at(s, layer, head);
}

void method_group(const struct method_state *s, int head, int *ret_first, int *ret_n)
{
    int per = s->shape.n_heads / s->shape.n_kv_heads;
    bool layer = s->method->scope == SCOPE_LAYER;
    *ret_first = layer ? 0 : head * per;
    *ret_n = layer ? s->shape.n_heads : per;
}

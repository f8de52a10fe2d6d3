/* plan.c - reads plans. */
#include "engine/experiment/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "base/mem.h"
#include "libtrace/run_header.h"

enum { PLAN_VERSION = 1 };

/* A plan that is being read. */
struct input {
    const char *path;
    const struct plan_model *model;
    struct kvf_trace *t;
    struct json *header;
    struct plan *p;
};

static const char *header_str(const struct input *in, const char *object, const char *key)
{
    return json_str(json_get(json_get(in->header, object), key), "");
}

static int open_input(struct input *in, struct kvf_diag *d)
{
    int err = kvf_open(in->path, KVF_OPEN_TAIL, &in->t, d);
    if (!err)
        err = kvf_check_size(in->t, d);
    if (err)
        return err;
    return run_header(in->t, &in->header, d);
}

/* Checks that a hash in the header equals `mine`. A missing hash is an error only if `need` is
 * set. */
static int same_hash(const struct input *in, const char *object, const char *mine, bool need,
                     struct kvf_diag *d)
{
    const char *hash = header_str(in, object, "hash");
    if (strcmp(hash, mine) == 0 || (!*hash && !need))
        return KVF_OK;
    if (!*hash)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s does not name the %s of its run; a capture takes it from a trace of "
                        "kvfate run (meta in the guide on captures)",
                        in->path, object);
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s was made with another %s (%.40s of hash %.32s); this one "
                    "has hash %s",
                    in->path, object, header_str(in, "model", "name"), hash, mine);
}

static int check_length(const struct input *in, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(in->t);
    if (T < 1)
        return kvf_fail(d, KVF_E_FORMAT, "%s has no token", in->path);
    if (T > (uint32_t)in->model->most_tokens)
        return kvf_fail(d, KVF_E_LIMIT, "%s has %u tokens, over the model's context of %d",
                        in->path, T, in->model->most_tokens);
    in->p->n_tokens = (int32_t)T;
    int64_t n = json_int(json_get(json_get(in->header, "run"), "prompt_tokens"), 0);
    if (n < 0 || n > T)
        return kvf_fail(d, KVF_E_FORMAT, "%s: a prompt of %lld tokens does not fit into %u",
                        in->path, (long long)n, T);
    in->p->n_prompt = (int32_t)n;
    snprintf(in->p->method, sizeof in->p->method, "%s", header_str(in, "method", "name"));
    int64_t chunk = json_int(json_get(json_get(in->header, "method"), "chunk"), 0);
    in->p->chunk = chunk > 0 && chunk < T ? (int)chunk : 0;
    in->p->by_rank = strcmp(header_str(in, "method", "positions"), "cache") == 0;
    return KVF_OK;
}

static int check_shape(const struct input *in, struct kvf_diag *d)
{
    const struct plan_model *m = in->model;
    const char *space = json_str(json_get(in->header, "entry_space"), "kv");
    int heads = strcmp(space, "query") == 0 ? m->n_heads : m->n_kv_heads;
    bool same = kvf_n_layers(in->t) == m->n_layers;
    for (int l = 0; same && l < m->n_layers; l++)
        same = kvf_n_heads(in->t, l, KVF_SPACE_KV) == heads
               && kvf_n_heads(in->t, l, KVF_SPACE_QUERY) == m->n_heads;
    if (!same)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: its layers and heads are not the model's %d layers "
                        "of %d KV and %d query heads",
                        in->path, m->n_layers, heads, m->n_heads);
    in->p->n_layers = m->n_layers;
    in->p->n_heads = m->n_heads;
    in->p->n_kv_heads = heads;
    return KVF_OK;
}

static int check_plan(const struct input *in, struct kvf_diag *d)
{
    const struct json *plan = json_get(in->header, "plan");
    if (!json_is_object(plan))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s is a trace, not a plan; 'kvfate trace plan %s -o P.kvf' "
                        "makes one",
                        in->path, in->path);
    if (json_int(json_get(plan, "version"), 0) != PLAN_VERSION)
        return kvf_fail(d, KVF_E_VERSION, "%s is a plan of another version than %d", in->path,
                        PLAN_VERSION);
    if (!kvf_is_clean(in->t))
        return kvf_fail(d, KVF_E_FORMAT, "%s was not closed: a plan must be complete", in->path);
    return KVF_OK;
}

/* Reads a column of dtype [heads][T]; *ret stays NULL if it does not exist. */
static int read_column(const struct input *in, const char *name, enum kvf_dtype dtype,
                       enum kvf_space space, int heads, void **ret, struct kvf_diag *d)
{
    int column = kvf_find(in->t, name);
    const struct kvf_column *c = kvf_column(in->t, column);
    size_t T = (size_t)in->p->n_tokens, size = kvf_dtype_size(dtype);
    if (!c)
        return KVF_OK;
    if (c->dtype != dtype || c->space != space || c->axis != KVF_AXIS_TOKEN)
        return kvf_fail(d, KVF_E_FORMAT, "%s: the column %s is not of the type that plans have",
                        in->path, name);
    int layers = space == KVF_SPACE_RUN ? 1 : in->p->n_layers;
    unsigned char *v = mem_alloc((size_t)layers * (size_t)heads * T, size);
    if (!v)
        return KVF_E_NOMEM;
    for (int i = 0; i < layers * heads; i++) {
        int err = kvf_read(in->t, column, i / heads, i % heads, 0, (uint32_t)T,
                           v + (size_t)i * T * size, d);
        if (err) {
            mem_free(v);
            return err;
        }
    }
    *ret = v;
    return KVF_OK;
}

static int read_tokens(const struct input *in, struct kvf_diag *d)
{
    struct plan *p = in->p;
    void *v = NULL;
    int err = read_column(in, "tokens.id", KVF_I32, KVF_SPACE_RUN, 1, &v, d);
    if (err || !v)
        return err;
    p->ids = v;
    for (int32_t i = 0; i < p->n_tokens; i++)
        if (p->ids[i] < 0 || p->ids[i] >= in->model->vocab)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: token %d has the id %d, not one below the "
                            "vocabulary's size of %d",
                            in->path, i, p->ids[i], in->model->vocab);
    v = NULL;
    err = read_column(in, "tokens.role", KVF_U8, KVF_SPACE_RUN, 1, &v, d);
    if (err || !v)
        return err;
    p->roles = v;
    for (int32_t i = 0; i < p->n_tokens; i++)
        if (p->roles[i] > KVF_ROLE_QUESTION)
            return kvf_fail(d, KVF_E_FORMAT, "%s: token %d has the role %d, which there is not",
                            in->path, i, p->roles[i]);
    return KVF_OK;
}

static int read_evictions(const struct input *in, struct kvf_diag *d)
{
    struct plan *p = in->p;
    void *v = NULL;
    int err = read_column(in, "evict_step", KVF_U32, KVF_SPACE_KV, p->n_kv_heads, &v, d);
    if (err || !v)
        return err;
    size_t T = (size_t)p->n_tokens, n = (size_t)p->n_layers * (size_t)p->n_kv_heads * T;
    p->evict_step = v;
    for (size_t k = 0; k < n; k++) {
        uint32_t e = p->evict_step[k], i = (uint32_t)(k % T);
        if (e != KVF_ALIVE && (e <= i || e > T))
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: layer %zu, head %zu: entry %u cannot go at step "
                            "%u of %zu",
                            in->path, k / T / (size_t)p->n_kv_heads, k / T % (size_t)p->n_kv_heads,
                            i, e, T);
    }
    return KVF_OK;
}

static int read_mass(const struct input *in, struct kvf_diag *d)
{
    struct plan *p = in->p;
    void *v = NULL;
    int err = read_column(in, "plan.mass", KVF_F64, KVF_SPACE_QUERY, p->n_heads, &v, d);
    if (err || !v)
        return err;
    size_t T = (size_t)p->n_tokens, n = (size_t)p->n_layers * (size_t)p->n_heads * T;
    p->mass = v;
    for (size_t k = 0; k < n; k++)
        if (!(p->mass[k] >= 0) || isinf(p->mass[k]))
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: layer %zu, query head %zu, entry %zu: %g is no "
                            "mass",
                            in->path, k / T / (size_t)p->n_heads, k / T % (size_t)p->n_heads, k % T,
                            p->mass[k]);
    return KVF_OK;
}

static int close_input(struct input *in, int err, struct plan **ret_plan)
{
    json_free(in->header);
    kvf_close(in->t);
    if (err)
        plan_close(in->p);
    else
        *ret_plan = in->p;
    return err;
}

static int read_plan(struct input *in, struct kvf_diag *d)
{
    int err = open_input(in, d);
    if (err)
        return err;
    err = check_plan(in, d);
    if (err)
        return err;
    err = same_hash(in, "model", in->model->hash, true, d);
    if (err)
        return err;
    err = check_length(in, d);
    if (err)
        return err;
    err = check_shape(in, d);
    if (err)
        return err;
    err = read_tokens(in, d);
    if (err)
        return err;
    err = read_evictions(in, d);
    if (err)
        return err;
    return read_mass(in, d);
}

int plan_open(const char *path, const struct plan_model *model, struct plan **ret_plan,
              struct kvf_diag *d)
{
    struct input in = {path, model, NULL, NULL, MEM_NEW(struct plan, 1)};
    int err = in.p ? read_plan(&in, d) : KVF_E_NOMEM;
    return close_input(&in, err, ret_plan);
}

static int read_trace(struct input *in, struct kvf_diag *d)
{
    int err = open_input(in, d);
    if (err)
        return err;
    err = same_hash(in, "tokenizer", in->model->tokenizer_hash, false, d);
    if (err)
        return err;
    err = check_length(in, d);
    if (err)
        return err;
    err = read_tokens(in, d);
    if (err)
        return err;
    if (!in->p->ids)
        return kvf_fail(d, KVF_E_NOTFOUND, "%s has no token ids", in->path);
    return KVF_OK;
}

int plan_open_tokens(const char *path, const struct plan_model *model, struct plan **ret_plan,
                     struct kvf_diag *d)
{
    struct input in = {path, model, NULL, NULL, MEM_NEW(struct plan, 1)};
    int err = in.p ? read_trace(&in, d) : KVF_E_NOMEM;
    return close_input(&in, err, ret_plan);
}

void plan_close(struct plan *p)
{
    if (!p)
        return;
    mem_free(p->ids);
    mem_free(p->roles);
    mem_free(p->evict_step);
    mem_free(p->mass);
    mem_free(p);
}

/* gate_load.c - loads the tensors of a gate file into the networks of a layout. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/gate/state.h"

struct load {
    struct gates *g;
    const struct tensor_file *f;
    const char *path;
    bool *used; /* [f->n] */
    struct kvf_diag *d;
    float *floats; /* the data of the last tensor that was read */
    size_t room;   /* capacity of `floats` */
};

/* Writes a shape as "[4, 32]". */
static const char *shape_text(char out[96], const uint64_t *dim, int n)
{
    size_t at = 0;
    out[at++] = '[';
    for (int i = 0; i < n && at < 80; i++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%llu", i ? ", " : "",
                               (unsigned long long)dim[i]);
    snprintf(out + at, 96 - at, "]");
    return out;
}

/* Returns the tensor if it has these dimensions.  It may have one more of size 1 at the end. */
static const struct tensor *need(const struct load *l, const char *name, const uint64_t *dim, int n)
{
    char have[96], want[96];
    size_t i;
    const struct tensor *t = tensor_file_find(l->f, name, &i);
    if (!t) {
        kvf_fail(l->d, KVF_E_FORMAT,
                 "%s: tensor %s is missing; the layout %s needs it for a model "
                 "of %d layers",
                 l->path, name, gates_layout(l->g), l->g->model.n_layers);
        return NULL;
    }
    bool fits = true;
    for (int k = 0; k < TENSOR_DIMS; k++)
        fits = fits && t->dim[k] == (k < n ? dim[k] : 1);
    if (!fits) {
        kvf_fail(l->d, KVF_E_FORMAT,
                 "%s: tensor %s is %s, expected %s; are these gates for "
                 "another model?",
                 l->path, name, shape_text(have, t->dim, t->n_dims), shape_text(want, dim, n));
        return NULL;
    }
    l->used[i] = true;
    return t;
}

/* Sets *ret to a copy of the tensor in f32, with finite elements only.  It is stored in l->floats,
 * which the next call overwrites. */
static int take_floats(struct load *l, const struct tensor *t, float **ret)
{
    if (t->n > SIZE_MAX / sizeof **ret)
        return KVF_E_NOMEM;
    size_t n = (size_t)t->n;
    if (!l->floats || n > l->room) {
        mem_free(l->floats);
        l->floats = mem_alloc_huge(n, sizeof *l->floats);
        l->room = n;
    }
    if (!l->floats)
        return KVF_E_NOMEM;
    weight_dequant(l->floats, t->data, t->type, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(l->floats[i]))
            return kvf_fail(l->d, KVF_E_FORMAT,
                            "%s: element %zu of tensor %s is not a finite "
                            "number; fetch or train the gates again",
                            l->path, i, t->name);
    *ret = l->floats;
    return KVF_OK;
}

/* Returns the index in the file of channel i of a head with n channels.  In the order "halves" RoPE
 * pairs channel j with j + n/2.  The engine pairs neighbours, as GGUF does. */
static int place_of(int i, int n)
{
    return i / 2 + i % 2 * (n / 2);
}

/* Reorders n contiguous items of `width` floats by place_of().  tmp: [n * width]. */
static void turn(float *v, int n, size_t width, float *tmp)
{
    memcpy(tmp, v, (size_t)n * width * sizeof *v);
    for (int i = 0; i < n; i++)
        memcpy(v + (size_t)i * width, tmp + (size_t)place_of(i, n) * width, width * sizeof *v);
}

/* Reorders channels from the order of the file to the order of the engine. */
static int turn_part(const struct gates *g, const struct part *p, float *v, uint64_t n)
{
    bool rows = p->rows_turn || p->role == R_NORM;
    if (!g->halves)
        return KVF_OK;
    float *tmp = MEM_NEW(float, (size_t)n);
    if (!tmp)
        return KVF_E_NOMEM;
    size_t D = (size_t)g->model.head_dim, cols = (size_t)size_of(g, p->cols);
    size_t turned = p->turned ? (size_t)size_of(g, p->turned) : 0;
    size_t step = p->step ? (size_t)size_of(g, p->step) : D;
    for (size_t r = 0; turned && r < n / cols; r++)
        for (size_t c = 0; c < turned; c += step)
            turn(v + r * cols + c, (int)D, 1, tmp);
    size_t height = p->rows_turn ? (size_t)g->hidden : D, per = height * cols;
    for (size_t at = 0; rows && per && at < n; at += per)
        turn(v + at, (int)height, cols, tmp);
    mem_free(tmp);
    return KVF_OK;
}

static int put_weight(struct gates *g, int layer, const struct part *p, const float *v, size_t n)
{
    int cols = size_of(g, p->cols), rows = (int)(n / (size_t)cols) / g->n_units;
    for (int u = 0; u < g->n_units; u++) {
        struct packed *w = &g->unit[layer * g->n_units + u].stage[p->stage].w;
        struct pack_source src = {v + (size_t)u * (size_t)rows * (size_t)cols, WEIGHT_F32, rows};
        int err = packed_build(&src, 1, cols, PACK_EXACT, w);
        if (err)
            return err;
        g->bytes += w->bytes;
    }
    return KVF_OK;
}

static int put_bias(struct gates *g, int layer, const struct part *p, const float *v, size_t n)
{
    size_t rows = n / (size_t)g->n_units;
    for (int u = 0; u < g->n_units; u++) {
        float **b = &g->unit[layer * g->n_units + u].stage[p->stage].bias;
        *b = MEM_NEW(float, rows);
        if (!*b)
            return KVF_E_NOMEM;
        memcpy(*b, v + (size_t)u * rows, rows * sizeof **b);
        g->bytes += rows * sizeof **b;
    }
    return KVF_OK;
}

static int put_norm(struct gates *g, int layer, const struct part *p, const float *v, size_t n)
{
    float **norm = &g->norm[p->stage];
    if (!*norm)
        *norm = MEM_NEW(float, (size_t)g->model.n_layers *n);
    if (!*norm)
        return KVF_E_NOMEM;
    memcpy(*norm + (size_t)layer * n, v, n * sizeof **norm);
    g->bytes += n * sizeof **norm;
    return KVF_OK;
}

static int put_part(struct gates *g, int layer, const struct part *p, const float *v, size_t n)
{
    if (p->role == R_WEIGHT)
        return put_weight(g, layer, p, v, n);
    if (p->role == R_BIAS)
        return put_bias(g, layer, p, v, n);
    return put_norm(g, layer, p, v, n);
}

static int load_part(struct load *l, int layer, const struct part *p)
{
    char name[128];
    struct gates *g = l->g;
    uint64_t dim[3];
    int n = 0;
    for (; n < 3 && p->shape[n] != S_NONE; n++)
        dim[n] = (uint64_t)size_of(g, p->shape[n]);
    gates_tensor_name(g, name, layer, p);
    const struct tensor *t = need(l, name, dim, n);
    if (!t)
        return KVF_E_FORMAT;
    float *v;
    int err = take_floats(l, t, &v);
    if (err)
        return err;
    err = turn_part(g, p, v, t->n);
    return err ? err : put_part(g, layer, p, v, t->n);
}

/* Returns true if a part must be read.  Layer 0 decides for an optional part of all layers. */
static bool wanted(const struct load *l, const struct part *p)
{
    char name[128];
    if (!p->name || !p->optional)
        return p->name != NULL;
    gates_tensor_name(l->g, name, 0, p);
    return tensor_file_find(l->f, name, NULL) != NULL;
}

/* Reads I (or gate_dim) from a tensor of layer 0.  It is 0 without a hidden layer. */
static int read_hidden(const struct load *l)
{
    struct gates *g = l->g;
    const struct layout *y = &gate_layouts[g->layout];
    char name[128];
    if (y->hidden_part < 0)
        return KVF_OK;
    const struct part *p = &y->part[y->hidden_part];
    gates_tensor_name(l->g, name, 0, p);
    const struct tensor *t = tensor_file_find(l->f, name, NULL);
    if (!t)
        return kvf_fail(l->d, KVF_E_FORMAT, "%s: tensor %s is missing; the layout %s needs it",
                        l->path, name, y->name);
    uint64_t n = t->dim[y->hidden_dim], by = 1;
    if (p->shape[y->hidden_dim] == S_HI)
        by = (uint64_t)g->model.n_kv_heads;
    bool odd = g->kind == GATE_BLOCKS && n % 2;
    if (n % by || n / by > MAX_HIDDEN || odd)
        return kvf_fail(l->d, KVF_E_FORMAT,
                        "%s: dimension %d of tensor %s is %llu; expected "
                        "%s from %llu to %llu",
                        l->path, y->hidden_dim, name, (unsigned long long)n,
                        g->kind == GATE_BLOCKS ? "an even number" : "a multiple of the heads",
                        (unsigned long long)by, (unsigned long long)by * MAX_HIDDEN);
    g->hidden = (int)(n / by);
    return KVF_OK;
}

/* Returns true if the last linear layer and the bias are equal in all layers. */
static bool same_readout(const struct gates *g)
{
    int last = gate_stages_count(&gate_layouts[g->layout].stages) - 1;
    const struct dense *a = &g->unit[0].stage[last];
    for (int i = 1; i < g->model.n_layers; i++) {
        const struct dense *b = &g->unit[i].stage[last];
        if (memcmp(a->w.data, b->w.data, a->w.bytes) != 0
            || memcmp(a->bias, b->bias, (size_t)a->w.N * sizeof *a->bias) != 0)
            return false;
    }
    return true;
}

static int load_network(struct load *l)
{
    struct gates *g = l->g;
    const struct layout *y = &gate_layouts[g->layout];
    int err = read_hidden(l);
    if (err)
        return err;
    g->n_units = y->per_head ? g->model.n_kv_heads : 1;
    g->unit = MEM_NEW(struct unit, (size_t)g->model.n_layers * (size_t)g->n_units);
    if (!g->unit)
        return KVF_E_NOMEM;
    for (int p = 0; p < PARTS; p++)
        for (int i = 0; wanted(l, &y->part[p]) && i < g->model.n_layers; i++) {
            err = load_part(l, i, &y->part[p]);
            if (err)
                return err;
        }
    if (g->kind == GATE_RETENTION)
        g->tied = same_readout(g);
    if (g->kind != GATE_BLOCKS)
        return KVF_OK;
    g->theta = MEM_NEW(double, (size_t)g->hidden / 2);
    if (!g->theta)
        return KVF_E_NOMEM;
    for (int j = 0; j < g->hidden / 2; j++)
        g->theta[j] = pow(g->model.rope_base, -2.0 * j / g->hidden);
    return KVF_OK;
}

/* Reads alpha [L, H] or values [L, H, T]. */
static int load_given(struct load *l)
{
    struct gates *g = l->g;
    bool heads = g->kind == GATE_HEADS;
    const char *name = heads ? "duo.alpha" : "values";
    const struct tensor *t = tensor_file_find(l->f, name, NULL);
    uint64_t T = t && !heads ? t->dim[2] : 1;
    uint64_t dim[3] = {(uint64_t)g->model.n_layers, (uint64_t)g->model.n_kv_heads, T};
    if (T > INT32_MAX)
        return kvf_fail(l->d, KVF_E_LIMIT, "%s: %llu positions are over the limit", l->path,
                        (unsigned long long)T);
    t = need(l, name, dim, heads ? 2 : 3);
    int err = t ? take_floats(l, t, &g->given) : KVF_E_FORMAT;
    if (err)
        return err;
    l->floats = NULL; /* the gates own them now */
    float least = g->kind == GATE_RETENTION || g->kind == GATE_IMPORTANCE ? -INFINITY : 0.0f;
    float most = 1.0f;
    if (g->kind == GATE_RETENTION)
        most = 0.0f;
    else if (g->kind == GATE_IMPORTANCE)
        most = INFINITY;
    for (uint64_t i = 0; i < t->n; i++)
        if (!(g->given[i] >= least && g->given[i] <= most))
            return kvf_fail(
                l->d, KVF_E_FORMAT,
                "%s: element %llu of tensor %s is %g; numbers of "
                "kind %s are %s",
                l->path, (unsigned long long)i, name, (double)g->given[i], gates_kind_name(g->kind),
                g->kind == GATE_RETENTION ? "logarithms of beta, at most 0" : "from 0 to 1");
    g->n_given = (int32_t)T;
    g->bytes = (size_t)t->n * sizeof *g->given;
    return KVF_OK;
}

static int check_unused(const struct load *l)
{
    for (size_t i = 0; i < l->f->n; i++)
        if (!l->used[i])
            return kvf_fail(l->d, KVF_E_FORMAT,
                            "%s: tensor %s is not of the layout %s for a model "
                            "of %d layers; the layout is wrong or these gates are for another "
                            "model",
                            l->path, l->f->tensor[i].name, gates_layout(l->g),
                            l->g->model.n_layers);
    return KVF_OK;
}

int gates_load(struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    struct load l = {g, f, g->path, MEM_NEW(bool, f->n), d, NULL, 0};
    if (!l.used)
        return KVF_E_NOMEM;
    bool network = g->layout != LAYOUT_DUO && g->layout != LAYOUT_VALUES;
    int err = network ? load_network(&l) : load_given(&l);
    if (!err)
        err = check_unused(&l);
    mem_free_all(l.floats, l.used);
    return err;
}

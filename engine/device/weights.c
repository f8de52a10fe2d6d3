/* weights.c - the weights of a model on a device. Matrices have the type of their file. */
#include "base/mem.h"
#include "engine/device/device.h"

static struct device_matrix *place_of(struct device_weights *w, int layer, enum tensor_role role)
{
    return role == T_HEAD ? &w->head : &w->layer[layer].matrix[role];
}

/* Returns the matrix of a source on the device. Types that the kernels do not read become f32. */
static struct gpu_matrix form_of(const struct pack_source *src, int K)
{
    struct gpu_matrix m = {
        .type = gpu_reads(src->type) ? src->type : WEIGHT_F32, .N = src->n_rows, .K = K};
    m.row_bytes = weight_bytes(m.type, (size_t)K);
    return m;
}

static size_t bytes_of(const struct gpu_matrix *m)
{
    return m->row_bytes * (size_t)m->N;
}

static int put_source(struct gpu *g, const struct pack_source *src, void *to,
                      const struct gpu_matrix *m)
{
    size_t n = (size_t)m->N * (size_t)m->K;
    float *plain = NULL;
    const void *from = src->data;
    if (!to)
        return KVF_E_NOMEM;
    if (m->type != src->type) {
        plain = MEM_RAW(float, n);
        if (!plain)
            return KVF_E_NOMEM;
        weight_dequant(plain, src->data, src->type, n);
        from = plain;
    }
    gpu_put(g, to, from, bytes_of(m));
    mem_free(plain);
    return KVF_OK;
}

/* Returns true if the sources are stored contiguously: they have one type, and each size is a
 * multiple of ALIGN. A product in prefill then uses them as one matrix. */
static bool joins(const struct device_matrix *m)
{
    enum { ALIGN = 256 };
    bool same = m->n > 1;
    for (int i = 0; i < m->n; i++)
        same &= m->part[i].type == m->part[0].type && bytes_of(&m->part[i]) % ALIGN == 0;
    return same;
}

static void *place(char *room, size_t at)
{
    return room ? room + at : NULL;
}

static int take(void *ctx, int layer, enum tensor_role role, const struct pack_source *src,
                int n_src, int K)
{
    struct device_weights *w = ctx;
    struct device_matrix *m = place_of(w, layer, role);
    size_t all = 0, at = 0;
    int err = KVF_OK;
    m->n = n_src;
    for (int i = 0; i < n_src; i++) {
        m->part[i] = form_of(&src[i], K);
        all += bytes_of(&m->part[i]);
    }
    m->joined = joins(m);
    char *room = m->joined ? gpu_alloc(w->gpu, all, 1) : NULL;
    for (int i = 0; !err && i < n_src; i++) {
        size_t bytes = bytes_of(&m->part[i]);
        m->part[i].data = m->joined ? place(room, at) : gpu_alloc(w->gpu, bytes, 1);
        err = put_source(w->gpu, &src[i], (void *)m->part[i].data, &m->part[i]);
        at += bytes;
    }
    return err;
}

/* Uploads a vector. *ret stays NULL if the model has no such vector. */
static int put_vector(struct gpu *g, const float *v, int n, float **ret)
{
    if (!v)
        return KVF_OK;
    *ret = gpu_alloc(g, (size_t)n, sizeof *v);
    if (!*ret)
        return KVF_E_NOMEM;
    gpu_put(g, *ret, v, (size_t)n * sizeof *v);
    return KVF_OK;
}

static int put_vectors(struct engine *e, struct device_weights *w)
{
    const struct model_config *m = &e->config;
    int err = put_vector(w->gpu, e->weights->out_norm, m->d_model, &w->out_norm);
    size_t G = (size_t)m->n_heads;
    bool sinks = tensor_rows(m, T_SINKS) > 0;
    w->sinks = !err && sinks ? gpu_alloc(w->gpu, (size_t)m->n_layers * G, sizeof(float)) : NULL;
    err = !err && sinks && !w->sinks ? KVF_E_NOMEM : err;
    for (int l = 0; !err && sinks && l < m->n_layers; l++)
        gpu_put(w->gpu, w->sinks + (size_t)l * G, e->weights->layer[l].vector[T_SINKS],
                G * sizeof(float));
    for (int l = 0; l < m->n_layers; l++)
        for (int role = LAYER_MATRICES; !err && role < LAYER_TENSORS; role++)
            err = put_vector(w->gpu, e->weights->layer[l].vector[role],
                             tensor_rows(m, (enum tensor_role)role), &w->layer[l].vector[role]);
    return err;
}

int device_weights_open(struct engine *e, struct kvf_diag *d)
{
    struct device_weights *w = MEM_NEW(struct device_weights, 1);
    if (!w)
        return KVF_E_NOMEM;
    e->device = w;
    int err = gpu_open(e->which, &w->gpu, d);
    if (err)
        return err;
    w->n_layers = e->config.n_layers;
    w->layer = MEM_NEW(struct device_layer, (size_t)w->n_layers);
    if (!w->layer)
        return KVF_E_NOMEM;
    err = weights_visit(e->gguf, &e->config, take, w, d);
    if (!err)
        err = put_vectors(e, w);
    if (err == KVF_E_NOMEM)
        return gpu_no_room(w->gpu, d,
                           "%s: the device has no room for the weights: take --device cpu",
                           gguf_path(e->gguf));
    return err ? err : gpu_wait(w->gpu, d);
}

static void drop_matrix(struct gpu *g, struct device_matrix *m)
{
    for (int i = 0; i < (m->joined ? 1 : m->n); i++)
        gpu_free(g, (void *)m->part[i].data);
}

void device_weights_close(struct engine *e)
{
    struct device_weights *w = e->device;
    if (!w)
        return;
    for (int l = 0; w->layer && l < w->n_layers; l++) {
        for (int role = 0; role < LAYER_MATRICES; role++)
            drop_matrix(w->gpu, &w->layer[l].matrix[role]);
        for (int role = 0; role < LAYER_TENSORS; role++)
            gpu_free(w->gpu, w->layer[l].vector[role]);
    }
    if (w->gpu) {
        device_gates_close(w);
        device_uploads_close(w->gpu, &w->uploads);
        drop_matrix(w->gpu, &w->head);
        gpu_free(w->gpu, w->out_norm);
        gpu_free(w->gpu, w->sinks);
    }
    mem_free(w->layer);
    gpu_close(w->gpu);
    mem_free(w);
    e->device = NULL;
}

/* train_weights.c - the matrices and vectors of a model on a device, for training. */
#include <string.h>

#include "base/mem.h"
#include "engine/device/train.h"
#include "engine/train/trainable.h"

static struct gpu_matrix matrix(const void *data, enum weight_type type, int N, int K)
{
    return (struct gpu_matrix){
        .data = data, .type = type, .N = N, .K = K, .row_bytes = weight_bytes(type, (size_t)K)};
}

/* Uploads the rows of a packed matrix, as f32 or rounded to bf16. */
static int put_matrix(const struct compute *c, const struct packed *p, struct gpu_matrix *ret)
{
    struct gpu *g = gpu_of(c);
    size_t n = (size_t)p->N * (size_t)p->K;
    float *rows = MEM_RAW(float, n), *wide = gpu_alloc(g, n, sizeof *wide);
    if (rows && wide) {
        frozen_unpack(p, rows);
        gpu_put(g, wide, rows, n * sizeof *rows);
    }
    mem_free(rows);
    if (!rows || !wide || c->exact) {
        *ret = matrix(wide, WEIGHT_F32, p->N, p->K);
        return rows && wide ? KVF_OK : KVF_E_NOMEM;
    }
    uint16_t *narrow = gpu_alloc(g, n, sizeof *narrow);
    if (narrow)
        gpu_to_bf16(g, narrow, wide, p->N, p->K);
    gpu_free(g, wide);
    *ret = matrix(narrow, WEIGHT_BF16, p->N, p->K);
    return narrow ? KVF_OK : KVF_E_NOMEM;
}

static int put_matrices(const struct compute *c, const struct weights *w, struct device_model *m)
{
    int err = put_matrix(c, &w->head, &m->head);
    for (int l = 0; l < w->n_layers; l++)
        for (int role = 0; !err && role < LAYER_MATRICES; role++)
            err = put_matrix(c, &w->layer[l].matrix[role], &m->matrix[l * LAYER_MATRICES + role]);
    return err;
}

/* Copies n floats to *at and advances it. Returns NULL if v is NULL. */
static const float *put_vector(const struct compute *c, float **at, const float *v, int n)
{
    float *to = *at;
    if (!v)
        return NULL;
    gpu_put(gpu_of(c), to, v, (size_t)n * sizeof *v);
    *at += (n + PANEL - 1) / PANEL * PANEL;
    return to;
}

static int put_vectors(const struct compute *c, struct frozen *f, struct device_model *m)
{
    const struct model_config *k = f->config;
    size_t n = padded(k->d_model);
    for (int role = LAYER_MATRICES; role < LAYER_TENSORS; role++)
        n += (size_t)k->n_layers * padded(tensor_rows(k, (enum tensor_role)role));
    float *at = m->vectors = gpu_alloc(gpu_of(c), n, sizeof *at);
    if (!at)
        return KVF_E_NOMEM;
    for (int l = 0; l < k->n_layers; l++)
        for (int role = LAYER_MATRICES; role < LAYER_TENSORS; role++)
            f->vector[l].of[role] = put_vector(c, &at, f->weights->layer[l].vector[role],
                                               tensor_rows(k, (enum tensor_role)role));
    f->out_norm = put_vector(c, &at, f->weights->out_norm, k->d_model);
    return KVF_OK;
}

static struct device_model *create(const struct model_config *k, bool owns)
{
    struct device_model *m = MEM_NEW(struct device_model, 1);
    if (!m)
        return NULL;
    m->owns = owns;
    m->matrix = MEM_NEW(struct gpu_matrix, (size_t)k->n_layers * LAYER_MATRICES);
    if (m->matrix)
        return m;
    mem_free(m);
    return NULL;
}

static void describe_output(struct frozen *f, const struct device_model *m)
{
    f->output.vocab = f->config->vocab;
    f->output.d = f->config->d_model;
    f->output.device = &m->head;
}

int device_take(const struct compute *c, struct frozen *f)
{
    struct device_model *m = create(f->config, true);
    f->device = m;
    int err = m ? put_matrices(c, f->weights, m) : KVF_E_NOMEM;
    if (!err)
        err = put_vectors(c, f, m);
    if (!err)
        describe_output(f, m);
    return err;
}

void device_leave(const struct compute *c, struct frozen *f)
{
    struct device_model *m = f->device;
    if (!m)
        return;
    for (int i = 0; m->owns && i < f->config->n_layers * LAYER_MATRICES; i++)
        gpu_free(gpu_of(c), (void *)(uintptr_t)m->matrix[i].data);
    if (m->owns)
        gpu_free(gpu_of(c), (void *)(uintptr_t)m->head.data);
    gpu_free(gpu_of(c), m->vectors);
    mem_free(m->matrix);
    mem_free(m);
    f->device = NULL;
}

/* Returns the device address of a vector of the host's copy; NULL for NULL. */
static const float *on_device(const struct trainable *t, const float *here)
{
    return here ? t->w_device + (here - t->w) : NULL;
}

int device_adopt(const struct compute *c, struct trainable *t)
{
    const struct model_config *k = t->config;
    struct frozen *f = &t->frozen;
    struct device_model *m = create(k, false);
    (void)c;
    f->device = m;
    if (!m)
        return KVF_E_NOMEM;
    for (int l = 0; l < k->n_layers; l++) {
        const float **v = f->vector[l].of;
        for (int i = 0; i < LAYER_MATRICES; i++) {
            enum tensor_role role = (enum tensor_role)i;
            m->matrix[l * LAYER_MATRICES + i] = matrix(t->w_device + t->layer[l].at[role],
                                                       WEIGHT_F32, tensor_rows(k, role),
                                                       tensor_columns(k, role));
        }
        for (int role = LAYER_MATRICES; role < LAYER_TENSORS; role++)
            v[role] = on_device(t, v[role]);
    }
    m->head = matrix(t->w_device + t->head, WEIGHT_F32, k->vocab, k->d_model);
    f->out_norm = on_device(t, f->out_norm);
    f->output.device = &m->head;
    return KVF_OK;
}

void device_let_go(const struct compute *c, struct trainable *t)
{
    device_leave(c, &t->frozen);
}

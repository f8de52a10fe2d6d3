/* out_gram.c - computes W_g' W_g for every query head. */
#include "engine/model/out_gram.h"

#include <stdio.h>

#include "base/mem.h"
#include "engine/kernels/packed.h"

/* The matrices that are being computed. */
struct job {
    const struct model_config *m;
    const struct gguf_tensor **tensor; /* [n_layers] */
    double *gram;
    float *row; /* [threads][n_heads * head_dim] */
};

/* Adds w w' for one row w of W_g to the upper triangle. */
static void add_row(double *gram, const float *w, int D)
{
    for (int i = 0; i < D; i++)
        for (int j = i; j < D; j++)
            gram[i * D + j] += (double)w[i] * (double)w[j];
}

static void mirror(double *gram, int D)
{
    for (int i = 0; i < D; i++)
        for (int j = 0; j < i; j++)
            gram[i * D + j] = gram[j * D + i];
}

static void layer_task(void *ctx, int l, int thread)
{
    const struct job *j = ctx;
    int D = j->m->head_dim, G = j->m->n_heads;
    size_t K = (size_t)G * (size_t)D, square = (size_t)D * (size_t)D;
    enum weight_type type = (enum weight_type)j->tensor[l]->type;
    const char *from = j->tensor[l]->data;
    float *row = j->row + (size_t)thread * K;
    double *gram = j->gram + (size_t)l * (size_t)G * square;
    for (int r = 0; r < j->m->d_model; r++) {
        weight_dequant(row, from + (size_t)r * weight_bytes(type, K), type, K);
        for (int g = 0; g < G; g++)
            add_row(gram + (size_t)g * square, row + (size_t)g * (size_t)D, D);
    }
    for (int g = 0; g < G; g++)
        mirror(gram + (size_t)g * square, D);
}

static int find_tensors(const struct gguf *g, struct job *j, struct kvf_diag *d)
{
    uint64_t K = (uint64_t)j->m->n_heads * (uint64_t)j->m->head_dim;
    for (int l = 0; l < j->m->n_layers; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_output.weight", l);
        const struct gguf_tensor *t = j->tensor[l] = gguf_find(g, name);
        if (!t || !t->bytes || t->dim[0] != K || t->dim[1] != (uint64_t)j->m->d_model)
            return kvf_fail(d, KVF_E_FORMAT, "%s: the tensor %s is missing or of another shape",
                            gguf_path(g), name);
    }
    return KVF_OK;
}

int out_gram(const struct gguf *g, const struct model_config *m, struct par *pool, double **ret,
             struct kvf_diag *d)
{
    size_t K = (size_t)m->n_heads * (size_t)m->head_dim;
    struct job j = {
        .m = m,
        .tensor = MEM_NEW(const struct gguf_tensor *, (size_t)m->n_layers),
        .row = mem_alloc((size_t)par_threads(pool), K * sizeof(float)),
        .gram = mem_alloc((size_t)m->n_layers * K, (size_t)m->head_dim * sizeof(double))};
    int err = j.tensor && j.row && j.gram ? find_tensors(g, &j, d) : KVF_E_NOMEM;
    if (err)
        goto done;
    par_run(pool, m->n_layers, layer_task, &j);
    *ret = j.gram;
    j.gram = NULL;

done:
    mem_free_all((void *)j.tensor, j.row, j.gram);
    return err;
}

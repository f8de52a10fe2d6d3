/* frozen_packs.c - the base model's matrices and their transposes, packed for the CPU. */
#include <string.h>

#include "base/mem.h"
#include "engine/train/frozen.h"

void frozen_unpack(const struct packed *p, float *to)
{
    const float *data = (const float *)(const void *)p->data;
    size_t N = (size_t)p->N, K = (size_t)p->K;
    for (size_t n = 0; n < N; n++)
        for (size_t k = 0; k < K; k++)
            to[n * K + k] = data[(n / PANEL * K + k) * PANEL + n % PANEL];
}

/* A copy of the rows of a packed f32 matrix. */
static float *unpack(const struct packed *p)
{
    float *w = MEM_NEW(float, ((size_t)p->N * (size_t)p->K));
    if (w)
        frozen_unpack(p, w);
    return w;
}

/* The transpose of a packed f32 matrix, packed. */
static int turn(const struct packed *p, struct packed *ret)
{
    const float *data = (const float *)(const void *)p->data;
    size_t N = (size_t)p->N, K = (size_t)p->K;
    float *t = MEM_NEW(float, (N * K));
    if (!t)
        return KVF_E_NOMEM;
    for (size_t n = 0; n < N; n++)
        for (size_t k = 0; k < K; k++)
            t[k * N + n] = data[(n / PANEL * K + k) * PANEL + n % PANEL];
    struct pack_source src = {t, WEIGHT_F32, p->K};
    int err = packed_build(&src, 1, p->N, PACK_EXACT, ret);
    mem_free(t);
    return err;
}

struct job {
    struct frozen *f;
    int *err; /* [LAYER_MATRICES L + 1] */
};

static void build_task(void *ctx, int task, int thread)
{
    struct job *j = ctx;
    struct frozen *f = j->f;
    int l = task / LAYER_MATRICES, role = task % LAYER_MATRICES;
    (void)thread;
    if (l == f->weights->n_layers) {
        float *w = unpack(&f->weights->head);
        j->err[task] = w ? output_matrix_build(w, f->config->vocab, f->config->d_model, &f->output)
                         : KVF_E_NOMEM;
        mem_free(w);
        return;
    }
    j->err[task] = turn(&f->weights->layer[l].matrix[role], &f->back[l].matrix[role]);
}

void frozen_point(struct frozen *f)
{
    for (int l = 0; l < f->weights->n_layers; l++)
        memcpy(f->vector[l].of, f->weights->layer[l].vector, sizeof f->vector[l].of);
    f->out_norm = f->weights->out_norm;
}

int frozen_transpose(struct frozen *f, struct par *pool)
{
    int L = f->weights->n_layers, n = LAYER_MATRICES * L + 1, err = KVF_OK;
    f->back = MEM_NEW(struct frozen_layer, (size_t)L);
    struct job j = {f, MEM_NEW(int, (size_t)n)};
    if (!f->back || !j.err) {
        err = KVF_E_NOMEM;
    } else {
        frozen_point(f);
        par_run_watched(pool, n, build_task, &j, &f->c.progress);
        for (int i = 0; i < n; i++)
            err = j.err[i] ? j.err[i] : err;
    }
    mem_free(j.err);
    return err;
}

void frozen_drop(struct frozen *f)
{
    for (int l = 0; f->back && l < f->weights->n_layers; l++)
        for (int role = 0; role < LAYER_MATRICES; role++)
            packed_finish(&f->back[l].matrix[role]);
    mem_free(f->back);
    output_matrix_finish(&f->output);
}

#include <string.h>

#include "base/mem.h"
#include "engine/train/frozen.h"

/* The rows of a packed f32 matrix: [N, K]. */
static float *unpack(const struct packed *p)
{
    const float *data = (const float *)(const void *)p->data;
    size_t N = (size_t)p->N, K = (size_t)p->K;
    float *w = MEM_NEW(float, (N * K));
    for (size_t n = 0; w && n < N; n++)
        for (size_t k = 0; k < K; k++)
            w[n * K + k] = data[(n / PANEL * K + k) * PANEL + n % PANEL];
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
    int err = packed_build(&src, 1, p->N, 1, ret);
    mem_free(t);
    return err;
}

struct job {
    struct frozen *f;
    int *err; /* [4 L + 1] */
};

static void build_task(void *ctx, int task, int thread)
{
    struct job *j = ctx;
    struct frozen *f = j->f;
    int l = task / 4;
    (void)thread;
    if (l == f->weights->n_layers) {
        float *w = unpack(&f->weights->head);
        j->err[task] = w ? output_matrix_build(w, f->config->vocab, f->config->d_model, &f->output)
                         : KVF_E_NOMEM;
        mem_free(w);
        return;
    }
    const struct layer_weights *w = &f->weights->layer[l];
    struct frozen_layer *b = &f->back[l];
    const struct packed *from[] = {&w->qkv, &w->out, &w->gate_up, &w->down};
    struct packed *to[] = {&b->qkv, &b->out, &b->gate_up, &b->down};
    j->err[task] = turn(from[task % 4], to[task % 4]);
}

int frozen_check(const struct model_config *config, struct kvf_diag *d)
{
    const char *beyond = model_beyond_plain(config);
    if (!beyond)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "a model of architecture '%s' has %s, and derivatives through these are not "
                    "supported: the model can be run, not trained on",
                    config->arch, beyond);
}

int frozen_build(const struct model_config *config, const struct weights *w, struct par *pool,
                 struct frozen *ret, struct kvf_diag *d)
{
    int L = w->n_layers, n = 4 * L + 1, err = frozen_check(config, d);
    *ret = (struct frozen){0};
    if (err)
        return err;
    *ret = (struct frozen){
        .config = config, .weights = w, .back = MEM_NEW(struct frozen_layer, (size_t)L)};
    struct job j = {ret, MEM_NEW(int, (size_t)n)};
    if (!ret->back || !j.err) {
        err = KVF_E_NOMEM;
    } else {
        par_run(pool, n, build_task, &j);
        for (int i = 0; i < n; i++)
            err = j.err[i] ? j.err[i] : err;
    }
    mem_free(j.err);
    if (err) {
        frozen_finish(ret);
        return kvf_fail(d, err, "not enough memory for the weights in both directions");
    }
    return KVF_OK;
}

void frozen_finish(struct frozen *f)
{
    for (int l = 0; f->back && l < f->weights->n_layers; l++) {
        struct packed *p[] = {&f->back[l].qkv, &f->back[l].out, &f->back[l].gate_up,
                              &f->back[l].down};
        for (int i = 0; i < 4; i++)
            packed_finish(p[i]);
    }
    mem_free(f->back);
    output_matrix_finish(&f->output);
    memset(f, 0, sizeof *f);
}

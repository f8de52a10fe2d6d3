/* trainable.c - f32 copies of weights that learn, and the packs made from them (trainable.h). */
#include <string.h>

#include "base/mem.h"
#include "engine/train/ops.h"
#include "engine/train/trainable.h"

/* Claims n floats, whole cache lines. */
static size_t claim(struct trainable *t, size_t n)
{
    size_t at = t->n;
    t->n += (n + PANEL - 1) / PANEL * PANEL;
    return at;
}

static void place(struct trainable *t, bool tied)
{
    const struct model_config *m = t->config;
    t->embedding = claim(t, tensor_floats(m, T_HEAD));
    t->head = tied ? t->embedding : claim(t, tensor_floats(m, T_HEAD));
    t->out_norm = claim(t, (size_t)m->d_model);
    for (int l = 0; l < m->n_layers; l++)
        for (int role = 0; role < LAYER_TENSORS; role++)
            t->layer[l].at[role] = claim(t, tensor_floats(m, (enum tensor_role)role));
}

/* Copies n floats of a norm or a bias to its place; returns that place, NULL where there is none.
 */
static float *take(struct trainable *t, size_t at, const float *from, int n)
{
    if (!from)
        return NULL;
    memcpy(t->w + at, from, (size_t)n * sizeof *from);
    return t->w + at;
}

static void take_layer(struct trainable *t, const struct layer_weights *from, int layer)
{
    const size_t *at = t->layer[layer].at;
    for (int role = 0; role < LAYER_MATRICES; role++)
        frozen_unpack(&from->matrix[role], t->w + at[role]);
    for (int role = LAYER_MATRICES; role < LAYER_TENSORS; role++)
        t->weights.layer[layer].vector[role] = take(t, at[role], from->vector[role],
                                                    tensor_rows(t->config, (enum tensor_role)role));
}

/* The packs of a layer's matrix in both directions. */
static struct packed_pair packs_of(const struct trainable *t, int layer, int role)
{
    return (struct packed_pair){t->weights.layer[layer].matrix[role],
                                t->frozen.back[layer].matrix[role]};
}

static int create_packs(struct trainable *t, int layer)
{
    for (int role = 0; role < LAYER_MATRICES; role++) {
        struct packed_pair packs;
        int err = packed_pair_create(tensor_rows(t->config, (enum tensor_role)role),
                                     tensor_columns(t->config, (enum tensor_role)role), &packs);
        if (err)
            return err;
        t->weights.layer[layer].matrix[role] = packs.forward;
        t->frozen.back[layer].matrix[role] = packs.backward;
    }
    return KVF_OK;
}

static void refresh_task(void *ctx, int task, int thread)
{
    struct trainable *t = ctx;
    bool head = task == LAYER_MATRICES * t->config->n_layers;
    (void)thread;
    if (!trainable_learns(t, head ? T_HEAD : (enum tensor_role)(task % LAYER_MATRICES)))
        return;
    if (head) {
        output_matrix_fill(t->w + t->head, &t->frozen.output);
        return;
    }
    int layer = task / LAYER_MATRICES, role = task % LAYER_MATRICES;
    struct packed_pair packs = packs_of(t, layer, role);
    packed_pair_fill(&packs, t->w + t->layer[layer].at[role]);
}

static int refresh_tasks(const struct trainable *t)
{
    return LAYER_MATRICES * t->config->n_layers + 1;
}

void trainable_refresh(struct trainable *t, struct par *pool)
{
    par_run(pool, refresh_tasks(t), refresh_task, t);
}

static int build(struct trainable *t, const struct weights *from)
{
    const struct model_config *m = t->config;
    t->w = MEM_NEW(float, t->n);
    t->weights.layer = MEM_NEW(struct layer_weights, (size_t)m->n_layers);
    t->frozen.back = MEM_NEW(struct frozen_layer, (size_t)m->n_layers);
    t->frozen.vector = MEM_NEW(struct frozen_vectors, (size_t)m->n_layers);
    if (!t->w || !t->weights.layer || !t->frozen.back || !t->frozen.vector)
        return KVF_E_NOMEM;
    struct weights rows = *from;
    rows.embedding_scale = 1;
    for (int i = 0; i < m->vocab; i++)
        weights_embed(&rows, i, t->w + t->embedding + (size_t)i * (size_t)m->d_model);
    if (t->head != t->embedding)
        frozen_unpack(&from->head, t->w + t->head);
    t->weights.out_norm = take(t, t->out_norm, from->out_norm, m->d_model);
    for (int l = 0; l < m->n_layers; l++) {
        int err = create_packs(t, l);
        if (err)
            return err;
        take_layer(t, &from->layer[l], l);
        progress_report(&t->c.progress, l + 1, 2 * m->n_layers);
    }
    return output_matrix_build(t->w + t->head, m->vocab, m->d_model, &t->frozen.output);
}

/* What the kernels and the operations see of w. */
static int finish(struct trainable *t)
{
    t->rows = (struct gguf_tensor){
        .name = "token_embd.weight",
        .n_dims = 2,
        .dim = {(uint64_t)t->config->d_model, (uint64_t)t->config->vocab, 1, 1},
        .type = WEIGHT_F32,
        .data = t->w + t->embedding,
        .bytes = tensor_floats(t->config, T_HEAD) * sizeof(float)};
    t->weights.n_layers = t->config->n_layers;
    t->weights.d_model = t->config->d_model;
    block_plan_build(t->config, &t->weights.plan);
    t->weights.embedding = &t->rows;
    t->weights.embedding_scale = t->config->embedding_scale;
    t->weights.head = t->frozen.output.logits;
    t->frozen.c = t->c;
    t->frozen.config = t->config;
    t->frozen.weights = &t->weights;
    frozen_point(&t->frozen);
    t->w_device = ops(&t->c)->device_copy(&t->c, t->w, t->n);
    return t->w_device ? ops(&t->c)->prepare_trainable(&t->c, t) : KVF_E_NOMEM;
}

int trainable_create(const struct compute *c, const struct model_config *config,
                     const struct weights *from, bool tied, struct trainable **ret,
                     struct kvf_diag *d)
{
    struct trainable *t = MEM_NEW(struct trainable, 1);
    if (t) {
        t->c = *c;
        t->config = config;
        t->learns = ~0u;
        t->layer = MEM_NEW(struct trainable_layer, (size_t)config->n_layers);
    }
    int err = KVF_E_NOMEM;
    if (t && t->layer) {
        place(t, tied);
        err = build(t, from);
        if (!err)
            err = finish(t);
    }
    if (err) {
        trainable_destroy(t);
        return kvf_fail(d, err, "not enough memory %sfor weights that learn", ops_where(c));
    }
    par_run_watched(NULL, refresh_tasks(t), refresh_task, t, &t->c.progress);
    *ret = t;
    return KVF_OK;
}

void trainable_destroy(struct trainable *t)
{
    if (!t)
        return;
    for (int l = 0; t->weights.layer && t->frozen.back && l < t->config->n_layers; l++)
        for (int role = 0; role < LAYER_MATRICES; role++) {
            struct packed_pair packs = packs_of(t, l, role);
            packed_pair_finish(&packs);
        }
    output_matrix_finish(&t->frozen.output);
    ops(&t->c)->release_trainable(&t->c, t);
    ops(&t->c)->device_copy_free(&t->c, t->w_device);
    mem_free(t->weights.layer);
    mem_free(t->frozen.back);
    mem_free(t->frozen.vector);
    mem_free(t->layer);
    mem_free(t->w);
    mem_free(t);
}

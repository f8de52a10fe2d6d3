#include <string.h>

#include "base/mem.h"
#include "engine/train/ops.h"
#include "engine/train/trainable.h"

int trainable_rows(const struct model_config *m, enum weight_role role)
{
    const int rows[] = {(m->n_heads + 2 * m->n_kv_heads) * m->head_dim, m->d_model, 2 * m->d_ffn,
                        m->d_model, m->vocab};
    return rows[role];
}

int trainable_columns(const struct model_config *m, enum weight_role role)
{
    const int columns[] = {m->d_model, m->n_heads * m->head_dim, m->d_model, m->d_ffn, m->d_model};
    return columns[role];
}

/* Claims n floats, whole cache lines. */
static size_t claim(struct trainable *t, size_t n)
{
    size_t at = t->n;
    t->n += (n + PANEL - 1) / PANEL * PANEL;
    return at;
}

static size_t matrix_floats(const struct model_config *m, enum weight_role role)
{
    return (size_t)trainable_rows(m, role) * (size_t)trainable_columns(m, role);
}

int trainable_norm_floats(const struct model_config *m, int heads)
{
    if (!m->family->qk_norm)
        return 0;
    return m->family->qk_norm_wide ? heads * m->head_dim : m->head_dim;
}

static void place(struct trainable *t, bool tied)
{
    const struct model_config *m = t->config;
    size_t d = (size_t)m->d_model, pre = m->family->no_pre_norm ? 0 : d;
    size_t post = m->family->post_norm ? d : 0;
    t->embedding = claim(t, matrix_floats(m, ROLE_HEAD));
    t->head = tied ? t->embedding : claim(t, matrix_floats(m, ROLE_HEAD));
    t->out_norm = claim(t, d);
    for (int l = 0; l < m->n_layers; l++) {
        struct trainable_layer *at = &t->layer[l];
        for (int role = 0; role < ROLE_HEAD; role++)
            at->matrix[role] = claim(t, matrix_floats(m, (enum weight_role)role));
        at->attn_norm = claim(t, pre);
        at->ffn_norm = claim(t, pre);
        at->attn_post = claim(t, post);
        at->ffn_post = claim(t, post);
        at->q_norm = claim(t, (size_t)trainable_norm_floats(m, m->n_heads));
        at->k_norm = claim(t, (size_t)trainable_norm_floats(m, m->n_kv_heads));
        at->bias = claim(t, m->family->qkv_bias ? (size_t)trainable_rows(m, ROLE_QKV) : 0);
    }
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
    const struct model_config *m = t->config;
    const struct trainable_layer *at = &t->layer[layer];
    struct layer_weights *to = &t->weights.layer[layer];
    const struct packed *matrix[] = {&from->qkv, &from->out, &from->gate_up, &from->down};
    for (int role = 0; role < ROLE_HEAD; role++)
        frozen_unpack(matrix[role], t->w + at->matrix[role]);
    to->attn_norm = take(t, at->attn_norm, from->attn_norm, m->d_model);
    to->ffn_norm = take(t, at->ffn_norm, from->ffn_norm, m->d_model);
    to->attn_post = take(t, at->attn_post, from->attn_post, m->d_model);
    to->ffn_post = take(t, at->ffn_post, from->ffn_post, m->d_model);
    to->q_norm = take(t, at->q_norm, from->q_norm, trainable_norm_floats(m, m->n_heads));
    to->k_norm = take(t, at->k_norm, from->k_norm, trainable_norm_floats(m, m->n_kv_heads));
    to->qkv_bias = take(t, at->bias, from->qkv_bias, trainable_rows(m, ROLE_QKV));
}

/* The packs of a layer's matrix in both directions. */
static struct both_ways packs_of(const struct trainable *t, int layer, enum weight_role role)
{
    const struct layer_weights *w = &t->weights.layer[layer];
    const struct frozen_layer *b = &t->frozen.back[layer];
    const struct packed *to[] = {&w->qkv, &w->out, &w->gate_up, &w->down};
    const struct packed *back[] = {&b->qkv, &b->out, &b->gate_up, &b->down};
    return (struct both_ways){*to[role], *back[role]};
}

static int create_packs(struct trainable *t, int layer)
{
    struct layer_weights *w = &t->weights.layer[layer];
    struct frozen_layer *b = &t->frozen.back[layer];
    struct packed *to[] = {&w->qkv, &w->out, &w->gate_up, &w->down};
    struct packed *back[] = {&b->qkv, &b->out, &b->gate_up, &b->down};
    for (int role = 0; role < ROLE_HEAD; role++) {
        struct both_ways packs;
        int err = both_ways_create(trainable_rows(t->config, (enum weight_role)role),
                                   trainable_columns(t->config, (enum weight_role)role), &packs);
        if (err)
            return err;
        *to[role] = packs.to;
        *back[role] = packs.back;
    }
    return KVF_OK;
}

static void refresh_task(void *ctx, int task, int thread)
{
    struct trainable *t = ctx;
    bool head = task == ROLE_HEAD * t->config->n_layers;
    (void)thread;
    if (!trainable_learns(t, head ? ROLE_HEAD : (enum weight_role)(task % ROLE_HEAD)))
        return;
    if (head) {
        output_matrix_fill(t->w + t->head, &t->frozen.output);
        return;
    }
    int layer = task / ROLE_HEAD, role = task % ROLE_HEAD;
    struct both_ways packs = packs_of(t, layer, (enum weight_role)role);
    both_ways_fill(&packs, t->w + t->layer[layer].matrix[role]);
}

static int refresh_tasks(const struct trainable *t)
{
    return ROLE_HEAD * t->config->n_layers + 1;
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
        teller_tell(&t->c.teller, l + 1, 2 * m->n_layers);
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
        .bytes = matrix_floats(t->config, ROLE_HEAD) * sizeof(float)};
    t->weights.n_layers = t->config->n_layers;
    t->weights.d_model = t->config->d_model;
    t->weights.embedding = &t->rows;
    t->weights.embedding_scale = t->config->embedding_scale;
    t->weights.head = t->frozen.output.logits;
    t->frozen.c = t->c;
    t->frozen.config = t->config;
    t->frozen.weights = &t->weights;
    frozen_point(&t->frozen);
    t->there = ops(&t->c)->device_copy(&t->c, t->w, t->n);
    return t->there ? ops(&t->c)->adopt(&t->c, t) : KVF_E_NOMEM;
}

int trainable_create(const struct compute *c, const struct model_config *config,
                     const struct weights *from, bool tied, struct trainable **ret,
                     struct kvf_diag *d)
{
    struct trainable *t = MEM_NEW(struct trainable, 1);
    if (t) {
        t->c = *c;
        t->config = config;
        t->learns = (1u << (ROLE_HEAD + 1)) - 1;
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
    par_run_watched(NULL, refresh_tasks(t), refresh_task, t, &t->c.teller);
    *ret = t;
    return KVF_OK;
}

void trainable_destroy(struct trainable *t)
{
    if (!t)
        return;
    for (int l = 0; t->weights.layer && t->frozen.back && l < t->config->n_layers; l++)
        for (int role = 0; role < ROLE_HEAD; role++) {
            struct both_ways packs = packs_of(t, l, (enum weight_role)role);
            both_ways_finish(&packs);
        }
    output_matrix_finish(&t->frozen.output);
    ops(&t->c)->let_go(&t->c, t);
    ops(&t->c)->device_copy_free(&t->c, t->there);
    mem_free(t->weights.layer);
    mem_free(t->frozen.back);
    mem_free(t->frozen.vector);
    mem_free(t->layer);
    mem_free(t->w);
    mem_free(t);
}

/* layer.c - the steps of a block on a CUDA device, where the rows of a chunk stay from the
 * embedding to the last norm.  Prefill and decode steps replace the functions of some operations by
 * their own (prefill.c, decode_batch.c).  The functions here copy queries, keys and values to the
 * host before the cache and attention. */
#include <string.h>

#include "engine/device/decode.h"

static struct device_weights *weights_of(const struct session *s)
{
    return s->e->device;
}

/* Computes out[t] = W x[t], with exact sums if the engine is exact. */
static void multiply(struct session *s, float *out, size_t ld, const float *x, size_t ld_x, int T,
                     const struct device_matrix *w)
{
    struct device_session *m = s->device_state;
    for (int i = 0, at = 0; i < w->n; at += w->part[i++].N)
        (s->e->exact ? gpu_product_exact : gpu_product)(m->gpu, out + at, ld, x, ld_x, T,
                                                        &w->part[i]);
}

/* Multiplies the rows of a chunk: by cuBLAS in prefill, whatever their number, and by a kernel of
 * ours in decode steps.  Rows of out: device_session_rows(T). */
static void multiply_chunk(struct session *s, float *out, size_t ld, const float *x, size_t ld_x,
                           int T, const struct device_matrix *w)
{
    struct device_session *m = s->device_state;
    if (s->e->exact || s->stepping || !gpu_gemm(m->gpu, out, ld, x, ld_x, T, w->part, w->n))
        multiply(s, out, ld, x, ld_x, T, w);
}

/* Returns whether kernels may fuse steps: in decode steps with any order of sums. */
static bool fuses(const struct session *s)
{
    return s->stepping && !s->e->exact;
}

/* Returns a fused product of W. */
static struct gpu_dense dense_of(const struct device_matrix *w, struct gpu_dense how)
{
    memcpy(how.part, w->part, sizeof how.part);
    how.n = w->n;
    return how;
}

void device_embed(struct session *s, const int32_t *ids, int T)
{
    struct device_session *m = s->device_state;
    embed_tokens(s, ids, T);
    gpu_put(m->gpu, m->x, s->x, (size_t)T * (size_t)s->e->config.d_model * sizeof *s->x);
}

/* Returns whether a decode step keeps the inputs of attention of all layers, for gates. */
static bool keeps(const struct session *s)
{
    return s->stepping && ((const struct device_session *)s->device_state)->kept;
}

/* Returns the buffer of the input of attention. */
static float *normed_of(const struct session *s, int layer)
{
    const struct device_session *m = s->device_state;
    return keeps(s) ? m->kept + (size_t)layer * m->ld_kept : m->normed;
}

struct rows {
    float *p;
    size_t ld;
};

/* Returns the rows of a slot. */
static struct rows rows_of(const struct layer_run *r, enum block_slot slot)
{
    const struct session *s = r->s;
    const struct device_session *m = s->device_state;
    size_t d = (size_t)s->e->config.d_model, ffn = (size_t)s->e->config.d_ffn;
    const struct rows at[SLOTS] = {
        [SLOT_X] = {m->x, d},
        [SLOT_NORMED] = {normed_of(s, r->layer), d},
        [SLOT_QKV] = {m->qkv, s->ld_qkv},
        [SLOT_ATT] = {m->att, s->ld_att},
        [SLOT_BRANCH] = {m->branch, d},
        [SLOT_FFN_IN] = {m->normed, d},
        [SLOT_GATE_UP] = {m->gate_up, s->ld_ffn},
        [SLOT_FFN] = {m->gate_up + device_session_rows(r->T) * s->ld_ffn, ffn},
    };
    return at[slot];
}

static const float *vector_of(const struct layer_run *r, enum tensor_role role)
{
    return weights_of(r->s)->layer[r->layer].vector[role];
}

static const struct device_matrix *matrix_of(const struct layer_run *r, enum tensor_role role)
{
    return &weights_of(r->s)->layer[r->layer].matrix[role];
}

/* Returns whether one kernel runs the product at step i and the activation behind it. */
static bool activates(const struct layer_run *r, int i)
{
    const struct device_matrix *w = matrix_of(r, r->b->step[i].w);
    return fuses(r->s) && r->b->step[i + 1].op == OP_ACT && gpu_dense_gates(w->part, w->n);
}

/* Returns whether the kernel of the product at step i runs the norm before it, too. */
static bool takes_norm(const struct layer_run *r, int i)
{
    const struct block_step *p = &r->b->step[i];
    return p->op == OP_MATMUL && fuses(r->s) && (p->w == T_QKV || activates(r, i));
}

/* One kernel for the product at step i, the norm before it (NULL: none) and the activation or the
 * sum behind it.  Returns the steps from the product on. */
static int run_dense(struct layer_run *r, int i, const float *norm)
{
    struct session *s = r->s;
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    const struct block_step *p = &r->b->step[i], *next = p + 1;
    bool ends = next->op == OP_ACT || next->op == OP_ADD;
    const struct rows in = rows_of(r, norm ? SLOT_X : p->src),
                      out = rows_of(r, ends ? next->dst : p->dst);
    struct gpu_dense how = {.norm = norm, .eps = c->norm_eps};
    if (norm && p->src == SLOT_NORMED)
        how.normed = rows_of(r, SLOT_NORMED).p;
    if (next->op == OP_ACT) {
        how.end = GPU_GATED;
        how.gelu = c->family->gelu;
    } else if (next->op == OP_ADD) {
        how.end = GPU_ADD;
        how.scale = c->residual_scale;
    }
    how = dense_of(matrix_of(r, p->w), how);
    gpu_dense(m->gpu, out.p, out.ld, in.p, in.ld, r->T, &how);
    return ends ? 2 : 1;
}

static int norm_step(struct layer_run *r, int i)
{
    struct device_session *m = r->s->device_state;
    const struct block_step *p = &r->b->step[i];
    const struct rows x = rows_of(r, p->src), y = rows_of(r, p->dst);
    if (p->src == SLOT_X && takes_norm(r, i + 1))
        return 1 + run_dense(r, i + 1, vector_of(r, p->w));
    gpu_rmsnorm(m->gpu, y.p + p->offset, x.p + p->offset, x.ld, vector_of(r, p->w), r->T, p->heads,
                p->width, r->s->e->config.norm_eps);
    return 1;
}

/* Gates of a step read the input of attention later, which may be the residual stream. */
static int matmul_step(struct layer_run *r, int i)
{
    struct session *s = r->s;
    struct device_session *m = s->device_state;
    const struct block_step *p = &r->b->step[i];
    const struct rows x = rows_of(r, p->src), y = rows_of(r, p->dst);
    if (p->w == T_QKV && p->src == SLOT_X && keeps(s))
        gpu_copy(m->gpu, normed_of(s, r->layer), m->x, (size_t)r->T * x.ld * sizeof *m->x);
    if (takes_norm(r, i) || (fuses(s) && p[1].op == OP_ADD))
        return run_dense(r, i, NULL);
    multiply_chunk(s, y.p, y.ld, x.p, x.ld, r->T, matrix_of(r, p->w));
    return 1;
}

static int bias_step(struct layer_run *r, int i)
{
    struct device_session *m = r->s->device_state;
    const struct block_step *p = &r->b->step[i];
    const struct rows y = rows_of(r, p->dst);
    gpu_add_row(m->gpu, y.p, y.ld, vector_of(r, p->w), r->T, p->width);
    return 1;
}

static int act_step(struct layer_run *r, int i)
{
    struct device_session *m = r->s->device_state;
    const struct model_config *c = &r->s->e->config;
    const struct rows x = rows_of(r, SLOT_GATE_UP), y = rows_of(r, SLOT_FFN);
    (void)i;
    gpu_gated(m->gpu, y.p, x.p, x.ld, r->T, c->d_ffn, c->family->gelu);
    return 1;
}

static int add_step(struct layer_run *r, int i)
{
    struct session *s = r->s;
    struct device_session *m = s->device_state;
    const struct rows x = rows_of(r, SLOT_X), branch = rows_of(r, SLOT_BRANCH);
    gpu_add(m->gpu, x.p, branch.p, (size_t)r->T * x.ld, s->e->config.residual_scale);
    if (i == r->b->n - 1 && session_points(s) & POINT_LAYER)
        gpu_get(m->gpu, s->x, m->x, (size_t)r->T * x.ld * sizeof *s->x);
    return 1;
}

bool device_stores_norm(const struct layer_run *r, int i)
{
    return r->b->step[i].src == SLOT_QKV && !r->s->e->config.family->qk_norm_wide;
}

struct gpu_new_entries device_new_entries(const struct session *s, int layer, int T,
                                          const float *turns, size_t local)
{
    const struct model_config *c = &s->e->config;
    const struct device_layer *w = &weights_of(s)->layer[layer];
    enum model_rope kind = model_rope(c, layer, s->cap);
    const float *turn = turns + (kind == ROPE_LOCAL ? local : 0);
    bool wide = c->family->qk_norm_wide;
    return (struct gpu_new_entries){.T = T,
                                    .n_heads = c->n_heads,
                                    .n_rot = c->rope_dim,
                                    .q_norm = wide ? NULL : w->vector[T_Q_NORM],
                                    .k_norm = wide ? NULL : w->vector[T_K_NORM],
                                    .eps = c->norm_eps,
                                    .cos_sin = kind == ROPE_NONE ? NULL : turn};
}

const float *device_normed(const struct session *s, int layer)
{
    const struct device_session *m = s->device_state;
    return weights_of(s)->layer[layer].vector[T_ATTN_NORM] || keeps(s) ? normed_of(s, layer) : m->x;
}

/* The CPU rotates, runs gates and stores. */
static int store_step(struct layer_run *r, int i)
{
    struct session *s = r->s;
    struct device_session *m = s->device_state;
    size_t T = (size_t)r->T, d = (size_t)s->e->config.d_model;
    gpu_get(m->gpu, s->qkv, m->qkv, T * s->ld_qkv * sizeof *s->qkv);
    if (session_points(s) & POINT_GATES)
        gpu_get(m->gpu, vector_of(r, T_ATTN_NORM) ? s->normed : s->x, device_normed(s, r->layer),
                T * d * sizeof *s->normed);
    return step_store(r, i);
}

static int attend_step(struct layer_run *r, int i)
{
    int err = device_attend(r->s, r->layer, r->T, r->pos0);
    (void)i;
    return err ? err : 1;
}

const step_fn steps_device[BLOCK_OPS] = {
    [OP_NORM] = norm_step,  [OP_MATMUL] = matmul_step, [OP_BIAS] = bias_step,
    [OP_ROPE] = store_step, [OP_GATES] = store_step,   [OP_ATTEND] = attend_step,
    [OP_ACT] = act_step,    [OP_ADD] = add_step};

void device_norm(struct session *s, int T)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    gpu_rmsnorm(m->gpu, m->normed, m->x, (size_t)c->d_model, weights_of(s)->out_norm, T, 1,
                c->d_model, c->norm_eps);
}

int device_final_norm(struct session *s, int first, int T)
{
    struct device_session *m = s->device_state;
    size_t d = (size_t)s->e->config.d_model, at = (size_t)first * d;
    device_norm(s, T);
    gpu_fetch(m->gpu, s->normed + at, m->normed + at, (size_t)(T - first) * d * sizeof *s->normed);
    return gpu_wait(m->gpu, &s->e->said);
}

void device_logits(struct session *s, const float *rows, int T)
{
    struct device_session *m = s->device_state;
    multiply(s, m->logits, s->ld_vocab, rows, (size_t)s->e->config.d_model, T,
             &weights_of(s)->head);
}

/* Row 0 of normed may be that of another session, whose fork this is. */
void device_lm_head(struct session *s)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    gpu_put(m->gpu, m->row, s->normed, (size_t)c->d_model * sizeof *s->normed);
    device_logits(s, m->row, 1);
    gpu_get(m->gpu, s->logits, m->logits, (size_t)c->vocab * sizeof *s->logits);
    device_logits_here(s);
}

int device_error(struct session *s)
{
    struct device_session *m = s->device_state;
    return gpu_wait(m->gpu, &s->e->said);
}

/* layer.c - the steps of a block on a CUDA device. The rows of a chunk are on the device from the
 * embedding to the last norm. Prefill and decode steps replace the functions of some operations
 * (prefill.c, decode_batch.c). The functions here copy queries, keys and values to the host for the
 * cache and attention. */
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

/* Multiplies the rows of a chunk: with cuBLAS in prefill, for any number of rows, and with a kernel
 * of ours in decode steps. out has device_session_rows(T) rows. */
static void multiply_chunk(struct session *s, float *out, size_t ld, const float *x, size_t ld_x,
                           int T, const struct device_matrix *w)
{
    struct device_session *m = s->device_state;
    if (s->e->exact || s->run.stepping || !gpu_gemm(m->gpu, out, ld, x, ld_x, T, w->part, w->n))
        multiply(s, out, ld, x, ld_x, T, w);
}

/* Returns true if kernels may fuse steps: in decode steps, if sums may have any order. */
static bool fuses(const struct session *s)
{
    return s->run.stepping && !s->e->exact;
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
    gpu_put(m->gpu, m->buf.x, s->buf.x,
            (size_t)T * (size_t)s->e->config.d_model * sizeof *s->buf.x);
}

/* Returns true if a decode step keeps the attention inputs of all layers, for gates. */
static bool keeps(const struct session *s)
{
    return s->run.stepping && ((const struct device_session *)s->device_state)->buf.attn_in;
}

/* Returns the buffer of the input of attention. */
static float *normed_of(const struct session *s, int layer)
{
    const struct device_session *m = s->device_state;
    return keeps(s) ? m->buf.attn_in + (size_t)layer * m->buf.ld_attn_in : m->buf.normed;
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
        [SLOT_X] = {m->buf.x, d},
        [SLOT_NORMED] = {normed_of(s, r->layer), d},
        [SLOT_QKV] = {m->buf.qkv, s->buf.ld_qkv},
        [SLOT_ATT] = {m->buf.att, s->buf.ld_att},
        [SLOT_BRANCH] = {m->buf.branch, d},
        [SLOT_FFN_IN] = {m->buf.normed, d},
        [SLOT_GATE_UP] = {m->buf.gate_up, s->buf.ld_gate_up},
        [SLOT_FFN] = {m->buf.gate_up + device_session_rows(r->T) * s->buf.ld_gate_up, ffn},
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

/* Returns true if one kernel runs the product at step i and the activation after it. */
static bool activates(const struct layer_run *r, int i)
{
    const struct device_matrix *w = matrix_of(r, r->b->step[i].w);
    return fuses(r->s) && r->b->step[i + 1].op == OP_ACT && gpu_dense_gates(w->part, w->n);
}

/* Returns true if the kernel of the product at step i also runs the norm before it. */
static bool takes_norm(const struct layer_run *r, int i)
{
    const struct block_step *p = &r->b->step[i];
    return p->op == OP_MATMUL && fuses(r->s) && (p->w == T_QKV || activates(r, i));
}

/* Runs one kernel for the product at step i, the norm before it (NULL: no norm) and the activation
 * or the addition after it. Returns the number of steps from the product on. */
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

/* Keeps the attention input for the gates of a step. It can be the residual stream. */
static int matmul_step(struct layer_run *r, int i)
{
    struct session *s = r->s;
    struct device_session *m = s->device_state;
    const struct block_step *p = &r->b->step[i];
    const struct rows x = rows_of(r, p->src), y = rows_of(r, p->dst);
    if (p->w == T_QKV && p->src == SLOT_X && keeps(s))
        gpu_copy(m->gpu, normed_of(s, r->layer), m->buf.x, (size_t)r->T * x.ld * sizeof *m->buf.x);
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
        gpu_get(m->gpu, s->buf.x, m->buf.x, (size_t)r->T * x.ld * sizeof *s->buf.x);
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
    return weights_of(s)->layer[layer].vector[T_ATTN_NORM] || keeps(s) ? normed_of(s, layer)
                                                                       : m->buf.x;
}

/* The CPU applies RoPE, runs gates and stores entries. */
static int store_step(struct layer_run *r, int i)
{
    struct session *s = r->s;
    struct device_session *m = s->device_state;
    size_t T = (size_t)r->T, d = (size_t)s->e->config.d_model;
    gpu_get(m->gpu, s->buf.qkv, m->buf.qkv, T * s->buf.ld_qkv * sizeof *s->buf.qkv);
    if (session_points(s) & POINT_GATES)
        gpu_get(m->gpu, vector_of(r, T_ATTN_NORM) ? s->buf.normed : s->buf.x,
                device_normed(s, r->layer), T * d * sizeof *s->buf.normed);
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
    gpu_rmsnorm(m->gpu, m->buf.normed, m->buf.x, (size_t)c->d_model, weights_of(s)->out_norm, T, 1,
                c->d_model, c->norm_eps);
}

int device_final_norm(struct session *s, int first, int T)
{
    struct device_session *m = s->device_state;
    size_t d = (size_t)s->e->config.d_model, at = (size_t)first * d;
    device_norm(s, T);
    gpu_fetch(m->gpu, s->buf.normed + at, m->buf.normed + at,
              (size_t)(T - first) * d * sizeof *s->buf.normed);
    return gpu_wait(m->gpu, &s->e->error);
}

void device_logits(struct session *s, const float *rows, int T)
{
    struct device_session *m = s->device_state;
    multiply(s, m->buf.logits, s->buf.ld_logits, rows, (size_t)s->e->config.d_model, T,
             &weights_of(s)->head);
}

/* Uploads row 0 of `normed` first: after a fork it is the row of the original session. */
void device_lm_head(struct session *s)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    gpu_put(m->gpu, m->buf.row, s->buf.normed, (size_t)c->d_model * sizeof *s->buf.normed);
    device_logits(s, m->buf.row, 1);
    gpu_get(m->gpu, s->buf.logits, m->buf.logits, (size_t)c->vocab * sizeof *s->buf.logits);
    device_set_logits_on_host(s);
}

int device_error(struct session *s)
{
    struct device_session *m = s->device_state;
    return gpu_wait(m->gpu, &s->e->error);
}

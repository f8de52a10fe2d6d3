/* layer.c - a CUDA device as a backend: the rows of a chunk live there from the embedding to the
 * last norm.  Where the host is needed in each layer, queries, keys and values come back there. */
#include <string.h>

#include "engine/device/decode.h"

static struct device_weights *weights_of(const struct session *s)
{
    return s->e->device;
}

/* out[t] = W x[t], of exact sums where the engine is exact. */
static void multiply(struct session *s, float *out, size_t ld, const float *x, size_t ld_x, int T,
                     const struct device_matrix *w)
{
    struct device_session *m = s->device_state;
    for (int i = 0, at = 0; i < w->n; at += w->part[i++].N)
        (s->e->exact ? gpu_product_exact : gpu_product)(m->gpu, out + at, ld, x, ld_x, T,
                                                        &w->part[i]);
}

/* The same for the rows of a chunk: those of a prompt by cuBLAS, however many there are, those of
 * steps by a kernel of ours.  Rows of out: device_session_rows(T). */
static void multiply_chunk(struct session *s, float *out, size_t ld, const float *x, size_t ld_x,
                           int T, const struct device_matrix *w)
{
    struct device_session *m = s->device_state;
    if (s->e->exact || s->stepping || !gpu_gemm(m->gpu, out, ld, x, ld_x, T, w->part, w->n))
        multiply(s, out, ld, x, ld_x, T, w);
}

/* Whether products take along what comes before and behind them: those of steps, in any order of
 * sums. */
static bool fuses(const struct session *s)
{
    return s->stepping && !s->e->exact;
}

/* A product of W with what else it is to do. */
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

/* What a branch reads: x behind its norm, which goes into normed, or x itself. */
static const float *enter(struct session *s, float *normed, const float *norm, int T)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    if (!norm)
        return m->x;
    gpu_rmsnorm(m->gpu, normed, m->x, (size_t)c->d_model, norm, T, 1, c->d_model, c->norm_eps);
    return normed;
}

/* Whether a step keeps what the branches of attention read. */
static bool keeps(const struct session *s)
{
    return s->stepping && ((const struct device_session *)s->device_state)->kept;
}

/* Where x behind the norm of attention is left. */
static float *normed_of(const struct session *s, int layer)
{
    const struct device_session *m = s->device_state;
    return keeps(s) ? m->kept + (size_t)layer * m->ld_kept : m->normed;
}

void device_project(struct session *s, int layer, int T, float *qkv)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    const struct device_layer *w = &weights_of(s)->layer[layer];
    int G = c->n_heads, H = c->n_kv_heads, D = c->head_dim;
    size_t d = (size_t)c->d_model;
    if (fuses(s)) {
        const struct gpu_dense how = dense_of(
            &w->matrix[T_QKV],
            (struct gpu_dense){.norm = w->vector[T_ATTN_NORM],
                               .normed = w->vector[T_ATTN_NORM] ? normed_of(s, layer) : NULL,
                               .eps = c->norm_eps});
        gpu_dense(m->gpu, qkv, s->ld_qkv, m->x, d, T, &how);
    } else {
        multiply_chunk(s, qkv, s->ld_qkv, enter(s, normed_of(s, layer), w->vector[T_ATTN_NORM], T),
                       d, T, &w->matrix[T_QKV]);
    }
    if (w->vector[T_QKV_BIAS])
        gpu_add_row(m->gpu, qkv, s->ld_qkv, w->vector[T_QKV_BIAS], T, (G + 2 * H) * D);
    if (keeps(s) && !w->vector[T_ATTN_NORM])
        gpu_copy(m->gpu, normed_of(s, layer), m->x, (size_t)T * d * sizeof *m->x);
}

void device_norm_heads(struct session *s, int layer, int T, float *qkv)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    const struct device_layer *w = &weights_of(s)->layer[layer];
    int G = c->n_heads, H = c->n_kv_heads, D = c->head_dim;
    float *key = qkv + (size_t)G * (size_t)D;
    if (w->vector[T_Q_NORM]) {
        bool wide = c->family->qk_norm_wide;
        gpu_rmsnorm(m->gpu, qkv, qkv, s->ld_qkv, w->vector[T_Q_NORM], T, wide ? 1 : G,
                    wide ? G * D : D, c->norm_eps);
        gpu_rmsnorm(m->gpu, key, key, s->ld_qkv, w->vector[T_K_NORM], T, wide ? 1 : H,
                    wide ? H * D : D, c->norm_eps);
    }
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

void device_project_to_host(struct session *s, int layer, int T)
{
    struct device_session *m = s->device_state;
    size_t d = (size_t)s->e->config.d_model;
    device_project(s, layer, T, m->qkv);
    device_norm_heads(s, layer, T, m->qkv);
    gpu_get(m->gpu, s->qkv, m->qkv, (size_t)T * s->ld_qkv * sizeof *s->qkv);
    if (s->gate)
        gpu_get(m->gpu, s->normed, device_normed(s, layer), (size_t)T * d * sizeof *s->normed);
}

/* x += the branch, behind its norm and times its scale where there are such. */
static void add_branch(struct session *s, int T, const float *norm)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    size_t d = (size_t)c->d_model;
    if (norm)
        gpu_rmsnorm(m->gpu, m->branch, m->branch, d, norm, T, 1, c->d_model, c->norm_eps);
    gpu_add(m->gpu, m->x, m->branch, (size_t)T * d, c->residual_scale);
}

/* The branch of W x is added to x; where a norm stands between, it is a row of its own before. */
static void branch(struct session *s, const float *in, size_t ld_in, int T,
                   const struct device_matrix *w, const float *norm)
{
    struct device_session *m = s->device_state;
    size_t d = (size_t)s->e->config.d_model;
    if (norm || !fuses(s)) {
        multiply_chunk(s, m->branch, d, in, ld_in, T, w);
        add_branch(s, T, norm);
        return;
    }
    const struct gpu_dense how = dense_of(
        w, (struct gpu_dense){.end = GPU_ADD, .scale = s->e->config.residual_scale});
    gpu_dense(m->gpu, m->x, d, in, ld_in, T, &how);
}

/* one[t] = act(gate) * up of x[t] behind the norm. */
static void feed(struct session *s, float *one, int T, const struct device_layer *w)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    size_t d = (size_t)c->d_model;
    if (!fuses(s) || !gpu_dense_gates(w->matrix[T_GATE_UP].part, w->matrix[T_GATE_UP].n)) {
        multiply_chunk(s, m->gate_up, s->ld_ffn, enter(s, m->normed, w->vector[T_FFN_NORM], T), d,
                       T, &w->matrix[T_GATE_UP]);
        gpu_gated(m->gpu, one, m->gate_up, s->ld_ffn, T, c->d_ffn, c->family->gelu);
        return;
    }
    const struct gpu_dense how = dense_of(&w->matrix[T_GATE_UP],
                                          (struct gpu_dense){.norm = w->vector[T_FFN_NORM],
                                                             .eps = c->norm_eps,
                                                             .end = GPU_GATED,
                                                             .gelu = c->family->gelu});
    gpu_dense(m->gpu, one, (size_t)c->d_ffn, m->x, d, T, &how);
}

void device_finish(struct session *s, int layer, int T)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    const struct device_layer *w = &weights_of(s)->layer[layer];
    float *one = m->gate_up + device_session_rows(T) * s->ld_ffn;
    branch(s, m->att, s->ld_att, T, &w->matrix[T_OUT], w->vector[T_ATTN_POST]);
    feed(s, one, T, w);
    branch(s, one, (size_t)c->d_ffn, T, &w->matrix[T_DOWN], w->vector[T_FFN_POST]);
    if (s->shadow || s->twin_for)
        gpu_get(m->gpu, s->x, m->x, (size_t)T * (size_t)c->d_model * sizeof *s->x);
}

/* The steps before rotation, and those behind attention. */
static int rows_on_device(struct layer_run *r, int i)
{
    if (i > 0) {
        device_finish(r->s, r->layer, r->T);
        return r->b->n - i;
    }
    device_project_to_host(r->s, r->layer, r->T);
    int rope = steps_before(r->b, i, OP_ROPE), gates = steps_before(r->b, i, OP_GATES);
    return rope < gates ? rope : gates;
}

static int attend_on_device(struct layer_run *r, int i)
{
    int err = device_attend(r->s, r->layer, r->T, r->pos0);
    (void)i;
    return err ? err : 1;
}

const step_fn steps_device[BLOCK_OPS] = {[OP_NORM] = rows_on_device,
                                         [OP_MATMUL] = rows_on_device,
                                         [OP_ROPE] = step_store,
                                         [OP_GATES] = step_store,
                                         [OP_ATTEND] = attend_on_device};

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

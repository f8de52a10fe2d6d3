/* trainable_write.c - where the values of a model file's tensors lie among weights that learn. */
#include <stdio.h>
#include <string.h>

#include "engine/train/trainable.h"

/* Rows of a tensor; a vector is one row. */
struct place {
    size_t at;
    int rows, columns;
    int turned;  /* first rows, of queries and keys, which lie in the order of the kernels */
    bool vector; /* whose elements are turned in place of rows */
    float by;    /* what values are multiplied with; 0: 1 */
};

static bool find_end(const struct trainable *t, const char *name, struct place *ret)
{
    const struct model_config *m = t->config;
    const struct {
        const char *name;
        struct place place;
    } ends[] = {
        {"token_embd.weight", {t->embedding, m->vocab, m->d_model, 0, false, 0}},
        {"output.weight", {t->head, m->vocab, m->d_model, 0, false, 0}},
        {"output_norm.weight", {t->out_norm, 1, m->d_model, 0, true, m->logit_scale}},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(name, ends[i].name) == 0) {
            *ret = ends[i].place;
            return true;
        }
    return false;
}

static bool find_vector(const struct trainable *t, const struct trainable_layer *l,
                        const char *what, struct place *ret)
{
    const struct model_config *m = t->config;
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    int q_norm = trainable_norm_floats(m, m->n_heads),
        k_norm = trainable_norm_floats(m, m->n_kv_heads);
    bool pre = !m->family->no_pre_norm, post = m->family->post_norm, bias = m->family->qkv_bias;
    const struct {
        const char *name;
        bool there;
        struct place place;
    } vectors[] = {
        {"attn_norm.weight", pre, {l->attn_norm, 1, m->d_model, 0, true, 0}},
        {"ffn_norm.weight", pre, {l->ffn_norm, 1, m->d_model, 0, true, 0}},
        {"post_attention_norm.weight", post, {l->attn_post, 1, m->d_model, 0, true, 0}},
        {"post_ffw_norm.weight", post, {l->ffn_post, 1, m->d_model, 0, true, 0}},
        {"attn_q_norm.weight", q_norm > 0, {l->q_norm, 1, q_norm, q_norm, true, 0}},
        {"attn_k_norm.weight", k_norm > 0, {l->k_norm, 1, k_norm, k_norm, true, 0}},
        {"attn_q.bias", bias, {l->bias, 1, q, q, true, 0}},
        {"attn_k.bias", bias, {l->bias + (size_t)q, 1, kv, kv, true, 0}},
        {"attn_v.bias", bias, {l->bias + (size_t)(q + kv), 1, kv, 0, true, 0}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (vectors[i].there && strcmp(what, vectors[i].name) == 0) {
            *ret = vectors[i].place;
            return true;
        }
    return false;
}

static bool find_matrix(const struct trainable *t, const struct trainable_layer *l,
                        const char *what, struct place *ret)
{
    const struct model_config *m = t->config;
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim, d = m->d_model;
    int up = m->family->fused_qkv ? 0 : m->d_ffn; /* where the rows of ffn_up begin */
    const struct {
        const char *name;
        enum weight_role role;
        int first, rows, turned;
    } matrices[] = {
        {"attn_qkv.weight", ROLE_QKV, 0, q + 2 * kv, q + kv},
        {"attn_q.weight", ROLE_QKV, 0, q, q},
        {"attn_k.weight", ROLE_QKV, q, kv, kv},
        {"attn_v.weight", ROLE_QKV, q + kv, kv, 0},
        {"attn_output.weight", ROLE_OUT, 0, d, 0},
        {"ffn_gate.weight", ROLE_GATE_UP, 0, m->d_ffn, 0},
        {"ffn_up.weight", ROLE_GATE_UP, up, 2 * m->d_ffn - up, 0},
        {"ffn_down.weight", ROLE_DOWN, 0, d, 0},
    };
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        if (strcmp(what, matrices[i].name) != 0)
            continue;
        int K = trainable_columns(m, matrices[i].role);
        size_t first = (size_t)matrices[i].first * (size_t)K;
        *ret = (struct place){
            l->matrix[matrices[i].role] + first, matrices[i].rows, K, matrices[i].turned, false, 0};
        return true;
    }
    return false;
}

static bool find(const struct trainable *t, const char *name, struct place *ret)
{
    int layer, at = 0;
    if (find_end(t, name, ret))
        return true;
    if (sscanf(name, "blk.%d.%n", &layer, &at) != 1 || at == 0 || layer < 0
        || layer >= t->config->n_layers)
        return false;
    const struct trainable_layer *l = &t->layer[layer];
    return find_vector(t, l, name + at, ret) || find_matrix(t, l, name + at, ret);
}

bool trainable_fill(void *tuned, const struct gguf_tensor *tensor, float *out)
{
    const struct trainable *t = tuned;
    struct place p;
    if (!find(t, tensor->name, &p))
        return false;
    int lines = p.vector ? p.columns : p.rows;
    size_t width = p.vector ? 1 : (size_t)p.columns;
    for (int r = 0; out && r < lines; r++) {
        int to = r < p.turned ? weights_row_of(t->config, r) : r;
        memcpy(out + (size_t)to * width, t->w + p.at + (size_t)r * width, width * sizeof *out);
        if (p.by != 0)
            out[to] *= p.by;
    }
    return true;
}

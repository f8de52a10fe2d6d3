/* block.c - the list of steps of a block, from the family of a model and its tensors:
 *     x += W_O attention(rope(W_Q n), rope(W_K n), W_V n),   n = rmsnorm(x)
 *     x += W_down (silu(W_gate n) * W_up n),                 n = rmsnorm(x)
 * A step whose tensor the model does not have is left out. */
#include "engine/model/block.h"

static void build(const struct model_config *m, bool rotates, struct block *b)
{
    int D = m->head_dim, G = m->n_heads, H = m->n_kv_heads, d = m->d_model;
    bool wide = m->family->qk_norm_wide;
    int q_heads = wide ? 1 : G, k_heads = wide ? 1 : H;
    enum block_slot in = tensor_rows(m, T_ATTN_NORM) ? SLOT_NORMED : SLOT_X,
                    ffn_in = tensor_rows(m, T_FFN_NORM) ? SLOT_FFN_IN : SLOT_X;
    const struct block_step all[] = {
        {OP_NORM, SLOT_X, SLOT_NORMED, T_ATTN_NORM, 0, 1, d},
        {OP_MATMUL, in, SLOT_QKV, T_QKV, 0, 0, 0},
        {OP_BIAS, SLOT_QKV, SLOT_QKV, T_QKV_BIAS, 0, 1, (G + 2 * H) * D},
        {OP_NORM, SLOT_QKV, SLOT_QKV, T_Q_NORM, 0, q_heads, G * D / q_heads},
        {OP_NORM, SLOT_QKV, SLOT_QKV, T_K_NORM, G * D, k_heads, H * D / k_heads},
        {OP_ROPE, SLOT_QKV, SLOT_QKV, T_NONE, 0, G + H, m->rope_dim},
        {OP_GATES, SLOT_QKV, SLOT_QKV, T_NONE, 0, 0, 0},
        {OP_STORE, SLOT_QKV, SLOT_QKV, T_NONE, 0, 0, 0},
        {OP_ATTEND, SLOT_QKV, SLOT_ATT, tensor_rows(m, T_SINKS) ? T_SINKS : T_NONE, 0, 0, 0},
        {OP_MATMUL, SLOT_ATT, SLOT_BRANCH, T_OUT, 0, 0, 0},
        {OP_BIAS, SLOT_BRANCH, SLOT_BRANCH, T_OUT_BIAS, 0, 1, d},
        {OP_NORM, SLOT_BRANCH, SLOT_BRANCH, T_ATTN_POST, 0, 1, d},
        {OP_ADD, SLOT_BRANCH, SLOT_X, T_NONE, 0, 1, d},
        {OP_NORM, SLOT_X, SLOT_FFN_IN, T_FFN_NORM, 0, 1, d},
        {OP_MATMUL, ffn_in, SLOT_GATE_UP, T_GATE_UP, 0, 0, 0},
        {OP_BIAS, SLOT_GATE_UP, SLOT_GATE_UP, T_GATE_UP_BIAS, 0, 1, 2 * m->d_ffn},
        {OP_ACT, SLOT_GATE_UP, SLOT_FFN, T_NONE, 0, 1, m->d_ffn},
        {OP_MATMUL, SLOT_FFN, SLOT_BRANCH, T_DOWN, 0, 0, 0},
        {OP_BIAS, SLOT_BRANCH, SLOT_BRANCH, T_DOWN_BIAS, 0, 1, d},
        {OP_NORM, SLOT_BRANCH, SLOT_BRANCH, T_FFN_POST, 0, 1, d},
        {OP_ADD, SLOT_BRANCH, SLOT_X, T_NONE, 0, 1, d},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((all[i].w == T_NONE || tensor_rows(m, all[i].w)) && (all[i].op != OP_ROPE || rotates))
            b->step[b->n++] = all[i];
}

void block_plan_build(const struct model_config *m, struct block_plan *ret)
{
    *ret = (struct block_plan){.n = 0};
    for (int l = 0; l < m->n_layers; l++) {
        struct block b = {.n = 0};
        int kind = 0;
        build(m, model_rope(m, l, 0) != ROPE_NONE, &b);
        while (kind < ret->n && ret->kind[kind].n != b.n) /* lists differ in a step */
            kind++;
        if (kind == ret->n)
            ret->kind[ret->n++] = b;
        ret->of[l] = (unsigned char)kind;
    }
}

const char *executor_lacks(const struct model_config *m, unsigned supported)
{
    const struct family *f = m->family;
    const struct {
        bool there;
        const char *what;
    } all[FEATURES] = {
        [FEATURE_WINDOW] = {m->window > 0, "layers with an attention window"},
        [FEATURE_CAP] = {m->attn_cap > 0 || m->logit_cap > 0, "capped logits"},
        [FEATURE_NORMS] = {f->post_norm && !f->no_pre_norm, "norms after its branches"},
        [FEATURE_LATE_NORMS] = {f->no_pre_norm || f->qk_norm_wide, "norms after its branches"},
        [FEATURE_GELU] = {f->gelu, "a GELU gate"},
        [FEATURE_NOPE] = {m->no_rope_every > 0, "layers without rotations"},
        [FEATURE_MULTIPLIERS] = {f->multipliers, "multipliers"},
        [FEATURE_SINKS] = {tensor_rows(m, T_SINKS) > 0, "attention sinks"},
        [FEATURE_BIASES] = {tensor_rows(m, T_OUT_BIAS) || tensor_rows(m, T_GATE_UP_BIAS)
                                || tensor_rows(m, T_DOWN_BIAS),
                            "biases of the output of attention or of the feed-forward branch"},
    };
    for (int i = 0; i < FEATURES; i++)
        if (all[i].there && !(supported & 1u << i))
            return all[i].what;
    return NULL;
}

int steps_before(const struct block *b, int i, enum block_op op)
{
    int n = 0;
    while (i + n < b->n && b->step[i + n].op != op)
        n++;
    return n;
}

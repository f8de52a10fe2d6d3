/* layouts.c - names and shapes of the tensors of each layout.  rg, rg10, rg2, rg3, wgkv and locret
 * use the names of the published code.  linear and rgkv use the names of rg. */
#include "engine/gate/layouts.h"

const struct layout gate_layouts[N_LAYOUTS] = {
    /* z = W2 act(W1 x + b1) + bias */
    [LAYOUT_RG] =
        {.name = "rg",
         .kinds = 1u << GATE_RETENTION,
         .stages = {{{GATE_IN_X}},
                    false,
                    {{GATE_THEN_ACTIVATE}, {GATE_THEN_OUTPUT, 1}},
                    GATE_OUT_LOG_SIGMOID},
         .activation = GATE_ACT_SILU,
         .part = {{.name = "retention_gate.linear1.weight", .shape = {S_I, S_DM}, .cols = S_DM},
                  {.name = "retention_gate.linear1.bias", .role = R_BIAS, .shape = {S_I}},
                  {.name = "retention_gate.linear2.weight",
                   .stage = 1,
                   .shape = {S_H, S_I},
                   .cols = S_I},
                  {.name = "retention_gate.bias", .role = R_BIAS, .stage = 1, .shape = {S_H}}}},
    /* z = W3 act(W2 act(W1 x + b1) + b2) + bias */
    [LAYOUT_RG10] =
        {.name = "rg10",
         .kinds = 1u << GATE_RETENTION,
         .stages = {{{GATE_IN_X}},
                    false,
                    {{GATE_THEN_ACTIVATE}, {GATE_THEN_ACTIVATE, 1}, {GATE_THEN_OUTPUT, 2}},
                    GATE_OUT_LOG_SIGMOID},
         .activation = GATE_ACT_SILU,
         .part = {{.name = "retention_gate.linear1.weight", .shape = {S_I, S_DM}, .cols = S_DM},
                  {.name = "retention_gate.linear1.bias", .role = R_BIAS, .shape = {S_I}},
                  {.name = "retention_gate.linear2.weight",
                   .stage = 1,
                   .shape = {S_I, S_I},
                   .cols = S_I},
                  {.name = "retention_gate.linear2.bias",
                   .role = R_BIAS,
                   .stage = 1,
                   .shape = {S_I}},
                  {.name = "retention_gate.linear3.weight",
                   .stage = 2,
                   .shape = {S_H, S_I},
                   .cols = S_I},
                  {.name = "retention_gate.bias", .role = R_BIAS, .stage = 2, .shape = {S_H}}}},
    /* z = W x + bias */
    [LAYOUT_LINEAR] =
        {.name = "linear",
         .kinds = 1u << GATE_RETENTION,
         .stages = {{{GATE_IN_X}}, false, {{GATE_THEN_OUTPUT}}, GATE_OUT_LOG_SIGMOID},
         .hidden_part = -1,
         .part = {{.name = "retention_gate.linear1.weight", .shape = {S_H, S_DM}, .cols = S_DM},
                  {.name = "retention_gate.bias", .role = R_BIAS, .shape = {S_H}}}},
    /* z = W2 act(W1 [k; v] + b1) + bias: the keys of all heads before RoPE, then the values */
    [LAYOUT_RGKV] =
        {.name = "rgkv",
         .kinds = 1u << GATE_RETENTION,
         .stages = {{{GATE_IN_K_PRE}, {GATE_IN_V}},
                    false,
                    {{GATE_THEN_ACTIVATE}, {GATE_THEN_OUTPUT, 1}},
                    GATE_OUT_LOG_SIGMOID},
         .activation = GATE_ACT_SILU,
         .part = {{.name = "retention_gate.linear1.weight",
                   .shape = {S_I, S_2HD},
                   .cols = S_2HD,
                   .turned = S_HD},
                  {.name = "retention_gate.linear1.bias", .role = R_BIAS, .shape = {S_I}},
                  {.name = "retention_gate.linear2.weight",
                   .stage = 1,
                   .shape = {S_H, S_I},
                   .cols = S_I},
                  {.name = "retention_gate.bias", .role = R_BIAS, .stage = 1, .shape = {S_H}}}},
    /* g = sigmoid(W2 act(W1 [norm(k_pre); norm(k_post)] + b1) + b2), for each head */
    [LAYOUT_WGKV] =
        {.name = "wgkv",
         .kinds = 1u << GATE_WRITE,
         .per_head = true,
         .stages = {{{GATE_IN_K_PRE, true}, {GATE_IN_K_POST, true}},
                    true,
                    {{GATE_THEN_ACTIVATE}, {GATE_THEN_OUTPUT, 1}},
                    GATE_OUT_SIGMOID},
         .activation = GATE_ACT_GELU,
         .hidden_part = 2,
         .part = {{.name = "g_predictors.pre_key_norm.weight", .role = R_NORM, .shape = {S_D}},
                  {.name = "g_predictors.post_key_norm.weight",
                   .role = R_NORM,
                   .stage = 1,
                   .shape = {S_D}},
                  {.name = "g_predictors.conv1.weight",
                   .shape = {S_HI, S_2D, S_1},
                   .cols = S_2D,
                   .turned = S_2D},
                  {.name = "g_predictors.conv1.bias", .role = R_BIAS, .shape = {S_HI}},
                  {.name = "g_predictors.conv2.weight",
                   .stage = 1,
                   .shape = {S_H, S_I, S_1},
                   .cols = S_I},
                  {.name = "g_predictors.conv2.bias", .role = R_BIAS, .stage = 1, .shape = {S_H}}}},
    /* s = W2 act(W1 [q; k; v]) */
    [LAYOUT_LOCRET] =
        {.name = "locret",
         .kinds = 1u << GATE_IMPORTANCE,
         .stages = {{{GATE_IN_Q}, {GATE_IN_K_PRE}, {GATE_IN_V}},
                    false,
                    {{GATE_THEN_ACTIVATE}, {GATE_THEN_OUTPUT, 1}},
                    GATE_OUT_LOGIT},
         .activation = GATE_ACT_SILU,
         .part = {{.name = "fc1.weight", .shape = {S_I, S_QKV}, .cols = S_QKV, .turned = S_QK},
                  {.name = "fc2.weight", .stage = 1, .shape = {S_H, S_I}, .cols = S_I}}},
    [LAYOUT_DUO] = {.name = "duo", .kinds = 1u << GATE_HEADS},
    /* k = rope(norm(Wk [max; min; avg])), q = rope(norm(Wq [q of the group])), for each head */
    [LAYOUT_SEER] = {.name = "seer",
                     .kinds = 1u << GATE_BLOCKS,
                     .per_head = true,
                     .hidden_dim = 1,
                     .part = {{.name = "block_gate.k_proj.weight",
                               .shape = {S_H, S_I, S_3D},
                               .cols = S_3D,
                               .turned = S_3D,
                               .rows_turn = true},
                              {.name = "block_gate.q_proj.weight",
                               .stage = 1,
                               .shape = {S_H, S_I, S_GROUP},
                               .cols = S_GROUP,
                               .turned = S_GROUP,
                               .rows_turn = true},
                              {.name = "block_gate.k_norm.weight",
                               .role = R_NORM,
                               .shape = {S_I},
                               .rows_turn = true,
                               .optional = true},
                              {.name = "block_gate.q_norm.weight",
                               .role = R_NORM,
                               .stage = 1,
                               .shape = {S_I},
                               .rows_turn = true,
                               .optional = true}}},
    [LAYOUT_VALUES] = {.name = "values",
                       .kinds = 1u << GATE_RETENTION | 1u << GATE_WRITE | 1u << GATE_IMPORTANCE},
    /* z = W2 act(W1 [k_0; v_0; k_1; v_1; ...] + b1) + bias: for each head the key after RoPE, then
     * the value */
    [LAYOUT_RG2] =
        {.name = "rg2",
         .kinds = 1u << GATE_RETENTION,
         .stages = {{{GATE_IN_K_POST}, {GATE_IN_V}},
                    true,
                    {{GATE_THEN_ACTIVATE}, {GATE_THEN_OUTPUT, 1}},
                    GATE_OUT_LOG_SIGMOID},
         .activation = GATE_ACT_SILU,
         .part = {{.name = "retention_gate.linear1.weight",
                   .shape = {S_I, S_2HD},
                   .cols = S_2HD,
                   .turned = S_2HD,
                   .step = S_2D},
                  {.name = "retention_gate.linear1.bias", .role = R_BIAS, .shape = {S_I}},
                  {.name = "retention_gate.linear2.weight",
                   .stage = 1,
                   .shape = {S_H, S_I},
                   .cols = S_I},
                  {.name = "retention_gate.bias", .role = R_BIAS, .stage = 1, .shape = {S_H}}}},
    /* z = W3 (act(W1 y) * W2 y) + bias, where y is the input of rg2 */
    [LAYOUT_RG3] =
        {.name = "rg3",
         .kinds = 1u << GATE_RETENTION,
         .stages = {{{GATE_IN_K_POST}, {GATE_IN_V}},
                    true,
                    {{GATE_THEN_ACTIVATE}, {GATE_THEN_MULTIPLY}, {GATE_THEN_OUTPUT, 2}},
                    GATE_OUT_LOG_SIGMOID},
         .activation = GATE_ACT_SILU,
         .part = {{.name = "retention_gate.gate_proj.weight",
                   .shape = {S_I, S_2HD},
                   .cols = S_2HD,
                   .turned = S_2HD,
                   .step = S_2D},
                  {.name = "retention_gate.up_proj.weight",
                   .stage = 1,
                   .shape = {S_I, S_2HD},
                   .cols = S_2HD,
                   .turned = S_2HD,
                   .step = S_2D},
                  {.name = "retention_gate.down_proj.weight",
                   .stage = 2,
                   .shape = {S_H, S_I},
                   .cols = S_I},
                  {.name = "retention_gate.bias", .role = R_BIAS, .stage = 2, .shape = {S_H}}}},
};

int layout_size(const struct gates_model *m, int hidden, enum size s)
{
    int64_t G = m->n_heads, H = m->n_kv_heads, D = m->head_dim;
    const int64_t size[] = {[S_NONE] = 1,
                            [S_1] = 1,
                            [S_DM] = m->d_model,
                            [S_D] = D,
                            [S_2D] = 2 * D,
                            [S_3D] = 3 * D,
                            [S_H] = H,
                            [S_I] = hidden,
                            [S_HI] = H * hidden,
                            [S_GROUP] = H ? G / H * D : 0,
                            [S_HD] = H * D,
                            [S_2HD] = 2 * H * D,
                            [S_QK] = (G + H) * D,
                            [S_QKV] = (G + 2 * H) * D};
    return (int)size[s];
}

int gate_stages_count(const struct gate_stages *s)
{
    int n = 0;
    while (n < GATE_STAGES && s->stage[n].then != GATE_THEN_NOTHING)
        n++;
    return n;
}

int gate_inputs_count(const struct gate_stages *s)
{
    int n = 0;
    while (n < GATE_INPUTS && s->input[n].from)
        n++;
    return n;
}

unsigned layout_inputs(const struct layout *l)
{
    unsigned all = 0;
    for (int i = 0; i < GATE_INPUTS; i++)
        all |= l->stages.input[i].from;
    return all;
}

bool layout_segment(const struct layout *l, const struct gates_model *m, int unit, int i,
                    struct gate_segment *ret)
{
    const struct gate_stages *s = &l->stages;
    int n = gate_inputs_count(s), D = m->head_dim, heads = l->per_head ? 1 : m->n_kv_heads;
    if (s->by_head && i < n * heads) {
        *ret = (struct gate_segment){i % n, (l->per_head ? unit : i / n) * D, D, i * D};
        return true;
    }
    if (s->by_head || n == 1 || i >= n)
        return false;
    int to = 0, width = 0;
    for (int k = 0; k <= i; k++) {
        to += width;
        width = (s->input[k].from == GATE_IN_Q ? m->n_heads : m->n_kv_heads) * D;
    }
    *ret = (struct gate_segment){i, 0, width, to};
    return true;
}

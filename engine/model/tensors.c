/* tensors.c - the table of tensors, and the check that a file has no others. */
#include "engine/model/tensors.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row for each tensor of a GGUF file. */
bool tensor_shape(const struct model_config *m, enum tensor_role role, struct tensor_shape *ret)
{
    const struct family *f = m->family;
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim, d = m->d_model;
    int q_norm = f->qk_norm_wide ? q : m->head_dim, k_norm = f->qk_norm_wide ? kv : m->head_dim;
    bool fused = f->fused_qkv, pre = !f->no_pre_norm, post = f->post_norm;
    bool bias = f->qkv_bias || m->optional & 1u << T_QKV_BIAS;
    bool sinks = m->optional & 1u << T_SINKS, out_bias = m->optional & 1u << T_OUT_BIAS;
    bool up_bias = m->optional & 1u << T_GATE_UP_BIAS, down_bias = m->optional & 1u << T_DOWN_BIAS;
    const struct {
        enum tensor_role role;
        bool there;
        int K;
        struct tensor_part part;
    } rows[] = {
        {T_QKV, !fused, d, {"attn_q.weight", q, q}},
        {T_QKV, !fused, d, {"attn_k.weight", kv, kv}},
        {T_QKV, !fused, d, {"attn_v.weight", kv, 0}},
        {T_QKV, fused, d, {"attn_qkv.weight", q + 2 * kv, q + kv}},
        {T_OUT, true, q, {"attn_output.weight", d, 0}},
        {T_GATE_UP, !fused, d, {"ffn_gate.weight", m->d_ffn, 0}},
        {T_GATE_UP, true, d, {"ffn_up.weight", fused ? 2 * m->d_ffn : m->d_ffn, 0}},
        {T_DOWN, true, m->d_ffn, {"ffn_down.weight", d, 0}},
        {T_ATTN_NORM, pre, 0, {"attn_norm.weight", d, 0}},
        {T_FFN_NORM, pre, 0, {"ffn_norm.weight", d, 0}},
        {T_ATTN_POST, post, 0, {"post_attention_norm.weight", d, 0}},
        {T_FFN_POST, post, 0, {"post_ffw_norm.weight", d, 0}},
        {T_Q_NORM, f->qk_norm, 0, {"attn_q_norm.weight", q_norm, q_norm}},
        {T_K_NORM, f->qk_norm, 0, {"attn_k_norm.weight", k_norm, k_norm}},
        {T_QKV_BIAS, bias && !fused, 0, {"attn_q.bias", q, q}},
        {T_QKV_BIAS, bias && !fused, 0, {"attn_k.bias", kv, kv}},
        {T_QKV_BIAS, bias && !fused, 0, {"attn_v.bias", kv, 0}},
        {T_QKV_BIAS, bias && fused, 0, {"attn_qkv.bias", q + 2 * kv, q + kv}},
        {T_SINKS, sinks, 0, {"attn_sinks.weight", m->n_heads, 0}},
        {T_OUT_BIAS, out_bias, 0, {"attn_output.bias", d, 0}},
        {T_GATE_UP_BIAS, up_bias && !fused, 0, {"ffn_gate.bias", m->d_ffn, 0}},
        {T_GATE_UP_BIAS, up_bias, 0, {"ffn_up.bias", fused ? 2 * m->d_ffn : m->d_ffn, 0}},
        {T_DOWN_BIAS, down_bias, 0, {"ffn_down.bias", d, 0}},
        {T_HEAD, true, d, {"output.weight", m->vocab, 0}},
    };
    *ret = (struct tensor_shape){.n_parts = 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].role == role && rows[i].there) {
            ret->part[ret->n_parts++] = rows[i].part;
            ret->rows += rows[i].part.rows;
            ret->K = rows[i].K;
        }
    return ret->n_parts > 0;
}

const char *tensor_name(enum tensor_role role)
{
    static const char *const name[] = {
        [T_QKV] = "qkv",
        [T_OUT] = "out",
        [T_GATE_UP] = "gate_up",
        [T_DOWN] = "down",
        [T_ATTN_NORM] = "attn_norm",
        [T_FFN_NORM] = "ffn_norm",
        [T_ATTN_POST] = "attn_post",
        [T_FFN_POST] = "ffn_post",
        [T_Q_NORM] = "q_norm",
        [T_K_NORM] = "k_norm",
        [T_QKV_BIAS] = "qkv_bias",
        [T_SINKS] = "sinks",
        [T_OUT_BIAS] = "out_bias",
        [T_GATE_UP_BIAS] = "gate_up_bias",
        [T_DOWN_BIAS] = "down_bias",
        [T_HEAD] = "head",
    };
    return name[role];
}

int tensor_rows(const struct model_config *m, enum tensor_role role)
{
    struct tensor_shape s;
    tensor_shape(m, role, &s);
    return s.rows;
}

int tensor_columns(const struct model_config *m, enum tensor_role role)
{
    struct tensor_shape s;
    if (!tensor_shape(m, role, &s))
        return 0;
    return s.K ? s.K : 1;
}

size_t tensor_floats(const struct model_config *m, enum tensor_role role)
{
    return (size_t)tensor_rows(m, role) * (size_t)tensor_columns(m, role);
}

/* Returns whether a tensor is read; name: behind "blk.N.". */
static bool is_read(const struct model_config *m, const char *name)
{
    struct tensor_shape s;
    for (int role = 0; role < LAYER_TENSORS; role++) {
        tensor_shape(m, (enum tensor_role)role, &s);
        for (int i = 0; i < s.n_parts; i++)
            if (strcmp(s.part[i].name, name) == 0)
                return true;
    }
    return false;
}

/* The tensors of the whole model.  Factors of rotations are either one list or two. */
static bool is_read_once(const struct gguf *g, const char *name)
{
    bool one = gguf_find(g, "rope_freqs.weight");
    const struct {
        const char *name;
        bool read;
    } rows[] = {
        {"token_embd.weight", true},
        {"output_norm.weight", true},
        {"output.weight", true},
        {"rope_freqs.weight", true},
        {"rope_factors_long.weight", !one},
        {"rope_factors_short.weight", !one},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].read;
    return false;
}

/* The name of a layer's tensor behind "blk.N."; *ret_layer: N.  NULL: the tensor is of no layer. */
static const char *of_layer(const char *name, long *ret_layer)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || !isdigit((unsigned char)name[4]))
        return NULL;
    *ret_layer = strtol(name + 4, &end, 10);
    bool leading_zero = name[4] == '0' && end > name + 5;
    return *end == '.' && !leading_zero ? end + 1 : NULL;
}

/* Returns what a tensor is for, by a part of its name, or NULL. */
static const char *purpose(const char *name)
{
    static const char *const rows[][2] = {
        {"_exps.", "a mixture of experts"},
        {"ffn_gate_inp", "a mixture of experts"},
        {"_shexp.", "a mixture of experts"},
        {"norm.bias", "biases of norms"},
        {"attn_gate", "gates of attention"},
        {".lora", "an adapter"},
        {".scale", "scales of quantised weights"},
        {"_norm", "other norms"},
        {"ssm_", "recurrent layers"},
        {"position_embd", "learnt positions"},
        {"cls", "a classifier"},
    };
    bool bias = strstr(name, ".bias") != NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(name, rows[i][0]))
            return rows[i][1];
    if (bias && strstr(name, "attn_"))
        return "biases of attention";
    if (bias)
        return strstr(name, "ffn_") ? "biases of the feed-forward part" : "other biases";
    return strncmp(name, "v.", 2) == 0 || strncmp(name, "mm.", 3) == 0 ? "an image encoder" : NULL;
}

static int refuse(const struct gguf *g, const struct model_config *m, const char *name,
                  struct kvf_diag *d)
{
    const char *what = purpose(name);
    if (what)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: tensor %s is not supported: a model of architecture '%s' with %s",
                        gguf_path(g), name, m->arch, what);
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: tensor %s is not known in architecture '%s', and it may change the result",
                    gguf_path(g), name, m->arch);
}

enum { NAME = 64 };

/* Returns how many tensors of a shape the layers have; there: the last of them, missing: the first
 * that is missing. */
static int count_tensors(const struct gguf *g, const struct tensor_shape *s, int n_layers,
                         char there[NAME], char missing[NAME])
{
    int n = 0, n_missing = 0;
    for (int i = 0; i < n_layers * s->n_parts; i++) {
        char name[NAME];
        snprintf(name, sizeof name, "blk.%d.%s", i / s->n_parts, s->part[i % s->n_parts].name);
        bool found = gguf_find(g, name);
        if (found || n_missing == 0)
            memcpy(found ? there : missing, name, sizeof name);
        n += found;
        n_missing += !found;
    }
    return n;
}

int tensors_find(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    static const enum tensor_role optional[] = {T_QKV_BIAS, T_SINKS, T_OUT_BIAS, T_GATE_UP_BIAS,
                                                T_DOWN_BIAS};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        struct model_config with = *m;
        struct tensor_shape s;
        char there[NAME], missing[NAME];
        with.optional |= 1u << optional[i];
        tensor_shape(&with, optional[i], &s);
        int n = count_tensors(g, &s, m->n_layers, there, missing);
        if (n == 0)
            continue;
        if (n < s.n_parts * m->n_layers)
            return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s is missing, but the file has %s",
                            gguf_path(g), missing, there);
        m->optional |= 1u << optional[i];
    }
    return KVF_OK;
}

int tensors_check(const struct gguf *g, const struct model_config *m, struct kvf_diag *d)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        long layer = 0;
        const char *part = of_layer(name, &layer);
        if (part ? !is_read(m, part) : !is_read_once(g, name))
            return refuse(g, m, name, d);
        if (part && layer >= m->n_layers)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: tensor %s is of a layer that the model does not have: "
                            "%s.block_count is %d",
                            gguf_path(g), name, m->arch, m->n_layers);
    }
    return KVF_OK;
}

#include "engine/model/tensors.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of a layer and the families that have them, without "blk.N.". */
static bool is_read(const struct family *f, const char *name)
{
    const struct {
        const char *name;
        bool read;
    } rows[] = {
        {"attn_norm.weight", !f->no_pre_norm},
        {"ffn_norm.weight", !f->no_pre_norm},
        {"post_attention_norm.weight", f->post_norm},
        {"post_ffw_norm.weight", f->post_norm},
        {"attn_q_norm.weight", f->qk_norm},
        {"attn_k_norm.weight", f->qk_norm},
        {"attn_q.bias", f->qkv_bias},
        {"attn_k.bias", f->qkv_bias},
        {"attn_v.bias", f->qkv_bias},
        {"attn_qkv.weight", f->fused_qkv},
        {"attn_q.weight", !f->fused_qkv},
        {"attn_k.weight", !f->fused_qkv},
        {"attn_v.weight", !f->fused_qkv},
        {"attn_output.weight", true},
        {"ffn_gate.weight", !f->fused_qkv},
        {"ffn_up.weight", true},
        {"ffn_down.weight", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].read;
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
        {"attn_sinks", "attention sinks (one more logit for each head)"},
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

int tensors_check(const struct gguf *g, const struct model_config *m, struct kvf_diag *d)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        long layer = 0;
        const char *part = of_layer(name, &layer);
        if (part ? !is_read(m->family, part) : !is_read_once(g, name))
            return refuse(g, m, name, d);
        if (part && layer >= m->n_layers)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: tensor %s is of a layer that the model does not have: "
                            "%s.block_count is %d",
                            gguf_path(g), name, m->arch, m->n_layers);
    }
    return KVF_OK;
}

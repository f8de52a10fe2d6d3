/* hf_names.c - converts tensor names of Hugging Face folders to names of GGUF. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/hf.h"

static const char layers[] = "model.layers.";

/* Tensors of a layer, after its number; kind is ".weight" or ".bias". */
static const struct row {
    const char *name, *gguf, *kind;
    unsigned families;
    enum hf_use use;
} rows[] = {
    {"self_attn.q_proj", "attn_q", ".weight", HF_ALL & ~HF_PHI3, HF_KEEP},
    {"self_attn.k_proj", "attn_k", ".weight", HF_ALL & ~HF_PHI3, HF_KEEP},
    {"self_attn.v_proj", "attn_v", ".weight", HF_ALL & ~HF_PHI3, HF_KEEP},
    {"self_attn.q_proj", "attn_q", ".bias", HF_QWEN2, HF_KEEP},
    {"self_attn.k_proj", "attn_k", ".bias", HF_QWEN2, HF_KEEP},
    {"self_attn.v_proj", "attn_v", ".bias", HF_QWEN2, HF_KEEP},
    {"self_attn.qkv_proj", "attn_qkv", ".weight", HF_PHI3, HF_KEEP},
    {"self_attn.o_proj", "attn_output", ".weight", HF_ALL, HF_KEEP},
    {"self_attn.q_norm", "attn_q_norm", ".weight", HF_QWEN3 | HF_OLMO2, HF_KEEP},
    {"self_attn.k_norm", "attn_k_norm", ".weight", HF_QWEN3 | HF_OLMO2, HF_KEEP},
    {"self_attn.q_norm", "attn_q_norm", ".weight", HF_GEMMA3, HF_PLUS_ONE},
    {"self_attn.k_norm", "attn_k_norm", ".weight", HF_GEMMA3, HF_PLUS_ONE},
    {"self_attn.rotary_emb.inv_freq", "", "", HF_ALL, HF_DROP},
    {"mlp.gate_proj", "ffn_gate", ".weight", HF_ALL & ~HF_PHI3, HF_KEEP},
    {"mlp.up_proj", "ffn_up", ".weight", HF_ALL & ~HF_PHI3, HF_KEEP},
    {"mlp.gate_up_proj", "ffn_up", ".weight", HF_PHI3, HF_KEEP},
    {"mlp.down_proj", "ffn_down", ".weight", HF_ALL, HF_KEEP},
    {"input_layernorm", "attn_norm", ".weight", HF_ALL & ~HF_GEMMAS & ~HF_OLMO2, HF_KEEP},
    {"input_layernorm", "attn_norm", ".weight", HF_GEMMAS, HF_PLUS_ONE},
    {"post_attention_layernorm", "ffn_norm", ".weight", HF_ALL & ~HF_GEMMAS & ~HF_OLMO2, HF_KEEP},
    {"post_attention_layernorm", "post_attention_norm", ".weight", HF_GEMMAS, HF_PLUS_ONE},
    {"post_attention_layernorm", "post_attention_norm", ".weight", HF_OLMO2, HF_KEEP},
    {"pre_feedforward_layernorm", "ffn_norm", ".weight", HF_GEMMAS, HF_PLUS_ONE},
    {"post_feedforward_layernorm", "post_ffw_norm", ".weight", HF_GEMMAS, HF_PLUS_ONE},
    {"post_feedforward_layernorm", "post_ffw_norm", ".weight", HF_OLMO2, HF_KEEP},
};

/* Tensors outside the layers. */
static const struct row ends[] = {
    {"model.embed_tokens", "token_embd", ".weight", HF_ALL, HF_KEEP},
    {"model.norm", "output_norm", ".weight", HF_ALL & ~HF_GEMMAS, HF_KEEP},
    {"model.norm", "output_norm", ".weight", HF_GEMMAS, HF_PLUS_ONE},
    {"lm_head", "output", ".weight", HF_ALL, HF_KEEP},
};

/* Returns true if s is the name of a row with its kind. */
static bool is_row(const struct row *r, const char *s, unsigned family)
{
    size_t n = strlen(r->name);
    return (r->families & family) && strncmp(s, r->name, n) == 0 && strcmp(s + n, r->kind) == 0;
}

static const struct row *find(const struct row *r, size_t n, const char *s, unsigned family)
{
    for (size_t i = 0; i < n; i++)
        if (is_row(&r[i], s, family))
            return &r[i];
    return NULL;
}

/* Reads a layer number without leading zeros and the dot after it; returns -1 if there is none. */
static int layer_number(const char **s)
{
    const char *p = *s;
    int n = 0;
    while (isdigit((unsigned char)*p) && p - *s < 5)
        n = n * 10 + (*p++ - '0');
    if (p == *s || *p != '.' || (**s == '0' && p - *s > 1))
        return -1;
    *s = p + 1;
    return n;
}

enum hf_use hf_name(const struct hf_family *f, const char *name, char out[HF_NAME])
{
    const struct row *r = find(ends, sizeof ends / sizeof *ends, name, f->bit);
    if (r) {
        snprintf(out, HF_NAME, "%s%s", r->gguf, r->kind);
        return r->use;
    }
    if (strncmp(name, layers, strlen(layers)) != 0)
        return HF_UNKNOWN;
    name += strlen(layers);
    int layer = layer_number(&name);
    r = layer < 0 ? NULL : find(rows, sizeof rows / sizeof *rows, name, f->bit);
    if (!r)
        return HF_UNKNOWN;
    snprintf(out, HF_NAME, "blk.%d.%s%s", layer, r->gguf, r->kind);
    return r->use;
}

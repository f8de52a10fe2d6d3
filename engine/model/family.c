/* family.c - the table of model families, and the architectures that are rejected (family.h). */
#include <string.h>

#include "engine/model/family.h"

static const struct family families[] = {
    {.name = "llama",
     .models = "Llama 2, 3, 3.1, 3.2; Mistral, Ministral; SmolLM, SmolLM2; R1-Distill-Llama",
     .windows = WINDOWS_READ},
    {.name = "qwen2",
     .models = "Qwen2, Qwen2.5, QwQ, R1-Distill-Qwen",
     .rope_neox = true,
     .qkv_bias = true,
     .windows = WINDOWS_LISTED},
    {.name = "qwen3",
     .models = "Qwen3, dense",
     .rope_neox = true,
     .qk_norm = true,
     .windows = WINDOWS_LISTED},
    {.name = "phi3",
     .models = "Phi-3, Phi-3.5, Phi-4",
     .rope_neox = true,
     .fused_qkv = true,
     .windows = WINDOWS_READ},
    {.name = "gemma2",
     .models = "Gemma 2",
     .rope_neox = true,
     .post_norm = true,
     .gelu = true,
     .embedding_by_width = true,
     .windows = WINDOWS_READ,
     .window = 4096,
     .global_every = 2,
     .logit_caps = true,
     .attn_cap = 50,
     .logit_cap = 30,
     .depth_by_width = 46},
    {.name = "gemma3",
     .models = "Gemma 3, text",
     .rope_neox = true,
     .qk_norm = true,
     .post_norm = true,
     .gelu = true,
     .embedding_by_width = true,
     .windows = WINDOWS_READ,
     .global_every = 6,
     .logit_caps = true,
     .local_base = 10000,
     .depth_by_width = 62},
    {.name = "olmo2",
     .models = "OLMo 2, OLMo 3",
     .rope_neox = true,
     .qk_norm = true,
     .qk_norm_wide = true,
     .no_pre_norm = true,
     .post_norm = true,
     .windows = WINDOWS_READ,
     .global_every = 4,
     .local_plain = true},
    {.name = "granite", .models = "Granite 3, dense", .multipliers = true},
    {.name = "smollm3", .models = "SmolLM3", .nope_every = 4},
};

/* What is left out is told by what it has. */
static const struct refusal {
    const char *name, *why;
} refusals[] = {
    {"llama4", "a mixture of experts"},
    {"qwen2moe", "a mixture of experts"},
    {"qwen3moe", "a mixture of experts"},
    {"qwen3vlmoe", "a mixture of experts"},
    {"phimoe", "a mixture of experts"},
    {"granitemoe", "a mixture of experts"},
    {"olmoe", "a mixture of experts"},
    {"gpt-oss", "a mixture of experts"},
    {"dbrx", "a mixture of experts"},
    {"grok", "a mixture of experts"},
    {"arctic", "a mixture of experts"},
    {"deepseek", "a mixture of experts"},
    {"glm4moe", "a mixture of experts"},
    {"dots1", "a mixture of experts"},
    {"ernie4_5-moe", "a mixture of experts"},
    {"hunyuan-moe", "a mixture of experts"},
    {"bailingmoe", "a mixture of experts"},
    {"bailingmoe2", "a mixture of experts"},
    {"minimax-m2", "a mixture of experts"},
    {"smallthinker", "a mixture of experts"},
    {"afmoe", "a mixture of experts"},
    {"exaone-moe", "a mixture of experts"},
    {"llada-moe", "a mixture of experts"},
    {"grovemoe", "a mixture of experts"},
    {"deepseek2", "latent attention (MLA)"},
    {"deepseek2-ocr", "latent attention (MLA)"},
    {"minicpm3", "latent attention (MLA)"},
    {"plm", "latent attention (MLA)"},
    {"mistral4", "latent attention (MLA)"},
    {"glm-dsa", "latent attention (MLA)"},
    {"mamba", "recurrent layers"},
    {"mamba2", "recurrent layers"},
    {"rwkv6", "recurrent layers"},
    {"rwkv6qwen2", "recurrent layers"},
    {"rwkv7", "recurrent layers"},
    {"arwkv7", "recurrent layers"},
    {"jamba", "recurrent layers"},
    {"falcon-h1", "recurrent layers"},
    {"granitehybrid", "recurrent layers"},
    {"nemotron_h", "recurrent layers"},
    {"nemotron_h_moe", "recurrent layers"},
    {"qwen3next", "recurrent layers"},
    {"qwen35", "recurrent layers"},
    {"qwen35moe", "recurrent layers"},
    {"plamo2", "recurrent layers"},
    {"kimi-linear", "recurrent layers"},
    {"lfm2", "layers of convolutions"},
    {"lfm2moe", "layers of convolutions"},
};

const struct family *family_find(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    return NULL;
}

const struct family *family_at(int i)
{
    return i >= 0 && (size_t)i < sizeof families / sizeof *families ? &families[i] : NULL;
}

const char *family_refusal(const char *name)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (strcmp(refusals[i].name, name) == 0)
            return refusals[i].why;
    return NULL;
}

const char *family_refused_at(int i, const char **ret_why)
{
    if (i < 0 || (size_t)i >= sizeof refusals / sizeof *refusals)
        return NULL;
    *ret_why = refusals[i].why;
    return refusals[i].name;
}

void family_traits(const struct family *f, struct buf *b)
{
    const struct {
        bool has;
        const char *what;
    } traits[] = {
        {f->qkv_bias, "biases of queries, keys and values"},
        {f->qk_norm, f->qk_norm_wide ? "norms of queries and keys over all heads"
                                     : "norms of queries and keys in each head"},
        {f->post_norm, f->no_pre_norm ? "norms only after branches" : "norms after branches"},
        {f->fused_qkv, "fused projections"},
        {f->gelu, "GELU gates"},
        {f->embedding_by_width, "scaled embeddings"},
        {f->windows, "windows where the file has them"},
        {f->global_every > 0, "local and global layers"},
        {f->local_base > 0, "rotations of local layers"},
        {f->nope_every > 0, "layers without rotations"},
        {f->attn_cap > 0 || f->logit_cap > 0, "capped scores and logits"},
        {f->multipliers, "multipliers"},
    };
    const char *comma = "";
    for (size_t i = 0; i < sizeof traits / sizeof *traits; i++)
        if (traits[i].has) {
            buf_printf(b, "%s%s", comma, traits[i].what);
            comma = ", ";
        }
}

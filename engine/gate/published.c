/* published.c - the table of published gates. */
#include <stddef.h>

#include "engine/gate/published.h"

/* arch, layers, d_model, query heads, KV heads, head dimension, vocabulary size */
#define QWEN3_1_7B "qwen3", 28, 2048, 16, 8, 128, 151936
#define QWEN3_4B "qwen3", 36, 2560, 32, 8, 128, 151936
#define QWEN3_8B "qwen3", 36, 4096, 32, 8, 128, 151936
#define QWEN3_14B "qwen3", 40, 5120, 40, 8, 128, 151936
#define QWEN2_14B "qwen2", 48, 5120, 40, 8, 128, 152064
#define LLAMA3_8B "llama", 32, 4096, 32, 8, 128, 128256
#define LLAMA2_7B "llama", 32, 4096, 32, 32, 128, 32000
#define MISTRAL_7B "llama", 32, 4096, 32, 8, 128
#define PHI3_MINI "phi3", 32, 3072, 32, 32, 96, 32064

static const struct published_gates rows[] = {
    {"trimkv", "ngocbh/TrimKV-Qwen3-1.7B-Math", "Qwen3-1.7B", true, QWEN3_1_7B},
    {"trimkv", "ngocbh/TrimKV-Qwen3-4B-Math", "Qwen3-4B", true, QWEN3_4B},
    {"trimkv", "ngocbh/TrimKV-Qwen3-4B-Instruct-2507", "Qwen3-4B-Instruct-2507", true, QWEN3_4B},
    {"trimkv", "ngocbh/TrimKV-Qwen3-8B-Math", "Qwen3-8B", true, QWEN3_8B},
    {"trimkv", "ngocbh/TrimKV-Qwen3-14B-Math", "Qwen3-14B", true, QWEN3_14B},
    {"trimkv", "ngocbh/TrimKV-DeepSeek-R1-Distill-Llama-8B", "DeepSeek-R1-Distill-Llama-8B", true,
     LLAMA3_8B},
    {"trimkv", "ngocbh/TrimKV-Phi-3-mini-128k-instruct", "Phi-3-mini-128k-instruct", true,
     PHI3_MINI},
    {"dbtrimkv", "ngocbh/DBTrimKV-Qwen3-4B-Math", "Qwen3-4B", true, QWEN3_4B},
    {"dbtrimkv", "ngocbh/DBTrimKV-Qwen3-4B-Instruct-2507", "Qwen3-4B-Instruct-2507", true,
     QWEN3_4B},
    {"wgkv", "WG-KV/checkpoints: llama-3.1-8b-instruct-LAMBDA.pt", "Llama-3.1-8B-Instruct", true,
     LLAMA3_8B},
    {"wgkv", "WG-KV/checkpoints: qwen3-4b-instruct-2507-LAMBDA.pt", "Qwen3-4B-Instruct-2507", true,
     QWEN3_4B},
    {"wgkv", "WG-KV/checkpoints: qwen3-4b-thinking-2507-LAMBDA.pt", "Qwen3-4B-Thinking-2507", true,
     QWEN3_4B},
    {"locret", "hyx21/Locret-llama-3.1-8B-instruct", "Llama-3.1-8B-Instruct", true, LLAMA3_8B},
    {"locret", "hyx21/Locret-phi-3-mini-128K", "Phi-3-mini-128k-instruct", true, PHI3_MINI},
    {"seer", "SeerAttention/SeerAttention-Decode-Qwen3-4B-AttnGates", "Qwen3-4B", false, QWEN3_4B},
    {"seer", "SeerAttention/SeerAttention-Decode-Qwen3-8B-AttnGates", "Qwen3-8B", false, QWEN3_8B},
    {"seer", "SeerAttention/SeerAttention-Decode-Qwen3-14B-AttnGates", "Qwen3-14B", false,
     QWEN3_14B},
    {"seer", "SeerAttention/SeerAttention-Decode-R1-Distill-Qwen-14B-AttnGates",
     "DeepSeek-R1-Distill-Qwen-14B", false, QWEN2_14B},
    {"duo", "mit-han-lab/duo-attention: attn_patterns/Llama-2-7B-32K-Instruct",
     "Llama-2-7B-32K-Instruct", true, LLAMA2_7B},
    {"duo", "mit-han-lab/duo-attention: attn_patterns/Llama-3-8B-Instruct-Gradient-1048k",
     "Llama-3-8B-Instruct-Gradient-1048k", true, LLAMA3_8B},
    {"duo", "mit-han-lab/duo-attention: attn_patterns/Llama-3-8B-Instruct-Gradient-4194k",
     "Llama-3-8B-Instruct-Gradient-4194k", true, LLAMA3_8B},
    {"duo", "mit-han-lab/duo-attention: attn_patterns/Mistral-7B-Instruct-v0.2",
     "Mistral-7B-Instruct-v0.2", true, MISTRAL_7B, 32000},
    {"duo", "mit-han-lab/duo-attention: attn_patterns/Mistral-7B-Instruct-v0.3",
     "Mistral-7B-Instruct-v0.3", true, MISTRAL_7B, 32768},
};

const struct published_gates *published_gates_at(int i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}

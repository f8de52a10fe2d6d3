/* config.h - the shape of a model, from its GGUF metadata. */
#ifndef KVF_ENGINE_CONFIG_H
#define KVF_ENGINE_CONFIG_H

#include "engine/model/gguf.h"

struct model_config {
    char arch[32], name[128];
    int n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ffn, vocab, n_ctx;
    int rope_dim;
    double rope_base;
    float norm_eps;
    bool qk_norm;  /* an RMSNorm over each head of queries and keys, before RoPE */
    bool qkv_bias; /* of the projections to queries, keys and values */
    bool halves;   /* the file's RoPE turns channels j and j + rope_dim / 2 of a head; weights.c
                      reorders them to pairs 2j, 2j + 1 */
};

/* Reads and checks; architectures "llama", "qwen2", "qwen3" without scaled positions.  KVF_OK,
 * KVF_E_FORMAT or KVF_E_LIMIT with a sentence. */
int model_config_read(const struct gguf *g, struct model_config *ret, struct kvf_diag *d);

#endif

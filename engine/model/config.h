/* config.h - the shape of a model, from its GGUF metadata. */
#pragma once

#include "engine/model/family.h"
#include "engine/model/gguf.h"
#include "engine/model/rope_scale.h"

enum {
    MODEL_PAIRS = 512, /* most pairs of channels that RoPE turns in a head */
    MODEL_LAYERS = 4096
};

/* Which angles a layer's rotations have. */
enum model_rope {
    ROPE_PLAIN, /* those of the file, up to the length it was first trained for */
    ROPE_LONG,  /* those of longer contexts */
    ROPE_LOCAL, /* those of layers with a window, where model_turns_apart */
    ROPE_KINDS,
    ROPE_NONE = ROPE_KINDS /* the layer does not rotate */
};

struct model_config {
    const struct family *family; /* its row: which tensors and steps there are */
    char arch[32], name[128];
    int n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ffn, vocab, n_ctx;
    int rope_dim;
    double rope_base;
    float norm_eps;
    bool halves; /* the file's RoPE turns channels j and j + rope_dim / 2 of a head, as the row of
                    the family says unless the file knows better; weights.c reorders them to
                    pairs 2j, 2j + 1 */

    double theta[ROPE_KINDS][MODEL_PAIRS]; /* angle per position of each pair */
    float rope_attn_factor[ROPE_KINDS];    /* cosines and sines are multiplied with it */
    bool turns_scaled;                     /* by the file: factors, linear or YaRN scaling */
    bool yarn;                             /* by the file: YaRN */
    struct rope_scale rope_scale;          /* asked for beyond the file */
    int n_ctx_max;                         /* tokens that a longer context may be given: n_ctx, or
                                               the factor of linear scaling times it */
    int n_ctx_orig;                        /* sessions of more tokens turn by ROPE_LONG */
    int window;                            /* entries that a query of a local layer sees; 0: all */
    bool local[MODEL_LAYERS];              /* [n_layers] the layer has the window */
    int no_rope_every;                     /* as in struct family */
    unsigned optional;                     /* 1 << enum tensor_role: tensors that the file has
                                              and the family does not ask for */
    float attn_scale;                      /* of the products of queries and keys */
    float attn_cap, logit_cap;             /* x becomes cap tanh(x / cap); 0: it stays */
    float embedding_scale;                 /* rows of the embedding are multiplied with it */
    float residual_scale;                  /* and what a branch adds */
    float logit_scale;                     /* logits are divided by it */
};

/* Writes the name of the model to out, at most cap - 1 bytes. Names the model after its file,
 * without the folders, ".gguf", the number of a part
 * ("-00001-of-00003") and the type of the weights: "SmolLM2-135M-Instruct" for
 * "SmolLM2-135M-Instruct.Q4_1.gguf". Folders and files with common names have the name in the key
 * general.name. */
void model_name(const struct gguf *g, char *out, size_t cap);

/* Reads and checks; the architectures are those of family.c.  KVF_OK, KVF_E_FORMAT or KVF_E_LIMIT
 * with a sentence. */
int model_config_read(const struct gguf *g, struct model_config *ret, struct kvf_diag *d);

/* Entries that a query of a layer sees, its own included; 0: all. */
int model_window(const struct model_config *m, int layer);
/* Whether layers with a window have rotations of their own. */
bool model_has_local_rope(const struct model_config *m);
/* How a layer rotates in a session of up to `length` tokens. */
enum model_rope model_rope(const struct model_config *m, int layer, int length);

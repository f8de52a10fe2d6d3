/* device.h - private to the device as a backend: its weights, and the mirror of a session. */
#ifndef KVF_ENGINE_DEVICE_H
#define KVF_ENGINE_DEVICE_H

#include "engine/cuda/gpu.h"
#include "engine/decode/session_state.h"

/* A matrix whose sources lie one below the other, each in the type of its file. */
struct device_matrix {
    struct gpu_matrix part[3];
    int n;
};

struct device_layer {
    struct device_matrix qkv, out, gate_up, down;
    float *attn_norm, *ffn_norm, *attn_post, *ffn_post, *q_norm, *k_norm, *qkv_bias;
};

struct device_weights {
    struct gpu *gpu;
    struct device_layer *layer; /* [n_layers] */
    struct device_matrix head;
    float *out_norm;
    int n_layers;
};

/* The pages of all heads, and what a chunk of a session needs. */
struct mirror {
    struct gpu *gpu;
    float *x, *normed, *qkv, *att, *branch, *gate_up, *logits; /* as of the session */
    float *row;                                                /* [d_model] */
    int err; /* the first of what could not be done */
    /* Pages of the cache. */
    unsigned char *pool;
    size_t page_bytes;
    int32_t pages, used;   /* that the pool has; below it, those that were given out */
    int32_t *free, n_free; /* [pages] given back */
    int32_t *table, *held; /* [L * heads][ld_table], [L * heads] */
    int ld_table;
    /* Of the layer at hand. */
    int32_t *d_table, *d_n, *d_until, *d_page;
    unsigned char *d_chosen;
    int32_t *n, *until; /* [blocks][heads], [heads][ld_slot], on the host */
    float *work;        /* of a step */
    /* Rows for those who watch: QUERY_BLOCK queries of each head. */
    float *d_rows, *d_lse, *d_entropy, *rows, *lse, *entropy;
    int32_t *d_seen, *seen;
};

/* KVF_OK, KVF_E_ARG, KVF_E_BACKEND or KVF_E_NOMEM, with a sentence. */
int device_weights_open(struct engine *e, struct kvf_diag *d);
void device_weights_close(struct engine *e);

/* Rows that T rows of a chunk take where cuBLAS writes them. */
static inline size_t mirror_rows(int T)
{
    return ((size_t)T + GPU_GEMM_ROWS - 1) / GPU_GEMM_ROWS * GPU_GEMM_ROWS;
}

int mirror_begin(struct session *s, const struct session_options *opt, struct kvf_diag *d);
void mirror_end(struct session *s);

/* Brings the pages of a layer, and what says where they are, to the device (device_cache.c), for T
 * queries from pos0 on.  KVF_OK or KVF_E_NOMEM. */
int mirror_layer(struct session *s, int layer, int T, int pos0, struct gpu_cache *ret_cache);

/* Attention of a layer, with its rows where they are watched (device_attention.c). */
int device_attend(struct session *s, int layer, int T, int pos0);

#endif

/* session_state.h - the inside of a session; private to engine/decode/. */
#ifndef KVF_ENGINE_SESSION_STATE_H
#define KVF_ENGINE_SESSION_STATE_H

#include <stdatomic.h>

#include "engine/decode/session.h"

enum {
    CHUNK_DEFAULT = 256,
    QUERY_BLOCK = 16,   /* query rows whose scores are held together */
    TASK_ROWS = 4 * QUERY_BLOCK, /* query rows of one head that a task computes */
    VOCAB_SEGMENT = 256, /* logits that are summed together for the NLL */
};

struct session {
    struct engine *e;
    struct cache *cache;
    struct method_state *method;
    struct recorder *recorder;
    eviction_fn on_evict;
    void *on_evict_ctx;
    enum kv_type kv_type;
    int cap, chunk;
    int n_past; /* tokens fed */
    bool has_logits;

    /* Buffers of a chunk of C tokens. */
    float *x;        /* [C][d_model] residual stream */
    float *normed;   /* [C][d_model] */
    float *qkv;      /* [C][ld_qkv] */
    float *att;      /* [C][ld_att] heads' outputs */
    float *branch;   /* [C][ld_out] output of a branch before it is added */
    float *gate_up;  /* [C][ld_ffn] */
    float *cos_sin;  /* [C][rope_dim] */
    float *logits;   /* [ld_vocab] */
    struct qrows q;  /* quantised rows of whatever goes into a matmul */
    size_t ld_qkv, ld_att, ld_out, ld_ffn, ld_vocab;

    /* Per thread. */
    float *strip;      /* [threads][QUERY_BLOCK][ld_strip] attention scores */
    size_t ld_strip;
    atomic_int *rows_done; /* [n_heads] rows of the chunk whose attention is computed */
    float *segment;    /* [threads][C][VOCAB_SEGMENT] */

    /* NLL of a chunk: per vocabulary segment and row. */
    float *seg_lse;    /* [segments][C] */
    float *target_logit; /* [C] */
};

/* out[t, 0..N) = W x[t] for T rows (linear.c).  Rows of out are ld apart and
 * hold a whole number of panels. */
void linear(struct session *s, float *out, size_t ld, const float *x, int T,
            const struct packed *w);

/* One layer over T tokens at positions pos0 .. (layer.c). */
int layer_forward(struct session *s, int layer, int T, int pos0);

/* Attention of all query heads over the cache (attention.c). */
void attention(struct session *s, int layer, int T, int pos0);

/* NLL of ids[i] from row i of the normed chunk, for n rows: reported to the
 * recorder as token t0 + i (nll.c). */
void nll_rows(struct session *s, const float *normed, const int32_t *ids, int n, int32_t t0);

#endif

/* device.h - private header of the CUDA backend: weights on the device and the device mirror of a
 * session. */
#ifndef KVF_ENGINE_DEVICE_H
#define KVF_ENGINE_DEVICE_H

#include "engine/cuda/gpu.h"
#include "engine/decode/session_state.h"

/* A matrix of up to three source matrices, stacked by rows. Each source keeps the type of its
 * file. */
struct device_matrix {
    struct gpu_matrix part[3];
    int n;
    bool joined; /* the data of all parts is contiguous, in one allocation */
};

/* The weights of a layer on the device, by enum tensor_role. */
struct device_layer {
    struct device_matrix matrix[LAYER_MATRICES];
    float *vector[LAYER_TENSORS]; /* NULL: the model has no such tensor */
};

/* Two pinned buffers ("halves") for uploads of KV pages: one is filled while the device reads the
 * second (pages.c). */
struct page_upload {
    unsigned char *page; /* [2] halves; NULL: no upload yet */
    int32_t *where;
    const void **from;
    int half;   /* index of the half to fill next */
    long waits; /* gpu_waits() when the last half was sent; -1: no half was sent yet */
};
/* Frees the buffers of page uploads. */
void device_uploads_close(struct gpu *g, struct page_upload *p);

/* The weights of an engine on the device, with data that all its sessions share. */
struct device_weights {
    struct gpu *gpu;
    struct device_layer *layer; /* [n_layers] */
    struct device_matrix head;
    float *out_norm;
    float *sinks; /* [n_layers][n_heads]; NULL: the model has none */
    int n_layers;
    struct device_gates *gates; /* gate networks that sessions have used so far (gates.c) */
    struct page_upload uploads;
};
/* Frees the gate networks of an engine. */
void device_gates_close(struct device_weights *w);
struct device_session;

/* Activation rows of gate networks (gates.c). */
struct gate_rows {
    float *in, *hidden[2];
    size_t n_in, n_hidden; /* floats of `in` and of each `hidden` */
};
/* Frees the gate activation rows of a session. */
void device_gates_free_session(struct device_session *m);

/* The recorded graphs of a session: a decode step without an eviction round before its token, a
 * step with one, and the evictions after the query. */
enum { GRAPH_STEP, GRAPH_ROUND, GRAPH_AFTER, MIRROR_GRAPHS };

/* Positions of the entries in the mirror's pages (page_positions.c). */
struct page_positions {
    bool valid;           /* the positions are current */
    int32_t *pos, *n;     /* [L * heads][ld_strip] position of the entry in each slot; [L * heads]
                             number of entries; NULL: positions are not tracked */
    int32_t *first, *job; /* [L * heads] first changed page; [L * heads + 1] number of changed pages
                             before those of each head */
    int32_t *list;        /* pinned, input of gpu_join_entries for up to `cap` pages */
    int32_t *d_list;
    int cap;
};

/* Activations of a chunk on the device (session.c). Members with the name of a member of struct
 * chunk_buffers have its shape. */
struct device_activations {
    float *x, *normed, *qkv, *att, *branch, *gate_up, *logits;
    float *row;     /* [d_model] */
    float *attn_in; /* [L][ld_attn_in] attention inputs of a step, after the attention norm if the
                    model has one; NULL: only the current layer's, in `normed` */
    size_t ld_attn_in;
    int n_attn_in; /* rows per layer of attn_in */
    int n_logits;  /* rows of logits */
};

/* The pool of KV pages and the page tables of all heads (pages.c). */
struct page_pool {
    unsigned char *pool;
    size_t page_bytes;
    int32_t n, used;          /* pages in the pool; pages that were ever assigned, [0, used) */
    int32_t *free, n_free;    /* [n] pages that were returned to the pool */
    int32_t *table, *n_pages; /* [L * heads][ld_table] pages, pinned; [L * heads] number of pages */
    int ld_table;
    int changed, changed_end; /* range of heads with table changes since the last upload */
};

/* Data of the current layer, for steps that run layer by layer (pages.c, attention.c). d_* are on
 * the device. */
struct layer_tables {
    int32_t *d_table, *d_page;
    unsigned char *d_chosen;
    int32_t *n, *d_n;         /* [blocks][heads] */
    int32_t *until, *d_until; /* [heads][ld_slot] expiry */
    int32_t *pos, *d_pos;     /* [heads][ld_slot] positions, for probes */
    float *work;              /* scratch of attention in a decode step */
};

/* Attention rows (attention.c): `block` queries of each head on the device (d_*), QUERY_BLOCK
 * queries on the host for observers. */
struct row_buffers {
    int block;
    float *d_p, *d_lse, *d_entropy, *p, *lse, *entropy;
    int32_t *d_seen, *seen;
};

/* The device mirror of a session: the KV pages of all heads and the buffers of a chunk. */
struct device_session {
    struct gpu *gpu;
    int err; /* first error */
    struct device_activations buf;
    struct page_pool pages;
    struct page_positions page_positions;
    struct layer_tables layer;
    struct row_buffers rows;
    struct device_probes *probes; /* NULL: no recording (probes.h) */
    struct device_decode *decode; /* NULL: no decode step has run on the device (decode.h) */
    struct device_draw *draw;     /* NULL: no token has been sampled on the device (sampler.c) */
    struct device_prompt *prompt; /* NULL: no prefill chunk has run on the device (prefill.c) */
    struct device_ranks *ranks;   /* NULL: no RoPE by cache rank so far (rank_rope.c) */
    struct gate_rows gate;
    struct gpu_graph *graph[MIRROR_GRAPHS];
};

/* Opens the device and uploads the weights of an engine. Returns KVF_OK, or KVF_E_ARG,
 * KVF_E_BACKEND or KVF_E_NOMEM with a message in d. */
int device_weights_open(struct engine *e, struct kvf_diag *d);
/* Frees the weights of an engine and closes the device. */
void device_weights_close(struct engine *e);

/* Returns T rounded up to the number of rows that a cuBLAS multiplication can write. */
static inline size_t device_session_rows(int T)
{
    return ((size_t)T + GPU_GEMM_ROWS - 1) / GPU_GEMM_ROWS * GPU_GEMM_ROWS;
}

/* Creates the mirror of a session in s->device_state. Returns KVF_OK, or KVF_E_ARG, KVF_E_NOMEM or
 * KVF_E_BACKEND. */
int device_session_begin(struct session *s, const struct session_options *opt, struct kvf_diag *d);
/* Frees the mirror of a session. */
void device_session_end(struct session *s);

/* Uploads changed pages of a layer, its page tables and, if needed, positions and expiry times
 * (pages.c). *ret_cache describes the layer's cache for T queries from pos0 on. Returns KVF_OK,
 * KVF_E_NOMEM or KVF_E_BACKEND. */
int device_session_layer(struct session *s, int layer, int T, int pos0,
                         struct gpu_cache *ret_cache);

/* Gives head `at` = layer * heads + head exactly n_pages pages, taken from or returned to the pool.
 * Returns KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int device_set_page_count(struct session *s, int at, int n_pages);
/* Marks the page tables of heads [first, end) as changed, for the next upload. */
void device_pages_changed(struct device_session *m, int first, int end);
/* Grows the pool to n_pages pages if it is smaller. A failure is ignored: the pool can also grow
 * later. */
void device_reserve_pages(struct session *s, size_t n_pages);
/* Uploads the pages of heads [first, end) that the host has written since the last upload. Their
 * pages must be assigned. Head indices run over all layers. Returns KVF_OK, KVF_E_NOMEM or
 * KVF_E_BACKEND. */
int device_upload_pages(struct session *s, int first, int end);

/* Takes a page from the pool, which grows if it is empty. Returns KVF_OK, KVF_E_NOMEM or
 * KVF_E_BACKEND. */
int device_alloc_page(struct session *s, int32_t *ret_page);

/* Updates the mirror between two prefill chunks (page_positions.c). Each head gets the pages that
 * its entries need. Entries that the device already has are moved there; the remaining pages are
 * uploaded. Returns KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int device_pages_sync(struct session *s);
/* Records that the next T tokens are written to the slots after the current entries. */
void device_pages_appended(struct session *s, int T);
/* Marks the tracked positions as unknown, after pages were changed in another way. */
static inline void device_pages_invalidate(struct device_session *m)
{
    m->page_positions.valid = false;
}
/* Frees the tracked positions. */
void page_positions_close(struct device_session *m);

/* The functions of the steps of a block, for struct backend (layer.c). OP_ROPE, OP_GATES, OP_STORE
 * and OP_ATTEND copy data to and from the host in each layer. */
extern const step_fn steps_device[BLOCK_OPS];
/* Returns true if gpu_norm_rope_store() runs step i, a norm. */
bool device_stores_norm(const struct layer_run *r, int i);
/* The functions embed, final_norm, lm_head and check of struct backend (layer.c). */
void device_embed(struct session *s, const int32_t *ids, int T);
int device_final_norm(struct session *s, int first, int T);
void device_lm_head(struct session *s);
int device_error(struct session *s);
/* Returns the input of the multiplication by the query, key and value weights of a layer. */
const float *device_normed(const struct session *s, int layer);
/* Applies the final norm to T rows of x. The result is in `normed`. */
void device_norm(struct session *s, int T);
/* Computes the logits of T rows [T][d_model]. device_reserve_logits must have provided T
 * rows. */
void device_logits(struct session *s, const float *rows, int T);
/* Returns the arguments of gpu_norm_rope_store() that follow from the model: heads, norms and RoPE
 * of T new entries. A norm over all heads of a row is not included. cos_sin is a table of angles
 * [T][rope_dim]. The angles of layers with windows are `local` floats after it. */
struct gpu_new_entries device_new_entries(const struct session *s, int layer, int T,
                                          const float *cos_sin, size_t local);

/* Provides a logits buffer of at least T rows (initially 1). Returns KVF_OK or KVF_E_NOMEM. */
int device_reserve_logits(struct session *s, int T);
/* Provides a buffer for the attention inputs of all layers, T rows in a decode step. They stay
 * until the step ends. Returns KVF_OK or KVF_E_NOMEM. */
int device_reserve_attn_in(struct session *s, int T);

/* Attention rows on the host: R rows per query head, at a distance of ld floats. */
struct device_rows {
    const float *p, *lse, *entropy;
    const int32_t *seen;
    size_t ld;
};
/* Passes the attention row of the newest query, all heads of a layer, to the observers of rows. */
void device_notify_rows(struct session *s, int layer, const struct device_rows *rows);

/* The function `likelihood` of struct backend (nll.c). */
bool device_likelihood(struct session *s, const float *normed, const int32_t *ids, int n);

/* Returns the sinks of the heads of a layer, followed by those of the layers behind it; or NULL. */
const float *device_sinks(const struct session *s, int layer);
/* Runs attention of a layer for T queries from pos0 on; copies rows to the host if they are
 * observed (attention.c). Returns KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int device_attend(struct session *s, int layer, int T, int pos0);
/* Describes attention of the T queries in qkv. The caller sets the member `cache`. */
struct gpu_attention device_session_queries(const struct session *s, int T, int pos0);
/* Returns the number of blocks of QUERY_BLOCK queries in T queries. */
int device_session_blocks(int T);
/* Given n[0 .. heads), the entries of each head with all T tokens stored, appends [blocks][heads]:
 * the entries once the last query of each block is stored. a->cache.n points to such an array. */
void device_session_lengths(const struct session *s, int T, int32_t *n);
/* Runs the attention that `a` describes and passes its rows to probes and observers. */
void device_session_attend(struct session *s, int layer, const struct gpu_attention *a);

/* For caches of unrotated keys (rank_rope.c): applies RoPE to the queries in qkv and to f32 copies
 * of the layer's keys, at the ranks of their entries. Then a->cache refers to the copies.
 * a->cache.n must be set. Returns KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
struct device_ranks;
int device_rotate_by_rank(struct session *s, int layer, struct gpu_attention *a);
/* Frees the buffers of RoPE by rank. */
void device_ranks_close(struct device_session *m);

/* Runs a prefill chunk of T tokens on the device: the function `prefill` of struct backend
 * (prefill.c). */
struct device_prompt;
int device_prefill(struct session *s, const int32_t *ids, int T);
/* Frees the buffers of prefill chunks. */
void device_prompt_close(struct session *s);

#endif

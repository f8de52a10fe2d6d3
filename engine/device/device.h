/* device.h - private to the device as a backend: its weights, and the mirror of a session. */
#ifndef KVF_ENGINE_DEVICE_H
#define KVF_ENGINE_DEVICE_H

#include "engine/cuda/gpu.h"
#include "engine/decode/session_state.h"

/* A matrix whose sources lie one below the other, each in the type of its file. */
struct device_matrix {
    struct gpu_matrix part[3];
    int n;
    bool joined; /* the data of the first is followed by that of the others: one allocation */
};

struct device_layer { /* by enum tensor_role */
    struct device_matrix matrix[LAYER_MATRICES];
    float *vector[LAYER_TENSORS]; /* NULL: the model has no such tensor */
};

/* Pages on their way to the device, in pinned memory: one half is filled while the other is read
 * (pages.c). */
struct page_upload {
    unsigned char *page; /* NULL: nothing was sent yet */
    int32_t *where;
    const void **from;
    int half;   /* that is filled next */
    long waits; /* gpu_waits when the other one was sent; -1: it was not */
};
void device_post_close(struct gpu *g, struct page_upload *p);

struct device_weights {
    struct gpu *gpu;
    struct device_layer *layer; /* [n_layers] */
    struct device_matrix head;
    float *out_norm;
    float *sinks; /* [n_layers][n_heads]; NULL: the model has none */
    int n_layers;
    struct device_gates *gates; /* those that sessions have asked for (gates.c) */
    struct page_upload post;
};
void device_gates_close(struct device_weights *w);
struct device_session;

/* Rows of what goes through the networks of gates (gates.c). */
struct gate_rows {
    float *in, *hidden[2];
    size_t n_in, n_hidden; /* floats of each */
};
void device_gates_free_session(struct device_session *m);

/* Steps in which nothing leaves before the token, and in which something does; what leaves behind
 * the query. */
enum { GRAPH_STEP, GRAPH_ROUND, GRAPH_AFTER, MIRROR_GRAPHS };

/* What the pages of a mirror hold, by positions (page_positions.c). */
struct page_positions {
    bool valid;           /* it is known */
    int32_t *pos, *n;     /* [L * heads][ld_strip] position of the entry in each slot; [L * heads]
                             NULL: nobody asks */
    int32_t *first, *job; /* [L * heads] the first page that changed; [L * heads + 1] pages that
                             change before those of a head */
    int32_t *list;        /* pinned, of gpu_join_entries, for `cap` pages */
    int32_t *d_list;
    int cap;
};

/* The pages of all heads, and what a chunk of a session needs. */
struct device_session {
    struct gpu *gpu;
    float *x, *normed, *qkv, *att, *branch, *gate_up, *logits; /* as of the session */
    float *row;                                                /* [d_model] */
    float *kept; /* [L][ld_kept] of a step, rows behind the norms of attention, or as they are where
                    there is none; NULL: those are in normed */
    size_t ld_kept;
    int n_kept;   /* rows of a layer */
    int n_logits; /* rows of logits */
    int err;      /* the first of what could not be done */
    /* Pages of the cache. */
    unsigned char *pool;
    size_t page_bytes;
    int32_t pages, used;   /* that the pool has; below it, those that were given out */
    int32_t *free, n_free; /* [pages] given back */
    int32_t *table, *held; /* [L * heads][ld_table], [L * heads] */
    int ld_table;
    int changed, changed_end; /* heads whose table has changed since a step has sent it */
    struct page_positions page_positions;
    /* Of the layer at hand. */
    int32_t *d_table, *d_n, *d_until, *d_page;
    unsigned char *d_chosen;
    int32_t *n, *until; /* [blocks][heads], [heads][ld_slot], on the host */
    float *work;        /* of a step */
    /* Rows of row_block queries of each head, and of QUERY_BLOCK on the host, for those who watch.
     */
    int row_block;
    float *d_rows, *d_lse, *d_entropy, *rows, *lse, *entropy;
    int32_t *d_seen, *seen;
    struct device_probes *probes; /* NULL: nothing is recorded (probes.h) */
    int32_t *pos, *d_pos;         /* [heads][ld_slot] of the layer at hand, for these */
    struct device_decode *decode; /* NULL: no step has run here whole (decode.h) */
    struct device_draw *draw;     /* NULL: nobody has drawn here (sampler.c) */
    struct device_prompt *prompt; /* NULL: no chunk has run here whole (prefill.c) */
    struct device_ranks *ranks;   /* NULL: no key was turned by its rank (rank_rope.c) */
    struct gate_rows gate;
    struct gpu_graph *graph[MIRROR_GRAPHS];
};

/* KVF_OK, KVF_E_ARG, KVF_E_BACKEND or KVF_E_NOMEM, with a sentence. */
int device_weights_open(struct engine *e, struct kvf_diag *d);
void device_weights_close(struct engine *e);

/* Rows that T rows of a chunk take where cuBLAS writes them. */
static inline size_t device_session_rows(int T)
{
    return ((size_t)T + GPU_GEMM_ROWS - 1) / GPU_GEMM_ROWS * GPU_GEMM_ROWS;
}

int device_session_begin(struct session *s, const struct session_options *opt, struct kvf_diag *d);
void device_session_end(struct session *s);

/* Brings the pages of a layer, and what says where they are, to the device (pages.c), for T
 * queries from pos0 on.  KVF_OK or KVF_E_NOMEM. */
int device_session_layer(struct session *s, int layer, int T, int pos0,
                         struct gpu_cache *ret_cache);

/* Gives a head of all layers as many pages; KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int device_session_hold_pages(struct session *s, int at, int n_pages);
/* The tables of heads [first, end) are to be sent. */
void device_pages_changed(struct device_session *m, int first, int end);
/* Makes room for so many pages of all heads together, where there is enough. */
void device_session_reserve_pages(struct session *s, size_t n_pages);
/* Sends the pages of heads [first, end) of all layers, which have them, that were written since
 * they were sent; codes as above. */
int device_session_put_pages(struct session *s, int first, int end);

/* A page of the pool; KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int device_session_take_page(struct session *s, int32_t *ret_page);

/* Between chunks of a prompt (page_positions.c): each head gets as many pages as its entries need,
 * which are there then; those that had been there before are moved on the device.  KVF_OK,
 * KVF_E_NOMEM or KVF_E_BACKEND.  Then: the next T tokens are on their way into slots behind these;
 * and: steps or somebody else have changed pages since. */
int device_pages_sync(struct session *s);
void device_session_followed(struct session *s, int T);
static inline void device_pages_invalidate(struct device_session *m)
{
    m->page_positions.valid = false;
}
void page_positions_close(struct device_session *m);

/* The functions of struct backend that run one operation of a layer (layer.c).  steps_device runs
 * ROPE, GATES, STORE and ATTEND layer by layer, with copies to and from the host. */
extern const step_fn steps_device[BLOCK_OPS];
/* Returns whether step i, a norm, is one that gpu_norm_rope_store runs. */
bool device_stores_norm(const struct layer_run *r, int i);
void device_embed(struct session *s, const int32_t *ids, int T);
int device_final_norm(struct session *s, int first, int T);
void device_lm_head(struct session *s);
int device_error(struct session *s);
/* Returns the rows that the product of queries, keys and values has read. */
const float *device_normed(const struct session *s, int layer);
/* normed, of x behind the last norm; logits of T rows, for as many as device_session_hold_logits
 * was asked for (1 without). */
void device_norm(struct session *s, int T);
void device_logits(struct session *s, const float *rows, int T);
/* T newcomers as far as they follow from the model: heads, norms (but wide ones) and rotation, by
 * turns of one after the other; those of layers with windows lie `local` floats behind. */
struct gpu_new_entries device_new_entries(const struct session *s, int layer, int T,
                                          const float *turns, size_t local);

/* Room for the logits of T rows; KVF_OK or KVF_E_NOMEM. */
int device_session_hold_logits(struct session *s, int T);
/* The same for what T rows of a step leave behind the norms of attention of all layers; there until
 * the step ends. */
int device_session_hold_normed(struct session *s, int T);

/* Rows of attention that have come to the host: of each query head R of them, ld apart. */
struct device_rows {
    const float *p, *lse, *entropy;
    const int32_t *seen;
    size_t ld;
};
/* Tells who watches of the rows of the newest query in a layer. */
void device_notify_rows(struct session *s, int layer, const struct device_rows *rows);

/* As likelihood of the backend (nll.c). */
bool device_likelihood(struct session *s, const float *normed, const int32_t *ids, int n);

/* Returns the sinks of the heads of a layer, followed by those of the layers behind it; or NULL. */
const float *device_sinks(const struct session *s, int layer);
/* Attention of a layer, with its rows where they are watched (attention.c). */
int device_attend(struct session *s, int layer, int T, int pos0);
/* Its parts: the queries in qkv, whose cache is to be set; how many blocks of queries T are; behind
 * n[0 .. heads), entries with all T in, how many there are once the last query of each block is in
 * [blocks][heads]; what a->cache.n points to is such an array. */
struct gpu_attention device_session_queries(const struct session *s, int T, int pos0);
int device_session_blocks(int T);
void device_session_lengths(const struct session *s, int T, int32_t *n);
void device_session_attend(struct session *s, int layer, const struct gpu_attention *a);

/* Of keys that are kept unturned (rank_rope.c): puts copies that are turned by the ranks of
 * their entries into the place of the layer's cache, whose lengths are there, and turns the queries
 * in qkv.  KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
struct device_ranks;
int device_turn_by_rank(struct session *s, int layer, struct gpu_attention *a);
void device_ranks_close(struct device_session *m);

/* A chunk of a prompt, as chunk of the backend (prefill.c). */
struct device_prompt;
int device_chunk(struct session *s, const int32_t *ids, int T);
void device_prompt_close(struct session *s);

#endif

/* session_state.h - the members of a session, and the functions that its files share; private to
 * engine/decode/ and engine/device/.
 *
 * Each nested struct belongs to the file that its comment names. In shapes, C is the number of
 * tokens of a chunk, L the number of layers, and cache_heads the number of KV heads of the cache.
 */
#ifndef KVF_ENGINE_SESSION_STATE_H
#define KVF_ENGINE_SESSION_STATE_H

#include <stdatomic.h>

#include "engine/decode/evicted_entries.h"
#include "engine/decode/session.h"
#include "engine/decode/shadow.h"

enum {
    CHUNK_DEFAULT = 256,
    PREALLOCATED_CHUNKS = 2, /* chunks for which memory of entries is allocated in advance */
    EXPIRE_EVERY = 1024, /* prompt positions between removals of expired entries. Until its removal
                            an expired entry is masked, so that slots do not depend on the chunk */
    IMPORT_LAYERS = 2,   /* layers of a chunk that are imported in one call */
    ROWS_PER_TASK = 8,   /* rows of a chunk that a task prepares */
    QUERY_BLOCK = 16,    /* query rows that probes receive together */
    STRIP_ROWS = 2 * QUERY_BLOCK, /* query rows with complete scores in a thread */
    PAGE_ROWS = 4 * QUERY_BLOCK,  /* query rows with scores of one page of integers in a thread */
    KERNEL_ROWS = 8,              /* a multiple of the rows in a tile of the attention kernels */
    TASK_ROWS = 4 * QUERY_BLOCK,  /* query rows of one head that a task computes */
    VOCAB_SEGMENT = 256,          /* logits that are reduced together for the NLL */
    TILE_PANELS = 12,             /* panels of a product with sums that stay in a thread */
};

/* State of the tokens that are fed (session.c). */
struct session_run {
    bool stepping;           /* a decode step: its queries can read a choice of pages */
    bool has_logits;         /* buf.logits and row 0 of buf.normed are those of the last token */
    bool in_task;            /* a task of the thread pool runs this session (session_pool) */
    bool evidence_on_device; /* the device accumulates attention evidence; the backend's
                                sync_evidence copies it to the host */
    int tokens_to_next_cut;  /* in a prompt: tokens until the method can evict, or more */
};

/* Progress within a part of a prompt. The part runs through the full cache first, if there is one,
 * then through the session. */
struct prompt_progress {
    session_progress_fn fn;
    void *ctx;
    int done, T;   /* tokens before the part; tokens of the part */
    int runs, run; /* number of sessions that run the part; index of the current one */
};

/* Code that receives data of a session and does not change it (watch.c). */
struct session_observers {
    struct recorder *recorder;
    eviction_fn on_evict;
    void *on_evict_ctx;
    attn_row_fn on_row;
    void *on_row_ctx;
    struct method_state *const *state; /* [n_states] borrowed; they receive evidence */
    int n_states;
    const struct prompt_progress *progress; /* NULL: no progress reports */
};

/* The comparison of a session with a full cache (shadow.c, evicted_entries.c), and in the
 * full-cache session itself the links back. */
struct session_comparison {
    struct session *full_cache;      /* is fed the same tokens first; NULL: no full cache */
    struct shadow *shadow;           /* --shadow model; NULL: off */
    struct evicted_entries *evicted; /* --shadow entries; NULL: off */
    /* In the full-cache session: */
    struct method_state *oracle; /* receives all attention rows; NULL: no oracle */
    struct session *compared;    /* the session with `shadow`; NULL: no comparison */
    bool no_logits;              /* logits are never read */
};

/* Sampling of the next token (session.c). */
struct session_sampling {
    struct sampler *sampler; /* borrowed; NULL: the session does not sample */
    bool has_token;          /* the last step has sampled `token` */
    int32_t token;
};

/* Numbers that describe a run (session.c, reading.c). */
struct session_counters {
    int *peak;      /* [L * query heads], used up to L * cache_heads: maximum entries that one query
                       after the prompt saw */
    int64_t cuts;   /* decisions that evicted entries to meet the budget */
    int64_t reads;  /* entries read by all queries after the prompt */
    int64_t unread; /* cached entries that they did not read */
    int n_steps;    /* tokens fed after the prompt */
};

/* Activations of a chunk (session_buffers.c). Rows of a buffer with a member ld_* are that many
 * floats apart, rows of other buffers are contiguous. */
struct chunk_buffers {
    float *x;       /* [C][d_model] residual stream */
    float *normed;  /* [C][d_model] input of a branch after its norm, complete only if keeps_normed;
                       after the layers: rows after the final norm */
    float *qkv;     /* [C][ld_qkv] queries, keys, values */
    float *att;     /* [C][ld_att] outputs of the heads */
    float *branch;  /* [C][ld_branch] output of a branch before it is added to x */
    float *gate_up; /* [C][ld_gate_up] */
    float *cos_sin; /* [2][C][rope_dim] RoPE angles of each token (fill_chunk_angles) */
    float *logits;  /* [ld_logits] */
    size_t ld_qkv, ld_att, ld_branch, ld_gate_up, ld_logits;
    bool keeps_normed; /* gates read `normed` */
};

/* Scratch of matrix multiplications (linear.c, ffn.c). */
struct matmul_buffers {
    struct qrows input; /* [C] input rows as integers. Matrices of 16-bit integers use the members q
                           and scale as those of a struct wrows */
    struct qrows activated; /* [C] activated rows as integers, while `input` is read */
    float *tile; /* [threads][ld_tile] sums of a task for C rows and TILE_PANELS panels */
    size_t ld_tile;
};

/* Scratch of attention (attention.c, attention_step.c). */
struct attention_buffers {
    float *scores; /* [threads][STRIP_ROWS][ld_strip] */
    size_t ld_strip;
    atomic_int *rows_done; /* [n_heads] rows of the chunk with finished attention */
    atomic_int *step_rows; /* [n_heads] finished tasks that the sums of a KV head wait for */
    atomic_int *step_sums; /* [n_heads][step_blocks] finished tasks of the sums of channels */
    float *step_weights;   /* [n_heads][step_blocks][ATTN_LANES] as in struct attn_sums */
    float *step_tops;      /* [n_heads][step_blocks] as in struct attn_sums */
};

/* Buffers that depend on the methods and gates (method_buffers.c). */
struct method_buffers {
    float *unrotated; /* [C][ld_unrotated] queries and keys before RoPE; NULL: not needed */
    size_t ld_unrotated;
    float *gate;            /* [C][n_kv_heads] gate values; NULL: no gates */
    int32_t *expiry;        /* [IMPORT_LAYERS * cache_heads][C] expiry of imported entries */
    unsigned char *visible; /* [threads][ld_strip] slots that a query sees */
    float *scratch;         /* [threads][ld_scratch] of gates, reads and rotated queries */
    size_t ld_scratch;
};

/* The inputs of attention that follow from the cache (reading.c): RoPE by rank, chosen pages. */
struct reading_buffers {
    float *rope_table;     /* [2][cap][rope_dim] RoPE angles of every rank; NULL: not needed */
    float *rotated_keys;   /* [cache_heads][ld_strip * head_dim] keys of a layer with RoPE by rank;
                              allocated by the CPU backend */
    unsigned char *chosen; /* [n_heads][ld_chosen] pages that a query head reads; NULL: all */
    int *page_of_head;     /* [cache_heads] entries per page; 0: the head reads all entries */
    size_t ld_chosen;
};

/* Scratch of the NLL of a chunk (nll.c). NULL pointers: not allocated. */
struct nll_buffers {
    float *segment;      /* [threads][C][VOCAB_SEGMENT] logits */
    float *lse;          /* [segments][C] log-sum-exp of the logits of a segment */
    float *target_logit; /* [C] */
};

/* A session. */
struct session {
    struct engine *e;
    void *device_state; /* data of the backend; NULL: none */
    struct cache *cache;
    struct method_state *method;
    const struct gates *gates;
    enum kv_type kv_type;
    int cap, chunk;      /* as in struct session_options, with the default filled in */
    const int *turn_end; /* [n_turns] as in struct session_options */
    int n_turns;
    int cache_heads;         /* n_kv_heads, or n_heads if query heads have caches of their own */
    bool positions_in_cache; /* positions=cache: the cache has unrotated keys */
    int n_past;              /* tokens fed */
    struct session_run run;
    struct session_observers observers;
    struct session_comparison compare;
    struct session_sampling sampling;
    struct session_counters count;
    struct chunk_buffers buf;
    struct matmul_buffers matmul;
    struct attention_buffers attn;
    struct method_buffers parts;
    struct reading_buffers reading;
    struct nll_buffers nll;
};

/* Input rows of a matrix multiplication. If they follow from other buffers, prologue() computes
 * rows [t0, t0 + n) at `to`, ld floats apart, before they are read. The task that quantises a row
 * calls it, and writes to its own memory if the row is not kept. */
struct matmul_input {
    float *x; /* [T] rows, ld floats apart */
    size_t ld;
    void (*prologue)(struct session *s, const void *how, int t0, int n, float *to, size_t ld);
    const void *how; /* for prologue */
    bool kept;       /* rows of x are read again later */
    bool ready;      /* matmul.input already has the rows as integers */
};

/* Prepares matmul.input for rows of w (linear.c). */
void set_input_format(struct session *s, const struct packed *w);
/* Quantises n rows at x, ld floats apart, to rows t0 on of matmul.input. Does not if w reads
 * floats. */
void quantise_rows(struct session *s, const float *x, size_t ld, int t0, int n,
                   const struct packed *w);
/* Multiplies T rows by panels [panel0, panel0 + n_panels) of w. The rows are those of matmul.input,
 * or x if w reads floats. */
void multiply_rows(const struct session *s, float *out, size_t ld, const float *x, size_t ld_x,
                   int T, const struct packed *w, int panel0, int n_panels);
/* out[t, 0..N) = W x[t] for T rows (linear.c). Rows of out are ld floats apart and have a multiple
 * of PANEL floats. */
void linear(struct session *s, float *out, size_t ld, const struct matmul_input *in, int T,
            const struct packed *w);
/* Computes the product of linear() with row t at out[t]. */
void linear_to_rows(struct session *s, float *const *out, const struct matmul_input *in, int T,
                    const struct packed *w);

/* Computes and quantises T > 1 input rows without a product. */
void prepare_rows(struct session *s, const struct matmul_input *in, int T, const struct packed *w);
/* x[t] += scale W in[t] for T > 1 rows of the residual stream, with the model's residual scale. */
void linear_add(struct session *s, const struct matmul_input *in, int T, const struct packed *w);

/* Adjacent tasks run in different threads, which should not write to the same cache lines.
 * spread_tasks() rounds n tasks up to a multiple of the threads, and spread_task() maps a task to
 * its place, which can be n or more. */
static inline int spread_tasks(const struct par *pool, int n)
{
    int threads = par_threads(pool);
    return (n + threads - 1) / threads * threads;
}
static inline int spread_task(const struct par *pool, int task, int n_tasks)
{
    int threads = par_threads(pool);
    return task % threads * (n_tasks / threads) + task / threads;
}

/* Places in a block that code outside the block can read, as bits. An executor that does not serve
 * a place returns RUN_LAYERWISE for a session that reads it. */
enum block_point {
    POINT_QK_UNROTATED = 1, /* queries and keys before RoPE: methods, page choice, probes */
    POINT_GATE_INPUTS = 2,  /* queries and keys before RoPE: gates */
    POINT_QK_ROTATED = 4,   /* queries after RoPE: probes */
    POINT_GATES = 8,        /* gate values */
    POINT_ATTENDED = 16,    /* output of each head: --shadow entries */
    POINT_LAYER = 32,       /* residual stream after a layer: --shadow model */
    POINT_OBSERVERS = 64,   /* all evidence, for method states that observe */
};
/* Returns the places that the session reads (method_buffers.c). */
unsigned session_points(const struct session *s);

/* The rows that run through the steps of a block: a chunk of one session, or one row of each of
 * several sessions. */
struct layer_run {
    struct session *s; /* its buffers have the rows */
    const struct block *b;
    int layer, T, pos0;
    bool quantised; /* matmul.input has the input of the next product */
    void *ctx;      /* of the executor */
};
/* Runs all steps of a block. Returns KVF_OK or the error of a step (run_cpu.c). */
int run_block(const step_fn *steps, struct layer_run *r);
extern const step_fn steps_cpu[BLOCK_OPS];
/* Runs OP_ROPE, OP_GATES and OP_STORE on the rows in buf.qkv of one session (layer.c). */
int step_store(struct layer_run *r, int i);
/* Runs OP_MATMUL and OP_ACT with integers as results. Returns false if the matrices read floats
 * (ffn.c). */
bool activate_as_integers(struct layer_run *r, const struct matmul_input *in);

/* Fills row `row` of a table [2][rows][rope_dim] with cos and sin of pos * theta_j (rope.c). The
 * first half is for layers with global attention. The second half is for layers with a window, if
 * their angles differ. */
void rope_fill(const struct session *s, float *table, int rows, int row, int pos);
/* Fills buf.cos_sin for the next T tokens. */
void fill_chunk_angles(struct session *s, int T);
/* Returns a layer's row of such a table. Returns NULL if the layer has no RoPE. */
const float *rope_row(const struct session *s, int layer, const float *table, int rows, int row);

/* Returns the thread pool for the work of a session. Returns NULL, one thread, if a task of the
 * pool runs the session. */
static inline struct par *session_pool(const struct session *s)
{
    return s->run.in_task ? NULL : s->e->pool;
}

/* Allocates the buffers that do not depend on the method (session_buffers.c). Returns KVF_OK or
 * KVF_E_NOMEM. */
int session_alloc_buffers(struct session *s);
void session_free_buffers(struct session *s);
/* Returns the tokens of a chunk: `asked`, or `rows` if asked is 0, but at most cap. */
int session_chunk(int asked, int rows, int cap);

/* Allocates memory for the entries of the next T tokens and of some later ones (method_buffers.c).
 * Returns KVF_OK or KVF_E_NOMEM. */
int preallocate_entries(struct session *s, int T);
/* Creates a session without the data of its backend. Returns the codes of session_create. */
int session_prepare(struct engine *e, const struct session_options *opt,
                    struct session **ret_session, struct kvf_diag *d);

/* Writes the embeddings of T tokens to buf.x (layer.c). */
void embed_tokens(struct session *s, const int32_t *ids, int T);
/* A token that a device has run, in one layer. */
struct imported_token {
    const float *qkv;  /* [ld_qkv] queries and keys after RoPE, values */
    const float *pre;  /* [ld_unrotated] queries and keys before RoPE; NULL: not needed */
    const float *gate; /* [KV heads] gate values; NULL: no gates */
};
/* Stores the entries of an imported token and notifies the observers. */
void layer_import_token(struct session *s, int layer, const struct imported_token *x);
/* Returns true if threads can import layers in parallel, in any order, with layer_import_serial. */
bool layers_import_in_parallel(const struct session *s);
/* Imports a token in one thread. The caller calls count_reads() later. */
void layer_import_serial(struct session *s, int layer, const struct imported_token *x, int thread);
/* Entries of T prompt tokens of a layer, in pages with the layout of the cache. */
struct imported_pages {
    const unsigned char *pages; /* per head, from the page of its first new entry on */
    size_t head_bytes;          /* distance between two heads */
    const float *gate;          /* [T][KV heads] gate values; NULL: no gates */
};
/* Reserves memory for T entries in every head of a layer. Returns KVF_OK or KVF_E_NOMEM. */
int layer_reserve(struct session *s, int layer, int T);
/* Stores the pages of n <= IMPORT_LAYERS layers from `layer` on, after layer_reserve(), and
 * notifies the observers. Needs cache_heads = n_kv_heads. */
void layers_import_pages(struct session *s, int layer, int n, int T,
                         const struct imported_pages *x);

/* Applies the model's soft cap, if it has one, to n logits (nll.c). */
void cap_logits(const struct session *s, float *row, int n);

/* Computes reading.rotated_keys of a layer, before attention (reading.c). */
void rotate_by_rank(struct session *s, int layer);
/* Chooses the pages that the queries of a decode step read, before attention. */
void choose_pages(struct session *s, int layer);
/* Adds the entries that the queries of T steps read in a layer, and those that they left unread,
 * to count.reads and count.unread. T > 1: they read all entries. Call it after the pages are
 * chosen. */
void count_reads(struct session *s, int layer, int T);
/* Allocates the buffers of reading.c except rotated_keys. pages: queries can read a choice of
 * pages. Returns KVF_OK or KVF_E_NOMEM. */
int reading_alloc(struct session *s, bool pages);
void reading_free(struct session *s);

/* Allocates the buffers of methods and gates other than parts.gate (method_buffers.c). Returns
 * KVF_OK or KVF_E_NOMEM. */
int method_buffers_alloc(struct session *s);
/* Frees them, and parts.gate. */
void method_buffers_free(struct session *s);

/* Returns the number of blocks of channels that attention can sum separately. */
static inline int step_blocks(const struct model_config *m)
{
    return (m->head_dim + KV_BLOCK - 1) / KV_BLOCK;
}

/* Returns the sink of each query head of a layer: one more logit in its softmax, without a value.
 * Returns NULL if the model has no sinks. */
static inline const float *sinks_of(const struct session *s, int layer)
{
    return s->e->weights->layer[layer].vector[T_SINKS];
}

/* Allocates the atomic counters and sums of attention. Returns KVF_OK or KVF_E_NOMEM
 * (attention.c). */
int attention_alloc(struct session *s);
void attention_free(struct session *s);
/* Runs attention of all query heads of a layer over the cache. Returns KVF_OK. */
int attention(struct session *s, int layer, int T, int pos0);

/* Passes a computed row to all observers. Needs row->p, n and lse, and seen and visible if some
 * entries are hidden. entropy is read only if a probe needs rows. Rows of a head must come in order
 * of t. */
void notify_row(struct session *s, const struct attn_row *row, const struct cache_head *view,
                float entropy, int thread);
/* Returns true if an observer needs rows of queries t0 to t0 + T - 1 (watch.c). */
bool rows_observed(const struct session *s, int32_t t0, int T);

/* Returns true if query t sees the entry of a slot that is not newer than t: it has not expired,
 * and its page is read. page 0: all pages are read. */
static inline bool slot_seen(const struct cache_head *view, int page, const unsigned char *chosen,
                             int slot, int32_t t)
{
    return view->expires_at[slot] > t && (page == 0 || chosen[slot / page]);
}

/* Runs the evictions before the token of a decode step, or of T steps that run together, and
 * reserves memory for it (session.c). Returns KVF_OK or KVF_E_NOMEM. */
int session_begin_step(struct session *s, int T);
/* Counts T steps and runs the evictions after the last query. */
int session_end_step(struct session *s, int T);
/* Runs a decision of the method at the current position. */
int session_decide(struct session *s, enum phase phase);
/* Reserves memory for T entries in every head. A step that fails here has changed nothing and can
 * be repeated. Returns KVF_OK or KVF_E_NOMEM. */
int session_reserve(struct session *s, int T);
/* Updates the counters after the tokens of T steps have run. */
void session_count_steps(struct session *s, int T);
/* Passes an eviction to all observers. */
void session_notify_eviction(struct session *s, const struct eviction *e);

/* Calls method_prepare() for the method and the observing states, with capacity for `more` entries
 * in every head (watch.c). */
int watch_prepare(struct session *s, int more, int32_t next_decision);
/* Calls method_appended() for the method and the observing states. */
void watch_appended(struct session *s, int layer, int head, int slot, float gate,
                    const float *k_pre);
/* Calls method_row() for the method and the observing states that need the row. */
void watch_row(struct session *s, const struct attn_row *row);

/* Computes the NLL of ids[i] from row i of the normed chunk, for n rows, and reports it to the
 * recorder as that of token t0 + i (nll.c). */
void nll_rows(struct session *s, const float *normed, const int32_t *ids, int n, int32_t t0);
/* Computes and reports the NLL of token t, which follows the last query, from the existing
 * logits. */
void nll_next(struct session *s, int32_t id, int32_t t);
/* Reports the NLL of token t from lse[segments], the log-sum-exp of each segment, and the logit of
 * the token after them. */
void nll_from_segments(struct session *s, int32_t t, const float *lse);
/* Returns true if the NLL is recorded. */
bool records_nll(const struct session *s);

/* Allocates the buffers of the NLL, once. Returns KVF_OK or KVF_E_NOMEM. */
int nll_alloc(struct session *s);
void nll_free(struct session *s);
/* Returns the number of segments of the vocabulary. */
int n_segments(const struct session *s);
/* Quantises n rows x [n][d_model] for segment_logits(). */
void segment_rows(struct session *s, const float *x, int n);
/* Computes the logits [n][VOCAB_SEGMENT] of one segment, in the thread's part of nll.segment.
 * Returns the number of logits of the segment. */
int segment_logits(struct session *s, const float *x, int n, int segment, int thread,
                   float **ret_logits);

#endif

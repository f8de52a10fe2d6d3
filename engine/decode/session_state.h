/* session_state.h - the inside of a session; private to engine/decode/. */
#ifndef KVF_ENGINE_SESSION_STATE_H
#define KVF_ENGINE_SESSION_STATE_H

#include <stdatomic.h>

#include "engine/decode/evicted_entries.h"
#include "engine/decode/session.h"
#include "engine/decode/shadow.h"

enum {
    CHUNK_DEFAULT = 256,
    STOCKED_CHUNKS = 2,  /* chunks for whose entries memory is brought at once */
    EXPIRE_EVERY = 1024, /* positions of a prompt at which what has left is removed: until then
                           it is hidden, so that slots do not depend on the chunk */
    IMPORT_LAYERS = 2,   /* layers of a chunk whose entries are taken in at once */
    ROWS_PER_TASK = 8,   /* rows of a chunk that a task prepares */
    QUERY_BLOCK = 16,    /* query rows that probes watch together */
    STRIP_ROWS = 2 * QUERY_BLOCK, /* query rows whose scores a thread holds */
    PAGE_ROWS = 4 * QUERY_BLOCK,  /* the same of a page of whole numbers */
    KERNEL_ROWS = 8,              /* rows of a tile of the kernels of attention, or a multiple */
    TASK_ROWS = 4 * QUERY_BLOCK,  /* query rows of one head that a task computes */
    VOCAB_SEGMENT = 256,          /* logits that are summed together for the NLL */
    TILE_PANELS = 12, /* panels of a product whose sums a thread keeps for what comes next */
};

/* Of a part of a prompt, which a session and before it its twin go through. */
struct prompt_watch {
    session_progress_fn fn;
    void *ctx;
    int done, T; /* tokens before the part, and of it */
    int of, run; /* how many go through it, and which of them does */
};

struct session {
    struct engine *e;
    void *device_state; /* of the backend; NULL: none */
    struct cache *cache;
    struct method_state *method;
    struct recorder *recorder;
    eviction_fn on_evict;
    void *on_evict_ctx;
    attn_row_fn on_row;
    void *on_row_ctx;
    struct method_state *const *observer; /* [n_watchers] borrowed (watch.c) */
    int n_watchers;
    enum kv_type kv_type;
    int cap, chunk;
    const int *turn_end; /* [n_turns] session_options */
    int n_turns;
    int n_past;             /* tokens fed */
    int tokens_to_next_cut; /* of a prompt: tokens until something may leave its heads, or more */
    bool has_logits;
    int cache_heads;  /* KV heads of the cache: H, or G when query heads have their own */
    bool normed_kept; /* gates read what the first branch of a layer reads */
    bool in_task;     /* a task of the pool has it (session_pool) */
    const struct prompt_watch *watched; /* who is told of the prompt that is fed; NULL: nobody */
    bool stepping;           /* a token after the prompt: its queries may read a choice of pages */
    bool positions_in_cache; /* positions=cache: keys are kept unrotated */
    const struct gates *gates;
    struct session *full_cache;   /* full cache, fed the same tokens first; NULL: none */
    struct method_state *twin_of; /* whom the rows of this twin go to; NULL: nobody */
    struct session *twin_for;     /* of a twin: the session that it is compared with, or NULL */
    bool no_logits;               /* nobody asks for them (a twin) */
    struct sampler *sampler;      /* who draws the next token; NULL: nobody said */
    bool has_drawn;               /* the backend did, and it is `drawn` */
    int32_t drawn;
    struct shadow *shadow;                   /* comparison with the twin; NULL: none */
    struct evicted_entries *evicted_entries; /* what has left; NULL: it is not kept */
    int *peak; /* [L * query heads], the first of them of heads of the cache: session_peak */
    int64_t cuts;
    int n_steps;             /* tokens fed after the prompt */
    int64_t reads;           /* entries read by all queries after the prompt */
    bool evidence_on_device; /* the backend takes the evidence of attention; home() brings it */

    /* Buffers of a chunk of C tokens. */
    float *x;       /* [C][d_model] residual stream */
    float *normed;  /* [C][d_model] what a branch reads, where normed_kept; the last rows behind a
                       norm */
    float *qkv;     /* [C][ld_qkv] */
    float *att;     /* [C][ld_att] heads' outputs */
    float *branch;  /* [C][ld_out] output of a branch before it is added */
    float *gate_up; /* [C][ld_ffn] */
    float *cos_sin; /* [2][C][rope_dim]: of each token, then again for local layers */
    float *logits;  /* [ld_vocab] */
    struct qrows q; /* rows of whatever goes into a matmul as integers: bytes, or in q and scale the
                       words of a struct wrows */
    struct qrows gated; /* the same of the activations of gate and up, while q is read */
    size_t ld_qkv, ld_att, ld_out, ld_ffn, ld_vocab;
    float *qk_unrotated; /* [C][ld_pre] queries and keys before their rotation, or NULL */
    size_t ld_pre;
    float *gate;           /* [C][n_kv_heads] numbers of the gates, or NULL */
    int32_t *until;        /* [cache_heads][C] of newcomers that another has stored */
    float *rope_table;     /* [2][cap][rope_dim] the same of every position (by_rank) */
    float *rotated_keys;   /* [cache_heads][ld_strip * head_dim] keys turned by rank, of cpu.c */
    unsigned char *chosen; /* [n_heads][ld_chosen] pages that a query head reads */
    int *page_of_head;     /* [cache_heads] page size; 0: everything is read */
    size_t ld_chosen;

    /* Per thread. */
    float *score_rows; /* [threads][STRIP_ROWS][ld_strip] attention scores */
    size_t ld_strip;
    atomic_int *rows_done; /* [n_heads] rows of the chunk whose attention is computed */
    atomic_int *step_rows; /* [n_heads] tasks of a KV head that its sums wait for, which are done */
    atomic_int *step_sums; /* [n_heads][step_blocks] tasks of the sums of channels that are done */
    float *tile;           /* [threads][ld_tile] sums of a task for C rows and TILE_PANELS panels */
    size_t ld_tile;
    float *step_weights;       /* [n_heads][step_blocks][ATTN_LANES] sums of weights so far, and */
    float *step_tops;          /* [n_heads][step_blocks] as struct attn_sums has them */
    float *segment;            /* [threads][C][VOCAB_SEGMENT] */
    unsigned char *visible;    /* [threads][ld_strip] */
    float *scratch_per_thread; /* [threads][ld_scratch] of gates, reads and rotated queries */
    size_t ld_scratch;

    /* NLL of a chunk: per vocabulary segment and row. */
    float *seg_lse;      /* [segments][C] */
    float *target_logit; /* [C] */
};

/* The rows that a product reads, ld apart.  Where they follow from other buffers, make() fills rows
 * [t0, t0 + n) at `to`, ld apart, before they are read: the task that quantises a row makes it as
 * well, in its own memory where nobody else wants it. */
struct matmul_input {
    float *x;
    size_t ld;
    void (*prologue)(struct session *s, const void *how, int t0, int n, float *to, size_t ld);
    const void *how; /* make NULL: the rows are there */
    bool kept;       /* somebody reads rows of x afterwards */
    bool ready;      /* their integers are in s->q */
};

/* From here on rows become integers for w (linear.c). */
void rows_for(struct session *s, const struct packed *w);
/* n rows at x, ld apart, as the integers that a matrix wants, if it does, in rows t0 and on of
 * s->q.  And the product of T such rows with some of its panels (linear.c). */
void rows_as_integers(struct session *s, const float *x, size_t ld, int t0, int n,
                      const struct packed *w);
void multiply_rows(const struct session *s, float *out, size_t ld, const float *x, size_t ld_x,
                   int T, const struct packed *w, int panel0, int n_panels);
/* out[t, 0..N) = W x[t] for T rows (linear.c).  Rows of out are ld apart and
 * hold a whole number of panels. */
void linear(struct session *s, float *out, size_t ld, const struct matmul_input *in, int T,
            const struct packed *w);

/* The same, row t to out[t]. */
void linear_apart(struct session *s, float *const *out, const struct matmul_input *in, int T,
                  const struct packed *w);

/* Of more than one row: the rows alone, and x[t] += W rows[t] of the residual stream, times its
 * scale. */
void prepare_rows(struct session *s, const struct matmul_input *in, int T, const struct packed *w);
void add_linear(struct session *s, const struct matmul_input *in, int T, const struct packed *w);

/* Tasks that follow each other go to different threads, which had better not write to the same
 * lines: n tasks, made a whole number for each thread, and the place of one, which may be n or
 * more. */
static inline int apart_tasks(const struct par *pool, int n)
{
    int threads = par_threads(pool);
    return (n + threads - 1) / threads * threads;
}
static inline int apart_task(const struct par *pool, int task, int n_tasks)
{
    int threads = par_threads(pool);
    return task % threads * (n_tasks / threads) + task / threads;
}

/* The places in a block that somebody reads, as bits.  An executor that does not serve a place
 * leaves the session to another one. */
enum block_point {
    POINT_QK_UNROTATED = 1, /* queries and keys before rotation: methods, page choice, probes */
    POINT_GATE_INPUTS = 2,  /* the same for gates */
    POINT_QK_ROTATED = 4,   /* rotated queries: probes */
    POINT_GATES = 8,        /* numbers of gates */
    POINT_ATTENDED = 16,    /* output of each head: --shadow entries */
    POINT_LAYER = 32,       /* the residual stream behind a layer: --shadow model */
    POINT_OBSERVERS = 64,   /* methods that observe: all that a method reads */
};
/* Returns the places that a session has readers for (session_parts.c). */
unsigned session_points(const struct session *s);

/* The rows that go through the steps of a block: a chunk of one session, or a row of each of
 * several. */
struct layer_run {
    struct session *s; /* its buffers hold the rows */
    const struct block *b;
    int layer, T, pos0;
    bool quantised; /* s->q holds the input of the next product as integers */
    void *ctx;      /* of the executor */
};
/* Runs all steps of a block.  KVF_OK or the error of a step (run_cpu.c). */
int run_block(const step_fn *steps, struct layer_run *r);
extern const step_fn steps_cpu[BLOCK_OPS];
/* Runs OP_ROPE, OP_GATES and OP_STORE on the queries, keys and values in s->qkv of one session
 * (layer.c). */
int step_store(struct layer_run *r, int i);
/* Runs OP_MATMUL and OP_ACT with integers as results; returns false if the matrices do not want
 * them (ffn.c). */
bool activate_as_integers(struct layer_run *r, const struct matmul_input *in);

/* A table [2][rows][rope_dim] of cos and sin of pos * theta_j (turn.c): of the layers that see
 * everything, then of those with a window where their angles differ.  fill_turns sets a row of
 * both; turn_row is that of a layer, or NULL: it does not rotate. */
void rope_fill(const struct session *s, float *table, int rows, int row, int pos);
void fill_chunk_turns(struct session *s, int T); /* cos_sin of the next T tokens */
const float *rope_row(const struct session *s, int layer, const float *table, int rows, int row);

/* The threads that what a session does may use: none where it is itself a task. */
static inline struct par *session_pool(const struct session *s)
{
    return s->in_task ? NULL : s->e->pool;
}

/* Buffers that do not depend on the method (session_rooms.c); KVF_OK or KVF_E_NOMEM.  And the rows
 * of a chunk: as many as are asked for, or 0: those that suit the backend. */
int session_alloc_buffers(struct session *s);
int session_chunk(int asked, int rows, int cap);

/* Memory for the entries of the next T tokens, and of some behind them (session_parts.c).  KVF_OK
 * or KVF_E_NOMEM. */
int preallocate_entries(struct session *s, int T);
/* A session before its backend's begin; codes and sentences of session_create. */
int session_prepare(struct engine *e, const struct session_options *opt,
                    struct session **ret_session, struct kvf_diag *d);

void embed_tokens(struct session *s, const int32_t *ids, int T);
/* A token of a step that ran elsewhere, in one layer: stores it, and tells who watches of it. */
struct imported_token {
    const float *qkv;  /* [ld_qkv], queries and keys turned */
    const float *pre;  /* [ld_pre] before they were turned; NULL: nobody asks */
    const float *gate; /* [KV heads]; NULL: there are none */
};
void layer_import_token(struct session *s, int layer, const struct imported_token *x);
/* Whether layers may be learned of by threads side by side, in any order; count_reads comes after.
 */
bool layers_learn_apart(const struct session *s);
void layer_learn_apart(struct session *s, int layer, const struct imported_token *x, int thread);
/* The same in n <= LEARN_MOST layers for T tokens of a prompt whose entries lie in pages as those
 * of the cache, in room that layer_reserve has made (KVF_OK or KVF_E_NOMEM).  The cache's heads are
 * the model's KV heads. */
struct imported_pages {
    const unsigned char *pages; /* of each head, from that of its first newcomer on */
    size_t head_bytes;          /* between those of two heads */
    const float *gate;          /* [T][KV heads]; NULL: there are none */
};
int layer_reserve(struct session *s, int layer, int T);
void layers_import_pages(struct session *s, int layer, int n, int T,
                         const struct imported_pages *x);

/* Logits of the vocabulary, or a part of it, as the head gave them: capped where the model
 * caps them (nll.c). */
void cap_logits(const struct session *s, float *row, int n);

/* Before attention, in parallel over KV heads (reading.c): keys rotated by rank, and the
 * pages that queries after the prompt read. */
void rotate_by_rank(struct session *s, int layer);
void choose_pages(struct session *s, int layer);

/* Counts what the queries of a step read in a layer, once pages are chosen. */
void count_reads(struct session *s, int layer);

/* Buffers of the parts above (session_parts.c). KVF_OK or KVF_E_NOMEM. */
int alloc_part_buffers(struct session *s);
void free_part_buffers(struct session *s);

/* Blocks of channels that attention may sum apart. */
static inline int step_blocks(const struct model_config *m)
{
    return (m->head_dim + KV_BLOCK - 1) / KV_BLOCK;
}

/* Returns the sink of each query head of a layer, one more logit in its softmax that has no value;
 * NULL: the model has none. */
static inline const float *sinks_of(const struct session *s, int layer)
{
    return s->e->weights->layer[layer].vector[T_SINKS];
}

/* Attention of all query heads over the cache (attention.c).  KVF_OK. */
int attention(struct session *s, int layer, int T, int pos0);

/* Tells those who watch of a row that was computed: row->p, n, lse and, of what it saw, seen and
 * visible; entropy counts where a probe wants rows.  Rows of a head in rising t. */
void notify_row(struct session *s, const struct attn_row *row, const struct cache_head *view,
                float entropy, int thread);
/* Whether anybody watches rows of queries t0 to t0 + T - 1 (watch.c). */
bool rows_observed(const struct session *s, int32_t t0, int T);

/* Whether query t sees the entry of a slot that is not newer: it has not left by then,
 * and its page is read (page 0: all are). */
static inline bool slot_seen(const struct cache_head *view, int page, const unsigned char *chosen,
                             int slot, int32_t t)
{
    return view->expires_at[slot] > t && (page == 0 || chosen[slot / page]);
}

/* What a session does before the token of a step runs, and after it (session.c). */
int session_begin_step(struct session *s);
int session_end_step(struct session *s);
int session_decide(struct session *s, enum phase phase);
/* Room for one token in every head, so that a step that lacks memory changed nothing and may be
 * tried again; and what is counted once its token has run. */
int session_reserve(struct session *s);
void session_note_step(struct session *s);
/* Tells who watches of an eviction. */
void session_evicted(struct session *s, const struct eviction *e);

/* The method and its watchers (watch.c): as method_prepare, with room for `more` entries in every
 * head, method_appended, method_wants_row with method_row. */
int watch_prepare(struct session *s, int more, int32_t next_decision);
void watch_appended(struct session *s, int layer, int head, int slot, float gate,
                    const float *k_pre);
void watch_row(struct session *s, const struct attn_row *row);

/* NLL of ids[i] from row i of the normed chunk, for n rows: reported to the
 * recorder as token t0 + i (nll.c). */
void nll_rows(struct session *s, const float *normed, const int32_t *ids, int n, int32_t t0);
/* Reports the NLL of the token after the last query in the same way, from the logits that there
 * are. */
void nll_next(struct session *s, int32_t id, int32_t t);
/* The same from log-sum-exps of the segments, and behind them the logit of the token. */
void nll_from(struct session *s, int32_t t, const float *lse);
bool wants_nll(const struct session *s);

/* The parts of the NLL.  Buffers, once; KVF_OK or KVF_E_NOMEM.  Then rows x [n][d_model], and their
 * logits of one of the segments [n][VOCAB_SEGMENT] in s->segment of the thread; returns
 * how many logits the segment has. */
int alloc_segments(struct session *s);
int n_segments(const struct session *s);
void segment_rows(struct session *s, const float *x, int n);
int segment_logits(struct session *s, const float *x, int n, int segment, int thread,
                   float **ret_logits);

#endif

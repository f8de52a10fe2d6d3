/* decode.h - private header of the CUDA backend: sessions with decode steps that run on the device
 * without a host sync.
 *
 * While such steps follow each other, the device accumulates attention evidence and selects the
 * entries to evict. After each step the host reads pinned memory: the new entries, the evicted
 * entries, and attention rows for observers. It updates its cache, probes and trace, so the host's
 * cache is current after every step. Code that reads evidence between steps calls
 * device_sync_evidence() first.
 *
 * In comments, G is the number of query heads of a layer, L the number of layers, `heads` is
 * L * cache_heads, and `ld` is the member of struct device_decode. Members of a struct `host` are
 * pinned and mirror the members of the same name. */
#ifndef KVF_ENGINE_DEVICE_STEP_H
#define KVF_ENGINE_DEVICE_STEP_H

#include <string.h>

#include "engine/cuda/reads.h"
#include "engine/device/device.h"
#include "engine/method/device_eviction.h"

/* A list of arrays that are allocated together, in device memory or in pinned host memory. `at`
 * points to the pointer of each array. */
enum { MAX_BUFFERS = 80 };
struct buffer_list {
    struct {
        void *at;
        size_t n, size;
        bool pinned;
    } of[MAX_BUFFERS];
    int n;
};
/* Adds an array of n elements of `size` bytes in device memory. */
static inline void buffers_add(struct buffer_list *a, void *at, size_t n, size_t size)
{
    a->of[a->n].at = at;
    a->of[a->n].n = n;
    a->of[a->n].size = size;
    a->of[a->n++].pinned = false;
}
/* Adds an array in pinned host memory. */
static inline void buffers_add_pinned(struct buffer_list *a, void *at, size_t n, size_t size)
{
    buffers_add(a, at, n, size);
    a->of[a->n - 1].pinned = true;
}
/* Stores p in the pointer at `at`. */
static inline void set_pointer(void *at, void *p)
{
    memcpy(at, &p, sizeof p);
}

/* An allocated array, and all arrays of a list. */
struct device_array {
    void *p;
    bool pinned;
};
struct buffers_owned {
    struct device_array of[MAX_BUFFERS];
    int n;
};
/* Allocates the arrays of a list and sets their pointers (evidence.c). Returns KVF_OK or
 * KVF_E_NOMEM; `owned` then has the arrays that were allocated. */
int buffers_alloc(struct gpu *g, const struct buffer_list *a, struct buffers_owned *owned);
/* Frees them. */
void buffers_free(struct gpu *g, struct buffers_owned *owned);

/* Page-wise attention (page_choice.c). */
struct device_reads {
    struct gpu_reads how;
    struct gpu_bounds bounds;
    int32_t *page, *host_page;           /* [heads] */
    unsigned char *chosen, *host_chosen; /* [L][G][how.ld] */
    /* Block gates: */
    float *key, *vector; /* [heads][how.ld][dim], [cache_heads][dim] */
    float *weights, *norm, *turns, *host_turns;
    int dim, n_keys; /* length of a vector; number of blocks with a key on the device */
};

/* Eviction rounds (eviction.c). */
struct device_rounds {
    /* Inputs, within struct step_inputs: */
    unsigned char *due; /* [heads] 1: entries of the head are scored */
    int64_t *go, *may;  /* [pools] entries to evict; [heads] maximum of a head */
    /* Scores: */
    float *score, *pooled; /* [heads][ld]; scratch of pooling */
    float *fraction;       /* [G * L][ring] fraction of a window row on the candidates */
    void *scratch;         /* of the score */
    void *choice;          /* scratch of the selection */
    /* Results: */
    int32_t *count;            /* [heads] */
    struct gpu_chosen *chosen; /* [heads] */
    int32_t *cursor;           /* [1] */
    int32_t *evicted;          /* [n_evicted] slots */
    float *evicted_score;      /* [n_evicted] */
    int64_t n_evicted;         /* capacity */
    /* Entries that expire before a step: */
    int32_t *expired_head, *expired_slot; /* [n_expired] */
    int64_t n_expired;                    /* capacity */
    /* The last round that was due. */
    struct {
        int pools, heads_of_pool; /* 0: there was no round */
        int32_t recent;           /* recent_from, relative to the query of the step */
        bool floor;               /* heads have a maximum of evictions */
    } last;
    struct {
        unsigned char *due;
        int64_t *go, *may;
        double *mean_turns; /* [L][head_dim] for score_expected */
        struct gpu_chosen *chosen;
        int32_t *expired_head, *expired_slot, *evicted;
        float *evicted_score;
    } host;
};

/* Evidence of the method, as in struct device_evidence, with `ld` elements per head (evidence.c).
 * NULL: the method does not need it. */
struct evidence_arrays {
    double *sum, *anchor;
    float *norms, *gate, *history, *values;
    double *query_sum, *query_outer;
    int64_t n_queries;
    struct gpu_window window;
    int n_rows; /* rows that the window has received */
};

/* Inputs of a step (step_buffers.c). One copy uploads `block`, which contains the arrays below, and
 * due, go and may of the round. */
struct step_inputs {
    unsigned char *block;
    size_t bytes;
    float *turns; /* [2][rope_dim] RoPE angles */
    float *gate;  /* [heads] gate values */
    int32_t *now; /* [2] position of the query; its row in the window */
    struct {
        unsigned char *block;
        float *x; /* [d_model] */
        float *turns, *gate;
        int32_t *now;
    } host;
};

/* Outputs of a step (step_buffers.c). */
struct step_outputs {
    float *qkv, *unrotated;      /* [L][ld_qkv], [L][ld_unrotated] */
    float *rows, *lse, *entropy; /* [L][G][ld], [L][G]; only one layer if keeps_rows is not set */
    int32_t *seen;               /* [L][G] entries that a query sees; likewise */
    struct {
        float *qkv, *unrotated, *rows, *lse, *entropy;
        int32_t *seen;
        float *logits, *normed;
    } host;
};

/* The device memory of a session's decode steps. */
struct device_decode {
    struct buffers_owned owned;
    bool newer;                        /* evidence is newer on the device than on the host */
    int ld;                            /* capacity of a head in slots */
    bool has_rows;                     /* rows of all layers are copied to the host */
    bool keeps_rows;                   /* there is memory for the rows of all layers */
    const struct method_state *method; /* the arrays fit its evidence */
    struct gpu_heads heads;
    struct device_rounds evict;
    struct evidence_arrays evidence;
    struct device_reads reads;
    struct step_inputs in;
    struct step_outputs out;
};

/* A score with kernels (scores.c). */
struct device_score {
    const struct score *part;
    bool (*takes)(const struct method_params *p); /* returns false for options without a kernel;
                                                     NULL: there are none */
    void (*eval)(struct session *s, const struct device_eviction *round); /* writes evict.score */
    size_t (*scratch)(const struct session *s); /* bytes of evict.scratch; NULL: 0 */
};
/* Returns the kernels of the method's score. Returns NULL if it has none for these options. */
const struct device_score *device_score_of(const struct method *m, const struct method_params *p);

/* ---- gates.c */

/* Returns true if the device can compute the gate values, or if they were given. */
bool device_gates_supported(const struct gates *gates);
/* Inputs of gate networks: T tokens of a layer. Or one token in all layers; T and ld_x then count
 * layers. */
struct device_tokens {
    const float *x;   /* [T][ld_x] after the attention norm */
    const float *pre; /* [T][ld_unrotated] queries and keys before RoPE */
    const float *qkv; /* [T][ld_qkv] queries and keys after RoPE, values */
    size_t ld_x;
    int T;
};
/* Uploads the networks once per engine, and allocates memory for the tokens of a chunk. Returns
 * KVF_OK or KVF_E_NOMEM. */
int device_gates_open(struct session *s, int T);
/* Computes the gate values [T][n_kv_heads] of a layer. */
void device_gates_run(struct session *s, int layer, const struct device_tokens *x, float *numbers);
/* Does device_gates_open() for a step of n sessions, including s, in the buffers of `shared`, which
 * keep the inputs of all layers. */
int device_gates_open_step(struct session *shared, struct session *s, int n);
/* Computes the gate values [L][n_kv_heads] of n <= GPU_TOGETHER sessions. Sessions with the same
 * networks share launches. */
void device_gates_run_step(struct session *shared, struct session *const *s,
                           const struct device_tokens *x, float *const *numbers, int n);

/* ---- page_choice.c. For sessions that read all entries, these functions do nothing. */

/* Returns true if the method's read has kernels. */
bool device_reads_supported(const struct session *s);
/* Adds the arrays of page-wise attention. */
void device_reads_buffers(struct session *s, struct buffer_list *a);
/* Initialises them. Returns KVF_OK or KVF_E_NOMEM. */
int device_reads_init(struct session *s);
/* Prepares the inputs of a step on the host, and uploads new block vectors. */
void device_reads_begin(struct session *s);
/* Adds the inputs to the upload of the step. */
void device_reads_parts(struct session *s, struct gpu_parts *p);
/* Chooses the pages that the query of a layer reads, from its unrotated queries, and adds them to
 * the attention. */
void device_reads_run(struct session *s, int layer, const float *pre, struct gpu_attention *a);
/* Adds the chosen pages, from `layer` on, to attention over several layers. */
void device_reads_set(const struct session *s, int layer, struct gpu_attention *a);
/* Starts the copy of the chosen pages to the host. */
void device_reads_fetch(struct session *s);
/* Stores the copied pages of a layer in the session. */
void device_reads_store(struct session *s, int layer);

/* ---- sampler.c */

/* Returns true if the device samples the token after a step. Its logits then stay there. */
bool device_samples(const struct session *s);
/* Prepares a step that feeds token id, on the host: the NLL of id from the previous logits, and the
 * random number of the draw. */
void device_draw_begin(struct session *s, int32_t id);
/* Adds the inputs of the draw to the upload of the step. */
void device_draw_parts(struct session *s, struct gpu_parts *p);
/* Computes the NLL of id from the previous logits. */
void device_draw_nll(struct session *s, const float *logits);
/* Samples the next token. The logits are copied to `own`, the session's own buffer. */
void device_draw_run(struct session *s, float *own);
/* Reports the NLL, and stores the sampled token in the session. Returns true if the logits are only
 * on the device. */
bool device_draw_finish(struct session *s);
/* Frees the buffers of the draw. */
void device_draw_close(struct session *s);
/* Copies the logits to the host if they are only on the device: the function `logits` of struct
 * backend. */
void device_fetch_logits(const struct session *s);
/* Notes that the host has computed newer logits. */
void device_set_logits_on_host(struct session *s);

/* ---- evidence.c */

/* Allocates the device memory of decode steps, if it does not fit, and uploads cache and evidence.
 * Returns KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int device_decode_upload(struct session *s);
/* Returns true if the device has the current evidence and memory for the next step. */
bool device_decode_fits(const struct session *s);
void device_decode_free(struct device_session *m);
/* Copies newer evidence to the method on the host: the function `sync_evidence` of struct backend.
 * Returns KVF_OK or KVF_E_BACKEND. */
int device_sync_evidence(struct session *s);
enum { EVIDENCE_OF_ROWS = EVIDENCE_SUM | EVIDENCE_WINDOW };
/* Returns true if a step stores attention weights: for evidence, probes, observers, or an exact
 * order of sums. */
bool step_keeps_rows(const struct session *s);

/* ---- decode_batch.c */

/* Runs a decode step: the function `decode_step` of struct backend. */
int device_decode_step(struct session *s, int32_t id);
/* Returns true if device_decode_batch() can run the session's next step. */
bool device_can_batch(const struct session *s);
/* Runs a step of n sessions: the function `decode_batch` of struct backend. shared NULL: n is 1. */
int device_decode_batch(struct session *shared, struct session *const *s, int n,
                        const int32_t *ids);

/* Number of parts of a step. Attention rows are read once per part, for several layers at once. */
enum { STEP_PARTS = 4 };
/* Returns the layers of a part. */
static inline int step_layers_together(const struct session *s)
{
    return (s->e->config.n_layers + STEP_PARTS - 1) / STEP_PARTS;
}

/* ---- eviction.c */

/* Adds the arrays of eviction rounds. The lists of evicted and expired entries grow with the
 * rounds. */
void eviction_buffers(struct session *s, struct buffer_list *a);
/* Frees these lists. */
void eviction_free(struct gpu *g, struct device_rounds *x);
/* Evicts expired entries on the device. The host has not removed them yet. Returns KVF_OK or
 * KVF_E_NOMEM. */
int eviction_expire(struct session *s);
/* Begins a decision on the host: device_eviction_begin(). */
int eviction_begin(struct session *s, enum phase phase, struct device_eviction *ret_round);
/* Allocates the lists of a round. Returns KVF_OK or KVF_E_NOMEM. */
int eviction_reserve(struct session *s, const struct device_eviction *round);
/* Stores the parameters of a round in the inputs of the step. */
void eviction_set_inputs(struct session *s, const struct device_eviction *round);
/* Launches the scores and the selection of a round. If no round is due, it launches the kernels of
 * the last round, without candidates. */
void eviction_launch(struct session *s, const struct device_eviction *of);
/* Evicts the selected entries, if `chosen`, and assigns the slot of the new entry, if
 * `newcomer`. */
void eviction_cut(struct session *s, bool chosen, bool newcomer);
/* Applies the results of a round to the host's cache, after gpu_wait(). Returns the codes of
 * device_eviction_end(). */
int eviction_finish(struct session *s, const struct device_eviction *round);

/* ---- step_buffers.c */

/* Adds the inputs and outputs of a step. */
void step_buffers(struct session *s, struct buffer_list *a);
/* Sets the pointers into the blocks of inputs, on the device and on the host, if they are
 * allocated. Returns the bytes of a block. */
size_t step_lay_out(const struct session *s);

/* ---- decode.c: the parts of a step, in the order of their calls */

enum { MOST_STEP_PARTS = 5 }; /* uploads of a session */

/* 1. On the host. step_decide() does not call the device, so that threads can run it for several
 * sessions. Return KVF_OK or an error. */

/* Prepares the memory of the device, and evicts expired entries. */
int step_begin(struct session *s);
/* Begins the decision before the token, and prepares the inputs of the step. */
int step_decide(struct session *s, int32_t id, struct device_eviction *ret_round);
/* Allocates the lists of the round, and prepares sampling and page choice. */
int step_prepare(struct session *s, int32_t id, const struct device_eviction *round);

/* 2. On the stream, as parts of a graph. */

/* Adds the inputs of the step to an upload. */
void step_parts(struct session *s, struct gpu_parts *p);
/* Evicts, and assigns the slot of the new entry. `logits` are the session's own. rounds: some
 * session of the batch has a round. Sessions without one then run a round without candidates, so
 * that the graph keeps its shape. */
void step_launch_evictions(struct session *s, const float *logits,
                           const struct device_eviction *round, bool rounds);
/* Returns the arguments of gpu_norm_rope_store() for a layer with projections in qkv. */
struct gpu_new_entries step_new_entry(struct session *s, int layer, float *qkv,
                                      struct gpu_cache *ret_cache);
/* Returns the arguments of gpu_attend_step() for a layer. If the engine is exact, attention has
 * been computed. */
struct gpu_attention step_attention(struct session *s, int layer);
/* Updates evidence, probes and host copies from the layer's rows, unless step_shares_rows().
 * After the last layer it starts the copies to the host. */
void step_after_attention(struct session *s, int layer);
/* Returns true if only evidence reads the rows. step_process_rows() can then process several
 * sessions at once. */
bool step_shares_rows(const struct session *s);
/* Computes rows, evidence and probes of n <= GPU_TOGETHER sessions, after the last layer of each
 * part of the step. The step does not wait for it. */
void step_process_rows(struct session *const *s, int n, int layer);
/* Computes the gate values of n <= GPU_TOGETHER sessions, after the last layer. The step does not
 * wait for it. */
void step_gates(struct session *shared, struct session *const *s, int n);
/* Starts the copy of the row after the final norm. */
void step_fetch_normed(struct session *s);
/* Samples the next token, or starts the copy of the logits. */
void step_fetch(struct session *s, float *logits);

/* 3. On the host, after the layers or gpu_wait(). */

/* Applies the evictions, and imports the layers unless step_imports_in_parallel(). */
int step_import(struct session *s, const struct device_eviction *round);
/* Returns true if threads can import the layers in parallel, with step_import_layer(). */
bool step_imports_in_parallel(const struct session *s);
void step_import_layer(struct session *s, int layer, int thread);
/* Ends the import of the layers. */
void step_import_end(struct session *s);
/* Ends the step: logits, sampled token, counters. */
void step_end(struct session *s);

/* 4. The decision after the query: on the host, on the stream if the round is due, and on the host
 * after gpu_wait(). */
int step_after_begin(struct session *s, struct device_eviction *ret_round);
void step_after_launch(struct session *s, const struct device_eviction *round);
int step_after_end(struct session *s, const struct device_eviction *round);

#endif

/* decode.h - private to the device as a backend: a session whose steps run there whole.
 *
 * Evidence of attention and the choice of what leaves are the device's as long as steps follow each
 * other; the cache of the host, probes and the trace learn after each step what happened, from
 * pinned memory: newcomers, what was cut, and rows for those who watch.  The host's cache is right
 * after every step.  Whoever asks for evidence in between calls device_home before. */
#ifndef KVF_ENGINE_DEVICE_STEP_H
#define KVF_ENGINE_DEVICE_STEP_H

#include "engine/cuda/reads.h"
#include "engine/device/device.h"
#include "engine/method/device_eviction.h"

/* Arrays that are made together, of the device, or of the host where the device reads and writes
 * it: the pointer of each lies at `at`. */
enum { MOST_ROOMS = 80 };
struct buffer_list {
    struct {
        void *at;
        size_t n, size;
        bool pinned;
    } of[MOST_ROOMS];
    int n;
};
static inline void buffers_add(struct buffer_list *a, void *at, size_t n, size_t size, bool pinned)
{
    a->of[a->n].at = at;
    a->of[a->n].n = n;
    a->of[a->n].size = size;
    a->of[a->n++].pinned = pinned;
}

struct device_decode_array {
    void *p;
    bool pinned;
};
struct buffers_owned {
    struct device_decode_array of[MOST_ROOMS];
    int n;
};
/* KVF_OK or KVF_E_NOMEM; what was made until then is owned (evidence.c). */
int buffers_alloc(struct gpu *g, const struct buffer_list *a, struct buffers_owned *owned);
void buffers_drop(struct gpu *g, struct buffers_owned *owned);

/* Reads by pages (page_choice.c); page and chosen also pinned. */
struct device_reads {
    struct gpu_reads how;
    struct gpu_bounds bounds;
    int32_t *page, *host_page;           /* [heads] */
    unsigned char *chosen, *host_chosen; /* [L][G][how.ld] */
    /* Of block gates. */
    float *key, *vector; /* [heads][how.ld][dim], [heads of a layer][dim] */
    float *weights, *norm, *turns, *host_turns;
    int dim, known; /* blocks whose vectors are there */
};

struct device_decode {
    struct buffers_owned owned;
    bool here;                     /* evidence is newer on the device than on the host */
    int ld;                        /* slots of a head that arrays have room for */
    bool has_rows;                 /* rows of all layers go to the host */
    bool keeps_rows;               /* there is room for those of all layers */
    const struct method_state *of; /* whose evidence arrays are made for */
    struct gpu_heads heads;
    /* Rounds. */
    unsigned char *due;  /* [heads] */
    void *choice;        /* scratch */
    int64_t *go, *may;   /* [heads] */
    float *score, *copy; /* [heads][ld] */
    float *share;        /* [query heads][ring] */
    int32_t *count;      /* [heads] */
    struct gpu_chosen *chosen;
    int32_t *cursor, *gone_head, *gone_slot; /* gone: [n_gone] */
    int64_t n_gone;
    int32_t *victim;     /* [n_victims] */
    float *victim_score; /* [n_victims] */
    int64_t n_victims;
    /* Evidence. */
    double *sum, *anchor;
    float *norms, *gate, *history, *values;
    double *query_sum, *query_outer;
    int64_t n_queries;
    void *scratch; /* of the score */
    struct gpu_window window;
    int taken; /* rows ever taken */
    struct device_reads reads;
    struct {
        int pools, heads_of_pool; /* 0: there was none */
        int32_t recent;           /* recent_from, from the step's query on */
        bool floor;               /* heads keep some */
    } last;                       /* round */
    /* A step. */
    unsigned char *step_inputs;  /* turns, numbers, now, due, go and may, one behind the other */
    size_t n_taken_along;        /* bytes */
    float *turns, *numbers;      /* [2][rope_dim], [heads] of gates */
    int32_t *now;                /* [2] the query of the step, and its row of the window */
    float *qkv, *pre;            /* [L][ld_qkv], [L][ld_pre] */
    float *rows, *lse, *entropy; /* [L][G][ld], [L][G]; of one layer where nobody keeps any */
    int32_t *seen;
    /* Pinned: of the same sizes. */
    struct {
        unsigned char *due, *step_inputs;
        int64_t *go, *may;
        double *mean_turns; /* [L][head_dim] of expected attention */
        struct gpu_chosen *chosen;
        int32_t *gone_head, *gone_slot, *victim, *seen, *now;
        float *victim_score, *x, *turns, *numbers, *qkv, *pre, *rows, *lse, *entropy, *logits,
            *normed;
    } host;
};

/* How a score is made on the device: score_table entries of which the kernels of engine/cuda know
 * (scores.c). */
struct device_score {
    const struct score *part;
    bool (*takes)(const struct method_params *p); /* NULL: all options */
    void (*eval)(struct session *s, const struct device_eviction *round);
    size_t (*scratch)(const struct session *s); /* bytes that eval needs; NULL: none */
};
/* NULL: the part has no kernels for these options. */
const struct device_score *device_score_of(const struct method *m, const struct method_params *p);

/* gates.c: whether the numbers of gates can be made there, or were given. */
bool device_gates_can(const struct gates *gates);
/* Tokens of a layer, or one token in all layers, which are then what T and ld count. */
struct device_tokens {
    const float *x;   /* [T][ld_x] behind the norm of attention */
    const float *pre; /* [T][ld_pre] queries and keys before they are turned */
    const float *qkv; /* [T][ld_qkv] and after, with values */
    size_t ld_x;
    int T;
};
/* Of networks the weights, sent once, and room for the tokens of a chunk; the numbers [T][heads]
 * of a layer. */
int device_gates_open(struct session *s, int T); /* KVF_OK or KVF_E_NOMEM */
void device_gates_run(struct session *s, int layer, const struct device_tokens *x, float *numbers);
/* The same for steps of n sessions that are fed together in the room's buffers, where rows behind
 * the norms are kept, of which s is one; the numbers [L][heads] of n <= GPU_TOGETHER, in launches
 * for all of them whose networks are the same. */
int device_gates_open_step(struct session *room, struct session *s, int n);
void device_gates_run_step(struct session *room, struct session *const *s,
                           const struct device_tokens *x, float *const *numbers, int n);

/* page_choice.c: whether the row's reads have kernels; of a session that reads by pages its
 * arrays, what they hold at first (KVF_OK or KVF_E_NOMEM), what a step brings, the pages that the
 * query of a layer reads, and what the host learns of them; of others nothing. */
bool device_reads_can(const struct session *s);
void device_reads_buffers(struct session *s, struct buffer_list *a);
int device_reads_enter(struct session *s);
void device_reads_begin(struct session *s);
void device_reads_parts(struct session *s, struct gpu_parts *p); /* what comes along */
void device_reads_run(struct session *s, int layer, const float *pre, struct gpu_attention *a);
void device_reads_of(const struct session *s, int layer, struct gpu_attention *a); /* for heads
                      of the layer and of those behind it: what they read is known by now */
void device_reads_fetch(struct session *s);
void device_reads_learn(struct session *s, int layer);

/* sampler.c: whether the token after a step is drawn there, and its logits stay; before a step
 * with the token id: how likely that was by the logits, and the number that the draw takes, on the
 * host; what of it comes along; on the stream the former; behind the logits of a step, which go to
 * the session's own, too;
 * what the host learns (true: the logits have stayed).  As logits of the backend; the host has
 * others by now. */
bool device_draws(const struct session *s);
void device_draw_begin(struct session *s, int32_t id);
void device_draw_parts(struct session *s, struct gpu_parts *p);
void device_draw_past(struct session *s, const float *logits);
void device_draw_run(struct session *s, float *own);
bool device_draw_learn(struct session *s);
void device_draw_close(struct session *s);
void device_logits_home(const struct session *s);
void device_logits_here(struct session *s);

/* evidence.c: arrays of a resident, made once and as long as heads need; entering and leaving.
 * KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int device_decode_enter(struct session *s);
bool device_decode_fits(const struct session *s); /* it is there, and the next step has room */
int device_decode_reserve_lists(struct session *s, int64_t victims, int64_t gone);
void device_decode_free(struct device_session *m);
int device_home(struct session *s);
/* Whether weights of steps are kept, for evidence, probes, who watches or an order of sums. */
enum { EVIDENCE_OF_ROWS = EVIDENCE_SUM | EVIDENCE_WINDOW };
bool step_keeps_rows(const struct session *s);

/* decode_batch.c: a whole step, or RUN_LAYERWISE where the row or who watches asks for the host
 * in between. */
int device_step(struct session *s, int32_t id);
/* The same of sessions that join. */
bool device_can_batch(const struct session *s);
int device_steps(struct session *room, struct session *const *s, int n, const int32_t *ids);

/* As many layers at a time are looked at: a few launches for each of STEP_PARTS parts of a step. */
enum { STEP_PARTS = 4 };
static inline int step_layers_together(const struct session *s)
{
    return (s->e->config.n_layers + STEP_PARTS - 1) / STEP_PARTS;
}

/* eviction.c, what leaves.  On the host: entries that leave by themselves, also on the stream;
 * the first half of a round, and room for its lists (KVF_OK, KVF_E_NOMEM); what a step takes along
 * of it, where it asks for nothing as well.  On the stream: scores and the choice of a round, or of
 * the last one, in which nothing leaves then; the cut, of what was chosen or of nothing, with the
 * newcomer's place.  After gpu_wait the second half. */
int round_expire(struct session *s);
int round_begin(struct session *s, enum phase phase, struct device_eviction *ret_round);
int round_reserve(struct session *s, const struct device_eviction *round);
void round_note(struct session *s, const struct device_eviction *round);
void eviction_launch(struct session *s, const struct device_eviction *of);
void eviction_apply(struct session *s, bool chosen, bool newcomer);
int round_take(struct session *s, const struct device_eviction *round);

enum { MOST_STEP_PARTS = 5 }; /* that a session takes along */
/* decode.c, the parts of a step, of which `logits` are the session's own.
 *
 * On the host: room on the device, and what leaves by itself; what leaves before the token, and
 * what the step takes along, which asks the device for nothing, so that threads may share out
 * sessions; room for what that needs.  Then on the stream, as part of a graph: what comes along;
 * what leaves (`rounds`: any session has a round; one that has none goes through one in which
 * nothing leaves, so that the graph keeps its shape), the newcomer's place and x.  Of a layer,
 * whose projections are in `qkv`: what gpu_norm_rope_store is given; behind that what
 * gpu_attend_step is given, which has been done where the engine is exact; behind that what probes
 * and who watches take from the session's rows, with its evidence, and after the last layer what
 * the host is to learn of all.  Of up to GPU_TOGETHER sessions at once the evidence of rows at
 * which nobody else looks, and after the last layer the numbers of gates; nothing else of the step
 * waits for them. The row behind the last norm.  Behind the logits: what it is to learn of them.
 *
 * After gpu_wait: what has left, and the layers, which threads share out where the step learns
 * apart; the end.  What leaves behind the query, on the stream where it is due, and after gpu_wait
 * what the host learns of that. */
int step_begin(struct session *s);
int step_decide(struct session *s, int32_t id, struct device_eviction *ret_round);
int step_ready(struct session *s, int32_t id, const struct device_eviction *round);
void step_parts(struct session *s, struct gpu_parts *p);
void step_enter(struct session *s, const float *logits, const struct device_eviction *round,
                bool rounds);
struct gpu_new_entries step_newcomer(struct session *s, int layer, float *qkv,
                                     struct gpu_cache *ret_cache);
struct gpu_attention step_attention(struct session *s, int layer);
void step_attended(struct session *s, int layer);
bool step_rows_are_shared(const struct session *s);
void step_look_at_rows(struct session *const *s, int n, int layer);
void step_gates(struct session *room, struct session *const *s, int n);
void step_fetch_normed(struct session *s);
void step_fetch(struct session *s, float *logits);
int step_learn(struct session *s, const struct device_eviction *round);
bool step_learns_apart(const struct session *s);
void step_learn_layer(struct session *s, int layer, int thread);
void step_learned(struct session *s);
void step_end(struct session *s);
int step_after(struct session *s, struct device_eviction *ret_round);
void step_leave(struct session *s, const struct device_eviction *round);
int step_learn_after(struct session *s, const struct device_eviction *round);

#endif

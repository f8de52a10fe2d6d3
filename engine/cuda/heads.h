/* heads.h - kernels of a decode step in addition to gpu.h, so that a step needs no work on the
 * host: the heads of all layers with the evidence of their entries, scores and cuts.
 *
 * A head is a KV head of a layer. The heads of a layer are adjacent, and so are the `per` query
 * heads of a KV head. Arrays of entries are [heads][...][ld_slot]. The slots of a head follow the
 * rules of cache.h, so that device and host agree slot by slot:
 *
 *   - If one entry is evicted from a head without a gap, its slot stays open and the newcomer gets
 * it.
 *   - If several entries are evicted, or if a slot was already open, the head is compacted in slot
 * order.
 *   - An open slot that is read before a newcomer arrives is filled with the last entry.
 *
 * All functions here are exact (gpu.h). */
#ifndef KVF_ENGINE_CUDA_HEADS_H
#define KVF_ENGINE_CUDA_HEADS_H

#include "engine/cuda/gpu.h"
#include "engine/kernels/gate_math.h"
#include "engine/kernels/score_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A value per entry, or per entry and row, that moves with its entry. */
struct gpu_column {
    void *data;     /* [heads][rows][ld_slot] */
    int size, rows; /* 4 or 8 bytes */
    int start;      /* initial value for a newcomer, enum gpu_start */
};
enum { GPU_MAX_COLUMNS = 6 };
/* later: another kernel writes it */
enum gpu_start { GPU_STARTS_LATER, GPU_STARTS_0, GPU_STARTS_NAN };

enum gpu_gap { GPU_GAP_NONE, GPU_GAP_OPEN, GPU_GAP_FILLED, GPU_GAP_CLOSED }; /* as in cache.h */

/* The heads of all layers and the state of their slots. */
struct gpu_heads {
    struct gpu_cache cache; /* all heads; its until is NULL */
    int32_t *n;             /* [heads] entries; writable alias of cache.n */
    int32_t *gap, *hole;    /* [heads] gap state since the last newcomer, and the open slot */
    int32_t *slot;          /* [heads] slot of this step's newcomer */
    int32_t *order;         /* [heads][ld_slot] slots by rising position; NULL: not kept */
    int32_t *renamed;       /* [heads][ld_slot] scratch of gpu_cut */
    unsigned char *mark;    /* [heads][ld_slot] state of an entry in this round, enum gpu_mark_of */
    struct gpu_column column[GPU_MAX_COLUMNS];
    int n_columns;
    bool closes; /* compact after every eviction: no slot stays open */
    /* [heads] leading slots unchanged since it was set; NULL: not tracked */
    int32_t *valid;
    /* Positions given to rounds and cuts are relative to now[0], so that they are equal in each
     * step. NULL: relative to 0. */
    const int32_t *now;
};
/* State of an entry in an eviction round. */
enum gpu_mark_of {
    GPU_STAYS,     /* not a candidate */
    GPU_CANDIDATE, /* can be evicted */
    GPU_LAST,      /* selected by the allocation of its head */
    GPU_GONE,
};

/* ---- rounds */

/* Marks the candidates of a round: entries at positions sinks .. to - 1 of heads with due[head] !=
 * 0. */
void gpu_candidates(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                    int32_t sinks, int32_t to);
/* Marks the n entries head[i], slot[i] as evicted and all others as kept. */
void gpu_list_gone(struct gpu *g, const struct gpu_heads *h, const int32_t *head,
                   const int32_t *slot, int n);
/* Result of a round for a head: the number of evicted entries, the start of their slots and scores
 * in the lists, and the worst candidate that is kept (-1: no such entry). cursor: one number for
 * the kernel. The lists have space for all evicted entries, in any order. */
struct gpu_chosen {
    int32_t n, first, kept;
    float kept_score;
};
void gpu_report(struct gpu *g, const struct gpu_heads *h, const float *score, bool older,
                struct gpu_chosen *chosen, int32_t *cursor, int32_t *slot, float *score_of);
/* Removes the marked entries from the heads. With `together` heads (of a layer), the marks of the
 * first one apply to all of them; 0: no entry is marked. newcomer: the entry at position t is
 * stored next, and its slot is set; otherwise open slots are filled. */
void gpu_cut(struct gpu *g, const struct gpu_heads *h, int together, bool newcomer, int32_t t);

/* ---- evidence of entries */

/* Attention rows of the last queries: row w of query head q is at (q * ring + w) * ld_slot. */
struct gpu_window {
    float *rows;            /* [query heads][ring][ld_slot] */
    int32_t *row_t;         /* [ring] the query of each row */
    int32_t *row_n;         /* [query heads][ring] number of entries that it saw */
    float *row_lse;         /* [query heads][ring] */
    int ring, newest, held; /* index of the newest row; number of rows */
    const int32_t *now;     /* newest is relative to now[1], modulo ring; NULL: to 0 */
};
/* Attention rows of one step of a sequence. gpu_take_rows adds the rows of query now[0] of query
 * heads q0 .. q0 + n_q - 1, `per` to a KV head, to the sums and stores them in row now[1] of the
 * window. One launch handles n <= GPU_TOGETHER sequences. */
struct gpu_taken {
    const float *p; /* [n_q][ld] */
    size_t ld;
    const float *lse; /* [n_q] */
    const int32_t *seen;
    const int32_t *n;  /* [heads] entries, at most `most` */
    int most, ld_slot; /* ld_slot of the sums and of the window */
    const int32_t *now;
    double *sum;              /* [query heads][ld_slot]; may be NULL */
    struct gpu_window window; /* rows may be NULL */
};
void gpu_accumulate_rows(struct gpu *g, const struct gpu_taken *of, int n, int per, int q0,
                         int n_q);
/* Records the stored newcomers of heads [first, first + n): the key's length into norms
 * [heads][ld_slot], and adds the normalised key to anchor [heads][D], in the integer units of
 * evidence.c. Either may be NULL. */
void gpu_take_keys(struct gpu *g, const struct gpu_heads *h, int first, int n, float *norms,
                   double *anchor);
/* Records the length of the newcomer's value in lengths [heads][ld_slot]. */
void gpu_take_values(struct gpu *g, const struct gpu_heads *h, int first, int n, float *lengths);
/* Adds unrotated queries q [n_heads][D] to sum [n_heads][D] and their products to outer
 * [n_heads][D][D], lower triangle. */
void gpu_take_moments(struct gpu *g, const float *q, int n_heads, int D, double *sum,
                      double *outer);
/* Subtracts the keys of marked entries from the anchor. Call it before gpu_cut. */
void gpu_drop_keys(struct gpu *g, const struct gpu_heads *h, int together, double *anchor);
/* Gate values [heads] of a sequence. One launch stores the values of n <= GPU_TOGETHER sequences
 * with the newcomers and copies them to the host. */
struct gpu_numbers {
    const float *from;
    float *home;   /* pinned, valid after gpu_wait; may be NULL */
    float *column; /* [heads][ld_slot]; may be NULL */
    const int32_t *slot;
    int ld_slot;
    float *of_token; /* [heads][cap], element of token now[0]; may be NULL */
    const int32_t *now;
    int cap;
};
void gpu_take_numbers(struct gpu *g, const struct gpu_numbers *of, int n, int heads);

/* ---- gate networks (gates_net) */

/* Copies n concatenated runs of `count` floats for each of n_units units, T tokens and n_rows <=
 * GPU_TOGETHER rows, from from[row][i] + t * ld[i] + unit * step[i]. With norms, each run is
 * normalised as gpu_rmsnorm does. */
enum { GPU_MAX_RUNS = 3 };
struct gpu_runs {
    const float *from[GPU_TOGETHER][GPU_MAX_RUNS];
    size_t ld[GPU_MAX_RUNS];
    int step[GPU_MAX_RUNS], count[GPU_MAX_RUNS], n, n_units, T, n_rows;
    const float *norm[GPU_MAX_RUNS]; /* + t * ld_norm: [count] per run; NULL: no run has a norm */
    size_t ld_norm;
    float eps;
};
/* out: [n_rows][T][n_units][all runs] */
void gpu_join_runs(struct gpu *g, const struct gpu_runs *runs, float *out);
/* x[t][i] = act(x[t][i] + bias[i]) for rows x [T][n].  with: not NULL: times with[t][i] instead of
 * the activation.  bias may be NULL. */
void gpu_gate_act(struct gpu *g, float *x, const float *bias, const float *with, int T, int n,
                  enum gate_activation act);
/* out[t][i] = output(x[t][i] + bias[i]), rows of out ld apart.  bias may be NULL. */
void gpu_gate_output(struct gpu *g, float *out, size_t ld, const float *x, const float *bias, int T,
                     int n, enum gate_output output);
/* A stage of the networks of all layers, `units` of each, for one token of each of n_rows <=
 * GPU_TOGETHER sequences, in one launch; a row has the same bits for any number of them.  Net i is
 * unit i % units of layer i / units: of row r it reads K floats at x[r] + layer * ld_x + unit * K
 * and leaves N at out[r] + i * N, behind bias and activation, or times what is at with[r] + i * N
 * in its place; the last stage has the output function instead. */
struct gpu_gate_stage {
    const float *w, *bias; /* [nets][N][K], [nets][N] or NULL */
    int nets, units, N, K, n_rows;
    const float *x[GPU_TOGETHER], *with[GPU_TOGETHER]; /* with NULL: the activation */
    float *out[GPU_TOGETHER];
    size_t ld_x;
    enum gate_activation act;
    enum gate_output output; /* of the last stage */
    bool last;
};
void gpu_gate_stage(struct gpu *g, const struct gpu_gate_stage *stage, bool exact);
/* One stage of the gate networks of one layer for T tokens, in one launch, with the sums of
 * gpu_product_exact. Unit u reads K floats at x + t * ld_x + u * K and writes N at out + t * ld_out
 * + u * N, then continues as gpu_gate_stage. `with` has the layout of out; NULL: the activation. */
struct gpu_gate_rows {
    const float *w, *bias; /* [units][N][K], [units][N] or NULL */
    int units, N, K, T;
    const float *x, *with;
    float *out;
    size_t ld_x, ld_out;
    enum gate_activation act;
    enum gate_output output; /* of the last stage */
    bool last;
};
void gpu_gate_rows(struct gpu *g, const struct gpu_gate_rows *stage);
/* Admission: entry t of head h, in slot first[h] + t at position pos0 + t, is kept if numbers[t][h]
 * is at least tau (above: larger than tau). Otherwise it expires after `stays` queries. Every entry
 * expires after `window` queries (0: no window). */
struct gpu_admission {
    double tau;
    bool above;
    int32_t stays, window;
};
void gpu_admit(struct gpu *g, const struct gpu_cache *c, const struct gpu_admission *how,
               const float *numbers, const int32_t *first, int T, int32_t pos0);

/* ---- scores, out [heads][ld_slot], for heads with due[head] != 0 */

void gpu_score_position(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        float *out);
/* out = sign times a column. */
void gpu_score_column(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const float *column, float sign, float *out);
/* Retention of entries with log beta in the column, as in score_retention.c. */
void gpu_score_retention(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                         const float *log_beta, int32_t from, int lookahead, float *out);
/* out = minus the cosine of each key with the anchor. */
void gpu_score_keydiff(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                       const float *norms, const double *anchor, float *out);
/* The query heads that score a KV head with their weights, and how their values are combined. */
struct gpu_group {
    int per, heads_of_layer;
    bool layer;     /* all query heads of the layer; false: the `per` query heads of the KV head */
    bool max, mean; /* maximum; sum divided by their number; neither: sum */
    bool logits;    /* maximum logit; for gpu_score_rows with share */
};
/* Attention received, over the sums of the query heads. */
void gpu_score_received(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        const struct gpu_group *group, const double *sum, float *out);
/* Attention over the rows of the window, as in window.c; exact sums if all rows are summed. */
void gpu_score_window(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const struct gpu_group *group, const struct gpu_window *w, double magic,
                      float *out);
/* Window scores with the maximum over the rows (most), or with rows scaled to sum to 1 over the
 * candidates. share: [query heads][ring] for scaled rows, otherwise NULL. */
void gpu_score_rows(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                    const struct gpu_group *group, const struct gpu_window *w, bool most,
                    int32_t sinks, int32_t recent_from, float *share, float *out);
/* Pools the scores of candidates over neighbours in time; copy: scratch like out. */
void gpu_pool(struct gpu *g, const struct gpu_heads *h, const unsigned char *due, int width,
              bool max, int32_t sinks, int32_t recent_from, float *copy, float *out);

/* out = minus the number of rows that gave the entry less than a uniform share of their query's
 * entries. */
void gpu_score_below(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                     const struct gpu_group *group, const struct gpu_window *w, float *out);
/* Mean plus gamma times the variance over the window rows, summed over the group. Both sums are in
 * integer units, as in slide_spread of kernels.h. */
void gpu_score_spread(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const struct gpu_group *group, const struct gpu_window *w, double gamma,
                      float *out);
void gpu_score_divide(struct gpu *g, const struct gpu_heads *h, const unsigned char *due, float by,
                      float *out);
/* A pseudo-random number per entry from seed, layer, head and position (score_random.c). drawn
 * [heads][ld_slot] stores it; NaN: not yet drawn. */
void gpu_score_random(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      uint64_t seed, int heads_of_layer, float *drawn, float *out);
/* Scores that persist across cuts, as in history.c. out is divided by its maximum over the
 * candidates (normalise) and, with alpha > 0, folded into the history; NaN: no history. */
struct gpu_history {
    float *history; /* [heads][ld_slot] */
    float alpha;
    enum fold_kind fold;
    bool normalise;
};
void gpu_score_history(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                       const struct gpu_history *history, int32_t sinks, int32_t recent_from,
                       float *out);
/* Combines the score in out with the redundancy of the key (score_redundancy.c): lambda out - (1 -
 * lambda) softmax(r), where r is the mean cosine with the keys of the head, except exempt pairs.
 * With normalise, softmax(r) is divided by its maximum over the candidates. */
struct gpu_redundancy {
    float lambda;
    bool normalise;
    void *scratch; /* gpu_redundancy_bytes */
};
size_t gpu_redundancy_bytes(int heads, int ld_slot, int D);
void gpu_score_redundancy(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                          const struct gpu_redundancy *x, int32_t sinks, int32_t recent_from,
                          float *out);

/* Expected attention of future queries times the length of the value, in one layer
 * (score_expected.c). sum and outer are results of gpu_take_moments for all query heads of all
 * layers, over n > 0 queries. turns: cosine and sine of the mean rotation of each rotated pair of
 * channels.
 */
struct gpu_expected {
    const double *sum, *outer, *turns;
    int64_t n;
    int pairs;
    double scale, epsilon;
    const float *values; /* [heads][ld_slot] lengths */
    void *scratch;       /* gpu_expected_bytes, n_heads: query heads of a layer */
};
size_t gpu_expected_bytes(int n_heads, int ld_slot, int D);
void gpu_score_expected(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        const struct gpu_group *group, const struct gpu_expected *x, int layer,
                        int32_t sinks, float *out);

#ifdef __cplusplus
}
#endif
#endif

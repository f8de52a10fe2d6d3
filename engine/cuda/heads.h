/* heads.h - what a step of a decode needs on a device beside gpu.h, so that nothing of it goes
 * through the host: the heads of all layers with what is remembered of their entries, scores of
 * these, and the cut.
 *
 * A head is a KV head of a layer; those of a layer adjoin, and so do the `per` query heads that
 * read a KV head.  Arrays of entries are [heads][...][ld_slot].  What happens to the slots of a
 * head is what cache.h says of them, so that device and host agree slot by slot:
 *   - one entry that leaves a head without a gap leaves its slot open, and the newcomer takes it;
 *   - of several, or where one left before, ranks are closed in the order of slots;
 *   - an open slot that is looked at before a newcomer comes is filled with the last entry.
 * All functions here are exact (gpu.h). */
#ifndef KVF_ENGINE_CUDA_HEADS_H
#define KVF_ENGINE_CUDA_HEADS_H

#include "engine/cuda/gpu.h"
#include "engine/kernels/gate_math.h"
#include "engine/kernels/score_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A number of each entry, or of each entry and row: it moves with its entry. */
struct gpu_column {
    void *data;     /* [heads][rows][ld_slot] */
    int size, rows; /* 4 or 8 bytes */
    int start;      /* of a newcomer, enum gpu_start */
};
enum { GPU_MOST_COLUMNS = 6 };
enum gpu_start { GPU_STARTS_LATER, GPU_STARTS_0, GPU_STARTS_NAN }; /* later: somebody else writes */

enum gpu_gap { GPU_GAP_NONE, GPU_GAP_OPEN, GPU_GAP_FILLED, GPU_GAP_CLOSED }; /* as in cache.h */

struct gpu_heads {
    struct gpu_cache cache; /* of all heads; its until is NULL */
    int32_t *n;             /* [heads] that of the cache, to be written */
    int32_t *gap, *hole;    /* [heads] what has left since the last newcomer */
    int32_t *slot;          /* [heads] where the newcomer of this step is */
    int32_t *order;         /* [heads][ld_slot] slots by rising position; NULL: nobody asks */
    int32_t *renamed;       /* [heads][ld_slot] for gpu_cut */
    unsigned char *mark;    /* [heads][ld_slot] what an entry is in this round, enum gpu_mark_of */
    struct gpu_column column[GPU_MOST_COLUMNS];
    int n_columns;
    bool closes;    /* ranks close whenever an entry leaves: no slot is left open */
    int32_t *valid; /* [heads] leading slots in which nothing has changed since it was set; NULL:
                       nobody asks */
    const int32_t *now; /* positions that rounds and cuts are given count from now[0] on, so that
                           they are the same in each step; NULL: from 0 */
};
enum gpu_mark_of {
    GPU_STAYS,     /* it is not asked */
    GPU_CANDIDATE, /* it could go */
    GPU_LAST,      /* it is among those of its head that may go */
    GPU_GONE,
};

/* ---- rounds */

/* Which entries are asked: those of heads with due[head] != 0 at positions from sinks to to - 1. */
void gpu_candidates(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                    int32_t sinks, int32_t to);
/* Marks the n entries head[i], slot[i] as gone and all others as staying. */
void gpu_list_gone(struct gpu *g, const struct gpu_heads *h, const int32_t *head,
                   const int32_t *slot, int n);
/* What a round chose in each head: how many, where their slots and scores begin in the lists, and
 * the worst candidate that stays (-1: none).  cursor: one number, for the kernel; the lists have
 * room for all that go, in any order. */
struct gpu_chosen {
    int32_t n, first, kept;
    float kept_score;
};
void gpu_report(struct gpu *g, const struct gpu_heads *h, const float *score, bool older,
                struct gpu_chosen *chosen, int32_t *cursor, int32_t *slot, float *score_of);
/* What is marked as gone leaves the heads; with `together` heads (a layer's) the first of them
 * speaks for all; together 0: nothing is marked.  newcomer: the one at position t comes next, and
 * its slot is known; else open slots are filled. */
void gpu_cut(struct gpu *g, const struct gpu_heads *h, int together, bool newcomer, int32_t t);

/* ---- what is remembered of entries */

/* The rows of attention of the last queries: row w of query head q is at (q * ring + w) * ld_slot.
 */
struct gpu_window {
    float *rows;            /* [query heads][ring][ld_slot] */
    int32_t *row_t;         /* [ring] the query of each row */
    int32_t *row_n;         /* [query heads][ring] entries it saw */
    float *row_lse;         /* [query heads][ring] */
    int ring, newest, held; /* where the newest row is; how many are there */
    const int32_t *now;     /* newest counts from now[1] on, modulo ring; NULL: from 0 */
};
/* Of each of n <= GPU_TOGETHER sequences the rows of query now[0] of query heads q0 to q0 + n_q -
 * 1, `per` of a head, are taken into sums and into row now[1] of the window, in one launch. */
struct gpu_taken {
    const float *p; /* [n_q][ld] */
    size_t ld;
    const float *lse; /* [n_q] */
    const int32_t *seen;
    const int32_t *n;  /* [heads] entries, at most `most` */
    int most, ld_slot; /* of the sums and of the window */
    const int32_t *now;
    double *sum;              /* [query heads][ld_slot]; NULL: none */
    struct gpu_window window; /* rows NULL: none */
};
void gpu_accumulate_rows(struct gpu *g, const struct gpu_taken *of, int n, int per, int q0,
                         int n_q);
/* Of the newcomers of heads [first, first + n), once they are stored: the length of the key into
 * norms [heads][ld_slot], the key of length 1 into the anchor [heads][D], in whole units as
 * evidence.c has them.  Either may be NULL. */
void gpu_take_keys(struct gpu *g, const struct gpu_heads *h, int first, int n, float *norms,
                   double *anchor);
/* The length of the value, likewise, into lengths [heads][ld_slot]. */
void gpu_take_values(struct gpu *g, const struct gpu_heads *h, int first, int n, float *lengths);
/* Takes unturned queries q [n_heads][D] into sums [n_heads][D] and sums of products
 * [n_heads][D][D], the lower triangle. */
void gpu_take_moments(struct gpu *g, const float *q, int n_heads, int D, double *sum,
                      double *outer);
/* What is marked as gone leaves the anchor, before gpu_cut. */
void gpu_drop_keys(struct gpu *g, const struct gpu_heads *h, int together, double *anchor);
/* Numbers of gates, [heads] of each of n <= GPU_TOGETHER sequences, are stored with the newcomers
 * and come home, in one launch. */
struct gpu_numbers {
    const float *from;
    float *home;   /* pinned, there after gpu_wait; NULL: nobody asks */
    float *column; /* [heads][ld_slot]; NULL: nobody asks */
    const int32_t *slot;
    int ld_slot;
    float *of_token; /* [heads][cap], that of token now[0]; NULL: nobody asks */
    const int32_t *now;
    int cap;
};
void gpu_take_numbers(struct gpu *g, const struct gpu_numbers *of, int n, int heads);

/* ---- the networks of gates (gates_net) */

/* Copies n runs of `count` floats one behind the other, of each of n_units, of each of T tokens, of
 * each of n_rows <= GPU_TOGETHER rows: from[row][i] + t * ld[i] + unit * step[i].  With norms each
 * run is what gpu_rmsnorm makes of it. */
enum { GPU_MOST_RUNS = 3 };
struct gpu_runs {
    const float *from[GPU_TOGETHER][GPU_MOST_RUNS];
    size_t ld[GPU_MOST_RUNS];
    int step[GPU_MOST_RUNS], count[GPU_MOST_RUNS], n, n_units, T, n_rows;
    const float *norm[GPU_MOST_RUNS]; /* + t * ld_norm: [count] of each run; NULL: none has one */
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
/* A stage of the networks of a layer for T tokens, in one launch, whose sums are those of
 * gpu_product_exact.  Unit u reads K floats at x + t * ld_x + u * K and leaves N at out + t *
 * ld_out + u * N, with what gpu_gate_stage does behind a sum; with, NULL: the activation, lies as
 * out. */
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
/* Who is admitted: entry t of head h, in slot first[h] + t of the cache and at position pos0 + t,
 * stays where numbers[t][h] is at least tau (above: larger), and else for `stays` queries; either
 * no longer than `window` (0: there is none). */
struct gpu_admission {
    double tau;
    bool above;
    int32_t stays, window;
};
void gpu_admit(struct gpu *g, const struct gpu_cache *c, const struct gpu_admission *how,
               const float *numbers, const int32_t *first, int T, int32_t pos0);

/* ---- scores, out [heads][ld_slot], of the heads with due[head] != 0 */

void gpu_score_position(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        float *out);
/* sign times a column of numbers. */
void gpu_score_column(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const float *column, float sign, float *out);
/* Retention of entries with log beta in the column, as score_retention.c. */
void gpu_score_retention(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                         const float *log_beta, int32_t from, int lookahead, float *out);
/* Minus the cosine of each key with the anchor. */
void gpu_score_keydiff(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                       const float *norms, const double *anchor, float *out);
/* Which query heads decide for a head: the `per` that read it, or all of its layer; and what is
 * made of their numbers. */
struct gpu_group {
    int per, heads_of_layer;
    bool layer;     /* all of the layer */
    bool max, mean; /* the largest; the sum over how many they are; else the sum */
    bool logits;    /* the largest logit; for gpu_score_rows with share */
};
/* The attention received, over the sums of the query heads. */
void gpu_score_received(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        const struct gpu_group *group, const double *sum, float *out);
/* Attention from the rows held, as window.c makes it: exact sums where everything is summed. */
void gpu_score_window(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const struct gpu_group *group, const struct gpu_window *w, double magic,
                      float *out);
/* The same where the largest of the window is taken (most), or rows are scaled to sum to 1 over the
 * candidates; share: [query heads][ring] for the latter, or NULL. */
void gpu_score_rows(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                    const struct gpu_group *group, const struct gpu_window *w, bool most,
                    int32_t sinks, int32_t recent_from, float *share, float *out);
/* Pools the scores of candidates over neighbours in time; copy: as out. */
void gpu_pool(struct gpu *g, const struct gpu_heads *h, const unsigned char *due, int width,
              bool max, int32_t sinks, int32_t recent_from, float *copy, float *out);

/* Minus how many rows gave the entry less than an even share of what their query saw. */
void gpu_score_below(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                     const struct gpu_group *group, const struct gpu_window *w, float *out);
/* Mean plus gamma times the variance of the rows held, summed over the group: sums of both in whole
 * units, as slide_spread of kernels.h has them. */
void gpu_score_spread(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const struct gpu_group *group, const struct gpu_window *w, double gamma,
                      float *out);
void gpu_score_divide(struct gpu *g, const struct gpu_heads *h, const unsigned char *due, float by,
                      float *out);
/* A number for each entry that follows from seed, layer, head and position (score_random.c), kept
 * in drawn [heads][ld_slot], where NaN means not drawn yet. */
void gpu_score_random(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      uint64_t seed, int heads_of_layer, float *drawn, float *out);
/* Scores that outlive their cut, as history.c has them: out is divided by its largest among the
 * candidates (normalise) and, with alpha > 0, folded into what is remembered, NaN: nothing. */
struct gpu_history {
    float *history; /* [heads][ld_slot] */
    float alpha;
    enum fold_kind fold;
    bool normalise;
};
void gpu_score_history(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                       const struct gpu_history *history, int32_t sinks, int32_t recent_from,
                       float *out);
/* What the entry is worth in out against how redundant its key is (score_redundancy.c): lambda out
 * - (1 - lambda) softmax(r), r the mean cosine with the keys of the head but for what is forgiven;
 * softmax(r) over its largest among the candidates with normalise. */
struct gpu_redundancy {
    float lambda;
    bool normalise;
    void *scratch; /* gpu_redundancy_bytes */
};
size_t gpu_redundancy_bytes(int heads, int ld_slot, int D);
void gpu_score_redundancy(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                          const struct gpu_redundancy *x, int32_t sinks, int32_t recent_from,
                          float *out);

/* Attention that future queries are expected to give, times the length of the value, in one layer
 * (score_expected.c).  sum and outer are those of gpu_take_moments of all query heads of all
 * layers, over n > 0 queries; turns: cosine and sine of the mean rotation of each pair of channels
 * that turns. */
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

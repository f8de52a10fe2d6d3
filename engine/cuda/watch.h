/* watch.h - what probes take from rows of attention on a device, where the rows are: so none of
 * them goes to the host.
 *
 * Rows are those of gpu_rows, before anything else writes to them: of each query head of a layer
 * the T queries of an attention, in slots.  What a query does not see is left out; the order of
 * entries is that of their positions, cache.pos, or of their slots where that is NULL.  Cells are
 * [n_heads][cap] of one layer, a cell for each position or each query, and NULL where nobody asks.
 * No weight is above 1, and the sum of a row is below 4 where cuts go by mass; ld and
 * cache.ld_slot are multiples of 4.  All functions here are exact
 * (gpu.h). */
#ifndef KVF_ENGINE_CUDA_WATCH_H
#define KVF_ENGINE_CUDA_WATCH_H

#include "engine/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuts: as row_cuts of kernels.h, [n_heads][T][n_top + n_tau], of the same bits, but that first_tie
 * is a position.  top_k and tau are the host's, at most GPU_MOST_CUTS. */
enum { GPU_MOST_CUTS = 8, GPU_MOST_VISITS = 2 };
struct gpu_criteria {
    int n_top, n_tau;
    const int *top_k;
    const double *tau;
};
void gpu_row_cuts(struct gpu *g, const struct gpu_seen_rows *r, const struct gpu_criteria *c,
                  struct row_cut *cuts);

/* How often, and after what gaps, an entry was in a set: as kept by probe_returns.c. */
struct gpu_visits {
    int32_t last, count[3];
};

/* What entries are asked for.  Steps are u16 or u32, as wide says. */
struct gpu_entry_cells {
    int cap, n_cuts; /* of cuts */
    bool wide;
    double *sum; /* of the weights, in order of the queries, and the largest */
    float *max;
    uint32_t *read;              /* queries that saw it */
    void *last[GPU_MOST_CUTS];   /* the newest query in whose cut it was */
    uint32_t *at[GPU_MOST_CUTS]; /* bit k: it was in the cut at age 2^k */
    void *first[GPU_MOST_CUTS];  /* how many queries from its birth on had it in the cut */
    struct gpu_visits *visits;   /* [n_heads][n_visits][cap], of these cuts */
    int n_visits, visits_cut[GPU_MOST_VISITS];
};
/* Takes the queries in order. */
void gpu_watch_entries(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                       const struct gpu_entry_cells *cells);

/* What queries are asked for. */
enum { GPU_MOST_SHARES = 8 };
struct gpu_query_cells {
    int cap;
    bool wide;
    float *lse, *entropy;
    void *under[GPU_MOST_SHARES], *seen; /* weights under share[i] of the largest; entries */
    double share[GPU_MOST_SHARES];
    int n_shares;
    /* Pairs first[g] .. first[g + 1] - 1 of query head g: what token[i], rising, got of the query,
     * received[i][cap]: -1 where it was not seen. */
    const int32_t *first, *token;
    float *received;
};
void gpu_watch_queries(struct gpu *g, const struct gpu_seen_rows *r,
                       const struct gpu_query_cells *cells);

/* sum[h][b % ring] += of each query of block b (of `block` queries) what the query heads of KV head
 * h gave at most; sums begin at 0 with the block.  sum: [heads][ring][cap] */
void gpu_watch_window(struct gpu *g, const struct gpu_seen_rows *r, float *sum, int cap, int block,
                      int ring);

/* norm[g][t] of the tokens t of the T queries: |W_g v| = sqrt(v' M v) of their values as the cache
 * holds them, in double and in order of channels; gram: M = W_g' W_g, [n_heads][D][D]. */
void gpu_out_norms(struct gpu *g, const struct gpu_seen_rows *r, const double *gram, float *norm,
                   int cap);
/* out, rows as r->p: weight times norm of each entry, times a power of two that leaves none above
 * 1. */
void gpu_contributions(struct gpu *g, const struct gpu_seen_rows *r, const float *norm, int cap,
                       float *out);

/* What useful entries get of each query, as probe_dilution.c has it.  Sets are, in this order,
 * those of the cuts, the first of which with all entries that weigh slack[j] of the least in it or
 * more, n_spans sets of tokens, and what a plan keeps. */
enum {
    GPU_USEFUL_CUTS = 7,
    GPU_SLACKS = 3,
    GPU_PREFIXES = GPU_USEFUL_CUTS + GPU_SLACKS, /* of the order of weights */
    GPU_MOST_SPANS = 5,
    GPU_MOST_FIXED = GPU_MOST_SPANS + 1, /* spans and the plan */
    GPU_MOST_SETS = GPU_PREFIXES + GPU_MOST_FIXED,
    GPU_NEAR = 16,
};
/* Columns [query heads of all layers][cap], NULL where nobody asks; those of near count entries,
 * of all, then outside each set that is fixed. */
struct gpu_useful_columns {
    float *useful[GPU_MOST_SETS], *dilution[GPU_MOST_SETS], *kept[GPU_MOST_SETS];
    float *aged_kept[GPU_MOST_SETS], *aged_in[GPU_MOST_SETS], *aged_out[GPU_MOST_SETS];
    void *size[GPU_MOST_SETS], *near[1 + GPU_MOST_FIXED][GPU_NEAR];
};
struct gpu_useful {
    int cap, head; /* query heads of the layers before the rows' */
    bool wide;
    const struct gpu_useful_columns *columns; /* lies on the device */
    double slack[GPU_SLACKS], near[GPU_NEAR]; /* shares of the least in a cut, of the largest */
    int n_spans;
    const unsigned char *spans;    /* [cap] bit k: the token is in set k */
    int32_t first[GPU_MOST_SPANS]; /* token of each */
    const uint32_t *plan; /* [heads of all layers][plan_tokens] first queries that do not see the
                             token; later ones stay.  NULL: none */
    int plan_tokens, plan_per; /* query heads of a head */
    const float *log_beta;     /* [KV heads of all layers][cap], finite; NULL: none */
    /* Scratch of rows that do not see all entries: [KV heads of the rows] of ld_order >= most
     * slots, and of as many bits as positions, twice.  NULL: nobody asks what was kept. */
    int32_t *order;
    uint32_t *bits;
    int ld_order, ld_bits; /* ld_bits: words of 32 */
};
void gpu_watch_useful(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                      const struct gpu_useful *x);
/* log_beta of tokens pos0 and on, [heads][cap], from the numbers of gates of T tokens, [T][heads].
 */
void gpu_watch_numbers(struct gpu *g, const float *numbers, int heads, int T, int pos0,
                       float *log_beta, int cap);

#ifdef __cplusplus
}
#endif
#endif

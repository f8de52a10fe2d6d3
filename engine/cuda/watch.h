/* watch.h - kernels of probes over attention rows on a device, so that no row is copied to the
 * host.
 *
 * Rows are the output of gpu_rows before another kernel overwrites it: for each query head of a
 * layer the T queries of an attention, indexed by slot. Entries that a query does not see are
 * skipped. The order of entries is the order of their positions, cache.pos, or of their slots if
 * cache.pos is NULL. Cells are [n_heads][cap] of one layer, one per position or query; NULL if not
 * requested. No weight exceeds 1, and the sum of a row is below 4 where cuts use the mass. ld and
 * cache.ld_slot are multiples of 4. All functions are exact (gpu.h). */
#ifndef KVF_ENGINE_CUDA_WATCH_H
#define KVF_ENGINE_CUDA_WATCH_H

#include "engine/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuts: [n_heads][T][n_top + n_tau], same bits as row_cuts of kernels.h, but first_tie is a
 * position. top_k and tau are host arrays of at most GPU_MAX_CUTS. */
enum { GPU_MAX_CUTS = 8, GPU_MAX_VISITS = 2 };
/* Selected sets: the top_k[i] largest entries, and the largest entries with a fraction tau[i] of
 * the mass. */
struct gpu_criteria {
    int n_top, n_tau;
    const int *top_k;
    const double *tau;
};
void gpu_row_cuts(struct gpu *g, const struct gpu_seen_rows *r, const struct gpu_criteria *c,
                  struct row_cut *cuts);

/* How often, and after which gaps, an entry was in a set; the state of probe_returns.c. */
struct gpu_visits {
    int32_t last, count[3];
};

/* Requested results per entry. Steps are u32 if wide, else u16. */
struct gpu_entry_cells {
    int cap, n_cuts; /* number of cuts */
    bool wide;
    double *sum; /* sum of the weights in query order, and their maximum */
    float *max;
    uint32_t *read;             /* number of queries that saw it */
    void *last[GPU_MAX_CUTS];   /* last query with the entry in the cut */
    uint32_t *at[GPU_MAX_CUTS]; /* bit k: it was in the cut at age 2^k */
    void *first[GPU_MAX_CUTS];  /* number of queries from its birth on with the entry in the cut */
    struct gpu_visits *visits;  /* [n_heads][n_visits][cap], for the cuts visits_cut */
    int n_visits, visits_cut[GPU_MAX_VISITS];
};
/* Processes the queries in order. */
void gpu_watch_entries(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                       const struct gpu_entry_cells *cells);

/* Requested results per query. */
enum { GPU_MAX_SHARES = 8 };
struct gpu_query_cells {
    int cap;
    bool wide;
    float *lse, *entropy;
    void *under[GPU_MAX_SHARES], *seen; /* weights below share[i] of the maximum; entries */
    double share[GPU_MAX_SHARES];
    int n_shares;
    /* Pairs first[g] .. first[g + 1] - 1 of query head g. received[i][cap] is the weight that each
     * query gave to token[i] (rising); -1 if it was not visible. */
    const int32_t *first, *token;
    float *received;
};
void gpu_watch_queries(struct gpu *g, const struct gpu_seen_rows *r,
                       const struct gpu_query_cells *cells);

/* sum[h][b % ring] += for each query of block b (of `block` queries) the maximum weight over the
 * query heads of KV head h. Sums start at 0 with the block. sum: [heads][ring][cap] */
void gpu_watch_window(struct gpu *g, const struct gpu_seen_rows *r, float *sum, int cap, int block,
                      int ring);

/* norm[g][t] of the tokens t of the T queries: |W_g v| = sqrt(v' M v) of their cached values, in
 * double and in channel order. gram: M = W_g' W_g, [n_heads][D][D]. */
void gpu_out_norms(struct gpu *g, const struct gpu_seen_rows *r, const double *gram, float *norm,
                   int cap);
/* out, rows as r->p: weight times norm of each entry, times a power of two that keeps all values at
 * most 1. */
void gpu_contributions(struct gpu *g, const struct gpu_seen_rows *r, const float *norm, int cap,
                       float *out);

/* Attention to useful entries per query, as in probe_dilution.c. The sets are, in this order: the
 * cuts; the first cut extended by all entries with at least slack[j] of its smallest weight;
 * n_spans sets of tokens; the kept set of a plan. */
enum {
    GPU_USEFUL_CUTS = 7,
    GPU_SLACKS = 3,
    GPU_PREFIXES = GPU_USEFUL_CUTS + GPU_SLACKS, /* prefixes of the order of weights */
    GPU_MAX_SPANS = 5,
    GPU_MAX_FIXED = GPU_MAX_SPANS + 1, /* spans and the plan */
    GPU_MAX_SETS = GPU_PREFIXES + GPU_MAX_FIXED,
    GPU_NEAR = 16,
};
/* Columns [query heads of all layers][cap], NULL if not requested. `near` counts entries: all of
 * them, then those outside each fixed set. */
struct gpu_useful_columns {
    float *useful[GPU_MAX_SETS], *dilution[GPU_MAX_SETS], *kept[GPU_MAX_SETS];
    float *aged_kept[GPU_MAX_SETS], *aged_in[GPU_MAX_SETS], *aged_out[GPU_MAX_SETS];
    void *size[GPU_MAX_SETS], *near[1 + GPU_MAX_FIXED][GPU_NEAR];
};
/* Inputs of gpu_watch_useful. */
struct gpu_useful {
    int cap, head; /* index of the rows' first query head over all layers */
    bool wide;
    const struct gpu_useful_columns *columns; /* in device memory */
    double slack[GPU_SLACKS], near[GPU_NEAR]; /* of a cut's minimum, of the maximum */
    int n_spans;
    const unsigned char *spans;   /* [cap] bit k: the token is in set k */
    int32_t first[GPU_MAX_SPANS]; /* first token of each span */
    /* [heads of all layers][plan_tokens] first query that does not see the token; later tokens are
     * kept. NULL: no plan. */
    const uint32_t *plan;
    int plan_tokens, plan_per; /* query heads per KV head */
    const float *log_beta;     /* [KV heads of all layers][cap], finite; may be NULL */
    /* Scratch for rows that do not see all entries: [KV heads of the rows] of ld_order >= most
     * slots, and twice as many bits as positions. NULL: kept fractions are not requested. */
    int32_t *order;
    uint32_t *bits;
    int ld_order, ld_bits; /* ld_bits: 32-bit words */
};
void gpu_watch_useful(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                      const struct gpu_useful *x);
/* Stores log_beta of tokens from pos0 on, [heads][cap], from the gate values of T tokens,
 * [T][heads]. */
void gpu_watch_numbers(struct gpu *g, const float *numbers, int heads, int T, int pos0,
                       float *log_beta, int cap);

#ifdef __cplusplus
}
#endif
#endif

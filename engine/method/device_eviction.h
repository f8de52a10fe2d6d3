/* device_eviction.h - decisions in which a device scores and chooses the entries to evict.
 *
 * The number of entries to evict follows from the cache, but their choice needs scores.
 * device_eviction_begin() returns the numbers, as method_decide() would compute them.  The device
 * then chooses entries.  device_eviction_take() passes the choice for each head, and
 * device_eviction_end() evicts and reports the entries.  The result equals that of method_decide():
 * equal evictions in equal order, and equal slots.
 *
 * device_eviction_begin() also evicts the entries that expire. */
#ifndef KVF_ENGINE_DEVICE_EVICTION_H
#define KVF_ENGINE_DEVICE_EVICTION_H

#include "engine/method/decisions.h"

/* The evictions that a decision needs.  Heads: L * H, with the heads of a layer contiguous. */
struct device_eviction {
    int32_t t;
    int incoming;
    enum phase phase;
    bool due;            /* false: no entry must be evicted */
    int32_t recent_from; /* candidates are at positions from params.sinks to this - 1 */
    int pools, heads_of_pool;
    const unsigned char *head; /* [L * H] 1: its entries are scored */
    const int64_t *go;         /* [pools] candidates of a pool to evict, the worst first */
    const int64_t *may;        /* [L * H] maximum evictions of a head; NULL: no maximum */
    int64_t most;              /* maximum evictions of all heads */
};

/* Returns true if the chain has one preset and its decisions can be split in this way.  Not
 * supported: protected tokens, and presets that evict for a budget and read pages.  The caller must
 * check that the device supports the score and its evidence. */
bool device_eviction_supported(const struct method_state *s);
/* Evicts the entries that expire, and sets *ret to the evictions that are due.  Pointers in *ret
 * are borrowed until the next decision.  KVF_OK or KVF_E_NOMEM. */
int device_eviction_begin(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                          eviction_fn fn, void *ctx, struct device_eviction *ret);
/* The n entries that head `at` of L * H evicts: their slots and scores, in any order.  kept: slot
 * of the worst candidate that is kept, or -1.  With SCOPE_LAYER the first head decides for its
 * layer. A NaN score counts as -inf. */
struct device_eviction_cut {
    int at, n;
    const int32_t *slot;
    const float *score;
    int32_t kept;
    float kept_score;
};
/* Records the choice for one head. */
void device_eviction_take(struct method_state *s, const struct cache *c,
                          const struct device_eviction_cut *cut);
/* Evicts and reports the recorded entries, as method_decide() does, and clears the record.  *cuts
 * grows by the number of evictions. */
int device_eviction_end(struct method_state *s, struct cache *c, const struct device_eviction *r,
                        eviction_fn fn, void *ctx, int64_t *cuts);

/* The admission rule for new entries by their gate values, for a device that has the values. */
struct device_admission {
    double tau;    /* entries with a gate value of tau or more are admitted */
    bool above;    /* a gate value equal to tau is not admitted */
    int32_t stays; /* queries that see an entry that is not admitted */
};
enum device_admits {
    ADMITS_WITHOUT,   /* method_until() reads no gate value */
    ADMITS_BY_NUMBER, /* the gate value decides by the rule *ret, apart from method_window_end() */
    ADMITS_APART,     /* some heads use write gates, and others do not, or tokens are protected */
};
/* Returns how the admission depends on gate values, and sets *ret for ADMITS_BY_NUMBER. */
enum device_admits device_admission(const struct method_state *s, struct device_admission *ret);

/* The arrays of evidence in their stored layout, or NULL if the preset does not need them.  Each
 * head (or query head) has cap elements, and its rows are contiguous.  All other evidence follows
 * from appending entries. */
struct device_evidence {
    int cap, ring;
    double *sum;            /* [L * G][cap] */
    float *rows;            /* [L * G][ring][cap] */
    int *n_rows;            /* [L * G] rows received so far; row w is stored at w % ring */
    int32_t *row_t;         /* [L * G][ring] */
    int *row_n;             /* [L * G][ring] */
    float *row_lse;         /* [L * G][ring] */
    float *norms;           /* [L * H][cap] */
    float *gate;            /* [L * H][cap] */
    float *history;         /* [L * H][cap] */
    double *anchor;         /* [L * H][head_dim], brought up to date */
    float *values;          /* [L * H][cap] */
    int64_t *n_queries;     /* [L] */
    double *query_sum;      /* [L * G][head_dim] */
    double *query_outer;    /* [L * G][head_dim][head_dim], the lower triangle */
    const float *block_key; /* [L * H][block_cap][gate_dim] of full blocks */
    int block_cap;
};
struct device_evidence device_evidence(struct method_state *s, const struct cache *c);
/* Records that attention rows were copied to the host, in the current slot order of the cache, with
 * row_t of the first query head.  taken: rows received so far, equal in all heads. */
void device_rows_received(struct method_state *s, const struct cache *c, int taken);

/* score_expected.c: writes the mean rotation of the queries from position t on to `turns`, cosine
 * and sine for each rotated pair of channels.  Returns the number of pairs. */
int expected_turns(const struct method_state *m, int layer, int32_t t, double *turns);
/* Returns the factor of the model's logit scale over 1 / sqrt(head_dim). */
double expected_scale(const struct method_state *m);

#endif

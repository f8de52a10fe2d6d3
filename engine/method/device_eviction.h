/* device_eviction.h - decisions in two halves, for who keeps the evidence of attention and chooses
 * by it elsewhere: on a device.
 *
 * How many entries must go follows from the cache alone; which ones does not. device_eviction_begin
 * says the former, as method_decide would find it; whoever has the scores then chooses;
 * device_eviction_take tells of each head what was chosen, and device_eviction_end cuts and reports
 * it.  Both halves are those of method_decide: the same evictions in the same order, and the same
 * slots.
 *
 * Entries that leave at a step fixed at birth are gone once device_eviction_begin returns. */
#ifndef KVF_ENGINE_ELSEWHERE_H
#define KVF_ENGINE_ELSEWHERE_H

#include "engine/method/decisions.h"

/* What a round asks for.  Heads: L * H, those of a layer adjoin. */
struct device_eviction {
    int32_t t;
    int incoming;
    enum phase phase;
    bool due;            /* whether anything must go */
    int32_t recent_from; /* candidates are at positions from params.sinks to this - 1 */
    int pools, heads_of_pool;
    const unsigned char *head; /* [L * H] 1: its entries are scored */
    const int64_t *go;         /* [pools] how many of a pool's candidates go, the worst first */
    const int64_t *may;        /* [L * H] of a head no more of its worst than this; NULL: any */
    int64_t most;              /* no more go altogether */
};

/* Whether the state is of one row, whose rounds can be taken apart.  What it scores by, and what it
 * looks at, is the caller's to know. */
bool device_eviction_supported(const struct method_state *s);
/* KVF_OK or KVF_E_NOMEM.  Borrowed by *ret: until the next round. */
int device_eviction_begin(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                          eviction_fn fn, void *ctx, struct device_eviction *ret);
/* Head `at` of all loses the n entries of slots slot[], of scores score[], in any order; kept: slot
 * of the worst candidate that stays, or -1.  With SCOPE_LAYER the first head speaks for its layer.
 * NaN counts as -inf. */
struct device_eviction_cut {
    int at, n;
    const int32_t *slot;
    const float *score;
    int32_t kept;
    float kept_score;
};
void device_eviction_take(struct method_state *s, const struct cache *c,
                          const struct device_eviction_cut *cut);
/* As method_decide at its end; what was taken is forgotten.  *cuts grows by how many left. */
int device_eviction_end(struct method_state *s, struct cache *c, const struct device_eviction *r,
                        eviction_fn fn, void *ctx, int64_t *cuts);

/* How long newcomers stay by the numbers of their gates, for who has these elsewhere. */
struct device_admission {
    double tau;    /* from which on they are admitted */
    bool above;    /* tau itself is not */
    int32_t stays; /* queries that see one which is not */
};
enum device_admits {
    ADMITS_WITHOUT,   /* method_until asks for no number */
    ADMITS_BY_NUMBER, /* it follows from that alone, as *ret says, but for method_window_end */
    ADMITS_APART,     /* rows that are mixed by heads */
};
enum device_admits device_admission(const struct method_state *s, struct device_admission *ret);

/* The arrays of evidence as they lie, NULL where a row needs none: cap elements for each head (or
 * query head), its rows adjoin.  All else that is remembered of entries follows from appending. */
struct device_evidence {
    int cap, ring;
    double *sum;            /* [L * G][cap] */
    float *rows;            /* [L * G][ring][cap] */
    int *n_rows;            /* [L * G] rows ever taken; row w of them lies at w % ring */
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
/* Rows have come home, in the order that the slots of the cache have now, with row_t of the first
 * query head: so many were ever taken, in all heads. */
void device_rows_received(struct method_state *s, const struct cache *c, int taken);

/* Of expected attention (score_expected.c): the mean rotation of the queries from position t on,
 * cosine and sine for each pair of channels that turns, whose number is returned; the scale of
 * logits over 1 / sqrt(head_dim). */
int expected_turns(const struct method_state *m, int layer, int32_t t, double *turns);
double expected_scale(const struct method_state *m);

#endif

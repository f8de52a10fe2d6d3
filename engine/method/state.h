/* state.h - the running state of a method; private to engine/method/. */
#ifndef KVF_ENGINE_METHOD_STATE_H
#define KVF_ENGINE_METHOD_STATE_H

#include "engine/kernels/ranking.h"
#include "engine/method/evidence.h"
#include "engine/method/decisions.h"

struct method_state {
    struct method_state *next; /* the chain: rows of other heads */
    unsigned char *owned;      /* [L * H]; NULL: all heads */
    struct method row;
    const struct method *method; /* &row */
    struct method_params params;
    struct method_shape shape;
    struct method_inputs inputs;
    struct kernels kernels;
    struct evidence evidence;
    int32_t next_decision;
    double alpha_from;     /* duo: heads with an alpha below stream */
    int *share;            /* [L] entries per head */
    double *share_weight;  /* [L] by which they follow, once shares_known */
    double *share_scratch; /* [L] */
    bool shares_known;
    int cap; /* slots per head */
    /* What is cut, per KV head; with SCOPE_LAYER head 0 decides for all. */
    unsigned char *due; /* [L * H] */
    int64_t *target;    /* [pools] entries that may stay; -1: nothing to do */
    int64_t *over;      /* [pools] entries that must go */
    int64_t *go, *may;  /* [L * H] of device_eviction.c, once it was called */
    int *n_candidates;  /* [L * H] */
    int *n_listed;      /* [L * H] the worst that are listed, in order; 0: all, in any order */
    struct candidate *candidate; /* [L * H][cap] */
    int *heap;                   /* [L * H] scratch of merging */
    struct candidate *pooled;    /* [L * H][cap] where heads share; else NULL */
    int *n_cut;                  /* [L * H] */
    int32_t *victim;     /* [L * H][cap] slots, worst first; then the worst that stays, or -1 */
    float *value;        /* [L * H][cap] scores by slot where heads share; else NULL */
    unsigned char *keep; /* [n_keeps][cap] scratch of applying */
    int n_keeps;
    int32_t *pair;             /* [2 * cap] scratch of reporting */
    struct lows *lows;         /* [L * H] where they are kept, else NULL (lows.h) */
    struct peaks_state *peaks; /* where they are kept, else NULL (peaks.h) */
    float *scratch;            /* [threads][scratch_len] */
    size_t scratch_len;
    int n_threads;
};

/* A round of decisions before query t (incoming 1), after it or a prompt (0). */
struct round {
    struct method_state *s;
    struct cache *cache;
    int32_t t;
    int incoming;
};

/* choose.c: fills n_cut and victim. */
bool choose_over(const struct round *r); /* whether any head is over the budget */
bool choose_due(const struct round *r);  /* whether any pool is over its share; sets due, target */
int choose_pools(const struct method_state *s);
/* Asks memory for the positions that limit the candidates of a head, where there is such a head. */
void choose_ask_limits(const struct round *r, int at);
void choose_score(void *round, int kv_head, int thread); /* task of [L * H] */
void choose_pool(void *round, int pool, int thread);     /* task of [pools] */
/* Of the heads of a pool that are due, once their candidates are counted: entries, unprotected
 * ones, heads, and how many of the unprotected may stay. */
struct choose_numbers {
    int64_t total, candidates, places;
    int heads;
};
struct choose_numbers choose_numbers(const struct round *r, int pool);
/* n_cut of the heads of a pool where it follows from numbers: heads alone, or rounds. */
void choose_counts(const struct round *r, int pool);
/* How many of its best a head of a pool keeps at least. */
int64_t choose_floor(const struct method_state *s, int64_t places, int heads);
/* The first n_cut candidates of a head are cut, [n_cut] is the worst that stays. */
void choose_victims(struct method_state *s, int head, int n_cut);
size_t choose_scratch(const struct method_state *s);

/* decide.c: whether a row decides at this phase, before query t; whether its shares are known,
 * working them out once a head is over the budget; cutting what was chosen, and opening the slots
 * of newcomers. */
bool decide_acts(const struct method_state *s, enum phase phase, int32_t t);
bool decide_shares(const struct round *r);
int decide_apply(struct round *r, eviction_fn fn, void *ctx, int64_t *cuts);
int decide_reopen(struct method_state *s, struct cache *c);

enum { SHORTLIST = 16 }; /* longest list that is worth it */
/* shortlist.c: the k worst of a head, in order, to candidate (sets n_listed).  score: by
 * slot, of protected slots it may be overwritten; unused where scores rise with the
 * position. */
void shortlist_fill(const struct round *r, int head, int k, float *score);
/* Whether scores are made in order of time, and the same from such scores of the candidates. */
bool shortlist_by_ranks(const struct method_state *s);
void shortlist_fill_ranks(const struct round *r, int head, int k, float *score);
/* How many of each of the pool's heads are worth listing; 0: all. */
int shortlist_length(const struct round *r, int pool, int heads);
/* What a score is given of a head. */
struct score_input shortlist_input(const struct round *r, int head);
/* Where the candidates of a head begin and end in order of time; returns how many. */
int shortlist_range(const struct round *r, int head, int *ret_first, int *ret_end);
/* Counts in n_cut the `lost` worst of all listed heads; each keeps its best `even`. */
void shortlist_merge(const struct round *r, int first, int end, int64_t lost, int64_t even,
                     float *scratch);

/* method.c: first query of a layer whose window has left an entry behind; CACHE_STAYS: it sees
 * everything. */
int32_t method_window_end(const struct method_state *s, int layer, int32_t pos);

/* select.c: the order is candidate_worse() of ranking.h. */
/* c[0 .. k) become the k worst of n, in any order, and c[k] the worst of the rest. */
void select_worst(struct candidate *c, int64_t n, int64_t k, enum tie_rule tie);
/* Inserts x into a sorted list of n candidates that keeps the k worst.  Returns the new n. */
int select_insert(struct candidate *list, int n, int k, const struct candidate *x,
                  enum tie_rule tie);
/* Sorts candidates, the worst first. */
void select_order(struct candidate *c, int n, enum tie_rule tie);
/* Returns the tie rule of the preset. */
static inline enum tie_rule tie_of(const struct method_state *s)
{
    return (enum tie_rule)s->params.tie;
}

/* options.c */
int method_options_parse(struct method *m, const char *text, int budget,
                         struct method_params *ret_params, struct kvf_diag *d);

/* resolve.c: works out what is METHOD_DERIVED from the row's numbers and the budget, and checks
 * that row and budget can be. */
enum { METHOD_DERIVED = -1 }; /* sinks, recent, window, every and local that were not given */
int method_resolve(const struct method *m, struct method_params *p, struct kvf_diag *d);

#endif

/* state.h - the running state of a method; private to engine/method/. */
#ifndef KVF_ENGINE_METHOD_STATE_H
#define KVF_ENGINE_METHOD_STATE_H

#include "engine/kernels/ranking.h"
#include "engine/method/evidence.h"
#include "engine/method/decisions.h"

struct method_state {
    struct method_state *next; /* the chain: presets of other heads */
    unsigned char *owned;      /* [L * H]; NULL: all heads */
    struct method row;
    const struct method *method; /* &row */
    struct method_params params;
    struct method_shape shape;
    struct method_inputs inputs;
    unsigned char *protect; /* [n_protect] 1: the position is never evicted; NULL: none is */
    int n_protect;
    struct kernels kernels;
    struct evidence evidence;
    int32_t next_decision;
    double alpha_from;     /* duo: heads with an alpha below stream */
    int *share;            /* [L] entries per head */
    int *head_share;       /* [L * H] entries of each head instead; NULL: `share` */
    double *share_weight;  /* [L] weights that give `share`, once shares_known */
    double *share_scratch; /* [L] */
    bool shares_known;
    int cap; /* slots per head */
    /* The current decision, per KV head.  With SCOPE_LAYER head 0 decides for its layer. */
    unsigned char *due; /* [L * H] 1: the head's pool is over its share */
    int64_t *target;    /* [pools] entries that may stay; -1: no eviction */
    int64_t *over;      /* [pools] entries to evict */
    int64_t *go, *may;  /* [L * H] of device_eviction.c; NULL until its first call */
    int *n_candidates;  /* [L * H] */
    int *n_listed;      /* [L * H] worst candidates, listed in order; 0: all, in any order */
    struct candidate *candidate; /* [L * H][cap] */
    int *heap;                   /* [L * H] scratch of merging */
    struct candidate *pooled;    /* [L * H][cap] if heads share a budget; else NULL */
    int *n_cut;                  /* [L * H] */
    int32_t *victim;     /* [L * H][cap] evicted slots, worst first; then the worst kept, or -1 */
    float *value;        /* [L * H][cap] scores by slot if heads share a budget; else NULL */
    unsigned char *keep; /* [n_keeps][cap] scratch of evicting */
    int n_keeps;
    int32_t *pair;             /* [2 * cap] scratch of reporting */
    struct lows *lows;         /* [L * H] if lows_kept(), else NULL (lows.h) */
    struct peaks_state *peaks; /* if peaks_kept(), else NULL (peaks.h) */
    float *scratch;            /* [threads][scratch_len] */
    size_t scratch_len;
    int n_threads;
};

/* A round of decisions before query t (incoming 1), or after a query or a prompt (incoming 0). */
struct round {
    struct method_state *s;
    struct cache *cache;
    int32_t t;
    int incoming;
};

/* choose.c: fills n_cut and victim. */
/* Returns true if any head is over the budget. */
bool choose_over(const struct round *r);
/* Returns true if any pool is over its share.  Sets due, target and over. */
bool choose_due(const struct round *r);
/* Returns the number of steps, up to n and from step t on, in which no head of a preset with
 * cut=always can exceed its share if nothing is evicted.  Each step adds one entry to each head.  0
 * or less: the next step can, or the shares can change. */
int choose_free_steps(struct method_state *s, struct cache *c, int32_t t, int n);
/* Returns the number of pools: sets of heads that share one budget. */
int choose_pools(const struct method_state *s);
/* Prefetches the positions that limit the candidates of head `at`, if there is such a head. */
void choose_ask_limits(const struct round *r, int at);
void choose_score(void *round, int kv_head, int thread); /* task of [L * H] */
void choose_pool(void *round, int pool, int thread);     /* task of [pools] */
/* Totals over the due heads of a pool, once their candidates are counted: entries, unprotected
 * entries (candidates), candidates that may stay (places), and heads. */
struct choose_numbers {
    int64_t total, candidates, places;
    int heads;
};
struct choose_numbers choose_numbers(const struct round *r, int pool);
/* Sets n_cut of the heads of a pool without scores: for pools of one head, or triggers with
 * `rounds`. */
void choose_counts(const struct round *r, int pool);
/* Returns the minimum number of its best candidates that each head of a pool keeps. */
int64_t choose_floor(const struct method_state *s, int64_t places, int heads);
/* Sets victim: the first n_cut candidates of a head are evicted, [n_cut] is the worst kept. */
void choose_victims(struct method_state *s, int head, int n_cut);
/* Returns the floats of scratch that one thread needs. */
size_t choose_scratch(const struct method_state *s);

/* decide.c: returns true if a preset takes decisions at this phase, before query t. */
bool decide_acts(const struct method_state *s, enum phase phase, int32_t t);
/* Returns true if the shares are known.  Computes them once a head is over the budget. */
bool decide_shares(const struct round *r);
/* Reports and evicts the chosen entries.  *cuts grows by their number.  KVF_OK or KVF_E_NOMEM. */
int decide_apply(struct round *r, eviction_fn fn, void *ctx, int64_t *cuts);
/* Reopens the filled slots of evicted entries for new entries.  KVF_OK or KVF_E_NOMEM. */
int decide_reopen(struct method_state *s, struct cache *c);

enum { SHORTLIST = 16 }; /* maximum length at which a list is faster than scoring all */
/* shortlist.c: lists the k worst candidates of a head, in order, in `candidate`, and sets n_listed.
 * score: by slot; scores of protected slots may be overwritten.  Scores that rise with the position
 * do not need it. */
void shortlist_fill(const struct round *r, int head, int k, float *score);
/* Returns true if the preset's scores are computed in order of time (eval_ranks). */
bool shortlist_by_ranks(const struct method_state *s);
/* Lists as shortlist_fill() does.  score: of the candidates, in order of time. */
void shortlist_fill_ranks(const struct round *r, int head, int k, float *score);
/* Returns how many candidates of each head of a pool to list; 0: all. */
int shortlist_length(const struct round *r, int pool, int heads);
/* Returns the input of a score for a head. */
struct score_input shortlist_input(const struct round *r, int head);
/* Finds the range [*ret_first, *ret_end) of a head's candidates in order of time.  Returns its
 * length. */
int shortlist_range(const struct round *r, int head, int *ret_first, int *ret_end);
/* Sets n_cut of the listed heads so that the `lost` worst candidates of all are evicted.  Each head
 * keeps its best `even`. */
void shortlist_merge(const struct round *r, int first, int end, int64_t lost, int64_t even,
                     float *scratch);

/* method.c: returns the first query whose window in the layer excludes the entry at pos, or
 * NEVER_EXPIRES if the layer has no window. */
int32_t method_window_end(const struct method_state *s, int layer, int32_t pos);

/* select.c: the order is candidate_worse() of ranking.h. */
/* Partitions c[0 .. n): c[0 .. k) become the k worst, in any order, and c[k] the worst of the rest.
 */
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

/* names.c: finds a preset by the n bytes of a name.  ret has the alias that was found, without
 * options if it is the preset's own name.  Returns NULL if there is none. */
const struct method *method_find(const char *name, size_t n, struct method_alias *ret);
/* Appends "PRESET:key=value,..." for a text with a name or an alias: the options of the alias, then
 * those of the text.  Returns KVF_OK, the buffer's error, or KVF_E_ARG for an unknown name. */
int method_expand(const char *text, struct buf *out, const struct method **ret, struct kvf_diag *d);

/* options.c: returns key i of those that choose a part, a variant or the budget; NULL behind the
 * last. */
const char *method_part_key(int i);
/* options.c: returns true if two keys are equal.  A "-" in `a` equals a "_" in `b`. */
bool method_same_key(const char *a, const char *b);
/* options.c: parses the options of a preset.  Errors: as for method_parse_for(). */
int method_options_parse(struct method *m, const char *text, const struct budget *budget,
                         const struct budget_prompt *prompt, struct method_params *ret_params,
                         struct kvf_diag *d);

/* resolve.c: computes the parameters that are METHOD_DERIVED from the preset and the budget, and
 * checks that they are possible together. */
enum { METHOD_DERIVED = -1 }; /* sinks, recent, window, every, local or reads: not given */
int method_resolve(const struct method *m, struct method_params *p, struct kvf_diag *d);
/* Derives `recent` and `every` from the budget and the protected tokens, and checks that all fit.
 */
int method_fit(const struct method *m, struct method_params *p, struct kvf_diag *d);

/* protect.c: returns true if a text is a value of the option `protect`. */
bool protect_valid(const char *text);
/* Marks the protected positions of a state.  KVF_OK, or an error of method_protect(). */
int protect_create(struct method_state *s);
/* Returns true if the entry at a position must not be evicted. */
static inline bool is_protected(const struct method_state *s, int32_t pos)
{
    return pos < s->n_protect && s->protect[pos];
}

#endif

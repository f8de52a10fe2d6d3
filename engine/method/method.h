/* method.h - what decides the fate of cache entries.
 *
 * A method is a row of parts: admission x score x allocation x trigger x read.
 * Each part is one file with one const struct, listed in the table of its kind;
 * presets.c spells the published methods as rows.  `--method NAME:key=value`
 * picks a row and overrides its numbers.  docs/methods.md states the equation
 * and the source of each.
 *
 * Time.  The query of step t sees the entries that are in the cache when its
 * attention runs, its own included.  Decisions are taken just before the
 * newcomer of step t is appended, from the evidence of the queries up to t - 1,
 * and after the last prompt token.  An entry cut then has evict_step = t.
 *
 * Budget.  After the prompt every query of a head sees at most B entries, itself
 * included: the prompt is cut to B, and before each later token to B - 1. */
#ifndef KVF_ENGINE_METHOD_H
#define KVF_ENGINE_METHOD_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>
#include <kvf/schema.h>

#include "engine/cache/cache.h"

struct method_state;

/* Numbers of a row; -1 = the preset's choice or, for windows, min(published,
 * B/4).  Stored in the trace with their effective values. */
struct method_params {
    int budget;  /* B; 0 = unlimited */
    int sinks;   /* first positions that are never cut */
    int recent;  /* newest positions that are never cut, the newcomer included */
    int window;  /* queries whose attention rows are the evidence */
    int pool;    /* width of the pooling over neighbours; 1 = none; odd */
    int pool_kind; /* enum pool_kind */
    int group;     /* enum group_kind: over query heads */
    int across;    /* enum across_kind: over the window's queries */
    int support;   /* enum support_kind: what a row's weights sum to 1 over */
    int every;     /* tokens between cuts */
    double history, lambda, gamma, floor, beta; /* docs/methods.md */
    int64_t seed;
};
enum pool_kind { POOL_MAX, POOL_AVG };
enum group_kind { GROUP_MEAN, GROUP_MAX, GROUP_SUM };
enum across_kind { ACROSS_MEAN, ACROSS_MAX };
enum support_kind { SUPPORT_ALL, SUPPORT_CANDIDATES }; /* everything seen; unprotected entries */

/* One attention row, seen by the thread that computed it.  Rows of one query
 * head come in rising t; different heads may come at once. */
struct attn_row {
    int layer, head; /* query head */
    int32_t t;       /* position of the query */
    int n;           /* entries it saw */
    const float *p;  /* [n] attention weights in slot order */
};

enum { /* what a score needs; bits */
    EVIDENCE_SUM = 1u << 0,     /* running sum of the attention each entry received */
    EVIDENCE_WINDOW = 1u << 1,  /* the attention rows of the last `window` queries */
    EVIDENCE_KEYS = 1u << 2,    /* the stored key of each entry, scaled to length 1 */
    EVIDENCE_NORMS = 1u << 3,   /* the length of the stored key */
    EVIDENCE_HISTORY = 1u << 4, /* a score remembered from the last cut */
    EVIDENCE_ANCHOR = 1u << 15, /* the sum of the unit keys of a head; needs EVIDENCE_KEYS */
};

enum { RECENT_REST = -1, RECENT_HALF = -2, RECENT_WINDOW = -3 };
enum { EVERY_HALF = -1 }; /* B / 2 */

enum scope { SCOPE_HEAD, SCOPE_LAYER }; /* for whom one set of entries is chosen */

/* Scores of the entries of one KV head; larger is worth more. */
struct score_input {
    const struct method_state *m;
    const struct cache *cache;
    int layer, head; /* KV head */
    struct cache_head view;
    int32_t recent_from; /* entries at this position or later are protected */
};

enum { /* options that change a part; others are refused */
    USES_WINDOW = 1u << 0, USES_POOL = 1u << 1, USES_GROUP = 1u << 2, USES_SEED = 1u << 3,
    USES_ACROSS = 1u << 4, USES_HISTORY = 1u << 5, USES_LAMBDA = 1u << 6, USES_GAMMA = 1u << 7,
    USES_FLOOR = 1u << 8, USES_BETA = 1u << 9,
};

enum { KEYS_AS_PAGE = -1 }; /* 2 PAGE_SLOTS (head_dim + PAGE_SLOTS) floats instead */

struct score {
    const char *name, *summary;
    unsigned evidence; /* EVIDENCE_* */
    unsigned uses;     /* USES_* */
    int scratch_rows;  /* how many times n floats eval needs beyond 4; KEYS_AS_PAGE */
    /* out[slot] for all view.n slots.  scratch: (4 + scratch_rows) * n +
     * 4 * head_dim floats.  Runs in parallel over heads. */
    void (*eval)(const struct score_input *in, float *out, float *scratch);
};

struct admission { /* does a newcomer enter the cache? */
    const char *name, *summary;
    bool (*admit)(const struct method_state *m, int layer, int head, int32_t pos);
};

struct allocation { /* how much of the budget a head gets */
    const char *name, *summary;
    unsigned uses;
    bool pooled; /* the heads of a layer share their places, dealt out at every cut */
    /* Entries per head for each layer; their sum is at most L * budget.  Called
     * once, when the heads first would exceed the budget: with a budget of all
     * tokens nothing is ever cut.  scratch: [L]. */
    void (*shares)(const struct method_state *m, const struct cache *c, int32_t recent_from,
                   double *scratch, int *ret_share);
};

struct trigger { /* when entries are cut, and how far */
    const char *name, *summary;
    /* Entries of a head that may stay, given n now; n or more = nothing to do.
     * incoming: 1 before a token, 0 after the prompt.  For pooled heads n and
     * the result are per head on average, rounded up. */
    int (*target)(const struct method_state *m, int share, int n, int incoming);
};

struct read { /* which of the kept entries a query reads */
    const char *name, *summary;
    bool all; /* every entry */
};

struct method {
    const char *name, *summary, *source;
    const struct admission *admission;
    const struct score *score; /* NULL: nothing is ever cut */
    const struct allocation *allocation;
    const struct trigger *trigger;
    const struct read *read;
    enum scope scope;
    enum kvf_reason reason;       /* recorded with each eviction */
    int sinks, window;            /* published numbers */
    int recent;                   /* or RECENT_REST (B - sinks), RECENT_HALF (B / 2),
                                     RECENT_WINDOW (the window) */
    int pool;
    enum pool_kind pool_kind;
    enum group_kind group;
    enum across_kind across;
    enum support_kind support;
    int every;      /* 0: 1; or EVERY_HALF */
    bool normalise; /* divide both sides of lambda by their maximum */
    double history, lambda, gamma, floor, beta;
};

/* The tables; each ends with NULL (presets: .name == NULL). */
extern const struct admission *const admission_table[];
extern const struct score *const score_table[];
extern const struct allocation *const allocation_table[];
extern const struct trigger *const trigger_table[];
extern const struct read *const read_table[];
extern const struct method method_presets[];

/* Parses "NAME" or "NAME:key=value,..." (keys: docs/methods.md).  KVF_E_ARG with
 * a sentence for unknown names, keys and values and for combinations that cannot
 * hold the budget. */
int method_parse(const char *text, int budget, const struct method **ret_method,
                 struct method_params *ret_params, struct kvf_diag *d);

/* Option i as it runs: its key, and its value as a word or a number.  NULL after
 * the last. */
const char *method_option(const struct method_params *p, int i, const char **ret_word,
                          double *ret_number);

struct method_shape {
    int n_layers, n_heads, n_kv_heads, head_dim; /* n_heads: query heads */
};

/* One eviction, reported in the order of decision. */
struct eviction {
    int layer, head; /* KV head */
    int32_t pos, t;  /* the entry; first query that no longer sees it */
    enum kvf_reason reason;
    float score, margin; /* NaN: no score.  margin: worst kept - score */
    bool tie;            /* an entry of equal score was kept */
};
typedef void (*eviction_fn)(void *ctx, const struct eviction *e);

int method_state_create(const struct method *m, const struct method_params *p,
                        const struct method_shape *shape, struct method_state **ret_state);
void method_state_destroy(struct method_state *s); /* accepts NULL */
const struct method *method_of(const struct method_state *s);
const struct method_params *method_params_of(const struct method_state *s);
const struct method_shape *method_shape_of(const struct method_state *s);

/* Room for entries up to `slots` per head in the evidence, and what rows can
 * matter: no decision will be taken before query next_decision.  KVF_OK or
 * KVF_E_NOMEM. */
int method_prepare(struct method_state *s, int slots, int32_t next_decision);

/* An entry was appended to a KV head: its evidence starts at 0.  Threads may
 * call it for different heads at once. */
void method_appended(struct method_state *s, const struct cache *c, int layer, int head, int slot);

/* Whether the rows of query t are evidence for any decision. */
bool method_wants_row(const struct method_state *s, int32_t t);

/* Takes evidence from a row (any thread, see struct attn_row). */
void method_row(struct method_state *s, const struct attn_row *row);

/* Cuts what the trigger asks for, in all layers.  t: the first query that will
 * not see what is cut; incoming: 1 = before the newcomer t, 0 = after a prompt.
 * pool may be NULL.  fn gets every eviction, layers and heads rising, positions
 * rising within one cut.  KVF_OK or KVF_E_NOMEM (nothing was cut then). */
struct par;
int method_decide(struct method_state *s, struct cache *c, int32_t t, int incoming,
                  struct par *pool, eviction_fn fn, void *ctx);

/* The kernels that the scores use; to be called before the first decision, else they
 * are the C reference. */
void method_use_kernels(struct method_state *s, const struct kernels *k);

/* For score and allocation parts. */
const struct kernels *method_kernels(const struct method_state *s);
/* Attention each slot received, as query head g of the layer gave it. [slots] */
const double *evidence_sum(const struct method_state *s, int layer, int query_head);
/* Attention row of the age-th newest query (0 = newest), [slots]; *ret_t: the query,
 * *ret_n: entries it saw; may be NULL.  An entry at a position after ret_t got nothing:
 * what lies in its slot is not its own. */
const float *evidence_row(const struct method_state *s, int layer, int query_head, int age,
                          int32_t *ret_t, int *ret_n);
int evidence_rows(const struct method_state *s, int layer, int query_head); /* held, <= window */
const float *evidence_key(const struct method_state *s, int layer, int head, int slot);
const float *evidence_norms(const struct method_state *s, int layer, int head); /* [slots] */
/* The sum of the unit keys of the n entries of a head, [head_dim]: in whole units of 2^-32,
 * hence exact.  For one caller per head at a time. */
const double *evidence_anchor(const struct method_state *s, int layer, int head, int n);
/* Remembered scores, NaN = none; the score part may write them. [slots] */
float *evidence_history(const struct method_state *s, int layer, int head);

/* Query heads [*first, *first + *n) that decide together for KV head `head`. */
void method_group(const struct method_state *s, int head, int *ret_first, int *ret_n);

#endif

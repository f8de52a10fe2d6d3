/* method.h - what decides the fate of cache entries.
 *
 * A method is a row of parts: admission x score x allocation x trigger x read.
 * Each part is one file with one const struct and one line in the list of its kind
 * (parts.h says how to add one); presets.c spells the published methods as rows.
 * `--method NAME:key=value` picks a row and overrides its numbers.
 * docs/reference/methods.md states the equation and the source of each.
 *
 * Time.  The query of step t sees the entries that are in the cache when its
 * attention runs, its own included.  Decisions are taken after the prompt, and
 * just before the newcomer of step t is appended (order=before: evidence of the
 * queries up to t - 1; what is cut has evict_step = t) or after its query ran
 * (order=after; evict_step = t + 1).  Admission may fix at birth from which step on
 * an entry is not seen any more.
 *
 * Budget.  After the prompt every query of a head sees at most B entries, itself
 * included: the prompt is cut to B, and before each later token to B - 1.
 *
 * Chains.  Different KV heads may have different rows: their states form a chain,
 * each owning its heads.  Every function that takes the state of a session takes
 * the first of the chain.
 *
 * To add a row NAME:
 * 1. One entry of method_presets in presets.c, before the last: its parts, what was published, and
 *    in .code the options of variant=code.
 * 2. docs/reference/methods.md: `## NAME` with equation, source, where paper and published code
 *    differ, Options and Cost; its line in the overview.  tests/cli/test_methods.py compares them.
 * 3. tests/oracle/: its parts and numbers in rows.py, its definition, written from the document
 *    alone, in methods*.py, its name in meson.build.  contract.py and properties.py run over all
 *    rows.
 *
 * To add an option:
 * 1. A member of struct method_params, its line in the table of options.c, and a USES_ bit that
 *    the parts it changes set.  What a budget makes of it, if anything: resolve.c.
 * 2. docs/reference/methods.md: its line in the table of options and in the Options of rows.
 *    tests/cli/test_methods.py tries its range, and that other rows refuse it. */
#ifndef KVF_ENGINE_METHOD_H
#define KVF_ENGINE_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>
#include <kvf/schema.h>

#include "engine/cache/cache.h"
#include "engine/gate/gate.h"
#include "engine/model/config.h"

struct method_state;

/* Numbers of a row.  In a struct method they are as published, 0 where nothing is; method_parse
 * gives those that hold under a budget, which the trace tells.  Each has its line in the table
 * of options. */
struct method_params {
    int budget;    /* B; 0 = unlimited */
    int sinks;     /* first positions that are never cut */
    int recent;    /* newest positions that are never cut, the newcomer included; as
                      published also enum method_recent */
    int window;    /* queries whose attention rows are the evidence */
    int pool;      /* width of the pooling over neighbours; odd; 1 = none, also 0 */
    int pool_kind; /* enum pool_kind */
    int group;     /* enum group_kind: over query heads */
    int across;    /* enum across_kind: over the window's queries */
    int support;   /* enum support_kind: what a row's weights sum to 1 over */
    int every;     /* tokens between cuts; as published also EVERY_HALF */
    int order;     /* enum cut_order */
    int slack;     /* entries above a share that are tolerated */
    int chunk;     /* tokens of the prompt between cuts; 0 = the whole prompt */
    int positions; /* enum position_mode */
    int tie;       /* enum tie_rule */
    int stride;    /* cuts after the prompt come one token after a multiple of it; 0 = any */
    int slots;     /* enum slot_order: which entry the redundancy of keys calls the last */
    int divide;    /* enum divide_kind: of the attention received */
    int offset, lookahead; /* of the retention score */
    int local;             /* newest entries that admission leaves alone */
    int compare;           /* enum compare_rule: gate against tau */
    int horizon;           /* positions ahead of the expected queries */
    int page;              /* entries that are read together */
    int dense;             /* first layers that read everything */
    int fold;              /* enum fold_kind: of a remembered score and that of this cut */
    double history, lambda, gamma, floor, beta; /* docs/reference/methods.md */
    double tau, fraction, epsilon, sparsity;
    int64_t seed;
};
enum method_recent {
    RECENT_REST = -1,   /* B - sinks */
    RECENT_HALF = -2,   /* B / 2 */
    RECENT_WINDOW = -3, /* the window */
    RECENT_LOCAL = -4,  /* what admission leaves alone */
};
enum { EVERY_HALF = -1 }; /* B / 2 */
enum pool_kind { POOL_MAX, POOL_AVG };
enum group_kind { GROUP_MEAN, GROUP_MAX, GROUP_SUM, GROUP_NONE, GROUP_MAX_LOGITS };
enum fold_kind { FOLD_MAX, FOLD_AVERAGE, FOLD_SUM };
enum across_kind { ACROSS_MEAN, ACROSS_MAX };
enum support_kind { SUPPORT_ALL, SUPPORT_CANDIDATES }; /* everything seen; unprotected entries */
enum cut_order { ORDER_BEFORE, ORDER_AFTER };
enum position_mode { POSITIONS_ORIGINAL, POSITIONS_CACHE };
enum tie_rule { TIE_NEWER, TIE_OLDER }; /* which of equal scores is kept */
enum compare_rule { COMPARE_GE, COMPARE_GT };
enum slot_order {
    SLOTS_TIME,
    SLOTS_SCORE
}; /* what the last cut kept stands in order of its scores */
enum divide_kind { DIVIDE_NONE, DIVIDE_QUERIES }; /* by how many queries saw the entry */

/* One attention row, seen by the thread that computed it.  Rows of one query
 * head come in rising t; different heads may come at once. */
struct attn_row {
    int layer, head; /* query head */
    int32_t t;       /* position of the query */
    int n;           /* slots */
    int seen;        /* entries it saw: the others have weight 0 */
    bool stepping;   /* a token after the prompt */
    const float *p;  /* [n] attention weights in slot order */
    float lse;       /* ln of the sum of exp(logit) over what it saw: logit = ln p + lse */
    const unsigned char *visible; /* [n] 1: it saw the entry; NULL: all */
};

enum {                             /* what a score needs; bits */
       EVIDENCE_SUM = 1u << 0,     /* running sum of the attention each entry received */
       EVIDENCE_WINDOW = 1u << 1,  /* the attention rows of the last `window` queries */
       EVIDENCE_KEYS = 1u << 2,    /* the stored key of each entry, scaled to length 1 */
       EVIDENCE_NORMS = 1u << 3,   /* the length of the stored key */
       EVIDENCE_HISTORY = 1u << 4, /* a score remembered from the last cut */
       EVIDENCE_GATE = 1u << 5,    /* the number that the gates gave the entry at birth */
       EVIDENCE_VALUES = 1u << 6,  /* the length of the stored value */
       EVIDENCE_MOMENTS = 1u << 7, /* mean and covariance of the unrotated queries */
       EVIDENCE_PAGES = 1u << 8,   /* least and largest of each channel of a page's keys */
       EVIDENCE_BLOCKS = 1u << 9,  /* the gate keys of blocks of unrotated keys */
       EVIDENCE_TWIN = 1u << 10,   /* attention of a full-cache twin, by position */
       EVIDENCE_NOTE = 1u << 12,   /* a number that the score works out once per entry */
       EVIDENCE_SPREAD = 1u << 13, /* sums of weights and squares; needs EVIDENCE_WINDOW */
       EVIDENCE_ANCHOR = 1u << 11, /* the sum of the unit keys of a head; needs EVIDENCE_KEYS */
};

enum scope { SCOPE_HEAD, SCOPE_LAYER }; /* for whom one set of entries is chosen */
enum pool_scope { POOL_HEAD, POOL_LAYER, POOL_ALL };

/* Scores of the entries of one KV head; larger is worth more. */
struct score_input {
    const struct method_state *m;
    const struct cache *cache;
    int layer, head; /* KV head */
    struct cache_head view;
    int32_t recent_from; /* entries at this position or later are protected */
    int32_t t;           /* tokens fed so far: the next query's position */
    int incoming;        /* 1: before the newcomer t; a twin has run its query already */
};

enum { /* options that change a part; others are refused */
       USES_WINDOW = 1u << 0,
       USES_POOL = 1u << 1,
       USES_GROUP = 1u << 2,
       USES_SEED = 1u << 3,
       USES_ACROSS = 1u << 4,
       USES_HISTORY = 1u << 5,
       USES_LAMBDA = 1u << 6,
       USES_GAMMA = 1u << 7,
       USES_FLOOR = 1u << 8,
       USES_BETA = 1u << 9,
       USES_RETENTION = 1u << 10,
       USES_LOCAL = 1u << 11,
       USES_TAU = 1u << 12,
       USES_FRACTION = 1u << 13,
       USES_EXPECTED = 1u << 14,
       USES_PAGE = 1u << 15,
       USES_SPARSITY = 1u << 16,
       USES_SPANS = 1u << 17, /* sinks and recent, where nothing is scored */
       USES_SLOTS = 1u << 18,
       USES_DIVIDE = 1u << 19,
};

enum {
    KEYS_AS_PAGE = -1, /* 2 PAGE_SLOTS (head_dim + PAGE_SLOTS) floats instead */
    MOMENTS_AS_ROWS = -2
}; /* (head_dim + 2) * head_dim floats instead */

struct score {
    const char *name, *summary;
    unsigned evidence;     /* EVIDENCE_* */
    unsigned uses;         /* USES_* */
    unsigned gates;        /* 1 << enum gate_kind that it needs */
    bool calibrated;       /* scores mean the same in all heads */
    bool needs_mass;       /* the attention of the whole run, from a plan */
    bool rising;           /* it is the position */
    bool peaks;            /* it is the window's, as it is (peaks.h) */
    int scratch_rows;      /* how many times n floats eval needs beyond 4; KEYS_AS_PAGE */
    const char *cost;      /* operations of eval, up to a constant: a decision about one KV head
                              with n entries, g query heads, w rows and D channels */
    const char *cost_rows; /* the same with across=max or support=candidates; NULL: as cost */
    /* out[slot] for all view.n slots.  scratch: (4 + scratch_rows) * n +
     * 4 * head_dim floats.  Runs in parallel over heads. */
    void (*eval)(const struct score_input *in, float *out, float *scratch);
    /* The scores of the candidates in order of time, where neighbours are pooled (pool > 1), to
     * out[0 ..]; as eval gives them by slot.  NULL: there is no shorter way. */
    void (*eval_ranks)(const struct score_input *in, float *out, float *scratch);
    /* The score of one entry, which eval gives too; NULL: there is no short way.  From token to
     * token such scores do not fall; or, `falls`, from one token to a later one they never lie
     * below both ends. */
    float (*one)(const struct score_input *in, int slot);
    bool falls;
};

struct admission { /* how long is a newcomer seen, whatever the budget? */
    const char *name, *summary;
    unsigned uses, gates;
    enum kvf_reason reason;
    /* Works out, once, what holds for the whole run; NULL: nothing.  KVF_OK or KVF_E_NOMEM. */
    int (*prepare)(struct method_state *m);
    /* First query that does not see it; NULL: CACHE_STAYS for all.  gate: its number. */
    int32_t (*until)(const struct method_state *m, int layer, int head, int32_t pos, float gate);
    /* Score and margin of an entry that leaves so; NULL: none. */
    void (*judge)(const struct method_state *m, float gate, float *ret_score, float *ret_margin);
};

struct allocation { /* how much of the budget a head gets */
    const char *name, *summary;
    unsigned uses, evidence; /* evidence: what its shares need of the score's */
    enum pool_scope pool;    /* heads that share their places, dealt out at every cut */
    /* Weights >= 0 by which layers share their places (shares.h); NULL: every head has the budget.
     * Called when the heads first would exceed the budget: with a budget of all tokens nothing is
     * ever cut.  Without evidence it is called again at each later cut.  reach: tokens that have
     * come.  ret_weight: [L]. */
    void (*weights)(const struct method_state *m, const struct cache *c, int32_t reach,
                    int32_t recent_from, double *ret_weight);
};

struct trigger { /* when entries are cut, and how far */
    const char *name, *summary;
    unsigned uses;
    bool rounds; /* every head drops a fraction of its candidates, until the sum fits */
    /* Entries of a head that may stay, given n now; n or more = nothing to do.
     * incoming: 1 before a token, 0 after the prompt.  For pooled heads n and
     * the result are per head on average, rounded up. */
    int (*target)(const struct method_state *m, int share, int n, int incoming);
};

/* The query heads that decide together which pages they read. */
struct read_input {
    const struct method_state *m;
    const struct cache *cache;
    const struct kernels *kernels;
    int layer, head; /* KV head */
    struct cache_head view;
    int32_t t; /* the query's position */
    enum kv_type kv_type;
    const float *q, *q_pre; /* first query head's [head_dim], rotated and not; heads adjoin */
    int n_q, n_pages;
};

struct read { /* which of the kept entries a query after the prompt reads */
    const char *name, *summary;
    unsigned uses, evidence, gates;
    bool all;         /* every entry */
    bool shared;      /* one choice for the query heads of a KV head */
    const char *cost; /* as of a score, for one query of the KV head; p entries in a page,
                         d numbers in the vector of a block gate */
    /* out[page], larger is read first.  scratch: read_scratch floats. */
    void (*eval)(const struct read_input *in, float *out, float *scratch);
};

struct method {
    const char *name, *summary, *source;
    const char *code; /* options of variant=code; NULL: none differ */
    const struct admission *admission;
    const struct score *score; /* NULL: nothing is ever cut for the budget */
    const struct allocation *allocation;
    const struct trigger *trigger;
    const struct read *read;
    enum scope scope;
    enum kvf_reason reason;      /* recorded with each eviction */
    bool normalise;              /* divide both sides of lambda by their maximum */
    bool free;                   /* a budget is not needed: without one only admission limits */
    bool unbudgeted;             /* a budget would mean nothing */
    struct method_params params; /* as published */
};

/* The tables; each ends with NULL (presets: .name == NULL). */
extern const struct admission *const admission_table[];
extern const struct score *const score_table[];
extern const struct allocation *const allocation_table[];
extern const struct trigger *const trigger_table[];
extern const struct read *const read_table[];
extern const struct method method_presets[];

/* Parses "NAME" or "NAME:key=value,..." (keys: docs/reference/methods.md) into a row of its
 * own.  budget: 0 = none given.  KVF_E_ARG with a sentence for unknown names, keys
 * and values and for combinations that cannot hold the budget. */
int method_parse(const char *text, int budget, struct method *ret_method,
                 struct method_params *ret_params, struct kvf_diag *d);

/* Whether "NAME:..." names a row that a budget means nothing to. */
bool method_unbudgeted(const char *text);

/* What of a gate file a row needs: 1 << enum gate_kind, or 0. */
unsigned method_gates(const struct method *m);
/* Whether the row gets what it needs: KVF_E_ARG with a sentence. */
struct method_inputs;
int method_check_inputs(const struct method *m, const struct method_inputs *in, struct kvf_diag *d);
/* Whether a row keeps one cache per query head. */
bool method_per_query_head(const struct method *m, const struct method_params *p);

enum method_option_kind {
    OPTION_WHOLE, /* int */
    OPTION_LARGE, /* int64_t */
    OPTION_REAL,  /* double */
    OPTION_WORD,  /* int: a place in `words` */
};

/* A number of a row that "--method NAME:key=value" sets. */
struct method_option {
    const char *key, *help;
    enum method_option_kind kind;
    size_t offset; /* in struct method_params */
    double min, max;
    const char *const *words; /* of OPTION_WORD; ends with NULL */
    unsigned uses; /* USES_* of parts that make it count; 0: every row that evicts for its budget */
    unsigned also; /* USES_* that make it count although nothing is scored */
    bool tacit;    /* a trace tells it only where it is not 0 or the first word: in traces of before
                      there was a choice it was that */
};
extern const struct method_option method_options[]; /* ends with .key == NULL */

/* Whether an option changes anything in a row: else giving it is refused. */
bool method_option_counts(const struct method_option *o, const struct method *m);
double method_option_value(const struct method_option *o, const struct method_params *p);
/* Its value as a word; NULL: it is a number. */
const char *method_option_word(const struct method_option *o, const struct method_params *p);

/* Whether the row can run without a budget. */
bool method_needs_budget(const struct method *m);

struct method_shape {
    int n_layers, n_heads, n_kv_heads, head_dim; /* n_heads: query heads */
};

/* Whether a text may be longer than `context`: positions are ranks in the cache, and no query sees
 * more than `context` entries, if the prompt (without chunk) has at most as many tokens.  Methods
 * that compare with the full cache or need its attention may not. */
bool method_outlives(const struct method *m, const struct method_params *p,
                     const struct method_shape *shape, int context);

/* EVIDENCE_* that the parts of a row take. */
unsigned method_row_evidence(const struct method *m);
/* Cost of one decision, or of one choice of pages (struct score, struct read); "1":
 * nothing is looked at. */
const char *method_cost(const struct method *m, const struct method_params *p);
/* Bytes that a row remembers per entry of a KV head, beside keys and values: its
 * evidence, without the scratch of decisions.  Gate vectors of blocks count gate_dim. */
double method_state_bytes(const struct method *m, const struct method_params *p,
                          const struct method_shape *shape, int gate_dim);

/* One eviction, reported in the order of decision. */
struct eviction {
    int layer, head; /* KV head */
    int32_t pos, t;  /* the entry; first query that no longer sees it */
    enum kvf_reason reason;
    float score, margin; /* NaN: no score.  margin: worst kept - score */
    bool tie;            /* an entry of equal score was kept */
    int32_t rank;        /* candidates of the head that went before it; -1: no score */
};
typedef void (*eviction_fn)(void *ctx, const struct eviction *e);

/* What a row is given beside its numbers; all borrowed. */
struct method_inputs {
    const struct gates *gates; /* NULL: none */
    const int32_t *plan_until; /* [L][H][plan_len] of the admission `plan` */
    int plan_len;
    const double *plan_mass;          /* [L][G][plan_len] attention of the whole run */
    const struct model_config *model; /* its windows and rotations; NULL: it has none */
    int length;                       /* most tokens of the session */
    bool as_twin;                     /* nothing leaves for a layer's window */
    const struct kernels *kernels;    /* of the scores; NULL: the C reference */
};

/* in: NULL for none; the gates of a row that needs some must be there (method_check_inputs). */
int method_state_create(const struct method *m, const struct method_params *p,
                        const struct method_shape *shape, const struct method_inputs *in,
                        struct method_state **ret_state);
void method_state_destroy(struct method_state *s); /* and of the chain; accepts NULL */
/* A state of its own, and a chain of its own, with all that `from` remembers (fork.c). */
int method_state_fork(const struct method_state *from, struct method_state **ret_state);
/* Whether a state of this row can watch a session that runs under full, and then go on
 * as if the prompt had been its own: nothing is refused, read by choice or placed
 * elsewhere in a prompt, and it needs to see rows, keys and values alone. */
bool method_shares_prompt(const struct method *m, const struct method_params *p);

/* Gives the heads with take[layer * H + head] != 0 to `other`, which joins the chain
 * and is owned by it from now on.  KVF_OK or KVF_E_NOMEM (other still belongs to the
 * caller). */
int method_override(struct method_state *s, struct method_state *other, const unsigned char *take);
bool method_owns(const struct method_state *s, int layer, int head);
const struct method_inputs *method_inputs_of(const struct method_state *s);
const struct method *method_of(const struct method_state *s);
const struct method_params *method_params_of(const struct method_state *s);
const struct method_shape *method_shape_of(const struct method_state *s);

/* Room for entries up to `slots` per head in the evidence, and what rows can
 * matter: no decision will be taken before query next_decision.  KVF_OK or
 * KVF_E_NOMEM. */
int method_prepare(struct method_state *s, int slots, int32_t next_decision);

/* EVIDENCE_* and admission's needs of the chain: what the decoder must hand over. */
unsigned method_evidence(const struct method_state *s);
bool method_uses_gates(const struct method_state *s);

/* First query that will not see a newcomer: the row's admission and the layer's window. */
int32_t method_until(const struct method_state *s, int layer, int head, int32_t pos, float gate);

/* An entry was appended to a KV head: its evidence starts at 0.  gate: its number,
 * or NaN; k_pre: its unrotated key, needed for EVIDENCE_BLOCKS.  Threads may call it
 * for different heads at once. */
void method_appended(struct method_state *s, const struct cache *c, int layer, int head, int slot,
                     float gate, const float *k_pre);

/* Unrotated queries of a layer: row r is that of position pos0 + r, its heads adjoin
 * at q + r * ld.  For EVIDENCE_MOMENTS. */
struct par;
void method_queries(struct method_state *s, int layer, int32_t pos0, int n, const float *q,
                    size_t ld, struct par *pool);

/* Whether the rows of query t are evidence for any decision. */
bool method_wants_row(const struct method_state *s, int32_t t);

/* Takes evidence from a row (any thread, see struct attn_row). */
void method_row(struct method_state *s, const struct attn_row *row);

enum phase {
    PHASE_PROMPT,
    PHASE_BEFORE,
    PHASE_AFTER
}; /* a prompt, or part of it, is in;
      before a newcomer; after its query */

/* Cuts what the rows ask for at this phase, in all layers.  t: the first query that
 * will not see what is cut.  What expires until t leaves first (not PHASE_AFTER).
 * pool may be NULL.  fn gets every eviction, layers and heads rising, positions
 * rising within one cut.  *ret_cut (may be NULL): entries that left for the budget.
 * KVF_OK or KVF_E_NOMEM (the row that lacked it cut nothing for the budget).
 *
 * After PHASE_BEFORE a head that lost one entry since its last append has an open slot
 * (cache.h), into which the newcomer must be stored next, or method_settle comes first;
 * after the other phases, and without success, no slot is open. */
int method_decide(struct method_state *s, struct cache *c, int32_t t, enum phase phase,
                  struct par *pool, eviction_fn fn, void *ctx, int64_t *ret_cut);

/* Fills the slots that are open: no newcomer will. */
void method_settle(struct method_state *s, struct cache *c);

/* Whether entries of any row leave at steps fixed at birth; and whether queries stop seeing any at
 * such steps, which a twin then keeps all the same. */
bool method_expires(const struct method_state *s);
bool method_hides(const struct method_state *s);

/* Removes what query t does not see any more, in time O(entries since the first of a head that
 * leaves some day).  fn (may be NULL) and pool as of method_decide.  KVF_OK or KVF_E_NOMEM (some
 * rows may have lost theirs). */
int method_expire(struct method_state *s, struct cache *c, int32_t t, struct par *pool,
                  eviction_fn fn, void *ctx);

/* Removes the entries of a KV head at the positions with gone[pos] != 0, before the next
 * query and for no row's reason; the state is prepared (method_prepare).  KVF_OK, or
 * KVF_E_NOMEM (nothing was removed). */
int method_remove(struct method_state *s, struct cache *c, int layer, int head,
                  const unsigned char *gone);

/* Whether queries after the prompt read a choice of pages in this layer and head. */
bool method_reads_pages(const struct method_state *s, int layer, int head);
/* Chooses for the query heads of a KV head: chosen[g * ld + page] = 1 for pages that
 * query head g (counted from the first that reads the head) reads.  n_pages: of `page`
 * entries in order of slots, which is that of time.  scratch: method_read_scratch
 * floats.  Returns the page size; 0: everything is read.  Threads may call it for
 * different heads at once. */
int method_read(const struct read_input *in, unsigned char *chosen, size_t ld, float *scratch);
size_t method_read_scratch(const struct method_state *s, int slots);

/* The row of a full-cache twin for query t over positions 0 .. n-1 (EVIDENCE_TWIN);
 * threads as method_row. */
void method_twin_row(struct method_state *s, const struct attn_row *row);

/* For score and allocation parts. */
const struct kernels *method_kernels(const struct method_state *s);
/* Attention each slot received, as query head g of the layer gave it. [slots] */
const double *evidence_sum(const struct method_state *s, int layer, int query_head);
/* Attention row of the age-th newest query (0 = newest), [slots]; *ret_t: the query,
 * *ret_n: entries it saw; may be NULL.  An entry at a position after ret_t got nothing:
 * what lies in its slot is not its own. */
const float *evidence_row(const struct method_state *s, int layer, int query_head, int age,
                          int32_t *ret_t, int *ret_n);
/* The lse of that row. */
float evidence_row_lse(const struct method_state *s, int layer, int query_head, int age);
int evidence_rows(const struct method_state *s, int layer, int query_head); /* held, <= window */
const float *evidence_key(const struct method_state *s, int layer, int head, int slot);
const float *evidence_norms(const struct method_state *s, int layer, int head); /* [slots] */
/* The sum of the unit keys of the n entries of a head, [head_dim]: in whole units of 2^-32,
 * hence exact.  For one caller per head at a time. */
const double *evidence_anchor(const struct method_state *s, int layer, int head, int n);
const float *evidence_value_norms(const struct method_state *s, int layer, int head);
const float *evidence_gate(const struct method_state *s, int layer, int head); /* [slots] */
/* Sums over the unrotated queries: how many, sum [D], outer products [D][D]. */
int64_t evidence_moments(const struct method_state *s, int layer, int query_head,
                         const double **ret_sum, const double **ret_outer);
/* Attention of the twin by position: received so far, and from its newest query. */
const double *evidence_twin_sum(const struct method_state *s, int layer, int query_head);
const float *evidence_twin_row(const struct method_state *s, int layer, int query_head);
/* What the score part noted of each entry, NaN = nothing yet; it may write. [slots] */
double *evidence_note(const struct method_state *s, int layer, int head);
/* Remembered scores, NaN = none; the score part may write them. [slots] */
float *evidence_history(const struct method_state *s, int layer, int head);

/* Query heads [*first, *first + *n) that decide together for KV head `head`. */
void method_group(const struct method_state *s, int head, int *ret_first, int *ret_n);

#endif

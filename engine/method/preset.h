/* preset.h - KV cache methods as presets: their parts, parameters and options.
 *
 * This header is for authors of presets and of parts.  method_state.h runs a preset in a decoder,
 * and decisions.h evicts entries.
 *
 * A method is a preset of five parts: admission, score, allocation, trigger and read.  Each part
 * is one file with one const struct and one line in the list of its kind (parts.h says how to add
 * one).  presets.c holds the published methods.  `--method NAME:key=value` selects a preset and
 * overrides its parameters.  docs/reference/methods.md states the equation and the source of each.
 *
 * Budget.  After the prompt, every query of a head sees at most B entries, its own included.  The
 * prompt is cut to B entries.  Before each later token the cache is cut to B - 1 entries.
 *
 * To add a preset NAME (tools/new.py preset NAME "summary" --score S --allocation A writes all of
 * these for parts that need no other numbers than a window):
 * 1. presets.c: one entry of method_presets, before {.name = NULL}: its parts, its published
 *    parameters in .params, and in .code the options of variant=code.
 * 2. docs/reference/methods.md: `## NAME` with equation, source, differences between paper and
 *    published code, Options and Cost; "Sources of the defaults" has a line for each parameter that
 *    is not neutral.  docs/derive.py writes the overview.  tests/cli/test_methods.py compares the
 *    page with the program.
 * 3. tests/oracle/rows.py: its parts in ROWS and its numbers in PUBLISHED, WINDOW, EVERY, SINKS and
 *    CODE; GROUPED if it has the option group.  tests/oracle/meson.build: its name and a number of
 *    cases.  SCORES, ERRORS, UNEQUAL and PART_OPTIONS of the oracle are tables of parts, so that a
 *    preset needs a line there only if its equation differs from its part's.  contract.py and
 *    properties.py run over all presets.
 * 4. `meson test -C build --setup quick --suite method --suite oracle --suite lint --no-suite
 * slow`.
 *
 * To add an option:
 * 1. Add a member to struct method_params and a line to the table in options.c.  Add a USES_ bit
 *    and set it in each part that reads the member.  If the budget changes its value, add that to
 *    resolve.c.
 * 2. docs/reference/methods.md: add a line to the table of options and to the Options of presets.
 *    tests/cli/test_methods.py tests its range, and that other presets reject it. */
#ifndef KVF_ENGINE_METHOD_PRESET_H
#define KVF_ENGINE_METHOD_PRESET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>
#include <kvf/schema.h>

#include "base/buf.h"
#include "engine/cache/cache.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/ranking.h"    /* enum tie_rule */
#include "engine/kernels/score_math.h" /* enum fold_kind */

struct method_state;

enum { PROTECT_MOST = 64 }; /* bytes of the option `protect` */

/* The parameters of a preset.  struct method has the published ones, 0 if not published.
 * method_parse() returns those that apply under a budget, and the trace records them.  Each member
 * has a line in the table of options. */
struct method_params {
    int budget;    /* B, entries per head; 0: unlimited */
    int of;        /* enum budget_base: the tokens that `part` is a fraction of */
    int cut;       /* enum cut_time: when entries are evicted for the budget */
    int sinks;     /* first positions, which are never evicted */
    int recent;    /* newest positions, which are never evicted, the new one included; in a preset
                      also enum method_recent */
    int window;    /* queries in the observation window */
    int pool;      /* width of the pooling over neighbouring entries; odd; 0 or 1: none */
    int pool_kind; /* enum pool_kind */
    int group;     /* enum group_kind: reduction over query heads */
    int across;    /* enum across_kind: reduction over the queries of the window */
    int support;   /* enum support_kind: entries over which the weights of a row sum to 1 */
    int every;     /* tokens between evictions; in a preset also EVERY_HALF */
    int order;     /* enum cut_order */
    int slack;     /* entries above a head's budget that are tolerated */
    int chunk;     /* tokens of the prompt between evictions; 0: evict after the whole prompt */
    int positions; /* enum position_mode */
    int tie;       /* enum tie_rule */
    int stride;    /* evictions after the prompt come one token after a multiple of it; 0: any */
    int slots;     /* enum slot_order: order in which the redundancy of keys compares entries */
    int divide;    /* enum divide_kind: divisor of the attention received */
    int offset, lookahead; /* of the retention score */
    int local;             /* newest entries that admission does not reject */
    int compare;           /* enum compare_rule: comparison of the write gate with tau */
    int horizon;           /* future positions of the expected queries */
    int page;              /* entries of a page, which are read together */
    int dense;             /* first layers, which read everything */
    int reads;             /* entries that a query reads, in a preset that evicts and reads pages */
    int channels;          /* channels that the read `rocket` compares; 0: derived */
    int fold;              /* enum fold_kind: how the past and the new score are combined */
    double history, lambda, gamma, floor, beta; /* docs/reference/methods.md */
    double tau, fraction, epsilon, sparsity;
    double temp; /* exponent of HeadKV's scores; 0: not given, as beta of allocation=file */
    int64_t seed;
    int64_t part; /* B as a fraction, in units of 1 / BUDGET_WHOLE; 0: B was given in entries */
    bool open;    /* `part` is given and no prompt is known: `budget` is a placeholder */
    char protect[PROTECT_MOST]; /* tokens that are never evicted, as "system+sinks:4"; "": none */
    int n_protected;            /* protected tokens after the sinks; -1: not known yet */
    unsigned derived;           /* DERIVED_* */
};
enum { /* numbers that follow from the budget and from the protected tokens; bits */
       DERIVED_RECENT = 1u << 0,
       DERIVED_EVERY = 1u << 1,
};
enum budget_base { BUDGET_OF_PROMPT, BUDGET_OF_SEEN }; /* all its tokens; all tokens fed so far */
enum cut_time {
    CUT_ALWAYS, /* after the prompt and before or after each later token */
    CUT_PROMPT, /* after the prompt only */
    CUT_TURN    /* after each turn of a chat, where the model begins to answer */
};
enum method_recent {
    RECENT_REST = -1,   /* B - sinks */
    RECENT_HALF = -2,   /* B / 2 */
    RECENT_WINDOW = -3, /* the observation window */
    RECENT_LOCAL = -4,  /* `local` */
};
enum { EVERY_HALF = -1 }; /* B / 2 */
enum pool_kind { POOL_MAX, POOL_AVG };
enum group_kind { GROUP_MEAN, GROUP_MAX, GROUP_SUM, GROUP_NONE, GROUP_MAX_LOGITS };
enum across_kind { ACROSS_MEAN, ACROSS_MAX };
enum support_kind { SUPPORT_ALL, SUPPORT_CANDIDATES }; /* all visible, or unprotected entries */
enum cut_order { ORDER_BEFORE, ORDER_AFTER };
enum position_mode { POSITIONS_ORIGINAL, POSITIONS_CACHE };
enum compare_rule { COMPARE_GE, COMPARE_GT };
enum slot_order { SLOTS_TIME, SLOTS_SCORE };      /* SCORE: by the scores of the last eviction */
enum divide_kind { DIVIDE_NONE, DIVIDE_QUERIES }; /* QUERIES: that saw the entry */

enum {                             /* evidence: the data that a part reads; bits */
       EVIDENCE_SUM = 1u << 0,     /* accumulated attention that each entry received */
       EVIDENCE_WINDOW = 1u << 1,  /* attention rows of the last `window` queries */
       EVIDENCE_KEYS = 1u << 2,    /* stored keys, scaled to length 1 */
       EVIDENCE_NORMS = 1u << 3,   /* L2 norms of the stored keys */
       EVIDENCE_HISTORY = 1u << 4, /* scores of the last eviction */
       EVIDENCE_GATE = 1u << 5,    /* gate value of each entry, computed when it is appended */
       EVIDENCE_VALUES = 1u << 6,  /* L2 norms of the stored values */
       EVIDENCE_MOMENTS = 1u << 7, /* mean and covariance of the queries before RoPE */
       EVIDENCE_PAGES = 1u << 8,   /* minimum and maximum of each key channel in each page */
       EVIDENCE_BLOCKS = 1u << 9,  /* block vectors of a block gate, from keys before RoPE */
       EVIDENCE_FULL = 1u << 10,   /* attention of a full-cache run, by position */
       EVIDENCE_NOTE = 1u << 12,   /* one number per entry that the score computes once */
       EVIDENCE_SPREAD = 1u << 13, /* sums of the window's weights and of their squares; needs
                                      EVIDENCE_WINDOW */
       EVIDENCE_ANCHOR = 1u << 11, /* sum of a head's unit keys; needs EVIDENCE_KEYS */
};

enum scope { SCOPE_HEAD, SCOPE_LAYER }; /* heads that share one set of entries */
enum pool_scope { POOL_HEAD, POOL_LAYER, POOL_ALL };

/* The input of a score: the entries of one KV head.  A larger score is worth more. */
struct score_input {
    const struct method_state *m;
    const struct cache *cache;
    int layer, head; /* KV head */
    struct cache_head view;
    int32_t recent_from; /* entries at this position or later are protected */
    int32_t t;           /* tokens fed so far, which is the position of the next query */
    int incoming;        /* 1: before token t is appended; a full-cache run has already run it */
};

enum { /* the options that a part reads; bits.  A preset rejects an option that no part reads. */
       USES_WINDOW = 1u << 0,     /* window */
       USES_POOL = 1u << 1,       /* pool, pool_kind */
       USES_GROUP = 1u << 2,      /* group */
       USES_SEED = 1u << 3,       /* seed */
       USES_ACROSS = 1u << 4,     /* across, support */
       USES_HISTORY = 1u << 5,    /* history, fold */
       USES_LAMBDA = 1u << 6,     /* lambda */
       USES_GAMMA = 1u << 7,      /* gamma */
       USES_FLOOR = 1u << 8,      /* floor */
       USES_BETA = 1u << 9,       /* beta */
       USES_RETENTION = 1u << 10, /* offset, lookahead */
       USES_LOCAL = 1u << 11,     /* local */
       USES_TAU = 1u << 12,       /* tau, compare */
       USES_FRACTION = 1u << 13,  /* fraction */
       USES_EXPECTED = 1u << 14,  /* horizon, epsilon */
       USES_PAGE = 1u << 15,      /* page, dense */
       USES_SPARSITY = 1u << 16,  /* sparsity */
       USES_SPANS = 1u << 17,     /* sinks, recent: in a preset without a score */
       USES_SLOTS = 1u << 18,     /* slots */
       USES_DIVIDE = 1u << 19,    /* divide */
       USES_HEADKV = 1u << 20,    /* beta, temp of a table of heads */
       USES_READS = 1u << 21,     /* reads: a preset with a score that reads pages */
       USES_CHANNELS = 1u << 22,  /* channels */
};

enum {                       /* special values of struct score.scratch_rows */
       KEYS_AS_PAGE = -1,    /* 2 PAGE_SLOTS (head_dim + PAGE_SLOTS) floats */
       MOMENTS_AS_ROWS = -2, /* (head_dim + 2) * head_dim floats */
};

/* A score: how much each entry is worth. */
struct score {
    const char *name, *summary;
    unsigned evidence;     /* EVIDENCE_* */
    unsigned uses;         /* USES_* */
    unsigned gates;        /* 1 << enum gate_kind of each gate kind that it needs */
    bool calibrated;       /* scores of different heads can be compared */
    bool needs_mass;       /* it needs the attention of the whole run, from a plan */
    bool rising;           /* the score is the position */
    bool peaks;            /* the score is window_reduce() without changes (peaks.h) */
    bool serial;           /* heads are scored one after the other, in order of layer and head */
    int scratch_rows;      /* scratch beyond 4 * n floats, in units of n; or KEYS_AS_PAGE, ... */
    const char *cost;      /* operations of eval, up to a constant: one decision on one KV head
                              with n entries, g query heads, w rows and D channels */
    const char *cost_rows; /* the cost with across=max or support=candidates; NULL: as `cost` */
    /* Writes the scores of all view.n slots to out[slot].  scratch: (4 + scratch_rows) * n +
     * 4 * head_dim floats.  Heads run in parallel, unless `serial` is set. */
    void (*eval)(const struct score_input *in, float *out, float *scratch);
    /* Writes the scores of the candidates, in order of time, to out[0 ..], for pool > 1.  The
     * scores are equal to those of eval.  NULL: use eval. */
    void (*eval_ranks)(const struct score_input *in, float *out, float *scratch);
    /* Returns the score of one entry, equal to that of eval.  NULL: use eval.  Such a score must
     * not fall from token to token.  With `falls` it may fall, but between two tokens it must not
     * be below its values at both. */
    float (*one)(const struct score_input *in, int slot);
    bool falls;
};

/* An admission: how long a new entry stays, independently of the budget. */
struct admission {
    const char *name, *summary;
    unsigned uses, gates;
    enum kvf_reason reason; /* recorded with each eviction */
    /* Computes data of the run once.  NULL if there are no such data.  KVF_OK or KVF_E_NOMEM. */
    int (*prepare)(struct method_state *m);
    /* Returns the first query that does not see the entry.  NULL: NEVER_EXPIRES for all entries.
     * gate: the entry's gate value. */
    int32_t (*until)(const struct method_state *m, int layer, int head, int32_t pos, float gate);
    /* Sets the recorded score and margin of an entry that admission evicts.  NULL: none. */
    void (*judge)(const struct method_state *m, float gate, float *ret_score, float *ret_margin);
};

/* An allocation: how much of the budget each head gets. */
struct allocation {
    const char *name, *summary;
    unsigned uses, evidence; /* evidence: the part of the score's evidence that weights() reads */
    enum pool_scope pool;    /* heads that share one budget, split at every eviction */
    /* Sets the weights >= 0 by which layers share the budget (shares.h).  NULL: every head has the
     * same budget.  It is called when the heads would first exceed the budget.  With a budget of
     * all tokens no entry is ever evicted.  Without evidence it is called again at each later
     * eviction.  reach: tokens fed so far.  ret_weight: [L]. */
    void (*weights)(const struct method_state *m, const struct cache *c, int32_t reach,
                    int32_t recent_from, double *ret_weight);
    /* Sets the budget of each head, at the first decision.  NULL: by `weights`.  Such an allocation
     * has no pools.  Heads are cut as soon as they exceed their own budget.  reach: tokens fed so
     * far.  ret_share: [L * H]. */
    void (*heads)(const struct method_state *m, int32_t reach, int *ret_share);
};

/* A trigger: when entries are evicted, and how many stay. */
struct trigger {
    const char *name, *summary;
    unsigned uses;
    bool rounds; /* each head drops a fraction of its candidates, until the total fits */
    /* Returns how many entries of a head may stay, with n entries now.  n or more: no eviction.
     * share: the head's budget.  incoming: 1 before a token, 0 after the prompt.  If heads share a
     * budget, n and the result are means per head, rounded up. */
    int (*target)(const struct method_state *m, int share, int n, int incoming);
};

/* The input of a read: the query heads that select pages together. */
struct read_input {
    const struct method_state *m;
    const struct cache *cache;
    const struct kernels *kernels;
    int layer, head; /* KV head */
    struct cache_head view;
    int32_t t; /* position of the query */
    enum kv_type kv_type;
    const float *q, *q_pre; /* first query head's [head_dim], after and before RoPE; heads adjoin */
    int n_q, n_pages;
};

/* A read: which cached entries a query after the prompt reads. */
struct read {
    const char *name, *summary;
    unsigned uses, evidence, gates;
    bool all;         /* every entry */
    bool shared;      /* one selection for all query heads of a KV head */
    bool entries;     /* the best entries are read, each with the score of its page; no entry is
                         read in any case */
    const char *cost; /* operations of eval for one query of the KV head, in the notation of
                         struct score; p: entries in a page, d: length of a block gate's vectors */
    /* Writes a score per page to out[page].  Larger is read first.  scratch:
     * method_read_scratch() floats. */
    void (*eval)(const struct read_input *in, float *out, float *scratch);
};

/* A preset: one published method. */
struct method {
    const char *name, *summary, *source;
    const char *code;    /* options of variant=code; NULL: paper and code agree */
    const char *aliases; /* other names, separated by "; ", each NAME or NAME:key=value,...; NULL:
                            none */
    const struct admission *admission;
    const struct score *score; /* NULL: no entry is evicted for the budget */
    const struct allocation *allocation;
    const struct trigger *trigger;
    const struct read *read;
    enum scope scope;
    enum kvf_reason reason;      /* recorded with each eviction */
    bool normalise;              /* divide both terms of lambda by their maximum */
    bool free;                   /* the budget is optional: without it only admission limits */
    bool unbudgeted;             /* the preset has no use for a budget */
    struct method_params params; /* as published */
};

/* The tables of parts and presets.  Each ends with NULL (presets: .name == NULL). */
extern const struct admission *const admission_table[];
extern const struct score *const score_table[];
extern const struct allocation *const allocation_table[];
extern const struct trigger *const trigger_table[];
extern const struct read *const read_table[];
extern const struct method method_presets[];

/* Another name of a preset, with the options that it stands for. Neither text ends with a zero. */
struct method_alias {
    const char *name;
    size_t n_name;
    const char *options; /* key=value,... */
    size_t n_options;
};
/* Writes the first name of a list of aliases and moves the list behind it. Returns false at the end
 * of the list. */
bool method_next_alias(const char **list, struct method_alias *ret);

/* A budget as the user gives it. */
struct budget {
    int entries;  /* 0: none, or a fraction */
    int64_t part; /* fraction in units of 1 / BUDGET_WHOLE; 0: entries */
};
#define BUDGET_WHOLE ((int64_t)100000000) /* 100 %, in millionths of a percent */
enum { BUDGET_MOST = 1 << 24 };           /* maximum entries */

/* Parses "N" entries, 1 .. BUDGET_MOST, or "X%" with 0 < X <= 100 and at most 6 decimal places.
 * Returns false if the text is neither. */
bool budget_parse(const char *text, struct budget *ret);
/* Returns the reason why budget_parse() rejects a text, such as "a fraction has at most 6 decimal
 * places". */
const char *budget_advice(const char *text);
/* Writes the budget as budget_parse() reads it. */
enum { BUDGET_TEXT = 24 };
void budget_text(const struct budget *b, char out[BUDGET_TEXT]);
/* Returns the entries of a fraction of `tokens`, rounded down, at least 1. */
int budget_entries(int64_t part, int64_t tokens);

/* The prompt that a fraction is resolved for. */
struct budget_prompt {
    int tokens; /* of the prompt; 0: not known, and params.open is set for a fraction */
    int turn;   /* tokens up to the end of the first turn; 0: the prompt is one turn */
};
/* Parses as method_parse() does.  A fraction becomes entries: budget_entries() of the prompt or,
 * with of=seen, of the tokens at the first eviction.  Numbers that are derived from the budget
 * follow from these entries. */
int method_parse_for(const char *text, const struct budget *b, const struct budget_prompt *prompt,
                     struct method *ret_method, struct method_params *ret_params,
                     struct kvf_diag *d);

/* Parses "NAME" or "NAME:key=value,..." (keys: docs/reference/methods.md).  budget: 0 = none given.
 * NAME is the name of a preset or an alias, in capital or small letters, with or without hyphens
 * and underscores.  The options of an alias come before those of the text. Returns KVF_E_ARG with a
 * sentence for unknown names, keys and values, and for combinations that cannot keep the budget. */
int method_parse(const char *text, int budget, struct method *ret_method,
                 struct method_params *ret_params, struct kvf_diag *d);

/* Appends the options of "NAME:key=value,..." that change the preset under this budget, in the
 * order of the tables and without `budget`: for "snapkv:tie=newer,cut=prompt,window=8" and 32
 * entries only "cut=prompt".  Texts that name equal rows give equal bytes, unless an option can
 * stand for another.  KVF_OK, KVF_E_NOMEM, or an error of method_parse_for(). */
int method_options_put(struct buf *out, const char *text, const struct budget *budget,
                       const struct budget_prompt *prompt);

/* Returns true if "NAME:..." names a preset that has no use for a budget. */
bool method_unbudgeted(const char *text);

/* Returns 1 << enum gate_kind of the gate file that a preset needs, or 0. */
unsigned method_gates(const struct method *m);
/* Returns true if a preset keeps one cache per query head. */
bool method_per_query_head(const struct method *m, const struct method_params *p);
/* Returns false if the preset can run without a budget. */
bool method_needs_budget(const struct method *m);
/* Returns the maximum number of entries that the query at position t reads, in a preset that reads
 * pages. */
int method_reads_most(const struct method *m, const struct method_params *p, int32_t t);
/* Returns true if all query heads of a KV head read the same pages. */
bool method_reads_together(const struct method *m, const struct method_params *p);

enum method_option_kind {
    OPTION_WHOLE, /* int */
    OPTION_LARGE, /* int64_t */
    OPTION_REAL,  /* double */
    OPTION_WORD,  /* int: an index of `words` */
    OPTION_TEXT,  /* char [PROTECT_MOST]; `words` lists its forms, the first stands for "" */
};

/* An option of "--method NAME:key=value", which sets one parameter. */
struct method_option {
    const char *key, *help;
    enum method_option_kind kind;
    size_t offset; /* in struct method_params */
    double min, max;
    const char *const *words; /* of OPTION_WORD and OPTION_TEXT; ends with NULL */
    unsigned uses; /* USES_* of the parts that read it; 0: every preset with a score reads it */
    unsigned also; /* USES_* of parts that read it in a preset without a score */
    bool tacit;    /* the trace records it only if it is not 0 or the first word: older traces, from
                      before the option existed, behave as if it were */
    bool late;     /* files of results (eval_state.h) also record it only in this case */
};
extern const struct method_option method_options[]; /* ends with .key == NULL */

/* Returns true if a part of the preset reads the option.  method_parse() rejects other options. */
bool method_option_counts(const struct method_option *o, const struct method *m);
/* Returns the value as a number: an index of a word; 1 for a text, 0 for an empty one. */
double method_option_value(const struct method_option *o, const struct method_params *p);
/* Returns the option's value as a word or text, or NULL if it is a number. */
const char *method_option_word(const struct method_option *o, const struct method_params *p);

struct method_shape {
    int n_layers, n_heads, n_kv_heads, head_dim; /* n_heads: query heads */
};

/* Returns true if a text may be longer than `context`: positions are ranks in the cache, and no
 * query sees more than `context` entries if the prompt (without chunk) has at most that many
 * tokens.  Methods that compare with the full cache, or need its attention, return false. */
bool method_outlives(const struct method *m, const struct method_params *p,
                     const struct method_shape *shape, int context);

/* Returns the EVIDENCE_* bits that the parts of a preset read. */
unsigned method_row_evidence(const struct method *m);
/* Returns the cost of one decision, or of one selection of pages (struct score, struct read).
 * "1": no entry is read. */
const char *method_cost(const struct method *m, const struct method_params *p);
/* Returns the bytes of evidence per entry of a KV head, without keys, values and scratch.
 * gate_dim: length of the vectors of a block gate. */
double method_state_bytes(const struct method *m, const struct method_params *p,
                          const struct method_shape *shape, int gate_dim);

#endif

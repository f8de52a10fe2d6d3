/* probe.h - what the engine records while it runs.
 *
 * A probe declares its columns, and takes what it is told into arrays [heads][cap] that
 * arrays.c makes, keeps and writes into the trace.  Probes watch: with and without them the
 * decoder computes the same bits.  State is O(T).
 *
 * To add a probe NAME (tools/new.py probe NAME "summary" writes all of these):
 * 1. probe_NAME.c ends with `const struct probe probe_NAME`.  `array` declares what it writes,
 *    `wants` what it is told, by the hook of that kind.  Rows of different heads come at once.
 *    `lean` makes it part of --probes lean, `full_only` takes it out of paper.
 * 2. X(NAME), at the end of probes.list.
 * 3. docs/reference/probes.md: `## NAME`, its columns also in libtrace/include/kvf/schema.h and
 *    libtrace/schema_rules.h, without which no trace may have them.
 * 4. tests/analyze/test_probe_NAME.py, or another: its columns against dense attention; the run is
 *    the same with and without it.
 * Its line under --probes in docs/man/kvfate-run.1 is made from the struct. */
#ifndef KVF_ENGINE_PROBE_H
#define KVF_ENGINE_PROBE_H

#include <kvf/schema.h>
#include <kvf/trace.h>

#include "engine/kernels/kernels.h"
#include "engine/method/decisions.h"

enum {
    PROBE_ROWS = 1u << 0,           /* attention rows */
    PROBE_EVICT = 1u << 1,          /* evictions */
    PROBE_NLL = 1u << 2,            /* -ln p of each token fed */
    PROBE_GATE = 1u << 3,           /* numbers of gates */
    PROBE_KEY = 1u << 4,            /* keys */
    PROBE_QUERY = 1u << 5,          /* query vectors */
    PROBE_SHADOW_ENTRIES = 1u << 8, /* what queries miss: evicted entries are kept aside */
    PROBE_SHADOW_MODEL = 1u << 9,   /* a full-cache twin is fed the same tokens */
    /* The rows of all query heads that share a KV head come together: for up to
     * PROBE_GROUP_ROWS queries those of its first head, then those of the next, all from one
     * thread, before later queries of any of them. */
    PROBE_GROUPS = 1u << 10,
    PROBE_VALUE = 1u << 11, /* value vectors, and out_gram of the configuration */
};
enum { PROBE_GROUP_ROWS = 16 };
enum { PROBE_SPAN_SETS = 5 }; /* most sets of tokens that a run is given */

/* Tokens that somebody named before the run (--spans). */
struct probe_span_set {
    const char *name; /* "": all that are useful together, always the first set */
    int n;
    const int32_t (*range)[2]; /* [n] tokens [a, b), rising and apart */
};

struct probe_config {
    struct method_shape shape;
    int cap; /* most tokens of the run: T <= cap */
    const struct kernels *kernels;
    const char *gate_column;   /* what the gates of the run give an entry; NULL: nothing */
    bool reads;                /* queries after the prompt read a choice of pages */
    const struct watch *watch; /* heads and tokens of raw blocks (watch.h); NULL: none */
    bool evicts;               /* queries may not see all entries */
    bool shadow_entries;       /* missed() will tell what they do not see */
    const struct probe_span_set *span_set; /* [n_span_sets] */
    int n_span_sets;
    /* [L][plan_heads][plan_tokens] first steps whose queries do not see the entry under a plan that
     * the run was given, whether it follows it or not; later tokens stay.  NULL: none */
    const uint32_t *plan_until;
    int plan_heads, plan_tokens;
    const double *out_gram; /* engine/model/out_gram.h; NULL unless PROBE_VALUE is wanted */
};

/* A row of attention weights with its entries in order of time.  Rows of one
 * query head come in rising t from one thread at a time; heads come in parallel. */
struct probe_row {
    int layer, head; /* query head */
    int32_t t;
    int n;
    const float *p;     /* [n] rising position */
    const int32_t *pos; /* [n] positions, or NULL when pos[k] = k */
    float lse, entropy;
    bool stepping;           /* of a token after the prompt */
    bool gathered;           /* it comes again by `rows`; pos is NULL */
    void *scratch;           /* row_cuts_scratch(cap) bytes of this thread */
    struct probe_cuts *cuts; /* of this thread; see probe_row_cuts */
    float *room;             /* [cap] of this thread, for a probe to use while it has the row */
};

/* Rows of one query head that follow one another: row r is that of query t + r and has the entries
 * of positions 0 .. w.n + r - 1.  At most PROBE_GROUP_ROWS. */
struct probe_rows {
    int layer, head; /* query head */
    int32_t t;
    struct weight_rows w;
    const struct row_cut
        *cut; /* [w.n_rows][KVF_N_CRITERIA], where probe_row_cuts was asked for them */
};

/* Selected sets of a row, one for each criterion of KVF_CRITERIA_MAP. */
struct probe_cuts {
    bool known;
    struct row_cut cut[KVF_N_CRITERIA];
};

/* Queries of all heads of a layer at steps t0 .. t0 + n - 1, before RoPE and then after it. */
struct probe_block {
    int layer;
    bool turned; /* after RoPE */
    int32_t t0;
    int n;
    const float *q; /* [n] rows, ld apart, of [n_heads][head_dim] */
    size_t ld;
};

/* What a query did not see.  Order and threads as struct probe_row. */
struct probe_missed {
    int layer, head; /* query head */
    int32_t t;
    float kept, oracle;        /* mass of what it saw, and of as many largest weights */
    float error;               /* of its output: |o_all - o| / |o_all| */
    int n;                     /* positions 0 .. n-1 there are; 0: it saw them all */
    const float *p;            /* [n] weights over all of them */
    const unsigned char *seen; /* [n] */
    struct row_cut cut;        /* as many largest weights as it saw entries */
    void *scratch;             /* row_cuts_scratch(cap) bytes of this thread */
};

/* Numbers that compare the run with its full-cache twin. */
enum probe_twin { TWIN_NLL, TWIN_KL, TWIN_RESIDUAL };

/* What an array holds where nothing was recorded.  PROBE_ONES: all bits (KVF_ALIVE, KVF_NEVER). */
enum probe_start { PROBE_ZEROS, PROBE_NAN, PROBE_ONES };

/* How the values of a column are kept. */
enum probe_kept {
    PROBE_AS_WRITTEN,
    PROBE_AS_DOUBLE, /* f64 for a column of f32 */
    PROBE_AS_STEP,   /* the step t of an event, all ones for none; written as the age t - i */
    PROBE_BY_VALUES, /* in the type of the column, until `values` makes something else of it */
    PROBE_NOT_KEPT,  /* `values` takes it from a state of the probe's own */
};

enum {
    PROBE_STEPS = 0
}; /* as dtype: u16 where all steps of the run fit, all ones apart; else u32 */

/* A column of the trace and the array [heads of its space][cap] that is kept of it.  Columns
 * with KVF_COL_SNAPSHOT are written whole whenever a snapshot is due, the others as they come. */
struct probe_array {
    struct kvf_column column;
    enum probe_start start;
    enum probe_kept kept;
};

struct probe;
/* A probe of a run. */
struct probe_state {
    const struct probe *probe;
    const struct probe_config *cfg;
    bool narrow; /* PROBE_STEPS are u16 */
    int n_arrays;
    struct probe_array *array; /* [n_arrays] without PROBE_STEPS */
    void **data;               /* [n_arrays]; NULL: not kept */
    size_t *heads, *head_size; /* [n_arrays] of a layer; bytes of one's values */
    int column0;               /* place of the first in the trace */
    void *own;                 /* what `open` made */
    bool away;                 /* a device is told of rows and values in its place */
};

struct probe {
    const char *name, *summary;
    unsigned wants;
    bool lean;          /* part of --probes lean */
    bool full_only;     /* part of --probes full, not of paper */
    bool by_name;       /* part of no set: needs a choice of heads (watch.h) */
    const char *shadow; /* it is asked for by --shadow, under this name; NULL: by --probes */
    const struct probe_array *array; /* [n_arrays] its columns, in the order of the trace */
    int n_arrays;
    /* Where they depend on the run: fills out unless that is NULL, and returns how many. */
    int (*arrays)(const struct probe_config *cfg, struct probe_array *out);
    bool by_column; /* values are written column by column; else layer by layer */

    /* Makes s->own.  KVF_OK or KVF_E_NOMEM; close follows in either case. */
    int (*open)(struct probe_state *s);
    void (*close)(struct probe_state *s); /* frees s->own, if any; NULL: mem_free does */
    void (*row)(struct probe_state *s, const struct probe_row *row);
    /* Rows that `row` got with `gathered` set, before a later one of the head that has it not: what
     * is read and written of each entry serves several rows.  NULL: `row` does all. */
    void (*rows)(struct probe_state *s, const struct probe_rows *rows);
    void (*evict)(struct probe_state *s, const struct eviction *e);
    void (*nll)(struct probe_state *s, int32_t t, float nll);
    void (*gate)(struct probe_state *s, int layer, int head, int32_t pos,
                 float value); /* any thread */
    /* key: [head_dim], as the cache holds it; any thread */
    void (*key)(struct probe_state *s, int layer, int head, int32_t pos, const float *key);
    /* value: [head_dim], as the cache holds it; any thread, before rows that see it */
    void (*value)(struct probe_state *s, int layer, int head, int32_t pos, const float *value);
    void (*queries)(struct probe_state *s, const struct probe_block *b); /* one thread */
    void (*missed)(struct probe_state *s, const struct probe_missed *m);
    /* NLL: of token t; KL: of the query of step t; RESIDUAL: of step t after a layer. */
    void (*twin)(struct probe_state *s, enum probe_twin what, int layer, int32_t t, float value);
    /* Values [0, t1) of a head as an array's column has them, to out: for arrays of kind
     * PROBE_BY_VALUES and PROBE_NOT_KEPT. */
    void (*values)(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out);
};

/* Declares arrays of every run: PROBE_ARRAYS(table) in the initialiser of a struct probe. */
#define PROBE_ARRAYS(table) .array = (table), .n_arrays = (int)(sizeof(table) / sizeof *(table))

extern const struct probe *const probe_table[]; /* ends with NULL */

/* The values [cap] of a head in array `array`; layer and head are 0 in the space of the run. */
void *probe_cells(const struct probe_state *s, int array, int layer, int head);
/* All of it: [rows][cap] values of so many bytes. */
size_t probe_rows(const struct probe_state *s, int array);
size_t probe_cell_size(const struct probe_state *s, int array);

#endif

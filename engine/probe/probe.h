/* probe.h - interface of probes, which record data during a run.
 *
 * A probe declares its columns and stores the values of its hooks in arrays [heads][cap]. arrays.c
 * allocates these arrays and writes them into the trace. Probes only observe: the decoder computes
 * the same bits with and without them. Memory is O(T).
 *
 * To add a probe NAME (tools/new.py probe NAME "summary" writes all of these):
 * 1. probe_NAME.c ends with `const struct probe probe_NAME`. `array` declares its columns,
 *    `wants` the hooks that it needs. Rows of different heads arrive concurrently.
 *    `lean` makes it part of --probes lean, `full_only` excludes it from paper, `in_auto` adds it
 *    to a default run.
 * 2. X(NAME), at the end of probes.list.
 * 3. docs/reference/probes.md: `## NAME`; its columns also in libtrace/include/kvf/schema.h and
 *    libtrace/schema_rules.h, otherwise no trace can have them.
 * 4. tests/analyze/test_probe_NAME.py, or another: its columns against dense attention; the run is
 *    the same with and without it.
 * 5. `meson test -C build --setup quick --suite analyze --suite lint --no-suite slow`.
 * Its line under --probes in docs/man/kvfate-run.1 is generated from the struct. */
#pragma once

#include <kvf/schema.h>
#include <kvf/trace.h>

#include "engine/kernels/kernels.h"
#include "engine/method/decisions.h"

enum {
    PROBE_ROWS = 1u << 0,           /* attention rows */
    PROBE_EVICT = 1u << 1,          /* evictions */
    PROBE_NLL = 1u << 2,            /* -ln p of each input token */
    PROBE_GATE = 1u << 3,           /* gate values */
    PROBE_KEY = 1u << 4,            /* keys */
    PROBE_QUERY = 1u << 5,          /* query vectors */
    PROBE_SHADOW_ENTRIES = 1u << 8, /* attention to evicted entries, which are kept aside */
    PROBE_SHADOW_MODEL = 1u << 9,   /* a full-cache copy of the model processes the same tokens */
    /* The rows of all query heads of a KV head arrive together: for up to PROBE_GROUP_ROWS queries
     * the rows of its first head, then of the next, all from one thread, before later queries of
     * any of them. */
    PROBE_GROUPS = 1u << 10,
    PROBE_VALUE = 1u << 11, /* value vectors, and out_gram of the configuration */
};
enum { PROBE_GROUP_ROWS = 16 };
enum { PROBE_SPAN_SETS = 5 }; /* maximum number of token sets of a run */

/* A set of tokens that the user named before the run (--spans). */
struct probe_span_set {
    const char *name; /* "": the union of all sets, always the first set */
    int n;
    const int32_t (*range)[2]; /* [n] tokens [a, b), rising and disjoint */
};

/* Properties of a run on which columns and states of probes depend. */
struct probe_config {
    struct method_shape shape;
    int cap; /* maximum number of tokens: T <= cap */
    const struct kernels *kernels;
    const char *gate_column;   /* column name of the gate values; NULL: no gates */
    bool reads;                /* queries after the prompt read selected pages */
    const struct watch *watch; /* heads and tokens of raw blocks (watch.h); may be NULL */
    bool evicts;               /* queries may not see all entries */
    bool shadow_entries;       /* the hook missed() will be called */
    const struct probe_span_set *span_set; /* [n_span_sets] */
    int n_span_sets;
    /* [L][plan_heads][plan_tokens] first step with a query that does not see the entry under a
     * plan. The run has the plan as input but does not have to follow it. Later tokens are kept.
     * NULL: no plan. */
    const uint32_t *plan_until;
    int plan_heads, plan_tokens;
    enum kv_type kv_type;   /* of the cache; integers also round queries */
    float attn_scale;       /* factor of the logits */
    float attn_cap;         /* their soft cap; 0: none */
    int every;              /* dilution records every N-th query: t % every == 0; 0 is 1 */
    const double *out_gram; /* engine/model/out_gram.h; NULL unless PROBE_VALUE is wanted */
};

/* A row of attention weights with its entries in order of time. Rows of one query head arrive in
 * rising t, from one thread at a time. Heads run in parallel. */
struct probe_row {
    int layer, head; /* query head */
    int32_t t;
    int n;
    const float *p;     /* [n] rising position */
    const int32_t *pos; /* [n] positions, or NULL if pos[k] = k */
    float lse, entropy;
    bool stepping;           /* a token after the prompt */
    bool gathered;           /* `rows` reports it again; pos is NULL */
    void *scratch;           /* row_cuts_scratch(cap) bytes of this thread */
    struct probe_cuts *cuts; /* of this thread */
    float *room;             /* [cap] buffer of this thread, for a probe during its hook */
};

/* Consecutive rows of one query head: row r is query t + r and has the entries of positions 0 ..
 * w.n + r - 1. At most PROBE_GROUP_ROWS. */
struct probe_rows {
    int layer, head; /* query head */
    int32_t t;
    struct weight_rows w;
    const struct row_cut
        *cut; /* [w.n_rows][KVF_N_CRITERIA], if probe_row_cuts was called for the rows */
};

/* Selected sets of a row, one for each criterion of KVF_CRITERIA_MAP, as cuts and as bits. Probes
 * request them with probe_row_cuts() and probe_row_members(). */
struct probe_cuts {
    bool known, listed; /* `cut`, and `member`, belong to the row */
    struct row_cut cut[KVF_N_CRITERIA];
    /* [KVF_N_CRITERIA][words] bit i: position i is in the set; and a buffer of that size */
    uint64_t *member, *by_entry;
    size_t words; /* cap bits */
};

/* Queries of all heads of a layer at steps t0 .. t0 + n - 1, first before RoPE and then after
 * it. */
struct probe_block {
    int layer;
    bool turned; /* after RoPE */
    int32_t t0;
    int n;
    const float *q; /* [n] rows, ld apart, of [n_heads][head_dim] */
    size_t ld;
};

/* Entries that a query did not see. Order and threads as in struct probe_row. */
struct probe_missed {
    int layer, head; /* query head */
    int32_t t;
    float kept, oracle;        /* mass of the visible entries; mass of as many largest weights */
    float error;               /* relative error of the output: |o_all - o| / |o_all| */
    int n;                     /* number of positions 0 .. n-1; 0: all were visible */
    const float *p;            /* [n] weights over all of them */
    const unsigned char *seen; /* [n] */
    struct row_cut cut;        /* as many largest weights as there were visible entries */
    void *scratch;             /* row_cuts_scratch(cap) bytes of this thread */
};

/* Values that compare the run with the full-cache copy of the model. */
enum probe_full { FULL_NLL, FULL_KL, FULL_RESIDUAL };

/* Initial value of an array. PROBE_ONES: all bits set (KVF_ALIVE, KVF_NEVER). */
enum probe_start { PROBE_ZEROS, PROBE_NAN, PROBE_ONES };

/* How the values of a column are stored in memory. */
enum probe_kept {
    PROBE_AS_WRITTEN,
    PROBE_AS_DOUBLE, /* f64 for a column of f32 */
    PROBE_AS_STEP,   /* step t of an event, all ones: no event; written as age t - i */
    PROBE_BY_VALUES, /* in the column's type; `values` converts it */
    PROBE_NOT_KEPT,  /* `values` computes it from the probe's private state */
};

enum {
    PROBE_STEPS = 0
}; /* as dtype: u16 if all steps of the run fit (all ones excluded), else u32 */

/* A column of the trace and its array [heads of its space][cap], or for a sampled probe [heads of
 * its space][cells] with the value of step t at t / every. Columns with KVF_COL_SNAPSHOT are
 * written completely at each snapshot; other columns are written as steps complete. */
struct probe_array {
    struct kvf_column column;
    enum probe_start start;
    enum probe_kept kept;
};

/* Whether a default run has a probe that is not part of paper. */
enum probe_auto {
    AUTO_NEVER,
    AUTO_CPU, /* not on a device, which would have to return to the host for it */
    AUTO_ALL,
};

struct probe_sink;
struct probe;
/* A probe in a run. */
struct probe_state {
    const struct probe *probe;
    const struct probe_config *cfg;
    bool narrow; /* PROBE_STEPS are u16 */
    int n_arrays;
    struct probe_array *array; /* [n_arrays] with PROBE_STEPS replaced */
    void **data;               /* [n_arrays]; NULL: not stored */
    size_t *heads, *head_size; /* [n_arrays] heads of a layer; bytes of a head's values */
    int every;                 /* steps of a value: 1, or that of the configuration if sampled */
    size_t cells;              /* values of a head: cap steps */
    int column0;               /* index of the first column in the trace */
    void *own;                 /* private state from `open` */
    bool away;                 /* a device processes its rows and values */
};

/* A probe: its name, its columns and its hooks. Hooks that are NULL are not called. */
struct probe {
    const char *name, *summary;
    unsigned wants;
    bool lean;                       /* part of --probes lean */
    bool full_only;                  /* part of --probes full, not of paper */
    bool by_name;                    /* not part of lean, paper and full */
    enum probe_auto in_auto;         /* part of --probes auto, in addition to all of paper */
    const char *shadow;              /* name under --shadow; NULL: the probe belongs to --probes */
    const struct probe_array *array; /* [n_arrays] its columns, in trace order */
    int n_arrays;
    /* Used if the columns depend on the run: stores them in out unless that is NULL, and returns
     * their number. */
    int (*arrays)(const struct probe_config *cfg, struct probe_array *out);
    bool sampled;   /* records and stores only the steps t % cfg->every == 0; all columns by step */
    bool by_column; /* values are written column by column; otherwise layer by layer */

    /* Creates s->own. Returns KVF_OK or KVF_E_NOMEM; close is called in either case. */
    int (*open)(struct probe_state *s);
    void (*close)(struct probe_state *s); /* frees s->own, if any; NULL: mem_free is used */
    /* Copies the first n tokens of s->own from another state to a new one. NULL: s->own follows
     * from the configuration. */
    void (*copy)(struct probe_state *s, const struct probe_state *from, int32_t n);
    /* Announces the token at position t, in rising order and before its query. t can go back, if a
     * prompt was announced but not processed completely. One thread. */
    void (*token)(struct probe_state *s, int32_t t, int32_t id);
    void (*row)(struct probe_state *s, const struct probe_row *row);
    /* Processes rows that `row` received with `gathered` set, before a later row of the head
     * without it. Reads and writes of an entry then serve several rows. NULL: `row` processes all
     * rows. */
    void (*rows)(struct probe_state *s, const struct probe_rows *rows);
    void (*evict)(struct probe_state *s, const struct eviction *e);
    void (*nll)(struct probe_state *s, int32_t t, float nll);
    void (*gate)(struct probe_state *s, int layer, int head, int32_t pos,
                 float value); /* any thread */
    /* key: [head_dim], as cached; any thread */
    void (*key)(struct probe_state *s, int layer, int head, int32_t pos, const float *key);
    /* value: [head_dim], as cached; any thread, before rows that see it */
    void (*value)(struct probe_state *s, int layer, int head, int32_t pos, const float *value);
    void (*queries)(struct probe_state *s, const struct probe_block *b); /* one thread */
    void (*missed)(struct probe_state *s, const struct probe_missed *m);
    /* Returns true if `missed` reads the weights of query t even if it lost no attention. NULL: it
     * never does. */
    bool (*reads_all)(const struct probe_state *s, int32_t t);
    /* NLL: of token t; KL: of the query of step t; RESIDUAL: of step t after a layer. */
    void (*full)(struct probe_state *s, enum probe_full what, int layer, int32_t t, float value);
    /* Converts values [0, t1) of a head to the type of an array's column, for arrays of kind
     * PROBE_BY_VALUES and PROBE_NOT_KEPT. */
    void (*values)(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out);
    /* Writes blobs of steps [t0, t1) with probe_put_blob (arrays.h). Calls follow each other in
     * rising order, and the last one may be repeated for the tail of the trace. Returns KVF_OK or
     * KVF_E_NOMEM. NULL: the probe has columns only. */
    int (*blobs)(const struct probe_state *s, const struct probe_sink *sink, int32_t t0,
                 int32_t t1);
    /* Returns the bytes of blobs per token. */
    double (*blob_bytes)(const struct probe_config *cfg);
};

/* Declares the arrays of every run: PROBE_ARRAYS(table) in the initialiser of a struct probe. */
#define PROBE_ARRAYS(table) .array = (table), .n_arrays = (int)(sizeof(table) / sizeof *(table))

extern const struct probe *const probe_table[]; /* ends with NULL */

/* Returns the values [cap] of a head in an array; layer and head are 0 in the space of the run. */
void *probe_cells(const struct probe_state *s, int array, int layer, int head);
/* Return the size of an array: [rows][cap] values of probe_cell_size bytes. */
size_t probe_rows(const struct probe_state *s, int array);
size_t probe_cell_size(const struct probe_state *s, int array);
/* Copies the first n values of each of `rows` rows, each [cap] values of `size` bytes, between
 * buffers whose states have their own cap. */
void probe_copy_rows(const struct probe_state *s, void *to, const struct probe_state *from,
                     const void *source, size_t rows, size_t size, int32_t n);

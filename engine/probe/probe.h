/* probe.h - what the engine records while it runs.
 *
 * A probe is one file with one const struct, listed in probe_table.c: it names
 * its columns, keeps O(T) state and writes it into the trace.  Probes watch:
 * with and without them the decoder computes the same bits. */
#ifndef KVF_ENGINE_PROBE_H
#define KVF_ENGINE_PROBE_H

#include <kvf/schema.h>
#include <kvf/trace.h>

#include "engine/kernels/kernels.h"
#include "engine/method/method.h"

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
enum { PROBE_MAX_COLUMNS = 16 }; /* of a probe without n_columns */
enum { PROBE_SPAN_SETS = 5 };    /* most sets of tokens that a run is given */

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
    void *scratch;           /* row_cuts_scratch(cap) bytes of this thread */
    struct probe_cuts *cuts; /* of this thread; see probe_row_cuts */
    float *room;             /* [cap] of this thread, for a probe to use while it has the row */
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

struct probe_sink; /* where write() puts data */

struct probe {
    const char *name, *summary;
    unsigned wants;
    bool lean;          /* part of --probes lean */
    bool full_only;     /* part of --probes full, not of paper */
    bool by_name;       /* part of no set: needs a choice of heads (watch.h) */
    const char *shadow; /* it is asked for by --shadow, under this name; NULL: by --probes */
    int (*n_columns)(const struct probe_config *cfg); /* room that columns needs; may be NULL */
    /* Fills out[PROBE_MAX_COLUMNS]; returns how many. */
    int (*columns)(const struct probe_config *cfg, struct kvf_column *out);
    void *(*create)(const struct probe_config *cfg); /* NULL: no memory */
    void (*destroy)(void *state);                    /* accepts NULL */
    void (*row)(void *state, const struct probe_row *row);
    void (*evict)(void *state, const struct eviction *e);
    void (*nll)(void *state, int32_t t, float nll);
    void (*gate)(void *state, int layer, int head, int32_t pos, float value); /* any thread */
    /* key: [head_dim], as the cache holds it; any thread */
    void (*key)(void *state, int layer, int head, int32_t pos, const float *key);
    /* value: [head_dim], as the cache holds it; any thread, before rows that see it */
    void (*value)(void *state, int layer, int head, int32_t pos, const float *value);
    void (*queries)(void *state, const struct probe_block *b); /* one thread */
    void (*missed)(void *state, const struct probe_missed *m);
    /* NLL: of token t; KL: of the query of step t; RESIDUAL: of step t after a layer. */
    void (*twin)(void *state, enum probe_twin what, int layer, int32_t t, float value);
    /* Columns without KVF_COL_SNAPSHOT: values of steps [t0, t1).  Called with
     * rising, adjoining ranges.  Snapshot columns: values of [0, t1), epoch
     * tells which call it is. */
    int (*stream)(void *state, struct probe_sink *sink, int32_t t0, int32_t t1);
    int (*snapshot)(void *state, struct probe_sink *sink, int32_t t1);
};

extern const struct probe *const probe_table[]; /* ends with NULL */

/* Writes rows [n_heads][n] found at data + (head * stride + t0) * size. */
int probe_put(struct probe_sink *sink, int column, int layer, int n_heads, const void *data,
              size_t stride, size_t size, int32_t t0, int32_t n);
/* Arrays [layers][heads][cap] of several columns, layer by layer; space: whose heads. */
struct probe_array {
    int column;
    const void *data;
    size_t size; /* bytes of an element */
};
int probe_put_layers(struct probe_sink *sink, enum kvf_space space, const struct probe_array *a,
                     int n_arrays, int32_t t0, int32_t n);
const struct probe_config *probe_sink_config(const struct probe_sink *sink);

#endif

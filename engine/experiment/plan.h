/* plan.h - a plan: the tokens of a run, the step at which each entry was evicted, and the
 * attention that each token received, for use by another run (docs/reference/plans.md).
 *
 * A plan is a closed .kvf file with the key "plan" in its run header. It keeps the keys "model",
 * "tokenizer", "run" and "method" of the trace that it was made from.
 *
 *   tokens.id    i32 run   token   all tokens fed, the prompt first
 *   tokens.role  u8  run   token
 *   evict_step   u32 kv    token   first step whose query no longer sees the entry
 *   plan.mass    f64 query token   attention received over all queries
 */
#ifndef KVF_ENGINE_PLAN_H
#define KVF_ENGINE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/trace.h>

/* The model that will use a plan. */
struct plan_model {
    int n_layers, n_heads, n_kv_heads, vocab; /* n_heads counts query heads */
    int most_tokens;                          /* its context */
    char hash[33], tokenizer_hash[33];
};

/* A plan in memory. */
struct plan {
    int n_layers, n_heads;
    int n_kv_heads;   /* of the cache; n_heads if query heads had their own caches */
    int32_t n_tokens; /* T */
    int32_t n_prompt; /* tokens of the prompt; 0 if not known */
    int32_t *ids;     /* [T]; NULL if the plan has no tokens */
    uint8_t *roles;   /* [T], enum kvf_role; NULL if the plan has no roles */
    /* [L][H][T], i + 1 .. T or KVF_ALIVE; NULL if the plan has no evictions */
    uint32_t *evict_step;
    double *mass;    /* [L][G][T]; NULL if the plan has no masses */
    char method[64]; /* method of the run; "" if it is not known */
    int chunk;       /* tokens of the prompt between evictions; 0 for the whole prompt */
    bool by_rank;    /* positions were ranks within the cache */
};

/* Reads a plan that was made with the model. Returns KVF_E_FORMAT with a sentence for a trace that
 * is not a plan, a plan of another model or shape, and impossible values. */
int plan_open(const char *path, const struct plan_model *model, struct plan **ret_plan,
              struct kvf_diag *d);

/* Reads only the tokens of a plan or a trace. The vocabulary must be that of the model; other
 * properties may differ. */
int plan_open_tokens(const char *path, const struct plan_model *model, struct plan **ret_plan,
                     struct kvf_diag *d);
void plan_close(struct plan *p); /* accepts NULL */

/* Options of a plan to write. */
struct plan_options {
    bool no_tokens, no_evictions, no_mass; /* omit these columns */
    bool overwrite;                        /* replace an existing file */
    /* [L * H] keep the evictions of these heads; other heads evict no entry. NULL for all heads */
    const unsigned char *heads;
    const char *head_text; /* the set of heads as typed, for the header; NULL for all heads */
};

/* Writes the plan of a trace to path, completely or not at all. Columns that the trace lacks are
 * omitted. Returns KVF_OK, KVF_E_NOTFOUND if no column remains, or another error with a
 * sentence. */
int plan_write(struct kvf_trace *trace, const struct plan_options *opt, const char *path,
               struct kvf_diag *d);

#endif

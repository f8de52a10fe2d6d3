/* plan.h - what one run hands to another: its tokens, the step at which each entry
 * was evicted, and the attention each token received (docs/reference/plans.md).
 *
 * A plan is a closed .kvf whose run header has the key "plan"; it keeps the keys
 * "model", "tokenizer", "run" and "method" of the trace that it was made from.
 *
 *   tokens.id    i32 run   token   all tokens fed, the prompt first
 *   tokens.role  u8  run   token
 *   evict_step   u32 kv    token   first step whose query no longer sees the entry
 *   plan.mass    f64 query token   attention received over all queries */
#ifndef KVF_ENGINE_PLAN_H
#define KVF_ENGINE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/trace.h>

/* The model that a plan is wanted for. */
struct plan_model {
    int n_layers, n_heads, n_kv_heads, vocab; /* n_heads: query heads */
    int most_tokens;                          /* its context */
    char hash[33], tokenizer_hash[33];
};

struct plan {
    int n_layers, n_heads;
    int n_kv_heads;       /* of the cache: n_heads where query heads had caches of their own */
    int32_t n_tokens;     /* T */
    int32_t n_prompt;     /* of them, the prompt of the run; 0: not known */
    int32_t *ids;         /* [T]; NULL: none */
    uint8_t *roles;       /* [T], enum kvf_role; NULL: none */
    uint32_t *evict_step; /* [L][H][T], i + 1 .. T or KVF_ALIVE; NULL: none */
    double *mass;         /* [L][G][T]; NULL: none */
    char method[64];      /* of the run; "" when it is not known */
    int chunk;            /* tokens of the prompt between its cuts; 0: the whole prompt */
    bool by_rank;         /* positions were those within the cache */
};

/* Reads a plan made with the model.  KVF_E_FORMAT with a sentence for traces that are no
 * plan, plans of another model or shape, and values that no run can have. */
int plan_open(const char *path, const struct plan_model *model, struct plan **ret_plan,
              struct kvf_diag *d);

/* Reads the tokens alone, of a plan or of a trace: the vocabulary must be the model's, the rest
 * may differ. */
int plan_open_tokens(const char *path, const struct plan_model *model, struct plan **ret_plan,
                     struct kvf_diag *d);
void plan_close(struct plan *p); /* accepts NULL */

struct plan_options {
    bool no_tokens, no_evictions, no_mass; /* leave these out */
    bool overwrite;                        /* replace what is at the name */
    const unsigned char *heads; /* [L * H] evictions of these heads, the others keep all; NULL:
                                   all heads */
    const char *head_text;      /* the choice as typed, for the header; NULL: all */
};

/* Writes the plan of a trace to path, whole or not at all.  What the trace lacks is
 * left out; KVF_E_NOTFOUND when nothing remains. */
int plan_write(struct kvf_trace *trace, const struct plan_options *opt, const char *path,
               struct kvf_diag *d);

#endif

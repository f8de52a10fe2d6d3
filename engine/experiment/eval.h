/* eval.h - what a cache method costs in quality, at a budget.
 *
 * A document is P + S tokens.  P are prefilled under the full cache, the method cuts
 * the cache to its budget, and the S others are fed one by one.  Scored are the S:
 * token i by the query of token i - 1, its NLL under the method's cache and KL(full ||
 * method) over the whole vocabulary.  The first of them is predicted by the last
 * query of the prompt, which no cut has touched yet.  docs/reference/eval.md. */
#ifndef KVF_ENGINE_EVAL_H
#define KVF_ENGINE_EVAL_H

#include "base/table.h"
#include "engine/experiment/documents.h"
#include "engine/experiment/lanes.h"

/* What is fed: P tokens of a prompt, and the S after them; borrowed. */
struct eval_text {
    const int32_t *ids;          /* [P + S] */
    int prompt, score;           /* P and S, both at least 1, P + S within the model's context */
    const unsigned char *counts; /* [S] not 0: the token is scored; NULL: all are */
};

/* What one text says of a cell: means over the tokens that are scored. */
struct eval_result {
    double nll, kl;                  /* nats per token */
    double agree;                    /* share of tokens with the same argmax as full */
    double right;                    /* 1: every token is the likeliest, so that greedy decoding
                                        that gets as far gives it; else 0 */
    double kv_end, kv_mean, kv_peak; /* entries per head of the cache, mean over heads, that
                                        the S queries saw: the last, the mean, the most */
    int64_t triggers; /* decisions that cut something for the budget (session_cuts) */
};

struct eval {
    struct engine *engine;
    enum kv_type kv_type;
    int prompt, score;                       /* P and S of all texts; 0: they differ */
    int64_t tokens;                          /* that are scored in all texts together */
    bool answers;                            /* texts are tasks, whose answers are right or wrong */
    double floor;                            /* of right: what guessing gives */
    int chunk;                               /* of prefills; 0 = default */
    void (*progress)(void *ctx, int tokens); /* told how many more are fed; may be NULL */
    void *ctx;
};

/* Runs all cells on one text.  KVF_OK or KVF_E_NOMEM (and others of
 * session_create) with a sentence. */
int eval_document(const struct eval *e, const struct eval_text *x, const struct eval_cell *cell,
                  int n, struct eval_result *ret_result, struct kvf_diag *d);

/* Tokens that eval_document feeds to sessions of the cells. */
int64_t eval_tokens(const struct eval *e, const struct eval_text *x, const struct eval_cell *cell,
                    int n);

/* Rows of one budget whose entries differ by more than this share are told. */
#define EVAL_EQUAL_MEMORY 0.02

/* The table "eval": a row per cell, from result[doc * n + cell].  Intervals: 95 %,
 * percentile bootstrap over documents (EVAL_REPLICATES, the same documents for every
 * cell); NaN with a single document; of right Wilson's.  fed[docs]: the tokens of each text,
 * P + S, against which entries of right tasks are set.  Metadata: unequal_memory, where rows of one
 * budget do not cache equally many entries.  NULL when memory is out. */
enum { EVAL_REPLICATES = 2000 };
struct table *eval_table(const struct eval *e, const struct eval_cell *cell, int n,
                         const struct eval_result *result, const int *fed, int docs);

#endif

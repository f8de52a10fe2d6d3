/* eval.h - measures how much a cache method degrades predictions at a budget.
 *
 * A document has P + S tokens. The first P are prefilled with the full cache, the method evicts
 * down to its budget, and the remaining S are fed one by one. The S tokens are scored: token i
 * with the prediction of query i - 1, by its NLL with the method's cache and by KL(full || method)
 * over the vocabulary. The first of them is predicted by the last query of the prompt, before any
 * eviction. See docs/reference/eval.md.
 */
#ifndef KVF_ENGINE_EVAL_H
#define KVF_ENGINE_EVAL_H

#include "base/table.h"
#include "engine/experiment/documents.h"
#include "engine/experiment/lanes.h"

/* A text to feed: the P tokens of a prompt, and the S tokens after them; borrowed. */
struct eval_text {
    const int32_t *ids; /* P and S, both at least 1; P + S is at most the model's context */
    int prompt, score;
    int question; /* the first of the S tokens, which are a question: fed, but not measured */
    const unsigned char *counts; /* [S - question] not 0: the token is scored; NULL: all are */
};

/* The result of a cell on one text: means over the scored tokens. */
struct eval_result {
    double nll, kl; /* nats per token */
    double agree;   /* fraction of tokens with the same argmax as with the full cache */
    /* 1 if every token is the argmax, so that greedy decoding produces the text; otherwise 0 */
    double right;
    /* entries per cache head, mean over heads, that the S queries saw: the last, the mean and the
     * maximum */
    double kv_end, kv_mean, kv_peak;
    int64_t triggers; /* number of evictions for the budget (session_cuts) */
};

/* The settings of an evaluation. */
struct eval {
    struct engine *engine;
    enum kv_type kv_type;
    int prompt, score; /* P and S of all texts; 0 if they differ */
    int64_t tokens;    /* scored tokens of all texts */
    bool answers;      /* texts are tasks with right or wrong answers */
    bool apart;        /* methods cut the context of a task before they see its question */
    double floor;      /* probability of a right answer by guessing */
    int chunk;         /* chunk size of prefills; 0 for the default */
    /* receives the number of additional tokens fed; may be NULL */
    void (*progress)(void *ctx, int tokens);
    void *ctx;
};

/* Evaluates all cells on one text: ret_result [n]. Returns KVF_OK, KVF_E_NOMEM, or another error
 * of session_create() with a sentence. */
int eval_document(const struct eval *e, const struct eval_text *x, const struct eval_cell *cell,
                  int n, struct eval_result *ret_result, struct kvf_diag *d);

/* Returns the number of tokens that eval_document() feeds to the sessions of the cells. */
int64_t eval_tokens(const struct eval *e, const struct eval_text *x, const struct eval_cell *cell,
                    int n);

/* If the entries of two rows with one budget differ by more than this fraction, the table notes
 * it. */
#define EVAL_EQUAL_MEMORY 0.02

/* Makes the table "eval" with a row per cell, from result[doc * n + cell]. CI are 95 % percentile
 * bootstraps over documents (EVAL_REPLICATES, the same documents for every cell), NaN for a single
 * document. The CI of `right` is Wilson's. fed [docs] is the number of tokens P + S of each text,
 * which the entries of right tasks are divided by; prompt [docs] is P. A budget that is a fraction
 * gives the mean of its entries, and settings that differ between texts are NaN. The metadata entry
 * unequal_memory lists rows with one budget that cache different numbers of entries. Returns NULL
 * if memory is exhausted. */
enum { EVAL_REPLICATES = 2000 };
struct table *eval_table(const struct eval *e, const struct eval_cell *cell, int n,
                         const struct eval_result *result, const int *fed, const int *prompt,
                         int docs);

#endif

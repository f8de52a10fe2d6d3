/* effect.h - ablation: measures how predictions degrade without a part of the KV cache.
 *
 * A prompt of P tokens is prefilled once with the full cache. Each cell forks the session and
 * limits it. It restricts a set of heads to sinks and recent entries from then on, or removes
 * chosen entries permanently. Then the tokens P .. P + S - 1 are fed to all forks (teacher
 * forcing). Step s compares the prediction of query P + s in the fork with its prediction with the
 * full cache. The target is token P + s + 1. See docs/reference/analyses/ablation.md.
 */
#ifndef KVF_ENGINE_EFFECT_H
#define KVF_ENGINE_EFFECT_H

#include "base/table.h"
#include "engine/decode/session.h"

/* The limitation of one fork. */
struct effect_cell {
    const unsigned char *heads; /* [L * KV heads] nonzero for heads that are limited */
    /* numbers of first and of newest entries that the heads keep, the query's own entry included;
     * recent 0: the heads are not restricted */
    int sinks, recent;
    const int32_t *gone; /* [n_gone] positions below P whose entries are removed */
    int n_gone;
    /* [L * KV heads][P] nonzero if the entry is removed from that head; NULL if none */
    const unsigned char *lost;
};

/* The result of one step of a fork. */
struct effect_step {
    double kl;   /* KL(full || fork) in nats; exactly 0 for equal logits */
    double nll;  /* of the target in the fork, in nats */
    double dnll; /* nll minus the value with the full cache */
    bool agree;  /* the same argmax */
    bool right;  /* the argmax of the fork is the target */
};

/* Cache pages of all sessions of a group when it ends, maximum over the groups. pages counts a
 * shared page once, and pages_unshared counts it once per cache. */
struct effect_memory {
    int64_t pages, pages_unshared, page_bytes;
};

/* The settings of an ablation. */
struct effect {
    struct engine *engine;
    enum kv_type kv_type;
    int prompt, steps; /* P and S; P + S is at most the model's context */
    int chunk;         /* chunk size of the prefill; 0 for the default */
    /* receives the number of additional tokens fed; may be NULL */
    void (*progress)(void *ctx, int tokens);
    void *ctx;
};

/* Returns the number of tokens that measuring n cells over `steps` steps feeds, without the
 * prompt. */
int64_t effect_tokens(int n, int steps);

/* Prefills a prompt. ids is [P], with S + 1 more ids for effect_measure(); borrowed. Returns
 * KVF_OK or an error of session_create() or session_prompt(). */
struct effect_run;
int effect_open(const struct effect *e, const int32_t *ids, struct effect_run **ret_run,
                struct kvf_diag *d);
void effect_close(struct effect_run *r); /* accepts NULL */

/* Continues ids greedily with the full cache by up to S + 1 tokens; ids must have space for them.
 * Ends after the first end token unless ignore_end is set. *ret_n >= 1 is the number of tokens.
 * Returns KVF_OK or an error of session_step(). */
int effect_continue(struct effect_run *r, int32_t *ids, bool ignore_end, int *ret_n);

/* Measures n cells over `steps` <= S steps: ret_step[cell * steps + step]. Raises *ret_memory to
 * the memory of this call if that is larger. Returns KVF_OK or an error with a sentence. */
int effect_measure(struct effect_run *r, int steps, const struct effect_cell *cell, int n,
                   struct effect_step *ret_step, struct effect_memory *ret_memory,
                   struct kvf_diag *d);

/* Passes the attention rows of a query at or after position P, with the full cache, to fn, together
 * with that cache. fn may be called from several threads at once, for different query heads.
 * Returns KVF_OK, or an error of session_fork() or session_step(). */
int effect_look(struct effect_run *r, int query,
                void (*fn)(void *ctx, const struct attn_row *row, const struct cache *c), void *ctx,
                struct kvf_diag *d);

/* ---- effect_table.c */

/* One row of the result: a KV head, or a set of entries. */
struct effect_row {
    int layer, head;  /* -1 for several heads */
    char name[64];    /* "L15K2", "span=10:20", ... */
    int token, count; /* first entry and number of entries */
};

/* The results of all cells on all documents, which have equal numbers of steps. */
struct effect_result {
    const struct effect *e;
    const struct effect_row *row; /* [n] */
    int n, docs, steps;
    bool entries;                   /* rows are entries, not heads */
    const struct effect_step *step; /* [docs][n][steps] */
    const int32_t *const *ids;      /* [docs] prompt and the tokens that follow */
};

/* Makes a table with a row per cell: means over documents and steps. The CI are 95 % percentile
 * bootstraps of the mean over documents, or over steps if there is one document. The table is
 * "effect" for heads and "effect-entries" for entries. Returns NULL if memory is exhausted. */
enum { EFFECT_REPLICATES = 2000 };
struct table *effect_table(const struct effect_result *r);
/* Makes the table "effect-steps" with a row per cell, document and step. Returns NULL if memory is
 * exhausted. */
struct table *effect_table_steps(const struct effect_result *r);

#endif

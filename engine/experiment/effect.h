/* effect.h - what the model loses with a part of its memory.
 *
 * A prompt of P tokens is prefilled once under the full cache.  Each cell forks it and
 * takes something away: a set of heads is held to sinks and recent entries from then on,
 * or loses chosen entries for good.  Then the tokens P .. P+S-1 are fed to all (teacher
 * forcing).  Step s compares what query P + s predicts in the fork with what it predicts
 * under the full cache; its target is token P + s + 1.  docs/reference/effect.md. */
#ifndef KVF_ENGINE_EFFECT_H
#define KVF_ENGINE_EFFECT_H

#include "base/table.h"
#include "engine/decode/session.h"

/* What one fork lacks. */
struct effect_cell {
    const unsigned char *heads; /* [L * KV heads] whom it concerns */
    int sinks, recent;          /* they hold so many of the first and of the newest entries,
                                   the query's own included; recent 0: they are not held */
    const int32_t *gone;        /* [n_gone] positions below P that they lose */
    int n_gone;
    const unsigned char *lost; /* [L * KV heads][P] not 0: that head loses the entry; NULL: none */
};

struct effect_step {
    double kl;   /* KL(full || fork), nats; exactly 0 for equal logits */
    double nll;  /* of the target in the fork */
    double dnll; /* nll less that under full */
    bool agree;  /* the same argmax */
    bool right;  /* the argmax of the fork is the target */
};

/* Pages that all caches of a group hold together when it ends; the most of all groups.
 * Each is counted once, and once for every cache that holds it. */
struct effect_memory {
    int64_t pages, pages_unshared, page_bytes;
};

struct effect {
    struct engine *engine;
    enum kv_type kv_type;
    int prompt, steps;                       /* P and S; P + S within the model's context */
    int chunk;                               /* of the prefill; 0 = default */
    void (*progress)(void *ctx, int tokens); /* told how many more are fed; may be NULL */
    void *ctx;
};

/* Tokens that measuring n cells over `steps` steps feeds, beside the prompt. */
int64_t effect_tokens(int n, int steps);

/* A prompt that has been prefilled.  ids: [P] and, for effect_measure, S + 1 more;
 * borrowed.  KVF_OK or an error of session_create or session_prompt. */
struct effect_run;
int effect_open(const struct effect *e, const int32_t *ids, struct effect_run **ret_run,
                struct kvf_diag *d);
void effect_close(struct effect_run *r); /* accepts NULL */

/* Continues ids greedily under the full cache by up to S + 1 tokens; ids has room for
 * them.  Ends after the first token that ends a text, unless that is ignored.  How many
 * came is *ret_n >= 1. */
int effect_continue(struct effect_run *r, int32_t *ids, bool ignore_end, int *ret_n);

/* Runs n cells over `steps` <= S steps: ret_step[cell * steps + step].  The memory is
 * the most of what it was and what this takes. */
int effect_measure(struct effect_run *r, int steps, const struct effect_cell *cell, int n,
                   struct effect_step *ret_step, struct effect_memory *ret_memory,
                   struct kvf_diag *d);

/* Tells of the attention rows of query P, which is that of ids[P], under the full cache, with the
 * cache that they are rows of: fn may come from several threads at once, for different query heads.
 * KVF_OK, or an error of session_fork or session_step. */
int effect_look(struct effect_run *r,
                void (*fn)(void *ctx, const struct attn_row *row, const struct cache *c), void *ctx,
                struct kvf_diag *d);

/* ---- effect_table.c */

/* One row of the result: a KV head, or a set of entries. */
struct effect_row {
    int layer, head;  /* -1: several */
    char name[64];    /* "L15K2", "span=10:20", ... */
    int token, count; /* of entries: the first, and how many */
};

/* All cells of all documents.  Every document has as many steps. */
struct effect_result {
    const struct effect *e;
    const struct effect_row *row; /* [n] */
    int n, docs, steps;
    bool entries;                   /* rows are entries, not heads */
    const struct effect_step *step; /* [docs][n][steps] */
    const int32_t *const *ids;      /* [docs] prompt and what follows */
};

/* Makes a table with a row per cell: means over documents and steps.  Intervals are 95 % percentile
 * bootstraps of the mean over documents, or over steps where there is one document.
 * Table "effect" for heads, "effect-entries" for entries.  NULL when memory is out. */
enum { EFFECT_REPLICATES = 2000 };
struct table *effect_table(const struct effect_result *r);
/* Makes the table "effect-steps" with a row per cell, document and step. */
struct table *effect_table_steps(const struct effect_result *r);

#endif

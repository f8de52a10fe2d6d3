/* lanes.h - prefills one prompt for several methods and budgets.
 *
 * The prompt runs once with the full cache. If a cell's prefill is that of the full cache, its
 * method observes this prefill, and its session is forked from it (session.h). Other cells prefill
 * the prompt separately. Each cell ends with its own session, evicted to its budget, as if it had
 * run separately.
 */
#ifndef KVF_ENGINE_LANES_H
#define KVF_ENGINE_LANES_H

#include "engine/decode/session.h"

/* A method at a budget. */
struct eval_cell {
    const char *label; /* as given, such as "snapkv:window=16"; borrowed */
    struct method row;
    struct method_params params;         /* budget 0 if it has no budget */
    const struct gates *gates;           /* borrowed; NULL if it has no gates */
    const struct head_table *head_table; /* borrowed; NULL unless allocation=file */
    struct budget budget;                /* as given; its fraction is resolved for each text */
};

/* Resolves a budget that is a fraction for a prompt of `tokens`. Returns KVF_OK, or KVF_E_ARG with
 * a sentence if the method cannot keep its budget there. */
int eval_cell_resolve(struct eval_cell *c, int tokens, struct kvf_diag *d);
/* Calls eval_cell_resolve(), and checks the budgets of heads of a table, which follow from the
 * entries.  KVF_OK or KVF_E_ARG with a sentence. */
int eval_cell_fit(struct eval_cell *c, const struct engine *e, int tokens, struct kvf_diag *d);

enum { LANES_MOST = 64 }; /* maximum cells at a time; limits the memory of their evidence */

/* Cells that share a prompt, and their sessions. */
struct lanes {
    /* set by the caller */
    struct engine *engine;
    enum kv_type kv_type;
    int chunk, cap; /* chunk size and maximum length of sessions (struct session_options) */
    const struct eval_cell *cell;      /* [n] borrowed */
    int n;                             /* at most LANES_MOST */
    const struct method_range *ranges; /* [n_ranges] of the prompt, for `protect`; borrowed */
    int n_ranges;
    bool spare; /* cells that are always equal to the full cache get no session of their own */
    /* receives the number of additional tokens fed; may be NULL */
    void (*progress)(void *ctx, int tokens);
    void *ctx;

    struct method_params *params;     /* [n] those of the cells, for this prompt */
    struct session *full;             /* the full cache after the prompt, without evictions */
    struct session *lane[LANES_MOST]; /* [n]; NULL if the cell uses `full`, only with spare */
};

/* Prefills the prompt, of at most cap tokens. Returns KVF_OK, or an error of session_create() or
 * session_prompt(). Call lanes_close() in either case. */
int lanes_open(struct lanes *l, const int32_t *ids, int n, struct kvf_diag *d);
void lanes_close(struct lanes *l); /* accepts a zeroed struct */

/* Feeds n known tokens after the prompt, such as a question, to all sessions. Returns KVF_OK, or an
 * error of session_step(). */
int lanes_feed(struct lanes *l, const int32_t *ids, int n);

/* Returns the maximum tokens of the session of cell i. It is cap, or the model's context if that
 * is smaller and the method cannot exceed it. i = -1 is the full cache. */
int lanes_cap(const struct lanes *l, int i);

/* Returns the number of times that lanes_open() feeds the prompt. */
int lanes_prompts(const struct lanes *l);

/* Returns the session of cell i. */
struct session *lanes_session(const struct lanes *l, int i);

#endif

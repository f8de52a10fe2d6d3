/* lanes.h - one prompt under many methods and budgets.
 *
 * The prompt runs once, under the full cache.  Cells whose prompt is that of the full cache watch
 * it, and fork from it (session.h); others read it themselves.  Each ends with a session of its
 * own, cut to its budget, as if it had been alone. */
#ifndef KVF_ENGINE_LANES_H
#define KVF_ENGINE_LANES_H

#include "engine/decode/session.h"

/* A method at a budget. */
struct eval_cell {
    const char *label; /* as it was given: "snapkv:window=16"; borrowed */
    struct method row;
    struct method_params params; /* budget 0: it has none */
    const struct gates *gates;   /* borrowed; NULL: none */
};

enum { LANES_MOST = 64 }; /* cells side by side: bounds the memory of their evidence */

struct lanes {
    /* what the caller says */
    struct engine *engine;
    enum kv_type kv_type;
    int chunk, cap; /* of sessions (struct session_options), as far as a cell can go */
    const struct eval_cell *cell; /* [n] borrowed */
    int n;                        /* at most LANES_MOST */
    bool spare; /* cells that stay as the full cache is have no session of their own */
    void (*progress)(void *ctx, int tokens); /* told how many more are fed; NULL: nobody is */
    void *ctx;

    struct session *full;             /* behind the prompt, as nothing had been cut */
    struct session *lane[LANES_MOST]; /* [n]; NULL: it is `full` (with spare alone) */
};

/* Runs the prompt, of at most cap tokens.  KVF_OK, or an error of session_create and
 * session_prompt; lanes_close is to be called in either case. */
int lanes_open(struct lanes *l, const int32_t *ids, int n, struct kvf_diag *d);
void lanes_close(struct lanes *l); /* accepts a zeroed struct */

/* Tokens that the session of cell i can be fed: cap, or the model's context if that is less and the
 * cell does not go on beyond it.  i = -1: the full cache. */
int lanes_cap(const struct lanes *l, int i);

/* How often lanes_open feeds the prompt. */
int lanes_prompts(const struct lanes *l);

/* The session of cell i. */
struct session *lanes_session(const struct lanes *l, int i);

#endif

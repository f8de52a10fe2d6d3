/* method_state.h - the running state of a method, for the decoder: create it, feed it, read from
 * it.
 *
 * preset.h defines methods, and decisions.h evicts entries.
 *
 * Chains.  Different KV heads may run different presets.  Their states form a chain, and each state
 * owns its heads.  Every function that takes the state of a session takes the first state of the
 * chain. */
#ifndef KVF_ENGINE_METHOD_STATE_PUBLIC_H
#define KVF_ENGINE_METHOD_STATE_PUBLIC_H

#include "engine/gate/gate.h"
#include "engine/method/preset.h"
#include "engine/model/config.h"

struct par;
struct external; /* external.h */

/* One attention row.  Rows of one query head come in order of rising t.  Threads may pass rows of
 * different heads at once. */
struct attn_row {
    int layer, head; /* query head */
    int32_t t;       /* position of the query */
    int n;           /* slots */
    int seen;        /* visible entries; all other entries have weight 0 */
    bool stepping;   /* a token after the prompt */
    const float *p;  /* [n] attention weights in slot order */
    float lse;       /* ln of the sum of exp(logit) over the visible entries: logit = ln p + lse */
    const unsigned char *visible; /* [n] 1: the entry is visible; NULL: all are */
};

/* A range of tokens of the prompt that `protect` can name. */
struct method_range {
    const char *name;   /* of a span; NULL: a system message */
    int32_t first, end; /* positions [first, end) */
};

/* Inputs of a method in addition to its parameters.  All are borrowed. */
struct method_inputs {
    const struct gates *gates;           /* NULL: none */
    const struct head_table *head_table; /* of allocation=file; NULL: none */
    const int32_t *plan_until;           /* [L][H][plan_len] of the admission `plan` */
    int plan_len;
    const double *plan_mass;           /* [L][G][plan_len] attention of the whole run */
    const struct model_config *model;  /* its windows and RoPE; NULL: no windows and no RoPE */
    int length;                        /* maximum tokens of the session */
    bool keeps_all;                    /* a full-cache run: sliding windows evict no entries */
    const struct kernels *kernels;     /* of the scores; NULL: the C reference */
    struct external *external;         /* of score=external; NULL: none */
    int prompt;                        /* tokens of the prompt, for `protect` */
    const struct method_range *ranges; /* [n_ranges] within the prompt, for `protect` */
    int n_ranges;
};

/* Returns KVF_OK if `in` has what the preset needs, KVF_E_NOMEM, or KVF_E_ARG with a sentence. */
int method_check_inputs(const struct method *m, const struct method_params *p,
                        const struct method_inputs *in, struct kvf_diag *d);

/* Finds the tokens that `protect` names, sets n_protected, and derives again the numbers that
 * follow from it.  Call it for each prompt, before a state is created.  It has no effect without
 * `protect`. Returns KVF_OK, KVF_E_NOMEM, or KVF_E_ARG with a sentence if the prompt has no such
 * tokens or they do not fit into the budget. */
int method_protect(const struct method *m, struct method_params *p, const struct method_inputs *in,
                   struct kvf_diag *d);

/* Creates a state.  in: NULL for no inputs.  A preset that needs gates must have them
 * (method_check_inputs).  KVF_OK or KVF_E_NOMEM. */
int method_state_create(const struct method *m, const struct method_params *p,
                        const struct method_shape *shape, const struct method_inputs *in,
                        struct method_state **ret_state);
/* Destroys all states of the chain.  Accepts NULL. */
void method_state_destroy(struct method_state *s);
/* Copies a chain with all its evidence (fork.c).  KVF_OK or KVF_E_NOMEM. */
int method_state_fork(const struct method_state *from, struct method_state **ret_state);
/* Returns true if a state of this preset can observe a session under `full` and then continue as if
 * the prompt had been its own.  Such a preset admits and reads all entries, keeps original
 * positions in the prompt, and needs attention rows, keys and values only. */
bool method_shares_prompt(const struct method *m, const struct method_params *p);

/* Appends `other` to the chain and gives it the heads with heads[layer * H + head] != 0.  The chain
 * owns `other` from then on.  KVF_OK, or KVF_E_NOMEM (the caller still owns `other`). */
int method_override(struct method_state *s, struct method_state *other, const unsigned char *heads);
/* Returns true if this state of a chain owns the head. */
bool method_owns(const struct method_state *s, int layer, int head);
/* These return members of the first state. */
const struct method_inputs *method_inputs_of(const struct method_state *s);
const struct method *method_of(const struct method_state *s);
const struct method_params *method_params_of(const struct method_state *s);
const struct method_shape *method_shape_of(const struct method_state *s);

/* budget.c: returns the entries of the budget for a query at position reach - 1. */
int method_budget_at(const struct method_params *p, int32_t reach);

/* Reserves evidence for `slots` entries per head.  No decision may be taken before query
 * next_decision, so that earlier attention rows can be skipped.  KVF_OK or KVF_E_NOMEM. */
int method_prepare(struct method_state *s, int slots, int32_t next_decision);

/* Returns the EVIDENCE_* bits of the chain, admissions included: the data that the decoder must
 * pass to the functions below. */
unsigned method_evidence(const struct method_state *s);
/* Returns true if a preset of the chain evicts after each turn of a prompt (cut=turn). */
bool method_cuts_turns(const struct method_state *s);
/* Returns true if the decoder must pass gate values to method_until() and method_appended(). */
bool method_uses_gates(const struct method_state *s);

/* Returns the first query that will not see a new entry, by admission and by the layer's window. */
int32_t method_until(const struct method_state *s, int layer, int head, int32_t pos, float gate);

/* Records that an entry was appended to a KV head.  gate: its gate value, or NaN.  k_pre: its key
 * before RoPE, needed for EVIDENCE_BLOCKS.  Threads may call it for different heads at once. */
void method_appended(struct method_state *s, const struct cache *c, int layer, int head, int slot,
                     float gate, const float *k_pre);

/* Passes the queries of a layer before RoPE, for EVIDENCE_MOMENTS.  Row r belongs to position
 * pos0 + r and starts at q + r * ld.  Its heads are contiguous. */
void method_queries(struct method_state *s, int layer, int32_t pos0, int n, const float *q,
                    size_t ld, struct par *pool);

/* Returns true if a later decision reads the attention rows of query t. */
bool method_wants_row(const struct method_state *s, int32_t t);
/* Passes one attention row.  Threads: see struct attn_row. */
void method_row(struct method_state *s, const struct attn_row *row);
/* Passes the attention row of a full-cache run for query t over positions 0 .. n-1, for
 * EVIDENCE_FULL.  Threads: see struct attn_row. */
void method_full_row(struct method_state *s, const struct attn_row *row);

/* Returns true if queries after the prompt read a selection of pages in this layer and head. */
bool method_reads_pages(const struct method_state *s, int layer, int head);
/* Selects pages for the query heads of a KV head: chosen[g * ld + page] = 1 if query head g,
 * counted from the first that reads the KV head, reads the page.  A page holds that many entries
 * in slot order, which is the order of time.  scratch: method_read_scratch() floats.  Returns the
 * page size, or 0 if everything is read.  Threads may call it for different heads at once. */
int method_read(const struct read_input *in, unsigned char *chosen, size_t ld, float *scratch);
/* Returns the floats of scratch that method_read() needs for a head of `slots` entries. */
size_t method_read_scratch(const struct method_state *s, int slots);

#endif

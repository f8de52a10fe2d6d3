/* session.h - one sequence being decoded: a cache, a method, a recording.
 *
 * An engine (engine.h) holds what several sequences share and never changes; a session is the
 * mutable timeline. */
#ifndef KVF_ENGINE_SESSION_H
#define KVF_ENGINE_SESSION_H

#include "engine/cache/cache.h"
#include "engine/decode/engine.h"
#include "engine/method/decisions.h"
#include "engine/probe/recorder.h"

struct session;
struct sampler; /* sampler.h */

/* Another row of parts (method.h) for some heads. */
struct session_override {
    const struct method *method;
    const struct method_params *params;
    const unsigned char *take; /* [L * KV heads] */
};

struct session_options {
    const struct method *method;              /* NULL: full */
    const struct method_params *params;       /* NULL with method NULL */
    const struct session_override *overrides; /* [n_overrides], later ones win */
    int n_overrides;
    const struct gates *gates; /* borrowed; NULL: none */
    bool watched_gates; /* states that watch need the gates' numbers, the own methods or not */
    const struct method_inputs *inputs; /* a plan; gates and rotation are filled in; NULL: none */
    enum kv_type kv_type;
    int cap;                   /* most tokens that will be fed; at most the model's context, unless
                                  the methods go on beyond it (method_outlives) */
    int chunk;                 /* tokens of a prompt that run together; 0 = 256.  Execution only */
    struct recorder *recorder; /* borrowed; NULL: no recording */
    bool as_twin;              /* what leaves a layer's window stays in the cache, unseen: the
                                  slots of a full cache are then its positions */
    bool unstocked;            /* no memory is taken ahead for entries to come */
};

/* Bytes of what a session of up to `length` tokens holds beside cache, method and recorder; chunk
 * as in the options. */
int64_t session_buffer_bytes(const struct model_config *m, int length, int chunk, int threads);

int session_create(struct engine *e, const struct session_options *opt,
                   struct session **ret_session, struct kvf_diag *d);
void session_destroy(struct session *s); /* accepts NULL */

/* Told of a prompt how many of its tokens are done, after every layer of a chunk, as if each took a
 * share of its tokens, and after every chunk, where the prompt stops when it returns non-zero. */
typedef int (*session_progress_fn)(void *ctx, int done);

/* Feeds a prompt (n >= 1 tokens), cuts the cache to the budget and leaves the logits of the last
 * token.  progress may be NULL.  KVF_OK, KVF_E_NOMEM, KVF_E_LIMIT (more than cap), KVF_E_CANCEL
 * (stopped: nothing was cut and there are no logits), or the recorder's error. */
int session_prompt(struct session *s, const int32_t *ids, int n, session_progress_fn progress,
                   void *ctx);

/* KV heads of the cache: those of the model, or its query heads (group=none). */
int session_cache_heads(const struct model_config *m, const struct method *row,
                        const struct method_params *p);

/* Maximum number of entries that one query after the prompt saw of a head with
 * heads[layer * cache heads + head] != 0; NULL: of any head. */
int session_peak(const struct session *s, const unsigned char *heads);
/* How many decisions there were after which something left for the budget. */
int64_t session_cuts(const struct session *s);
/* Entries that the query of one query head read, mean over layers, query heads and the
 * tokens fed after the prompt; NaN when there were none. */
double session_reads(const struct session *s);

/* Feeds one generated token.  KVF_OK, KVF_E_LIMIT (more than cap), KVF_E_NOMEM (the
 * token was not fed, and the call may be repeated, unless session_length has grown:
 * then only a cut after its query is missing), or the recorder's error. */
int session_step(struct session *s, int32_t id);

/* Lets method states take evidence of all that s runs from now on, as if they were
 * its own; they decide nothing.  Borrowed, and so is the list, until the session
 * ends or watches others (n = 0: none). */
void session_watch(struct session *s, struct method_state *const *state, int n);

/* A second session with the same past and methods, whose cache pages are shared
 * until one of the two writes into them (fork.c).  Of opt, cap (at least the tokens
 * fed) and chunk hold; NULL: as the origin.  Forks are not recorded and have no
 * watchers.  KVF_OK, KVF_E_NOMEM, or KVF_E_LIMIT for a cap out of range. */
int session_fork(const struct session *from, const struct session_options *opt,
                 struct session **ret_session, struct kvf_diag *d);

/* Many sessions fed together: their matrix products are done at once, as those of a
 * prompt, their attention and decisions side by side.  Each does exactly what
 * session_step does. */
struct batch;
/* most: rows that run at once; more sessions take turns.  KVF_OK or KVF_E_NOMEM. */
int batch_create(struct engine *e, int most, struct batch **ret_batch);
void batch_destroy(struct batch *b); /* accepts NULL */
/* Feeds ids[i] to s[i], for n different sessions.  KVF_OK, or an error of session_step; the
 * sessions are then to be destroyed.  Errors of their recorders are told by recorder_err. */
int batch_step(struct batch *b, struct session *const *s, int n, const int32_t *ids);

/* Goes on as if the prompt, which just ended under full, had run under another
 * method (method_shares_prompt): takes a copy of a state that watched it and cuts
 * the cache to its budget.  KVF_OK or KVF_E_NOMEM (s is then to be destroyed). */
int session_adopt(struct session *s, const struct method_state *state);

/* Takes entries out of the cache, for reasons of an experiment: those at the positions
 * with gone[pos] != 0, [tokens fed], in the heads with heads[layer * cache heads + head]
 * != 0.  The next query does not see them.  KVF_OK, or KVF_E_NOMEM (some heads may have
 * lost theirs: s is then to be destroyed). */
int session_remove(struct session *s, const unsigned char *heads, const unsigned char *gone);

const float *session_logits(const struct session *s); /* [vocab], of the last token fed */
/* Lets steps leave the token that the sampler draws from their logits, so that a device brings home
 * the token alone; borrowed; NULL: no more.  session_next is that token, and takes it: what
 * sampler_next draws from session_logits. */
void session_draws(struct session *s, struct sampler *sampler);
int32_t session_next(struct session *s);
int session_length(const struct session *s); /* tokens fed */
struct cache_stats session_cache_stats(const struct session *s);
const struct cache *session_cache(const struct session *s);
struct method_state *session_method(const struct session *s);

/* Tells of every eviction, beside the recorder (tests, messages). */
void session_on_evict(struct session *s, eviction_fn fn, void *ctx);

/* Tells of every attention row, beside the recorder: fn may come from several threads at once, for
 * different query heads.  NULL: no more.  Forks tell nobody. */
typedef void (*attn_row_fn)(void *ctx, const struct attn_row *row);
void session_on_row(struct session *s, attn_row_fn fn, void *ctx);

#endif

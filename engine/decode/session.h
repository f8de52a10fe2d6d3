/* session.h - one sequence in decoding: a cache, a method and a recorder. Several sessions can
 * share an engine (engine.h). */
#ifndef KVF_ENGINE_SESSION_H
#define KVF_ENGINE_SESSION_H

#include "engine/cache/cache.h"
#include "engine/decode/engine.h"
#include "engine/method/decisions.h"
#include "engine/probe/recorder.h"

struct session;
struct sampler; /* sampler.h */

/* Another method for some heads. */
struct session_override {
    const struct method *method;
    const struct method_params *params;
    const unsigned char *heads; /* [L * KV heads] 1: the method applies */
};

/* Options of session_create. */
struct session_options {
    const struct method *method;              /* NULL: full cache */
    const struct method_params *params;       /* NULL with method NULL */
    const struct session_override *overrides; /* [n_overrides]; a later override wins */
    int n_overrides;
    const struct gates *gates; /* borrowed; NULL: none */
    bool watched_gates; /* states in session_watch need gate numbers, even if the methods do not */
    const struct method_inputs *inputs; /* plan; gates and RoPE are filled in; NULL: none */
    enum kv_type kv_type;
    int cap; /* maximum tokens to feed; at most the model's context, unless the methods support more
                (method_outlives) */
    int chunk; /* tokens of a prefill chunk; 0 = the backend's default; execution only */
    struct recorder *recorder; /* borrowed; NULL: no recording */
    /* [n_turns] for cut=turn: the numbers of tokens, increasing, at which turns of the prompt end;
     * borrowed while prompts run. The end of the prompt is always such an end. */
    const int *turn_end;
    int n_turns;
    bool keeps_all;        /* entries outside a layer's window stay in the cache, unseen: slots are
                            positions        in a full cache */
    bool no_preallocation; /* do not preallocate entries */
};

/* Returns the bytes of a session of up to `length` tokens, without cache, method and recorder.
 * chunk is as in the options. */
int64_t session_buffer_bytes(const struct model_config *m, int length, int chunk, int threads);

/* Creates a session. Returns KVF_OK or an error with a message. */
int session_create(struct engine *e, const struct session_options *opt,
                   struct session **ret_session, struct kvf_diag *d);
void session_destroy(struct session *s); /* accepts NULL */

/* Receives the number of finished prompt tokens. It is called after every layer of a chunk, as if
 * each layer finished an equal part of the tokens, and after every chunk. A nonzero return value
 * after a chunk stops the prompt. */
typedef int (*session_progress_fn)(void *ctx, int done);

/* Runs the prefill of a prompt (n >= 1 tokens), cuts the cache to the budget and computes the
 * logits of the last token. progress may be NULL. Returns KVF_OK, KVF_E_NOMEM, KVF_E_LIMIT (more
 * than cap tokens), KVF_E_CANCEL (stopped: there are no logits, and the cache can exceed the
 * budget), or the recorder's error. */
int session_prompt(struct session *s, const int32_t *ids, int n, session_progress_fn progress,
                   void *ctx);

/* Returns the number of KV heads of the cache: that of the model, or its query heads
 * (group=none). */
int session_cache_heads(const struct model_config *m, const struct method *row,
                        const struct method_params *p);

/* Returns the maximum number of entries that one query after the prompt saw in a head with
 * heads[layer * cache heads + head] != 0. NULL: in any head. */
int session_peak(const struct session *s, const unsigned char *heads);
/* Returns the number of decisions that evicted entries to meet the budget. */
int64_t session_cuts(const struct session *s);
/* Returns the number of entries that a query head read, averaged over layers, query heads and the
 * tokens after the prompt. Returns NaN if there were no such tokens. */
double session_reads(const struct session *s);
/* Returns true if every query after the prompt read all cached entries, or if there were none. */
bool session_read_all(const struct session *s);

/* Feeds one generated token. Returns KVF_OK, KVF_E_LIMIT (more than cap tokens), KVF_E_NOMEM, or
 * the recorder's error. After KVF_E_NOMEM the token was not fed, and the call can be repeated. If
 * session_length has grown, the token was fed and only the eviction after its query is missing. */
int session_step(struct session *s, int32_t id);

/* Feeds n tokens that are known, such as a question after its context, as session_step does, and
 * computes the logits of the last one. On the CPU, tokens whose steps evict nothing and read all
 * entries run together, in chunks; the result has the same bits. progress may be NULL; it receives
 * the number of tokens fed so far, and a nonzero return value stops. Returns an error of
 * session_step, or KVF_E_CANCEL. */
int session_feed(struct session *s, const int32_t *ids, int n, session_progress_fn progress,
                 void *ctx);

/* Passes the evidence of everything that s runs from now on to further method states. They evict
 * nothing. The states and the list are borrowed until the session ends or the next call (n = 0: no
 * states). */
void session_watch(struct session *s, struct method_state *const *state, int n);

/* Creates a second session with the same past and methods. Cache pages are shared until one of the
 * two writes to them (fork.c). Of opt, only cap (at least the tokens fed), chunk and recorder are
 * used; NULL: those of `from`, without a recorder. The recorder has the past (recorder_continue),
 * and does not record --shadow. Forks have no observers. Returns KVF_OK, KVF_E_NOMEM, or
 * KVF_E_LIMIT if cap is out of range. */
int session_fork(const struct session *from, const struct session_options *opt,
                 struct session **ret_session, struct kvf_diag *d);

/* Feeds many sessions together: their matrix multiplications are joined, as in a prefill. Attention
 * and decisions run in parallel. Each session gets the result of session_step. */
struct batch;
/* Creates a batch for up to max_rows rows at once; more sessions run in groups. Returns KVF_OK or
 * KVF_E_NOMEM. */
int batch_create(struct engine *e, int max_rows, struct batch **ret_batch);
void batch_destroy(struct batch *b); /* accepts NULL */
/* Feeds ids[i] to s[i], for n different sessions. Returns KVF_OK, or an error of session_step,
 * after which the sessions must be destroyed. recorder_err returns errors of their recorders. */
int batch_step(struct batch *b, struct session *const *s, int n, const int32_t *ids);

/* Switches a session that has just run a prompt with a full cache to another method
 * (method_shares_prompt). Copies a state that watched the prompt and cuts the cache to its budget.
 * Returns KVF_OK, or KVF_E_NOMEM, after which s must be destroyed. */
int session_adopt(struct session *s, const struct method_state *state);

/* Removes entries for an experiment: those at positions with gone[pos] != 0, [tokens fed], in heads
 * with heads[layer * cache heads + head] != 0. The next query does not see them. Returns KVF_OK, or
 * KVF_E_NOMEM, after which s must be destroyed: some heads can have lost their entries. */
int session_remove(struct session *s, const unsigned char *heads, const unsigned char *gone);

const float *session_logits(const struct session *s); /* [vocab], after the last token fed */
/* Lets steps sample the next token with `sampler`, so that a device copies only the token to the
 * host. The sampler is borrowed; NULL ends this. */
void session_set_sampler(struct session *s, struct sampler *sampler);
/* Returns the sampled token: the result of sampler_next on session_logits. Consumes its random
 * number. */
int32_t session_next(struct session *s);
int session_length(const struct session *s); /* tokens fed */
struct cache_stats session_cache_stats(const struct session *s);
const struct cache *session_cache(const struct session *s);
/* Returns the method's state, with current evidence. */
struct method_state *session_method(const struct session *s);

/* Calls fn for every eviction, in addition to the recorder (tests, messages). */
void session_on_evict(struct session *s, eviction_fn fn, void *ctx);

/* Calls fn for every attention row, in addition to the recorder. Several threads can call it at
 * once, for different query heads. NULL: no calls. Forks do not inherit fn. */
typedef void (*attn_row_fn)(void *ctx, const struct attn_row *row);
void session_on_row(struct session *s, attn_row_fn fn, void *ctx);

#endif

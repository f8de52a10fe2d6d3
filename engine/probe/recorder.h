/* recorder.h - the active probes of a run and the trace they write. */
#ifndef KVF_ENGINE_RECORDER_H
#define KVF_ENGINE_RECORDER_H

#include "engine/probe/probe.h"

struct recorder;

/* Parses "lean", "paper", "full" or a list "evict,nll": a bit per entry of
 * probe_table.  KVF_E_ARG with a sentence. */
int probes_parse(const char *text, unsigned *ret_set, struct kvf_diag *d);

/* Parses "entries", "model" or "entries,model" (--shadow) in the same way. */
int shadows_parse(const char *text, unsigned *ret_set, struct kvf_diag *d);
/* Writes the names of the shadows in a set, in the order of the table: "entries,model".  cap: size
 * of ret_text. */
void shadows_names(unsigned set, char *ret_text, size_t cap);

/* What the probes of a set want to be given: bits PROBE_*. */
unsigned probes_want(unsigned set);

/* Raw bytes that the columns of a set cost per token, before compression. */
double probes_bytes_per_token(unsigned set, const struct probe_config *cfg);

/* What makes a run the one that it is. */
struct recorder_run {
    const char *header;    /* JSON: model, method and all that decisions depend on */
    const int32_t *prompt; /* [n_prompt] its tokens */
    size_t n_prompt;
    enum kvf_existing existing; /* what becomes of a trace that is there */
    bool without_tail;          /* by the clock no newest state is kept beside the trace */
    int32_t block;              /* steps after which what is complete is written; 0: 1,024 */
};

/* Opens the trace at path; run is borrowed for the call.  n_threads: rows may
 * come from that many threads. */
int recorder_create(const char *path, const struct recorder_run *run, unsigned set,
                    const struct probe_config *cfg, int n_threads, struct recorder **ret_rec,
                    struct kvf_diag *d);

unsigned recorder_wants(const struct recorder *r); /* PROBE_* of all active probes */

/* Probes whose arrays a device has, where rows of attention are: it marks their states as away. */
struct recorder_elsewhere {
    void *ctx;
    /* Begins to bring values [t0, t1) of the columns that are snapshots, or of all others, into the
     * arrays here.  They are there when recorder_advance is called for a later step, whose rows are
     * only in when all before them is done; or when settle was called. */
    void (*bring)(void *ctx, bool snapshots, int32_t t0, int32_t t1);
    /* Waits until they are there.  KVF_OK, or an error, which is then that of the recorder, and
     * what did not come is never written. */
    int (*settle)(void *ctx);
    void (*forget)(void *ctx); /* the recorder has ended */
};
/* The states of all active probes, and who has those that are away; NULL: they are here again.
 * recorder_settle comes first: the arrays are then read by nobody else. */
struct probe_state *recorder_probes(struct recorder *r, int *ret_n);
void recorder_move(struct recorder *r, const struct recorder_elsewhere *e);
void recorder_settle(struct recorder *r);

/* Takes an attention row in slot order, with the head that it belongs to. */
void recorder_row(struct recorder *r, const struct attn_row *row, const struct cache_head *view,
                  float lse, float entropy, int thread);
/* Between the two, rows of one head from this thread stay where they are, at equal distances, and
 * are 0 behind their entries up to those of the last one. */
void recorder_begin_rows(struct recorder *r, int thread);
void recorder_end_rows(struct recorder *r, int thread);
void recorder_evict(struct recorder *r, const struct eviction *e);
/* Takes the number that gates gave an entry.  Heads may come in parallel. */
void recorder_gate(struct recorder *r, int layer, int head, int32_t pos, float value);
/* Takes the key [head_dim] of an entry as the cache holds it.  Heads may come in parallel. */
void recorder_key(struct recorder *r, int layer, int head, int32_t pos, const float *key);
/* Takes the value [head_dim] of an entry in the same way. */
void recorder_value(struct recorder *r, int layer, int head, int32_t pos, const float *value);
/* Takes the queries of a layer, from one thread. */
void recorder_queries(struct recorder *r, const struct probe_block *b);
void recorder_nll(struct recorder *r, int32_t t, float nll);
void recorder_missed(struct recorder *r, const struct probe_missed *m);
void recorder_twin(struct recorder *r, enum probe_twin what, int layer, int32_t t, float value);

/* Says that tokens were fed: call it when all rows of steps < n_steps are in.  text: the token's
 * bytes.  What is complete is written, by another thread, for which nobody waits while less than
 * PEN_BYTES (pen.h) are on their way; and from time to time the newest state, beside the trace
 * (kvf_writer_open_tail), so that a run that is killed has lost a minute at most.  An error of the
 * trace is told by the next call, or by recorder_finish. */
int recorder_token(struct recorder *r, int32_t id, enum kvf_role role, const char *text,
                   size_t len);
int recorder_advance(struct recorder *r, int32_t n_steps);
int recorder_err(const struct recorder *r); /* the first error so far; KVF_OK for NULL */
/* Forgets the tokens from n_tokens on: a prompt that was announced, but not fed
 * to its end. */
void recorder_cut(struct recorder *r, int32_t n_tokens);
/* Steps at which recorder_advance must be called, and prompts are cut, also where r is NULL: the
 * smallest one above t. */
int32_t recorder_boundary(const struct recorder *r, int32_t t);

/* Final snapshot, notes (may be NULL: a JSON object for the key "result"),
 * index and footer; frees r.  Returns the first error of the recording. */
int recorder_finish(struct recorder *r, const char *result_json, struct kvf_diag *d);
/* Frees without a footer; what was complete is written.  A new trace that no token came to is
 * removed.  Accepts NULL. */
void recorder_abandon(struct recorder *r);

#endif

/* recorder.h - the active probes of a run and the trace that they write. */
#pragma once

#include "engine/probe/probe.h"

/* The recording of one run. */
struct recorder;

#define PROBES_AUTO "auto" /* the probes of a default run */

/* Parses "auto", "lean", "paper", "full" or a list such as "evict,nll,raw:5.3,0.0" to one bit per
 * entry of probe_table. watch_set_raw() parses the heads. "auto" gives the probes of "paper";
 * probes_auto() adds the probes that depend on the run. Returns KVF_OK or KVF_E_ARG with a
 * message. */
int probes_parse(const char *text, unsigned *ret_set, struct kvf_diag *d);
/* Takes the next word of a list of probes off *text. Returns 1, 0 at the end, or -1 if the word is
 * not like a probe. *in_raw, false before the first word, becomes true for "raw:HEAD" and for heads
 * that follow it; word then is the head. word: PROBE_WORD bytes. */
enum { PROBE_WORD = 48 };
int probes_word(const char **text, char *word, bool *in_raw);
/* Returns true if the list contains "auto". */
bool probes_are_auto(const char *text);
/* Returns the probes, bits of probe_table, that "auto" adds to "paper". shadows: with the shadow of
 * evicted entries. */
unsigned probes_auto(bool on_device, bool shadows);

/* Parses "entries", "model" or "entries,model" (--shadow) to bits of probe_table. Errors as in
 * probes_parse. */
int shadows_parse(const char *text, unsigned *ret_set, struct kvf_diag *d);
/* Writes the names of the shadows in a set, in table order: "entries,model". cap: size of
 * ret_text. */
void shadows_names(unsigned set, char *ret_text, size_t cap);

/* Returns the hooks that the probes of a set need: bits PROBE_*. */
unsigned probes_want(unsigned set);

/* Returns the raw bytes per token of the columns of a set, before compression. */
double probes_bytes_per_token(unsigned set, const struct probe_config *cfg);

/* Identity and options of a recording. */
struct recorder_run {
    const char *header;    /* JSON: model, method and everything that decisions depend on */
    const int32_t *prompt; /* [n_prompt] prompt tokens */
    size_t n_prompt;
    enum kvf_existing existing; /* how to treat an existing trace */
    bool without_tail;          /* no periodic tail with the newest state */
    bool kept;                  /* recorder_keep() will be called */
    int32_t block;              /* steps between writes of complete data; 0: 1,024 */
};

/* Opens the trace at path; run is borrowed for the call. n_threads: rows can arrive from this many
 * threads. */
int recorder_create(const char *path, const struct recorder_run *run, unsigned set,
                    const struct probe_config *cfg, int n_threads, struct recorder **ret_rec,
                    struct kvf_diag *d);

unsigned recorder_wants(const struct recorder *r); /* PROBE_* of all active probes */

/* Callbacks of a device that has the arrays of some probes, because attention rows are computed
 * there. It sets `away` in their states. */
struct recorder_elsewhere {
    void *ctx;
    /* Starts to copy values [t0, t1) of the snapshot columns, or of all other columns, into the
     * host arrays. They are valid when recorder_advance is called for a later step, since its rows
     * complete only after all preceding work, or after settle. */
    void (*bring)(void *ctx, bool snapshots, int32_t t0, int32_t t1);
    /* Waits until the copies are complete. Returns KVF_OK or an error, which becomes the error of
     * the recorder; missing values are then never written. */
    int (*settle)(void *ctx);
    void (*forget)(void *ctx); /* called when the recorder ends */
};
/* recorder_probes returns the states of all active probes. recorder_move sets the owner of the
 * states with `away`; NULL: all states are on the host again. Call recorder_settle first:
 * afterwards no other thread reads the arrays. */
struct probe_state *recorder_probes(struct recorder *r, int *ret_n);
void recorder_move(struct recorder *r, const struct recorder_elsewhere *e);
void recorder_settle(struct recorder *r);

/* Records an attention row in slot order; view is its KV head. */
void recorder_row(struct recorder *r, const struct attn_row *row, const struct cache_head *view,
                  float lse, float entropy, int thread);
/* Between recorder_begin_rows and recorder_end_rows, rows of one head from this thread stay in
 * place, at equal strides, and are padded with 0 up to the length of the last one. */
void recorder_begin_rows(struct recorder *r, int thread);
void recorder_end_rows(struct recorder *r, int thread);
/* Records an eviction. */
void recorder_evict(struct recorder *r, const struct eviction *e);
/* Records the gate value of an entry. Heads may run in parallel. */
void recorder_gate(struct recorder *r, int layer, int head, int32_t pos, float value);
/* Records the key [head_dim] of an entry as cached. Heads may run in parallel. */
void recorder_key(struct recorder *r, int layer, int head, int32_t pos, const float *key);
/* Records the value [head_dim] of an entry as cached. Heads may run in parallel. */
void recorder_value(struct recorder *r, int layer, int head, int32_t pos, const float *value);
/* Records the queries of a layer, from one thread. */
void recorder_queries(struct recorder *r, const struct probe_block *b);
/* Record the NLL of token t, the entries that a query did not see, and a comparison with the
 * full-cache copy. */
void recorder_nll(struct recorder *r, int32_t t, float nll);
void recorder_missed(struct recorder *r, const struct probe_missed *m);
void recorder_full(struct recorder *r, enum probe_full what, int layer, int32_t t, float value);

/* Returns true if some probe needs recorder_missed() with the weights of query t even if the query
 * lost no attention. */
bool recorder_reads_all(const struct recorder *r, int32_t t);

/* recorder_token announces the next token; text: its bytes. recorder_advance reports that all rows
 * of steps < n_steps are recorded. Complete data are then written by another thread. The caller
 * waits only if PEN_BYTES (pen.h) are queued. From time to time the newest state is written to a
 * tail of the trace (kvf_writer_open_tail), so that a killed run loses at most a minute. The next
 * call, or recorder_finish, returns an error of the trace. */
int recorder_token(struct recorder *r, int32_t id, enum kvf_role role, const char *text,
                   size_t len);
int recorder_advance(struct recorder *r, int32_t n_steps);
int recorder_err(const struct recorder *r); /* the first error so far; KVF_OK for NULL */
/* Removes the tokens from n_tokens on, when a prompt was announced but not processed completely. */
void recorder_cut(struct recorder *r, int32_t n_tokens);
/* Returns the smallest step above t at which recorder_advance must be called. Prompts are divided
 * at these steps, also if r is NULL. */
int32_t recorder_boundary(const struct recorder *r, int32_t t);

/* The state of a recording after its first steps, which recordings of other tokens can share. */
struct recorder_past;
/* Copies the state of a recording after n_steps steps (struct recorder_run, kept). Returns KVF_OK,
 * KVF_E_NOMEM, or KVF_E_LIMIT if a device has a part of the state. */
int recorder_keep(struct recorder *r, int32_t n_steps, struct recorder_past **ret_past);
/* Lets a new recording of the same probes begin with a state, as if it had recorded the steps
 * itself. The tokens are announced separately. Returns KVF_OK, KVF_E_NOMEM, or KVF_E_LIMIT if the
 * columns differ; r is then unchanged. */
int recorder_continue(struct recorder *r, const struct recorder_past *past);
void recorder_forget(struct recorder_past *past); /* accepts NULL */

/* Writes the final snapshot, the result (a JSON object for the key "result"; may be NULL), index
 * and footer, and frees r. Returns the first error of the recording. */
int recorder_finish(struct recorder *r, const char *result_json, struct kvf_diag *d);
/* Frees r without a footer; complete data are written. A new trace without any token is removed.
 * Accepts NULL. */
void recorder_abandon(struct recorder *r);

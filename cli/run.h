/* run.h - runs one prompt, with or without a trace, for kvfate run and kvfate generate. */
#ifndef KVF_CLI_RUN_H
#define KVF_CLI_RUN_H

#include "base/progress.h"
#include "cli/auto_probes.h"
#include "cli/force.h"
#include "cli/jsonl.h"
#include "cli/runner.h"
#include "cli/score_pipe.h"
#include "engine/experiment/spans.h"
#include "engine/decode/sampler.h"
#include "engine/probe/watch.h"

/* The reason why an answer ends. */
enum answer_stop {
    STOP_NONE,    /* it continues, or an error ended it */
    STOP_EOS,     /* the end token */
    STOP_UNTIL,   /* a text of "until" (jsonl.h) */
    STOP_LENGTH,  /* the number of tokens of -n */
    STOP_CONTEXT, /* the model's context, or -c */
    STOP_INTERRUPTED,
};
/* Returns "eos", "until", "length", "context" or "interrupted"; NULL for STOP_NONE. */
const char *answer_stop_name(enum answer_stop why);

/* The context of several questions, and its cut cache. */
struct shared_cache {
    struct session *session; /* after the context; NULL: none yet */
    struct recorder_past
        *past;    /* recording of the context; NULL: none, and traces are not shared */
    int32_t *ids; /* [n] tokens of the context; NULL: no question yet */
    int n;
};
void shared_cache_close(struct shared_cache *c); /* accepts a zeroed struct */

/* A run of one prompt, with its options. Its member r is the open model. */
struct run {
    struct runner r;
    struct force force;
    struct score_pipe score_pipe;
    const char *probes, *shadow, *out, *watch_queries;
    double *out_gram; /* NULL if no probe needs it */
    struct opt_list watch_text;
    struct watch watch;
    struct spans spans;
    /* with -o -: path of the temporary file that is copied to the standard output */
    struct buf piped;
    unsigned asked_shadows, shadows; /* bits of probe_table: of --shadow; of the run */
    struct auto_probes automatic;    /* of --probes auto */
    bool json, quiet, verbose, overwrite, resume;
    struct opt_list asks; /* --ask: questions about one context, a run each */
    /* options of a batch: several methods and budgets instead of --method */
    const char *cell_methods, *cell_budgets;
    struct run_cells *cells; /* the open cells of these options (run_cells.h); or NULL */
    struct jsonl batch;      /* batch.file is NULL if there is a single prompt */
    int64_t n_predict, seed; /* values of the options, for lines of a batch without their own */
    struct recorder *rec;
    struct session *session;
    struct shared_cache *shared; /* borrowed; NULL: there is one question */
    struct buf answer;
    /* texts that end the answer, borrowed from the line; NULL if there are none */
    const struct json *until;
    bool tells_ids; /* the ids of the answer are collected in told_ids, as "[1,2" */
    struct buf told_ids;
    bool scores; /* the log-likelihood of the forced tokens is computed */
    bool greedy; /* every forced token had the highest logit */
    double nll;  /* negative log-likelihood, summed over the forced tokens, in nats */
    struct progress bar;
    /* in a batch: reports the completed fraction of this line; or NULL */
    void (*tell)(void *ctx, double share);
    void *tell_ctx;
    double prefill_seconds, decode_seconds, decode_begin;
    struct sampler sampler;
    bool decoding; /* the answer is being generated */
    int n_generated;
    enum answer_stop stop;
    bool may_think, thinking; /* the model may think before it answers; it is thinking now */
    size_t thought_to; /* bytes of the answer up to the end of the last <think> or </think> */
    uint64_t trace_bytes;
};

/* Runs the prompt of an open runner. Returns KVF_OK, also after a signal, when the completed steps
 * are recorded. Returns KVF_E_CANCEL after a signal in a batch, where the trace stays unfinished.
 * Returns another error with a sentence. Results are in u->session and u->answer. */
int run_execute(struct run *u, struct kvf_diag *d);
/* run_execute() in steps. run_begin() runs until the first token of the answer can be sampled;
 * after an error of it, call neither of the other two. run_next() returns one token, which the
 * caller feeds to the session. It returns false at the end or after an error. run_end() finishes
 * the run; `err` is the error that ended it, if any. */
int run_begin(struct run *u, struct kvf_diag *d);
bool run_next(struct run *u, int32_t *ret_id, int *ret_err);
int run_end(struct run *u, int err, struct kvf_diag *d);
/* Checks that the context of the open prompt is that of earlier questions about it (u->shared).
 * Returns KVF_E_FORMAT with a sentence if its tokens differ. */
int run_same_context(struct run *u, struct kvf_diag *d);
/* Checks that a trace belongs to the run of an open runner, whatever its number of tokens. Returns
 * KVF_OK or an error of resume_same() (resume.h). */
int run_is_that_of(struct run *u, const char *trace, struct kvf_diag *d);
/* Returns the fraction of a run that is done after `fed` tokens, if the answer has its maximum
 * length. */
double run_share(const struct run *u, int fed);
/* Truncates an answer before the first text of `until` that it contains. Returns true if it
 * contains one. */
bool run_cut(const struct json *until, struct buf *answer);
/* Frees the session, the recorder and the sampler, but keeps the answer. A trace that is not
 * closed stays unfinished. */
void run_let_go(struct run *u);
/* Resets the run so that the open model can run another prompt. A trace that is not closed stays
 * unfinished. */
void run_forget(struct run *u);
void run_close(struct run *u); /* frees everything, the model included; accepts a zeroed struct */

#endif

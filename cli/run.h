/* run.h - the run of one prompt, recorded or not: what kvfate run and kvfate generate share. */
#ifndef KVF_CLI_RUN_H
#define KVF_CLI_RUN_H

#include "base/progress.h"
#include "cli/force.h"
#include "cli/jsonl.h"
#include "cli/runner.h"
#include "engine/experiment/spans.h"
#include "engine/decode/sampler.h"
#include "engine/probe/watch.h"

/* Why an answer ends. */
enum answer_stop {
    STOP_NONE,    /* it goes on, or an error ended it */
    STOP_EOS,     /* the end token */
    STOP_UNTIL,   /* a text of "until" (jsonl.h) */
    STOP_LENGTH,  /* the number of tokens of -n */
    STOP_CONTEXT, /* the model's context, or -c */
    STOP_INTERRUPTED,
};
/* "eos", "until", "length", "context", "interrupted"; NULL for STOP_NONE. */
const char *answer_stop_name(enum answer_stop why);

struct run {
    struct runner r;
    struct force force;
    const char *probes, *shadow, *out, *watch_queries;
    double *out_gram; /* NULL: no probe asks for it */
    struct opt_list watch_text;
    struct watch watch;
    struct spans spans;
    struct buf piped; /* -o -: the file that goes to the standard output */
    unsigned shadows; /* bits of probe_table */
    bool json, quiet, overwrite, resume;
    const char *cell_methods, *cell_budgets; /* of a batch: many in the place of --method */
    struct run_cells *cells;                 /* they, opened (run_cells.h); or NULL */
    struct jsonl batch;                      /* without a file: one prompt alone */
    int64_t n_predict, seed;                 /* of the options, for lines of a batch without */
    struct recorder *rec;
    struct session *session;
    struct buf answer;
    const struct json *until; /* texts that end the answer, borrowed from the line; NULL: none */
    bool scores;              /* the tokens that are forced are scored */
    bool greedy;              /* each of them was the likeliest */
    double nll;               /* of all of them, nats */
    struct progress bar;
    void (*tell)(void *ctx, double share); /* of a batch: what of this line is done, or NULL */
    void *tell_ctx;
    double prefill_seconds, decode_seconds, decode_begin;
    struct sampler sampler;
    bool decoding; /* the answer is being made */
    int n_generated;
    enum answer_stop stop;
    bool may_think, thinking; /* answers of the model may hold thoughts; one goes on */
    size_t thought_to;        /* bytes of the answer up to the last mark of a thought */
    uint64_t trace_bytes;
};

/* Runs the prompt of an opened runner.  KVF_OK, after a signal too, when what was done is recorded;
 * KVF_E_CANCEL after a signal in a batch, whose trace stays unfinished; or an error with a
 * sentence. session and answer tell what came of it. */
int run_execute(struct run *u, struct kvf_diag *d);
/* The same in steps: up to the first token of the answer; one token after the other, each of which
 * the caller feeds to the session, until run_next returns false, with an error or at the end; and
 * what is left, given the error that ended it, if any.  After an error of run_begin, nothing. */
int run_begin(struct run *u, struct kvf_diag *d);
bool run_next(struct run *u, int32_t *ret_id, int *ret_err);
int run_end(struct run *u, int err, struct kvf_diag *d);
/* Whether a trace is of the run that an opened runner would make, however many tokens it has:
 * KVF_OK or the errors of resume_same (resume.h). */
int run_is_that_of(struct run *u, const char *trace, struct kvf_diag *d);
/* What `fed` tokens are of a run, were the answer as long as may be. */
double run_share(const struct run *u, int fed);
/* Cuts an answer off before the first of the texts that end it; whether it has one. */
bool run_cut(const struct json *until, struct buf *answer);
/* Frees what the run held but its answer.  A trace that is not closed stays unfinished. */
void run_let_go(struct run *u);
/* Forgets that run, so that the open model can run another prompt.  A trace that is not closed
 * stays unfinished. */
void run_forget(struct run *u);
void run_close(struct run *u); /* all of it; accepts a zeroed one */

#endif

/* eval_job.h - private to `kvfate eval`: what is asked for, and how far it is. */
#ifndef KVF_CLI_EVAL_JOB_H
#define KVF_CLI_EVAL_JOB_H

#include "base/progress.h"
#include "cli/crew.h"
#include "cli/figure_options.h"
#include "cli/runner.h"
#include "cli/shard.h"
#include "engine/experiment/task.h"
#include "engine/experiment/eval_state.h"

enum { EVAL_LABEL = 256, EVAL_SHIPPED = 64 };
#define EVAL_BUDGETS "64,256" /* of --budgets */

/* A text with what makes it the same text again. */
struct eval_input {
    struct eval_text text;
    uint64_t hash;
};

struct eval_job {
    /* options */
    const char *model, *methods, *budgets, *out, *state_path, *shard;
    struct opt_list data, tasks_of, gates_file;
    struct execution how;
    int64_t docs, prompt, score, seed;
    bool json, raw;
    struct figure_options look;

    struct buf left_out; /* of all methods: what cannot run */
    struct eval eval;
    struct gates *gates[OPT_LIST_MAX]; /* of the files */
    struct gates *shipped[EVAL_SHIPPED];
    int n_shipped;
    struct documents text;     /* of --data */
    struct tasks tasks;        /* of --tasks */
    struct eval_input *input;  /* [docs] what is fed */
    struct eval_cell *cell;    /* [n] */
    char (*label)[EVAL_LABEL]; /* of the methods */
    int n;
    struct eval_result *result; /* [docs][n] */
    bool *done;                 /* [docs][n] */
    struct eval_state *state;
    struct crew *crew;   /* documents are its cells */
    struct shard part;   /* of --shard */
    struct buf own_file; /* where this rank keeps its results */
    struct progress bar;
    int64_t fed, made; /* tokens and cells, by this rank, and how long they took */
    double seconds;
};

/* Makes j->cell of --methods and --budgets; j->left_out names what of all methods cannot run.
 * KVF_OK, KVF_E_ARG with a sentence, KVF_E_NOMEM. */
int eval_parse_cells(struct eval_job *j, struct kvf_diag *d);

/* Opens the gates, those of --gates and shipped ones, and gives each cell its own.  Of all methods,
 * those that lack theirs are left out. */
int eval_open_gates(struct eval_job *j, struct kvf_diag *d);
void eval_close_cells(struct eval_job *j); /* both; accepts a zeroed struct */

/* Runs what is not done of all documents of this process's part, with the other ranks of the crew:
 * j->result of the first rank is whole then, but for documents of other shards. */
int eval_run(struct eval_job *j, struct kvf_diag *d);

#endif

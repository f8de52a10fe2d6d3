/* eval_job.h - private to `kvfate eval`: the request and its state. */
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

/* A text of the evaluation, with a hash of its tokens that identifies it in a state file. */
struct eval_input {
    struct eval_text text;
    uint64_t hash;
};

/* A run of `kvfate eval`. */
struct eval_job {
    /* options */
    const char *model, *methods, *budgets, *head_budgets, *out, *state_path, *shard;
    struct opt_list data, tasks_of, gates_file;
    struct execution how;
    int64_t docs, prompt, score, seed;
    bool json, raw;
    int question; /* enum task_question */
    struct figure_options look;

    /* names of methods that --methods all leaves out because they cannot run */
    struct buf left_out;
    struct eval eval;
    struct gates **gates;          /* [gates_file.n] from --gates; NULL before eval_open_gates() */
    struct head_table *head_table; /* from --head-budgets; NULL: none */
    struct gates *shipped[EVAL_SHIPPED];
    int n_shipped;
    struct documents text;     /* from --data */
    struct tasks tasks;        /* from --tasks */
    struct eval_input *input;  /* [docs] texts to feed */
    struct eval_cell *cell;    /* [n] methods at budgets */
    char (*label)[EVAL_LABEL]; /* labels of the methods */
    int n;
    struct eval_result *result; /* [docs][n] */
    bool *done;                 /* [docs][n] */
    struct eval_state *state;
    struct crew *crew;   /* its cells are documents */
    struct shard part;   /* from --shard */
    struct buf own_file; /* name of the state file of this rank */
    struct progress bar;
    /* tokens and cells that this rank processed, and the seconds that this took */
    int64_t fed, made;
    double seconds;
};

/* Fills j->cell from --methods and --budgets. With --methods all, j->left_out lists the methods
 * that cannot run. Returns KVF_OK, KVF_E_ARG with a sentence, or KVF_E_NOMEM. */
int eval_parse_cells(struct eval_job *j, struct kvf_diag *d);

/* Opens the gates of --gates, shipped gates and the table of --head-budgets, and assigns them to
 * the cells. With --methods all, drops the methods that lack gates. Returns KVF_OK or an error with
 * a sentence. */
int eval_open_gates(struct eval_job *j, struct kvf_diag *d);
/* closes gates and frees cells; accepts a zeroed struct */
void eval_close_cells(struct eval_job *j);

/* Evaluates the documents of this process's shard that are not done, together with the other ranks
 * of the crew. On rank 0, j->result is then complete except for documents of other shards. Returns
 * KVF_OK or an error with a sentence. */
int eval_run(struct eval_job *j, struct kvf_diag *d);

#endif

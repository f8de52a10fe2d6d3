/* training.h - one training run: the options, files and loop that `kvfate train` and `kvfate tune`
 * share. */
#ifndef KVF_CLI_TRAINING_H
#define KVF_CLI_TRAINING_H

#include "base/buf.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/stage.h"
#include "cli/crew.h"
#include "cli/runner.h"
#include "cli/train_files.h"
#include "engine/train/compute.h"
#include "engine/train/packs.h"

#define TRAINING_BUDGETS "64,128" /* default of --budgets */

/* A training run.  It is the member `t` of the request of a command, at offset 0. */
struct training {
    /* options */
    const char *model, *out, *state_path, *budgets;
    struct opt_list data;
    struct execution how; /* where derivatives are computed */
    int packing;          /* enum packing */
    int64_t steps, warmup, length, seed, save_every, check_every, check_docs;
    double share;
    bool json, recompute, fresh;

    struct crew *crew; /* processes that share the run; NULL: one process */
    struct engine *engine;
    struct packs *packs;
    struct train_files files;
    struct buf config;      /* every setting that the result depends on, as a JSON object */
    struct buf log;         /* JSON lines: a line per step and per check */
    struct buf tokens_name; /* folder of cached token ids; empty: no cache */
    struct progress bar;
    struct stage stage;            /* progress of the present step or check */
    int64_t until;                 /* the last step of this run */
    int64_t saved;                 /* step of the checkpoint; -1: no checkpoint */
    int64_t tokens;                /* trained on in this run */
    double seconds, first_seconds; /* of all steps of this run, and of its first step */
    bool checks;                   /* there is text to check on */
};

/* The options that both commands have, with offsets in struct training.  Steps, --length,
 * --check-every and --check-docs have other defaults in each command. */
extern const struct opt training_options[];

/* Returns the name of a packing, as --packing takes it. */
const char *training_packing(const struct training *t);
/* Returns the steps to the full learning rate: --warmup, or a twentieth of the steps. */
int64_t training_warmup(const struct training *t);

/* Fills the names of the output, the checkpoint and the record, and tests that they can be written
 * if this process writes them.  KVF_OK, KVF_E_ARG or KVF_E_IO with a sentence. */
int training_name_files(struct training *t, struct kvf_diag *d);
/* Opens the model and the folder of cached token ids, and chooses where derivatives are computed.
 * KVF_OK or an error with a sentence. */
int training_open(struct training *t, struct learner *ret_learner, struct kvf_diag *d);
/* Opens the packs of the part [from, to) of each file of --data, as fractions of its text. */
int training_packs(const struct training *t, double from, double to, struct packs **ret,
                   struct kvf_diag *d);
/* Appends the number of packs and tokens, and the hash of their ids, to the configuration. */
void training_put_packs(struct training *t);
/* Appends the record that a result carries: the configuration and the number of steps. */
void training_put_record(const struct training *t, int64_t steps, struct buf *b);

/* The functions of a command in a training run; `job` is its request. */
struct training_kind {
    const char *name; /* of the command */
    /* Makes the trainer. */
    int (*create)(void *job, struct kvf_diag *d);
    int64_t (*steps)(const void *job); /* done, in this run and before */
    /* Makes one step, and appends its line to the record. */
    int (*step)(void *job, struct kvf_diag *d);
    /* Checks the result so far, and appends a line to the record. */
    int (*check)(void *job, struct kvf_diag *d);
    bool check_first; /* a check comes before the first step */
    /* Returns true if the run should stop before its last step; NULL: never. */
    bool (*stops)(const void *job);
    /* Writes the result so far.  early: also at each checkpoint and after an interruption. */
    int (*write)(void *job, struct kvf_diag *d);
    bool early;
    /* Writes and reads the checkpoint, as trainer_save and trainer_resume do. */
    int (*save)(const void *job, const char *path, const char *config, const char *log,
                struct kvf_diag *d);
    int (*resume)(void *job, const char *path, const char *config, char **ret_log, int *ret_found,
                  struct kvf_diag *d);
    /* Reads a check from the record of a resumed run. */
    void (*read_check)(void *job, const struct json *row);
    /* Tests a resumed run; NULL: no test. */
    int (*resumed)(void *job, struct kvf_diag *d);
};

/* Runs the steps of a training that is open, from the checkpoint if there is one.  An interrupt
 * ends it after the present step.  KVF_OK, also after an interrupt, or an error with a sentence. */
int training_run(struct training *t, const struct training_kind *k, void *job, struct kvf_diag *d);
/* Prints the first line of the summary. */
void training_summary(const struct training *t, int64_t steps, size_t parameters);
void training_finish(struct training *t);

#endif

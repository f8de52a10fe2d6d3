/* tune_job.h - private to `kvfate tune`: what its files share. */
#ifndef KVF_CLI_TUNE_JOB_H
#define KVF_CLI_TUNE_JOB_H

#include "base/buf.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/stage.h"
#include "cli/runner.h"
#include "cli/train_check.h"
#include "cli/train_files.h"
#include "cli/watcher.h"
#include "engine/train/tuner.h"

enum { TUNE_KEY = 48 };

struct tune_job {
    /* options */
    const char *model, *out, *state_path, *targets, *budgets;
    struct opt_list data, plans, rewards;
    struct methods methods;
    struct execution how; /* of what computes the derivatives */
    int packing, type;    /* of the words */
    int64_t steps, until, warmup, length, prompt, accumulate, seed, save_every, check_every,
        check_docs, rank, samples, most, updates;
    double share, lr, clip, decay, kl, ntp, temperature, alpha, range;
    bool json, recompute, fresh, control, raw;

    /* made from them */
    bool checks;

    struct train_files files;
    struct tuner_options opt;
    struct engine *engine;
    struct packs *packs, *held; /* held: what checks are on; NULL: none */
    struct tuner *tuner;
    struct tune_reward *reward;                 /* of --reward; NULL: the loss of a text */
    int n_budgets, budget[TRAIN_CHECK_BUDGETS]; /* 0: the full cache */
    struct pack *doc;                           /* [check_docs] of checks */
    struct pass_loss *loss;                     /* [check_docs] */
    double *kl_of;                              /* [check_docs] */
    struct buf config, log, tokens_name;
    struct progress bar;
    struct stage stage;      /* what the tuner does: of a step, or of the budget of a check */
    struct watcher checking; /* of a check, its budgets */
    double first[TRAIN_CHECK_BUDGETS], last[TRAIN_CHECK_BUDGETS]; /* of checks; NaN: none */
    int64_t saved, tokens;
    double seconds, stored; /* stored: what matrices of the new file are off, against their root
                               mean square */
};

/* Sessions of a row, with the gates and inputs of the job's method. */
struct session_options tune_session(const struct tune_job *j, const struct method *row,
                                    const struct method_params *params);
/* "NAME_64", or "NAME_full" of budget 0. */
void tune_key(char key[TUNE_KEY], const char *name, int budget);
/* Appends to the record the mean of n values at a budget, NAME_64 or NAME_full, its interval and
 * the values.  Returns the mean. */
double tune_put_values(struct tune_job *j, const char *name, int budget, const double *value,
                       int n);

/* ---- tune_text.c: steps and checks on texts ---- */

int tune_text_open(struct tune_job *j, struct kvf_diag *d);
/* KL(model || student under the method) on text that is not trained on. */
int tune_text_check(struct tune_job *j, struct kvf_diag *d);
int tune_text_step(struct tune_job *j, const struct session_options *method, struct kvf_diag *d);

/* ---- tune_reward.c: steps and checks on questions ---- */

int tune_reward_open(struct tune_job *j, struct kvf_diag *d);
void tune_reward_close(struct tune_reward *r); /* accepts NULL */
/* Appends what the questions are to the configuration. */
void tune_reward_put(const struct tune_job *j, struct buf *b);
/* The share of right answers on questions that are not trained on, and KL at their tokens. */
int tune_reward_check(struct tune_job *j, struct kvf_diag *d);
int tune_reward_step(struct tune_job *j, const struct session_options *method, struct kvf_diag *d);

#endif

/* tune_job.h - the request of `kvfate tune`, shared by its files only. */
#ifndef KVF_CLI_TUNE_JOB_H
#define KVF_CLI_TUNE_JOB_H

#include "cli/train_check.h"
#include "cli/training.h"
#include "cli/watcher.h"
#include "engine/train/tuner.h"

enum { TUNE_KEY = 48 };

/* A run of `kvfate tune`. */
struct tune_job {
    struct training t;
    /* options */
    const char *targets;
    struct opt_list plans, rewards;
    struct methods methods;
    int type; /* place in the words of --type */
    int64_t prompt, accumulate, rank, samples, most, updates;
    double lr, clip, decay, kl, ntp, temperature, alpha, range;
    bool control, raw;

    struct tuner_options opt;
    struct session_options session; /* the method that steps are decoded with */
    struct packs *held;             /* documents of checks; NULL: none */
    struct tuner *tuner;
    struct tune_reward *reward;                 /* questions of --reward; NULL: texts */
    int n_budgets, budget[TRAIN_CHECK_BUDGETS]; /* 0: the full cache */
    struct pack *doc;                           /* [check_docs] of checks */
    struct pass_loss *loss;                     /* [check_docs] */
    double *kl_of;                              /* [check_docs] */
    struct watcher checking;                    /* progress of a check in budgets */
    double first[TRAIN_CHECK_BUDGETS],
        /* values of the first and last check; NaN if there was no check */
        last[TRAIN_CHECK_BUDGETS];
    double stored; /* root mean square error of the stored matrices, relative to their own */
};

/* Returns the options of a session under a method, with the gates and inputs of the job. */
struct session_options tune_session(const struct tune_job *j, const struct method *row,
                                    const struct method_params *params);
/* Writes "NAME_64" for budget 64, and "NAME_full" for budget 0. */
void tune_key(char key[TUNE_KEY], const char *name, int budget);
/* Appends to the record the mean of n values at a budget, NAME_64 or NAME_full, its interval and
 * the values.  Returns the mean. */
double tune_put_values(struct tune_job *j, const char *name, int budget, const double *value,
                       int n);

/* ---- tune_text.c: steps and checks on texts ---- */

int tune_text_open(struct tune_job *j, struct kvf_diag *d);
/* Computes KL(model || student under the method) on validation text, in nats per token. */
int tune_text_check(struct tune_job *j, struct kvf_diag *d);
int tune_text_step(struct tune_job *j, const struct session_options *method, struct kvf_diag *d);

/* ---- tune_reward.c: steps and checks on questions ---- */

int tune_reward_open(struct tune_job *j, struct kvf_diag *d);
void tune_reward_close(struct tune_reward *r); /* accepts NULL */
/* Appends number and hash of the questions to the configuration. */
void tune_reward_put(const struct tune_job *j, struct buf *b);
/* Computes the fraction of right answers to validation questions, and KL at their tokens. */
int tune_reward_check(struct tune_job *j, struct kvf_diag *d);
int tune_reward_step(struct tune_job *j, const struct session_options *method, struct kvf_diag *d);

#endif

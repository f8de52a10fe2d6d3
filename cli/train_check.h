/* train_check.h - quality of gates during training: KL(full cache || method) at budgets, as `kvfate
 * eval` computes it, on validation text. */
#ifndef KVF_CLI_TRAIN_CHECK_H
#define KVF_CLI_TRAIN_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

enum {
    TRAIN_CHECK_BUDGETS = 16,
    TRAIN_CHECK_FILES = 16,
    TRAIN_CHECK_PROMPT = 512,
    TRAIN_CHECK_SCORE = 128
};

struct train_check_options {
    const char *model; /* NULL: the default model */
    const char *pre;   /* --pre */
    const struct opt_list *data;
    double from; /* fraction of each file that training uses */
    const char *budgets;
    const char *method;
    int docs, threads;
    bool by_file; /* docs of each file, instead of all files together */
    uint64_t seed;
    const char *cache; /* folder of cached token ids; NULL: no cache */
};

struct train_check_result {
    int n, budget[TRAIN_CHECK_BUDGETS];
    double kl[TRAIN_CHECK_BUDGETS], mean_kl; /* nats per token */
    /* with by_file: each file once, under "kl_in_" and its name without folder and ending */
    struct train_check_file {
        const char *path; /* borrowed */
        char key[64];
        double kl; /* mean over documents and budgets */
    } file[TRAIN_CHECK_FILES];
    int n_files;
};

/* Parses up to TRAIN_CHECK_BUDGETS budgets, separated by commas, as numbers of entries.  A fraction
 * is taken of `prompt` tokens; 0: prompts differ, and fractions are rejected.  KVF_OK, or KVF_E_ARG
 * with a sentence. */
int train_budgets(const char *s, int prompt, int budget[TRAIN_CHECK_BUDGETS], int *ret_n,
                  struct kvf_diag *d);

struct train_check;

/* Opens the model and the validation documents.  KVF_OK, KVF_E_ARG for wrong budgets or too many
 * files, or another error, with a sentence. */
int train_check_open(const struct train_check_options *o, struct train_check **ret,
                     struct kvf_diag *d);
void train_check_close(struct train_check *c); /* accepts NULL */

/* Evaluates the gates of a file on the documents. */
int train_check_run(struct train_check *c, const char *gates, struct train_check_result *ret,
                    struct kvf_diag *d);

#endif

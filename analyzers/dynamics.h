/* dynamics.h - query vectors of several runs, reduced to their first principal components. */
#pragma once

#include <stdbool.h>

#include "analyzers/common.h"
#include "analyzers/var1.h"

enum dynamics_steps { STEPS_ANSWER, STEPS_PROMPT, STEPS_ALL };
enum dynamics_split { SPLIT_TIME, SPLIT_ROLLOUTS };

struct dynamics_options {
    enum dynamics_steps steps;
    enum dynamics_split split;
    double train;   /* part of the time, or of the rollouts, that is for training */
    int components; /* 1 .. VAR1_MOST */
    bool post;      /* vectors after RoPE */
    uint64_t seed;
};

/* A run.  Runs with equal prompts, token by token, are rollouts of one prompt. */
struct rollout {
    struct kvf_trace *t;
    int prompt;
    int64_t first; /* step of the first vector */
    int *column;   /* [dim] of the head that is read */
};

struct dynamics {
    struct dynamics_options opt;
    struct rollout *run;      /* [n] */
    struct var1_piece *piece; /* [n] the runs' vectors in components, prompt by prompt */
    int *order;               /* [n] order[k]: the run that piece[k] is of */
    int *begin;               /* [n_prompts + 1] pieces of a prompt */
    int n, n_prompts;
    int dim, m; /* of a vector; components: fewer where the vectors span fewer */
    int64_t steps, train_steps;
    double share[VAR1_MOST]; /* of the variance of the training vectors */
    double *x;               /* [steps][components] */
};

/* Lists the heads of the set args->heads for which the first trace has vectors. */
int dynamics_heads(struct kvf_trace *t, bool post, const struct analyzer_args *args,
                   struct head_list *ret, struct kvf_diag *d);

/* Sorts runs by prompt and splits their steps into training and test.  dynamics_close is due after
 * a failure, too. */
int dynamics_open(struct kvf_trace *const *traces, int n, const struct analyzer_args *args,
                  const struct dynamics_options *opt, struct dynamics *ret, struct kvf_diag *d);

/* Finds the principal components of a head's training vectors and writes the vectors of all pieces
 * in them. */
int dynamics_head(struct dynamics *x, const struct head *head, struct kvf_diag *d);

/* Puts the vectors of each piece into an order drawn with the seed and the run's number. */
void dynamics_shuffle(struct dynamics *x);

void dynamics_close(struct dynamics *x);

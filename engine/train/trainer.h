/* trainer.h - trains gates: each step updates them from some packs.
 *
 * Step s (from 0) uses packs s A .. s A + A - 1 of an endless sequence of epochs; each epoch has
 * its own order. The state is the parameters, the moments and the number of steps. A run that
 * resumes from a checkpoint gives the same bytes as an uninterrupted run. */
#ifndef KVF_ENGINE_TRAIN_TRAINER_H
#define KVF_ENGINE_TRAIN_TRAINER_H

#include "base/buf.h"
#include "engine/decode/session.h"
#include "engine/train/compute.h"
#include "engine/train/optimizer.h"
#include "engine/train/pass.h"

/* Trainers in several processes that make the same steps. Trainer a % size computes pack a of a
 * step. `share` sends `data` of trainer `owner` to all, and returns KVF_OK or an error with a
 * message. */
struct trainer_team {
    int rank, size;
    int (*broadcast)(void *ctx, int owner, void *data, size_t bytes, struct kvf_diag *d);
    void *ctx;
};

/* Options of gate training. */
struct trainer_options {
    struct net_options net;
    struct pass_options pass;
    struct optimizer optimizer;
    int length;                      /* maximum tokens of a pack */
    int accumulate;                  /* packs per step, at least 1 */
    uint64_t seed;                   /* order of the data */
    const struct trainer_team *team; /* borrowed; NULL: a single process */
    struct learner learner;
};

/* The result of a training step. */
struct trainer_step {
    int64_t step;          /* steps done, including this step */
    struct pass_loss loss; /* averages over the packs of the step */
    double rate, norm;     /* of the gradient before clipping */
    int64_t tokens;        /* tokens in the packs */
};

struct trainer;

/* Creates a trainer. e must be opened exact; e and packs are borrowed. Returns KVF_OK, KVF_E_NOMEM
 * or KVF_E_BACKEND with a message. */
int trainer_create(struct engine *e, struct packs *packs, const struct trainer_options *opt,
                   struct trainer **ret_trainer, struct kvf_diag *d);
void trainer_destroy(struct trainer *t); /* accepts NULL */

/* Makes one step and reports progress to options.pass.watch. Returns KVF_OK, or an error with a
 * message. KVF_E_LIMIT: a loss or gradient is not finite; parameters and moments are unchanged.
 * KVF_E_BACKEND: the device failed, and parameters and moments are lost; resume from the last
 * checkpoint. */
int trainer_step(struct trainer *t, struct trainer_step *ret, struct kvf_diag *d);

int64_t trainer_steps(const struct trainer *t); /* steps done */
/* Returns the number of parameters. */
size_t trainer_parameters(const struct trainer *t);
size_t trainer_bytes(const struct trainer *t); /* memory for activations */

/* Write and read the state, with the errors of checkpoint_write and checkpoint_read. config: all
 * settings as text. log: the record so far. The caller owns *ret_log. */
int trainer_save(const struct trainer *t, const char *path, const char *config, const char *log,
                 struct kvf_diag *d);
int trainer_resume(struct trainer *t, const char *path, const char *config, char **ret_log,
                   int *ret_found, struct kvf_diag *d);

/* Writes the gates as a gate file (docs/reference/gates.md), in bf16 or f32. record: JSON, stored
 * as "training". Returns the errors of safetensors_write. */
int trainer_write_gates(const struct trainer *t, const char *path, bool bf16, const char *hash,
                        const char *record, struct kvf_diag *d);

#endif

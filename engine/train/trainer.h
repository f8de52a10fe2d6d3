/* trainer.h - steps of training: packs in, better gates out.
 *
 * Step s (from 0) sees packs s A .. s A + A - 1 of an endless sequence: epoch by epoch, each
 * in an order of its own; the state is parameters, moments and the number of steps, so a run
 * that goes on from a checkpoint gives the bytes of one that was never stopped. */
#ifndef KVF_ENGINE_TRAIN_TRAINER_H
#define KVF_ENGINE_TRAIN_TRAINER_H

#include "base/buf.h"
#include "engine/decode/session.h"
#include "engine/train/compute.h"
#include "engine/train/optimizer.h"
#include "engine/train/pass.h"

/* Trainers in several processes that make the same steps.  Pack a of a step is done by trainer
 * a % size, and share brings what `owner` has at data to all (KVF_OK or an error with a sentence).
 */
struct trainer_team {
    int me, size;
    int (*share)(void *ctx, int owner, void *data, size_t bytes, struct kvf_diag *d);
    void *ctx;
};

struct trainer_options {
    struct net_options net;
    struct pass_options pass;
    struct optimizer optimizer;
    int length;                      /* most tokens of a pack */
    int accumulate;                  /* packs per step, at least 1 */
    uint64_t seed;                   /* order of the data */
    const struct trainer_team *team; /* borrowed; NULL: this one is alone */
    struct learner learner;
};

struct trainer_step {
    int64_t step;          /* steps done, this one included */
    struct pass_loss loss; /* means over the packs of the step */
    double rate, norm;     /* of the gradient, before clipping */
    int64_t tokens;        /* of the packs */
};

struct trainer;

/* e: opened exact; e and packs are borrowed.  KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND with a sentence.
 */
int trainer_create(struct engine *e, struct packs *packs, const struct trainer_options *opt,
                   struct trainer **ret_trainer, struct kvf_diag *d);
void trainer_destroy(struct trainer *t); /* accepts NULL */

/* Makes one step, and tells options.pass.watch how much of it is done.  KVF_OK, or with a sentence
 * KVF_E_LIMIT when a loss or a gradient is not finite (parameters and moments are then as before),
 * or KVF_E_BACKEND of a device that failed (they are then lost: the last checkpoint is what is
 * left). */
int trainer_step(struct trainer *t, struct trainer_step *ret, struct kvf_diag *d);

int64_t trainer_steps(const struct trainer *t); /* done */
size_t trainer_parameters(const struct trainer *t);
size_t trainer_bytes(const struct trainer *t); /* of activations */

/* Write and read the state as checkpoint_write and checkpoint_read do.  config: every setting, as
 * text; log: the record so far; *ret_log is owned by the caller. */
int trainer_save(const struct trainer *t, const char *path, const char *config, const char *log,
                 struct kvf_diag *d);
int trainer_resume(struct trainer *t, const char *path, const char *config, char **ret_log,
                   int *ret_found, struct kvf_diag *d);

/* Writes the gates as a gate file (docs/reference/gates.md), bf16 or f32.  record: JSON, kept under
 * "training".  Errors are those of safetensors_write. */
int trainer_write_gates(const struct trainer *t, const char *path, bool bf16, const char *hash,
                        const char *record, struct kvf_diag *d);

#endif

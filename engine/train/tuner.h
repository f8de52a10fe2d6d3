/* tuner.h - trains a model's own weights under evictions.
 *
 * The student is decoded under a cache method. Its evictions become the attention mask of a
 * training pass (masks.h, pass.h). The loss is KL(teacher || student) with a temperature, as in the
 * distillation of G-KV. The teacher is the original model with full attention.
 *
 * The order of packs and the state are those of trainer.h. A run that resumes from a checkpoint
 * gives the same bytes as an uninterrupted run. */
#ifndef KVF_ENGINE_TRAIN_TUNER_H
#define KVF_ENGINE_TRAIN_TUNER_H

#include "engine/train/lora.h"
#include "engine/train/masks.h"
#include "engine/train/optimizer.h"
#include "engine/train/pass.h"
#include "engine/train/rollout.h"

/* Options of weight training. */
struct tuner_options {
    struct pass_options pass; /* weights of the terms, temperature, recompute */
    struct optimizer optimizer;
    struct lora_options lora; /* rank 0: train all weights */
    int length;               /* maximum tokens of a pack */
    int accumulate;           /* packs per step, at least 1 */
    int prompt;               /* tokens of a document that are a prefill */
    uint64_t seed;            /* order of the data */
    struct learner learner;
};

/* The result of a training step. */
struct tuner_step {
    int64_t step;              /* steps done, including this step */
    struct pass_loss loss;     /* averages over the packs of the step */
    double rate, norm;         /* of the gradient before clipping */
    int64_t tokens, n_evicted; /* tokens in the packs; evicted entries */
};

struct tuner;

/* Creates a tuner. e must be opened exact. e and packs are borrowed; only tuner_step uses packs.
 * Returns KVF_OK, or with a message KVF_E_ARG (no gradients for this model), KVF_E_NOMEM or
 * KVF_E_BACKEND. */
int tuner_create(struct engine *e, struct packs *packs, const struct tuner_options *opt,
                 struct tuner **ret, struct kvf_diag *d);
void tuner_destroy(struct tuner *t); /* accepts NULL */

/* Makes one step under the evictions recorded in the packs, or else under a method that the CPU
 * decodes. method NULL: no evictions unless recorded. Returns KVF_OK, an error of decoding,
 * KVF_E_LIMIT if a loss or gradient is not finite (parameters and moments are unchanged), or
 * KVF_E_BACKEND (trainer.h). tuner_step and tuner_evaluate report progress to options.pass.watch.
 */
int tuner_step(struct tuner *t, const struct session_options *method, struct tuner_step *ret,
               struct kvf_diag *d);

/* Computes KL(teacher || student) of n packs under a method, without training. */
int tuner_evaluate(struct tuner *t, const struct session_options *method, const struct pack *pack,
                   int n, struct pass_loss *ret, struct kvf_diag *d);

/* Makes one step of gradient ascent on G-KV's Eq. 6, the mean over questions of
 *
 *     1/G sum_i 1/|y_i| sum_t min(r A_i, clip(r, 1 - range, 1 + range) A_i)
 *
 * where r is the probability under the student with the answers' evictions, divided by that under
 * the sampling policy. answers [n_questions * samples] have advantages and at most `length` tokens
 * each. Returns the errors of tuner_step. */
int tuner_reinforce(struct tuner *t, const struct answer *answers, int n_questions, int samples,
                    double range, struct tuner_step *ret, struct kvf_diag *d);
/* Computes KL(teacher || student) at the tokens of n answers, each under its evictions, at the
 * temperature of the pass. ret [n]: average over the tokens of each answer. Returns KVF_OK or
 * KVF_E_BACKEND. */
int tuner_answers_kl(struct tuner *t, const struct answer *answers, int n, double *ret,
                     struct kvf_diag *d);
/* Returns the student as a decoder. */
struct engine *tuner_student(struct tuner *t);

int64_t tuner_steps(const struct tuner *t); /* steps done */
/* Returns the number of trained parameters. */
size_t tuner_parameters(const struct tuner *t);
/* Returns the bytes of weights, packed matrices, gradients, moments and activations. */
size_t tuner_bytes(const struct tuner *t);
/* Returns the student's weights. */
const struct trainable *tuner_weights(const struct tuner *t);
const struct lora *tuner_lora(const struct tuner *t); /* NULL: all weights are trained */

/* Write and read the state, as trainer_save and trainer_resume do (trainer.h). */
int tuner_save(const struct tuner *t, const char *path, const char *config, const char *log,
               struct kvf_diag *d);
int tuner_resume(struct tuner *t, const char *path, const char *config, char **ret_log,
                 int *ret_found, struct kvf_diag *d);

#endif

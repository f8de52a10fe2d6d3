/* tuner.h - steps of training of a model's own weights under evictions.
 *
 * The student is decoded under a cache method, its evictions become the mask of a pass, and its
 * predictions are drawn to those of the model as it was, which sees everything: KL(teacher ||
 * student) with a temperature, as G-KV distils (masks.h, pass.h).
 *
 * Packs come in the order of trainer.h; the state is parameters, moments and the number of steps,
 * so a run that goes on from a checkpoint gives the bytes of one that was never stopped. */
#ifndef KVF_ENGINE_TRAIN_TUNER_H
#define KVF_ENGINE_TRAIN_TUNER_H

#include "engine/train/lora.h"
#include "engine/train/masks.h"
#include "engine/train/optimizer.h"
#include "engine/train/pass.h"
#include "engine/train/rollout.h"

struct tuner_options {
    struct pass_options pass; /* weights of the terms, temperature, recompute */
    struct optimizer optimizer;
    struct lora_options lora; /* rank 0: all weights learn */
    int length;               /* most tokens of a pack */
    int accumulate;           /* packs per step, at least 1 */
    int prompt;               /* tokens of a document that are fed at once */
    uint64_t seed;            /* order of the data */
    struct learner learner;
};

struct tuner_step {
    int64_t step;          /* steps done, this one included */
    struct pass_loss loss; /* means over the packs of the step */
    double rate, norm;     /* of the gradient, before clipping */
    int64_t tokens, left;  /* of the packs; entries that were evicted */
};

struct tuner;

/* e: opened exact; e and packs, which tuner_step alone needs, are borrowed.  KVF_OK, KVF_E_ARG of a
 * model whose derivatives are not supported, KVF_E_NOMEM or KVF_E_BACKEND, with a sentence. */
int tuner_create(struct engine *e, struct packs *packs, const struct tuner_options *opt,
                 struct tuner **ret, struct kvf_diag *d);
void tuner_destroy(struct tuner *t); /* accepts NULL */

/* Makes one step, under the evictions that the packs have recorded, or else under a method, which
 * the processor decodes; method NULL: without evictions.  KVF_OK, an error of decoding, KVF_E_LIMIT
 * when a loss or a gradient is not finite (parameters and moments are then as before), or
 * KVF_E_BACKEND (trainer.h).  Steps and judgements tell options.pass.watch how much of them is
 * done. */
int tuner_step(struct tuner *t, const struct session_options *method, struct tuner_step *ret,
               struct kvf_diag *d);

/* KL(teacher || student) of n packs under a method, of the student as it is; nothing is learnt. */
int tuner_judge(struct tuner *t, const struct session_options *method, const struct pack *pack,
                int n, struct pass_loss *ret, struct kvf_diag *d);

/* Makes one step up the objective of G-KV's Eq. 6, the mean over questions of
 *     1/G sum_i 1/|y_i| sum_t min(r A_i, clip(r, 1 - range, 1 + range) A_i)
 * where r is the ratio of the student under the answers' evictions to the policy that sampled them.
 * answers [n_questions * samples] have advantages; no more than `length` tokens each.  Errors as of
 * tuner_step. */
int tuner_reinforce(struct tuner *t, const struct answer *answers, int n_questions, int samples,
                    double range, struct tuner_step *ret, struct kvf_diag *d);
/* KL(teacher || student) at the tokens of n answers, each under its evictions, at the temperature
 * of the pass: ret [n], means over the tokens of an answer.  KVF_OK or KVF_E_BACKEND. */
int tuner_drift(struct tuner *t, const struct answer *answers, int n, double *ret,
                struct kvf_diag *d);
/* The student as a decoder. */
struct engine *tuner_student(struct tuner *t);

int64_t tuner_steps(const struct tuner *t); /* done */
size_t tuner_parameters(const struct tuner *t);
/* Bytes of weights, packs, derivatives, moments and activations. */
size_t tuner_bytes(const struct tuner *t);
const struct trainable *tuner_weights(const struct tuner *t);
const struct lora *tuner_lora(const struct tuner *t); /* NULL: all weights learn */

/* As trainer_save and trainer_resume (trainer.h). */
int tuner_save(const struct tuner *t, const char *path, const char *config, const char *log,
               struct kvf_diag *d);
int tuner_resume(struct tuner *t, const char *path, const char *config, char **ret_log,
                 int *ret_found, struct kvf_diag *d);

#endif

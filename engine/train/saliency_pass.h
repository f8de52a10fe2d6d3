/* saliency_pass.h - the backward pass that gives every entry its saliency
 * (engine/experiment/saliency.h says what that is). */
#ifndef KVF_ENGINE_TRAIN_SALIENCY_PASS_H
#define KVF_ENGINE_TRAIN_SALIENCY_PASS_H

#include "engine/experiment/saliency.h"
#include "engine/train/compute.h"

/* e: opened exact.  ids: [n], 2 <= n <= the model's context.  KVF_OK, or KVF_E_NOMEM,
 * KVF_E_BACKEND (of a device), KVF_E_LIMIT (a derivative that is not finite) with a sentence.  The
 * same bits for any number of threads. */
int saliency_measure(struct engine *e, const struct learner *l, const int32_t *ids, int n,
                     const struct saliency_options *opt, struct saliency *ret, struct kvf_diag *d);

#endif

/* saliency_pass.h - the backward pass that computes the saliency of every cache entry
 * (engine/experiment/saliency.h defines it). */
#pragma once

#include "engine/experiment/saliency.h"
#include "engine/train/compute.h"

/* Computes saliencies. e must be opened exact. ids: [n], 2 <= n <= the model's context. Returns
 * KVF_OK, or with a message KVF_E_NOMEM, KVF_E_BACKEND (of a device) or KVF_E_LIMIT (a derivative
 * is not finite). Results do not depend on the number of threads. */
int saliency_measure(struct engine *e, const struct learner *l, const int32_t *ids, int n,
                     const struct saliency_options *opt, struct saliency *ret, struct kvf_diag *d);

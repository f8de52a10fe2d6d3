/* learner.h - what trains where a backend decodes.  Programs link one of two: learner_cuda.c with
 * the kernels, or learner_none.c where nothing compiled them (as engine/device/devices.h). */
#ifndef KVF_ENGINE_TRAIN_LEARNER_H
#define KVF_ENGINE_TRAIN_LEARNER_H

#include "engine/decode/backend.h"
#include "engine/train/ops.h"

const struct ops *learner_of(const struct backend *b);

#endif

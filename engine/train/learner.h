/* learner.h - selects the training operations that match a backend.
 *
 * A program links learner_cuda.c with the kernels, or learner_none.c if it is built without
 * CUDA. */
#pragma once

#include "engine/decode/backend.h"
#include "engine/train/ops.h"

/* Returns the operations for the device of backend b, or those of the CPU. */
const struct ops *learner_of(const struct backend *b);

/* allocation_adaptive_pyramid.c - lower layers get more places, which their heads share (AdaKV). */
#include "engine/method/shares.h"

const struct allocation allocation_adaptive_pyramid = {
    .name = "adaptive-pyramid",
    .summary = "layer budgets decrease linearly; heads of a layer share them",
    .uses = USES_BETA | USES_FLOOR,
    .pool = POOL_LAYER,
    .weights = shares_pyramid};

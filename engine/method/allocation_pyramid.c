/* allocation_pyramid.c - lower layers get more places (PyramidKV). */
#include "engine/method/shares.h"

const struct allocation allocation_pyramid = {
    .name = "pyramid",
    .summary = "layer budgets decrease linearly with depth",
    .uses = USES_BETA,
    .weights = shares_pyramid};

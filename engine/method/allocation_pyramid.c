/* allocation_pyramid.c - lower layers get more places (PyramidKV). */
#include "engine/method/shares.h"

const struct allocation allocation_pyramid = {
    .name = "pyramid",
    .summary = "lower layers get more, in a straight line",
    .uses = USES_BETA,
    .weights = shares_pyramid};

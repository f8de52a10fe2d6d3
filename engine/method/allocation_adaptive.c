/* allocation_adaptive.c - the heads of a layer share their places, the best entries win (AdaKV). */
#include "engine/method/parts.h"

const struct allocation allocation_adaptive = {
    .name = "adaptive",
    .summary = "the heads of a layer share H B entries; the largest scores win",
    .uses = USES_FLOOR,
    .pool = POOL_LAYER};

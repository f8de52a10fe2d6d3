/* allocation_global.c - all heads of all layers share their places, the best entries win. */
#include "engine/method/parts.h"

const struct allocation allocation_global = {
    .name = "global",
    .summary = "all heads of all layers share L H B entries; the largest scores win",
    .uses = USES_FLOOR,
    .pool = POOL_ALL};

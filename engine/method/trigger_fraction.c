/* trigger_fraction.c - all heads drop a fraction when they exceed their places together (WG-KV). */
#include "engine/method/parts.h"

const struct trigger trigger_fraction = {
    .name = "fraction",
    .summary = "each head evicts a fraction when all heads together exceed the budget",
    .uses = USES_FRACTION,
    .rounds = true,
    .target = trigger_target_overflow};

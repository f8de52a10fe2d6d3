/* trigger_prompt.c - heads are cut to their share in and after the prompt, and grow afterwards. */
#include "engine/method/parts.h"

const struct trigger trigger_prompt = {
    .name = "prompt",
    .summary = "after the prompt only; the cache grows with every token that follows",
    .once = true,
    .target = trigger_target_overflow};

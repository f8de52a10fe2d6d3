/* parts.c - triggers: when entries are cut, and how far. */
#include "engine/method/parts.h"

static int target_none(const struct method_state *m, int share, int n, int incoming)
{
    (void)m, (void)share, (void)incoming;
    return n;
}

const struct trigger trigger_none = {.name = "none", .summary = "never", .target = target_none};

/* Room for the newcomer is made before it comes, so that its query sees at most
 * `share` entries; with every = s there is room for s of them, and with slack = s
 * nothing happens until s entries are too many. */
static int target_overflow(const struct method_state *m, int share, int n, int incoming)
{
    const struct method_params *p = method_params_of(m);
    int most = share - incoming, left = most - p->every + 1;
    return n <= most + p->slack ? n : left > 0 ? left : 0;
}

const struct trigger trigger_overflow = {
    .name = "overflow",
    .summary = "after the prompt and before every token that would exceed the share",
    .target = target_overflow};

const struct trigger trigger_fraction = {
    .name = "fraction",
    .summary = "when all heads together exceed their places, each drops a fraction",
    .uses = USES_FRACTION,
    .rounds = true,
    .target = target_overflow};

const struct trigger *const trigger_table[] = {&trigger_none, &trigger_overflow, &trigger_fraction,
                                               NULL};

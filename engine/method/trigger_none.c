/* trigger_none.c - no entry is evicted for the budget. */
#include "engine/method/parts.h"

static int target(const struct method_state *m, int share, int n, int incoming)
{
    (void)m, (void)share, (void)incoming;
    return n;
}

const struct trigger trigger_none = {.name = "none", .summary = "never evicts", .target = target};

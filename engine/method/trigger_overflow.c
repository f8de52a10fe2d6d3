/* trigger_overflow.c - heads are cut when they would exceed their share. */
#include "engine/method/parts.h"

/* Frees a place before the new entry is appended, so that its query sees at most `share` entries.
 * With every = s it frees s places.  With slack = s it waits until s entries are too many. */
int trigger_target_overflow(const struct method_state *m, int share, int n, int incoming)
{
    const struct method_params *p = method_params_of(m);
    int most = share - incoming, left = most - p->every + 1;
    if (n <= most + p->slack)
        return n;
    return left > 0 ? left : 0;
}

const struct trigger trigger_overflow = {
    .name = "overflow",
    .summary = "after the prefill, and before each token that would exceed the budget",
    .target = trigger_target_overflow};

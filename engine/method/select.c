/* select.c - the k worst of n candidates for eviction (base/select.h, engine/kernels/ranking.h). */
#include <stdlib.h>

#include "base/select.h"
#include "engine/method/state.h"

SELECT_DEFINE(candidates, struct candidate, enum tie_rule, candidate_worse)
SELECT_INSERT_DEFINE(candidates, struct candidate, enum tie_rule, candidate_worse)

void select_worst(struct candidate *c, int64_t n, int64_t k, enum tie_rule tie)
{
    candidates_first(c, n, k, tie);
}

int select_insert(struct candidate *list, int n, int k, const struct candidate *x,
                  enum tie_rule tie)
{
    return candidates_insert(list, n, k, x, tie);
}

static int newer_kept(const void *a, const void *b)
{
    return candidate_worse(a, b, TIE_NEWER) ? -1 : 1;
}

static int older_kept(const void *a, const void *b)
{
    return candidate_worse(a, b, TIE_OLDER) ? -1 : 1;
}

void select_order(struct candidate *c, int n, enum tie_rule tie)
{
    if (n > 1)
        qsort(c, (size_t)n, sizeof *c, tie == TIE_OLDER ? older_kept : newer_kept);
}

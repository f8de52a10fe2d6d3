/* select.c - the k worst of n candidates, in time O(n). */
#include <stdlib.h>

#include "engine/method/state.h"

bool candidate_worse(const struct candidate *x, const struct candidate *y, bool older)
{
    if (x->score != y->score)
        return x->score < y->score;
    if (x->pos != y->pos)
        return older ? x->pos > y->pos : x->pos < y->pos;
    return x->head > y->head; /* the lower layer, then the lower head is kept */
}

static void swap(struct candidate *x, struct candidate *y)
{
    struct candidate tmp = *x;
    *x = *y;
    *y = tmp;
}

/* The middle one of three to c[lo]. */
static void take_pivot(struct candidate *c, int64_t lo, int64_t hi, bool older)
{
    int64_t mid = lo + (hi - lo) / 2;
    if (candidate_worse(&c[mid], &c[lo], older))
        swap(&c[mid], &c[lo]);
    if (candidate_worse(&c[hi], &c[lo], older))
        swap(&c[hi], &c[lo]);
    if (candidate_worse(&c[hi], &c[mid], older))
        swap(&c[hi], &c[mid]);
    swap(&c[lo], &c[mid]);
}

void select_worst(struct candidate *c, int64_t n, int64_t k, bool older)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi && k < n) {
        take_pivot(c, lo, hi, older);
        int64_t at = lo;
        for (int64_t i = lo + 1; i <= hi; i++)
            if (candidate_worse(&c[i], &c[lo], older))
                swap(&c[++at], &c[i]);
        swap(&c[lo], &c[at]);
        if (at == k)
            return;
        if (at < k)
            lo = at + 1;
        else
            hi = at - 1;
    }
}

static int newer_first(const void *a, const void *b)
{
    return candidate_worse(a, b, false) ? -1 : 1;
}

static int older_first(const void *a, const void *b)
{
    return candidate_worse(a, b, true) ? -1 : 1;
}

void select_order(struct candidate *c, int n, bool older)
{
    if (n > 1)
        qsort(c, (size_t)n, sizeof *c, older ? older_first : newer_first);
}

/* loss_tools.h - shared by the suites of the losses: documents in a pack, thread pools, and the
 * difference of two vectors. */
#ifndef KVF_TESTS_LOSS_TOOLS_H
#define KVF_TESTS_LOSS_TOOLS_H

#include "base/par.h"
#include "tests/kernels/variants.h"

/* Makes documents of the given lengths. The last one is cut at T or repeated until T. */
static inline void make_documents(int32_t *first, int T, const int *length, int n)
{
    for (int i = 0, at = 0; i < T; at++) {
        int from = i, len = length[at < n ? at : n - 1];
        for (; i < T && i < from + len; i++)
            first[i] = from;
    }
}

static inline int end_of(const int32_t *first, int T, int i)
{
    int end = i + 1;
    while (end < T && first[end] == first[i])
        end++;
    return end;
}

/* Returns the largest |a - b| over the largest |b|; 0 for two vectors of zeros. */
static inline double apart(const float *a, const double *b, size_t n)
{
    double diff = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        diff = worst(fabs((double)a[i] - b[i]), diff);
        size = fmax(size, fabs(b[i]));
    }
    return diff == 0 ? 0 : diff / size;
}

static inline struct par *pool_of(int threads)
{
    struct par *p = NULL;
    cr_assert(eq(int, par_create(threads, &p), KVF_OK));
    return p;
}

#endif

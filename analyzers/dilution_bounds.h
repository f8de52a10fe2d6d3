/* dilution_bounds.h - proposition 3.1 of Nguyen et al. 2026: of each query the largest of
 * x = e^-Delta |D'(Delta)| / |U| over Delta = 0, 1/2, ..., with D'(Delta) the entries whose score
 * is within Delta of the largest and that are not of U. */
#ifndef KVF_ANALYZERS_DILUTION_BOUNDS_H
#define KVF_ANALYZERS_DILUTION_BOUNDS_H

#include <stdbool.h>

#include "analyzers/common.h"

enum { N_NEAR = 16 };

struct near {
    const int *column;  /* [N_NEAR] entries within Delta = j / 2 of the largest score */
    int64_t a, n;       /* steps a .. a + n - 1 */
    bool prefix;        /* U is a prefix of the order of scores: as many of those near are its own
                           as it has; else columns count what is not of U */
    const double *size; /* [n] |U| */
    double *x, *delta;  /* [n] results: 0 and NaN where nothing is near */
    double *scratch;    /* [n] */
};

int near_bounds(struct kvf_trace *t, const struct head *h, const struct near *w,
                struct kvf_diag *d);

#endif

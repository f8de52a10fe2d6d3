/* ranks.h - ranks of values and their correlation. */
#pragma once

#include <stddef.h>

#include <kvf/err.h>

/* rank[i] becomes the rank of v[i] in n values without NaN, 1 the smallest; equal
 * values share the mean of their ranks.  rank may be v.  KVF_OK or KVF_E_NOMEM. */
int ranks_average(const double *v, size_t n, double *rank);

/* Marks the k largest of n values, k <= n; for equal values the larger index is first.
 * KVF_OK or KVF_E_NOMEM. */
int ranks_top(const double *v, size_t n, size_t k, unsigned char *mark);

/* Pearson's correlation; of ranks it is Spearman's.  NaN when n < 2 or one side is
 * constant. */
double ranks_correlation(const double *x, const double *y, size_t n);

/* Mean of |A and B| / |A or B| of two sets of k out of n drawn at random, k <= n: the
 * size of A and B is hypergeometric.  NaN for k = 0. */
double ranks_chance_overlap(size_t n, size_t k);

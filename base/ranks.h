/* ranks.h - ranks of values and rank correlation. */
#ifndef KVF_BASE_RANKS_H
#define KVF_BASE_RANKS_H

#include <stddef.h>

#include <kvf/err.h>

/* Sets rank[i] to the rank of v[i] in n values without NaN, 1 for the smallest. Ties share the
 * mean of their ranks. rank may be v. Returns KVF_OK or KVF_E_NOMEM. */
int ranks_average(const double *v, size_t n, double *rank);

/* Marks the k largest of n values, k <= n; of ties the larger index has priority. Returns
 * KVF_OK or KVF_E_NOMEM. */
int ranks_top(const double *v, size_t n, size_t k, unsigned char *mark);

/* Returns Pearson's correlation, which is Spearman's for ranks. NaN if n < 2 or one side is
 * constant. */
double ranks_correlation(const double *x, const double *y, size_t n);

/* Returns the mean of |A and B| / |A or B| for two random sets of k out of n, k <= n; the size of
 * A and B is hypergeometric. NaN for k = 0. */
double ranks_chance_overlap(size_t n, size_t k);

#endif

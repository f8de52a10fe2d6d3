/* product_limit.h - survival with censored lifetimes: the product-limit estimate of Kaplan and
 * Meier from counts by age, Greenwood's variance, restricted means and half-lives.
 *
 * Lifetimes are counted in n cells, one per age in increasing order, by the last cell in which
 * they are at risk. They end there (died[k]), or are censored there (censored[k]). With r[k] = sum
 * over j >= k of (died[j] + censored[j]), the number at risk in cell k,
 *     S[k] = prod over j < k of (1 - died[j] / r[j])                Kaplan and Meier (1958)
 *     Var S[k] = S[k]^2 G[k],  G[k] = sum over j < k of died[j] / (r[j] (r[j] - died[j]))
 *                                                                   Greenwood (1926)
 */
#ifndef KVF_BASE_PRODUCT_LIMIT_H
#define KVF_BASE_PRODUCT_LIMIT_H

#include <stdint.h>

/* Computes S[0 .. n] and G[0 .. n]. S[k] is the fraction that survives the cells before k; S[0] =
 * 1. After the last cell at risk, S stays 0 if all died; otherwise it is NaN, because it cannot be
 * estimated. G is NaN where S is 0 or NaN. */
void product_limit(const int64_t *died, const int64_t *censored, int64_t n, double *S, double *G);

/* Computes the 95 % CI of S = S[k] with G = G[k] on the scale log(-log S), which stays within 0
 * and 1 (Kalbfleisch and Prentice 1980). For S = 1 (no deaths) the lower end is the exact binomial
 * one for 0 deaths in `risk`, the number at risk in the preceding cell (Clopper and Pearson 1934).
 * It is 1 before the first cell, where risk is 0. NaN if S is 0 or NaN. */
void product_limit_interval(double S, double G, int64_t risk, double *ret_low, double *ret_high);

/* Returns the sum of S[k] for first <= k < end <= n + 1, the mean number of these cells that a
 * lifetime reaches. *ret_error is its standard error: the root of the sum over deaths of A[k]^2
 * died[k] / (r[k] (r[k] - died[k])), where A[k] is the part of the sum after cell k. Both are NaN
 * if some S is NaN. */
double product_limit_mean(const int64_t *died, const int64_t *censored, int64_t n, const double *S,
                          int64_t first, int64_t end, double *ret_error);

/* Returns the first cell k with first <= k < end and S below one half, or -1. */
int64_t product_limit_half(const double *S, int64_t first, int64_t end);

#endif

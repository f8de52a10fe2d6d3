/* product_limit.h - survival where some lives are cut short: Kaplan and Meier's product-limit
 * estimate from counts by age, Greenwood's variance, restricted means and half-lives.
 *
 * Lives are counted in n cells, one for each age in rising order, by the last cell in which they
 * are at risk: there they die (died[k]), or are seen for the last time alive (censored[k]).  With
 * r[k] = sum over j >= k of (died[j] + censored[j]), those at risk in cell k,
 *     S[k] = prod over j < k of (1 - died[j] / r[j])                Kaplan and Meier (1958)
 *     Var S[k] = S[k]^2 G[k],  G[k] = sum over j < k of died[j] / (r[j] (r[j] - died[j]))
 *                                                                   Greenwood (1926) */
#pragma once

#include <stdint.h>

/* Fills S[0 ..  n] and G[0 ..  n].  S[k] is the share that lives on past the cells before k; S[0] =
 * 1.  Once no token is at risk, S stays 0 if all died, and else is NaN (unknown).  G is NaN where S
 * is 0 or NaN. */
void product_limit(const int64_t *died, const int64_t *censored, int64_t n, double *S, double *G);

/* 95 % interval of S = S[k] with G = G[k] on the scale log(-log S), which stays within 0 and 1
 * (Kalbfleisch and Prentice 1980).  Before the first death, S = 1, the low end is the exact
 * binomial one for no death in `risk` tokens, at risk in the cell before (Clopper and Pearson
 * 1934), or 1 before the first cell, where risk is 0.  NaN where S is 0 or NaN. */
void product_limit_interval(double S, double G, int64_t risk, double *ret_low, double *ret_high);

/* The sum of S[k] for first <= k < end <= n + 1: the mean number of these cells that a life
 * reaches.  *ret_error: its standard error, the root of the sum over deaths of A[k]^2 died[k] /
 * (r[k] (r[k] - died[k])), A[k] being the part of the sum of cells after k.  Both are NaN where
 * some S is. */
double product_limit_mean(const int64_t *died, const int64_t *censored, int64_t n, const double *S,
                          int64_t first, int64_t end, double *ret_error);

/* The first cell from `first` up to and without `end` with S below one half, or -1. */
int64_t product_limit_half(const double *S, int64_t first, int64_t end);

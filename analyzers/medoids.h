/* medoids.h - clusters around medoids, only from distances. */
#pragma once

#include <stddef.h>

#include <kvf/err.h>

/* D: [n][n] symmetric distances without NaN, 1 <= k <= n.  PAM (Kaufman and Rousseeuw 1990):
 * greedy build, then the best swap of a medoid and another point until no swap lowers the sum of
 * distances to the nearest medoid; all swaps of a round cost O(n^2) (FastPAM1, Schubert and
 * Rousseeuw 2019).  Of equal ones the lowest index is taken, so the result is deterministic.
 * medoid: [k] rising; cluster: [n] the place of each point's medoid in it.
 * KVF_OK or KVF_E_NOMEM. */
int medoids_find(const double *D, size_t n, size_t k, size_t *medoid, size_t *cluster);

/* s[i] = (b - a) / max(a, b): a the mean distance of i to the rest of its cluster, b the least mean
 * distance to another cluster, *other which (Rousseeuw 1987).  0 for the only point of a cluster;
 * NaN for k = 1.  KVF_OK or KVF_E_NOMEM. */
int medoids_silhouette(const double *D, size_t n, size_t k, const size_t *cluster, double *s,
                       size_t *other);

/* Adjusted Rand index of two clusterings of n points in k clusters each (Hubert and Arabie 1985):
 * 1 = equal, 0 = as by chance; NaN if chance gives 1.  KVF_OK or KVF_E_NOMEM. */
int medoids_adjusted_rand(const size_t *a, const size_t *b, size_t n, size_t k, double *ret);

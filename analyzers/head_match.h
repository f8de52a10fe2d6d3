/* head_match.h - which head of one model is which head of another, and which of these matches are
 * proven. */
#pragma once

#include <kvf/err.h>

enum { HEAD_MATCH_LEARN = 20 }; /* fewer pairs than this are too few to learn from */

/* Which column each of the rows has in the best assignment: each row and column at most once, the
 * least sum of the costs.  cost [rows][columns]; NaN and INFINITY forbid a pair.  partner [rows]:
 * -1 for a row without one.  KVF_OK or KVF_E_NOMEM. */
int best_partners(const double *cost, int rows, int columns, int *partner);

/* Replaces n rows of n_f features by scores that do not depend on the scale of a text: ln(u / (1 -
 * u)), u = (rank among the rows - 1/2) / n, equal values share their mean rank.  No NaN.  KVF_OK
 * or KVF_E_NOMEM. */
int rank_scores(double *x, int n, int n_f);

struct head_match {
    int a, b;               /* places of the heads */
    double distance, rival; /* of the pair; the least of either head with another */
    double nearer; /* share of the remaining pairs of either head that are at most this far */
    double p, q;   /* NaN if there are no such pairs */
    /* The same as nearer, of the pair of head a in the best assignment without the matches. NaN if
     * it has none. */
    double nearer_wrong;
};

/* The heads of two models: scores as above or means of them over texts, a [n_a][n_f] and b
 * [n_b][n_f]; extra [n_a][n_b]: squares that are added to the squared distances, for the owners of
 * the heads; NULL: none. */
struct head_pair {
    const double *a, *b, *beside;
    int n_a, n_b, n_f;
};

/* The best assignment of the heads of a to the heads of b.
 *
 * Distances are learned from the heads themselves.  Those of the first round weigh all features
 * alike. The assignment gives pairs, those that are nearer than any rival teach the covariance W of
 * what differs between two sightings of one head, shrunk to its diagonal, and the distance of the
 * next round is the root of (a - b)' W^-1 (a - b) / n_f + beside.  In the last round the heads of a
 * are cut into five parts, and the distances of each are learned from the pairs of the others: no
 * pair is judged by what itself has taught.
 *
 * What is reported and judged are the distances of the heads themselves, without beside.  Whether a
 * match is proven: its score s = distance^2 / rival is held against the scores of the
 * best assignment in which no head may have the partner that it was matched to, so of pairs that
 * are wrong where the matches are right: p = (1 + those <= s) / (1 + all); q by Benjamini and
 * Hochberg.
 *
 * ret [the smaller of n_a and n_b], rising by a; *ret_n: how many.  distance [n_a][n_b] gets the
 * distances that were learned.  KVF_OK, KVF_E_NOTFOUND when LAPACK is not installed, KVF_E_NOMEM.
 */
int head_match(const struct head_pair *pair, double *distance, struct head_match *ret, int *ret_n,
               struct kvf_diag *d);

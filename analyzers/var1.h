/* var1.h - the model x_(k+1) = A x_k + b + e over several pieces of one process, by least squares.
 * Steps of a piece before its `train` are known to the fit; a transition k -> k + 1 is of the
 * training part when k + 1 is, else of the test part. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { VAR1_MOST = 16 }; /* components */

struct var1_piece {
    double *x;        /* [n][m] */
    int64_t n, train; /* steps; 0 <= train <= n */
};

struct var1 {
    int m;
    bool fitted;             /* the regression has a solution; all that follows is NaN without */
    int64_t n_train, n_test; /* transitions */
    double a[VAR1_MOST * VAR1_MOST], b[VAR1_MOST]; /* a: [m][m] */
    double real[VAR1_MOST], imaginary[VAR1_MOST];  /* eigenvalues of A by falling modulus */
    double radius;                                 /* the largest modulus */
    double r2_train, r2_test; /* 1 - sum |e|^2 / sum |x - mean of the targets|^2 */
    double mean[VAR1_MOST];   /* (I - A)^-1 b */
    double sigma[VAR1_MOST];  /* of the stationary law, S = A S A' + Q; NaN: radius >= 1 */
    bool white;               /* n_train > 2 m, Q is positive definite and not rounding */
    double factor[VAR1_MOST * VAR1_MOST]; /* L of Q = L L', Q = sum e e' / (n_train - m - 1) */
};

/* KVF_OK or KVF_E_NOMEM. */
int var1_fit(const struct var1_piece *piece, int n_pieces, int m, struct var1 *ret);

/* Calls visit with each component of L^-1 e, for the training or for the test transitions. */
void var1_innovations(const struct var1_piece *piece, int n_pieces, const struct var1 *v,
                      bool held_out, void (*visit)(void *ctx, double w), void *ctx);

/* lapack.h - the solvers that analyzers take from LAPACK, on small row-major matrices in double.
 *
 * One thread with every library: results depend only on its version.
 * Functions return 0, 1 where there is no result (singular, not positive definite, no
 * convergence), or KVF_E_NOMEM. */
#pragma once

#include <kvf/err.h>

/* Loads the library, which with its four companions would take a tenth of the start of every
 * command.  Call it before any other function; a second call is free.  KVF_E_NOTFOUND: the
 * library is not installed. */
int lapack_open(struct kvf_diag *d);

/* Eigenvalues of a symmetric matrix a [n][n], falling.  Row k of a becomes the eigenvector of value
 * k, of length 1. Its entry of largest size (the first of equal ones) is positive. */
int lapack_symmetric(double *a, int n, double *ret_value);

/* Eigenvalues of any matrix [n][n], which is destroyed.  They are sorted by falling modulus, then
 * by falling real part, then by falling imaginary part. */
int lapack_eigenvalues(double *a, int n, double *ret_real, double *ret_imaginary);

/* Solves a x = b for one right side; a [n][n] is destroyed and x replaces b. */
int lapack_solve(double *a, int n, double *b);

/* Replaces a symmetric positive definite a by the lower factor L of a = L L', 0 above the
 * diagonal. */
int lapack_cholesky(double *a, int n);

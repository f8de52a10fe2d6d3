#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "analyzers/lapack.h"
#include "base/mem.h"

#include <kvf/err.h>

/* Fortran's names and its way to call: all by address, matrices by columns, lengths of strings
 * behind the arguments. */
void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w,
            double *work, const int *lwork, int *info, size_t len_jobz, size_t len_uplo);
void dgeev_(const char *jobvl, const char *jobvr, const int *n, double *a, const int *lda,
            double *wr, double *wi, double *vl, const int *ldvl, double *vr, const int *ldvr,
            double *work, const int *lwork, int *info, size_t len_jobvl, size_t len_jobvr);
void dgesv_(const int *n, const int *nrhs, double *a, const int *lda, int *pivot, double *b,
            const int *ldb, int *info);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t len_uplo);

/* There when OpenBLAS stands in for the reference library. */
extern void openblas_set_num_threads(int n) __attribute__((weak));

static void one_thread(void)
{
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
}

static void reverse_rows(double *a, double *value, int n)
{
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        double t = value[i];
        value[i] = value[j];
        value[j] = t;
        for (int k = 0; k < n; k++) {
            t = a[i * n + k];
            a[i * n + k] = a[j * n + k];
            a[j * n + k] = t;
        }
    }
}

static void fix_signs(double *a, int n)
{
    for (int i = 0; i < n; i++) {
        double *v = a + (size_t)i * (size_t)n;
        int top = 0;
        for (int k = 1; k < n; k++)
            if (fabs(v[k]) > fabs(v[top]))
                top = k;
        for (int k = 0; v[top] < 0 && k < n; k++)
            if (k != top)
                v[k] = -v[k];
        v[top] = fabs(v[top]);
    }
}

int lapack_symmetric(double *a, int n, double *ret_value)
{
    int lwork = 64 * n, info = 0;
    double *work = MEM_NEW(double, (size_t)lwork);
    if (!work)
        return KVF_E_NOMEM;
    one_thread();
    /* its columns are eigenvectors of rising values: rows to us */
    dsyev_("V", "U", &n, a, &n, ret_value, work, &lwork, &info, 1, 1);
    mem_free(work);
    if (info)
        return 1;
    reverse_rows(a, ret_value, n);
    fix_signs(a, n);
    return 0;
}

struct eigenvalue {
    double real, imaginary, modulus;
};

static int compare(const void *a, const void *b)
{
    const struct eigenvalue *x = a, *y = b;
    if (x->modulus != y->modulus)
        return x->modulus < y->modulus ? 1 : -1;
    if (x->real != y->real)
        return x->real < y->real ? 1 : -1;
    return (x->imaginary < y->imaginary) - (x->imaginary > y->imaginary);
}

int lapack_eigenvalues(double *a, int n, double *ret_real, double *ret_imaginary)
{
    int lwork = 64 * n, info = 0, one = 1;
    double *work = MEM_NEW(double, (size_t)lwork), none = 0;
    struct eigenvalue *e = MEM_NEW(struct eigenvalue, (size_t)n);
    int err = work && e ? 0 : KVF_E_NOMEM;
    if (!err) {
        one_thread();
        /* of the transposed matrix, which has the same */
        dgeev_("N", "N", &n, a, &n, ret_real, ret_imaginary, &none, &one, &none, &one, work,
               &lwork, &info, 1, 1);
        err = info ? 1 : 0;
    }
    for (int i = 0; !err && i < n; i++)
        e[i] = (struct eigenvalue){ret_real[i], ret_imaginary[i],
                                   hypot(ret_real[i], ret_imaginary[i])};
    if (!err)
        qsort(e, (size_t)n, sizeof *e, compare);
    for (int i = 0; !err && i < n; i++) {
        ret_real[i] = e[i].real;
        ret_imaginary[i] = e[i].imaginary;
    }
    mem_free(work);
    mem_free(e);
    return err;
}

/* Rows and columns change places. */
static void transpose(double *a, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            double t = a[i * n + k];
            a[i * n + k] = a[k * n + i];
            a[k * n + i] = t;
        }
}

int lapack_solve(double *a, int n, double *b)
{
    int info = 0, one = 1, *pivot = MEM_NEW(int, (size_t)n);
    if (!pivot)
        return KVF_E_NOMEM;
    one_thread();
    transpose(a, n);
    dgesv_(&n, &one, a, &n, pivot, b, &n, &info);
    mem_free(pivot);
    return info ? 1 : 0;
}

int lapack_cholesky(double *a, int n)
{
    int info = 0;
    one_thread();
    dpotrf_("U", &n, a, &n, &info, 1); /* upper by columns is lower by rows */
    for (int i = 0; !info && i < n; i++)
        for (int k = i + 1; k < n; k++)
            a[i * n + k] = 0;
    return info ? 1 : 0;
}

/* lapack.c - loads LAPACK at run time and calls it (lapack.h). */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/lapack.h"
#include "base/mem.h"

/* Fortran's way to call: all by address, matrices by columns, lengths of strings after the
 * arguments. */
static struct {
    void (*dsyev)(const char *jobz, const char *uplo, const int *n, double *a, const int *lda,
                  double *w, double *work, const int *lwork, int *info, size_t len_jobz,
                  size_t len_uplo);
    void (*dgeev)(const char *jobvl, const char *jobvr, const int *n, double *a, const int *lda,
                  double *wr, double *wi, double *vl, const int *ldvl, double *vr, const int *ldvr,
                  double *work, const int *lwork, int *info, size_t len_jobvl, size_t len_jobvr);
    void (*dgesv)(const int *n, const int *nrhs, double *a, const int *lda, int *pivot, double *b,
                  const int *ldb, int *info);
    void (*dpotrf)(const char *uplo, const int *n, double *a, const int *lda, int *info,
                   size_t len_uplo);
    char why[200]; /* they are not there; empty: they are */
} lapack;

static bool find(void *library, const char *name, void *ret)
{
    void *p = dlsym(library, name);
    memcpy(ret, &p, sizeof p); /* POSIX: data and functions have pointers of one kind */
    return p != NULL;
}

static void load(void)
{
    void (*set_threads)(int n);
    void *library = dlopen("liblapack.so.3", RTLD_NOW | RTLD_LOCAL);
    if (!library || !find(library, "dsyev_", &lapack.dsyev)
        || !find(library, "dgeev_", &lapack.dgeev) || !find(library, "dgesv_", &lapack.dgesv)
        || !find(library, "dpotrf_", &lapack.dpotrf)) {
        const char *why = dlerror();
        snprintf(lapack.why, sizeof lapack.why, "%s", why ? why : "liblapack.so.3");
        return;
    }
    /* present if OpenBLAS replaces the reference library */
    if (find(library, "openblas_set_num_threads", &set_threads))
        set_threads(1);
}

int lapack_open(struct kvf_diag *d)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return lapack.why[0] ? kvf_fail(d, KVF_E_NOTFOUND,
                                    "LAPACK cannot be loaded (%s); install it "
                                    "(Debian: liblapack3)",
                                    lapack.why)
                         : KVF_OK;
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
    /* its columns are eigenvectors of rising values: rows to us */
    lapack.dsyev("V", "U", &n, a, &n, ret_value, work, &lwork, &info, 1, 1);
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
        /* of the transposed matrix, which has the same */
        lapack.dgeev("N", "N", &n, a, &n, ret_real, ret_imaginary, &none, &one, &none, &one, work,
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
    mem_free_all(work, e);
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
    transpose(a, n);
    lapack.dgesv(&n, &one, a, &n, pivot, b, &n, &info);
    mem_free(pivot);
    return info ? 1 : 0;
}

int lapack_cholesky(double *a, int n)
{
    int info = 0;
    lapack.dpotrf("U", &n, a, &n, &info, 1); /* upper by columns is lower by rows */
    for (int i = 0; !info && i < n; i++)
        for (int k = i + 1; k < n; k++)
            a[i * n + k] = 0;
    return info ? 1 : 0;
}

/* var1.c - vector autoregression of order 1 with its likelihood (var1.h). */
#include <math.h>
#include <string.h>

#include "analyzers/lapack.h"
#include "analyzers/var1.h"
#include "base/mem.h"

static const double SINGULAR = 1e-12; /* of the largest eigenvalue of the regressors */
static const double EXACT = 1e-12;    /* unexplained: the remainder is rounding */

/* Transitions [*k0, *k1) of a piece. */
static void range_of(const struct var1_piece *p, bool held_out, int64_t *k0, int64_t *k1)
{
    int64_t last = p->n > 0 ? p->n - 1 : 0, cut = p->train > 0 ? p->train - 1 : 0;
    *k0 = held_out ? cut : 0;
    *k1 = held_out ? last : cut;
}

/* e = y - A x - b */
static void residual(const struct var1 *v, const double *x, const double *y, double *e)
{
    for (int i = 0; i < v->m; i++) {
        double s = y[i] - v->b[i];
        for (int j = 0; j < v->m; j++)
            s -= v->a[i * v->m + j] * x[j];
        e[i] = s;
    }
}

/* Means of x_k and x_(k+1), and how many transitions there are. */
static int64_t means(const struct var1_piece *piece, int n_pieces, int m, bool held_out,
                     double *from, double *to)
{
    int64_t n = 0, k0, k1;
    memset(from, 0, (size_t)m * sizeof *from);
    memset(to, 0, (size_t)m * sizeof *to);
    for (int p = 0; p < n_pieces; p++) {
        range_of(&piece[p], held_out, &k0, &k1);
        for (int64_t k = k0; k < k1; k++)
            for (int i = 0; i < m; i++) {
                from[i] += piece[p].x[k * m + i];
                to[i] += piece[p].x[(k + 1) * m + i];
            }
        n += k1 - k0;
    }
    for (int i = 0; n && i < m; i++) {
        from[i] /= (double)n;
        to[i] /= (double)n;
    }
    return n;
}

/* Sxx = sum (x - mean)(x - mean)', Sxy = sum (x - mean)(y - mean)' over the training part. */
static void moments(const struct var1_piece *piece, int n_pieces, int m, const double *from,
                    const double *to, double *xx, double *xy)
{
    double x[VAR1_MOST], y[VAR1_MOST];
    int64_t k0, k1;
    memset(xx, 0, sizeof(double) * VAR1_MOST * VAR1_MOST);
    memset(xy, 0, sizeof(double) * VAR1_MOST * VAR1_MOST);
    for (int p = 0; p < n_pieces; p++) {
        range_of(&piece[p], false, &k0, &k1);
        for (int64_t k = k0; k < k1; k++) {
            for (int i = 0; i < m; i++) {
                x[i] = piece[p].x[k * m + i] - from[i];
                y[i] = piece[p].x[(k + 1) * m + i] - to[i];
            }
            for (int i = 0; i < m; i++)
                for (int j = 0; j < m; j++) {
                    xx[i * m + j] += x[i] * x[j];
                    xy[i * m + j] += x[i] * y[j];
                }
        }
    }
}

/* Row i of A solves Sxx a_i = (column i of Sxy).  1: the regressors do not span. */
static int regress(struct var1 *v, const double *xx, const double *xy)
{
    double copy[VAR1_MOST * VAR1_MOST], value[VAR1_MOST];
    int m = v->m;
    memcpy(copy, xx, sizeof copy);
    int err = lapack_symmetric(copy, m, value);
    if (!err && !(value[m - 1] > SINGULAR * value[0]))
        err = 1;
    for (int i = 0; !err && i < m; i++) {
        memcpy(copy, xx, sizeof copy);
        for (int j = 0; j < m; j++)
            v->a[i * m + j] = xy[j * m + i];
        err = lapack_solve(copy, m, v->a + i * m);
    }
    return err;
}

/* Share of the variance of the targets that is explained; *cov: sum of e e', may be NULL. */
static double explained(const struct var1_piece *piece, int n_pieces, const struct var1 *v,
                        bool held_out, double *cov)
{
    double from[VAR1_MOST], to[VAR1_MOST], e[VAR1_MOST], rest = 0, total = 0;
    int m = v->m;
    int64_t n = means(piece, n_pieces, m, held_out, from, to), k0, k1;
    for (int p = 0; p < n_pieces; p++) {
        range_of(&piece[p], held_out, &k0, &k1);
        for (int64_t k = k0; k < k1; k++) {
            const double *y = piece[p].x + (k + 1) * m;
            residual(v, y - m, y, e);
            for (int i = 0; i < m; i++) {
                rest += e[i] * e[i];
                total += (y[i] - to[i]) * (y[i] - to[i]);
                for (int j = 0; cov && j < m; j++)
                    cov[i * m + j] += e[i] * e[j];
            }
        }
    }
    return n > 1 && total > 0 ? 1 - rest / total : NAN;
}

/* mu = (I - A)^-1 b; S = A S A' + Q as one system of m^2 equations. */
static int stationary(struct var1 *v, const double *q)
{
    int m = v->m, m2 = m * m;
    double *big = MEM_NEW(double, (size_t)m2 *(size_t)m2), s[VAR1_MOST * VAR1_MOST];
    double left[VAR1_MOST * VAR1_MOST], mean[VAR1_MOST];
    if (!big)
        return KVF_E_NOMEM;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++)
            left[i * m + j] = (i == j) - v->a[i * m + j];
    memcpy(mean, v->b, sizeof mean);
    int err = lapack_solve(left, m, mean);
    if (!err)
        memcpy(v->mean, mean, sizeof mean);
    for (int r = 0; r < m2; r++) /* row i m + j, column k m + l: A_ik A_jl */
        for (int c = 0; c < m2; c++)
            big[(size_t)r * (size_t)m2 + (size_t)c] = (r == c)
                                                      - v->a[r / m * m + c / m]
                                                            * v->a[r % m * m + c % m];
    memcpy(s, q, sizeof s);
    if (err >= 0 && v->radius < 1)
        err = lapack_solve(big, m2, s);
    for (int i = 0; !err && v->radius < 1 && i < m; i++)
        v->sigma[i] = sqrt(fmax(s[i * m + i], 0));
    mem_free(big);
    return err < 0 ? err : KVF_OK;
}

static void forget(struct var1 *v, int m)
{
    *v = (struct var1){.m = m, .radius = NAN, .r2_train = NAN, .r2_test = NAN};
    for (int i = 0; i < VAR1_MOST; i++)
        v->b[i] = v->real[i] = v->imaginary[i] = v->mean[i] = v->sigma[i] = NAN;
}

int var1_fit(const struct var1_piece *piece, int n_pieces, int m, struct var1 *ret)
{
    double from[VAR1_MOST], to[VAR1_MOST], xx[VAR1_MOST * VAR1_MOST], xy[VAR1_MOST * VAR1_MOST];
    double q[VAR1_MOST * VAR1_MOST] = {0}, copy[VAR1_MOST * VAR1_MOST];
    struct var1 *v = ret;
    forget(v, m);
    v->n_test = means(piece, n_pieces, m, true, from, to);
    v->n_train = means(piece, n_pieces, m, false, from, to);
    if (m < 1 || v->n_train < m + 2)
        return KVF_OK;
    moments(piece, n_pieces, m, from, to, xx, xy);
    int err = regress(v, xx, xy);
    if (err)
        return err < 0 ? err : KVF_OK;
    for (int i = 0; i < m; i++) {
        v->b[i] = to[i];
        for (int j = 0; j < m; j++)
            v->b[i] -= v->a[i * m + j] * from[j];
    }
    memcpy(copy, v->a, sizeof copy);
    err = lapack_eigenvalues(copy, m, v->real, v->imaginary);
    if (err) {
        forget(v, m);
        return err < 0 ? err : KVF_OK;
    }
    v->fitted = true;
    v->radius = hypot(v->real[0], v->imaginary[0]);
    v->r2_train = explained(piece, n_pieces, v, false, q);
    v->r2_test = explained(piece, n_pieces, v, true, NULL);
    for (int i = 0; i < m * m; i++)
        q[i] /= (double)(v->n_train - m - 1);
    memcpy(v->factor, q, sizeof q);
    v->white = v->r2_train < 1 - EXACT && v->n_train > 2 * m /* as many as residuals span */
               && lapack_cholesky(v->factor, m) == 0;
    return stationary(v, q);
}

void var1_innovations(const struct var1_piece *piece, int n_pieces, const struct var1 *v,
                      bool held_out, void (*visit)(void *ctx, double w), void *ctx)
{
    double e[VAR1_MOST];
    int m = v->m;
    int64_t k0, k1;
    for (int p = 0; v->fitted && v->white && p < n_pieces; p++) {
        range_of(&piece[p], held_out, &k0, &k1);
        for (int64_t k = k0; k < k1; k++) {
            const double *x = piece[p].x + k * m;
            residual(v, x, x + m, e);
            for (int i = 0; i < m; i++) { /* forward substitution */
                for (int j = 0; j < i; j++)
                    e[i] -= v->factor[i * m + j] * e[j];
                e[i] /= v->factor[i * m + i];
                visit(ctx, e[i]);
            }
        }
    }
}

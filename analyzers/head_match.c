/* head_match.c - assignment of heads, the learned distance, and the proof (head_match.h). */
#include <math.h>
#include <string.h>

#include "analyzers/assign.h"
#include "analyzers/head_match.h"
#include "analyzers/lapack.h"
#include "base/mem.h"
#include "base/ranks.h"
#include "base/stats.h"

enum { ROUNDS = 4, PARTS = 5 };
static const double SHRINK = .5;  /* share of the diagonal in W */
static const double RIDGE = 1e-3; /* of the mean variance, on the diagonal */
static const double FORBIDDEN = 1e9;

int best_partners(const double *cost, int rows, int columns, int *partner)
{
    size_t n = (size_t)(rows < columns ? rows : columns);
    size_t m = (size_t)(rows < columns ? columns : rows);
    double *c = mem_alloc(n * m, sizeof *c);
    size_t *column = MEM_NEW(size_t, n);
    int err = c && column ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < (size_t)rows; i++)
        for (size_t j = 0; j < (size_t)columns; j++) {
            double far = cost[i * (size_t)columns + j];
            c[rows <= columns ? i * m + j : j * m + i] = isfinite(far) ? far : FORBIDDEN;
        }
    if (!err)
        err = assign_least(c, n, m, column, NULL, NULL);
    for (int i = 0; !err && i < rows; i++)
        partner[i] = rows <= columns ? (int)column[i] : -1;
    for (size_t k = 0; !err && rows > columns && k < n; k++)
        partner[column[k]] = (int)k;
    for (size_t i = 0; !err && i < (size_t)rows; i++)
        if (partner[i] >= 0 && !isfinite(cost[i * (size_t)columns + (size_t)partner[i]]))
            partner[i] = -1;
    mem_free_all(c, column);
    return err;
}

int rank_scores(double *x, int n, int n_f)
{
    double *v = MEM_NEW(double, (size_t)n);
    int err = v ? KVF_OK : KVF_E_NOMEM;
    for (int f = 0; !err && f < n_f; f++) {
        for (int h = 0; h < n; h++)
            v[h] = x[(size_t)h * (size_t)n_f + (size_t)f];
        err = ranks_average(v, (size_t)n, v);
        for (int h = 0; !err && h < n; h++) {
            double u = (v[h] - .5) / n;
            x[(size_t)h * (size_t)n_f + (size_t)f] = log(u / (1 - u));
        }
    }
    mem_free(v);
    return err;
}

/* ---- the learned distance */

struct problem {
    const double *a, *b, *beside;
    int n_a, n_b, n_f;
    double *D;        /* [n_a][n_b] distances */
    int *partner;     /* [n_a] */
    double *u, *v;    /* a and b on the learned scale, [n_a][n_f] and [n_b][n_f] */
    double *W, *mean; /* [n_f][n_f], [n_f] */
};

static double *row_of(const double *x, int row, int n_f)
{
    return (double *)x + (size_t)row * (size_t)n_f;
}

/* The least distance of either head of a pair to any other head; INFINITY: there is no such
 * value. */
static double rival_of(const double *D, int n_a, int n_b, int i, int j)
{
    double least = INFINITY;
    for (int k = 0; k < n_b; k++)
        if (k != j)
            least = fmin(least, D[(size_t)i * (size_t)n_b + (size_t)k]);
    for (int k = 0; k < n_a; k++)
        if (k != i)
            least = fmin(least, D[(size_t)k * (size_t)n_b + (size_t)j]);
    return least;
}

static double here(const struct problem *x, int i)
{
    return x->D[(size_t)i * (size_t)x->n_b + (size_t)x->partner[i]];
}

/* Distances of the rows i with i % PARTS == part (all for part < 0), between u and v. */
static void distances(struct problem *x, const double *u, const double *v, int part)
{
    for (int i = 0; i < x->n_a; i++) {
        if (part >= 0 && i % PARTS != part)
            continue;
        const double *p = row_of(u, i, x->n_f);
        for (int j = 0; j < x->n_b; j++) {
            const double *q = row_of(v, j, x->n_f);
            double squares = 0;
            for (int f = 0; f < x->n_f; f++)
                squares += (p[f] - q[f]) * (p[f] - q[f]);
            size_t k = (size_t)i * (size_t)x->n_b + (size_t)j;
            x->D[k] = sqrt(squares / x->n_f + (x->beside ? x->beside[k] : 0));
        }
    }
}

/* Whether the pair of row i teaches: it is nearer than any rival. */
static bool teaches(const struct problem *x, int i)
{
    return x->partner[i] >= 0 && here(x, i) < rival_of(x->D, x->n_a, x->n_b, i, x->partner[i]);
}

/* The covariance of the differences of the pairs that teach and are of no such part, to x->W. */
static void covariance(struct problem *x, const unsigned char *teacher, int part)
{
    int n = 0, F = x->n_f;
    memset(x->W, 0, (size_t)F * (size_t)F * sizeof *x->W);
    memset(x->mean, 0, (size_t)F * sizeof *x->mean);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->n_a; i++) {
            if (!teacher[i] || i % PARTS == part)
                continue;
            const double *p = row_of(x->a, i, F), *q = row_of(x->b, x->partner[i], F);
            n += pass == 0;
            for (int f = 0; f < F && pass == 0; f++)
                x->mean[f] += p[f] - q[f];
            for (int f = 0; f < F && pass == 1; f++) {
                double e = p[f] - q[f] - x->mean[f] / n, *to = row_of(x->W, f, F);
                for (int g = 0; g <= f; g++)
                    to[g] += e * (p[g] - q[g] - x->mean[g] / n) / n;
            }
        }
}

/* W shrunk to its diagonal, and its factor C: W = C C'. */
static int factor(struct problem *x)
{
    int F = x->n_f;
    double trace = 0;
    for (int f = 0; f < F; f++)
        trace += row_of(x->W, f, F)[f];
    for (int f = 0; f < F; f++) {
        row_of(x->W, f, F)[f] += RIDGE * trace / F;
        for (int g = 0; g < f; g++) {
            row_of(x->W, f, F)[g] *= 1 - SHRINK;
            row_of(x->W, g, F)[f] = row_of(x->W, f, F)[g];
        }
    }
    return trace > 0 ? lapack_cholesky(x->W, F) : 1;
}

/* y = C^-1 x for n rows. */
static void whiten(const struct problem *x, const double *from, int n, double *to)
{
    int F = x->n_f;
    for (int h = 0; h < n; h++)
        for (int f = 0; f < F; f++) {
            const double *c = row_of(x->W, f, F), *y = row_of(to, h, F);
            double s = row_of(from, h, F)[f];
            for (int g = 0; g < f; g++)
                s -= c[g] * y[g];
            row_of(to, h, F)[f] = s / c[f];
        }
}

/* Replaces the distances of a part by learned ones. */
static int learn(struct problem *x, const unsigned char *teacher, int part)
{
    covariance(x, teacher, part);
    int err = factor(x);
    if (err)
        return err < 0 ? err : KVF_OK; /* not positive: no distance is learned */
    whiten(x, x->a, x->n_a, x->u);
    whiten(x, x->b, x->n_b, x->v);
    distances(x, x->u, x->v, part);
    return KVF_OK;
}

/* Marks the pairs that teach.  False if too few remain without the pairs of a part. */
static bool find_teachers(const struct problem *x, unsigned char *teacher)
{
    int n = 0, of_part[PARTS] = {0}, most = 0;
    for (int i = 0; i < x->n_a; i++) {
        teacher[i] = teaches(x, i);
        n += teacher[i];
        of_part[i % PARTS] += teacher[i];
    }
    for (int part = 0; part < PARTS; part++)
        most = of_part[part] > most ? of_part[part] : most;
    return n - most >= HEAD_MATCH_LEARN;
}

static int assign_rounds(struct problem *x)
{
    unsigned char *teacher = MEM_NEW(unsigned char, (size_t)x->n_a);
    int err = teacher ? KVF_OK : KVF_E_NOMEM;
    for (int round = 1; !err && round <= ROUNDS; round++) {
        err = best_partners(x->D, x->n_a, x->n_b, x->partner);
        if (err)
            break;
        if (!find_teachers(x, teacher)) { /* and drop the distance learned with the pair itself */
            distances(x, x->a, x->b, -1);
            break;
        }
        for (int part = round < ROUNDS ? -1 : 0; !err && part < (round < ROUNDS ? 0 : PARTS);
             part++)
            err = learn(x, teacher, part);
    }
    if (!err)
        err = best_partners(x->D, x->n_a, x->n_b, x->partner);
    mem_free(teacher);
    return err;
}

/* ---- the proof */

static double score_of(const double *D, int n_a, int n_b, int i, int j)
{
    double far = D[(size_t)i * (size_t)n_b + (size_t)j], rival = rival_of(D, n_a, n_b, i, j);
    return isfinite(rival) && rival > 0 ? far * far / rival : NAN;
}

/* Share of the pairs of either head with another that are as near, or nearer. */
static double share_nearer(const double *D, int n_a, int n_b, int i, int j)
{
    double far = D[(size_t)i * (size_t)n_b + (size_t)j];
    int near = 0, n = n_a + n_b - 2;
    for (int k = 0; k < n_b; k++)
        near += k != j && D[(size_t)i * (size_t)n_b + (size_t)k] <= far;
    for (int k = 0; k < n_a; k++)
        near += k != i && D[(size_t)k * (size_t)n_b + (size_t)j] <= far;
    return n ? (double)near / n : NAN;
}

/* Scores of the best assignment without the pairs of x->partner, to null; returns how many. */
static int wrong_scores(struct problem *x, int *second, double *null)
{
    int n = 0;
    for (int i = 0; i < x->n_a; i++)
        if (x->partner[i] >= 0)
            x->D[(size_t)i * (size_t)x->n_b + (size_t)x->partner[i]] = INFINITY;
    int err = best_partners(x->D, x->n_a, x->n_b, second);
    for (int i = 0; !err && i < x->n_a; i++) {
        double s = second[i] < 0 ? NAN : score_of(x->D, x->n_a, x->n_b, i, second[i]);
        if (!isnan(s))
            null[n++] = s;
    }
    return err ? err : n;
}

/* Finds how near the best wrong pairs are: of the assignment that gives no head the partner of its
 * match. It has the costs of the matches, with beside. */
static int find_nearer_wrong(const struct problem *x, struct head_match *ret, int n)
{
    size_t n_b = (size_t)x->n_b, cells = (size_t)x->n_a * n_b;
    double *cost = MEM_NEW(double, cells);
    int *second = MEM_NEW(int, (size_t)x->n_a);
    int err = cost && second ? KVF_OK : KVF_E_NOMEM;
    for (size_t k = 0; !err && k < cells; k++)
        cost[k] = sqrt(x->D[k] * x->D[k] + (x->beside ? x->beside[k] : 0));
    for (int k = 0; !err && k < n; k++)
        cost[(size_t)ret[k].a * n_b + (size_t)ret[k].b] = INFINITY;
    if (!err)
        err = best_partners(cost, x->n_a, x->n_b, second);
    for (int k = 0; !err && k < n; k++) {
        int a = ret[k].a, b = second[a];
        ret[k].nearer_wrong = b < 0 ? NAN : share_nearer(x->D, x->n_a, x->n_b, a, b);
    }
    mem_free_all(cost, second);
    return err;
}

static int judge(struct problem *x, struct head_match *ret, int n)
{
    double *null = MEM_NEW(double, (size_t)x->n_a), *p = MEM_NEW(double, (size_t)n);
    double *score = MEM_NEW(double, (size_t)n);
    int *second = MEM_NEW(int, (size_t)x->n_a);
    int err = null && p && score && second ? KVF_OK : KVF_E_NOMEM, n_null = 0;
    for (int k = 0; !err && k < n; k++)
        score[k] = score_of(x->D, x->n_a, x->n_b, ret[k].a, ret[k].b);
    if (!err)
        n_null = wrong_scores(x, second, null);
    err = n_null < 0 ? n_null : err;
    for (int k = 0; !err && k < n; k++) {
        int below = 0;
        for (int i = 0; i < n_null; i++)
            below += null[i] <= score[k];
        p[k] = n_null && !isnan(score[k]) ? (double)(1 + below) / (1 + n_null) : NAN;
        ret[k].p = p[k];
    }
    if (!err)
        err = stats_fdr(p, (size_t)n, p);
    for (int k = 0; !err && k < n; k++)
        ret[k].q = p[k];
    mem_free_all(null, p, score, second);
    return err;
}

static int solve(struct problem *x, double *distance, struct head_match *ret, int *ret_n)
{
    int n = 0;
    distances(x, x->a, x->b, -1);
    int err = assign_rounds(x);
    for (size_t k = 0; x->beside && k < (size_t)x->n_a * (size_t)x->n_b; k++)
        x->D[k] = sqrt(fmax(x->D[k] * x->D[k] - x->beside[k], 0));
    if (!err) /* before the pairs of the matches are forbidden */
        memcpy(distance, x->D, (size_t)x->n_a * (size_t)x->n_b * sizeof *distance);
    for (int i = 0; !err && i < x->n_a; i++) {
        int j = x->partner[i];
        if (j >= 0)
            ret[n++] = (struct head_match){.a = i,
                                           .b = j,
                                           .distance = here(x, i),
                                           .rival = rival_of(x->D, x->n_a, x->n_b, i, j),
                                           .nearer = share_nearer(x->D, x->n_a, x->n_b, i, j)};
    }
    if (!err)
        err = find_nearer_wrong(x, ret, n);
    if (!err)
        err = judge(x, ret, n);
    if (!err)
        *ret_n = n;
    return err;
}

int head_match(const struct head_pair *p, double *distance, struct head_match *ret, int *ret_n,
               struct kvf_diag *d)
{
    size_t n_a = (size_t)p->n_a, n_b = (size_t)p->n_b, F = (size_t)p->n_f;
    struct problem x = {
        .a = p->a, .b = p->b, .beside = p->beside, .n_a = p->n_a, .n_b = p->n_b, .n_f = p->n_f};
    if (n_a == 0 || n_b == 0 || F == 0) {
        *ret_n = 0;
        return KVF_OK;
    }
    int err = lapack_open(d);
    if (err)
        return err;
    x.D = mem_alloc(n_a * n_b, sizeof *x.D);
    x.partner = MEM_NEW(int, n_a);
    x.u = mem_alloc(n_a * F, sizeof *x.u);
    x.v = mem_alloc(n_b * F, sizeof *x.v);
    x.W = mem_alloc(F * F, sizeof *x.W);
    x.mean = MEM_NEW(double, F);
    err = x.D && x.partner && x.u && x.v && x.W && x.mean ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        err = solve(&x, distance, ret, ret_n);
    void *const all[] = {x.D, x.partner, x.u, x.v, x.W, x.mean};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        mem_free(all[k]);
    return err;
}

/* medoids.c - k-medoids clustering and silhouettes (medoids.h). */
#include <math.h>
#include <stdint.h>

#include "analyzers/medoids.h"
#include "base/mem.h"

struct pam {
    const double *D;
    size_t n, k;
    size_t *medoid, *near;  /* near: [n] place of the nearest medoid */
    double *first, *second; /* [n] distances to the nearest and the next */
    double *loss;           /* [k] of a candidate's swap with each medoid */
};

static void assign(struct pam *p)
{
    for (size_t i = 0; i < p->n; i++) {
        p->first[i] = p->second[i] = INFINITY;
        for (size_t m = 0; m < p->k; m++) {
            double far = p->D[i * p->n + p->medoid[m]];
            if (far < p->first[i]) {
                p->second[i] = p->first[i];
                p->first[i] = far;
                p->near[i] = m;
            } else if (far < p->second[i]) {
                p->second[i] = far;
            }
        }
        for (size_t m = 0; m < p->k; m++) /* of equal points each medoid is its own */
            if (p->medoid[m] == i)
                p->near[i] = m;
    }
}

static void build(struct pam *p)
{
    for (size_t i = 0; i < p->n; i++)
        p->first[i] = INFINITY;
    for (size_t m = 0; m < p->k; m++) {
        size_t best = 0;
        double least = INFINITY;
        for (size_t c = 0; c < p->n; c++) {
            double sum = 0;
            int taken = 0;
            for (size_t j = 0; j < m; j++)
                taken |= p->medoid[j] == c;
            for (size_t i = 0; !taken && i < p->n; i++)
                sum += fmin(p->first[i], p->D[i * p->n + c]);
            if (!taken && sum < least) {
                least = sum;
                best = c;
            }
        }
        p->medoid[m] = best;
        for (size_t i = 0; i < p->n; i++)
            p->first[i] = fmin(p->first[i], p->D[i * p->n + best]);
    }
}

/* Computes into loss the change of the sum if point c replaces each medoid. */
static void try_point(struct pam *p, size_t c)
{
    double all = 0;
    for (size_t m = 0; m < p->k; m++)
        p->loss[m] = 0;
    for (size_t i = 0; i < p->n; i++) {
        double far = p->D[i * p->n + c];
        if (far < p->first[i])
            all += far - p->first[i];
        else
            p->loss[p->near[i]] += fmin(far, p->second[i]) - p->first[i];
    }
    for (size_t m = 0; m < p->k; m++)
        p->loss[m] += all;
}

/* 1: a swap was made. */
static int swap(struct pam *p)
{
    double least = 0, total = 0;
    size_t medoid = 0, point = p->n;
    for (size_t i = 0; i < p->n; i++)
        total += p->first[i];
    for (size_t c = 0; c < p->n; c++) {
        int taken = 0;
        for (size_t m = 0; m < p->k; m++)
            taken |= p->medoid[m] == c;
        if (taken)
            continue;
        try_point(p, c);
        for (size_t m = 0; m < p->k; m++)
            if (p->loss[m] < least) {
                least = p->loss[m];
                medoid = m;
                point = c;
            }
    }
    if (point == p->n || least > -1e-12 * total) /* rounding is no gain */
        return 0;
    p->medoid[medoid] = point;
    return 1;
}

static void sort(size_t *v, size_t k)
{
    for (size_t i = 1; i < k; i++)
        for (size_t j = i; j > 0 && v[j - 1] > v[j]; j--) {
            size_t x = v[j];
            v[j] = v[j - 1];
            v[j - 1] = x;
        }
}

int medoids_find(const double *D, size_t n, size_t k, size_t *medoid, size_t *cluster)
{
    struct pam p = {
        D, n, k, medoid, cluster, MEM_NEW(double, n), MEM_NEW(double, n), MEM_NEW(double, k)};
    int err = p.first && p.second && p.loss ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        build(&p);
        assign(&p);
        while (swap(&p)) /* the sum falls each time: it ends */
            assign(&p);
        sort(medoid, k);
        assign(&p);
    }
    mem_free_all(p.first, p.second, p.loss);
    return err;
}

int medoids_silhouette(const double *D, size_t n, size_t k, const size_t *cluster, double *s,
                       size_t *other)
{
    double *sum = MEM_NEW(double, k);
    size_t *size = MEM_NEW(size_t, k);
    int err = sum && size ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < n; i++)
        size[cluster[i]]++;
    for (size_t i = 0; !err && i < n; i++) {
        size_t own = cluster[i];
        double b = INFINITY;
        for (size_t m = 0; m < k; m++)
            sum[m] = 0;
        for (size_t j = 0; j < n; j++)
            sum[cluster[j]] += D[i * n + j];
        other[i] = own;
        for (size_t m = 0; m < k; m++)
            if (m != own && size[m] && sum[m] / (double)size[m] < b) {
                b = sum[m] / (double)size[m];
                other[i] = m;
            }
        double a = size[own] > 1 ? sum[own] / (double)(size[own] - 1) : 0;
        s[i] = size[own] < 2 || fmax(a, b) == 0 ? 0 : (b - a) / fmax(a, b);
        if (k < 2)
            s[i] = NAN;
    }
    mem_free_all(sum, size);
    return err;
}

static double pairs(int64_t n)
{
    return (double)n * (double)(n - 1) / 2;
}

int medoids_adjusted_rand(const size_t *a, const size_t *b, size_t n, size_t k, double *ret)
{
    int64_t *both = mem_alloc(k * (k + 2), sizeof(int64_t)), *in_a = both + k * k, *in_b = in_a + k;
    double same = 0, of_a = 0, of_b = 0;
    if (!both)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        both[a[i] * k + b[i]]++;
        in_a[a[i]]++;
        in_b[b[i]]++;
    }
    for (size_t i = 0; i < k * k; i++)
        same += pairs(both[i]);
    for (size_t i = 0; i < k; i++) {
        of_a += pairs(in_a[i]);
        of_b += pairs(in_b[i]);
    }
    double chance = n > 1 ? of_a * of_b / pairs((int64_t)n) : NAN, most = (of_a + of_b) / 2;
    *ret = most > chance ? (same - chance) / (most - chance) : NAN;
    mem_free(both);
    return KVF_OK;
}

#include <math.h>
#include <stdlib.h>

#include "base/stats.h"

void sum_add(struct sum *a, double x)
{
    double t = a->s + x;
    a->c += fabs(a->s) >= fabs(x) ? (a->s - t) + x : (x - t) + a->s;
    a->s = t;
}

double sum_get(const struct sum *a)
{
    return a->s + a->c;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_quantile(double *v, size_t n, double q)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(v[i]))
            return NAN;
    qsort(v, n, sizeof *v, by_value);
    double at = q * (double)(n - 1);
    size_t lo = (size_t)at, hi = lo + 1 < n ? lo + 1 : lo;
    return v[lo] + (at - (double)lo) * (v[hi] - v[lo]);
}

double stats_mean(const double *v, size_t n)
{
    struct sum s = {0};
    for (size_t i = 0; i < n; i++)
        sum_add(&s, v[i]);
    return n ? sum_get(&s) / (double)n : NAN;
}

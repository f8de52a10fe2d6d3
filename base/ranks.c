/* ranks.c - ranks with ties and rank correlation (ranks.h). */
#include "base/ranks.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/stats.h"

static double lgam(double x)
{
    int sign; /* lgamma() would write it to a global variable */
    return lgamma_r(x, &sign);
}

struct item {
    double v;
    size_t at;
};

static int by_value(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->v != y->v ? (x->v > y->v) - (x->v < y->v) : (x->at > y->at) - (x->at < y->at);
}

static struct item *sorted(const double *v, size_t n)
{
    struct item *s = MEM_NEW(struct item, n);
    for (size_t i = 0; s && i < n; i++)
        s[i] = (struct item){v[i], i};
    if (s)
        qsort(s, n, sizeof *s, by_value);
    return s;
}

int ranks_average(const double *v, size_t n, double *rank)
{
    struct item *s = sorted(v, n);
    if (!s)
        return KVF_E_NOMEM;
    for (size_t a = 0, b; a < n; a = b) {
        for (b = a + 1; b < n && s[b].v == s[a].v; b++)
            ;
        for (size_t k = a; k < b; k++) /* mean of a + 1 .. b */
            rank[s[k].at] = (double)(a + b + 1) / 2;
    }
    mem_free(s);
    return KVF_OK;
}

int ranks_top(const double *v, size_t n, size_t k, unsigned char *mark)
{
    struct item *s = sorted(v, n);
    if (!s)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        mark[s[i].at] = i >= n - k;
    mem_free(s);
    return KVF_OK;
}

static bool is_constant(const double *v, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (v[i] != v[0])
            return false;
    return true;
}

double ranks_correlation(const double *x, const double *y, size_t n)
{
    struct sum xx = {0}, yy = {0}, xy = {0};
    double mx = stats_mean(x, n), my = stats_mean(y, n);
    if (n < 2 || is_constant(x, n) || is_constant(y, n))
        return NAN;
    for (size_t i = 0; i < n; i++) {
        sum_add(&xx, (x[i] - mx) * (x[i] - mx));
        sum_add(&yy, (y[i] - my) * (y[i] - my));
        sum_add(&xy, (x[i] - mx) * (y[i] - my));
    }
    return sum_get(&xy) / sqrt(sum_get(&xx) * sum_get(&yy)); /* exactly 1 for equal sides */
}

double ranks_chance_overlap(size_t n, size_t k)
{
    struct sum mean = {0};
    double all = lgam((double)n + 1) - lgam((double)k + 1) - lgam((double)(n - k) + 1);
    if (k == 0)
        return NAN;
    for (size_t both = 2 * k > n ? 2 * k - n : 0; both <= k; both++) {
        double a = (double)both, rest = (double)(k - both), out = (double)(n - 2 * k + both);
        /* ln of C(k, both) C(n - k, k - both) / C(n, k) */
        double p = lgam((double)k + 1) - lgam(a + 1) - lgam(rest + 1) + lgam((double)(n - k) + 1)
                   - lgam(rest + 1) - lgam(out + 1) - all;
        sum_add(&mean, exp(p) * a / (a + 2 * rest));
    }
    return sum_get(&mean);
}

#include "studies/predict_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const char *const predict_reduce_names[N_REDUCES] = {"none", "mean", "max"};

static struct candidate *find(const struct predict_values *x, const char *name,
                              enum predict_reduce reduce)
{
    for (int k = 0; k < x->n; k++)
        if (x->c[k].reduce == reduce && strcmp(x->c[k].name, name) == 0)
            return &x->c[k];
    return NULL;
}

static bool has(const struct predict_values *x, const struct candidate *c, int pair)
{
    const double *v = c ? c->v + (int64_t)pair * x->units : NULL;
    for (int64_t u = 0; v && u < x->units; u++)
        if (!isnan(v[u]))
            return true;
    return false;
}

bool candidate_known(const struct predict_values *x, int pair, const char *name)
{
    for (int reduce = 0; reduce < N_REDUCES; reduce++)
        if (has(x, find(x, name, (enum predict_reduce)reduce), pair))
            return true;
    return false;
}

double *candidate_of(struct predict_values *x, int pair, const char *name,
                     enum predict_reduce reduce)
{
    struct candidate *c = find(x, name, reduce);
    size_t n = (size_t)x->args->n_pairs * (size_t)x->units;
    if (!c && x->n < MOST_CANDIDATES) {
        c = &x->c[x->n];
        snprintf(c->name, sizeof c->name, "%s", name);
        c->reduce = reduce;
        c->v = MEM_NEW(double, n);
        x->n += c->v != NULL;
        for (size_t u = 0; c->v && u < n; u++)
            c->v[u] = NAN;
    }
    return c && c->v ? c->v + (int64_t)pair * x->units : NULL;
}

void predict_values_free(struct predict_values *x)
{
    for (int k = 0; x->c && k < x->n; k++)
        mem_free(x->c[k].v);
    mem_free(x->c);
    mem_free(x->effect);
    mem_free(x->chosen);
    *x = (struct predict_values){0};
}

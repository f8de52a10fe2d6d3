/* shares.c - shares of the budget that several allocations deal out. */
#include "engine/method/shares.h"

#include <math.h>

void shares_uniform(const struct method_state *m, const struct cache *c, int32_t recent_from,
                    double *scratch, int *ret_share)
{
    (void)c, (void)recent_from, (void)scratch;
    for (int l = 0; l < method_shape_of(m)->n_layers; l++)
        ret_share[l] = method_params_of(m)->budget;
}

int shares_protected(const struct method_params *p)
{
    return p->sinks + (p->recent > 1 ? p->recent : 1); /* a newcomer needs a place */
}

/* Heads of a layer that the row owns. */
static int owned_heads(const struct method_state *m, int l)
{
    int n = 0;
    for (int h = 0; h < method_shape_of(m)->n_kv_heads; h++)
        n += method_owns(m, l, h);
    return n;
}

/* Whether all layers that the row has a head in have as many. */
static bool equal_layers(const struct method_state *m)
{
    int some = 0;
    for (int l = 0; l < method_shape_of(m)->n_layers; l++) {
        int n = owned_heads(m, l);
        if (n && some && n != some)
            return false;
        some = n ? n : some;
    }
    return true;
}

/* How often a layer's share counts. */
static int counted(const struct method_state *m, int l, bool equal)
{
    int n = owned_heads(m, l);
    return equal ? n > 0 : n;
}

void shares_by_weight(const struct method_state *m, double *x, int *ret_share)
{
    const struct method_params *p = method_params_of(m);
    int base = shares_protected(p), free = p->budget - base;
    int L = method_shape_of(m)->n_layers, n = 0;
    bool equal = equal_layers(m);
    double sum = 0;
    for (int l = 0; l < L; l++) {
        sum += x[l] * counted(m, l, equal);
        n += counted(m, l, equal);
    }
    int64_t left = (int64_t)n * free;
    for (int l = 0; l < L; l++) {
        double even = counted(m, l, equal) > 0 ? free : 0;
        double want = even > 0 && sum > 0 ? x[l] / sum * n * free : even;
        /* what is a whole number but for rounding counts as one */
        double whole = floor(want + 1e-9 * (n * (double)free + 1));
        ret_share[l] = base + (int)whole;
        left -= (int64_t)whole * counted(m, l, equal);
        x[l] = want - whole;
    }
    while (left > 0) {
        int best = -1;
        for (int l = 0; l < L; l++) /* not twice, and as long as it fits */
            if (counted(m, l, equal) > 0 && counted(m, l, equal) <= left && x[l] > -1
                && (best < 0 || x[l] > x[best] + 1e-9))
                best = l;
        if (best < 0)
            return;
        ret_share[best]++;
        left -= counted(m, best, equal);
        x[best] -= 2;
    }
}

void shares_pyramid(const struct method_state *m, const struct cache *c, int32_t recent_from,
                    double *x, int *ret_share)
{
    const struct method_params *p = method_params_of(m);
    int L = method_shape_of(m)->n_layers, u = p->budget - shares_protected(p), n = 0, at = 0;
    double least = u / p->beta, most = 2 * u - least;
    (void)c, (void)recent_from;
    for (int l = 0; l < L; l++)
        n += owned_heads(m, l) > 0;
    for (int l = 0; l < L; l++) {
        x[l] = n > 1 ? most - (most - least) * at / (n - 1) : u;
        at += owned_heads(m, l) > 0;
    }
    shares_by_weight(m, x, ret_share);
}

/* shares.c - divides the budget among layers, for several allocations. */
#include "engine/method/shares.h"

#include <math.h>

int shares_protected(const struct method_params *p)
{
    int more = p->n_protected > 0 ? p->n_protected : 0;
    return more + p->sinks + (p->recent > 1 ? p->recent : 1); /* a newcomer needs a place */
}

/* Heads of a layer that the row owns. */
static int owned_heads(const struct method_state *m, int l)
{
    int n = 0;
    for (int h = 0; h < method_shape_of(m)->n_kv_heads; h++)
        n += method_owns(m, l, h);
    return n;
}

/* Returns true if all layers in which the preset owns a head have equally many. */
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

/* Returns how many unprotected entries a head of layer l can have after `reach` tokens, limited by
 * the tokens and by the layer's window. */
static int room(const struct method_state *m, int l, int32_t reach)
{
    const struct model_config *model = method_inputs_of(m)->model;
    int window = model ? model_window(model, l) : 0;
    int most = window && window < reach ? window : reach;
    most -= shares_protected(method_params_of(m));
    return most > 0 ? most : 0;
}

/* The places that layers share. */
struct sum {
    bool equal;
    int n;          /* heads, or layers of equally many heads */
    int most;       /* largest room of a layer */
    int64_t places; /* what these heads would fill with the budget each */
};

static struct sum sum_places(const struct method_state *m, int32_t reach)
{
    const struct method_params *p = method_params_of(m);
    struct sum s = {.equal = equal_layers(m)};
    int even = method_budget_at(p, reach) - shares_protected(p);
    for (int l = 0; l < method_shape_of(m)->n_layers; l++) {
        int n = counted(m, l, s.equal), fits = n ? room(m, l, reach) : 0;
        s.n += n;
        s.most = fits > s.most ? fits : s.most;
        s.places += (int64_t)n * (fits < even ? fits : even);
    }
    return s;
}

/* Parts in proportion to the weights. */
static void divide(const struct method_state *m, const struct sum *s, const double *weight,
                   double *part)
{
    int L = method_shape_of(m)->n_layers;
    double sum = 0;
    for (int l = 0; l < L; l++)
        sum += weight[l] * counted(m, l, s->equal);
    for (int l = 0; l < L; l++) {
        double even = (double)s->places / s->n;
        part[l] = sum > 0 ? weight[l] / sum * (double)s->places : even;
    }
}

/* Parts above the room of their layer are cut to it, and all others rise by one number, so that
 * the sum stays.  full: scratch [L]. */
static void level(const struct method_state *m, const struct sum *s, int32_t reach, double *part,
                  int *full)
{
    int L = method_shape_of(m)->n_layers;
    double up = 0;
    bool some = true;
    for (int l = 0; l < L; l++)
        full[l] = 0;
    while (some) {
        double left = (double)s->places;
        int open = 0;
        some = false;
        for (int l = 0; l < L; l++)
            if (!full[l] && counted(m, l, s->equal) && part[l] + up > room(m, l, reach) + 1e-9)
                full[l] = some = true;
        for (int l = 0; l < L; l++) {
            int n = counted(m, l, s->equal);
            left -= n * (full[l] ? room(m, l, reach) : part[l]);
            open += full[l] ? 0 : n;
        }
        up = some && open ? left / open : up;
    }
    for (int l = 0; l < L; l++)
        part[l] = full[l] ? room(m, l, reach) : part[l] + up;
}

void shares_deal(const struct method_state *m, int32_t reach, const double *weight, double *x,
                 int *ret_share)
{
    int base = shares_protected(method_params_of(m)), L = method_shape_of(m)->n_layers;
    struct sum s = sum_places(m, reach);
    int64_t left = s.places;
    divide(m, &s, weight, x);
    level(m, &s, reach, x, ret_share);
    for (int l = 0; l < L; l++) {
        int n = counted(m, l, s.equal);
        /* a number within rounding of an integer counts as that integer */
        double whole = n ? floor(x[l] + 1e-9 * ((double)s.places + 1)) : 0;
        ret_share[l] = base + (int)whole;
        left -= (int64_t)whole * n;
        x[l] = n && whole < room(m, l, reach) ? x[l] - whole : -2;
    }
    while (left > 0) {
        int best = -1;
        for (int l = 0; l < L; l++) /* not twice, and as long as it fits */
            if (x[l] > -1 && counted(m, l, s.equal) <= left && (best < 0 || x[l] > x[best] + 1e-9))
                best = l;
        if (best < 0)
            return;
        ret_share[best]++;
        left -= counted(m, best, s.equal);
        x[best] = -2;
    }
}

void shares_pyramid(const struct method_state *m, const struct cache *c, int32_t reach,
                    int32_t recent_from, double *weight)
{
    struct sum s = sum_places(m, reach);
    int L = method_shape_of(m)->n_layers, n = 0, at = 0;
    double u = (double)s.places / s.n, most = 2 * u - u / method_params_of(m)->beta;
    (void)c, (void)recent_from;
    most = most < s.most ? most : s.most;
    for (int l = 0; l < L; l++)
        n += owned_heads(m, l) > 0;
    for (int l = 0; l < L; l++) {
        weight[l] = n > 1 ? most - 2 * (most - u) * at / (n - 1) : u;
        at += owned_heads(m, l) > 0;
    }
}

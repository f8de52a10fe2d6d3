/* allocation.c - shares of the budget.  Sums are exact: places that do not divide
 * go by largest remainder, the lower layer first among equals. */
#include <math.h>

#include "engine/method/parts.h"

static void shares_uniform(const struct method_state *m, const struct cache *c, int32_t recent_from,
                           double *scratch, int *ret_share)
{
    (void)c, (void)recent_from, (void)scratch;
    for (int l = 0; l < method_shape_of(m)->n_layers; l++)
        ret_share[l] = method_params_of(m)->budget;
}

const struct allocation allocation_uniform = {
    .name = "uniform", .summary = "every KV head gets the budget B", .shares = shares_uniform};

const struct allocation allocation_adaptive = {
    .name = "adaptive",
    .summary = "the heads of a layer share H B places, the best entries win",
    .uses = USES_FLOOR,
    .pool = POOL_LAYER,
    .shares = shares_uniform};

const struct allocation allocation_global = {
    .name = "global",
    .summary = "all heads of all layers share L H B places, the best entries win",
    .uses = USES_FLOOR,
    .pool = POOL_ALL,
    .shares = shares_uniform};

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

/* Weights x_l >= 0 to whole places per head that sum to `free` per head of the row; all
 * 0: evenly.  x is overwritten with what each layer lacks. */
static void largest_remainder(const struct method_state *m, double *x, int free, int base,
                              int *ret_share)
{
    int L = method_shape_of(m)->n_layers, n = 0;
    bool equal = equal_layers(m);
    double sum = 0;
    for (int l = 0; l < L; l++) {
        sum += x[l] * counted(m, l, equal);
        n += counted(m, l, equal);
    }
    int64_t left = (int64_t)n * free;
    for (int l = 0; l < L; l++) {
        double want = counted(m, l, equal) == 0 ? 0 : sum > 0 ? x[l] / sum * n * free : free;
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

static int protected_of(const struct method_params *p)
{
    return p->sinks + (p->recent > 1 ? p->recent : 1); /* a newcomer needs a place */
}

/* x_l falls linearly from 2u - u/beta to u/beta over the layers that the row decides in. */
static void shares_pyramid(const struct method_state *m, const struct cache *c, int32_t recent_from,
                           double *x, int *ret_share)
{
    const struct method_params *p = method_params_of(m);
    int L = method_shape_of(m)->n_layers, u = p->budget - protected_of(p), n = 0, at = 0;
    double least = u / p->beta, most = 2 * u - least;
    (void)c, (void)recent_from;
    for (int l = 0; l < L; l++)
        n += owned_heads(m, l) > 0;
    for (int l = 0; l < L; l++) {
        x[l] = n > 1 ? most - (most - least) * at / (n - 1) : u;
        at += owned_heads(m, l) > 0;
    }
    largest_remainder(m, x, u, protected_of(p), ret_share);
}

const struct allocation allocation_pyramid = {
    .name = "pyramid",
    .summary = "lower layers get more, in a straight line",
    .uses = USES_BETA,
    .shares = shares_pyramid};

const struct allocation allocation_adaptive_pyramid = {
    .name = "adaptive-pyramid",
    .summary = "pyramid over the layers, adaptive within each",
    .uses = USES_BETA | USES_FLOOR,
    .pool = POOL_LAYER,
    .shares = shares_pyramid};

static double weight(const struct score_input *in, int g, int age, int slot)
{
    int32_t t;
    const float *a = evidence_row(in->m, in->layer, g, age, &t, NULL);
    return in->view.pos[slot] <= t ? (double)a[slot] : 0;
}

/* Entropy and variance of one query head's window over its candidates. */
static void add_preference(const struct score_input *in, int g, double *entropy, double *variance)
{
    int rows = evidence_rows(in->m, in->layer, g), sinks = method_params_of(in->m)->sinks;
    for (int i = 0; i < in->view.n; i++) {
        int slot = in->view.order[i];
        double sum = 0, square = 0;
        if (in->view.pos[slot] < sinks || in->view.pos[slot] >= in->recent_from)
            continue;
        for (int w = 0; w < rows; w++) {
            double a = weight(in, g, w, slot);
            *entropy -= a * log(a + 1e-10);
            sum += a;
        }
        for (int w = 0; w < rows; w++) {
            double d = weight(in, g, w, slot) - sum / rows;
            square += d * d;
        }
        *variance += rows > 1 ? square / (rows - 1) : 0;
    }
}

/* P_l = entropy * variance of the layer's window (CAKE, Qin et al. 2025). */
static void shares_cake(const struct method_state *m, const struct cache *c, int32_t recent_from,
                        double *x, int *ret_share)
{
    const struct method_params *p = method_params_of(m);
    const struct method_shape *s = method_shape_of(m);
    for (int l = 0; l < s->n_layers; l++) {
        double entropy = 0, variance = 0;
        for (int g = 0; g < s->n_heads; g++) {
            int h = g / (s->n_heads / s->n_kv_heads);
            struct score_input in = {m, c, l, h, cache_view(c, l, h), recent_from, 0, 0};
            if (method_owns(m, l, h))
                add_preference(&in, g, &entropy, &variance);
        }
        x[l] = entropy > 0 ? entropy * variance : 0;
    }
    largest_remainder(m, x, p->budget - protected_of(p), protected_of(p), ret_share);
}

const struct allocation allocation_cake = {
    .name = "cake",
    .summary = "layers by entropy times variance of their attention",
    .evidence = EVIDENCE_WINDOW,
    .shares = shares_cake};

const struct allocation *const allocation_table[] = {
    &allocation_uniform,
    &allocation_pyramid,
    &allocation_adaptive,
    &allocation_adaptive_pyramid,
    &allocation_cake,
    &allocation_global,
    NULL,
};

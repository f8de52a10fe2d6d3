#include "engine/method/window.h"

#include <math.h>

#include "engine/method/state.h"

void window_candidates(const struct score_input *in, int *ret_first, int *ret_n)
{
    const int32_t *order = in->view.order, *pos = in->view.pos;
    int n = in->view.n, first = 0, end = n, sinks = method_params_of(in->m)->sinks;
    while (first < n && pos[order[first]] < sinks)
        first++;
    while (end > first && pos[order[end - 1]] >= in->recent_from)
        end--;
    *ret_first = first;
    *ret_n = end - first;
}

enum { BLOCK = 512 }; /* slots whose sums stay in the nearest cache */

/* Exact sums.  A weight counts round(a / U) units of U = 2^(k - 52), 2^k >= the most
 * that a sum can reach; in double such sums are exact, so they do not depend on their
 * order and a row that leaves the window leaves nothing behind.  (a + M) - M with
 * M = 1.5 * 2^k rounds to units. */
struct exact {
    const struct score_input *in;
    int g0, n_group;
    bool max; /* over the group */
    double magic;
};

static struct exact exact_sums(const struct score_input *in)
{
    const struct method_params *p = method_params_of(in->m);
    struct exact x = {.in = in, .max = p->group == GROUP_MAX, .magic = 3};
    method_group(in->m, in->head, &x.g0, &x.n_group);
    while (x.magic < 1.5 * p->window * x.n_group)
        x.magic *= 2;
    return x;
}

/* sum[i] += (or -=) the units of a[i]. */
static void add_units(double *sum, const float *a, int n, double magic, bool leaves)
{
    if (leaves)
        for (int i = 0; i < n; i++)
            sum[i] -= ((double)a[i] + magic) - magic;
    else
        for (int i = 0; i < n; i++)
            sum[i] += ((double)a[i] + magic) - magic;
}

void window_row(const struct score_input *in, int g, int age, int i0, int n, float *row)
{
    int32_t t;
    const float *a = evidence_row(in->m, in->layer, g, age, &t, NULL) + i0;
    const int32_t *pos = in->view.pos + i0;
    for (int i = 0; i < n; i++) {
        float v = a[i]; /* read in any case: the loop has no branch */
        row[i] = pos[i] <= t ? v : 0;
    }
}

/* The row of the query of this age in slots [i0, i0 + n), reduced over the group. */
static void add_query(const struct exact *x, int age, bool leaves, double *sum, int i0, int n)
{
    float most[BLOCK], row[BLOCK];
    for (int g = x->g0; g < x->g0 + x->n_group; g++) {
        window_row(x->in, g, age, i0, n, row);
        if (!x->max)
            add_units(sum + i0, row, n, x->magic, leaves);
        for (int i = 0; x->max && i < n; i++)
            most[i] = g == x->g0 || row[i] > most[i] ? row[i] : most[i];
    }
    if (x->max)
        add_units(sum + i0, most, n, x->magic, leaves);
}

/* Sums over the window, by slot.  Where they are known from the cut before and one
 * query has come since, it is added and the one that left is subtracted. */
static const double *sum_window(const struct score_input *in)
{
    const struct exact x = exact_sums(in);
    int window = method_params_of(in->m)->window, *known, n = in->view.n;
    int held = evidence_rows(in->m, in->layer, x.g0);
    double *sum = evidence_recent(&in->m->evidence, in->layer, in->head, &known);
    int taken = evidence_taken(&in->m->evidence, in->layer, x.g0);
    bool step = window > 2 && *known >= 0 && *known == taken - 1;
    for (int i0 = 0; i0 < n && *known != taken; i0 += BLOCK) {
        int m = n - i0 < BLOCK ? n - i0 : BLOCK;
        for (int i = i0; !step && i < i0 + m; i++)
            sum[i] = 0;
        for (int w = 0; w < (step ? 1 : held); w++)
            add_query(&x, w, false, sum, i0, m);
        if (step && taken > window)
            add_query(&x, window, true, sum, i0, m);
    }
    *known = taken;
    return sum;
}

static void reduce_exact(const struct score_input *in, float *out)
{
    int g0, n_group, n = in->view.n;
    const double *sum = sum_window(in);
    method_group(in->m, in->head, &g0, &n_group);
    int rows = evidence_rows(in->m, in->layer, g0);
    double scale = 1.0 / (rows ? rows : 1);
    if (method_params_of(in->m)->group == GROUP_MEAN
        || method_params_of(in->m)->group == GROUP_NONE) /* none: tova has a group still */
        scale /= n_group;
    for (int i = 0; i < n; i++)
        out[i] = (float)(sum[i] * scale);
}

/* 1 / the sum of a over the candidates, 0 where there is nothing; wanted: 1 for their
 * slots. */
static float candidates_scale(const float *a, const float *wanted, int n)
{
    double part[4] = {0}, sum = 0;
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            part[j] += (double)(a[i + j] * wanted[i + j]);
    for (; i < n; i++)
        sum += (double)(a[i] * wanted[i]);
    sum += (part[0] + part[1]) + (part[2] + part[3]);
    return sum > 0 ? (float)(1.0 / sum) : 0;
}

/* row += or max= scale * a. */
static void take_row(float *row, const float *a, int n, float scale, bool max)
{
    if (max)
        for (int i = 0; i < n; i++)
            row[i] = a[i] * scale > row[i] ? a[i] * scale : row[i];
    else
        for (int i = 0; i < n; i++)
            row[i] += a[i] * scale;
}

/* The general case: rows scaled one by one, maximum over the window. */
static void reduce_rows(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    float *row = scratch, *wanted = row + in->view.n, *a = wanted + in->view.n;
    int g0, n_group, n = in->view.n, from, m;
    method_group(in->m, in->head, &g0, &n_group);
    window_candidates(in, &from, &m);
    int rows = evidence_rows(in->m, in->layer, g0);
    float scale = p->across == ACROSS_MAX ? 1 : 1.0f / (float)(rows ? rows : 1);
    if (p->group == GROUP_MEAN || p->group == GROUP_NONE) /* none: tova has a group still */
        scale /= (float)n_group;
    for (int i = 0; i < n; i++)
        out[i] = wanted[i] = 0;
    for (int i = from; i < from + m; i++)
        wanted[in->view.order[i]] = 1;
    for (int w = rows - 1; w >= 0; w--) { /* oldest query first */
        for (int i = 0; i < n; i++)
            row[i] = 0;
        for (int g = g0; g < g0 + n_group; g++) {
            bool all = p->support == SUPPORT_ALL;
            window_row(in, g, w, 0, n, a);
            take_row(row, a, n, all ? 1 : candidates_scale(a, wanted, n), p->group == GROUP_MAX);
        }
        take_row(out, row, n, 1, p->across == ACROSS_MAX);
    }
    for (int i = 0; i < n; i++)
        out[i] *= scale;
}

void window_reduce(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    if (p->across == ACROSS_MEAN && p->support == SUPPORT_ALL)
        reduce_exact(in, out);
    else
        reduce_rows(in, out, scratch);
}

/* v[i] = the largest of copy[i - half .. i + half], where all of them exist. */
static void pool_inner(float *v, const float *copy, int n, int half, bool max)
{
    for (int i = half; i < n - half; i++)
        v[i] = copy[i - half];
    for (int j = 1 - half; j <= half; j++)
        if (max)
            for (int i = half; i < n - half; i++)
                v[i] = copy[i + j] > v[i] ? copy[i + j] : v[i];
        else
            for (int i = half; i < n - half; i++)
                v[i] += copy[i + j];
}

void window_pool(float *v, float *copy, int n, int width, enum pool_kind kind)
{
    int half = width / 2;
    bool max = kind == POOL_MAX;
    for (int i = 0; i < n; i++)
        copy[i] = v[i];
    pool_inner(v, copy, n, half, max);
    for (int i = 0; i < n; i++) {
        if (i >= half && i < n - half)
            continue;
        int lo = i > half ? i - half : 0, hi = i + half < n ? i + half : n - 1;
        v[i] = copy[lo];
        for (int j = lo + 1; j <= hi; j++)
            v[i] = !max ? v[i] + copy[j] : copy[j] > v[i] ? copy[j] : v[i];
    }
    for (int i = 0; i < n && !max; i++)
        v[i] /= (float)width;
}

void window_pool_candidates(const struct score_input *in, float *v, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    const int32_t *order = in->view.order;
    float *old = scratch, *copy = scratch + in->view.n;
    int first, m;
    if (p->pool <= 1)
        return;
    window_candidates(in, &first, &m);
    for (int i = 0; i < m; i++)
        old[i] = v[order[first + i]];
    window_pool(old, copy, m, p->pool, (enum pool_kind)p->pool_kind);
    for (int i = 0; i < m; i++)
        v[order[first + i]] = old[i];
}

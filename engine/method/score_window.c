/* score_window.c - attention from the last w queries (SnapKV, Li et al. 2024;
 * TOVA, Oren et al. 2024 is w = 1 without pooling): rows are softmax weights
 * over everything the query saw, reduced over the group of query heads, averaged
 * over the window, then pooled over neighbours in time. */
#include <math.h>

#include "engine/method/scores.h"

static float reduce(float a, float v, enum group_kind kind)
{
    return kind == GROUP_MAX ? fmaxf(a, v) : a + v;
}

/* sum over the window's rows of the group-reduced attention, by slot */
static void add_rows(const struct score_input *in, float *sum, float *row)
{
    const struct method_params *p = method_params_of(in->m);
    int g0, n_group, n = in->view.n;
    method_group(in->m, in->head, &g0, &n_group);
    int rows = evidence_rows(in->m, in->layer, g0);
    float scale = 1.0f / (float)(rows ? rows : 1);
    if (p->group == GROUP_MEAN)
        scale /= (float)n_group;
    for (int i = 0; i < n; i++)
        sum[i] = 0;
    for (int w = rows - 1; w >= 0; w--) { /* oldest query first */
        const float *a = evidence_row(in->m, in->layer, g0, w);
        for (int i = 0; i < n; i++)
            row[i] = a[i];
        for (int g = g0 + 1; g < g0 + n_group; g++) {
            a = evidence_row(in->m, in->layer, g, w);
            for (int i = 0; i < n; i++)
                row[i] = reduce(row[i], a[i], p->group);
        }
        for (int i = 0; i < n; i++)
            sum[i] += row[i];
    }
    for (int i = 0; i < n; i++)
        sum[i] *= scale;
}

/* Pools v[0..n) in place; edges: missing neighbours count as -inf for the
 * maximum and as 0 for the average (as count_include_pad does). */
static void pool(float *v, float *copy, int n, const struct method_params *p)
{
    int half = p->pool / 2;
    for (int i = 0; i < n; i++)
        copy[i] = v[i];
    for (int i = 0; i < n; i++) {
        int lo = i > half ? i - half : 0, hi = i + half < n ? i + half : n - 1;
        float a = p->pool_kind == POOL_MAX ? -INFINITY : 0;
        for (int j = lo; j <= hi; j++)
            a = p->pool_kind == POOL_MAX ? fmaxf(a, copy[j]) : a + copy[j];
        v[i] = p->pool_kind == POOL_MAX ? a : a / (float)p->pool;
    }
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    int n = in->view.n, first = 0, m = 0;
    float *old = scratch + n, *copy = scratch + 2 * n;
    add_rows(in, out, scratch);
    if (p->pool <= 1)
        return;
    /* only unprotected entries are pooled, in order of time: a sink would lend its
     * weight to the entries behind it */
    const int32_t *order = in->view.order, *pos = in->view.pos;
    while (first < n && pos[order[first]] < p->sinks)
        first++;
    while (first + m < n && pos[order[first + m]] < in->recent_from) {
        old[m] = out[order[first + m]];
        m++;
    }
    pool(old, copy, m, p);
    for (int i = 0; i < m; i++)
        out[order[first + i]] = old[i];
}

const struct score score_window = {
    .name = "window-attention",
    .summary = "mean attention from the last w queries, pooled over neighbours",
    .evidence = EVIDENCE_WINDOW,
    .uses = USES_WINDOW | USES_POOL | USES_GROUP,
    .eval = eval,
};

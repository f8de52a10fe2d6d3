#include "engine/method/window.h"

#include <math.h>

void window_candidates(const struct score_input *in, int *ret_first, int *ret_n)
{
    const int32_t *order = in->view.order, *pos = in->view.pos;
    int n = in->view.n, first = 0, m = 0, sinks = method_params_of(in->m)->sinks;
    while (first < n && pos[order[first]] < sinks)
        first++;
    while (first + m < n && pos[order[first + m]] < in->recent_from)
        m++;
    *ret_first = first;
    *ret_n = m;
}

/* row += or max= a, scaled so that its candidates sum to 1 where asked for. */
static void take_row(const struct score_input *in, const float *a, bool first, int from, int m,
                     float *row)
{
    const struct method_params *p = method_params_of(in->m);
    float scale = 1;
    if (p->support == SUPPORT_CANDIDATES) {
        double sum = 0;
        for (int i = 0; i < m; i++)
            sum += (double)a[in->view.order[from + i]];
        scale = sum > 0 ? (float)(1.0 / sum) : 0;
    }
    for (int i = 0; i < in->view.n; i++) {
        float v = p->support == SUPPORT_CANDIDATES ? a[i] * scale : a[i];
        row[i] = first ? v : p->group == GROUP_MAX ? fmaxf(row[i], v) : row[i] + v;
    }
}

void window_reduce(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    int g0, n_group, n = in->view.n, from, m;
    method_group(in->m, in->head, &g0, &n_group);
    window_candidates(in, &from, &m);
    int rows = evidence_rows(in->m, in->layer, g0);
    float scale = p->across == ACROSS_MAX ? 1 : 1.0f / (float)(rows ? rows : 1);
    if (p->group == GROUP_MEAN || p->group == GROUP_NONE) /* none: tova has a group still */
        scale /= (float)n_group;
    for (int i = 0; i < n; i++)
        out[i] = 0;
    for (int w = rows - 1; w >= 0; w--) { /* oldest query first */
        for (int g = g0; g < g0 + n_group; g++)
            take_row(in, evidence_row(in->m, in->layer, g, w, NULL, NULL), g == g0, from, m,
                     scratch);
        for (int i = 0; i < n; i++)
            out[i] = p->across == ACROSS_MAX ? fmaxf(out[i], scratch[i]) : out[i] + scratch[i];
    }
    for (int i = 0; i < n; i++)
        out[i] *= scale;
}

void window_pool(float *v, float *copy, int n, int width, enum pool_kind kind)
{
    int half = width / 2;
    for (int i = 0; i < n; i++)
        copy[i] = v[i];
    for (int i = 0; i < n; i++) {
        int lo = i > half ? i - half : 0, hi = i + half < n ? i + half : n - 1;
        float a = kind == POOL_MAX ? -INFINITY : 0;
        for (int j = lo; j <= hi; j++)
            a = kind == POOL_MAX ? fmaxf(a, copy[j]) : a + copy[j];
        v[i] = kind == POOL_MAX ? a : a / (float)width;
    }
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

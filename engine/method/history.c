/* history.c - combines the score of this cut with a remembered score (history.h). */
#include "engine/method/history.h"

#include <math.h>

#include "engine/method/parts.h"
#include "engine/method/window.h"

float history_largest(const float *v, const int32_t *order, int first, int m)
{
    float max = -INFINITY;
    for (int i = first; i < first + m; i++)
        max = fmaxf(max, v[order ? order[i] : i]);
    return max;
}

void history_normalise(const struct score_input *in, float *v)
{
    int first, m;
    window_candidates(in, &first, &m);
    float top = history_largest(v, in->view.order, first, m);
    for (int i = 0; i < in->view.n && top > 0; i++)
        v[i] /= top;
}

void history_fold(const struct score_input *in, float *v)
{
    const struct method_params *p = method_params_of(in->m);
    float *history = evidence_history(in->m, in->layer, in->head);
    int first, m;
    if (!(p->history > 0))
        return;
    window_candidates(in, &first, &m);
    for (int i = 0; i < in->view.n; i++)
        if (!isnan(history[i]))
            v[i] = formula_fold((enum fold_kind)p->fold, (float)p->history, history[i], v[i]);
    for (int i = first; i < first + m; i++) /* only candidates have a score of their own */
        history[in->view.order[i]] = v[in->view.order[i]];
}

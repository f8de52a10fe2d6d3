/* admission_duo.c - some heads keep everything, and all other heads stream (DuoAttention). */
#include <stdlib.h>

#include "base/mem.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The alpha from which a head keeps everything: the quantile between order statistics, linear. */
static int prepare(struct method_state *s)
{
    const struct method_shape *m = method_shape_of(s);
    int n = m->n_layers * m->n_kv_heads;
    double at = method_params_of(s)->sparsity * (n - 1);
    if (gates_kind(s->inputs.gates) != GATE_HEADS)
        return KVF_OK;
    double *alpha = MEM_NEW(double, (size_t)n);
    if (!alpha)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++)
        alpha[i] = (double)gates_alpha(s->inputs.gates, i / m->n_kv_heads, i % m->n_kv_heads);
    qsort(alpha, (size_t)n, sizeof *alpha, by_value);
    int lo = (int)at, hi = lo + 1 < n ? lo + 1 : lo;
    s->alpha_from = alpha[lo] + (alpha[hi] - alpha[lo]) * (at - lo);
    mem_free(alpha);
    return KVF_OK;
}

/* DuoAttention: heads with a small alpha stream. */
static int32_t until(const struct method_state *m, int layer, int head, int32_t pos, float gate)
{
    if ((double)gates_alpha(m->inputs.gates, layer, head) >= m->alpha_from)
        return NEVER_EXPIRES;
    return admission_until_streaming(m, layer, head, pos, gate);
}

const struct admission admission_duo = {
    .name = "duo",
    .summary = "heads with a large alpha keep every entry, others keep sinks and a window",
    .uses = USES_SPANS | USES_SPARSITY,
    .gates = 1u << GATE_HEADS,
    .reason = KVF_REASON_WINDOW,
    .prepare = prepare,
    .until = until,
};

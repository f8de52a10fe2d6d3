/* admission.c - how long an entry is seen whatever the budget.  Each part is a few
 * lines; what they fix at birth holds for every query, inside the prompt too. */
#include <stdlib.h>

#include "base/mem.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"

const struct admission admission_all = {.name = "all", .summary = "every newcomer stays"};

static int32_t after(int32_t pos, int steps)
{
    return steps < CACHE_STAYS - pos ? pos + steps : CACHE_STAYS - 1;
}

/* WG-KV: admitted when the gate says so, else seen by the next W - 1 queries too. */
static int32_t until_write(const struct method_state *m, int layer, int head, int32_t pos,
                           float gate)
{
    const struct method_params *p = method_params_of(m);
    bool in = p->compare == COMPARE_GT ? (double)gate > p->tau : (double)gate >= p->tau;
    (void)layer, (void)head;
    return in ? CACHE_STAYS : after(pos, p->local);
}

static void judge_write(const struct method_state *m, float gate, float *ret_score,
                        float *ret_margin)
{
    *ret_score = gate;
    *ret_margin = (float)(method_params_of(m)->tau - (double)gate);
}

const struct admission admission_write = {
    .name = "write-gate",
    .summary = "the write gate admits, or the entry leaves after W queries",
    .uses = USES_LOCAL | USES_TAU,
    .gates = 1u << GATE_WRITE,
    .reason = KVF_REASON_REFUSED,
    .until = until_write,
    .judge = judge_write};

/* Sinks and a sliding window. */
static int32_t until_streaming(const struct method_state *m, int layer, int head, int32_t pos,
                               float gate)
{
    const struct method_params *p = method_params_of(m);
    (void)layer, (void)head, (void)gate;
    return pos < p->sinks ? CACHE_STAYS : after(pos, p->recent);
}

const struct admission admission_streaming = {
    .name = "streaming",
    .summary = "sinks, and a window that slides in the prompt as well",
    .uses = USES_SPANS,
    .reason = KVF_REASON_WINDOW,
    .until = until_streaming};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile between order statistics, linear. */
int admission_alpha(const struct method_state *s, double *ret_alpha)
{
    const struct method_shape *m = method_shape_of(s);
    int n = m->n_layers * m->n_kv_heads;
    double *alpha = MEM_NEW(double, (size_t)n), at = method_params_of(s)->sparsity * (n - 1);
    if (!alpha)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++)
        alpha[i] = (double)gates_alpha(s->inputs.gates, i / m->n_kv_heads, i % m->n_kv_heads);
    qsort(alpha, (size_t)n, sizeof *alpha, by_value);
    int lo = (int)at, hi = lo + 1 < n ? lo + 1 : lo;
    *ret_alpha = alpha[lo] + (alpha[hi] - alpha[lo]) * (at - lo);
    mem_free(alpha);
    return KVF_OK;
}

/* DuoAttention: heads with a small alpha stream. */
static int32_t until_duo(const struct method_state *m, int layer, int head, int32_t pos, float gate)
{
    if ((double)gates_alpha(m->inputs.gates, layer, head) >= m->alpha_from)
        return CACHE_STAYS;
    return until_streaming(m, layer, head, pos, gate);
}

const struct admission admission_duo = {
    .name = "duo",
    .summary = "heads with a large alpha keep everything, the others stream",
    .uses = USES_SPANS | USES_SPARSITY,
    .gates = 1u << GATE_HEADS,
    .reason = KVF_REASON_WINDOW,
    .until = until_duo};

/* Another run's evict steps. */
static int32_t until_plan(const struct method_state *m, int layer, int head, int32_t pos,
                          float gate)
{
    const struct method_inputs *in = method_inputs_of(m);
    size_t at = (size_t)layer * (size_t)method_shape_of(m)->n_kv_heads + (size_t)head;
    (void)gate;
    return pos < in->plan_len ? in->plan_until[at * (size_t)in->plan_len + (size_t)pos]
                              : CACHE_STAYS;
}

const struct admission admission_plan = {.name = "plan",
                                         .summary = "entries leave at the steps of a plan",
                                         .reason = KVF_REASON_PLAN,
                                         .until = until_plan};

const struct admission *const admission_table[] = {
    &admission_all, &admission_write, &admission_streaming, &admission_duo, &admission_plan, NULL,
};

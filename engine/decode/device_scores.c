/* device_scores.c - the scores that have kernels.  A part that is not in the table is computed on
 * the host, with the whole step of its rows (device_step.h). */
#include "engine/decode/device_step.h"
#include "engine/method/parts.h"

static struct resident *resident_of(struct session *s)
{
    return ((struct mirror *)s->mirror)->resident;
}

static struct gpu_group group_of(struct session *s)
{
    const struct method *m = method_of(s->method);
    const struct method_params *p = method_params_of(s->method);
    return (struct gpu_group){.per = s->e->config.n_heads / s->cache_heads,
                              .heads_of_layer = s->cache_heads,
                              .layer = m->scope == SCOPE_LAYER,
                              .max = p->group == GROUP_MAX,
                              .mean = p->group == GROUP_MEAN};
}

static void eval_position(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    (void)round;
    gpu_score_position(((struct mirror *)s->mirror)->gpu, &r->heads, r->due, r->score);
}

static void eval_received(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    struct gpu_group x = group_of(s);
    (void)round;
    gpu_score_received(((struct mirror *)s->mirror)->gpu, &r->heads, r->due, &x, r->sum, r->score);
}

static void eval_norm(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    (void)round;
    gpu_score_column(((struct mirror *)s->mirror)->gpu, &r->heads, r->due, r->norms, -1, r->score);
}

static void eval_gate(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    (void)round;
    gpu_score_column(((struct mirror *)s->mirror)->gpu, &r->heads, r->due, r->gate, 1, r->score);
}

static void eval_keydiff(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    (void)round;
    gpu_score_keydiff(((struct mirror *)s->mirror)->gpu, &r->heads, r->due, r->norms, r->anchor,
                      r->score);
}

static void eval_retention(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    const struct method_params *p = method_params_of(s->method);
    gpu_score_retention(((struct mirror *)s->mirror)->gpu, &r->heads, r->due, r->gate,
                        round->t - 1 + p->offset, p->lookahead, r->score);
}

/* 1.5 * 2^k, 2^k at least the most that a sum can reach (window.c). */
static double magic_of(const struct method_params *p, const struct gpu_group *x)
{
    double magic = 3, most = 1.5 * p->window * x->per * (x->layer ? x->heads_of_layer : 1);
    while (magic < most)
        magic *= 2;
    return magic;
}

static void eval_window(struct session *s, const struct elsewhere_round *round)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    const struct method_params *p = method_params_of(s->method);
    struct gpu_group x = group_of(s);
    x.mean |= p->group == GROUP_NONE; /* a layer that decides together has a group still */
    if (p->across == ACROSS_MEAN && p->support == SUPPORT_ALL)
        gpu_score_window(m->gpu, &r->heads, r->due, &x, &r->window, magic_of(p, &x), r->score);
    else
        gpu_score_rows(m->gpu, &r->heads, r->due, &x, &r->window, p->across == ACROSS_MAX, p->sinks,
                       round->recent_from, p->support == SUPPORT_CANDIDATES ? r->share : NULL,
                       r->score);
    if (p->pool > 1)
        gpu_pool(m->gpu, &r->heads, r->due, p->pool, p->pool_kind == POOL_MAX, p->sinks,
                 round->recent_from, r->copy, r->score);
}

static bool window_takes(const struct method_params *p)
{
    return p->group != GROUP_MAX_LOGITS;
}

static const struct device_score scores[] = {
    {&score_position, NULL, eval_position},     {&score_received, NULL, eval_received},
    {&score_window, window_takes, eval_window}, {&score_knorm, NULL, eval_norm},
    {&score_keydiff, NULL, eval_keydiff},       {&score_retention, NULL, eval_retention},
    {&score_write_gate, NULL, eval_gate},       {&score_importance, NULL, eval_gate},
};

const struct device_score *device_score_of(const struct method *m, const struct method_params *p)
{
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        if (scores[i].part == m->score)
            return !scores[i].takes || scores[i].takes(p) ? &scores[i] : NULL;
    return NULL;
}

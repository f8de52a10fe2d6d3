/* scores.c - the table of eviction scores with kernels. Other scores are computed on the host, and
 * their steps run layer by layer with a host sync (decode.h). */
#include "engine/device/decode.h"
#include "engine/method/parts.h"

static struct device_decode *device_decode_of(struct session *s)
{
    return ((struct device_session *)s->device_state)->decode;
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

static void eval_position(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    (void)round;
    gpu_score_position(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                       r->evict.score);
}

static void eval_received(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    struct gpu_group x = group_of(s);
    (void)round;
    gpu_score_received(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due, &x,
                       r->evidence.sum, r->evict.score);
}

static void eval_norm(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    (void)round;
    gpu_score_column(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                     r->evidence.norms, -1, r->evict.score);
}

static void eval_gate(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    (void)round;
    gpu_score_column(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                     r->evidence.gate, 1, r->evict.score);
}

static void eval_keydiff(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    (void)round;
    gpu_score_keydiff(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                      r->evidence.norms, r->evidence.anchor, r->evict.score);
}

static void eval_retention(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    const struct method_params *p = method_params_of(s->method);
    gpu_score_retention(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                        r->evidence.gate, round->t - 1 + p->offset, p->lookahead, r->evict.score);
}

/* Returns 1.5 * 2^k, where 2^k is at least the largest possible sum (window.c). */
static double magic_of(const struct method_params *p, const struct gpu_group *x)
{
    return formula_sum_magic(p->window, x->per * (x->layer ? x->heads_of_layer : 1));
}

/* Computes the score from the rows of the observation window, before pooling. */
static void reduce_window(struct session *s, const struct device_eviction *round)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    const struct method_params *p = method_params_of(s->method);
    struct gpu_group x = group_of(s);
    x.mean |= p->group == GROUP_NONE; /* a layer that decides as one unit still forms a group */
    x.logits = p->group == GROUP_MAX_LOGITS;
    if (p->across == ACROSS_MEAN && p->support == SUPPORT_ALL)
        gpu_score_window(m->gpu, &r->heads, r->evict.due, &x, &r->evidence.window, magic_of(p, &x),
                         r->evict.score);
    else
        gpu_score_rows(m->gpu, &r->heads, r->evict.due, &x, &r->evidence.window,
                       p->across == ACROSS_MAX, p->sinks, round->recent_from,
                       p->support == SUPPORT_CANDIDATES ? r->evict.fraction : NULL, r->evict.score);
}

static void pool_window(struct session *s, const struct device_eviction *round)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    const struct method_params *p = method_params_of(s->method);
    if (p->pool > 1)
        gpu_pool(m->gpu, &r->heads, r->evict.due, p->pool, p->pool_kind == POOL_MAX, p->sinks,
                 round->recent_from, r->evict.pooled, r->evict.score);
}

static void eval_window(struct session *s, const struct device_eviction *round)
{
    reduce_window(s, round);
    pool_window(s, round);
}

static void eval_below(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    struct gpu_group x = group_of(s);
    (void)round;
    x.max = false; /* fractions are summed */
    gpu_score_below(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due, &x,
                    &r->evidence.window, r->evict.score);
}

static void eval_spread(struct session *s, const struct device_eviction *round)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    struct gpu_group x = group_of(s);
    gpu_score_spread(m->gpu, &r->heads, r->evict.due, &x, &r->evidence.window,
                     method_params_of(s->method)->gamma, r->evict.score);
    pool_window(s, round);
    gpu_score_divide(m->gpu, &r->heads, r->evict.due,
                     (float)(x.per * (x.layer ? x.heads_of_layer : 1)), r->evict.score);
}

/* Query heads are summed before pooling. */
static bool spread_takes(const struct method_params *p)
{
    return p->pool <= 1 || p->pool_kind == POOL_AVG;
}

static void eval_random(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    (void)round;
    gpu_score_random(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                     (uint64_t)method_params_of(s->method)->seed, s->cache_heads,
                     r->evidence.history, r->evict.score);
}

static void remember(struct session *s, const struct device_eviction *round, bool normalise)
{
    struct device_decode *r = device_decode_of(s);
    const struct method_params *p = method_params_of(s->method);
    const struct gpu_history x = {r->evidence.history, (float)p->history, (enum fold_kind)p->fold,
                                  normalise};
    if (normalise || p->history > 0)
        gpu_score_history(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                          &x, p->sinks, round->recent_from, r->evict.score);
}

static void eval_global(struct session *s, const struct device_eviction *round)
{
    reduce_window(s, round);
    remember(s, round, true);
    pool_window(s, round);
}

static void eval_redundancy(struct session *s, const struct device_eviction *round)
{
    struct device_decode *r = device_decode_of(s);
    const struct method_params *p = method_params_of(s->method);
    const struct gpu_redundancy x = {(float)p->lambda, method_of(s->method)->normalise,
                                     r->evict.scratch};
    reduce_window(s, round);
    remember(s, round, x.normalise);
    pool_window(s, round);
    gpu_score_redundancy(((struct device_session *)s->device_state)->gpu, &r->heads, r->evict.due,
                         &x, p->sinks, round->recent_from, r->evict.score);
}

static size_t redundancy_scratch(const struct session *s)
{
    const struct device_decode *r = ((const struct device_session *)s->device_state)->decode;
    return gpu_redundancy_bytes(s->cache_heads * s->e->config.n_layers, r->ld,
                                s->e->config.head_dim);
}

/* The mean rotations of all layers are at the start of the scratch, before the scratch of the
 * kernels. */
static void eval_expected(struct session *s, const struct device_eviction *round)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    const struct method_params *p = method_params_of(s->method);
    const struct gpu_group group = group_of(s);
    size_t D = (size_t)s->e->config.head_dim, L = (size_t)s->e->config.n_layers;
    double *there = r->evict.scratch;
    struct gpu_expected x = {.sum = r->evidence.query_sum,
                             .outer = r->evidence.query_outer,
                             .n = r->evidence.n_queries,
                             .scale = expected_scale(s->method),
                             .epsilon = p->epsilon,
                             .values = r->evidence.values,
                             .scratch = there + L * D};
    if (x.n < 1) { /* no queries to predict from */
        gpu_score_column(m->gpu, &r->heads, r->evict.due, r->evidence.values, 0, r->evict.score);
        return;
    }
    for (size_t l = 0; l < L; l++)
        expected_turns(s->method, (int)l, r->in.host.now[0] + round->t,
                       r->evict.host.mean_turns + l * D);
    gpu_send(m->gpu, there, r->evict.host.mean_turns, L * D * sizeof *there);
    for (int l = 0; l < (int)L; l++) {
        x.pairs = model_rope(&s->e->config, l, s->cap) == ROPE_NONE ? 0 : s->e->config.rope_dim / 2;
        x.turns = there + (size_t)l * D;
        gpu_score_expected(m->gpu, &r->heads, r->evict.due, &group, &x, l, p->sinks,
                           r->evict.score);
    }
}

static size_t expected_scratch(const struct session *s)
{
    const struct device_decode *r = ((const struct device_session *)s->device_state)->decode;
    int D = s->e->config.head_dim;
    return (size_t)(D * s->e->config.n_layers) * sizeof(double)
           + gpu_expected_bytes(s->e->config.n_heads, r->ld, D);
}

static bool received_takes(const struct method_params *p)
{
    return p->divide == DIVIDE_NONE;
}

static bool redundancy_takes(const struct method_params *p)
{
    return p->slots == SLOTS_TIME;
}

static const struct device_score scores[] = {
    {&score_position, NULL, eval_position, NULL},
    {&score_received, received_takes, eval_received, NULL},
    {&score_window, NULL, eval_window, NULL},
    {&score_knorm, NULL, eval_norm, NULL},
    {&score_keydiff, NULL, eval_keydiff, NULL},
    {&score_retention, NULL, eval_retention, NULL},
    {&score_write_gate, NULL, eval_gate, NULL},
    {&score_importance, NULL, eval_gate, NULL},
    {&score_below, NULL, eval_below, NULL},
    {&score_variance, spread_takes, eval_spread, NULL},
    {&score_random, NULL, eval_random, NULL},
    {&score_global, NULL, eval_global, NULL},
    {&score_redundancy, redundancy_takes, eval_redundancy, redundancy_scratch},
    {&score_expected, NULL, eval_expected, expected_scratch},
};

const struct device_score *device_score_of(const struct method *m, const struct method_params *p)
{
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        if (scores[i].part == m->score)
            return !scores[i].takes || scores[i].takes(p) ? &scores[i] : NULL;
    return NULL;
}

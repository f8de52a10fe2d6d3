/* window.c - scores candidates by the attention rows of the last queries (window.h). */
#include "engine/method/window.h"

#include <math.h>
#include <string.h>

#include "engine/method/parts.h"
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

enum {
    BLOCK = 512, /* slots whose sums stay in the nearest cache */
    GROUP = 8,   /* query heads whose rows are read side by side */
};

/* Exact sums.  A weight counts round(a / U) units of U = 2^(k - 52), where 2^k >= the maximum of a
 * sum.  In double such sums are exact, so they do not depend on their order, and subtracting a row
 * leaves no rounding error.  (a + M) - M with M = 1.5 * 2^k rounds to units. */
struct exact {
    const struct score_input *in;
    int g0, n_group;
    bool max; /* over the group */
    double magic;
};

static struct exact exact_sums(const struct score_input *in)
{
    const struct method_params *p = method_params_of(in->m);
    struct exact x = {.in = in, .max = p->group == GROUP_MAX};
    method_group(in->m, in->head, &x.g0, &x.n_group);
    x.magic = formula_sum_magic(p->window, x.n_group);
    return x;
}

struct window_pair window_pair(const struct score_input *in, int g, int enters, int leaves)
{
    struct window_pair p = {.t_in = INT32_MIN, .t_out = INT32_MIN};
    if (enters >= 0)
        p.in = evidence_row(in->m, in->layer, g, enters, &p.t_in, NULL);
    if (leaves >= 0)
        p.out = evidence_row(in->m, in->layer, g, leaves, &p.t_out, NULL);
    p.in = p.in ? p.in : p.out;
    p.out = p.out ? p.out : p.in;
    return p;
}

/* Computes the maximum over the group, as rows in which all weights count. */
static struct window_pair most_of(const struct exact *x, int enters, int leaves, int i0, int n,
                                  float *most_in, float *most_out)
{
    const struct kernels *k = method_kernels(x->in->m);
    const int32_t *pos = x->in->view.pos + i0;
    for (int g = x->g0; g < x->g0 + x->n_group; g++) {
        struct window_pair p = window_pair(x->in, g, enters, leaves);
        enum take how = g == x->g0 ? TAKE_FIRST : TAKE_MAX;
        k->take_share(most_in, p.in + i0, pos, n, p.t_in, 1, how);
        k->take_share(most_out, p.out + i0, pos, n, p.t_out, 1, how);
    }
    return (struct window_pair){most_in, most_out, INT32_MAX, INT32_MAX};
}

/* Adds one query to the sums of slots [i0, i0 + n) and subtracts one (ages; -1: no query).  out:
 * NULL, or scale times the sums. */
static void slide(const struct exact *x, double *sum, int enters, int leaves, int i0, int n,
                  float *out, double scale)
{
    const struct evidence *e = &x->in->m->evidence;
    float most_in[BLOCK], most_out[BLOCK];
    struct window_pair pair[GROUP];
    struct window_slide job = {.sum = sum + i0,
                               .pair = pair,
                               .pos = x->in->view.pos + i0,
                               .n = n,
                               .magic = x->magic,
                               .scale = scale,
                               .next_sum = window_next(x->in) * (size_t)e->cap};
    if (x->max) {
        job.n_pairs = 1;
        job.out = out ? out + i0 : NULL;
        pair[0] = most_of(x, enters, leaves, i0, n, most_in, most_out);
        method_kernels(x->in->m)->slide(&job);
        return;
    }
    job.next_row = job.next_sum * (size_t)(x->n_group * e->ring);
    for (int g = 0; g < x->n_group; g += job.n_pairs) {
        job.n_pairs = x->n_group - g < GROUP ? x->n_group - g : GROUP;
        job.out = out && g + job.n_pairs == x->n_group ? out + i0 : NULL;
        for (int i = 0; i < job.n_pairs; i++) {
            pair[i] = window_pair(x->in, x->g0 + g + i, enters, leaves);
            pair[i].in += i0;
            pair[i].out += i0;
        }
        method_kernels(x->in->m)->slide(&job);
    }
}

struct window_turn window_turn(const struct score_input *in, int g, int known)
{
    int window = method_params_of(in->m)->window;
    int taken = evidence_taken(&in->m->evidence, in->layer, g);
    struct window_turn t = {.taken = taken, .leaves = -1};
    if (known == taken)
        return t;
    if (window > 2 && known >= 0 && known == taken - 1) {
        t.n_enter = 1;
        t.leaves = taken > window ? window : -1;
    } else {
        t.n_enter = evidence_rows(in->m, in->layer, g);
        t.afresh = true;
    }
    return t;
}

size_t window_next(const struct score_input *in)
{
    return (size_t)(in->m->n_threads > 0 ? in->m->n_threads : 1);
}

/* out = scale times the sums over the window, by slot. */
static void sum_window(const struct score_input *in, float *out, double scale)
{
    const struct exact x = exact_sums(in);
    int *known, n = in->view.n;
    double *sum = evidence_recent(&in->m->evidence, in->layer, in->head, &known);
    const struct window_turn t = window_turn(in, x.g0, *known);
    for (int i0 = 0; i0 < n; i0 += BLOCK) {
        int m = n - i0 < BLOCK ? n - i0 : BLOCK;
        for (int i = i0; t.afresh && i < i0 + m; i++)
            sum[i] = 0;
        for (int w = 0; w < t.n_enter; w++)
            slide(&x, sum, w, t.leaves, i0, m, w == t.n_enter - 1 ? out : NULL, scale);
        for (int i = i0; t.n_enter == 0 && i < i0 + m; i++)
            out[i] = (float)(sum[i] * scale);
    }
    *known = t.taken;
}

/* Sums the rows of the newest query, for a window of one query, without stored sums.  Returns false
 * if the rows of the group differ in form. */
static bool sum_newest(const struct score_input *in, float *out, double scale)
{
    const struct exact x = exact_sums(in);
    int *known;
    int32_t t, same_t;
    const float *row = evidence_row(in->m, in->layer, x.g0, 0, &t, NULL), *last = row;
    size_t ld = 0;
    for (int g = x.g0 + 1; g < x.g0 + x.n_group; g++) {
        const float *p = evidence_row(in->m, in->layer, g, 0, &same_t, NULL);
        ld = g == x.g0 + 1 ? (size_t)(p - last) : ld;
        if (same_t != t || p <= last || (size_t)(p - last) != ld)
            return false;
        last = p;
    }
    evidence_recent(&in->m->evidence, in->layer, in->head, &known);
    *known = -1;
    method_kernels(in->m)->sum_rows(out, row, ld, x.n_group, in->view.pos, t, in->view.n, x.magic,
                                    scale);
    return true;
}

static void reduce_exact(const struct score_input *in, float *out)
{
    int g0, n_group;
    method_group(in->m, in->head, &g0, &n_group);
    int rows = evidence_rows(in->m, in->layer, g0);
    double scale = 1.0 / (rows ? rows : 1);
    if (method_params_of(in->m)->group == GROUP_MEAN
        || method_params_of(in->m)->group == GROUP_NONE) /* none: tova has a group still */
        scale /= n_group;
    if (rows == 1 && method_params_of(in->m)->window == 1
        && method_params_of(in->m)->group != GROUP_MAX && sum_newest(in, out, scale))
        return;
    sum_window(in, out, scale);
}

/* row += or max= a. */
static void take_row(float *row, const float *a, int n, bool max)
{
    if (max)
        for (int i = 0; i < n; i++)
            row[i] = a[i] > row[i] ? a[i] : row[i];
    else
        for (int i = 0; i < n; i++)
            row[i] += a[i];
}

double window_candidates_sum(const struct score_input *in, const struct window_pair *p)
{
    int32_t to = p->t_in < in->recent_from ? p->t_in + 1 : in->recent_from;
    return method_kernels(in->m)->sum_between(p->in, in->view.pos, in->view.n,
                                              method_params_of(in->m)->sinks, to);
}

/* Returns 1 / (the query's sum over the candidates), or 0 if the sum is 0. */
static float candidates_scale(const struct score_input *in, const struct window_pair *p)
{
    double sum = window_candidates_sum(in, p);
    return sum > 0 ? (float)(1.0 / sum) : 0;
}

/* Computes the group's largest logits as b_j = exp(max_g z_gj), up to a factor that normalising
 * removes, from weights a and log-sum-exps: exp z = a exp(lse).  Returns the position of the query.
 */
static int32_t largest_logits(const struct score_input *in, int g0, int n_group, int age,
                              float *row)
{
    const struct kernels *k = method_kernels(in->m);
    float most = -INFINITY;
    int32_t t = 0;
    for (int g = g0; g < g0 + n_group; g++)
        most = fmaxf(most, evidence_row_lse(in->m, in->layer, g, age));
    for (int g = g0; g < g0 + n_group; g++) {
        struct window_pair a = window_pair(in, g, age, -1);
        float s = expf(evidence_row_lse(in->m, in->layer, g, age) - most);
        k->take_share(row, a.in, in->view.pos, in->view.n, a.t_in, s,
                      g == g0 ? TAKE_FIRST : TAKE_MAX);
        t = a.t_in;
    }
    return t;
}

/* One query of the window, its heads' shares reduced. */
static void reduce_query(const struct score_input *in, int g0, int n_group, int age, float *row)
{
    const struct method_params *p = method_params_of(in->m);
    enum take more = p->group == GROUP_MAX ? TAKE_MAX : TAKE_SUM;
    int n = in->view.n;
    if (p->group == GROUP_MAX_LOGITS) {
        struct window_pair b = {.in = row};
        b.t_in = largest_logits(in, g0, n_group, age, row);
        float s = candidates_scale(in, &b);
        for (int i = 0; i < n; i++)
            row[i] *= s;
        return;
    }
    for (int g = g0; g < g0 + n_group; g++) {
        struct window_pair a = window_pair(in, g, age, -1);
        float s = p->support == SUPPORT_ALL ? 1 : candidates_scale(in, &a);
        method_kernels(in->m)->take_share(row, a.in, in->view.pos, n, a.t_in, s,
                                          g == g0 ? TAKE_FIRST : more);
    }
}

float window_last_scale(const struct score_input *in, int g0, int n_group)
{
    const struct method_params *p = method_params_of(in->m);
    int rows = evidence_rows(in->m, in->layer, g0);
    float scale = p->across == ACROSS_MAX || rows == 0 ? 1 : 1.0f / (float)rows;
    bool mean = p->group == GROUP_MEAN || p->group == GROUP_NONE; /* none: tova has a group still */
    return mean ? scale / (float)n_group : scale;
}

/* The general case: rows scaled one by one, maximum over the window. */
static void reduce_rows(const struct score_input *in, float *out, float *row)
{
    const struct method_params *p = method_params_of(in->m);
    int g0, n_group, n = in->view.n;
    method_group(in->m, in->head, &g0, &n_group);
    int rows = evidence_rows(in->m, in->layer, g0);
    float scale = window_last_scale(in, g0, n_group);
    for (int i = 0; i < n; i++)
        out[i] = 0;
    for (int w = rows - 1; w >= 0; w--) { /* oldest query first */
        reduce_query(in, g0, n_group, w, row);
        take_row(out, row, n, p->across == ACROSS_MAX);
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

/* v[i] = the sum of copy[i - half .. i + half], where all of them exist. */
static void sum_inner(float *v, const float *copy, int n, int half)
{
    for (int i = half; i < n - half; i++)
        v[i] = copy[i - half];
    for (int j = 1 - half; j <= half; j++)
        for (int i = half; i < n - half; i++)
            v[i] += copy[i + j];
}

void window_pool(const struct kernels *k, float *v, float *copy, int n, int width,
                 enum pool_kind kind)
{
    int half = width / 2;
    bool max = kind == POOL_MAX;
    memcpy(copy, v, (size_t)n * sizeof *v);
    if (max)
        k->pool_max(v, copy, n, half);
    else
        sum_inner(v, copy, n, half);
    for (int i = 0; i < n && i < half; i++)
        v[i] = formula_pooled(copy, i, n, half, max); /* neighbours are missing */
    for (int i = n - half > half ? n - half : half; i < n; i++)
        v[i] = formula_pooled(copy, i, n, half, max); /* neighbours are missing */
    for (int i = 0; i < n && !max; i++)
        v[i] /= (float)width;
}

int window_ranks(const struct score_input *in, const float *v, float *out)
{
    int first, m;
    window_candidates(in, &first, &m);
    const int32_t *order = in->view.order + first;
    for (int i = 0; i < m; i++)
        out[i] = v[order[i]];
    return m;
}

int window_pool_ranks(const struct score_input *in, const float *v, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    int m = window_ranks(in, v, out);
    window_pool(method_kernels(in->m), out, scratch, m, p->pool, (enum pool_kind)p->pool_kind);
    return m;
}

void window_pool_candidates(const struct score_input *in, float *v, float *scratch)
{
    int first, m;
    if (method_params_of(in->m)->pool <= 1)
        return;
    window_pool_ranks(in, v, scratch, scratch + in->view.n);
    window_candidates(in, &first, &m);
    for (int i = 0; i < m; i++)
        v[in->view.order[first + i]] = scratch[i];
}

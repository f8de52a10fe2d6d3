/* capacity.c - capacity and sparsity losses of gates on the CPU. */
#include "engine/train/capacity.h"

#include <math.h>

/* Sums are stored per head for a group of heads, then added in order. So the result does not depend
 * on the assignment of heads to threads. */
enum { GROUP = 64, TOKENS = 256 };

struct part {
    double sum;
    int64_t active;
};

struct job {
    const struct capacity *c;
    double scale; /* gradient of the loss by the terms */
    float *sums, *d_log_beta;
    int head0;
    struct part part[GROUP];
};

static int document_end(const int32_t *first, int T, int from)
{
    int end = from + 1;
    while (end < T && first[end] == from)
        end++;
    return end;
}

/* Returns the attention window of a head that is shorter than n tokens; 0: there is none. */
static int short_reach(const int32_t *reach, int head, int n)
{
    return reach && reach[head] < n ? reach[head] : 0;
}

/* Does what the kernel capacity_sums does, with the last `reach` tokens. */
static void reach_sums(float *sums, const float *lb, int n, int reach)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = i < reach ? 0 : i - reach + 1; j <= i; j++)
            sum += exp((double)(i - j) * (double)lb[j]);
        sums[i] = (float)sum;
    }
}

/* Does what the kernel capacity_back does, with the last `reach` tokens. */
static void reach_back(float *d_lb, const float *lb, const float *d_sums, int n, int reach)
{
    for (int j = 0; j < n; j++) { /* rising: d_lb may be d_sums */
        double sum = 0;
        for (int i = j; i < n && i < j + reach; i++)
            sum += (double)d_sums[i] * (i - j) * exp((double)(i - j) * (double)lb[j]);
        d_lb[j] = (float)sum;
    }
}

static void sum_head(void *ctx, int head, int thread)
{
    struct job *b = ctx;
    const struct capacity *c = b->c;
    size_t at = (size_t)head * (size_t)c->T;
    (void)thread;
    for (int from = 0, end; from < c->T; from = end) {
        end = document_end(c->first, c->T, from);
        float *sums = b->sums + at + from;
        const float *lb = c->log_beta + at + from;
        int n = end - from, reach = short_reach(c->reach, head, n);
        if (reach)
            reach_sums(sums, lb, n, reach);
        else
            c->kernels->capacity_sums(sums, lb, n);
    }
}

/* Returns w_i, for one head or, with global, for all heads. */
double capacity_weight(const struct capacity *c, int i)
{
    double heads = c->global ? c->heads : 1, p = i - c->first[i], M = c->M * heads;
    switch (c->norm) {
    case CAPACITY_CODE:
        return 1 / fmax(1, p * heads - M);
    case CAPACITY_T:
        return 1 / ((p + 1) * heads);
    case CAPACITY_FLAT:
        return 1 / fmax(1, c->T * heads - M);
    case CAPACITY_SUM:
        break;
    }
    return 1;
}

double capacity_scale(const struct capacity *c, int64_t active)
{
    double heads = c->global ? 1 : c->heads;
    switch (c->norm) {
    case CAPACITY_CODE:
        return active ? 1 / (double)active : 0;
    case CAPACITY_T:
    case CAPACITY_FLAT:
        return 1 / (heads * c->T);
    case CAPACITY_SUM:
        break;
    }
    return 1 / heads;
}

/* Adds the term of R_i and returns its derivative by R_i. */
static double add_term(struct part *p, double R, double M, double w)
{
    if (!(R > M))
        return 0;
    p->sum += (R - M) * w;
    p->active++;
    return w;
}

static void head_terms(void *ctx, int task, int thread)
{
    struct job *b = ctx;
    const struct capacity *c = b->c;
    int head = b->head0 + task;
    const float *R = b->sums + (size_t)head * (size_t)c->T;
    struct part p = {0};
    sum_head(ctx, head, thread);
    for (int i = 0; i < c->T; i++)
        add_term(&p, (double)R[i], c->M, capacity_weight(c, i));
    b->part[task] = p;
}

/* Computes d_log_beta of the head: first the gradient by its sums (given with global), then that by
 * log beta. */
static void head_back(void *ctx, int head, int thread)
{
    struct job *b = ctx;
    const struct capacity *c = b->c;
    size_t at = (size_t)head * (size_t)c->T;
    float *d = b->d_log_beta + at;
    (void)thread;
    for (int i = 0; i < c->T && !c->global; i++) {
        struct part unused = {0};
        double w = capacity_weight(c, i);
        d[i] = (float)(b->scale * add_term(&unused, (double)b->sums[at + (size_t)i], c->M, w));
    }
    for (int from = 0, end; from < c->T; from = end) {
        end = document_end(c->first, c->T, from);
        const float *lb = c->log_beta + at + from;
        int n = end - from, reach = short_reach(c->reach, head, n);
        if (reach)
            reach_back(d + from, lb, d + from, n, reach);
        else
            c->kernels->capacity_back(d + from, lb, d + from, n);
    }
}

static struct part local_terms(struct job *b, struct par *pool)
{
    struct part all = {0};
    for (b->head0 = 0; b->head0 < b->c->heads; b->head0 += GROUP) {
        int n = b->c->heads - b->head0 < GROUP ? b->c->heads - b->head0 : GROUP;
        par_run(pool, n, head_terms, b);
        for (int i = 0; i < n; i++) {
            all.sum += b->part[i].sum;
            all.active += b->part[i].active;
        }
    }
    return all;
}

/* Sums R of some tokens over all heads. The first row of d_log_beta receives the weight of the
 * positive terms. */
static void add_tokens(struct job *b, int from, int end, struct part *all)
{
    const struct capacity *c = b->c;
    double R[TOKENS] = {0};
    for (int h = 0; h < c->heads; h++)
        for (int i = from; i < end; i++)
            R[i - from] += (double)b->sums[(size_t)h * (size_t)c->T + (size_t)i];
    for (int i = from; i < end; i++)
        b->d_log_beta[i] = (float)add_term(all, R[i - from], c->M * c->heads,
                                           capacity_weight(c, i));
}

static struct part global_terms(struct job *b, struct par *pool)
{
    const struct capacity *c = b->c;
    struct part all = {0};
    par_run(pool, c->heads, sum_head, b);
    for (int from = 0; from < c->T; from += TOKENS)
        add_tokens(b, from, from + TOKENS < c->T ? from + TOKENS : c->T, &all);
    return all;
}

/* Copies the gradient by R to all heads, where it is equal. */
static void spread(struct job *b)
{
    const struct capacity *c = b->c;
    for (int h = c->heads - 1; h >= 0; h--)
        for (int i = 0; i < c->T; i++) {
            double w = (double)b->d_log_beta[i];
            b->d_log_beta[(size_t)h * (size_t)c->T + (size_t)i] = (float)(b->scale * w);
        }
}

double capacity_loss(const struct capacity *c, double weight, float *sums, float *d_log_beta,
                     struct par *pool)
{
    struct job b = {.c = c, .sums = sums, .d_log_beta = d_log_beta};
    struct part all = c->global ? global_terms(&b, pool) : local_terms(&b, pool);
    double scale = capacity_scale(c, all.active);
    b.scale = weight * scale;
    if (c->global)
        spread(&b);
    par_run(pool, c->heads, head_back, &b);
    return scale * all.sum;
}

struct sparsity_job {
    const struct sparsity *s;
    double scale;
    float *d_g;
    int head0;
    double part[GROUP];
};

/* Returns o of token i in a document that ends at `end`; end - i is n - p. reach: the attention
 * window of the layer, or 0. */
static double offset_of(const struct sparsity *s, int i, int end, int reach)
{
    int left = reach && reach < end - i ? reach : end - i;
    return s->offset ? fmin(1, (double)s->window / left) : 0;
}

void sparsity_offsets(const struct sparsity *s, double *o)
{
    for (int from = 0, end; from < s->T; from = end) {
        end = document_end(s->first, s->T, from);
        for (int i = from; i < end; i++)
            o[i] = offset_of(s, i, end, 0);
    }
}

static void sparsity_head(void *ctx, int task, int thread)
{
    struct sparsity_job *b = ctx;
    const struct sparsity *s = b->s;
    int head = b->head0 + task, reach = s->reach ? s->reach[head] : 0;
    size_t at = (size_t)head * (size_t)s->T;
    double sum = 0;
    (void)thread;
    for (int from = 0, end; from < s->T; from = end) {
        end = document_end(s->first, s->T, from);
        for (int i = from; i < end; i++) {
            double left = 1 - (double)s->g[at + (size_t)i], o = offset_of(s, i, end, reach);
            sum += o + (1 - o) * (1 - left * left);
            b->d_g[at + (size_t)i] = (float)(b->scale * (1 - o) * 2 * left);
        }
    }
    b->part[task] = sum;
}

double sparsity_loss(const struct sparsity *s, double weight, float *d_g, struct par *pool)
{
    double sum = 0, cells = (double)s->heads * s->T;
    struct sparsity_job b = {.s = s, .scale = weight / cells, .d_g = d_g};
    for (b.head0 = 0; b.head0 < s->heads; b.head0 += GROUP) {
        int n = s->heads - b.head0 < GROUP ? s->heads - b.head0 : GROUP;
        par_run(pool, n, sparsity_head, &b);
        for (int i = 0; i < n; i++)
            sum += b.part[i];
    }
    return sum / cells;
}

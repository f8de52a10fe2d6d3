/* attention_of.h - random attention inputs over a ragged cache on the device, and the expected
 * results from the equation in double precision. */
#ifndef KVF_TESTS_CUDA_ATTENTION_OF_H
#define KVF_TESTS_CUDA_ATTENTION_OF_H

#include "tests/cuda/cache_of.h"

enum { MOST_CASE_HEADS = 400 };
struct attention_case {
    const char *what;
    int heads, group, D, T;
    int n[MOST_CASE_HEADS];
    enum kv_type type;
    float cap;
    int window;     /* queries for which most entries stay cached; 0: all entries stay */
    bool retention; /* weights decay with age */
    int page;       /* entries per page; each query reads the chosen pages only. 0: all entries */
    bool halves;    /* queries are rounded to f16 */
    bool stay;      /* the device gets no expiry times: no entry expires */
};

struct setting {
    const struct attention_case *a;
    struct cache_of k;
    struct gpu_attention in;
    float *q, *log_beta, *out, *p; /* out [T][G * D], p [G][T][ld_slot]: expected values */
    float *span;                   /* same shape as out: sums of p |v| */
    double *lse, *entropy, *reach; /* [G][T]; reach: maximum of the sum of |scale q k| */
    int32_t *seen;
    unsigned char *chosen; /* [G][64]: pages that each query head reads */
    int32_t *page;
};

static inline bool sees(const struct setting *s, int g, int r, int i)
{
    int h = g / s->a->group, n = s->k.n[h] - (s->a->T - 1 - r);
    if (i >= n || s->k.until[h * s->k.ld_slot + i] <= s->in.pos0 + r)
        return false;
    return s->a->page == 0 || s->chosen[g * 64 + i / s->a->page];
}

/* Computes the expected row of query head g at query r by the equations in attention.c. */
static inline void right_row(struct setting *s, int g, int r)
{
    int h = g / s->a->group, D = s->a->D, n = s->k.n[h] - (s->a->T - 1 - r);
    size_t at = (size_t)(g * s->a->T + r);
    float *p = s->p + at * (size_t)s->k.ld_slot;
    float *out = s->out + (size_t)r * s->in.ld_out + (size_t)(g * D);
    float *span = s->span + (out - s->out);
    double top = -INFINITY, sum = 0, *x = NEW(double, (size_t)n);
    for (int i = 0; i < n; i++) {
        x[i] = -INFINITY;
        if (!sees(s, g, r, i))
            continue;
        double dot = 0, reach = 0;
        for (int d = 0; d < D; d++) {
            double x = (double)s->q[(size_t)r * s->in.ld_q + (size_t)(g * D + d)]
                       * (double)cache_of_get(&s->k, h, i, d, false);
            dot += x;
            reach += fabs(x) * (double)s->in.scale;
        }
        s->reach[at] = fmax(s->reach[at], reach);
        x[i] = dot * (double)s->in.scale;
        if (s->in.cap > 0)
            x[i] = (double)s->in.cap * tanh(x[i] / (double)s->in.cap);
        if (s->log_beta)
            x[i] += (s->in.pos0 + r - s->k.pos[h * s->k.ld_slot + i])
                    * (double)s->log_beta[h * s->k.ld_slot + i];
        top = fmax(top, x[i]);
        s->seen[at]++;
    }
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - top);
    s->lse[at] = top + log(sum);
    for (int i = 0; i < n; i++) {
        double w = exp(x[i] - s->lse[at]);
        p[i] = (float)w;
        s->entropy[at] -= w > 0 ? w * log(w) : 0;
        for (int d = 0; d < D && w > 0; d++) {
            double v = (double)cache_of_get(&s->k, h, i, d, true);
            out[d] += (float)(w * v);
            span[d] += (float)(w * fabs(v));
        }
    }
}

/* Gives three of four entries after the first third of a head an expiry time. Each query still sees
 * its own entry. */
static inline void set_windows(struct gpu *g, struct setting *s, struct rng *r)
{
    size_t n = (size_t)(s->k.heads * s->k.ld_slot);
    int32_t firm[MOST_CASE_HEADS];
    for (int h = 0; h < s->k.heads; h++)
        firm[h] = (s->k.n[h] - s->a->T) / 3;
    s->in.cache.firm = device_copy(g, firm, (size_t)s->k.heads * sizeof *firm);
    for (size_t i = 0; i < n; i++) { /* three of four entries expire at a fixed age */
        int h = (int)(i / (size_t)s->k.ld_slot), slot = (int)(i % (size_t)s->k.ld_slot);
        int age = s->k.n[h] - slot;
        if (slot >= firm[h] && rng_below(r, 4) != 0)
            s->k.until[i] = s->in.pos0 + s->a->T - age + s->a->window;
    }
    for (int h = 0; h < s->k.heads; h++) /* new entries stay for a full window */
        for (int t = 0; t < s->a->T; t++)
            s->k.until[h * s->k.ld_slot + s->k.n[h] - s->a->T + t] = s->in.pos0 + t + s->a->window;
    gpu_put(g, s->k.c.until, s->k.until, n * 4);
}

static inline void set_pages(struct gpu *g, struct setting *s, struct rng *r)
{
    int heads = s->a->heads * s->a->group;
    s->chosen = host_alloc((size_t)heads * 64, 1);
    s->page = NEW(int32_t, (size_t)s->a->heads);
    for (int h = 0; h < s->a->heads; h++)
        s->page[h] = s->a->page;
    for (int i = 0; i < heads; i++) {
        for (int p = 0; p < 64; p++)
            s->chosen[i * 64 + p] = rng_below(r, 3) == 0;
        s->chosen[i * 64 + (s->k.n[i / s->a->group] - 1) / s->a->page] = 1;
    }
    s->in.page = device_copy(g, s->page, (size_t)s->a->heads * 4);
    s->in.chosen = device_copy(g, s->chosen, (size_t)heads * 64);
    s->in.ld_chosen = 64;
}

static inline struct setting prepare(struct gpu *g, const struct attention_case *a, struct rng *r)
{
    struct setting s = {.a = a, .k = cache_of_random(g, r, a->heads, a->n, a->D, a->type)};
    int G = a->heads * a->group;
    size_t odd = (size_t)(a->T % 2), ld_q = (size_t)(G * a->D) + 4 - odd, rows = (size_t)(G * a->T);
    size_t n_beta = (size_t)(a->heads * s.k.ld_slot);
    s.q = NEW(float, ld_q *(size_t)a->T);
    fill(r, s.q, ld_q * (size_t)a->T, 1);
    if (a->halves)
        for (size_t i = 0; i < ld_q * (size_t)a->T; i++)
            s.q[i] = half_to_float(float_to_half(s.q[i]));
    s.in = (struct gpu_attention){.cache = s.k.c,
                                  .ld_q = ld_q,
                                  .ld_out = (size_t)(G * a->D) + 2 - odd,
                                  .n_heads = G,
                                  .T = a->T,
                                  .pos0 = a->n[0] + 7 - a->T,
                                  .scale = 0.3f,
                                  .cap = a->cap};
    s.in.q = device_copy(g, s.q, ld_q * (size_t)a->T * 4);
    s.out = NEW(float, s.in.ld_out *(size_t)a->T);
    s.in.out = device_copy(g, s.out, s.in.ld_out * (size_t)a->T * 4);
    s.span = NEW(float, s.in.ld_out *(size_t)a->T);
    s.reach = NEW(double, rows);
    s.p = NEW(float, rows *(size_t)s.k.ld_slot);
    s.lse = NEW(double, rows);
    s.entropy = NEW(double, rows);
    s.seen = NEW(int32_t, rows);
    if (a->stay)
        s.in.cache.until = NULL;
    if (a->window)
        set_windows(g, &s, r);
    if (a->page)
        set_pages(g, &s, r);
    if (a->retention) {
        s.log_beta = NEW(float, n_beta);
        for (size_t i = 0; i < n_beta; i++)
            s.log_beta[i] = (float)(-0.1 * rng_uniform(r));
        s.in.log_beta = device_copy(g, s.log_beta, n_beta * 4);
    }
    return s;
}

/* Computes the expected output, weights, entropy and log-sum-exp of all queries. */
static inline void set_right(struct setting *s)
{
    for (int i = 0; i < s->in.n_heads; i++)
        for (int t = 0; t < s->a->T; t++)
            right_row(s, i, t);
}

#endif

/* naive.h - gated attention by the equations in docs/reference/gates.md, in double precision with T
 * x T matrices, and the cases that the suites share. */
#ifndef KVF_TESTS_NAIVE_H
#define KVF_TESTS_NAIVE_H

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/train/attention.h"
#include "tests/scoped.h"

struct shape {
    int T, G, H, D;
    enum gating gating;
    int window;
    double least;    /* gates lie in [least, 0] */
    int document[4]; /* lengths of the first documents; 0: the rest is one document */
};

/* A problem. The code's inputs are floats. All arrays here are dense doubles: q [T, G * D], k, v
 * [T, H * D], gate [T, H], and out and lse in the shapes of the code. */
struct problem {
    struct shape s;
    size_t nq, nk, ng; /* elements of q; of k and of v; of gate */
    int32_t *first;
    double scale, *q, *k, *v, *gate, *c; /* loss: sum of c * out */
    double *out, *lse, *d_q, *d_k, *d_v, *d_gate;
    double *m_q, *m_k, *m_v, *m_gate; /* sums of the magnitudes of the terms of each derivative */
};

static inline double as_float(double x)
{
    return (double)(float)x;
}

static inline double *normals(struct rng *r, size_t n, double scale)
{
    double *x = MEM_NEW(double, n);
    for (size_t i = 0; i < n; i++)
        x[i] = as_float(scale * rng_normal(r));
    return x;
}

static inline void lay_documents(struct problem *p)
{
    int t = 0, start = 0;
    for (int i = 0; i < 4 && p->s.document[i]; i++)
        for (start = t; t < p->s.T && t < start + p->s.document[i]; t++)
            p->first[t] = start;
    for (start = t; t < p->s.T; t++)
        p->first[t] = start;
}

static inline void problem_init(struct problem *p, struct shape s, struct rng *r)
{
    size_t T = (size_t)s.T, D = (size_t)s.D, nq = T * (size_t)s.G * D;
    size_t nk = T * (size_t)s.H * D, ng = T * (size_t)s.H;
    *p = (struct problem){.s = s,
                          .nq = nq,
                          .nk = nk,
                          .ng = ng,
                          .first = MEM_NEW(int32_t, T),
                          .scale = as_float(1 / sqrt(s.D))};
    lay_documents(p);
    p->q = normals(r, nq, 1.5);
    p->k = normals(r, nk, 1.5);
    p->v = normals(r, nk, 1);
    p->c = normals(r, nq, 1);
    p->gate = MEM_NEW(double, ng);
    for (size_t i = 0; i < ng; i++) { /* some exactly at the limits, most near 0 */
        double u = rng_uniform(r);
        p->gate[i] = u < 0.1 ? 0 : u > 0.95 ? s.least : as_float(s.least * pow(u, 4));
    }
    p->out = MEM_NEW(double, nq);
    p->lse = MEM_NEW(double, T *(size_t)s.G);
    double **sum[] = {&p->d_q, &p->d_k, &p->d_v, &p->d_gate, &p->m_q, &p->m_k, &p->m_v, &p->m_gate};
    for (int i = 0; i < 8; i++)
        *sum[i] = MEM_NEW(double, i % 4 == 0 ? nq : i % 4 == 3 ? ng : nk);
}

static inline void problem_finish(struct problem *p)
{
    void *all[] = {p->first, p->q,   p->k,   p->v,      p->gate, p->c,   p->out, p->lse,
                   p->d_q,   p->d_k, p->d_v, p->d_gate, p->m_q,  p->m_k, p->m_v, p->m_gate};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static inline double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static inline const double *query(const struct problem *p, const double *x, int i, int g)
{
    return x + ((size_t)i * (size_t)p->s.G + (size_t)g) * (size_t)p->s.D;
}

static inline const double *key(const struct problem *p, const double *x, int j, int g)
{
    int h = g / (p->s.G / p->s.H);
    return x + ((size_t)j * (size_t)p->s.H + (size_t)h) * (size_t)p->s.D;
}

/* Returns the logit s'_ij, and its derivatives by s_ij and by the gate of j. */
static inline double logit(const struct problem *p, int g, int i, int j, double *by_s,
                           double *by_gate)
{
    double s = p->scale * dot(query(p, p->q, i, g), key(p, p->k, j, g), p->s.D), n = i - j;
    double z = p->gate[(size_t)j * (size_t)p->s.H + (size_t)(g / (p->s.G / p->s.H))];
    *by_s = 1;
    *by_gate = 0;
    if (p->s.gating == GATING_DECAY) {
        *by_gate = n;
        return s + n * z;
    }
    if (p->s.gating == GATING_LOGIT) {
        *by_s = exp(n * z);
        *by_gate = n * s * *by_s;
        return s * *by_s;
    }
    if (p->s.gating == GATING_WRITE && n >= p->s.window) {
        *by_gate = 1;
        return s + z;
    }
    return s;
}

/* Computes the weights of head g, [T, T], and the lse of each row. */
static inline void weights(const struct problem *p, int g, double *P, double *lse)
{
    int T = p->s.T;
    for (int i = 0; i < T; i++) {
        double *row = P + (size_t)i * (size_t)T, max = -INFINITY, sum = 0, a, b;
        for (int j = 0; j < T; j++) {
            row[j] = j <= i && j >= p->first[i] ? logit(p, g, i, j, &a, &b) : -INFINITY;
            max = fmax(max, row[j]);
        }
        for (int j = 0; j < T; j++)
            sum += exp(row[j] - max);
        lse[i] = max + log(sum);
        for (int j = 0; j < T; j++)
            row[j] = exp(row[j] - lse[i]);
    }
}

/* Computes out and lse; returns the loss. */
static inline double naive_forward(struct problem *p)
{
    int T = p->s.T, D = p->s.D;
    double *P = MEM_NEW(double, (size_t)T *(size_t)T), loss = 0;
    for (int g = 0; g < p->s.G; g++) {
        weights(p, g, P, p->lse + (size_t)g * (size_t)T);
        for (int i = 0; i < T; i++) {
            double *o = p->out + (query(p, p->out, i, g) - p->out);
            memset(o, 0, (size_t)D * sizeof *o);
            for (int j = 0; j < T; j++)
                for (int d = 0; d < D; d++)
                    o[d] += P[i * T + j] * key(p, p->v, j, g)[d];
            loss += dot(o, query(p, p->c, i, g), D);
        }
    }
    mem_free(P);
    return loss;
}

static inline void grow(double *sum, double *size, double x)
{
    *sum += x;
    *size += fabs(x);
}

/* Adds the contribution of the pair (i, j) to the derivatives. all: the row's sum of |P dP|. */
static inline void naive_pair(struct problem *p, int g, int i, int j, double w, double dp,
                              double delta, double all)
{
    double by_s, by_gate, ds = w * (dp - delta), size = w * (fabs(dp) + all);
    logit(p, g, i, j, &by_s, &by_gate);
    size_t q = (size_t)(query(p, p->q, i, g) - p->q), k = (size_t)(key(p, p->k, j, g) - p->k);
    size_t gate = (size_t)j * (size_t)p->s.H + (size_t)(g / (p->s.G / p->s.H));
    p->d_gate[gate] += ds * by_gate;
    p->m_gate[gate] += size * fabs(by_gate);
    for (int d = 0; d < p->s.D; d++) {
        size_t x = q + (size_t)d, y = k + (size_t)d;
        p->d_q[x] += p->scale * ds * by_s * p->k[y];
        p->m_q[x] += p->scale * size * by_s * fabs(p->k[y]);
        p->d_k[y] += p->scale * ds * by_s * p->q[x];
        p->m_k[y] += p->scale * size * by_s * fabs(p->q[x]);
        grow(&p->d_v[y], &p->m_v[y], w * p->c[x]);
    }
}

/* Computes the derivatives of the loss by the chain rule. The forward pass must have run. */
static inline void naive_backward(struct problem *p)
{
    int T = p->s.T, D = p->s.D;
    OWNED(mem_free)
    double *P = MEM_NEW(double, (size_t)T *(size_t)T), *dP = MEM_NEW(double, (size_t)T);
    OWNED(mem_free) double *lse = MEM_NEW(double, (size_t)T);
    for (int g = 0; g < p->s.G; g++) {
        weights(p, g, P, lse);
        for (int i = 0; i < T; i++) {
            double delta = 0, all = 0;
            for (int j = p->first[i]; j <= i; j++) {
                dP[j] = dot(query(p, p->c, i, g), key(p, p->v, j, g), D);
                delta += P[i * T + j] * dP[j];
                all += P[i * T + j] * fabs(dP[j]);
            }
            for (int j = p->first[i]; j <= i; j++)
                naive_pair(p, g, i, j, P[i * T + j], dP[j], delta, all);
        }
    }
}

/* Buffers for the code under test: q, k and v next to each other in rows of ld floats, with
 * derivatives in the same layout. Rows of out also have a gap. */
struct answer {
    size_t ld, ld_out;
    float *in, *d_in, *gate, *out, *d_out, *lse, *d_gate;
};

enum { GAP = 3 };

static inline void answer_init(struct answer *x, const struct problem *p)
{
    size_t T = (size_t)p->s.T, D = (size_t)p->s.D, G = (size_t)p->s.G, H = (size_t)p->s.H;
    x->ld = (G + 2 * H) * D + GAP;
    x->ld_out = G * D + GAP;
    float **all[] = {&x->in, &x->d_in, &x->out, &x->d_out, &x->gate, &x->d_gate, &x->lse};
    size_t n[] = {T * x->ld, T * x->ld, T * x->ld_out, T * x->ld_out, p->ng, p->ng, T * G};
    for (int i = 0; i < 7; i++) {
        *all[i] = MEM_NEW(float, n[i]);
        for (size_t j = 0; j < n[i]; j++) /* NaN marks outputs that must be set */
            (*all[i])[j] = NAN;
    }
    for (size_t t = 0; t < T; t++) {
        for (size_t c = 0; c < G * D; c++) {
            x->in[t * x->ld + c] = (float)p->q[t * G * D + c];
            x->d_out[t * x->ld_out + c] = (float)p->c[t * G * D + c];
        }
        for (size_t c = 0; c < H * D; c++) {
            x->in[t * x->ld + G * D + c] = (float)p->k[t * H * D + c];
            x->in[t * x->ld + (G + H) * D + c] = (float)p->v[t * H * D + c];
        }
        for (size_t h = 0; h < H; h++)
            x->gate[t * H + h] = (float)p->gate[t * H + h];
    }
}

static inline void answer_finish(struct answer *x)
{
    void *all[] = {x->in, x->d_in, x->gate, x->out, x->d_out, x->lse, x->d_gate};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static inline void answer_run(struct answer *x, const struct problem *p, const struct kernels *k,
                              struct par *pool)
{
    size_t D = (size_t)p->s.D, at_k = (size_t)p->s.G * D, at_v = at_k + (size_t)p->s.H * D;
    bool gated = p->s.gating != GATING_NONE;
    struct attention a = {.kernels = k,
                          .T = p->s.T,
                          .n_heads = p->s.G,
                          .n_kv_heads = p->s.H,
                          .D = p->s.D,
                          .scale = (float)p->scale,
                          .gating = p->s.gating,
                          .window = p->s.window,
                          .q = x->in,
                          .k = x->in + at_k,
                          .v = x->in + at_v,
                          .ld = x->ld,
                          .first = p->first,
                          .gate = gated ? x->gate : NULL};
    struct attention_grads g = {.out = x->out,
                                .d_out = x->d_out,
                                .ld_out = x->ld_out,
                                .lse = x->lse,
                                .d_q = x->d_in,
                                .d_k = x->d_in + at_k,
                                .d_v = x->d_in + at_v,
                                .d_gate = gated ? x->d_gate : NULL};
    size_t bytes = attention_scratch(&a, par_threads(pool));
    OWNED(mem_free) void *scratch = mem_alloc(bytes, 1);
    memset(scratch, 0xff, bytes); /* scratch starts as NaN too */
    attention_forward(&a, x->out, x->ld_out, x->lse, pool, scratch);
    memset(scratch, 0xff, bytes);
    attention_backward(&a, &g, pool, scratch);
}

#endif

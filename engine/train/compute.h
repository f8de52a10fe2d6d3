/* compute.h - what every part of training computes with: kernels, threads, and matrix
 * products split over them.  Results do not depend on the number of threads. */
#ifndef KVF_ENGINE_TRAIN_COMPUTE_H
#define KVF_ENGINE_TRAIN_COMPUTE_H

#include <stddef.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

struct compute {
    struct kernels k;
    struct par *pool; /* borrowed; NULL: the caller alone */
};

/* Matrix products write whole panels: rows of their results have this many floats. */
size_t padded(int n);

/* out[t, :] = W x[t, :] for T rows; ld_out >= padded(w->N). */
void product(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
             const struct packed *w);

/* Runs fn on blocks of rows [t0, t0 + n) that cover T rows. */
typedef void (*rows_fn)(void *ctx, int t0, int n, int thread);
void each_rows(const struct compute *c, int T, rows_fn fn, void *ctx);
enum { ROWS_AT_ONCE = 32 }; /* most rows of a block */

/* dw [N, K] += dy^T x: the derivative by W of y = W x, rows in rising order. */
void outer(const struct compute *c, float *dw, const float *dy, size_t ld_dy, int N, const float *x,
           size_t ld_x, int K, int T);

/* Derivatives by what a norm gave: T rows of `heads` vectors, ld floats between rows. */
struct norm_rows {
    const float *dy;
    size_t ld;
    int T, heads;
};
/* dw [n] += sum of dy_c x_c / rms(x) over rows and heads, in order; x: rows ld_x apart. */
void norm_learn(float *dw, const float *x, size_t ld_x, const struct norm_rows *dy, int n,
                float eps);

/* The packs of W [N, K] and of its transpose, whose memory stays while W changes. */
struct both_ways {
    struct packed to, back; /* y = W x; dx = W^T dy */
};
int both_ways_create(int N, int K, struct both_ways *ret); /* KVF_OK or KVF_E_NOMEM */
void both_ways_fill(struct both_ways *b, const float *w);
void both_ways_finish(struct both_ways *b); /* accepts a zeroed struct */

#endif

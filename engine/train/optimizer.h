/* optimizer.h - AdamW and its learning-rate schedules (Loshchilov and Hutter 2019).
 *
 * Step t = 1, 2, ...:  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
 *     w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w)
 *
 * Gradients are first clipped to a norm (0: no clipping). */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Learning-rate schedules. */
enum schedule {
    SCHEDULE_CONSTANT, /* warm-up, then lr */
    SCHEDULE_COSINE,   /* warm-up, then half a cosine from lr to least */
    SCHEDULE_WSD       /* warm-up, lr, then over the last `decay_share` linearly to least */
};

/* Options of the optimizer. */
struct optimizer {
    double lr, min_lr, beta1, beta2, eps, decay, clip;
    enum schedule schedule;
    int64_t warmup, steps; /* steps: length of the run */
    double decay_share;    /* fraction of `steps`, SCHEDULE_WSD */
};

/* Returns the learning rate of step t (from 1). Warm-up is linear: lr t / warmup for t <=
 * warmup. */
double optimizer_rate(const struct optimizer *o, int64_t t);

/* Returns the Euclidean norm of g, summed in double in order. */
double optimizer_norm(const float *g, size_t n);

/* Makes one step on n parameters. g is multiplied by min(1, clip / norm). */
void optimizer_step(const struct optimizer *o, int64_t t, double norm, const float *g, float *w,
                    float *m, float *v, size_t n);

/* The factors of a step (optimizer.c has the equation). */
struct optimizer_scalars {
    float rate, eps, decay, b1, a1, b2, a2, scale; /* a1 = 1 - b1, a2 = 1 - b2 */
};
struct optimizer_scalars optimizer_scalars(const struct optimizer *o, int64_t t, double norm);

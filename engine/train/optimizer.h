/* optimizer.h - AdamW and its learning rate (Loshchilov and Hutter 2019).
 *
 * step t = 1, 2, ...:  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
 *     w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w)
 * Gradients are clipped to a norm before (0: not). */
#ifndef KVF_ENGINE_TRAIN_OPTIMIZER_H
#define KVF_ENGINE_TRAIN_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

enum schedule {
    SCHEDULE_CONSTANT, /* warm-up, then lr */
    SCHEDULE_COSINE,   /* warm-up, then half a cosine from lr to least */
    SCHEDULE_WSD       /* warm-up, stable, and over the last `decay_share` linearly to least */
};

struct optimizer {
    double lr, least_lr, beta1, beta2, eps, decay, clip;
    enum schedule schedule;
    int64_t warmup, steps; /* steps: of the whole run */
    double decay_share;    /* of `steps`, SCHEDULE_WSD */
};

/* The rate of step t (from 1): linear warm-up lr t / warmup for t <= warmup. */
double optimizer_rate(const struct optimizer *o, int64_t t);

/* Euclidean norm of g, summed in double in order. */
double optimizer_norm(const float *g, size_t n);

/* Makes one step on n parameters; g is scaled by min(1, clip / norm) on the way. */
void optimizer_step(const struct optimizer *o, int64_t t, double norm, const float *g, float *w,
                    float *m, float *v, size_t n);

/* What a step multiplies with (optimizer.c has the equation). */
struct optimizer_scalars {
    float rate, eps, decay, b1, a1, b2, a2, scale; /* a1 = 1 - b1, a2 = 1 - b2 */
};
struct optimizer_scalars optimizer_scalars(const struct optimizer *o, int64_t t, double norm);

#endif

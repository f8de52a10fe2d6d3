/* optimizer.c - learning-rate schedules and the AdamW step. */
#include <math.h>

#include "engine/train/optimizer.h"

static double cosine(const struct optimizer *o, int64_t t)
{
    int64_t rest = o->steps - o->warmup;
    double p = rest > 0 ? (double)(t - o->warmup) / (double)rest : 1;
    p = p < 1 ? p : 1;
    return o->min_lr + (o->lr - o->min_lr) * 0.5 * (1 + cos(acos(-1.0) * p));
}

static double stable_then_linear(const struct optimizer *o, int64_t t)
{
    double length = o->decay_share * (double)o->steps;
    double left = (double)(o->steps - t); /* 0 at the last step: minimum rate */
    if (left >= length && t < o->steps)
        return o->lr;
    return left > 0 ? o->min_lr + (o->lr - o->min_lr) * left / length : o->min_lr;
}

double optimizer_rate(const struct optimizer *o, int64_t t)
{
    if (t <= o->warmup)
        return o->lr * (double)t / (double)o->warmup;
    switch (o->schedule) {
    case SCHEDULE_COSINE:
        return cosine(o, t);
    case SCHEDULE_WSD:
        return stable_then_linear(o, t);
    case SCHEDULE_CONSTANT:
        break;
    }
    return o->lr;
}

double optimizer_norm(const float *g, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    return sqrt(sum);
}

/* Combines the corrections of step t into factors:
 *
 *     lr m / c1 / (sqrt(v / c2) + eps) = (lr sqrt(c2) / c1) m / (sqrt(v) + eps sqrt(c2)). */
struct optimizer_scalars optimizer_scalars(const struct optimizer *o, int64_t t, double norm)
{
    double lr = optimizer_rate(o, t), root = sqrt(1 - pow(o->beta2, (double)t));
    return (struct optimizer_scalars){
        .rate = (float)(lr * root / (1 - pow(o->beta1, (double)t))),
        .eps = (float)(o->eps * root),
        .decay = (float)(lr * o->decay),
        .b1 = (float)o->beta1,
        .a1 = (float)(1 - o->beta1),
        .b2 = (float)o->beta2,
        .a2 = (float)(1 - o->beta2),
        .scale = o->clip > 0 && norm > o->clip ? (float)(o->clip / norm) : 1.0f};
}

void optimizer_step(const struct optimizer *o, int64_t t, double norm, const float *g, float *w,
                    float *m, float *v, size_t n)
{
    const struct optimizer_scalars s = optimizer_scalars(o, t, norm);
    for (size_t i = 0; i < n; i++) {
        float x = g[i] * s.scale;
        m[i] = s.b1 * m[i] + s.a1 * x;
        v[i] = s.b2 * v[i] + s.a2 * (x * x);
        w[i] -= s.rate * m[i] / (sqrtf(v[i]) + s.eps) + s.decay * w[i];
    }
}

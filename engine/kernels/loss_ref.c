/* loss_ref.c - the C reference of the kernels of training losses. */
#include <math.h>

#include "engine/kernels/kernels_ref.h"

void capacity_sums_ref(float *sums, const float *lb, int n)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j <= i; j++)
            sum += exp((double)(i - j) * (double)lb[j]);
        sums[i] = (float)sum;
    }
}

void capacity_back_ref(float *d_lb, const float *lb, const float *d_sums, int n)
{
    for (int j = 0; j < n; j++) { /* rising: d_sums[j] is not needed once d_lb[j] is written */
        double sum = 0;
        for (int i = j; i < n; i++)
            sum += (double)d_sums[i] * (i - j) * exp((double)(i - j) * (double)lb[j]);
        d_lb[j] = (float)sum;
    }
}

static float row_max(const float *x, int n)
{
    float max = x[0];
    for (int i = 1; i < n; i++)
        max = fmaxf(max, x[i]);
    return max;
}

void kl_part_ref(struct kl_part *out, const float *s, const float *t, int n)
{
    *out = (struct kl_part){.top_s = row_max(s, n), .top_t = t ? row_max(t, n) : 0};
    for (int i = 0; i < n; i++) {
        double ds = (double)s[i] - (double)out->top_s, es = exp(ds);
        out->sum_s += es;
        if (!t)
            continue;
        double dt = (double)t[i] - (double)out->top_t, et = exp(dt);
        out->sum_t += et;
        out->cross_s += es * (ds - dt);
        out->cross_t += et * (dt - ds);
    }
}

void kl_back_ref(float *out, const float *s, const float *t, int n, const struct kl_coef *c)
{
    const int both = c->reverse != 0 || c->forward != 0;
    for (int i = 0; i < n; i++) {
        double ds = (double)s[i] - (double)c->top_s, slope = (double)c->self, other = 0;
        if (both) {
            double dt = (double)t[i] - (double)c->top_t;
            slope += (double)c->reverse * (ds - dt - (double)c->shift);
            other = (double)c->forward * exp(dt);
        }
        out[i] = (float)(exp(ds) * slope - other);
    }
}

/* kernels_ref_train.c - the reference of the kernels that only training uses. */
#include <math.h>

#include "engine/kernels/kernels_ref.h"

void tile_mul_ref(const struct tile_product *p)
{
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            float *c = &p->c[(size_t)i * p->ld_c + (size_t)j];
            float sum = p->add ? *c : 0;
            for (int k = 0; k < p->k; k++)
                sum = fmaf(p->a[(size_t)i * p->a_row + (size_t)k * p->a_col],
                           p->b[(size_t)k * p->ld_b + (size_t)j], sum);
            *c = sum;
        }
}

void add_aged_ref(float *y, const float *x, int n, int age)
{
    for (int j = 0; j < n; j++)
        y[j] = fmaf((float)(age - j), x[j], y[j]);
}

void exp_aged_ref(float *w, const float *g, int n, int age)
{
    for (int j = 0; j < n; j++)
        w[j] = expf((float)(age - j) * g[j]);
}

float exp_row_ref(float *s, int n, float shift)
{
    float sum = 0;
    for (int j = 0; j < n; j++) {
        s[j] = expf(s[j] - shift);
        sum += s[j];
    }
    return sum;
}

float max_row_ref(const float *s, int n)
{
    float max = s[0];
    for (int j = 1; j < n; j++)
        max = fmaxf(max, s[j]);
    return max;
}

void mul_ref(float *x, const float *y, int n)
{
    for (int j = 0; j < n; j++)
        x[j] *= y[j];
}

void softmax_grad_ref(float *d, const float *p, int n, float mean)
{
    for (int j = 0; j < n; j++)
        d[j] = p[j] * (d[j] - mean);
}

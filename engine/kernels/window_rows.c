/* window_rows.c - the C reference of window_rows.h. */
#include "engine/kernels/kernels_ref.h"

#define WINDOW(name) name##_ref
#include "engine/kernels/window_rows.h"

void pool_max_ref(float *restrict out, const float *restrict x, int n, int half)
{
    for (int i = half; i < n - half; i++) {
        out[i] = x[i - half];
        for (int j = i - half + 1; j <= i + half; j++)
            out[i] = x[j] > out[i] ? x[j] : out[i];
    }
}

static float share_of(const struct window_shares *x, int row, int32_t pos, int i)
{
    float sum = 0;
    for (int g = 0; g < x->n_heads; g++) {
        size_t at = (size_t)(g * x->ring + row);
        float a = x->weight[(size_t)g * x->ld_head + (size_t)row * x->ld + (size_t)i];
        float share = (!x->t || pos <= x->t[at] ? a : 0) * x->scale[2 * at];
        if (g == 0 || (x->max && share > sum))
            sum = share;
        else if (!x->max)
            sum += share;
    }
    return sum;
}

void most_shares_ref(float *restrict out, const struct window_shares *x,
                     const int32_t *restrict pos, int n)
{
    for (int i = 0; i < n; i++)
        for (int age = x->first; age < x->end; age++) {
            int row = (x->newest - age + x->ring) % x->ring;
            float share = share_of(x, row, x->t ? pos[i] : 0, i);
            out[i] = share > out[i] ? share : out[i];
        }
}

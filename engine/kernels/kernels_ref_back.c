/* kernels_ref_back.c - gradients of the kernels that work along a token's channels. */
#include <math.h>

#include "engine/kernels/kernels_ref.h"

void swiglu_back_ref(float *d_gate, float *d_up, const float *gate, const float *up,
                     const float *d_out, int n)
{
    for (int i = 0; i < n; i++) {
        float g = gate[i], d = d_out[i], s = 1.0f / (1.0f + expf(-g));
        d_gate[i] = d * up[i] * (s * (1.0f + g * (1.0f - s)));
        d_up[i] = d * (g * s);
    }
}

/* gelu(g) = g s with s = (1 + th) / 2 and th = tanh(a (g + b g^3)), so its slope is
 * s + g (1 - th^2) a (1 + 3 b g^2) / 2. */
void geglu_back_ref(float *d_gate, float *d_up, const float *gate, const float *up,
                    const float *d_out, int n)
{
    const float a = 0.7978845608f, b = 0.044715f;
    for (int i = 0; i < n; i++) {
        float g = gate[i], d = d_out[i], th = tanhf(a * (g + b * g * g * g));
        float slope = (1 + th) / 2 + g / 2 * (1 - th * th) * a * (1 + 3 * b * g * g);
        d_gate[i] = d * up[i] * slope;
        d_up[i] = d * g * (1 + th) / 2;
    }
}

/* With r = 1 / sqrt(mean x^2 + eps), y_c = x_c r w_c:
 *   dL/dx_c = r w_c dy_c - x_c r^3 / C sum_k dy_k w_k x_k. */
void rmsnorm_back_ref(float *dx, const float *x, const float *w, const float *dy, int T, int C,
                      float eps)
{
    for (int t = 0; t < T; t++, x += C, dy += C, dx += C) {
        double square = 0, dot = 0;
        for (int c = 0; c < C; c++) {
            square += (double)x[c] * (double)x[c];
            dot += (double)(dy[c] * w[c]) * (double)x[c];
        }
        double r = 1.0 / sqrt(square / C + (double)eps);
        float scale = (float)r, pull = (float)(r * r * r * dot / C);
        for (int c = 0; c < C; c++)
            dx[c] += scale * (w[c] * dy[c]) - pull * x[c];
    }
}

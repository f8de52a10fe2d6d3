/* back.c - gradients along the channels of a token. */
#include <math.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

void ISA(swiglu_back)(float *d_gate, float *d_up, const float *gate, const float *up,
                      const float *d_out, int n)
{
    const vec one = v_set(1.0f);
    for (int i = 0; i < n; i += W) {
        lanes in = first_lanes(n - i);
        vec g = v_load_in(in, gate + i), u = v_load_in(in, up + i), d = v_load_in(in, d_out + i);
        vec s = v_div(one, v_one_plus_exp_minus(g));
        vec slope = v_fma(g, v_sub(one, s), one);
        v_store_in(in, d_gate + i, v_mul(v_mul(d, u), v_mul(s, slope)));
        v_store_in(in, d_up + i, v_mul(d, v_mul(g, s)));
    }
}

/* With s = sigmoid(2 a (g + b g^3)), the slope of gelu is s (1 + g (1 - s) 2 a (1 + 3 b g^2)). */
void ISA(geglu_back)(float *d_gate, float *d_up, const float *gate, const float *up,
                     const float *d_out, int n)
{
    const vec one = v_set(1.0f), twice = v_set(1.5957691216f), cubic = v_set(0.044715f);
    const vec three = v_set(3 * 0.044715f);
    for (int i = 0; i < n; i += W) {
        lanes in = first_lanes(n - i);
        vec g = v_load_in(in, gate + i), u = v_load_in(in, up + i), d = v_load_in(in, d_out + i);
        vec bent = v_mul(twice, g), square = v_mul(g, g);
        vec s = v_div(one, v_one_plus_exp_minus(v_mul(bent, v_fma(cubic, square, one))));
        vec steep = v_mul(bent, v_fma(three, square, one));
        vec slope = v_fma(steep, v_sub(one, s), one);
        v_store_in(in, d_gate + i, v_mul(v_mul(d, u), v_mul(s, slope)));
        v_store_in(in, d_up + i, v_mul(d, v_mul(g, s)));
    }
}

/* Adds the products of the lower halves, then of the upper halves. */
INLINE wide add_products(wide sum, vec a, vec b)
{
    sum = wide_fma(v_low(a), v_low(b), sum);
    return wide_fma(v_high(a), v_high(b), sum);
}

void ISA(rmsnorm_back)(float *dx, const float *x, const float *w, const float *dy, int T, int C,
                       float eps)
{
    for (int t = 0; t < T; t++, x += C, dy += C, dx += C) {
        wide square = wide_zero(), dot = square;
        for (int c = 0; c < C; c += W) {
            lanes in = first_lanes(C - c);
            vec v = v_load_in(in, x + c), d = v_mul(v_load_in(in, dy + c), v_load_in(in, w + c));
            square = add_products(square, v, v);
            dot = add_products(dot, d, v);
        }
        double r = 1.0 / sqrt(wide_total(square) / C + (double)eps);
        const vec scale = v_set((float)r);
        const vec pull = v_set((float)(r * r * r * wide_total(dot) / C));
        for (int c = 0; c < C; c += W) {
            lanes in = first_lanes(C - c);
            vec d = v_mul(v_load_in(in, dy + c), v_load_in(in, w + c));
            vec sum = v_fma(scale, d, v_load_in(in, dx + c));
            v_store_in(in, dx + c, v_fnma(pull, v_load_in(in, x + c), sum));
        }
    }
}

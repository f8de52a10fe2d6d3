/* elementwise.c - kernels along the channels of a token. */
#include <math.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* Sums of squares of the lower and of the upper halves of vectors. */
struct squares {
    wide lo, hi;
};

INLINE void add_squares(struct squares *s, vec v)
{
    s->lo = wide_fma(v_low(v), v_low(v), s->lo);
    s->hi = wide_fma(v_high(v), v_high(v), s->hi);
}

static double square_sum(const float *x, int C)
{
    struct squares s = {wide_zero(), wide_zero()};
    int c = 0;
    for (; c + W <= C; c += W)
        add_squares(&s, v_load(x + c));
    if (c < C)
        add_squares(&s, v_load_in(first_lanes(C - c), x + c));
    return wide_total(wide_sum(s.lo, s.hi));
}

void ISA(rmsnorm)(float *out, const float *x, const float *w, int T, int C, float eps)
{
    for (int t = 0; t < T; t++, x += C, out += C) {
        double mean = square_sum(x, C) / C;
        const vec scale = v_set((float)(1.0 / sqrt(mean + (double)eps)));
        for (int c = 0; c < C; c += W) {
            lanes in = first_lanes(C - c);
            vec v = v_mul(v_load_in(in, x + c), scale);
            v_store_in(in, out + c, v_mul(v, v_load_in(in, w + c)));
        }
    }
}

void ISA(rope)(float *x, const float *cos_sin, int n_heads, int D, int n_rot)
{
    int n = n_rot / 2 * 2;
    for (int h = 0; h < n_heads; h++, x += D)
        for (int i = 0; i < n; i += W) {
            lanes in = first_lanes(n - i);
            v_store_in(in, x + i, v_rotate(v_load_in(in, x + i), v_load_in(in, cos_sin + i)));
        }
}

void ISA(swiglu)(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i += W) {
        lanes in = first_lanes(n - i);
        vec g = v_load_in(in, gate + i), u = v_load_in(in, up + i);
        v_store_in(in, out + i, v_mul(v_div(g, v_one_plus_exp_minus(g)), u));
    }
}

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)) */
void ISA(geglu)(float *out, const float *gate, const float *up, int n)
{
    vec twice = v_set(1.5957691216f), cubic = v_set(0.044715f), one = v_set(1.0f);
    for (int i = 0; i < n; i += W) {
        lanes in = first_lanes(n - i);
        vec g = v_load_in(in, gate + i), u = v_load_in(in, up + i);
        vec curve = v_fma(v_mul(cubic, g), g, one); /* 1 + 0.044715 g^2 */
        vec slope = v_one_plus_exp_minus(v_mul(v_mul(twice, g), curve));
        v_store_in(in, out + i, v_mul(v_div(g, slope), u));
    }
}

/* tanh y = 2 / (1 + exp(-2 y)) - 1 */
void ISA(soft_cap)(float *x, int n, float cap)
{
    vec top = v_set(cap), twice = v_set(2.0f);
    for (int i = 0; i < n; i += W) {
        lanes in = first_lanes(n - i);
        vec y = v_div(v_load_in(in, x + i), top);
        vec tanh = v_sub(v_div(twice, v_one_plus_exp_minus(v_mul(twice, y))), v_set(1.0f));
        v_store_in(in, x + i, v_mul(top, tanh));
    }
}

void ISA(add)(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += W) {
        lanes in = first_lanes(n - i);
        v_store_in(in, x + i, v_add(v_load_in(in, x + i), v_load_in(in, y + i)));
    }
}

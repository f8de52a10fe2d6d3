/* rows.c - weights of attention rows, their sums and maxima. */
#include <math.h>
#include <stdbool.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

float ISA(max_row)(const float *s, int n)
{
    const vec lowest = v_set(-INFINITY);
    vec max = lowest;
    for (int i = 0; i < n; i += W)
        max = v_max(max, v_load_or(lowest, first_lanes(n - i), s + i));
    return v_top(max);
}

/* Number of vectors added in float before the sum is added in double. A conversion to double takes
 * two instructions per vector; AVX-512 saves 7 of 8 of them. AVX2 adds each vector in double. This
 * must not change, because the last bits of a run depend on it. */
enum { RUN = KERNELS_AVX512 ? 8 : 1 };

/* Sums over a row: exp(d), and -exp(d) d. */
struct row_sums {
    double exp, moment;
};

/* Computes exp(d), d = s - top; stores it in `to` if `store`. */
INLINE struct row_sums exp_all(float *to, const float *s, int n, float top, const bool store,
                               const bool moments)
{
    const vec shift = v_set(top), least = v_set(EXP_LEAST);
    wide total = wide_zero(), total_m = total;
    for (int i = 0; i < n;) {
        vec sum = v_zero(), moment = sum;
        for (int v = 0; v < RUN && i < n; v++, i += W) {
            lanes in = first_lanes(n - i);
            vec d = v_sub(v_load_in(in, s + i), shift), e = v_exp(d);
            if (store)
                v_store_in(in, to + i, e);
            sum = v_add_in(in, sum, e);
            if (moments) /* avoids infinite d: 0 times it would be NaN */
                moment = v_fnma_in(in, e, v_max(d, least), moment);
        }
        total = wide_add(total, sum);
        if (moments)
            total_m = wide_add(total_m, moment);
    }
    return (struct row_sums){wide_total(total), wide_total(total_m)};
}

float ISA(softmax)(float *s, int n, float *entropy)
{
    float top = ISA(max_row)(s, n);
    struct row_sums sum = entropy ? exp_all(s, s, n, top, true, true)
                                  : exp_all(s, s, n, top, true, false);
    const vec inverse = v_set((float)(1.0 / sum.exp));
    for (int i = 0; i < n; i += W) {
        lanes in = first_lanes(n - i);
        v_store_in(in, s + i, v_mul(v_load_in(in, s + i), inverse));
    }
    double log_sum = log(sum.exp);
    if (entropy)
        *entropy = (float)(log_sum + sum.moment / sum.exp);
    return top + (float)log_sum;
}

float ISA(log_sum_exp)(const float *s, int n)
{
    float top = ISA(max_row)(s, n);
    return top + (float)log(exp_all(NULL, s, n, top, false, false).exp);
}

void ISA(mass_add)(double *sum, float *max, const float *p, int n)
{
    int i = 0;
    for (; i + W <= n; i += W) {
        vec x = v_load(p + i);
        v_add_wide(sum + i, x);
        if (max)
            v_store(max + i, v_max(x, v_load(max + i))); /* a number wins over NaN */
    }
    mass_add_ref(sum + i, max ? max + i : NULL, p + i, n - i);
}

/* Counts in lanes with a constant trip count, which compilers vectorise. */
int ISA(count_below)(const float *p, int n, float bar)
{
    enum { LANES = 32 };
    int lane[LANES] = {0}, count = 0, i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += p[i + j] < bar;
    for (int j = 0; j < LANES; j++)
        count += lane[j];
    return count + count_below_ref(p + i, n - i, bar);
}

enum { AHEAD = 64 }; /* the hardware does not prefetch for many concurrent rows */

/* Processes W columns of all rows; sums and maxima stay in registers. */
INLINE void add_columns(double *sum, float *max, const struct weight_rows *w, size_t i)
{
    wide lo = wide_load(sum + i), hi = wide_load(sum + i + W / 2);
    vec top = v_load(max + i);
    for (int r = 0; r < w->n_rows; r++) {
        const float *p = w->p + (size_t)r * w->ld + i;
        vec x = v_load(p);
        __builtin_prefetch(p + AHEAD);
        lo = wide_sum(lo, v_low(x));
        hi = wide_sum(hi, v_high(x));
        top = v_max(x, top);
    }
    wide_store(sum + i, lo);
    wide_store(sum + i + W / 2, hi);
    v_store(max + i, top);
}

/* Padding of a row is 0 and changes neither sums nor maxima. */
void ISA(mass_add_rows)(double *sum, float *max, const struct weight_rows *w)
{
    int i = 0, n = w->n + w->n_rows - 1;
    for (; i + W <= n; i += W)
        add_columns(sum, max, w, (size_t)i);
    for (int r = 0; r < w->n_rows; r++)
        mass_add_ref(sum + i, max + i, w->p + (size_t)r * w->ld + i, n - i);
}

#if !KERNELS_AVX512
void ISA(mark_rows)(void *const *last, int width, const struct weight_rows *w,
                    const struct row_cut *cut, int n_cuts, uint32_t t)
{
    for (int r = 0; r < w->n_rows; r++)
        for (int c = 0; c < n_cuts; c++)
            ISA(mark)
    (last[c], width, w->p + (size_t)r * w->ld, w->n + r, &cut[r * n_cuts + c], t + (uint32_t)r);
}
#endif

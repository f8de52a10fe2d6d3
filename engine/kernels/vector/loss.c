/* loss.c - kernels of training losses. */
#include <math.h>
#include <stdbool.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* For a square of W * W tokens i = i0 + W v + l, exp((i - j) lb) is the product of a factor of lane
 * l and a factor of vector v. Two exponentials suffice for W vectors. TILE keys j share the sums in
 * registers. */
enum { BLOCK = W * W, TILE = 64 };
#define LEAST_LOG -88.0f /* below it exp is subnormal */

struct factors {
    vec lane, distance;           /* exp(distance * lb); i - j of the lane in vector `start` */
    float by_vector[W];           /* exp(W (v - start) lb); 0 before start */
    float steps[W];               /* W (v - start) by_vector */
    int own;                      /* diagonal: the vector that contains j, start - 1 */
    vec own_weight, own_distance; /* diagonal: exp((i - j) lb), 0 for i < j */
};

/* Computes the factors of a key; ahead = i0 - j is > 0 unless diagonal. Returns false if all
 * factors are 0. */
INLINE bool make_factors(struct factors *f, float lb, int ahead, const bool diagonal)
{
    const vec log_beta = v_set(lb), zero = v_set(0);
    if (!diagonal && (float)ahead * lb < LEAST_LOG)
        return false;
    f->own = diagonal ? -ahead / W : -1;
    int start = f->own + 1;
    f->distance = v_add(v_set((float)(ahead + start * W)), v_index());
    f->lane = v_exp(v_mul(f->distance, log_beta));
    vec step = v_mul(v_sub(v_index(), v_set((float)start)), v_set(W));
    vec weight = v_exp(v_mul(v_max(step, zero), log_beta));
    weight = v_keep(step, weight);
    v_store(f->by_vector, weight);
    v_store(f->steps, v_mul(step, weight));
    if (diagonal) {
        f->own_distance = v_add(v_set((float)(ahead + f->own * W)), v_index());
        vec own = v_exp(v_mul(v_max(f->own_distance, zero), log_beta));
        f->own_weight = v_keep(f->own_distance, own);
    }
    return true;
}

/* Adds the terms of keys [j0, end) to the tokens [i0, i0 + BLOCK). */
INLINE void sums_tile(double *sum, const float *lb, int i0, int j0, int end, const bool diagonal)
{
    vec acc[W];
    UNROLL
    for (int v = 0; v < W; v++)
        acc[v] = v_set(0);
    for (int j = j0; j < end; j++) {
        struct factors f;
        if (!make_factors(&f, lb[j], i0 - j, diagonal))
            continue;
        if (diagonal)
            v_add_wide(sum + f.own * W, f.own_weight);
        UNROLL
        for (int v = 0; v < W; v++)
            acc[v] = v_fma(v_set(f.by_vector[v]), f.lane, acc[v]);
    }
    UNROLL
    for (int v = 0; v < W; v++)
        v_add_wide(sum + v * W, acc[v]);
}

void ISA(capacity_sums)(float *sums, const float *lb, int n)
{
    unsigned mode = flush_begin();
    for (int i0 = 0; i0 < n; i0 += BLOCK) {
        int end = n - i0 < BLOCK ? n : i0 + BLOCK;
        double sum[BLOCK] = {0};
        for (int j = 0; j < i0; j += TILE)
            sums_tile(sum, lb, i0, j, j + TILE, false);
        for (int j = i0; j < end; j += TILE)
            sums_tile(sum, lb, i0, j, end - j < TILE ? end : j + TILE, true);
        for (int i = i0; i < end; i++)
            sums[i] = (float)sum[i - i0];
    }
    flush_end(mode);
}

static bool all_zero(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

/* Adds the terms of tokens [i0, i0 + BLOCK) to the keys [j0, end). With i - j = D + S, D of the
 * lane and S of the vector, sum d (i - j) e = lane (D sum_v d e_v + sum_v d S e_v). */
INLINE void back_tile(wide *sum, const float *lb, const float *d_sums, int n, int i0, int j0,
                      int end, const bool diagonal)
{
    vec d[W];
    UNROLL
    for (int v = 0; v < W; v++)
        d[v] = n - i0 > v * W ? v_load_first(d_sums + i0 + v * W, n - i0 - v * W) : v_set(0);
    for (int j = j0; j < end; j++) {
        struct factors f;
        if (!make_factors(&f, lb[j], i0 - j, diagonal))
            continue;
        vec plain[2] = {v_set(0), v_set(0)}, steps[2] = {v_set(0), v_set(0)};
        UNROLL
        for (int v = 0; v < W; v++) {
            plain[v % 2] = v_fma(v_set(f.by_vector[v]), d[v], plain[v % 2]);
            steps[v % 2] = v_fma(v_set(f.steps[v]), d[v], steps[v % 2]);
        }
        vec inner = v_fma(f.distance, v_add(plain[0], plain[1]), v_add(steps[0], steps[1]));
        vec all = v_mul(f.lane, inner);
        if (diagonal) {
            vec own = v_load_first(d_sums + i0 + f.own * W, n - i0 - f.own * W);
            all = v_fma(v_mul(f.own_distance, f.own_weight), own, all);
        }
        sum[j - j0] = wide_add(sum[j - j0], all);
    }
}

void ISA(capacity_back)(float *d_lb, const float *lb, const float *d_sums, int n)
{
    unsigned mode = flush_begin();
    for (int j0 = 0; j0 < n; j0 += TILE) { /* rising: d_lb may be d_sums */
        int end = n - j0 < TILE ? n : j0 + TILE;
        wide sum[TILE];
        for (int j = 0; j < TILE; j++)
            sum[j] = wide_zero();
        for (int i0 = j0; i0 < n; i0 += BLOCK) {
            if (all_zero(d_sums + i0, n - i0 < BLOCK ? n - i0 : BLOCK))
                continue;
            if (i0 == j0)
                back_tile(sum, lb, d_sums, n, i0, j0, end, true);
            else
                back_tile(sum, lb, d_sums, n, i0, j0, end, false);
        }
        for (int j = j0; j < end; j++)
            d_lb[j] = (float)wide_total(sum[j - j0]);
    }
    flush_end(mode);
}

INLINE float top_of(const float *x, int n)
{
    vec top = v_set(-INFINITY);
    int i = 0;
    for (; i + W <= n; i += W)
        top = v_max(top, v_load(x + i));
    float max = v_top(top);
    for (; i < n; i++)
        max = fmaxf(max, x[i]);
    return max;
}

struct kl_acc {
    vec s, t, cross_s, cross_t;
};

/* Adds the first `left` of W entries. */
INLINE void kl_step(struct kl_acc *a, const float *s, const float *t, int left, vec top_s,
                    vec top_t, const bool both)
{
    const vec in = v_sub(v_set((float)(left - 1)), v_index());
    vec ds = v_sub(v_load_first(s, left), top_s), es = v_keep(in, v_exp(ds));
    a->s = v_add(a->s, es);
    if (!both)
        return;
    vec dt = v_sub(v_load_first(t, left), top_t), et = v_keep(in, v_exp(dt)), d = v_sub(ds, dt);
    a->t = v_add(a->t, et);
    a->cross_s = v_fma(es, d, a->cross_s);
    a->cross_t = v_fma(et, v_sub(dt, ds), a->cross_t);
}

/* Computes the sums: blocks of 8 vectors in float, their totals in double. */
INLINE struct kl_part kl_sums(const float *s, const float *t, int n, const bool both)
{
    struct kl_part p = {.top_s = top_of(s, n), .top_t = both ? top_of(t, n) : 0};
    const vec top_s = v_set(p.top_s), top_t = v_set(p.top_t), zero = v_set(0);
    wide sum_s = wide_zero(), sum_t = sum_s, cross_s = sum_s, cross_t = sum_s;
    for (int i = 0; i < n;) {
        int end = n - i > 8 * W ? i + 8 * W : n;
        struct kl_acc a = {zero, zero, zero, zero};
        for (; i + W <= end; i += W)
            kl_step(&a, s + i, both ? t + i : NULL, W, top_s, top_t, both);
        if (i < end)
            kl_step(&a, s + i, both ? t + i : NULL, end - i, top_s, top_t, both);
        i = end;
        sum_s = wide_add(sum_s, a.s);
        if (!both)
            continue;
        sum_t = wide_add(sum_t, a.t);
        cross_s = wide_add(cross_s, a.cross_s);
        cross_t = wide_add(cross_t, a.cross_t);
    }
    p.sum_s = wide_total(sum_s);
    p.sum_t = wide_total(sum_t);
    p.cross_s = wide_total(cross_s);
    p.cross_t = wide_total(cross_t);
    return p;
}

INLINE vec kl_slope(vec s, vec t, const struct kl_coef *c, const bool reverse, const bool forward)
{
    vec ds = v_sub(s, v_set(c->top_s)), dt = v_sub(t, v_set(c->top_t)), slope = v_set(c->self);
    if (reverse)
        slope = v_fma(v_set(c->reverse), v_sub(v_sub(ds, dt), v_set(c->shift)), slope);
    slope = v_mul(v_exp(ds), slope);
    return forward ? v_sub(slope, v_mul(v_set(c->forward), v_exp(dt))) : slope;
}

INLINE void kl_slopes(float *out, const float *s, const float *t, int n, const struct kl_coef *c,
                      const bool reverse, const bool forward)
{
    const bool both = reverse || forward;
    int i = 0;
    for (; i + W <= n; i += W) {
        vec x = v_load(s + i), y = both ? v_load(t + i) : v_set(0);
        v_store(out + i, kl_slope(x, y, c, reverse, forward));
    }
    if (i < n) {
        vec x = v_load_first(s + i, n - i), y = both ? v_load_first(t + i, n - i) : v_set(0);
        v_store_first(out + i, n - i, kl_slope(x, y, c, reverse, forward));
    }
}

void ISA(kl_part)(struct kl_part *out, const float *s, const float *t, int n)
{
    unsigned mode = flush_begin();
    *out = t ? kl_sums(s, t, n, true) : kl_sums(s, NULL, n, false);
    flush_end(mode);
}

void ISA(kl_back)(float *out, const float *s, const float *t, int n, const struct kl_coef *c)
{
    unsigned mode = flush_begin();
    if (c->reverse != 0)
        kl_slopes(out, s, t, n, c, true, true);
    else if (c->forward != 0)
        kl_slopes(out, s, t, n, c, false, true);
    else
        kl_slopes(out, s, t, n, c, false, false);
    flush_end(mode);
}

/* page_weights.h - attention weights of rows for the values of a page of integers. Private to
 * attention_ints.c and attention_bytes.c.
 *
 * Quantities per row, such as the largest score, are computed for all rows at once. x stays in the
 * L1 cache meanwhile. */
#pragma once

#include "engine/kernels/ints.h"
#include "engine/kernels/vector/vec.h"

enum {
    WEIGHT_ROWS = 32, /* rows that are quantised together */
    PAGE_VECS = PAGE_SLOTS / W,
    LANE_VECS = ATTN_LANES / W
};

INLINE struct row_unit unit_of(const float *x, size_t n, float most)
{
    ints size = i_zero();
    for (size_t i = 0; i < n; i += W)
        size = i_max(size, v_size(v_load(x + i)));
    return row_unit_of((uint32_t)i_top(size), most);
}

/* Scores of rows and derived values. Row r sees `first` + r * grow slots. */
struct page_rows {
    const float *scores;
    size_t ld;
    int rows, first, grow;
    _Alignas(64) float x[WEIGHT_ROWS][PAGE_SLOTS]; /* weights, or weights times scales */
    _Alignas(64) float most[WEIGHT_ROWS][W];       /* partial maxima; their maximum is `size` */
    float top[WEIGHT_ROWS], part[WEIGHT_ROWS];     /* page's maximum; factor of its sums */
    float keep[WEIGHT_ROWS];                       /* factor of the previous sums */
    float size[WEIGHT_ROWS];
};

INLINE int slots_seen(const struct page_rows *p, int r)
{
    int n = p->first + r * p->grow;
    n = n < 0 ? 0 : n;
    return n > PAGE_SLOTS ? PAGE_SLOTS : n;
}

/* Loads vector i of a row of scores; slots from n on are -INFINITY. */
INLINE vec scores_seen(const float *row, int i, const int n)
{
    int left = n > i * W ? n - i * W : 0;
    return n == PAGE_SLOTS ? v_load(row + i * W)
                           : v_load_or(v_set(-INFINITY), first_lanes(left), row + i * W);
}

INLINE void most_of(float *most, const float *row, const int n)
{
    vec top[2] = {v_set(ATTN_LEAST), v_set(ATTN_LEAST)};
    UNROLL
    for (int i = 0; i < PAGE_VECS; i++)
        top[i % 2] = v_max(scores_seen(row, i, n), top[i % 2]);
    v_store(most, v_max(top[0], top[1]));
}

/* Sets the maximum of each row of `most`. */
INLINE void largest_of(float *to, struct page_rows *p)
{
    for (int r = p->rows; r % 4; r++)
        v_store(p->most[r], v_zero());
    for (int r = 0; r < p->rows; r += 4)
        v_tops(to + r, p->most[r], W);
}

/* Returns 2^t as ints.h defines it; NaN counts as the smallest t. */
INLINE vec v_exp2(vec t)
{
    t = v_max(t, v_set(EXP2_LEAST));
    vec n = v_floor(t), r = v_sub(t, n);
    vec p = v_fma(v_set(EXP2_C4), r, v_set(EXP2_C3));
    p = v_fma(p, r, v_set(EXP2_C2));
    p = v_fma(p, r, v_set(EXP2_C1));
    return v_double(v_fma(p, r, v_set(1)), n);
}

/* Updates the maxima of the rows, and the factors of the previous sums and of the page's sums. */
INLINE void tops_of(struct page_rows *p, float *top)
{
    float old[WEIGHT_ROWS];
    for (int r = 0; r < p->rows; r++) {
        int n = slots_seen(p, r);
        const float *row = p->scores + (size_t)r * p->ld;
        if (n == PAGE_SLOTS)
            most_of(p->most[r], row, PAGE_SLOTS);
        else
            most_of(p->most[r], row, n);
    }
    largest_of(p->top, p);
    for (int r = p->rows; r % W; r++)
        p->top[r] = top[p->rows - 1];
    for (int r = 0; r < p->rows; r++)
        old[r] = top[r];
    for (int r = p->rows; r % W; r++)
        old[r] = top[p->rows - 1];
    for (int r = 0; r < p->rows; r += W) {
        vec of_page = v_mul(v_load(p->top + r), v_set(LOG2_E)), before = v_load(old + r);
        vec now = v_max(of_page, before);
        v_store(p->top + r, of_page);
        v_store(old + r, now);
        v_store(p->keep + r, v_exp2(v_sub(before, now)));
        v_store(p->part + r, v_exp2(v_sub(of_page, now)));
    }
    for (int r = 0; r < p->rows; r++)
        top[r] = old[r];
}

/* Loads vector i of the scales of n slots, padded with 0. */
INLINE vec scales_seen(const float *scales, int i, const int n)
{
    int left = n > i * W ? n - i * W : 0;
    return n == PAGE_SLOTS ? v_load(scales + i * W) : v_load_in(first_lanes(left), scales + i * W);
}

/* Computes the weights of row r, adds them to sum, and finds the maximum of weights times scales. x
 * becomes weights times scales, or with `plain` the weights. */
INLINE void weigh(struct page_rows *p, int r, float *sum, const float *scales, const int n,
                  const bool plain)
{
    const float *row = p->scores + (size_t)r * p->ld;
    vec e[PAGE_VECS], top = v_set(-p->top[r]), most = v_zero();
    UNROLL
    for (int i = 0; i < PAGE_VECS; i++) {
        e[i] = v_exp2(v_fma(scores_seen(row, i, n), v_set(LOG2_E), top));
        vec x = v_mul(e[i], scales_seen(scales, i, n));
        v_store(p->x[r] + i * W, plain ? e[i] : x);
        most = v_max(x, most);
    }
    v_store(p->most[r], most);
    UNROLL
    for (int i = 0; i < LANE_VECS; i++) {
        vec a = v_add(e[i], e[LANE_VECS + i]),
            b = v_add(e[2 * LANE_VECS + i], e[3 * LANE_VECS + i]);
        vec before = v_mul(v_load(sum + i * W), v_set(p->keep[r]));
        v_store(sum + i * W, v_fma(v_add(a, b), v_set(p->part[r]), before));
    }
}

/* Runs weigh for all rows; size[r] becomes the maximum of each row. */
INLINE void weigh_all(struct page_rows *p, float *sum, float *top, const float *scales,
                      const bool plain)
{
    tops_of(p, top);
    for (int r = 0; r < p->rows; r++, sum += ATTN_LANES) {
        int n = slots_seen(p, r);
        if (n == PAGE_SLOTS)
            weigh(p, r, sum, scales, PAGE_SLOTS, plain);
        else
            weigh(p, r, sum, scales, n, plain);
    }
    largest_of(p->size, p);
}

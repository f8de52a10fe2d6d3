/* window.c - kernels over attention rows of an observation window. */
#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

#define WINDOW(name) ISA(name)
#include "engine/kernels/window_rows.h"

void ISA(pool_max)(float *restrict out, const float *restrict x, int n, int half)
{
    int i = half;
    for (; i + W <= n - half; i += W) {
        vec most = v_load(x + i - half);
        for (int j = 1 - half; j <= half; j++)
            most = v_max(v_load(x + i + j), most);
        v_store(out + i, most);
    }
    pool_max_ref(out + i - half, x + i - half, n - i + half, half);
}

enum { SHARE_VECS = 4, SHARE_BLOCK = 1024 };

/* Adds the scaled weights of the query of row `row` for N vectors from entry i on; `all`: the query
 * saw every entry. */
INLINE void add_shares(vec sum[SHARE_VECS], const struct window_shares *x, int row,
                       const int32_t *pos, size_t i, const int N, const bool all)
{
    for (int g = 0; g < x->n_heads; g++) {
        size_t at = (size_t)(g * x->ring + row);
        const float *a = x->weight + (size_t)g * x->ld_head + (size_t)row * x->ld + i;
        const vec scale = v_set(x->scale[2 * at]);
        UNROLL
        for (int v = 0; v < N; v++) {
            vec w = all ? v_load(a + v * W) : v_load_seen(a + v * W, pos + i + v * W, x->t[at]);
            vec share = v_mul(w, scale);
            if (g == 0)
                sum[v] = share;
            else
                sum[v] = x->max ? v_max(share, sum[v]) : v_add(sum[v], share);
        }
        for (size_t j = 0; all && x->next && j < (size_t)(N * W); j += 16)
            __builtin_prefetch((const void *)((uintptr_t)(a + j) + x->next * sizeof *a), 0, 2);
    }
}

/* Updates N vectors of maxima from entry i on. */
INLINE void take_most(float *out, const struct window_shares *x, int row, const int32_t *pos,
                      size_t i, const int N, const bool all)
{
    vec sum[SHARE_VECS];
    UNROLL
    for (int v = 0; v < N; v++)
        sum[v] = v_zero();
    add_shares(sum, x, row, pos, i, N, all);
    UNROLL
    for (int v = 0; v < N; v++)
        v_store(out + i + v * W, v_max(sum[v], v_load(out + i + v * W)));
}

/* Processes row by row, so that memory is read in streams, for blocks of entries whose `out` stays
 * in the L1 cache. Returns how many of n entries are done. */
INLINE int most_of_all(float *out, const struct window_shares *x, const int32_t *pos, int n,
                       const bool all)
{
    int whole = n / W * W;
    for (int i0 = 0; i0 < whole; i0 += SHARE_BLOCK) {
        int end = whole - i0 < SHARE_BLOCK ? whole : i0 + SHARE_BLOCK;
        int row = (x->newest - x->first + x->ring) % x->ring;
        for (int age = x->first; age < x->end; age++, row = (row > 0 ? row : x->ring) - 1) {
            int i = i0;
            for (; i + SHARE_VECS * W <= end; i += SHARE_VECS * W)
                take_most(out, x, row, pos, (size_t)i, SHARE_VECS, all);
            for (; i < end; i += W)
                take_most(out, x, row, pos, (size_t)i, 1, all);
        }
    }
    return whole;
}

void ISA(most_shares)(float *restrict out, const struct window_shares *x,
                      const int32_t *restrict pos, int n)
{
    int i = x->t ? most_of_all(out, x, pos, n, false) : most_of_all(out, x, pos, n, true);
    struct window_shares rest = *x;
    rest.weight += i;
    most_shares_ref(out + i, &rest, x->t ? pos + i : NULL, n - i);
}

/* train.c - tile products and rows of gated attention for training. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* The sums of a block stay in registers; AVX-512 has twice as many. */
enum { ROWS = 4, VECS = KERNELS_AVX512 ? 4 : 2 };

/* R rows from i times N vectors of columns from j. The last vector has `left` columns, a
 * compile-time constant if all are full. */
INLINE void tile_block(const struct tile_product *p, int i, int j, const int left, const int R,
                       const int N)
{
    vec sum[ROWS][VECS];
    float *c = p->c + (size_t)i * p->ld_c + (size_t)j;
    const float *a = p->a + (size_t)i * p->a_row, *b = p->b + j;
#define LEFT(v) ((v) < N - 1 ? W : left)
    UNROLL
    for (int k = 0; k < R * N; k++) {
        int r = k / N, v = k % N;
        sum[r][v] = p->add ? v_load_first(c + (size_t)r * p->ld_c + v * W, LEFT(v)) : v_zero();
    }
    for (int k = 0; k < p->k; k++, a += p->a_col, b += p->ld_b) {
        vec x[VECS];
        UNROLL
        for (int v = 0; v < N; v++)
            x[v] = v_load_first(b + v * W, LEFT(v));
        UNROLL
        for (int r = 0; r < R; r++) {
            vec y = v_set(a[(size_t)r * p->a_row]);
            UNROLL
            for (int v = 0; v < N; v++)
                sum[r][v] = v_fma(y, x[v], sum[r][v]);
        }
    }
    UNROLL
    for (int k = 0; k < R * N; k++) {
        int r = k / N, v = k % N;
        v_store_first(c + (size_t)r * p->ld_c + v * W, LEFT(v), sum[r][v]);
    }
#undef LEFT
}

/* All rows times N vectors of columns from j. */
INLINE void tile_strip(const struct tile_product *p, int j, const int left, const int N)
{
    int i = 0;
    for (; i + ROWS <= p->m; i += ROWS)
        tile_block(p, i, j, left, ROWS, N);
    for (; i < p->m; i++)
        tile_block(p, i, j, left, 1, N);
}

void ISA(tile_mul)(const struct tile_product *p)
{
    int j = 0;
    for (; p->n - j >= VECS * W; j += VECS * W)
        tile_strip(p, j, W, VECS);
    int rest = p->n - j;
    if (VECS == 4 && rest > 3 * W)
        tile_strip(p, j, rest - 3 * W, VECS);
    else if (VECS == 4 && rest > 2 * W)
        tile_strip(p, j, rest - 2 * W, VECS - 1);
    else if (rest > W)
        tile_strip(p, j, rest - W, 2);
    else if (rest > 0)
        tile_strip(p, j, rest, 1);
}

void ISA(add_aged)(float *y, const float *x, int n, int age)
{
    for (int j = 0; j < n; j += W) {
        vec sum = v_load_first(y + j, n - j);
        v_store_first(y + j, n - j, v_fma(v_count_down(age - j), v_load_first(x + j, n - j), sum));
    }
}

void ISA(exp_aged)(float *w, const float *g, int n, int age)
{
    for (int j = 0; j < n; j += W)
        v_store_first(w + j, n - j,
                      v_exp(v_mul(v_count_down(age - j), v_load_first(g + j, n - j))));
}

float ISA(exp_row)(float *s, int n, float shift)
{
    vec sum = v_zero();
    for (int j = 0; j < n; j += W) {
        vec x = v_sub(v_load_first(s + j, n - j), v_set(shift));
        vec e = v_only(first_lanes(n - j), v_exp(x));
        v_store_first(s + j, n - j, e);
        sum = v_add(sum, e);
    }
    return v_total(sum);
}

void ISA(mul)(float *x, const float *y, int n)
{
    int j = 0;
    for (; j + W <= n; j += W)
        v_store(x + j, v_mul(v_load(x + j), v_load(y + j)));
    if (j < n)
        v_store_first(x + j, n - j, v_mul(v_load_first(x + j, n - j), v_load_first(y + j, n - j)));
}

void ISA(softmax_grad)(float *d, const float *p, int n, float mean)
{
    for (int j = 0; j < n; j += W) {
        vec x = v_sub(v_load_first(d + j, n - j), v_set(mean));
        v_store_first(d + j, n - j, v_mul(v_load_first(p + j, n - j), x));
    }
}

/* matmul_bytes.h - products with packed bytes in tiles of TILE_ROWS rows by a panel, which is two
 * vectors of 8 outputs.  Integer sums are exact and the floats follow the reference, so all sets
 * give its bits.  Included by one file per instruction set, which defines before:
 *     TILE_ROWS, NAME(matmul_q)
 *     ints, ints_to_floats(x), ints_plus(x, i)
 *                                 8 integers of 32 bits; the same as a vec; and i more of each
 *     struct block {q, ld, hi_alone ..}
 *                                 one block of R rows: their bytes, ld apart, and what prepare adds
 *     prepare(x, R, bits)
 *     dot_panel(sum, w, x, R, bits, g0, g1)
 *                                 sum[r][half]: exact dot products of the groups [g0, g1) of 4
 *                                 channels of a block at w with the R rows of x */
#ifndef KVF_ENGINE_MATMUL_BYTES_H
#define KVF_ENGINE_MATMUL_BYTES_H

#include "engine/kernels/vector/forms.h"

/* d and m of part h of block `at` for the 8 outputs from `first` on; fine: w->n_fine. */
INLINE void factors(vec *d, vec *m, const struct packed *w, size_t at, size_t first, int h,
                    const int fine)
{
    const size_t step = w->lowest ? PANEL : 2 * PANEL;
    const uint16_t *scale = w->scale + (fine ? at / (size_t)w->super : at) * step + first;
    const int8_t *small = fine ? w->fine + (at * (size_t)fine + (size_t)h) * step + first : NULL;
    *d = v_load_half(scale);
    if (fine)
        *d = v_mul(*d, v_load_bytes(small));
    if (w->lowest) {
        *m = v_mul(*d, v_set((float)w->lowest));
        return;
    }
    *m = v_load_half(scale + PANEL);
    if (fine)
        *m = v_mul(*m, v_load_bytes(small + PANEL));
}

/* acc += what the sums of part h of block `at` are: d scale sum + m sum(x), or with qrows_low
 * d scale (sum + low).  t: the first row; its block is b. */
INLINE void add_scaled(vec acc[TILE_ROWS][2], ints sum[TILE_ROWS][2], const struct packed *w,
                       size_t at, const struct qrows *x, size_t t, size_t b, const int R,
                       const int h, const int fine)
{
    size_t nb = (size_t)w->n_blocks, parts = fine == 2 ? 2 : 1;
    const float *sums = fine == 2 ? x->half : x->sum;
    const int32_t *low = fine == 2 ? x->half_low : x->low;
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        vec d, m;
        factors(&d, &m, w, at, half * PANEL / 2, h, fine);
        UNROLL
        for (int r = 0; r < R; r++) {
            size_t row = (t + (size_t)r) * nb + b, part = row * parts + (size_t)h;
            vec ds = v_mul(d, v_set(x->scale[row]));
            if (qrows_low(x)) {
                ints all = ints_plus(sum[r][half], low[part]);
                acc[r][half] = v_fma(ds, ints_to_floats(all), acc[r][half]);
            } else {
                acc[r][half] = v_fma(ds, ints_to_floats(sum[r][half]), acc[r][half]);
                acc[r][half] = v_fma(m, v_set(sums[part]), acc[r][half]);
            }
        }
    }
}

/* R rows from t on times one panel. */
INLINE void tile_q(float *out, size_t ld, const struct qrows *x, size_t t, const struct packed *w,
                   size_t panel, const int R, const int bits, const int fine)
{
    const int parts = fine == 2 ? 2 : 1, groups = 8 / parts;
    size_t nb = (size_t)w->n_blocks, step = 64 * (size_t)bits, bytes = qrows_bytes(x);
    vec acc[TILE_ROWS][2];
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        acc[i / 2][i % 2] = v_zero();
    for (size_t b = 0; b < nb; b++) {
        struct block in = {
            .q = x->q + (t * nb + b) * bytes, .ld = nb * bytes, .hi_alone = x->hi_alone};
        size_t at = panel * nb + b;
        prepare(&in, R, bits);
        UNROLL
        for (int h = 0; h < parts; h++) {
            ints sum[TILE_ROWS][2];
            dot_panel(sum, w->data + at * step, &in, R, bits, h * groups, (h + 1) * groups);
            add_scaled(acc, sum, w, at, x, t, b, R, h, fine);
        }
    }
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        v_store(out + (t + (size_t)(i / 2)) * ld + panel * PANEL + (size_t)(i % 2 * PANEL / 2),
                acc[i / 2][i % 2]);
}

INLINE void rows_q(float *out, size_t ld, const struct qrows *x, int T, const struct packed *w,
                   int panel0, int n_panels, const int bits, const int fine)
{
    size_t end = (size_t)(panel0 + n_panels), rows = (size_t)T;
    for (size_t p = (size_t)panel0; p < end; p++) {
        size_t t = 0;
        for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
            tile_q(out, ld, x, t, w, p, TILE_ROWS, bits, fine);
        for (; t < rows; t++)
            tile_q(out, ld, x, t, w, p, 1, bits, fine);
    }
}

void NAME(matmul_q)(float *out, size_t ld_out, const struct qrows *x, int T, const struct packed *w,
                    int panel0, int n_panels)
{
    WITH_FORM(rows_q, w, out, ld_out, x, T, w, panel0, n_panels);
}

#endif

/* matmul_words.h - products of 16-bit integers in tiles of TILE_ROWS rows by a panel, which is two
 * vectors of 8 outputs. Block sums are exact and the float operations follow the reference, so all
 * instruction sets give its bits. One file per instruction set includes this header and first
 * defines:
 *     TILE_ROWS, NAME(matmul_words)
 *     ints, ints_to_floats(x)     8 integers of 32 bits; conversion to vec
 *     dot_panel(sum, w, q, ld, R) sum[r][half]: dot products of a block at w with the blocks of R
 *                                 rows, which are ld apart from q on */
#pragma once

/* Multiplies R rows from t on by one panel. */
INLINE void tile_words(float *out, size_t ld, const struct wrows *x, size_t t,
                       const struct packed *w, size_t panel, const int R)
{
    size_t nb = (size_t)w->n_blocks;
    vec acc[TILE_ROWS][2];
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        acc[i / 2][i % 2] = v_zero();
    for (size_t b = 0; b < nb; b++) {
        size_t at = panel * nb + b, row = t * nb + b;
        ints sum[TILE_ROWS][2];
        dot_panel(sum, w->data + at * WORDS_BYTES, x->q + row * WBLOCK, nb * WBLOCK, R);
        UNROLL
        for (int half = 0; half < 2; half++) {
            vec d = v_load_brain(w->scale + at * PANEL + (size_t)half * PANEL / 2);
            UNROLL
            for (int r = 0; r < R; r++) {
                vec ds = v_mul(d, v_set(x->scale[row + (size_t)r * nb]));
                acc[r][half] = v_fma(ds, ints_to_floats(sum[r][half]), acc[r][half]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        v_store(out + (t + (size_t)(i / 2)) * ld + panel * PANEL + (size_t)(i % 2 * PANEL / 2),
                acc[i / 2][i % 2]);
}

void NAME(matmul_words)(float *out, size_t ld_out, const struct wrows *x, int T,
                        const struct packed *w, int panel0, int n_panels)
{
    size_t end = (size_t)(panel0 + n_panels), rows = (size_t)T;
    for (size_t p = (size_t)panel0; p < end; p++) {
        size_t t = 0;
        for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
            tile_words(out, ld_out, x, t, w, p, TILE_ROWS);
        for (; t < rows; t++)
            tile_words(out, ld_out, x, t, w, p, 1);
    }
}

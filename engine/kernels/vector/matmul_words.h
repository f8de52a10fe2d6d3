/* matmul_words.h - products of integers of 16 bits in tiles of TILE_ROWS rows by a panel, which is
 * two vectors of 8 outputs.  Sums of blocks are exact and the floats follow the reference, so all
 * sets give its bits.  Included by one file per instruction set, which defines before:
 *     TILE_ROWS, NAME(matmul_words)
 *     ints, ints_to_floats(x)     8 integers of 32 bits; the same as a vec
 *     dot_panel(sum, w, q, ld, R) sum[r][half]: dot products of a block at w with that of R rows,
 *                                 which lie ld apart from q on */
#ifndef KVF_ENGINE_MATMUL_WORDS_H
#define KVF_ENGINE_MATMUL_WORDS_H

/* R rows from t on times one panel. */
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

#endif

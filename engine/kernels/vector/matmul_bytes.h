/* matmul_bytes.h - products with packed bytes in vectors of 8 outputs; a panel is two vectors.
 *
 * A single row uses the panels as packed. For more rows, blocks of some panels are unpacked once
 * for all of them, so that a tile of rows needs no bit unpacking and no scale conversion. Integer
 * sums are exact and the float operations follow the reference, so all instruction sets give its
 * bits. One file per instruction set includes this header and first defines:
 *     TILE_ROWS, NAME(matmul_q)
 *     ints, ints_to_floats(x), ints_plus(x, i)
 *                                 8 integers of 32 bits; conversion to vec; adding i to each
 *     dot_row(sum, w, q, hi_alone, bits, g0, g1)
 *                                 sum[half]: exact dot products of the groups [g0, g1) of 4
 *                                 channels of a packed block at w with the block of x at q
 *     READY_BYTES, ready_bytes(to, w, bits)
 *                                 unpacks a block
 *     SIGNS                       1 if 8-bit weights are unpacked as u - 128
 *     READY_X, READY_ROWS(signs), ready_block(to, q, hi_alone)
 *                                 prepares a block of x, if rows are prepared
 *     dot_tile(sum, w, x, ld, hi_alone, R, signs, g0, g1)
 *                                 sum[r][half]: dot products of an unpacked block with R rows, ld
 *                                 bytes apart; signs: for 8-bit weights if SIGNS */
#pragma once

#include "engine/kernels/vector/forms.h"

/* Sets d and m of half h of block `at` for the 8 outputs from `first` on; fine: w->n_fine. */
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

/* acc += d scale sum + m sum(x). With low, which is qrows_low(x), acc += d scale (sum + low of x).
 * at: row and block of x; h is its half. */
INLINE vec add_scaled(vec acc, ints sum, vec d, vec m, const struct qrows *x, size_t at,
                      const int h, const int parts, const bool low)
{
    const size_t part = at * (size_t)parts + (size_t)h;
    const vec ds = v_mul(d, v_set(x->scale[at]));
    if (low) {
        ints all = ints_plus(sum, (parts == 2 ? x->half_low : x->low)[part]);
        return v_fma(ds, ints_to_floats(all), acc);
    }
    acc = v_fma(ds, ints_to_floats(sum), acc);
    return v_fma(m, v_set((parts == 2 ? x->half : x->sum)[part]), acc);
}

/* Multiplies the first row by one panel and stores its outputs at out. */
INLINE void row_q(float *out, const struct qrows *x, const struct packed *w, size_t panel,
                  const int bits, const int fine)
{
    const int parts = fine == 2 ? 2 : 1, groups = 8 / parts;
    const size_t nb = (size_t)w->n_blocks, step = 64 * (size_t)bits;
    const bool low = qrows_low(x);
    vec acc[2] = {v_zero(), v_zero()};
    for (size_t b = 0; b < nb; b++) {
        const size_t at = panel * nb + b;
        const uint8_t *block = w->data + at * step;
        const int8_t *q = x->q + b * qrows_bytes(x);
        UNROLL
        for (int h = 0; h < parts; h++) {
            const int g0 = h * groups, g1 = g0 + groups;
            ints sum[2];
            dot_row(sum, block, q, x->hi_alone, bits, g0, g1);
            UNROLL
            for (size_t half = 0; half < 2; half++) {
                vec d, m;
                factors(&d, &m, w, at, half * PANEL / 2, h, fine);
                acc[half] = add_scaled(acc[half], sum[half], d, m, x, b, h, parts, low);
            }
        }
    }
    v_store(out, acc[0]);
    v_store(out + PANEL / 2, acc[1]);
}

/* Blocks [b0, b1) of some panels, unpacked (L2 cache), and the same blocks of a tile of rows, which
 * is prepared once for these panels. */
enum { SPAN_PANELS = 4, SPAN_BLOCKS = 18 };
struct span_q {
    size_t b0, b1;
    _Alignas(64) float factors[SPAN_PANELS][SPAN_BLOCKS * 2 * 2 * PANEL]; /* [b][part][d, m][16] */
    _Alignas(64) uint8_t bytes[SPAN_PANELS][SPAN_BLOCKS * READY_BYTES];
    _Alignas(64) int8_t x[TILE_ROWS][SPAN_BLOCKS * READY_X];
};

INLINE void ready_panel(struct span_q *s, size_t i, const struct packed *w, size_t panel,
                        const int bits, const int fine)
{
    const size_t parts = fine == 2 ? 2 : 1, first = panel * (size_t)w->n_blocks;
    for (size_t b = s->b0; b < s->b1; b++) {
        size_t at = b - s->b0;
        ready_bytes(s->bytes[i] + at * READY_BYTES, w->data + (first + b) * 64 * (size_t)bits,
                    bits);
        for (size_t h = 0; h < parts; h++) {
            float *to = s->factors[i] + (at * parts + h) * 2 * PANEL;
            UNROLL
            for (size_t half = 0; half < 2; half++) {
                vec d, m;
                factors(&d, &m, w, first + b, half * PANEL / 2, (int)h, fine);
                v_store(to + half * PANEL / 2, d);
                v_store(to + PANEL + half * PANEL / 2, m);
            }
        }
    }
}

/* Returns the prepared blocks of a span of R rows from t on. ld: bytes between rows. */
INLINE const int8_t *ready_rows(struct span_q *s, const struct qrows *x, size_t t, size_t nb,
                                const int R, const int signs, size_t *ld)
{
    (void)signs;
    const size_t bytes = qrows_bytes(x);
    *ld = READY_ROWS(signs) ? sizeof *s->x : nb * bytes;
    if (!READY_ROWS(signs))
        return x->q + (t * nb + s->b0) * bytes;
    for (size_t r = 0; r < (size_t)R; r++)
        for (size_t b = s->b0; b < s->b1; b++)
            ready_block(s->x[r] + (b - s->b0) * READY_X, x->q + ((t + r) * nb + b) * bytes,
                        x->hi_alone);
    return s->x[0];
}

/* Adds the scaled sums of half h of R rows, nb blocks apart. `at` is the block and row of the first
 * one. f: d and m of 16 outputs. low: a compile-time constant. */
INLINE void add_tile(vec acc[TILE_ROWS][2], ints sum[TILE_ROWS][2], const float *f,
                     const struct qrows *x, size_t at, size_t nb, const int R, const int h,
                     const int parts, const bool low)
{
    UNROLL
    for (size_t j = 0; j < 2 * (size_t)R; j++) {
        size_t half = j % 2 * PANEL / 2, row = at + j / 2 * nb;
        acc[j / 2][j % 2] = add_scaled(acc[j / 2][j % 2], sum[j / 2][j % 2], v_load(f + half),
                                       v_load(f + PANEL + half), x, row, h, parts, low);
    }
}

/* Multiplies R rows from t on, prepared at q, by the span of panel i. The outputs at `to` continue
 * from earlier spans. */
INLINE void tile_q(float *to, size_t ld, const struct qrows *x, size_t t, size_t nb,
                   const struct span_q *s, size_t i, const int8_t *q, size_t ld_q, const int R,
                   const int parts, const int signs)
{
    const int groups = 8 / parts;
    const size_t step = READY_ROWS(signs) ? READY_X : qrows_bytes(x);
    const bool hi_alone = x->hi_alone, low = qrows_low(x);
    vec acc[TILE_ROWS][2];
    UNROLL
    for (size_t j = 0; j < 2 * (size_t)R; j++)
        acc[j / 2][j % 2] = s->b0 ? v_load(to + j / 2 * ld + j % 2 * PANEL / 2) : v_zero();
    for (size_t b = s->b0; b < s->b1; b++) {
        size_t at = b - s->b0;
        UNROLL
        for (int h = 0; h < parts; h++) {
            const float *f = s->factors[i] + (at * (size_t)parts + (size_t)h) * 2 * PANEL;
            ints sum[TILE_ROWS][2];
            dot_tile(sum, s->bytes[i] + at * READY_BYTES, q + at * step, ld_q, hi_alone, R, signs,
                     h * groups, (h + 1) * groups);
            if (low)
                add_tile(acc, sum, f, x, t * nb + b, nb, R, h, parts, true);
            else
                add_tile(acc, sum, f, x, t * nb + b, nb, R, h, parts, false);
        }
    }
    UNROLL
    for (size_t j = 0; j < 2 * (size_t)R; j++)
        v_store(to + j / 2 * ld + j % 2 * PANEL / 2, acc[j / 2][j % 2]);
}

/* Multiplies all rows by the span of n panels; the outputs of the first panel start at out. */
INLINE void rows_of_span(float *out, size_t ld, const struct qrows *x, size_t rows, size_t nb,
                         struct span_q *s, size_t n, const int parts, const int signs)
{
    size_t ld_q;
#define TILES(R)                                                                                   \
    for (; t + (R) <= rows; t += (R)) {                                                            \
        const int8_t *q = ready_rows(s, x, t, nb, R, signs, &ld_q);                                \
        for (size_t i = 0; i < n; i++)                                                             \
            tile_q(out + t * ld + i * PANEL, ld, x, t, nb, s, i, q, ld_q, R, parts, signs);        \
    }
    size_t t = 0;
    TILES(TILE_ROWS)
    TILES(2)
    TILES(1)
#undef TILES
}

/* rows_of_span as a separate function, shared by several forms, so that it can use all
 * registers. */
#define ROWS_OF_SPAN(name, parts, signs)                                                           \
    __attribute__((noinline)) static void name(float *out, size_t ld, const struct qrows *x,       \
                                               size_t rows, size_t nb, struct span_q *s, size_t n) \
    {                                                                                              \
        rows_of_span(out, ld, x, rows, nb, s, n, parts, signs);                                    \
    }
ROWS_OF_SPAN(rows_of_blocks, 1, 0)
ROWS_OF_SPAN(rows_of_halves, 2, 0)
ROWS_OF_SPAN(rows_of_signed_blocks, 1, 1)
ROWS_OF_SPAN(rows_of_signed_halves, 2, 1)

INLINE void rows_q(float *out, size_t ld, const struct qrows *x, int T, const struct packed *w,
                   int panel0, int n_panels, const int bits, const int fine)
{
    const size_t nb = (size_t)w->n_blocks, end = (size_t)(panel0 + n_panels);
    if (T == 1) {
        for (size_t p = (size_t)panel0; p < end; p++)
            row_q(out + p * PANEL, x, w, p, bits, fine);
        return;
    }
    struct span_q s;
    for (size_t p = (size_t)panel0, n; p < end; p += n) {
        n = end - p < SPAN_PANELS ? end - p : SPAN_PANELS;
        for (s.b0 = 0; s.b0 < nb; s.b0 = s.b1) {
            s.b1 = nb - s.b0 < SPAN_BLOCKS ? nb : s.b0 + SPAN_BLOCKS;
            for (size_t i = 0; i < n; i++)
                ready_panel(&s, i, w, p + i, bits, fine);
            if (SIGNS && bits == 8 && fine == 2)
                rows_of_signed_halves(out + p * PANEL, ld, x, (size_t)T, nb, &s, n);
            else if (SIGNS && bits == 8)
                rows_of_signed_blocks(out + p * PANEL, ld, x, (size_t)T, nb, &s, n);
            else if (fine == 2)
                rows_of_halves(out + p * PANEL, ld, x, (size_t)T, nb, &s, n);
            else
                rows_of_blocks(out + p * PANEL, ld, x, (size_t)T, nb, &s, n);
        }
    }
}

void NAME(matmul_q)(float *out, size_t ld_out, const struct qrows *x, int T, const struct packed *w,
                    int panel0, int n_panels)
{
    WITH_FORM(rows_q, w, out, ld_out, x, T, w, panel0, n_panels);
}

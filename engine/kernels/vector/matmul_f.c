/* matmul_f.c - products with packed floats for AVX2 and NEON. A panel is two halves of 8 outputs.
 * Every output is summed in its own lane in the order of the reference. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

enum { TILE_ROWS = 4, HALF = PANEL / 2 };

INLINE vec load_float(const uint8_t *data, size_t at, const int kind)
{
    if (kind == PACK_F32)
        return v_load((const float *)(const void *)data + at);
    const uint16_t *h = (const uint16_t *)(const void *)data + at;
    return kind == PACK_F16 ? v_load_half(h) : v_load_brain(h);
}

INLINE void tile_f(float *out, size_t ld, const float *x, size_t ld_x, const struct packed *w,
                   size_t panel, const int R, const int kind)
{
    size_t K = (size_t)w->K;
    vec acc[TILE_ROWS][2];
    UNROLL
    for (int r = 0; r < R; r++)
        acc[r][0] = acc[r][1] = v_zero();
    for (size_t k = 0; k < K; k++) {
        vec lo = load_float(w->data, (panel * K + k) * PANEL, kind);
        vec hi = load_float(w->data, (panel * K + k) * PANEL + HALF, kind);
        UNROLL
        for (int r = 0; r < R; r++) {
            vec b = v_set(x[(size_t)r * ld_x + k]);
            acc[r][0] = v_fma(b, lo, acc[r][0]);
            acc[r][1] = v_fma(b, hi, acc[r][1]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        v_store(out + (size_t)r * ld + panel * PANEL, acc[r][0]);
        v_store(out + (size_t)r * ld + panel * PANEL + HALF, acc[r][1]);
    }
}

INLINE void rows_f(float *out, size_t ld, const float *x, size_t ld_x, int T,
                   const struct packed *w, int panel0, int n_panels, const int kind)
{
    size_t end = (size_t)(panel0 + n_panels), rows = (size_t)T;
    for (size_t p = (size_t)panel0; p < end; p++) {
        size_t t = 0;
        for (; t + TILE_ROWS <= rows; t += TILE_ROWS)
            tile_f(out + t * ld, ld, x + t * ld_x, ld_x, w, p, TILE_ROWS, kind);
        for (; t < rows; t++)
            tile_f(out + t * ld, ld, x + t * ld_x, ld_x, w, p, 1, kind);
    }
}

void ISA(matmul_f)(float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                   const struct packed *w, int panel0, int n_panels)
{
    if (w->kind == PACK_F32)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F32);
    else if (w->kind == PACK_F16)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F16);
    else
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_BF16);
}

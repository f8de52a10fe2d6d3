/* span_avx512.h - packed bytes made ready for many rows: what AVX-512 and AMX share. */
#ifndef KVF_ENGINE_SPAN_AVX512_H
#define KVF_ENGINE_SPAN_AVX512_H

#include <immintrin.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/unroll.h"

/* Panels that a tile of products takes at once: as many as matmul_avx512.c has registers for. */
enum { BYTE_PANELS = 2 };

INLINE __m512 load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Group g of 8 of a (panel, block): [16 rows][4 channels].  Q4 keeps two groups in
 * the nibbles of one vector. */
INLINE __m512i load_group(const uint8_t *data, int g, const int q4)
{
    if (!q4)
        return _mm512_load_si512(data + g * 64);
    __m512i two = _mm512_load_si512(data + g / 2 * 64);
    return _mm512_and_si512(g % 2 ? _mm512_srli_epi16(two, 4) : two, _mm512_set1_epi8(15));
}

/* d and m of part h of block `at`; fine: w->n_fine. */
INLINE void factors(__m512 *d, __m512 *m, const struct packed *w, size_t at, int h, const int fine)
{
    const uint16_t *scale = w->scale + (fine ? at / (size_t)w->super : at) * 2 * PANEL;
    *d = load_half(scale);
    *m = load_half(scale + PANEL);
    if (!fine)
        return;
    const __m128i *small =
        (const __m128i *)(const void *)(w->fine + (at * (size_t)fine + (size_t)h) * 2 * PANEL);
    *d = _mm512_mul_ps(*d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(small))));
    *m = _mm512_mul_ps(*m, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(small + 1))));
}

/* Blocks [b0, b1) of P panels, made ready once for all rows.  So few blocks that they and the bytes
 * of a tile of x stay in the first cache. */
enum { SPAN_BLOCKS = 24 };

struct span_q {
    size_t b0, b1, nb;                 /* nb: blocks of a row of x */
    const uint8_t *bytes[BYTE_PANELS]; /* [b1 - b0][8 groups][16 rows][4 channels] */
    _Alignas(64) float factors[BYTE_PANELS][SPAN_BLOCKS * 2 * 2 * PANEL]; /* [b][part][d, m][16] */
    _Alignas(64) uint8_t unpacked[BYTE_PANELS][SPAN_BLOCKS * 512]; /* of Q4; Q8 stays where it is */
};

INLINE void ready_panel(struct span_q *s, int i, const struct packed *w, size_t panel, const int q4,
                        const int fine)
{
    const size_t parts = fine == 2 ? 2 : 1, first = panel * s->nb;
    s->bytes[i] = q4 ? s->unpacked[i] : w->data + (first + s->b0) * 512;
    for (size_t b = s->b0; b < s->b1; b++) {
        UNROLL
        for (int g = 0; q4 && g < 8; g++)
            _mm512_store_si512(s->unpacked[i] + (b - s->b0) * 512 + g * 64,
                               load_group(w->data + (first + b) * 256, g, 1));
        for (size_t h = 0; h < parts; h++) {
            float *at = s->factors[i] + ((b - s->b0) * parts + h) * 2 * PANEL;
            __m512 d, m;
            factors(&d, &m, w, first + b, (int)h, fine);
            _mm512_store_ps(at, d);
            _mm512_store_ps(at + PANEL, m);
        }
    }
}

INLINE void before_spans(struct span_q *s, const struct packed *w)
{
    s->nb = (size_t)w->n_blocks;
    s->b1 = 0;
}

/* The next blocks of P panels from `panel` on; false: there are no more. */
INLINE bool next_span(struct span_q *s, const struct packed *w, size_t panel, const int P,
                      const int q4, const int fine)
{
    s->b0 = s->b1;
    if (s->b0 == s->nb)
        return false;
    s->b1 = s->nb - s->b0 < SPAN_BLOCKS ? s->nb : s->b0 + SPAN_BLOCKS;
    for (int i = 0; i < P; i++)
        ready_panel(s, i, w, panel + (size_t)i, q4, fine);
    return true;
}

/* rows(..., q4, fine) with constants for the form that w has. */
#define WITH_FORM(rows, w, ...)                                                                    \
    do {                                                                                           \
        int q4 = (w)->kind == PACK_Q4;                                                             \
        if ((w)->n_fine == 0 && q4)                                                                \
            rows(__VA_ARGS__, 1, 0);                                                               \
        else if ((w)->n_fine == 0)                                                                 \
            rows(__VA_ARGS__, 0, 0);                                                               \
        else if ((w)->n_fine == 1 && q4)                                                           \
            rows(__VA_ARGS__, 1, 1);                                                               \
        else if ((w)->n_fine == 1)                                                                 \
            rows(__VA_ARGS__, 0, 1);                                                               \
        else if (q4)                                                                               \
            rows(__VA_ARGS__, 1, 2);                                                               \
        else                                                                                       \
            rows(__VA_ARGS__, 0, 2);                                                               \
    } while (0)

#endif

/* span_avx512.h - unpacks packed bytes for many rows; shared by AVX-512 and AMX. */
#pragma once

#include <immintrin.h>

#include "engine/kernels/vector/forms.h"
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/unroll.h"

/* Number of panels of a tile of products, limited by the registers in matmul_avx512.c. */
enum { BYTE_PANELS = 2 };

INLINE __m512 load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Returns group g of 8 of a (panel, block): [16 rows][4 channels]. */
INLINE __m512i load_group(const uint8_t *data, int g, const int bits)
{
    if (bits == 8)
        return _mm512_load_si512(data + g * 64);
    __m512i two = _mm512_load_si512(data + g / 2 * 64);
    __m512i low = _mm512_and_si512(g % 2 ? _mm512_srli_epi16(two, 4) : two, _mm512_set1_epi8(15));
    if (bits == 4)
        return low;
    const int n_high = bits - 4, at = g * n_high % 8;
    const __m512i mask = _mm512_set1_epi8(n_high == 2 ? 0x30 : 0x10);
    __m512i high = _mm512_load_si512(data + 256 + g * n_high / 8 * 64);
    if (at < 4)
        high = _mm512_slli_epi16(high, (unsigned)(4 - at));
    if (at > 4)
        high = _mm512_srli_epi16(high, (unsigned)(at - 4));
    return _mm512_or_si512(low, _mm512_and_si512(high, mask));
}

INLINE __m512 load_bytes(const int8_t *p)
{
    __m128i small = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(small));
}

/* Sets d and m of half h of block `at`; fine: w->n_fine. */
INLINE void factors(__m512 *d, __m512 *m, const struct packed *w, size_t at, int h, const int fine)
{
    const size_t step = w->lowest ? PANEL : 2 * PANEL;
    const uint16_t *scale = w->scale + (fine ? at / (size_t)w->super : at) * step;
    const int8_t *small = fine ? w->fine + (at * (size_t)fine + (size_t)h) * step : NULL;
    *d = load_half(scale);
    if (fine)
        *d = _mm512_mul_ps(*d, load_bytes(small));
    if (w->lowest) {
        *m = _mm512_mul_ps(*d, _mm512_set1_ps((float)w->lowest));
        return;
    }
    *m = load_half(scale + PANEL);
    if (fine)
        *m = _mm512_mul_ps(*m, load_bytes(small + PANEL));
}

/* Blocks [b0, b1) of P panels, unpacked once for all rows. SPAN_BLOCKS is small enough that they
 * and the bytes of a tile of x stay in the L1 cache. */
enum { SPAN_BLOCKS = 24 };

struct span_q {
    size_t b0, b1, nb;                 /* nb: blocks of a row of x */
    const uint8_t *bytes[BYTE_PANELS]; /* [b1 - b0][8 groups][16 rows][4 channels] */
    _Alignas(64) float factors[BYTE_PANELS][SPAN_BLOCKS * 2 * 2 * PANEL]; /* [b][part][d, m][16] */
    /* not used by 8-bit kinds, which are read in place */
    _Alignas(64) uint8_t unpacked[BYTE_PANELS][SPAN_BLOCKS * 512];
};

INLINE void ready_panel(struct span_q *s, int i, const struct packed *w, size_t panel,
                        const int bits, const int fine)
{
    const size_t parts = fine == 2 ? 2 : 1, first = panel * s->nb, bytes = 64 * (size_t)bits;
    s->bytes[i] = bits < 8 ? s->unpacked[i] : w->data + (first + s->b0) * bytes;
    for (size_t b = s->b0; b < s->b1; b++) {
        UNROLL
        for (int g = 0; bits < 8 && g < 8; g++)
            _mm512_store_si512(s->unpacked[i] + (b - s->b0) * 512 + g * 64,
                               load_group(w->data + (first + b) * bytes, g, bits));
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

/* Unpacks the next blocks of P panels from `panel` on; returns false if there are no more. */
INLINE bool next_span(struct span_q *s, const struct packed *w, size_t panel, const int P,
                      const int bits, const int fine)
{
    s->b0 = s->b1;
    if (s->b0 == s->nb)
        return false;
    s->b1 = s->nb - s->b0 < SPAN_BLOCKS ? s->nb : s->b0 + SPAN_BLOCKS;
    for (int i = 0; i < P; i++)
        ready_panel(s, i, w, panel + (size_t)i, bits, fine);
    return true;
}

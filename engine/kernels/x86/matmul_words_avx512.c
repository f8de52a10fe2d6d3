/* matmul_words_avx512.c - products of 16-bit integers. Block sums are exact, and the float
 * operations of an output are those of the reference, in its order, in every tile. */
#include <immintrin.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/unroll.h"
#include "engine/kernels/words.h"

/* Sums and accumulators of 4 rows by 3 panels, with free registers for their operands. */
enum { TILE_ROWS = 4, TILE_PANELS = 3 };
/* Few rows process one panel at a time, so that memory is read as one stream. */
enum { FEW_ROWS = 8, FEW_TILE = 4 };
/* Number of blocks of a tile's panels that stay in the L2 cache for all rows: 147 KB. */
enum { SPAN_BLOCKS = 24, PAIRS = WBLOCK / 2 };

/* Keeps v in a register. Compilers would otherwise read the pair of x from memory for every
 * product, and load scales late. */
#define IN_REGISTER(v) __asm__("" : "+v"(v))

INLINE __m512i pair_of(const int16_t *p)
{
    return _mm512_set1_epi32(*(const int32_t *)(const void *)p);
}

/* Returns the scales of (panel, block) `at`. */
INLINE __m512 scale_of(const struct packed *w, size_t at)
{
    __m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(w->scale + at * PANEL));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(d), 16));
}

/* Blocks [b0, b1) of the panels from `panel` on, and data to prefetch: each block of a tile
 * prefetches `step` bytes of it. */
struct span {
    const struct packed *w;
    size_t panel, b0, b1;
    const char *next;
    size_t step;
};

/* sum[r][p] = dot products of block b of R rows and P panels. */
INLINE void dot_tile(__m512i sum[TILE_ROWS][TILE_PANELS], const struct span *s, size_t b,
                     const int16_t *q, const int R, const int P)
{
    const size_t nb = (size_t)s->w->n_blocks;
    const uint8_t *block = s->w->data + (s->panel * nb + b) * WORDS_BYTES;
    UNROLL
    for (int i = 0; i < R * P; i++)
        sum[i / P][i % P] = _mm512_setzero_si512();
    UNROLL
    for (int k = 0; k < PAIRS; k++) {
        __m512i u[TILE_PANELS];
        UNROLL
        for (int p = 0; p < P; p++)
            u[p] = _mm512_load_si512(block + (size_t)p * nb * WORDS_BYTES + k * 64);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m512i x = pair_of(q + (size_t)r * nb * WBLOCK + 2 * k);
            IN_REGISTER(x);
            UNROLL
            for (int p = 0; p < P; p++)
                sum[r][p] = _mm512_dpwssd_epi32(sum[r][p], u[p], x);
        }
    }
}

/* Multiplies rows [t, t + R) by a span of P panels; outputs continue from earlier spans. */
INLINE void tile_words(float *out, size_t ld, const struct wrows *x, size_t t, const struct span *s,
                       const int R, const int P)
{
    const size_t nb = (size_t)s->w->n_blocks;
    const char *next = s->next;
    float *to = out + t * ld;
    __m512 acc[TILE_ROWS][TILE_PANELS];
    UNROLL
    for (int i = 0; i < R * P; i++) { /* prefetches the output lines while the tile is computed */
        const float *at = to + (size_t)(i / P) * ld + i % P * PANEL;
        acc[i / P][i % P] = s->b0 ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
        _mm_prefetch((const char *)at, _MM_HINT_T0);
    }
    for (size_t b = s->b0; b < s->b1; b++, next += s->step) {
        const float *scale = x->scale + t * nb + b;
        __m512i sum[TILE_ROWS][TILE_PANELS];
        for (size_t i = 0; i < s->step; i += 64)
            _mm_prefetch(next + i, _MM_HINT_T1);
        dot_tile(sum, s, b, x->q + (t * nb + b) * WBLOCK, R, P);
        UNROLL
        for (int p = 0; p < P; p++) {
            __m512 d = scale_of(s->w, (s->panel + (size_t)p) * nb + b);
            UNROLL
            for (int r = 0; r < R; r++) {
                __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(scale[(size_t)r * nb]));
                acc[r][p] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(sum[r][p]), acc[r][p]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < R * P; i++)
        _mm512_storeu_ps(to + (size_t)(i / P) * ld + i % P * PANEL, acc[i / P][i % P]);
}

/* Multiplies all rows by P panels, span by span of blocks, and prefetches the P panels from `next`
 * on into the L2 cache. */
INLINE void panels_words(float *out, size_t ld, const struct wrows *x, size_t rows,
                         const struct packed *w, size_t panel, size_t next, const int P)
{
    size_t nb = (size_t)w->n_blocks, tiles = rows / TILE_ROWS;
    size_t step = ((size_t)P * WORDS_BYTES / tiles + 63) / 64 * 64;
    struct span s = {.w = w, .panel = panel};
    for (; s.b0 < nb; s.b0 = s.b1) {
        size_t t = 0;
        s.b1 = nb - s.b0 < SPAN_BLOCKS ? nb : s.b0 + SPAN_BLOCKS;
        s.next = (const char *)w->data + (next * nb + s.b0 * (size_t)P) * WORDS_BYTES;
        s.step = step;
        for (; t + TILE_ROWS <= rows; t += TILE_ROWS, s.next += (s.b1 - s.b0) * step)
            tile_words(out, ld, x, t, &s, TILE_ROWS, P);
        s.step = 0;
        for (; t < rows; t++)
            tile_words(out, ld, x, t, &s, 1, P);
    }
}

/* sum[r] += products of pair k of a block with R rows. */
INLINE void add_pair(__m512i sum[FEW_TILE], const uint8_t *block, const int16_t *q, size_t nb,
                     int k, const int R)
{
    __m512i u = _mm512_load_si512(block + k * 64);
    UNROLL
    for (int r = 0; r < R; r++)
        sum[r] = _mm512_dpwssd_epi32(sum[r], u, pair_of(q + (size_t)r * nb * WBLOCK + 2 * k));
}

/* dot[r] = dot products of a block with R rows, nb blocks apart. It uses two sums per row, because
 * each addition waits for the preceding one. */
INLINE void dot_few(__m512i dot[FEW_TILE], const uint8_t *block, const int16_t *q, size_t nb,
                    const int R)
{
    __m512i sum[2][FEW_TILE];
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / R][i % R] = _mm512_setzero_si512();
    UNROLL
    for (int k = 0; k < PAIRS; k += 2) {
        add_pair(sum[0], block, q, nb, k, R);
        add_pair(sum[1], block, q, nb, k + 1, R);
    }
    UNROLL
    for (int r = 0; r < R; r++)
        dot[r] = _mm512_add_epi32(sum[0][r], sum[1][r]);
}

/* Multiplies rows [t, t + R) by a panel. Scales are read one block ahead, because a sum that waits
 * for its scale would stall the stream. */
INLINE void tile_few(float *out, size_t ld, const struct wrows *x, size_t t, const struct packed *w,
                     size_t panel, const int R)
{
    const size_t nb = (size_t)w->n_blocks;
    __m512 acc[FEW_TILE], next = scale_of(w, panel * nb);
    UNROLL
    for (int r = 0; r < R; r++)
        acc[r] = _mm512_setzero_ps();
    for (size_t b = 0; b < nb; b++) {
        __m512i dot[FEW_TILE];
        size_t at = panel * nb + b, row = t * nb + b;
        __m512 d = next;
        next = scale_of(w, b + 1 < nb ? at + 1 : at);
        IN_REGISTER(next);
        dot_few(dot, w->data + at * WORDS_BYTES, x->q + row * WBLOCK, nb, R);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[row + (size_t)r * nb]));
            acc[r] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(dot[r]), acc[r]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        _mm512_storeu_ps(out + (t + (size_t)r) * ld + panel * PANEL, acc[r]);
}

/* Multiplies fewer than 8 rows by a panel. */
INLINE void few_rows(float *out, size_t ld, const struct wrows *x, size_t rows,
                     const struct packed *w, size_t panel)
{
    size_t t = 0;
    if (rows & 4)
        tile_few(out, ld, x, t, w, panel, 4);
    t += rows & 4;
    if (rows & 2)
        tile_few(out, ld, x, t, w, panel, 2);
    t += rows & 2;
    if (rows & 1)
        tile_few(out, ld, x, t, w, panel, 1);
}

/* Returns the panels of the next tile, given the remaining panels, and avoids a final tile of one
 * panel. */
INLINE size_t panels_of(size_t left)
{
    if (left == 1 || left == 2)
        return left;
    return left == 4 ? 2 : TILE_PANELS;
}

/* For many rows the following panels are prefetched; after the last panel, those of the task after
 * the next, because another thread runs the next task. */
void matmul_words_avx512(float *out, size_t ld_out, const struct wrows *x, int T,
                         const struct packed *w, int panel0, int n_panels)
{
    size_t p = (size_t)panel0, end = (size_t)(panel0 + n_panels), rows = (size_t)T;
    for (; rows < FEW_ROWS && p < end; p++)
        few_rows(out, ld_out, x, rows, w, p);
    for (size_t n; p < end; p += n) {
        n = panels_of(end - p);
        size_t next = p + n < end ? p + n : end + (size_t)n_panels;
        float *to = out + p * PANEL;
        if (n == TILE_PANELS)
            panels_words(to, ld_out, x, rows, w, p, next, TILE_PANELS);
        else if (n == 2)
            panels_words(to, ld_out, x, rows, w, p, next, 2);
        else
            panels_words(to, ld_out, x, rows, w, p, next, 1);
    }
}

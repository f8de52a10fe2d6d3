/* matmul_avx512.c - matrix products with packed weights.
 *
 * A tile is R rows of x times one or several panels of 16 outputs.  The float
 * operations of one output are the same, in the same order, in every tile and
 * in the reference, so a row's result does not depend on its neighbours. */
#include "engine/kernels/x86/span_avx512.h"

/* Sums and accumulators of 6 rows by 2 panels of bytes fill the registers, and so do those of 8
 * rows by 3 panels of floats, which read fewer lines for each product than 12 by 2. */
enum { BYTE_ROWS = 6, FLOAT_ROWS = 8, FLOAT_PANELS = 3 };
/* Few rows are multiplied with panels as they lie, by tiles of FEW_TILE rows. */
enum { FEW_ROWS = 32, FEW_TILE = 8, FEW_PANELS = 4, AHEAD_BYTES = 6144 };
/* Halves become floats once for all rows, at most so many channels at a time: 147 KB, which stay in
 * the second cache. */
enum { FLOAT_SPAN = 768 };

INLINE __m512i bytes4(const int8_t *p)
{
    return _mm512_set1_epi32(*(const int32_t *)(const void *)p);
}

/* Of a row and those behind it, whose blocks lie nb apart: bytes, scales and sums. */
struct rows_of {
    const int8_t *q;
    const float *scale, *sums;
    size_t nb;
    bool hi_alone;
};

INLINE struct rows_of rows_from(const struct qrows *x, size_t t, size_t nb, const int parts)
{
    return (struct rows_of){x->q + t * nb * 2 * QBLOCK, x->scale + t * nb,
                            parts == 2 ? x->half + t * nb * 2 : x->sum + t * nb, nb, x->hi_alone};
}

/* Compilers would else let every product read its bytes of x from memory, and a processor that
 * multiplies twice a cycle has but two loads a cycle. */
#define IN_REGISTER(v) __asm__("" : "+v"(v))

/* sum[r][p] += dot products of the groups [g0, g1) of block b with the bytes q of R rows. */
INLINE void dot_rows(__m512i sum[BYTE_ROWS][BYTE_PANELS], const struct span_q *s, size_t b,
                     const int8_t *q, const int R, const int P, const int g0, const int g1)
{
    UNROLL
    for (int g = g0; g < g1; g++) {
        __m512i u[BYTE_PANELS];
        UNROLL
        for (int p = 0; p < P; p++)
            u[p] = _mm512_load_si512(s->bytes[p] + (b - s->b0) * 512 + g * 64);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m512i x = bytes4(q + (size_t)r * s->nb * 2 * QBLOCK + g * 4);
            IN_REGISTER(x);
            UNROLL
            for (int p = 0; p < P; p++)
                sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], u[p], x);
        }
    }
}

/* acc += what the sums of part h of block b are: d scale sum + m sum(x). */
INLINE void add_scaled(__m512 acc[BYTE_ROWS][BYTE_PANELS], __m512i sum[BYTE_ROWS][BYTE_PANELS],
                       const struct span_q *s, size_t b, const struct rows_of *x, const int R,
                       const int P, const int h, const int parts)
{
    UNROLL
    for (int p = 0; p < P; p++) {
        const float *at = s->factors[p] + ((b - s->b0) * (size_t)parts + (size_t)h) * 2 * PANEL;
        __m512 d = _mm512_load_ps(at), m = _mm512_load_ps(at + PANEL);
        UNROLL
        for (int r = 0; r < R; r++) {
            size_t row = (size_t)r * x->nb + b;
            __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[row]));
            acc[r][p] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(sum[r][p]), acc[r][p]);
            __m512 sum_x = _mm512_set1_ps(x->sums[row * (size_t)parts + (size_t)h]);
            acc[r][p] = _mm512_fmadd_ps(m, sum_x, acc[r][p]);
        }
    }
}

/* What block b adds to R rows of P panels, in two halves where each has scales of its own. */
INLINE void block_rows(__m512 acc[BYTE_ROWS][BYTE_PANELS], const struct span_q *s, size_t b,
                       const struct rows_of *x, const int R, const int P, const int parts)
{
    const int groups = 8 / parts;
    const int8_t *hi = x->q + b * 2 * QBLOCK;
    UNROLL
    for (int h = 0; h < parts; h++) {
        __m512i sum[BYTE_ROWS][BYTE_PANELS];
        UNROLL
        for (int i = 0; i < R * P; i++)
            sum[i / P][i % P] = _mm512_setzero_si512();
        dot_rows(sum, s, b, hi, R, P, h * groups, (h + 1) * groups);
        UNROLL
        for (int i = 0; i < R * P; i++)
            sum[i / P][i % P] = _mm512_slli_epi32(sum[i / P][i % P], 8);
        if (!x->hi_alone)
            dot_rows(sum, s, b, hi + QBLOCK, R, P, h * groups, (h + 1) * groups);
        add_scaled(acc, sum, s, b, x, R, P, h, parts);
    }
}

/* Rows [t, t + R) times a span of P panels, whose outputs go on from earlier spans.  Sums and
 * accumulators of all rows stay in registers. */
INLINE void tile_rows(float *out, size_t ld, const struct qrows *q, size_t t,
                      const struct span_q *s, const int R, const int P, const int parts)
{
    const struct rows_of x = rows_from(q, t, s->nb, parts);
    float *to = out + t * ld;
    __m512 acc[BYTE_ROWS][BYTE_PANELS];
    UNROLL
    for (int i = 0; i < R * P; i++)
        acc[i / P][i % P] = s->b0 ? _mm512_loadu_ps(to + (size_t)(i / P) * ld + i % P * PANEL)
                                  : _mm512_setzero_ps();
    for (size_t b = s->b0; b < s->b1; b++)
        block_rows(acc, s, b, &x, R, P, parts);
    UNROLL
    for (int i = 0; i < R * P; i++)
        _mm512_storeu_ps(to + (size_t)(i / P) * ld + i % P * PANEL, acc[i / P][i % P]);
}

/* Rows [0, sixes) and, by four, [sixes, fours) times a span. */
INLINE void rows_of_span(float *out, size_t ld, const struct qrows *x, size_t sixes, size_t fours,
                         const struct span_q *s, const int P, const int parts)
{
    for (size_t t = 0; t < sixes; t += BYTE_ROWS)
        tile_rows(out, ld, x, t, s, BYTE_ROWS, P, parts);
    for (size_t t = sixes; t < fours; t += 4)
        tile_rows(out, ld, x, t, s, 4, P, parts);
}

/* The same times P whole panels, of which out is the first. */
INLINE void rows_of_panels(float *out, size_t ld, const struct qrows *x, size_t sixes, size_t fours,
                           const struct packed *w, size_t panel, const int P, const int bits,
                           const int fine)
{
    struct span_q s;
    before_spans(&s, w);
    while (next_span(&s, w, panel, P, bits, fine))
        rows_of_span(out, ld, x, sixes, fours, &s, P, fine == 2 ? 2 : 1);
}

/* dot[r] = exact dot products of the groups [g0, g1) of a block with R rows: hi and lo, unless hi
 * is alone, go side by side, so that each group is read once. */
INLINE void dot_few(__m512i dot[FEW_TILE], const uint8_t *block, const struct rows_of *x, size_t b,
                    const int R, const int bits, const int g0, const int g1, const bool hi_alone)
{
    __m512i hi[FEW_TILE], lo[FEW_TILE];
    UNROLL
    for (int r = 0; r < R; r++)
        hi[r] = lo[r] = _mm512_setzero_si512();
    UNROLL
    for (int g = g0; g < g1; g++) {
        __m512i u = load_group(block, g, bits);
        UNROLL
        for (int r = 0; r < R; r++) {
            const int8_t *at = x->q + ((size_t)r * x->nb + b) * 2 * QBLOCK + g * 4;
            hi[r] = _mm512_dpbusd_epi32(hi[r], u, bytes4(at));
            if (!hi_alone)
                lo[r] = _mm512_dpbusd_epi32(lo[r], u, bytes4(at + QBLOCK));
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        dot[r] = _mm512_add_epi32(_mm512_slli_epi32(hi[r], 8), lo[r]);
}

/* acc += what block b adds to R rows of the panel whose blocks begin with `first`. */
INLINE void add_block(__m512 acc[FEW_TILE], const struct rows_of *x, const struct packed *w,
                      size_t first, size_t b, const int R, const int bits, const int fine)
{
    const int parts = fine == 2 ? 2 : 1, groups = 8 / parts;
    const uint8_t *block = w->data + (first + b) * 64 * (size_t)bits;
    UNROLL
    for (int h = 0; h < parts; h++) {
        __m512i dot[FEW_TILE];
        __m512 d, m;
        if (x->hi_alone)
            dot_few(dot, block, x, b, R, bits, h * groups, (h + 1) * groups, true);
        else
            dot_few(dot, block, x, b, R, bits, h * groups, (h + 1) * groups, false);
        factors(&d, &m, w, first + b, h, fine);
        UNROLL
        for (int r = 0; r < R; r++) {
            size_t at = (size_t)r * x->nb + b;
            __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[at]));
            __m512 sum = _mm512_set1_ps(x->sums[at * (size_t)parts + (size_t)h]);
            acc[r] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(dot[r]), acc[r]);
            acc[r] = _mm512_fmadd_ps(m, sum, acc[r]);
        }
    }
}

/* Rows [t, t + R) times the panels [p0, p1), one after the other: memory is read as one stream, a
 * little ahead of the products. */
INLINE void tile_few(float *out, size_t ld, const struct qrows *q, size_t t, const struct packed *w,
                     size_t p0, size_t p1, const int R, const int bits, const int fine)
{
    const size_t nb = (size_t)w->n_blocks, bytes = 64 * (size_t)bits;
    const struct rows_of x = rows_from(q, t, nb, fine == 2 ? 2 : 1);
    for (size_t p = p0; p < p1; p++) {
        __m512 acc[FEW_TILE];
        UNROLL
        for (int r = 0; r < R; r++)
            acc[r] = _mm512_setzero_ps();
        for (size_t b = 0; b < nb; b++) {
            const char *ahead = (const char *)w->data + (p * nb + b) * bytes + AHEAD_BYTES;
            for (size_t i = 0; i < bytes; i += 64)
                _mm_prefetch(ahead + i, _MM_HINT_T0);
            add_block(acc, &x, w, p * nb, b, R, bits, fine);
        }
        UNROLL
        for (int r = 0; r < R; r++)
            _mm512_storeu_ps(out + (t + (size_t)r) * ld + p * PANEL, acc[r]);
    }
}

/* Rows [t, rows), some panels after the others, which stay in the caches for all rows. */
INLINE void few_rows(float *out, size_t ld, const struct qrows *x, size_t t, size_t rows,
                     const struct packed *w, size_t p, size_t end, const int bits, const int fine)
{
    for (size_t first = t, p1; p < end; p = p1, t = first) {
        p1 = end - p < FEW_PANELS ? end : p + FEW_PANELS;
        for (; t + FEW_TILE <= rows; t += FEW_TILE)
            tile_few(out, ld, x, t, w, p, p1, FEW_TILE, bits, fine);
        if (t + 4 <= rows)
            tile_few(out, ld, x, t, w, p, p1, 4, bits, fine);
        t += (rows - t) / 4 * 4;
        if (t + 2 <= rows)
            tile_few(out, ld, x, t, w, p, p1, 2, bits, fine);
        t += (rows - t) / 2 * 2;
        if (t < rows)
            tile_few(out, ld, x, t, w, p, p1, 1, bits, fine);
    }
}

/* Many rows go by six, then by four, so that fewer than four are left. */
INLINE void rows_q(float *out, size_t ld, const struct qrows *x, int T, const struct packed *w,
                   int panel0, int n_panels, const int bits, const int fine)
{
    size_t first = (size_t)panel0, end = (size_t)(panel0 + n_panels), rows = (size_t)T, p = first;
    size_t rest = rows % BYTE_ROWS, sixes = rows - rest;
    if (sixes && (rest == 2 || rest == 3))
        sixes -= BYTE_ROWS;
    size_t fours = rows > FEW_ROWS ? sixes + (rows - sixes) / 4 * 4 : 0;
    for (; fours && p + BYTE_PANELS <= end; p += BYTE_PANELS)
        rows_of_panels(out + p * PANEL, ld, x, sixes, fours, w, p, BYTE_PANELS, bits, fine);
    for (; fours && p < end; p++)
        rows_of_panels(out + p * PANEL, ld, x, sixes, fours, w, p, 1, bits, fine);
    if (fours < rows)
        few_rows(out, ld, x, fours, rows, w, first, end, bits, fine);
}

void matmul_q_avx512(float *out, size_t ld_out, const struct qrows *x, int T,
                     const struct packed *w, int panel0, int n_panels)
{
    WITH_FORM(rows_q, w, out, ld_out, x, T, w, panel0, n_panels);
}

INLINE __m512 load_float(const uint8_t *data, size_t at, const int kind)
{
    if (kind == PACK_F32)
        return _mm512_load_ps((const float *)(const void *)data + at);
    const uint16_t *h = (const uint16_t *)(const void *)data + at;
    if (kind == PACK_F16)
        return load_half(h);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

/* Channels [k0, k1) of panels that lie `ld` elements apart, of a type. */
struct span {
    const uint8_t *data;
    size_t ld, k0, k1;
    float *floats;    /* of 16 bits: where the first tile leaves what it has converted */
    const char *next; /* what is read afterwards; each channel of a tile asks for `step` bytes */
    size_t step;
};

/* R rows times P panels; R * P accumulators stay in registers.  From k0 > 0 on the sums go on. */
INLINE void tile_f(float *out, size_t ld, const float *x, size_t ld_x, const struct span *w,
                   const int R, const int P, const int kind)
{
    __m512 acc[FLOAT_ROWS][FLOAT_PANELS];
    const char *next = w->next;
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int p = 0; p < P; p++) { /* the lines to write arrive while the tile works */
        const float *at = out + (size_t)r * ld + p * PANEL;
        acc[r][p] = w->k0 ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
        _mm_prefetch((const char *)at, _MM_HINT_T0);
    }
    for (size_t k = w->k0; k < w->k1; k++, next += w->step) {
        __m512 v[FLOAT_PANELS];
        if (R == FLOAT_ROWS)
            _mm_prefetch(next, _MM_HINT_T1);
        UNROLL
        for (int p = 0; p < P; p++) {
            size_t at = (k - w->k0) * PANEL;
            v[p] = load_float(w->data, (size_t)p * w->ld + at, kind);
            if (R == FLOAT_ROWS && kind != PACK_F32)
                _mm512_store_ps(w->floats + (size_t)p * FLOAT_SPAN * PANEL + at, v[p]);
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            __m512 b = _mm512_set1_ps(x[(size_t)r * ld_x + k]);
            UNROLL
            for (int p = 0; p < P; p++)
                acc[r][p] = _mm512_fmadd_ps(b, v[p], acc[r][p]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int p = 0; p < P; p++)
        _mm512_storeu_ps(out + (size_t)r * ld + p * PANEL, acc[r][p]);
}

/* All rows times P panels. */
INLINE void rows_of_floats(float *out, size_t ld, const float *x, size_t ld_x, size_t rows,
                           struct span *w, const int P, const int kind)
{
    size_t t = 0;
    for (; t + FLOAT_ROWS <= rows; t += FLOAT_ROWS) {
        tile_f(out + t * ld, ld, x + t * ld_x, ld_x, w, FLOAT_ROWS, P, kind);
        w->next += (w->k1 - w->k0) * w->step;
    }
    for (; t + 4 <= rows; t += 4)
        tile_f(out + t * ld, ld, x + t * ld_x, ld_x, w, 4, P, kind);
    for (; t < rows; t++)
        tile_f(out + t * ld, ld, x + t * ld_x, ld_x, w, 1, P, kind);
}

/* P panels of 16 bits, a span of channels after the other: the first tile of rows converts them
 * beside its products, for all others. */
INLINE void spans_f(float *out, size_t ld, const float *x, size_t ld_x, size_t rows,
                    const struct span *all, const int P, const int kind)
{
    _Alignas(64) float floats[FLOAT_PANELS * FLOAT_SPAN * PANEL];
    size_t K = all->k1, n_spans = (K + FLOAT_SPAN - 1) / FLOAT_SPAN;
    size_t n = (K + n_spans - 1) / n_spans;
    struct span s = *all;
    s.floats = floats;
    for (s.k1 = 0; s.k1 < K;) {
        s.k0 = s.k1;
        s.k1 = K - s.k0 < n ? K : s.k0 + n;
        s.data = all->data + s.k0 * PANEL * sizeof(uint16_t);
        s.ld = all->ld;
        tile_f(out, ld, x, ld_x, &s, FLOAT_ROWS, P, kind);
        s.next += (s.k1 - s.k0) * s.step;
        s.data = (const uint8_t *)floats;
        s.ld = FLOAT_SPAN * PANEL;
        rows_of_floats(out + FLOAT_ROWS * ld, ld, x + FLOAT_ROWS * ld_x, ld_x, rows - FLOAT_ROWS,
                       &s, P, PACK_F32);
    }
}

/* All rows times P panels, while the P panels from `next` on come into the second cache. */
INLINE void panels_f(float *out, size_t ld, const float *x, size_t ld_x, size_t rows,
                     const struct packed *w, size_t panel, size_t next, const int P, const int kind)
{
    size_t K = (size_t)w->K, bytes = kind == PACK_F32 ? 4 : 2, tiles = rows / FLOAT_ROWS;
    struct span all = {.data = w->data + panel * K * PANEL * bytes,
                       .ld = K * PANEL,
                       .k1 = K,
                       .next = (const char *)w->data + next * K * PANEL * bytes,
                       .step = tiles ? ((size_t)P * PANEL * bytes + tiles - 1) / tiles : 0};
    if (kind != PACK_F32 && tiles)
        spans_f(out + panel * PANEL, ld, x, ld_x, rows, &all, P, kind);
    else
        rows_of_floats(out + panel * PANEL, ld, x, ld_x, rows, &all, P, kind);
}

/* Panels of the next tiles, of those that are left: none stands alone behind others. */
INLINE size_t panels_of(size_t left)
{
    if (left == 1 || left == 2)
        return left;
    return left == 4 ? 2 : FLOAT_PANELS;
}

/* One row waits for the weights, and reads them as one stream.  Of many rows the panels that follow
 * are asked for; behind the last, those of the task after the next, which another thread has. */
INLINE void rows_f(float *out, size_t ld, const float *x, size_t ld_x, int T,
                   const struct packed *w, int panel0, int n_panels, const int kind)
{
    size_t p = (size_t)panel0, end = (size_t)(panel0 + n_panels), rows = (size_t)T;
    for (size_t n; p < end; p += n) {
        n = rows > 1 ? panels_of(end - p) : 1;
        size_t next = p + n < end ? p + n : end + (size_t)n_panels;
        if (n == FLOAT_PANELS)
            panels_f(out, ld, x, ld_x, rows, w, p, next, FLOAT_PANELS, kind);
        else if (n == 2)
            panels_f(out, ld, x, ld_x, rows, w, p, next, 2, kind);
        else
            panels_f(out, ld, x, ld_x, rows, w, p, next, 1, kind);
    }
}

void matmul_f_avx512(float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                     const struct packed *w, int panel0, int n_panels)
{
    if (w->kind == PACK_F32)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F32);
    else if (w->kind == PACK_F16)
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_F16);
    else
        rows_f(out, ld_out, x, ld_x, T, w, panel0, n_panels, PACK_BF16);
}

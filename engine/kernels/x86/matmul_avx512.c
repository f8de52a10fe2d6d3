/* matmul_avx512.c - matrix products with packed weights.
 *
 * A tile is R rows of x times one or several panels of 16 outputs. The float operations of one
 * output are identical and in the same order in every tile and in the reference, so a row's result
 * does not depend on its neighbours. */
#include "engine/kernels/x86/span_avx512.h"

/* Sums and accumulators of 6 rows by 2 panels of bytes fill the registers. So do 8 rows by 3 panels
 * of floats, which read fewer lines per product than 12 by 2. */
enum { BYTE_ROWS = 6, FLOAT_ROWS = 8, FLOAT_PANELS = 3 };
/* Few rows use the panels as packed, in tiles of FEW_TILE rows. */
enum { FEW_ROWS = 32, FEW_TILE = 8, FEW_PANELS = 2, AHEAD_BYTES = 6144 };
/* Halves are converted to floats once for all rows, FLOAT_SPAN channels at a time: 147 KB, which
 * stay in the L2 cache. */
enum { FLOAT_SPAN = 768 };

/* Channels of floats that are multiplied at once. Three panels have 983 KB, so that they stay in an
 * L2 cache of 2 MB; shorter spans load and store the sums more often. */
enum { LONG_SPAN = 5120 };

INLINE __m512i bytes4(const int8_t *p)
{
    return _mm512_set1_epi32(*(const int32_t *)(const void *)p);
}

/* Form of rows, a compile-time constant in tiles: 16 bits, 8 bits, or 8 bits with integer sums. */
enum rows_form { ROWS_16, ROWS_8, ROWS_LOW };

INLINE enum rows_form form_of(const struct qrows *x)
{
    if (!x->hi_alone)
        return ROWS_16;
    return x->lowest ? ROWS_LOW : ROWS_8;
}

/* A row and the following rows, nb blocks apart: bytes (`ld` per row), scales and sums. */
struct rows_of {
    const int8_t *q;
    const float *scale, *sums;
    const int32_t *low;
    size_t nb, ld;
};

INLINE struct rows_of rows_from(const struct qrows *x, size_t t, size_t nb, const int parts,
                                const enum rows_form form)
{
    const size_t ld = nb * (form == ROWS_16 ? 2 * QBLOCK : QBLOCK), at = t * nb * (size_t)parts;
    struct rows_of rows = {.q = x->q + t * ld, .scale = x->scale + t * nb, .nb = nb, .ld = ld};
    if (form == ROWS_LOW)
        rows.low = (parts == 2 ? x->half_low : x->low) + at;
    else
        rows.sums = (parts == 2 ? x->half : x->sum) + at;
    return rows;
}

/* Keeps v in a register. Compilers would otherwise read the bytes of x from memory for every
 * product, but a CPU with two multiplications per cycle has only two loads per cycle. */
#define IN_REGISTER(v) __asm__("" : "+v"(v))

/* sum[r][p] += dot products of the groups [g0, g1) of block b with the bytes q of R rows. */
INLINE void dot_rows(__m512i sum[BYTE_ROWS][BYTE_PANELS], const struct span_q *s, size_t b,
                     const int8_t *q, size_t ld, const int R, const int P, const int g0,
                     const int g1)
{
    UNROLL
    for (int g = g0; g < g1; g++) {
        __m512i u[BYTE_PANELS];
        UNROLL
        for (int p = 0; p < P; p++)
            u[p] = _mm512_load_si512(s->bytes[p] + (b - s->b0) * 512 + g * 64);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m512i x = bytes4(q + (size_t)r * ld + g * 4);
            IN_REGISTER(x);
            UNROLL
            for (int p = 0; p < P; p++)
                sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], u[p], x);
        }
    }
}

/* acc += the scaled sums of half h of block b: d scale sum, plus m sum(x) unless the sum includes
 * it. */
INLINE void add_scaled(__m512 acc[BYTE_ROWS][BYTE_PANELS], __m512i sum[BYTE_ROWS][BYTE_PANELS],
                       const struct span_q *s, size_t b, const struct rows_of *x, const int R,
                       const int P, const int h, const int parts, const enum rows_form form)
{
    UNROLL
    for (int p = 0; p < P; p++) {
        const float *at = s->factors[p] + ((b - s->b0) * (size_t)parts + (size_t)h) * 2 * PANEL;
        __m512 d = _mm512_load_ps(at);
        UNROLL
        for (int r = 0; r < R; r++) {
            size_t row = (size_t)r * x->nb + b;
            __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[row]));
            acc[r][p] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(sum[r][p]), acc[r][p]);
            if (form == ROWS_LOW)
                continue;
            __m512 m = _mm512_load_ps(at + PANEL);
            __m512 sum_x = _mm512_set1_ps(x->sums[row * (size_t)parts + (size_t)h]);
            acc[r][p] = _mm512_fmadd_ps(m, sum_x, acc[r][p]);
        }
    }
}

/* Adds block b to R rows of P panels, in two halves if each has its own scales. */
INLINE void block_rows(__m512 acc[BYTE_ROWS][BYTE_PANELS], const struct span_q *s, size_t b,
                       const struct rows_of *x, const int R, const int P, const int parts,
                       const enum rows_form form)
{
    const int groups = 8 / parts;
    const int8_t *hi = x->q + b * (form == ROWS_16 ? 2 * QBLOCK : QBLOCK);
    UNROLL
    for (int h = 0; h < parts; h++) {
        const size_t at = b * (size_t)parts + (size_t)h, ld = x->nb * (size_t)parts;
        __m512i sum[BYTE_ROWS][BYTE_PANELS];
        UNROLL
        for (int i = 0; i < R * P; i++)
            sum[i / P][i % P] = form == ROWS_LOW
                                    ? _mm512_set1_epi32(x->low[at + ld * (size_t)(i / P)])
                                    : _mm512_setzero_si512();
        dot_rows(sum, s, b, hi, x->ld, R, P, h * groups, (h + 1) * groups);
        if (form == ROWS_16) {
            UNROLL
            for (int i = 0; i < R * P; i++)
                sum[i / P][i % P] = _mm512_slli_epi32(sum[i / P][i % P], 8);
            dot_rows(sum, s, b, hi + QBLOCK, x->ld, R, P, h * groups, (h + 1) * groups);
        }
        add_scaled(acc, sum, s, b, x, R, P, h, parts, form);
    }
}

/* Multiplies rows [t, t + R) by a span of P panels; outputs continue from earlier spans. Sums and
 * accumulators of all rows stay in registers. */
INLINE void tile_rows(float *out, size_t ld, const struct qrows *q, size_t t,
                      const struct span_q *s, const int R, const int P, const int parts,
                      const enum rows_form form)
{
    const struct rows_of x = rows_from(q, t, s->nb, parts, form);
    float *to = out + t * ld;
    __m512 acc[BYTE_ROWS][BYTE_PANELS];
    UNROLL
    for (int i = 0; i < R * P; i++)
        acc[i / P][i % P] = s->b0 ? _mm512_loadu_ps(to + (size_t)(i / P) * ld + i % P * PANEL)
                                  : _mm512_setzero_ps();
    for (size_t b = s->b0; b < s->b1; b++)
        block_rows(acc, s, b, &x, R, P, parts, form);
    UNROLL
    for (int i = 0; i < R * P; i++)
        _mm512_storeu_ps(to + (size_t)(i / P) * ld + i % P * PANEL, acc[i / P][i % P]);
}

/* All rows of a task: [0, sixes) in tiles of six rows, [sixes, fours) in tiles of four. */
struct many {
    float *out;
    size_t ld;
    const struct qrows *x;
    size_t sixes, fours;
    const char *next; /* data to prefetch; each tile of six rows prefetches `step` bytes */
    size_t step;
};

INLINE void ask_ahead(struct many *m)
{
    for (size_t i = 0; i < m->step; i += 64)
        _mm_prefetch(m->next + i, _MM_HINT_T1);
    m->next += m->step;
}

/* Multiplies the rows by a span. */
INLINE void rows_of_span(struct many *m, const struct span_q *s, const int P, const int parts,
                         const enum rows_form form)
{
    for (size_t t = 0; t < m->sixes; t += BYTE_ROWS) {
        ask_ahead(m);
        tile_rows(m->out, m->ld, m->x, t, s, BYTE_ROWS, P, parts, form);
    }
    for (size_t t = m->sixes; t < m->fours; t += 4)
        tile_rows(m->out, m->ld, m->x, t, s, 4, P, parts, form);
}

/* Tile functions that all weight kinds share, since they work on unpacked weights. */
#define ROWS_OF_SPAN(name, P, parts)                                                               \
    static __attribute__((noinline)) void name(struct many *m, const struct span_q *s)             \
    {                                                                                              \
        const enum rows_form form = form_of(m->x);                                                 \
        if (form == ROWS_16)                                                                       \
            rows_of_span(m, s, P, parts, ROWS_16);                                                 \
        else if (form == ROWS_8)                                                                   \
            rows_of_span(m, s, P, parts, ROWS_8);                                                  \
        else                                                                                       \
            rows_of_span(m, s, P, parts, ROWS_LOW);                                                \
    }
ROWS_OF_SPAN(one_whole, 1, 1)
ROWS_OF_SPAN(one_halves, 1, 2)
ROWS_OF_SPAN(two_whole, BYTE_PANELS, 1)
ROWS_OF_SPAN(two_halves, BYTE_PANELS, 2)

/* Multiplies the rows by P full panels and prefetches the panels from `next` on into the L2
 * cache. */
INLINE void rows_of_panels(struct many m, const struct packed *w, size_t panel, size_t next,
                           const int P, const int bits, const int fine)
{
    const size_t nb = (size_t)w->n_blocks, block = 64 * (size_t)bits;
    const size_t tiles = m.sixes / BYTE_ROWS * ((nb + SPAN_BLOCKS - 1) / SPAN_BLOCKS);
    struct span_q s;
    m.out += panel * PANEL;
    m.next = (const char *)w->data + next * nb * block;
    m.step = tiles ? ((size_t)P * nb * block / tiles + 64) / 64 * 64 : 0;
    before_spans(&s, w);
    while (next_span(&s, w, panel, P, bits, fine))
        if (P == 1)
            fine == 2 ? one_halves(&m, &s) : one_whole(&m, &s);
        else
            fine == 2 ? two_halves(&m, &s) : two_whole(&m, &s);
}

/* dot[r] = exact dot products of the groups [g0, g1) of a block with R rows; the sums begin at
 * `low`. hi and lo are processed together, so that each group is read once. */
INLINE void dot_few(__m512i dot[FEW_TILE], const uint8_t *block, const struct rows_of *x, size_t b,
                    const int R, const int bits, const int h, const int parts,
                    const enum rows_form form)
{
    const int groups = 8 / parts;
    const size_t at = b * (size_t)parts + (size_t)h, ld = x->nb * (size_t)parts;
    const int8_t *q = x->q + b * (form == ROWS_16 ? 2 * QBLOCK : QBLOCK);
    __m512i hi[FEW_TILE], lo[FEW_TILE];
    UNROLL
    for (int r = 0; r < R; r++) {
        lo[r] = _mm512_setzero_si512();
        hi[r] = form == ROWS_LOW ? _mm512_set1_epi32(x->low[at + ld * (size_t)r]) : lo[r];
    }
    UNROLL
    for (int g = h * groups; g < (h + 1) * groups; g++) {
        __m512i u = load_group(block, g, bits);
        UNROLL
        for (int r = 0; r < R; r++) {
            hi[r] = _mm512_dpbusd_epi32(hi[r], u, bytes4(q + (size_t)r * x->ld + g * 4));
            if (form == ROWS_16)
                lo[r] = _mm512_dpbusd_epi32(lo[r], u,
                                            bytes4(q + (size_t)r * x->ld + QBLOCK + g * 4));
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        dot[r] = form == ROWS_16 ? _mm512_add_epi32(_mm512_slli_epi32(hi[r], 8), lo[r]) : hi[r];
}

/* acc += the contribution of block b to R rows, for the panel that begins with block `first`. */
INLINE void add_block(__m512 acc[FEW_TILE], const struct rows_of *x, const struct packed *w,
                      size_t first, size_t b, const int R, const int bits, const int fine,
                      const enum rows_form form)
{
    const int parts = fine == 2 ? 2 : 1;
    const uint8_t *block = w->data + (first + b) * 64 * (size_t)bits;
    UNROLL
    for (int h = 0; h < parts; h++) {
        __m512i dot[FEW_TILE];
        __m512 d, m;
        dot_few(dot, block, x, b, R, bits, h, parts, form);
        factors(&d, &m, w, first + b, h, fine);
        UNROLL
        for (int r = 0; r < R; r++) {
            size_t at = (size_t)r * x->nb + b;
            __m512 ds = _mm512_mul_ps(d, _mm512_set1_ps(x->scale[at]));
            acc[r] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(dot[r]), acc[r]);
            if (form == ROWS_LOW)
                continue;
            __m512 sum = _mm512_set1_ps(x->sums[at * (size_t)parts + (size_t)h]);
            acc[r] = _mm512_fmadd_ps(m, sum, acc[r]);
        }
    }
}

/* The panels of a task, which a thread reads as one stream. During a panel it prefetches the data
 * FEW_PANELS later: each tile of rows prefetches `lines` lines of every block, from `line` on,
 * because a core supports a limited number of outstanding requests. A single row prefetches into
 * the L1 cache, a short distance ahead. */
struct stream {
    size_t first, n; /* panels */
    size_t line, lines;
    bool alone;
};

/* Returns the first block to prefetch during panel p. At the end of a task it belongs to the task
 * after the next, because another thread runs the next one. */
INLINE size_t block_behind(const struct stream *s, size_t p, size_t nb, const int bits)
{
    size_t i = p - s->first + FEW_PANELS;
    if (s->alone)
        return p * nb + AHEAD_BYTES / (64 * (size_t)bits);
    return (s->first + i / s->n * 2 * s->n + i % s->n) * nb;
}

INLINE void ask_behind(const struct stream *s, const struct packed *w, size_t block, const int bits)
{
    const char *data = (const char *)w->data + (block * (size_t)bits + s->line) * 64;
    if (s->alone) {
        for (size_t i = 0; i < s->lines; i++)
            _mm_prefetch(data + i * 64, _MM_HINT_T0);
        return;
    }
    for (size_t i = 0; i < s->lines; i++)
        _mm_prefetch(data + i * 64, _MM_HINT_T1);
    const size_t scales = w->lowest ? PANEL : 2 * PANEL;
    _mm_prefetch((const char *)(w->scale + block / (size_t)w->super * scales), _MM_HINT_T1);
}

/* Multiplies rows [t, t + R) by the panels [p0, p1), one after another. */
INLINE void tile_few(float *out, size_t ld, const struct qrows *q, size_t t, const struct packed *w,
                     size_t p0, size_t p1, struct stream *s, const int R, const int bits,
                     const int fine, const enum rows_form form)
{
    const size_t nb = (size_t)w->n_blocks;
    const struct rows_of x = rows_from(q, t, nb, fine == 2 ? 2 : 1, form);
    for (size_t p = p0; p < p1; p++) {
        const size_t behind = block_behind(s, p, nb, bits);
        __m512 acc[FEW_TILE];
        UNROLL
        for (int r = 0; r < R; r++)
            acc[r] = _mm512_setzero_ps();
        for (size_t b = 0; b < nb; b++) {
            ask_behind(s, w, behind + b, bits);
            add_block(acc, &x, w, p * nb, b, R, bits, fine, form);
        }
        UNROLL
        for (int r = 0; r < R; r++)
            _mm512_storeu_ps(out + (t + (size_t)r) * ld + p * PANEL, acc[r]);
    }
    s->line += s->lines;
}

/* Multiplies rows [t, rows), in groups of panels that stay in the caches for all rows. */
INLINE void few_rows(float *out, size_t ld, const struct qrows *x, size_t t, size_t rows,
                     const struct packed *w, size_t p, size_t end, const int bits, const int fine,
                     const enum rows_form form)
{
    const size_t tiles = (rows - t + FEW_TILE - 1) / FEW_TILE;
    struct stream s = {
        .first = p, .n = end - p, .lines = ((size_t)bits + tiles - 1) / tiles, .alone = rows == 1};
    for (size_t first = t, p1; p < end; p = p1, t = first) {
        p1 = end - p < FEW_PANELS ? end : p + FEW_PANELS;
        s.line = 0;
        for (; t + FEW_TILE <= rows; t += FEW_TILE)
            tile_few(out, ld, x, t, w, p, p1, &s, FEW_TILE, bits, fine, form);
        if (t + 4 <= rows)
            tile_few(out, ld, x, t, w, p, p1, &s, 4, bits, fine, form);
        t += (rows - t) / 4 * 4;
        if (t + 2 <= rows)
            tile_few(out, ld, x, t, w, p, p1, &s, 2, bits, fine, form);
        t += (rows - t) / 2 * 2;
        if (t < rows)
            tile_few(out, ld, x, t, w, p, p1, &s, 1, bits, fine, form);
    }
}

/* Returns the panel after p. After the last panel it returns the first panel of the task after the
 * next, because another thread runs the next task. */
INLINE size_t next_of(size_t p, size_t end, int n_panels)
{
    return p < end ? p : end + (size_t)n_panels;
}

/* Many rows are processed by six, then by four, so that fewer than four remain. */
INLINE void rows_q(float *out, size_t ld, const struct qrows *x, int T, const struct packed *w,
                   int panel0, int n_panels, const int bits, const int fine)
{
    size_t first = (size_t)panel0, end = (size_t)(panel0 + n_panels), rows = (size_t)T, p = first;
    size_t rest = rows % BYTE_ROWS, sixes = rows - rest;
    if (sixes && (rest == 2 || rest == 3))
        sixes -= BYTE_ROWS;
    size_t fours = rows > FEW_ROWS ? sixes + (rows - sixes) / 4 * 4 : 0;
    const struct many m = {.out = out, .ld = ld, .x = x, .sixes = sixes, .fours = fours};
    for (; fours && p + BYTE_PANELS <= end; p += BYTE_PANELS)
        rows_of_panels(m, w, p, next_of(p + BYTE_PANELS, end, n_panels), BYTE_PANELS, bits, fine);
    for (; fours && p < end; p++)
        rows_of_panels(m, w, p, next_of(p + 1, end, n_panels), 1, bits, fine);
    if (fours == rows)
        return;
    const enum rows_form form = form_of(x);
    if (form == ROWS_16)
        few_rows(out, ld, x, fours, rows, w, first, end, bits, fine, ROWS_16);
    else if (form == ROWS_8)
        few_rows(out, ld, x, fours, rows, w, first, end, bits, fine, ROWS_8);
    else
        few_rows(out, ld, x, fours, rows, w, first, end, bits, fine, ROWS_LOW);
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

/* Channels [k0, k1) of panels that are `ld` elements apart. */
struct span {
    const uint8_t *data;
    size_t ld, k0, k1;
    float *floats;    /* 16-bit kinds: buffer in which the first tile stores converted elements */
    const char *next; /* data to prefetch; each channel of a tile prefetches `step` bytes */
    size_t step;
};

/* Multiplies R rows by P panels; R * P accumulators stay in registers. With k0 > 0 the sums
 * continue. */
INLINE void tile_f(float *out, size_t ld, const float *x, size_t ld_x, const struct span *w,
                   const int R, const int P, const int kind)
{
    __m512 acc[FLOAT_ROWS][FLOAT_PANELS];
    const char *next = w->next;
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int p = 0; p < P; p++) { /* prefetches the output lines while the tile is computed */
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

/* Multiplies all rows by P panels. */
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

/* Multiplies by P panels of a 16-bit kind, span by span of channels. The first tile of rows
 * converts the span for all other tiles. */
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

/* Multiplies all rows by channels [k0, k1) of P panels. If these are all channels, it prefetches
 * the P panels from `next` on into the L2 cache. */
INLINE void panels_f(float *out, size_t ld, const float *x, size_t ld_x, size_t rows,
                     const struct packed *w, size_t panel, size_t next, size_t k0, size_t k1,
                     const int P, const int kind)
{
    size_t K = (size_t)w->K, bytes = kind == PACK_F32 ? 4 : 2, tiles = rows / FLOAT_ROWS;
    struct span all = {
        .data = w->data + (panel * K + k0) * PANEL * bytes,
        .ld = K * PANEL,
        .k0 = k0,
        .k1 = k1,
        .next = (const char *)w->data + next * K * PANEL * bytes,
        .step = tiles && k1 - k0 == K ? ((size_t)P * PANEL * bytes + tiles - 1) / tiles : 0};
    if (kind != PACK_F32 && tiles)
        spans_f(out + panel * PANEL, ld, x, ld_x, rows, &all, P, kind);
    else
        rows_of_floats(out + panel * PANEL, ld, x, ld_x, rows, &all, P, kind);
}

/* Returns the panels of the next tile, given the remaining panels, and avoids a final tile of one
 * panel. */
INLINE size_t panels_of(size_t left)
{
    if (left == 1 || left == 2)
        return left;
    return left == 4 ? 2 : FLOAT_PANELS;
}

/* A single row is limited by the memory and reads the weights as one stream. For many rows the
 * following panels are prefetched; after the last panel, those of the task after the next, because
 * another thread runs the next task. With many rows, the channels of floats are multiplied span by
 * span, so that the panels of a span stay in the L2 cache. The order of a sum is the same. */
INLINE void rows_f(float *out, size_t ld, const float *x, size_t ld_x, int T,
                   const struct packed *w, int panel0, int n_panels, const int kind)
{
    size_t end = (size_t)(panel0 + n_panels), rows = (size_t)T, K = (size_t)w->K, n_spans = 1;
    if (kind == PACK_F32 && rows >= FLOAT_ROWS)
        n_spans = (K + LONG_SPAN - 1) / LONG_SPAN;
    size_t span = (K + n_spans - 1) / n_spans;
    for (size_t k0 = 0, k1; k0 < K; k0 = k1) {
        k1 = K - k0 < span ? K : k0 + span;
        for (size_t p = (size_t)panel0, n; p < end; p += n) {
            n = rows > 1 ? panels_of(end - p) : 1;
            size_t next = p + n < end ? p + n : end + (size_t)n_panels;
            if (n == FLOAT_PANELS)
                panels_f(out, ld, x, ld_x, rows, w, p, next, k0, k1, FLOAT_PANELS, kind);
            else if (n == 2)
                panels_f(out, ld, x, ld_x, rows, w, p, next, k0, k1, 2, kind);
            else
                panels_f(out, ld, x, ld_x, rows, w, p, next, k0, k1, 1, kind);
        }
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

/* matmul_amx.c - products with packed bytes with Intel AMX.
 *
 * One instruction multiplies the bytes of 16 rows of x by the bytes of a panel. A (panel, block)
 * already has the layout of its operand, 8 rows of [16 outputs][4 channels]. Its sums are exact
 * integers. AVX-512 scales them with the operations of matmul_avx512.c in the same order, so both
 * give the same bits. Sums pass through memory, because AMX has no other path from a tile to a
 * vector.
 *
 * A step is a unit with its own scales: a block, or half of one. The tiles compute the steps of the
 * next round while vectors scale the steps of this round. In program order each product precedes a
 * part of the scaling that does not depend on it. */
#include "engine/kernels/x86/span_avx512.h"
#include "engine/kernels/x86/tiles.h"

/* The sums of 2 rounds of 2 steps use 16 KB of the L1 cache. The 8 rows of 2 panels that are scaled
 * together use half of the registers. */
enum { TILE_ROWS = 16, ROUND = 2, SHARE_ROWS = TILE_ROWS / ROUND };
enum { HI = 0, LO = 1 };

/* Tile numbers, which are constants in instructions: sums of the high and low bytes of x for either
 * panel, the bytes of x, and the bytes of the panels. */
#define HI_SUMS 0
#define LO_SUMS 1
#define SECOND_HI_SUMS 2
#define SECOND_LO_SUMS 3
#define HI_BYTES 4
#define LO_BYTES 5
#define WEIGHTS 6
#define SECOND_WEIGHTS 7

typedef int32_t tile_sums[TILE_ROWS][PANEL];

struct work {
    _Alignas(64) tile_sums sums[2][ROUND][BYTE_PANELS][2]; /* of two rounds: hi, lo */
    _Alignas(64) float acc[TILE_ROWS][BYTE_PANELS][PANEL];
};

/* 16 rows of x from the span's first block on. */
struct tile_x {
    const int8_t *q;
    const float *scale, *sums;
    const int32_t *low; /* NULL: use `sums` */
    size_t nb, bytes;   /* bytes of a row and a block */
    bool hi_alone;
};

/* Computes the sums of a step of the span: 32 / parts channels of each row by P panels. LO is
 * computed only if hi_alone is false. */
INLINE void multiply_step(tile_sums sums[BYTE_PANELS][2], const struct tile_x *x,
                          const struct span_q *s, size_t step, const int P, const int parts)
{
    const size_t stride = x->nb * x->bytes, bytes = 512 / (size_t)parts;
    const int8_t *q = x->q + step / (size_t)parts * x->bytes
                      + step % (size_t)parts * (size_t)(QBLOCK / parts);
    tile_zero(HI_SUMS);
    tile_load(WEIGHTS, s->bytes[0] + step * bytes, 64);
    tile_load(HI_BYTES, q, stride);
    tile_dot(HI_SUMS, HI_BYTES, WEIGHTS);
    if (P == 2) {
        tile_zero(SECOND_HI_SUMS);
        tile_load(SECOND_WEIGHTS, s->bytes[1] + step * bytes, 64);
        tile_dot(SECOND_HI_SUMS, HI_BYTES, SECOND_WEIGHTS);
    }
    if (!x->hi_alone) {
        tile_zero(LO_SUMS);
        tile_load(LO_BYTES, q + QBLOCK, stride);
        tile_dot(LO_SUMS, LO_BYTES, WEIGHTS);
    }
    if (P == 2 && !x->hi_alone) {
        tile_zero(SECOND_LO_SUMS);
        tile_dot(SECOND_LO_SUMS, LO_BYTES, SECOND_WEIGHTS);
    }
    tile_store(HI_SUMS, sums[0][HI], 64);
    if (P == 2)
        tile_store(SECOND_HI_SUMS, sums[1][HI], 64);
    if (!x->hi_alone)
        tile_store(LO_SUMS, sums[0][LO], 64);
    if (P == 2 && !x->hi_alone)
        tile_store(SECOND_LO_SUMS, sums[1][LO], 64);
}

/* Returns the tile sums of a row and a panel. */
INLINE __m512i sum_of(tile_sums of[2], const struct tile_x *x, size_t row)
{
    __m512i hi = _mm512_load_si512(of[HI][row]);
    if (x->hi_alone)
        return hi;
    return _mm512_add_epi32(_mm512_slli_epi32(hi, 8), _mm512_load_si512(of[LO][row]));
}

/* acc += the scaled sums of one step, rows [r0, r0 + SHARE_ROWS): d scale sum + m sum(x), or with
 * low d scale (sum + low). */
INLINE void scale_step(__m512 acc[SHARE_ROWS][BYTE_PANELS], tile_sums sums[BYTE_PANELS][2],
                       const struct tile_x *x, const struct span_q *s, size_t step, size_t r0,
                       const int P, const int parts)
{
    const float *scale = x->scale + r0 * x->nb + step / (size_t)parts;
    const size_t first = r0 * x->nb * (size_t)parts + step, ld = x->nb * (size_t)parts;
    __m512 d[BYTE_PANELS], m[BYTE_PANELS];
    UNROLL
    for (int p = 0; p < P; p++) {
        d[p] = _mm512_load_ps(s->factors[p] + step * 2 * PANEL);
        m[p] = _mm512_load_ps(s->factors[p] + step * 2 * PANEL + PANEL);
    }
    UNROLL
    for (size_t r = 0; r < SHARE_ROWS; r++) {
        __m512 unit = _mm512_set1_ps(scale[r * x->nb]);
        UNROLL
        for (int p = 0; p < P; p++) {
            __m512i sum = sum_of(sums[p], x, r0 + r);
            __m512 ds = _mm512_mul_ps(d[p], unit);
            if (x->low)
                sum = _mm512_add_epi32(sum, _mm512_set1_epi32(x->low[first + r * ld]));
            acc[r][p] = _mm512_fmadd_ps(ds, _mm512_cvtepi32_ps(sum), acc[r][p]);
            if (!x->low)
                acc[r][p] = _mm512_fmadd_ps(m[p], _mm512_set1_ps(x->sums[first + r * ld]),
                                            acc[r][p]);
        }
    }
}

/* Scales the steps [first, end) of a round for one part of its rows. */
INLINE void scale_share(struct work *k, tile_sums sums[ROUND][BYTE_PANELS][2],
                        const struct tile_x *x, const struct span_q *s, size_t first, size_t end,
                        size_t r0, const int P, const int parts)
{
    __m512 acc[SHARE_ROWS][BYTE_PANELS];
    UNROLL
    for (int i = 0; i < SHARE_ROWS * P; i++)
        acc[i / P][i % P] = _mm512_load_ps(k->acc[r0 + (size_t)(i / P)][i % P]);
    for (size_t step = first; step < end; step++)
        scale_step(acc, sums[step - first], x, s, step, r0, P, parts);
    UNROLL
    for (int i = 0; i < SHARE_ROWS * P; i++)
        _mm512_store_ps(k->acc[r0 + (size_t)(i / P)][i % P], acc[i / P][i % P]);
}

/* Processes all steps of a span. */
INLINE void tile_steps(struct work *k, const struct tile_x *x, const struct span_q *s, const int P,
                       const int parts)
{
    const size_t steps = (s->b1 - s->b0) * (size_t)parts;
    for (size_t i = 0; i < ROUND && i < steps; i++)
        multiply_step(k->sums[0][i], x, s, i, P, parts);
    for (size_t first = 0, turn = 0; first < steps; first += ROUND, turn ^= 1) {
        size_t next = first + ROUND, end = next < steps ? next : steps;
        for (size_t i = 0; i < ROUND; i++) {
            if (next + i < steps)
                multiply_step(k->sums[turn ^ 1][i], x, s, next + i, P, parts);
            scale_share(k, k->sums[turn], x, s, first, end, i * SHARE_ROWS, P, parts);
        }
    }
}

/* Multiplies 16 rows from row t on by a span of P panels; outputs continue from earlier spans. */
INLINE void tile_rows(float *out, size_t ld, const struct qrows *x, size_t t,
                      const struct span_q *s, const int P, const int parts)
{
    const size_t nb = s->nb, at = t * nb + s->b0, bytes = qrows_bytes(x);
    struct tile_x from = {x->q + at * bytes, x->scale + at, .nb = nb, .bytes = bytes,
                          .hi_alone = x->hi_alone};
    if (qrows_low(x))
        from.low = parts == 2 ? x->half_low + at * 2 : x->low + at;
    else
        from.sums = parts == 2 ? x->half + at * 2 : x->sum + at;
    struct work k;
    float *to = out + t * ld;
    for (int i = 0; i < TILE_ROWS * P; i++)
        _mm512_store_ps(k.acc[i / P][i % P],
                        s->b0 ? _mm512_loadu_ps(to + (size_t)(i / P) * ld + i % P * PANEL)
                              : _mm512_setzero_ps());
    tile_steps(&k, &from, s, P, parts);
    for (int i = 0; i < TILE_ROWS * P; i++)
        _mm512_storeu_ps(to + (size_t)(i / P) * ld + i % P * PANEL,
                         _mm512_load_ps(k.acc[i / P][i % P]));
}

/* Multiplies by P full panels; `panel` is the first one. */
INLINE void rows_of_panels(float *out, size_t ld, const struct qrows *x, size_t rows,
                           const struct packed *w, size_t panel, const int P, const int bits,
                           const int fine)
{
    struct span_q s;
    before_spans(&s, w);
    while (next_span(&s, w, panel, P, bits, fine))
        for (size_t t = 0; t < rows; t += TILE_ROWS)
            tile_rows(out, ld, x, t, &s, P, fine == 2 ? 2 : 1);
}

/* Multiplies tiles of 16 rows. The tile configuration belongs to a thread, and each call releases
 * it. Otherwise the system would save 8 KB more at every context switch, and other code would run
 * with unexpected tiles. The two instructions take some hundred cycles, a call takes thousands. */
INLINE void rows_q(float *out, size_t ld, const struct qrows *x, size_t rows,
                   const struct packed *w, int panel0, int n_panels, const int bits, const int fine)
{
    const int parts = fine == 2 ? 2 : 1;
    size_t p = (size_t)panel0, end = (size_t)(panel0 + n_panels);
    struct tile_shapes shapes = {.palette = 1};
    for (int t = HI_SUMS; t <= SECOND_WEIGHTS; t++) {
        bool of_x = t == HI_BYTES || t == LO_BYTES;
        shapes.rows[t] = (uint8_t)(t >= WEIGHTS ? 8 / parts : TILE_ROWS);
        shapes.row_bytes[t] = (uint16_t)(of_x ? QBLOCK / parts : 64);
    }
    tile_configure(&shapes);
    for (; p + BYTE_PANELS <= end; p += BYTE_PANELS)
        rows_of_panels(out + p * PANEL, ld, x, rows, w, p, BYTE_PANELS, bits, fine);
    for (; p < end; p++)
        rows_of_panels(out + p * PANEL, ld, x, rows, w, p, 1, bits, fine);
    tile_release();
}

/* AVX-512 computes the rows that do not fill a tile. */
void matmul_q_amx(float *out, size_t ld_out, const struct qrows *x, int T, const struct packed *w,
                  int panel0, int n_panels)
{
    size_t rows = (size_t)(T / TILE_ROWS * TILE_ROWS);
    if (rows)
        WITH_FORM(rows_q, w, out, ld_out, x, rows, w, panel0, n_panels);
    if (rows < (size_t)T) {
        struct qrows rest = qrows_from(x, rows);
        matmul_q_avx512(out + rows * ld_out, ld_out, &rest, T - (int)rows, w, panel0, n_panels);
    }
}

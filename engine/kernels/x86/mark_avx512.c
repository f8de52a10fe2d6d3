/* mark_avx512.c - marks the members of a selected set, 32 at a time: a register has 32 lanes of 16
 * bits and a mask 32 bits. */
#include <stdbool.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* Returns the mask of members for 32 entries: entries >= the threshold, but only > it for the first
 * before_tie ones. */
INLINE __mmask32 members(__m512 lo, __m512 hi, __m512 cut, const bool all_ties, int64_t before_tie)
{
    __mmask32 ge = _mm512_kunpackw(_mm512_cmp_ps_mask(hi, cut, _CMP_GE_OQ),
                                   _mm512_cmp_ps_mask(lo, cut, _CMP_GE_OQ));
    if (all_ties || before_tie <= 0)
        return ge;
    __mmask32 gt = _mm512_kunpackw(_mm512_cmp_ps_mask(hi, cut, _CMP_GT_OQ),
                                   _mm512_cmp_ps_mask(lo, cut, _CMP_GT_OQ));
    return before_tie >= 32 ? gt : ge & (gt | ~0u << before_tie);
}

/* Returns the members of 64 entries, the first of which is before_tie entries before the first tie.
 * x: their weights. */
INLINE uint64_t members_of_64(const __m512 *x, const struct row_cut *c, int64_t before_tie)
{
    const __m512 cut = _mm512_set1_ps(c->threshold);
    return members(x[0], x[1], cut, before_tie <= 0, before_tie)
           | (uint64_t)members(x[2], x[3], cut, before_tie <= 0, before_tie - 32) << 32;
}

void member_bits_avx512(uint64_t *bits, size_t ld, const float *p, int n, const struct row_cut *cut,
                        int n_cuts)
{
    for (int i = 0; i < n; i += 64) {
        uint64_t in = n - i < 64 ? ~(~(uint64_t)0 << (n - i)) : ~(uint64_t)0;
        __m512 x[4];
        for (int k = 0; k < 4; k++)
            x[k] = _mm512_maskz_loadu_ps((__mmask16)(in >> 16 * k), p + i + 16 * k);
        for (int c = 0; c < n_cuts; c++)
            bits[(size_t)c * ld + (size_t)i / 64] = in
                                                    & members_of_64(x, &cut[c],
                                                                    cut[c].first_tie - i);
    }
}

INLINE void put_step(void *last, const int width, size_t i, __mmask32 m, uint32_t t)
{
    if (width == 2) {
        _mm512_mask_storeu_epi16((uint16_t *)last + i, m, _mm512_set1_epi16((short)t));
        return;
    }
    const __m512i now = _mm512_set1_epi32((int)t);
    _mm512_mask_storeu_epi32((uint32_t *)last + i, (__mmask16)m, now);
    _mm512_mask_storeu_epi32((uint32_t *)last + i + 16, (__mmask16)(m >> 16), now);
}

INLINE void mark_as(void *last, const int width, const float *p, size_t n, const struct row_cut *c,
                    const bool all_ties, uint32_t t)
{
    const __m512 cut = _mm512_set1_ps(c->threshold);
    int64_t tie = c->first_tie;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m512 lo = _mm512_loadu_ps(p + i), hi = _mm512_loadu_ps(p + i + 16);
        put_step(last, width, i, members(lo, hi, cut, all_ties, tie - (int64_t)i), t);
    }
    if (i < n) {
        int left = (int)(n - i);
        __mmask16 in_hi = left > 16 ? first_lanes(left - 16) : 0;
        __m512 lo = _mm512_maskz_loadu_ps(first_lanes(left), p + i);
        __m512 hi = _mm512_maskz_loadu_ps(in_hi, p + i + 16);
        __mmask32 m = members(lo, hi, cut, all_ties, tie - (int64_t)i);
        put_step(last, width, i, m & ~(~0u << left), t);
    }
}

void mark_avx512(void *last, int width, const float *p, int n, const struct row_cut *cut,
                 uint32_t t)
{
    bool all = cut->first_tie == 0;
    if (width == 2 && all)
        mark_as(last, 2, p, (size_t)n, cut, true, t);
    else if (width == 2)
        mark_as(last, 2, p, (size_t)n, cut, false, t);
    else if (all)
        mark_as(last, 4, p, (size_t)n, cut, true, t);
    else
        mark_as(last, 4, p, (size_t)n, cut, false, t);
}

/* ---- consecutive query rows: the last step of a column is found in a register and stored once */

enum { CUTS_AT_ONCE = 7, AHEAD = 64 };

struct marking {
    void *const *last; /* first cut of the current group */
    int width;
    const struct weight_rows *w;
    const struct row_cut *cut; /* [n_rows][n_cuts], from the first cut of the group on */
    int n_cuts;
    uint32_t t;
};

INLINE void put_steps(void *last, const int width, size_t i, __m512i step)
{
    __mmask16 m = _mm512_cmpneq_epi32_mask(step, _mm512_set1_epi32(-1));
    if (width == 2)
        _mm256_mask_storeu_epi16((uint16_t *)last + i, m, _mm512_cvtepi32_epi16(step));
    else
        _mm512_mask_storeu_epi32((uint32_t *)last + i, m, step);
}

/* Returns the mask of the 16 columns from i on that row r has. */
INLINE __mmask16 columns_in(const struct weight_rows *w, int r, size_t i)
{
    int left = w->n + r - (int)i;
    return first_lanes(left > 0 ? left : 0);
}

/* Processes 16 V columns of the first C cuts of the group; whole: every row has all of them. */
INLINE void mark_columns(const struct marking *m, size_t i, const int C, const int V,
                         const bool whole)
{
    __m512i step[CUTS_AT_ONCE * 2], now = _mm512_set1_epi32((int)m->t);
    UNROLL
    for (int c = 0; c < C * V; c++)
        step[c] = _mm512_set1_epi32(-1);
    for (int r = 0; r < m->w->n_rows; r++) {
        const float *p = m->w->p + (size_t)r * m->w->ld + i;
        __mmask16 in = whole ? 0xffff : columns_in(m->w, r, i);
        __m512 x[2];
        UNROLL
        for (int v = 0; v < V; v++) {
            x[v] = whole ? _mm512_loadu_ps(p + v * 16) : _mm512_maskz_loadu_ps(in, p);
            if (whole) /* the hardware does not prefetch for many concurrent rows */
                _mm_prefetch((const char *)(p + AHEAD + v * 16), _MM_HINT_T0);
        }
        UNROLL
        for (int c = 0; c < C; c++) {
            const __m512 cut = _mm512_set1_ps(m->cut[r * m->n_cuts + c].threshold);
            UNROLL
            for (int v = 0; v < V; v++) {
                __mmask16 member = _mm512_mask_cmp_ps_mask(in, x[v], cut, _CMP_GE_OQ);
                step[c * V + v] = _mm512_mask_mov_epi32(step[c * V + v], member, now);
            }
        }
        now = _mm512_add_epi32(now, _mm512_set1_epi32(1));
    }
    UNROLL
    for (int c = 0; c < C; c++)
        for (int v = 0; v < V; v++)
            put_steps(m->last[c], m->width, i + (size_t)(v * 16), step[c * V + v]);
}

INLINE void mark_cuts(const struct marking *m, const int C)
{
    size_t i = 0, n = (size_t)m->w->n, end = n + (size_t)m->w->n_rows - 1;
    for (; i + 32 <= n; i += 32)
        mark_columns(m, i, C, 2, true);
    for (; i < end; i += 16)
        mark_columns(m, i, C, 1, false);
}

static bool has_ties(const struct row_cut *cut, int n)
{
    int ties = 0;
    for (int i = 0; i < n; i++)
        ties |= cut[i].first_tie;
    return ties != 0;
}

void mark_rows_avx512(void *const *last, int width, const struct weight_rows *w,
                      const struct row_cut *cut, int n_cuts, uint32_t t)
{
    struct marking m = {last, width, w, cut, n_cuts, t};
    if (has_ties(cut, w->n_rows * n_cuts)) {
        for (int r = 0; r < w->n_rows; r++)
            for (int c = 0; c < n_cuts; c++)
                mark_avx512(last[c], width, w->p + (size_t)r * w->ld, w->n + r,
                            &cut[r * n_cuts + c], t + (uint32_t)r);
        return;
    }
    for (int c = 0; c < n_cuts;) {
        int left = n_cuts - c;
        m.last = last + c;
        m.cut = cut + c;
        if (left >= CUTS_AT_ONCE)
            mark_cuts(&m, CUTS_AT_ONCE);
        else
            mark_cuts(&m, 1);
        c += left >= CUTS_AT_ONCE ? CUTS_AT_ONCE : 1;
    }
}

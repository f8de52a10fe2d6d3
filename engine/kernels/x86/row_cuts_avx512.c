/* row_cuts_avx512.c - selected sets of a row: partitions by compression, leaves
 * by a sorting network. */
#include <immintrin.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/row_sums.h"
#include "engine/kernels/x86/unroll.h"

enum { LEAF = 128, LEAF_VECS = LEAF / 16 };

INLINE __mmask16 lanes(int left)
{
    return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

/* Sums of vectors of bits; lanes that are left out hold 0. */
struct vec_sums {
    __m512i lo, hi;
    __m512 bits;
};

INLINE void add_units(struct vec_sums *s, __m512i v)
{
    const __m512d anchor = _mm512_set1_pd(UNIT_ANCHOR);
    __m512 p = _mm512_castsi512_ps(v);
    __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(p));
    __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(p, 1));
    s->lo = _mm512_add_epi64(s->lo, _mm512_castpd_si512(_mm512_add_pd(lo, anchor)));
    s->hi = _mm512_add_epi64(s->hi, _mm512_castpd_si512(_mm512_add_pd(hi, anchor)));
}

/* units: were they added, n_vecs times? */
INLINE struct sums total_sums(const struct vec_sums *s, int n_vecs, bool units)
{
    uint64_t sum = (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(s->lo, s->hi));
    sum -= (uint64_t)n_vecs * 16 * (uint64_t)UNIT_ANCHOR_BITS;
    return (struct sums){units ? (int64_t)sum : 0, _mm512_reduce_add_ps(s->bits)};
}

static struct sums take_row(int32_t *a, const float *p, int n)
{
    struct vec_sums s = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_ps()};
    const __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        __m512 x = _mm512_maskz_loadu_ps(lanes(n - i), p + i);
        __m512i v = _mm512_castps_si512(_mm512_max_ps(_mm512_min_ps(x, one), zero));
        _mm512_storeu_si512(a + i, v);
        add_units(&s, v);
        s.bits = _mm512_add_ps(s.bits, _mm512_cvtepi32_ps(v));
    }
    return total_sums(&s, (n + 15) / 16, true);
}

INLINE int partition_if(int32_t *a, int32_t *tmp, int n, int32_t pivot, const bool masses,
                        struct sums *left)
{
    struct vec_sums s = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_ps()};
    const __m512i cut = _mm512_set1_epi32(pivot);
    int l = 0, r = 0, i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i v = _mm512_loadu_si512(a + i);
        __mmask16 gt = _mm512_cmpgt_epi32_mask(v, cut);
        int n_gt = __builtin_popcount(gt);
        __m512i larger = _mm512_maskz_compress_epi32(gt, v);
        _mm512_storeu_si512(tmp + r, _mm512_maskz_compress_epi32((__mmask16)~gt, v));
        _mm512_storeu_si512(a + l, larger); /* l <= i: only what is read already */
        if (masses)
            add_units(&s, larger);
        s.bits = _mm512_add_ps(s.bits, _mm512_cvtepi32_ps(larger));
        l += n_gt;
        r += 16 - n_gt;
    }
    if (i < n) {
        __m512i v = _mm512_maskz_loadu_epi32(lanes(n - i), a + i);
        __mmask16 gt = _mm512_cmpgt_epi32_mask(v, cut);
        int n_gt = __builtin_popcount(gt);
        __m512i larger = _mm512_maskz_compress_epi32(gt, v);
        _mm512_storeu_si512(tmp + r, _mm512_maskz_compress_epi32((__mmask16)~gt, v));
        _mm512_mask_storeu_epi32(a + l, lanes(n_gt), larger);
        if (masses)
            add_units(&s, larger);
        s.bits = _mm512_add_ps(s.bits, _mm512_cvtepi32_ps(larger));
        l += n_gt;
    }
    *left = total_sums(&s, (n + 15) / 16, masses);
    memcpy(a + l, tmp, (size_t)(n - l) * sizeof *a);
    return l;
}

static int partition(int32_t *a, int32_t *tmp, int n, int32_t pivot, bool masses, struct sums *left)
{
    return masses ? partition_if(a, tmp, n, pivot, true, left)
                  : partition_if(a, tmp, n, pivot, false, left);
}

/* Lanes whose number has the bit d clear. */
INLINE __mmask16 clear_lanes(int d)
{
    return d == 1 ? 0x5555 : d == 2 ? 0x3333 : d == 4 ? 0x0f0f : d == 8 ? 0x00ff : 0xffff;
}

INLINE __m512i swap_lanes(__m512i v, int d)
{
    return d == 1   ? _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xb1)
           : d == 2 ? _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e)
           : d == 4 ? _mm512_shuffle_i32x4(v, v, 0xb1)
                    : _mm512_shuffle_i32x4(v, v, 0x4e);
}

/* Stage (k, d) of the bitonic network over 16 * R entries: i and i ^ d are
 * ordered, falling where i & k is clear. */
INLINE void stage(__m512i *v, const int R, const int k, const int d)
{
    UNROLL
    for (int r = 0; r < R; r++) {
        bool falls = (r * 16 & k) == 0;
        if (d < 16) {
            __mmask16 way = k < 16 ? clear_lanes(k) : falls ? 0xffff : 0;
            __m512i other = swap_lanes(v[r], d);
            __mmask16 keep_max = (__mmask16)~(clear_lanes(d) ^ way);
            __m512i min = _mm512_min_epi32(v[r], other);
            v[r] = _mm512_mask_max_epi32(min, keep_max, v[r], other);
        } else if ((r * 16 & d) == 0) {
            __m512i x = v[r], y = v[r + d / 16];
            v[r] = falls ? _mm512_max_epi32(x, y) : _mm512_min_epi32(x, y);
            v[r + d / 16] = falls ? _mm512_min_epi32(x, y) : _mm512_max_epi32(x, y);
        }
    }
}

INLINE void merge(__m512i *v, const int R, const int k)
{
    if (k > 64)
        stage(v, R, k, 64);
    if (k > 32)
        stage(v, R, k, 32);
    if (k > 16)
        stage(v, R, k, 16);
    if (k > 8)
        stage(v, R, k, 8);
    if (k > 4)
        stage(v, R, k, 4);
    if (k > 2)
        stage(v, R, k, 2);
    stage(v, R, k, 1);
}

INLINE void sort_vecs(int32_t *out, const int32_t *a, int n, const int R)
{
    __m512i v[LEAF_VECS];
    UNROLL
    for (int r = 0; r < R; r++) {
        __mmask16 m = n > r * 16 ? lanes(n - r * 16) : 0;
        v[r] = _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), m, a + r * 16);
    }
    merge(v, R, 2);
    merge(v, R, 4);
    merge(v, R, 8);
    merge(v, R, 16);
    if (R >= 2)
        merge(v, R, 32);
    if (R >= 4)
        merge(v, R, 64);
    if (R >= 8)
        merge(v, R, 128);
    UNROLL
    for (int r = 0; r < R; r++)
        _mm512_storeu_si512(out + r * 16, v[r]);
}

static void sort_leaf(int32_t *out, const int32_t *a, int n)
{
    if (n <= 16)
        sort_vecs(out, a, n, 1);
    else if (n <= 32)
        sort_vecs(out, a, n, 2);
    else if (n <= 64)
        sort_vecs(out, a, n, 4);
    else
        sort_vecs(out, a, n, 8);
}

#include "engine/kernels/x86/row_cuts.h"

void row_cuts_avx512(const float *p, int n, const int *top_k, int n_top, const double *tau,
                     int n_tau, struct row_cut *out, void *scratch)
{
    int32_t *a = scratch;
    cut_row(p, n, top_k, n_top, tau, n_tau, out, a, a + n + LEAF);
}

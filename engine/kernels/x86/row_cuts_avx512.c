/* row_cuts_avx512.c - selects sets of a row: partitions with compress instructions, leaves and
 * short rows with a sorting network. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/row_sums.h"
#include "engine/kernels/x86/sort_avx512.h"

/* Sums of anchored weights, as integers. */
struct anchored {
    __m512i lo, hi;
};

INLINE void add_anchored(struct anchored *s, __m256 lo, __m256 hi)
{
    const __m512d anchor = _mm512_set1_pd(UNIT_ANCHOR);
    __m512d x = _mm512_add_pd(_mm512_cvtps_pd(lo), anchor);
    __m512d y = _mm512_add_pd(_mm512_cvtps_pd(hi), anchor);
    s->lo = _mm512_add_epi64(s->lo, _mm512_castpd_si512(x));
    s->hi = _mm512_add_epi64(s->hi, _mm512_castpd_si512(y));
}

/* Returns the units of n weights that were added 16 at a time, padded with 0. */
INLINE int64_t units_of(const struct anchored *s, size_t n)
{
    uint64_t lane[8], sum = 0; /* may wrap; a compiler's reduction is signed */
    _mm512_storeu_si512(lane, _mm512_add_epi64(s->lo, s->hi));
    for (int i = 0; i < 8; i++)
        sum += lane[i];
    return (int64_t)(sum - (n + 15) / 16 * 16 * UNIT_ANCHOR_BITS);
}

static int64_t sum_units(const int32_t *a, size_t n)
{
    const float *p = (const float *)(const void *)a;
    struct anchored s = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        add_anchored(&s, _mm256_loadu_ps(p + i), _mm256_loadu_ps(p + i + 8));
    if (i < n) {
        __m512 v = _mm512_maskz_loadu_ps(first_lanes((int)(n - i)), p + i);
        add_anchored(&s, _mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    }
    return units_of(&s, n);
}

/* Clamps to [0, 1]; a NaN becomes 1. */
INLINE void take(int32_t *a, __m512 x, struct anchored *s)
{
    x = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(1.0f)), _mm512_setzero_ps());
    _mm512_storeu_ps(a, x);
    add_anchored(s, _mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}

static int64_t take_row(int32_t *a, const float *p, size_t n)
{
    struct anchored s = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        take(a + i, _mm512_loadu_ps(p + i), &s);
    if (i < n)
        take(a + i, _mm512_maskz_loadu_ps(first_lanes((int)(n - i)), p + i), &s);
    return units_of(&s, n);
}

/* Returns the mean of four vectors spread over n >= 16 entries. */
static float sample_mean(const int32_t *a, size_t n)
{
    size_t step = (n - 16) / 3;
    __m512 x = _mm512_cvtepi32_ps(_mm512_loadu_si512(a));
    __m512 y = _mm512_cvtepi32_ps(_mm512_loadu_si512(a + step));
    x = _mm512_add_ps(x, _mm512_cvtepi32_ps(_mm512_loadu_si512(a + 2 * step)));
    y = _mm512_add_ps(y, _mm512_cvtepi32_ps(_mm512_loadu_si512(a + n - 16)));
    return _mm512_reduce_add_ps(_mm512_add_ps(x, y)) / 64;
}

/* Writes entries > cut to *l and the rest to *r, and advances both. It writes full vectors, because
 * a compressing store is several times slower. The elements after the entries are spare or
 * overwritten later. */
INLINE void deal(int32_t **l, int32_t **r, __m512i v, __mmask16 in, __m512i cut)
{
    __mmask16 gt = _mm512_mask_cmpgt_epi32_mask(in, v, cut), le = (__mmask16)(in & ~gt);
    _mm512_storeu_si512(*l, _mm512_maskz_compress_epi32(gt, v));
    _mm512_storeu_si512(*r, _mm512_maskz_compress_epi32(le, v));
    *l += __builtin_popcount(gt);
    *r += __builtin_popcount(le);
}

/* Partitions a segment without changing its neighbours: only the store of its last, partial vector
 * could reach beyond a + n. */
static int partition(int32_t *a, int32_t *tmp, size_t n, int32_t pivot)
{
    const __m512i cut = _mm512_set1_epi32(pivot);
    int32_t *l = a, *r = tmp; /* l overwrites only entries that are already read */
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        deal(&l, &r, _mm512_loadu_si512(a + i), 0xffff, cut);
    if (i < n) {
        __mmask16 in = first_lanes((int)(n - i));
        __m512i v = _mm512_maskz_loadu_epi32(in, a + i);
        __mmask16 gt = _mm512_mask_cmpgt_epi32_mask(in, v, cut), le = (__mmask16)(in & ~gt);
        _mm512_mask_compressstoreu_epi32(l, gt, v);
        _mm512_storeu_si512(r, _mm512_maskz_compress_epi32(le, v));
        l += __builtin_popcount(gt);
        r += __builtin_popcount(le);
    }
    size_t n_right = (size_t)(r - tmp);
    for (i = 0; i + 16 <= n_right; i += 16)
        _mm512_storeu_si512(l + i, _mm512_loadu_si512(tmp + i));
    if (i < n_right)
        _mm512_mask_storeu_epi32(l + i, first_lanes((int)(n_right - i)),
                                 _mm512_loadu_si512(tmp + i));
    return (int)(l - a);
}

static void sort_leaf(int32_t *out, const int32_t *a, int n)
{
    sort_as(out, a, n, false);
}

INLINE int32_t sorted_at(const int32_t *sorted, int n, int rank)
{
    return sorted[sorted_place(sort_regs(n), rank)];
}

/* Sums of the units of n sorted entries; a lane has consecutive ranks. */
struct sorted_sums {
    _Alignas(64) uint64_t to[LEAF_VECS][16]; /* of a lane up to a register, anchored */
    int64_t before[17];                      /* of all preceding lanes */
    int regs;
};

static void sum_sorted(struct sorted_sums *u, const int32_t *sorted, int n)
{
    struct anchored s = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    const float *p = (const float *)(const void *)sorted;
    u->regs = sort_regs(n);
    for (int r = 0; r < u->regs; r++) {
        add_anchored(&s, _mm256_loadu_ps(p + r * 16), _mm256_loadu_ps(p + r * 16 + 8));
        _mm512_store_si512(u->to[r], s.lo);
        _mm512_store_si512(u->to[r] + 8, s.hi);
    }
    uint64_t anchors = (uint64_t)u->regs * UNIT_ANCHOR_BITS;
    u->before[0] = 0;
    for (int l = 0; l < 16; l++)
        u->before[l + 1] = u->before[l] + (int64_t)(u->to[u->regs - 1][l] - anchors);
}

/* Returns the rank at which the sum reaches units, without branches on the weights. */
static int find_sum(const struct sorted_sums *u, int64_t units)
{
    const __m512i x = _mm512_set1_epi64(units);
    unsigned less = _mm512_cmplt_epi64_mask(_mm512_loadu_si512(u->before + 1), x);
    less |= (unsigned)_mm512_cmplt_epi64_mask(_mm512_loadu_si512(u->before + 9), x) << 8;
    int l = __builtin_popcount(less & 0x7fff), r = 0;
    units -= u->before[l];
    for (int n = u->regs; n > 1;) {
        int half = n / 2, at = r + half;
        int64_t sum = (int64_t)(u->to[at - 1][l] - (uint64_t)at * UNIT_ANCHOR_BITS);
        r = sum < units ? at : r;
        n -= half;
    }
    return l * u->regs + r;
}

static int find_mass(const int32_t *sorted, int n, int64_t units)
{
    struct sorted_sums u;
    sum_sorted(&u, sorted, n);
    return find_sum(&u, units);
}

#include "engine/kernels/vector/row_bins.h"

struct sums_of_kept {
    __m512 even, odd;
    __m512i top;
};

INLINE int32_t *keep(int32_t *to, __m512 x, __mmask16 in, __m512 least)
{
    __mmask16 m = _mm512_mask_cmp_ps_mask(in, x, least, _CMP_GE_OQ);
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(m, x));
    return to + __builtin_popcount(m);
}

static struct kept keep_from(int32_t *list, const float *p, size_t n, float least)
{
    const __m512 cut = _mm512_set1_ps(least);
    __m512i top = _mm512_setzero_si512();
    __m512d mass = _mm512_setzero_pd();
    int32_t *to = list;
    size_t i = 0;
    for (; i + 128 <= n; i += 128) {
        __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        UNROLL
        for (int v = 0; v < 8; v++) {
            __m512 x = _mm512_loadu_ps(p + i + v * 16);
            to = keep(to, x, 0xffff, cut);
            top = _mm512_max_epu32(top, _mm512_castps_si512(x));
            sum[v % 2] = _mm512_add_ps(sum[v % 2], x);
        }
        sum[0] = _mm512_add_ps(sum[0], sum[1]);
        mass = _mm512_add_pd(mass, _mm512_add_pd(v_low(sum[0]), v_high(sum[0])));
    }
    for (; i < n; i += 16) {
        __mmask16 in = first_lanes((int)(n - i));
        __m512 x = _mm512_maskz_loadu_ps(in, p + i);
        to = keep(to, x, in, cut);
        top = _mm512_max_epu32(top, _mm512_castps_si512(x));
        mass = _mm512_add_pd(mass, _mm512_add_pd(v_low(x), v_high(x)));
    }
    return (struct kept){(int)(to - list), _mm512_reduce_max_epu32(top),
                         _mm512_reduce_add_pd(mass)};
}

INLINE __m512i counted_units(__m256 x)
{
    const int64_t one = ((int64_t)1 << COUNT_SHIFT) - UNIT_ANCHOR_BITS;
    __m512d y = _mm512_add_pd(_mm512_cvtps_pd(x), _mm512_set1_pd(UNIT_ANCHOR));
    return _mm512_add_epi64(_mm512_castpd_si512(y), _mm512_set1_epi64(one));
}

/* Maps bin numbers to their places: BINS fits in a byte, BIN_GROUPS in three bits of it. */
INLINE __m512i places(__m512i bin)
{
    const __m512i high = _mm512_set1_epi8((char)0xf8);
    __m512i up = _mm512_slli_epi16(bin, 3), down = _mm512_srli_epi16(bin, 5);
    return _mm512_ternarylogic_epi32(high, up, down, 0xca); /* high ? up : down */
}

/* Returns the bins of 16 weights, as 32-bit numbers. */
INLINE __m512i bins_of(const struct bins *b, const int32_t *list)
{
    __m512i n = _mm512_srl_epi32(_mm512_loadu_si512(list), _mm_cvtsi32_si128(b->shift));
    return _mm512_sub_epi32(_mm512_set1_epi32(b->top), n);
}

/* Stores the places of the bins of 64 weights; bins are limited to BINS - 1. */
INLINE void put_places(const struct bins *b, const int32_t *list, unsigned char *code)
{
    const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11,
                                               15);
    __m512i lo = _mm512_packus_epi32(bins_of(b, list), bins_of(b, list + 16));
    __m512i hi = _mm512_packus_epi32(bins_of(b, list + 32), bins_of(b, list + 48));
    const __m512i most = _mm512_set1_epi16(BINS - 1);
    lo = _mm512_packus_epi16(_mm512_min_epu16(lo, most), _mm512_min_epu16(hi, most));
    _mm512_storeu_si512(code, places(_mm512_permutexvar_epi32(in_order, lo)));
}

/* Adds eight weights to the bins at the places in the bytes of `place`. */
INLINE void add_eight(struct bins *b, uint64_t place, const uint64_t *add)
{
    UNROLL
    for (int k = 0; k < 8; k++, place >>= 8)
        b->sum[k % BIN_TABLES][place & 255] += add[k];
}

static void put_in_bins(struct bins *b, const int32_t *list, size_t m)
{
    enum { BLOCK = 256 };
    _Alignas(64) uint64_t add[BLOCK];
    for (size_t i = 0; i < m; i += BLOCK) {
        size_t n = m - i < BLOCK ? m - i : BLOCK, k = 0;
        for (size_t v = 0; v < n; v += 64)
            put_places(b, list + i + v, b->code + i + v);
        for (size_t v = 0; v < n; v += 8) {
            const float *w = (const float *)(const void *)(list + i + v);
            _mm512_store_si512(add + v, counted_units(_mm256_loadu_ps(w)));
        }
        for (; k + 8 <= n; k += 8) {
            uint64_t place;
            memcpy(&place, b->code + i + k, sizeof place);
            add_eight(b, place, add + k);
        }
        for (; k < n; k++)
            b->sum[0][b->code[i + k]] += add[k];
    }
}

static int groups_below(const struct bins *b, uint64_t x, uint64_t mask)
{
    __m512i above = _mm512_and_si512(_mm512_loadu_si512(b->above + 1),
                                     _mm512_set1_epi64((long long)mask));
    __mmask8 below = _mm512_cmplt_epu64_mask(above, _mm512_set1_epi64((long long)x));
    return __builtin_popcount(below & 0x7f); /* at most the last group */
}

static void add_up_bins(struct bins *b)
{
    __m512i sum = _mm512_setzero_si512();
    uint64_t group[BIN_GROUPS];
    for (int i = 0; i < BINS; i += BIN_GROUPS) {
        for (int t = 0; t < BIN_TABLES; t++)
            sum = _mm512_add_epi64(sum, _mm512_load_si512(b->sum[t] + i));
        _mm512_store_si512(b->sum[0] + i, sum);
    }
    _mm512_storeu_si512(group, sum);
    b->above[0] = 0;
    for (int g = 0; g < BIN_GROUPS; g++)
        b->above[g + 1] = b->above[g] + group[g];
}

static void take_bins(int32_t *out, const int32_t *list, const struct bins *b, size_t m,
                      const struct wanted *w)
{
    __m512i bin[BIN_TARGETS];
    for (int k = 0; k < w->n_bins; k++)
        bin[k] = _mm512_set1_epi8((char)w->place[k]);
    for (size_t i = 0; i < m; i += 64) {
        __m512i c = _mm512_loadu_si512(b->code + i);
        uint64_t in = 0;
        for (int k = 0; k < w->n_bins; k++)
            in |= _mm512_cmpeq_epi8_mask(c, bin[k]);
        if (m - i < 64)
            in &= ((uint64_t)1 << (m - i)) - 1;
        UNROLL
        for (int v = 0; v < 4; v++, in >>= 16) {
            __mmask16 lanes_in = (__mmask16)in;
            __m512i x = _mm512_loadu_si512(list + i + v * 16);
            _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(lanes_in, x));
            out += __builtin_popcount(lanes_in);
        }
    }
}

/* Sorts rows of up to LEAF entries completely; a: space for twice as many. */
static void cut_short(struct search *s, int32_t *a)
{
    struct sorted_sums u;
    const struct segment g = {.from = 0, .to = s->n};
    sort_as(a, (const int32_t *)(const void *)s->p, s->n, true);
    for (int i = 0; i < s->n_top; i++)
        s->top[i] = cut_at(s, &g, a, s->n, s->top_k[i] - 1);
    sum_sorted(&u, a, s->n);
    for (int i = 0; u.before[16] > 0 && i < s->n_tau; i++) {
        int64_t need = (int64_t)ceil(s->tau[i] * (double)u.before[16]);
        s->mass[i] = cut_at(s, &g, a, s->n, find_sum(&u, need));
    }
}

void row_cuts_avx512(const float *p, int n, const int *top_k, int n_top, const double *tau,
                     int n_tau, struct row_cut *out, void *scratch)
{
    int32_t *a = scratch;
    size_t ld = ((size_t)n + 63) / 16 * 16;
    struct search s = search_of(p, n, top_k, n_top, tau, n_tau, out);
    if (n <= LEAF)
        cut_short(&s, a);
    else if (!cut_by_bins(&s, a, a + ld, a + 2 * ld))
        cut_row(&s, a, a + ld);
}

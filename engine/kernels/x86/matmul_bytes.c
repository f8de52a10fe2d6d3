/* matmul_bytes.c - products with packed bytes in vectors of 256 bits, with AVX2 alone or with
 * AVX-VNNI beside it (KERNELS_VNNI).  Integer sums are exact and the floats follow the reference,
 * so both give its bits.
 *
 * A panel is two halves of 8 outputs.  What AVX2 has for bytes sums pairs of products in 16 bits:
 * 8 groups of 2 * 15 * 128 fit, which serves Q4.  A pair of 255 * 127 does not, so more bits
 * become words, which meet both bytes of x in one product: 2 * 255 * 32639 in 32 bits. */
#include <string.h>

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

#if KERNELS_VNNI
#define NAME(name) name##_avxvnni
#else
#define NAME(name) name##_avx2
#endif

enum { TILE_ROWS = 4 };
typedef __m256i ints;
#define ints_to_floats _mm256_cvtepi32_ps
#define ints_plus(x, i) _mm256_add_epi32(x, _mm256_set1_epi32(i))

/* One block of R rows: its bytes, or its words of even and of odd channels side by side, so that
 * each group of 4 channels is 4 bytes of either. */
struct block {
    const int8_t *q;
    size_t ld;
    bool hi_alone;
    _Alignas(32) int16_t even[TILE_ROWS][QBLOCK / 2], odd[TILE_ROWS][QBLOCK / 2];
};

INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256i four_bytes(const void *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

/* Group g of 8 for 8 outputs: 4 bytes of each.  w: of a panel and block, from one half on. */
INLINE __m256i load_group(const uint8_t *w, int g, const int bits)
{
    if (bits == 8)
        return load32(w + g * 64);
    __m256i two = load32(w + g / 2 * 64);
    __m256i low = _mm256_and_si256(g % 2 ? _mm256_srli_epi16(two, 4) : two, _mm256_set1_epi8(15));
    if (bits == 4)
        return low;
    const int n_high = bits - 4, at = g * n_high % 8;
    __m256i high = load32(w + 256 + g * n_high / 8 * 64);
    high = at < 4 ? _mm256_slli_epi16(high, 4 - at) : _mm256_srli_epi16(high, at - 4);
    high = _mm256_and_si256(high, _mm256_set1_epi8(n_high == 2 ? 0x30 : 0x10));
    return _mm256_or_si256(low, high);
}

/* With AVX2 and more than 4 bits: 256 hi + lo, or hi alone, as words. */
INLINE void prepare(struct block *x, const int R, const int bits)
{
    if (KERNELS_VNNI || bits == 4)
        return;
    const __m256i high = _mm256_set1_epi16((short)0xff00);
    UNROLL
    for (int r = 0; r < R; r++) {
        const int8_t *q = x->q + (size_t)r * x->ld;
        __m256i hi = load32(q), lo = x->hi_alone ? hi : load32(q + QBLOCK);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(lo, 8), 8);
        __m256i odd = _mm256_srai_epi16(lo, 8);
        if (!x->hi_alone) {
            even = _mm256_add_epi16(_mm256_slli_epi16(hi, 8), even);
            odd = _mm256_add_epi16(_mm256_and_si256(hi, high), odd);
        }
        _mm256_store_si256((__m256i *)(void *)x->even[r], even);
        _mm256_store_si256((__m256i *)(void *)x->odd[r], odd);
    }
}

#if KERNELS_VNNI
/* sum += dot products of the groups [g0, g1) with the bytes from `at` on. */
INLINE void dot_bytes(ints sum[TILE_ROWS][2], const uint8_t *w, const struct block *x, int at,
                      const int R, const int bits, const int g0, const int g1)
{
    UNROLL
    for (int g = g0; g < g1; g++) {
        __m256i u0 = load_group(w, g, bits), u1 = load_group(w + 32, g, bits);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256i b = four_bytes(x->q + (size_t)r * x->ld + at + g * 4);
            sum[r][0] = _mm256_dpbusd_avx_epi32(sum[r][0], u0, b);
            sum[r][1] = _mm256_dpbusd_avx_epi32(sum[r][1], u1, b);
        }
    }
}
#else
/* One half of a panel, one byte of x. */
INLINE void dot_nibbles(ints sum[TILE_ROWS], const uint8_t *w, const struct block *x, int at,
                        const int R, const int g0, const int g1)
{
    __m256i words[TILE_ROWS];
    UNROLL
    for (int r = 0; r < R; r++)
        words[r] = _mm256_setzero_si256();
    UNROLL
    for (int g = g0; g < g1; g++) {
        __m256i u = load_group(w, g, 4);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256i b = four_bytes(x->q + (size_t)r * x->ld + at + g * 4);
            words[r] = _mm256_add_epi16(words[r], _mm256_maddubs_epi16(u, b));
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        sum[r] = _mm256_madd_epi16(words[r], _mm256_set1_epi16(1));
}

/* Both halves of a panel, both bytes of x. */
INLINE void dot_words(ints sum[TILE_ROWS][2], const uint8_t *w, const struct block *x, const int R,
                      const int bits, const int g0, const int g1)
{
    const __m256i low = _mm256_set1_epi16(255);
    UNROLL
    for (int g = g0; g < g1; g++) {
        __m256i v0 = load_group(w, g, bits), v1 = load_group(w + 32, g, bits);
        __m256i even[2] = {_mm256_and_si256(v0, low), _mm256_and_si256(v1, low)};
        __m256i odd[2] = {_mm256_srli_epi16(v0, 8), _mm256_srli_epi16(v1, 8)};
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256i a = four_bytes(x->even[r] + g * 2), b = four_bytes(x->odd[r] + g * 2);
            UNROLL
            for (int h = 0; h < 2; h++) {
                sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(even[h], a));
                sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(odd[h], b));
            }
        }
    }
}
#endif

/* The sums of the groups [g0, g1) of a block: R rows, both halves of a panel. */
INLINE void dot_panel(ints sum[TILE_ROWS][2], const uint8_t *w, const struct block *x, const int R,
                      const int bits, const int g0, const int g1)
{
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = _mm256_setzero_si256();
#if KERNELS_VNNI
    dot_bytes(sum, w, x, 0, R, bits, g0, g1);
    if (x->hi_alone)
        return;
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = _mm256_slli_epi32(sum[i / 2][i % 2], 8);
    dot_bytes(sum, w, x, QBLOCK, R, bits, g0, g1);
#else
    if (bits > 4)
        dot_words(sum, w, x, R, bits, g0, g1);
    UNROLL
    for (int half = 0; bits == 4 && half < 2; half++) {
        __m256i hi[TILE_ROWS], lo[TILE_ROWS];
        dot_nibbles(hi, w + half * 32, x, 0, R, g0, g1);
        UNROLL
        for (int r = 0; r < R; r++)
            sum[r][half] = hi[r];
        if (x->hi_alone)
            continue;
        dot_nibbles(lo, w + half * 32, x, QBLOCK, R, g0, g1);
        UNROLL
        for (int r = 0; r < R; r++)
            sum[r][half] = _mm256_add_epi32(_mm256_slli_epi32(hi[r], 8), lo[r]);
    }
#endif
}

#include "engine/kernels/vector/matmul_bytes.h"

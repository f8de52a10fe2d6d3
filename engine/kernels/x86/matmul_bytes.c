/* matmul_bytes.c - products with packed bytes in 256-bit vectors, with AVX2 or AVX-VNNI
 * (KERNELS_VNNI). Integer sums are exact and the float operations follow the reference, so both
 * give its bits.
 *
 * A panel is two halves of 8 outputs. The byte products of AVX2 sum pairs in 16 bits. This is
 * enough for 8 groups of 2 * 15 * 128 (Q4), but not for a pair of 255 * 127. So kinds with more
 * bits are unpacked to words and multiplied with both bytes of x at once: 2 * 255 * 32639 fits in
 * 32 bits. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"
#include "engine/kernels/x86/sums_avx2.h"

#if KERNELS_VNNI
#define NAME(name) name##_avxvnni
#else
#define NAME(name) name##_avx2
#endif

enum { TILE_ROWS = 4 };
typedef __m256i ints;
#define ints_to_floats _mm256_cvtepi32_ps
#define ints_plus(x, i) _mm256_add_epi32(x, _mm256_set1_epi32(i))

/* Returns group g of 8 for 8 outputs, 4 bytes of each. w: a (panel, block), from one half on. */
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

#if KERNELS_VNNI
enum { READY_BYTES = 512, READY_X = 64, SIGNS = 0 };
#define READY_ROWS(signs) 0

INLINE void ready_bytes(uint8_t *to, const uint8_t *w, const int bits)
{
    UNROLL
    for (int g = 0; g < 8; g++) {
        store32(to + g * 64, load_group(w, g, bits));
        store32(to + g * 64 + 32, load_group(w + 32, g, bits));
    }
}

INLINE void ready_block(int8_t *to, const int8_t *q, bool hi_alone)
{
    (void)to, (void)q, (void)hi_alone;
}

/* sum += dot products of the groups [g0, g1) of an unpacked block with bytes of R rows. */
INLINE void dot_bytes(ints sum[TILE_ROWS][2], const uint8_t *w, const int8_t *x, size_t ld,
                      const int R, const int g0, const int g1)
{
    ROLLED
    for (int g = g0; g < g1; g++) {
        __m256i u0 = load32(w + g * 64), u1 = load32(w + g * 64 + 32);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256i b = four_bytes(x + (size_t)r * ld + g * 4);
            add_fours(&sum[r][0], u0, b);
            add_fours(&sum[r][1], u1, b);
        }
    }
}

INLINE void dot_tile(ints sum[TILE_ROWS][2], const uint8_t *w, const int8_t *x, size_t ld,
                     bool hi_alone, const int R, const int signs, const int g0, const int g1)
{
    (void)signs;
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = _mm256_setzero_si256();
    dot_bytes(sum, w, x, ld, R, g0, g1);
    if (hi_alone)
        return;
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = _mm256_slli_epi32(sum[i / 2][i % 2], 8);
    dot_bytes(sum, w, x + QBLOCK, ld, R, g0, g1);
}

/* hi_alone: a compile-time constant */
INLINE void dot_row_of(ints sum[2], const uint8_t *w, const int8_t *q, const bool hi_alone,
                       const int bits, const int g0, const int g1)
{
    __m256i hi[2], lo[2];
    hi[0] = hi[1] = lo[0] = lo[1] = _mm256_setzero_si256();
    UNROLL
    for (int i = 2 * g0; i < 2 * g1; i++) {
        __m256i u = load_group(w + i % 2 * 32, i / 2, bits);
        add_fours(&hi[i % 2], u, four_bytes(q + i / 2 * 4));
        if (!hi_alone)
            add_fours(&lo[i % 2], u, four_bytes(q + QBLOCK + i / 2 * 4));
    }
    UNROLL
    for (int half = 0; half < 2; half++)
        sum[half] = hi_alone ? hi[half]
                             : _mm256_add_epi32(_mm256_slli_epi32(hi[half], 8), lo[half]);
}

INLINE void dot_row(ints sum[2], const uint8_t *w, const int8_t *q, bool hi_alone, const int bits,
                    const int g0, const int g1)
{
    if (hi_alone)
        dot_row_of(sum, w, q, true, bits, g0, g1);
    else
        dot_row_of(sum, w, q, false, bits, g0, g1);
}
#else
enum { READY_BYTES = 1024, READY_X = 64, SIGNS = 0 };
#define READY_ROWS(signs) 1

/* Unpacks groups to words of even channels, then of odd ones: [8 groups][even, odd][16 rows][2
 * channels]. */
INLINE void ready_bytes(uint8_t *to, const uint8_t *w, const int bits)
{
    UNROLL
    for (int i = 0; i < 16; i++) {
        __m256i u = load_group(w + i % 2 * 32, i / 2, bits);
        store32(to + i / 2 * 128 + i % 2 * 32, _mm256_and_si256(u, _mm256_set1_epi16(255)));
        store32(to + i / 2 * 128 + 64 + i % 2 * 32, _mm256_srli_epi16(u, 8));
    }
}

/* Returns 256 hi + lo, or with hi_alone hi, of the even channels of a block, then of the odd
 * ones. */
INLINE void words_of(__m256i words[2], const int8_t *q, bool hi_alone)
{
    __m256i hi = load32(q), lo = hi_alone ? hi : load32(q + QBLOCK);
    words[0] = _mm256_srai_epi16(_mm256_slli_epi16(lo, 8), 8);
    words[1] = _mm256_srai_epi16(lo, 8);
    if (hi_alone)
        return;
    words[0] = _mm256_add_epi16(_mm256_slli_epi16(hi, 8), words[0]);
    words[1] = _mm256_add_epi16(_mm256_and_si256(hi, _mm256_set1_epi16((short)0xff00)), words[1]);
}

INLINE void ready_block(int8_t *to, const int8_t *q, bool hi_alone)
{
    __m256i words[2];
    words_of(words, q, hi_alone);
    store32(to, words[0]);
    store32(to + QBLOCK, words[1]);
}

INLINE void dot_tile(ints sum[TILE_ROWS][2], const uint8_t *w, const int8_t *x, size_t ld,
                     bool hi_alone, const int R, const int signs, const int g0, const int g1)
{
    (void)hi_alone, (void)signs;
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = _mm256_setzero_si256();
    for (int g = g0; g < g1; g++) {
        UNROLL
        for (int odd = 0; odd < 2; odd++) {
            __m256i u0 = load32(w + g * 128 + odd * 64), u1 = load32(w + g * 128 + odd * 64 + 32);
            UNROLL
            for (int r = 0; r < R; r++) {
                __m256i b = four_bytes(x + (size_t)r * ld + odd * QBLOCK + g * 4);
                add_pairs(&sum[r][0], u0, b);
                add_pairs(&sum[r][1], u1, b);
            }
        }
    }
}

/* Returns products of one half of a panel of nibbles with one byte of x, summed in 16 bits. */
INLINE __m256i dot_nibbles(const uint8_t *w, const int8_t *q, const int g0, const int g1)
{
    __m256i words = _mm256_setzero_si256();
    UNROLL
    for (int g = g0; g < g1; g++)
        words = _mm256_add_epi16(words,
                                 _mm256_maddubs_epi16(load_group(w, g, 4), four_bytes(q + g * 4)));
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

INLINE void dot_row(ints sum[2], const uint8_t *w, const int8_t *q, bool hi_alone, const int bits,
                    const int g0, const int g1)
{
    UNROLL
    for (int half = 0; bits == 4 && half < 2; half++) {
        sum[half] = dot_nibbles(w + half * 32, q, g0, g1);
        if (!hi_alone)
            sum[half] = _mm256_add_epi32(_mm256_slli_epi32(sum[half], 8),
                                         dot_nibbles(w + half * 32, q + QBLOCK, g0, g1));
    }
    if (bits == 4)
        return;
    _Alignas(32) int8_t x[2 * QBLOCK];
    ready_block(x, q, hi_alone);
    sum[0] = sum[1] = _mm256_setzero_si256();
    UNROLL
    for (int i = 2 * g0; i < 2 * g1; i++) {
        __m256i u = load_group(w + i % 2 * 32, i / 2, bits);
        __m256i even = _mm256_and_si256(u, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(u, 8);
        add_pairs(&sum[i % 2], even, four_bytes(x + i / 2 * 4));
        add_pairs(&sum[i % 2], odd, four_bytes(x + QBLOCK + i / 2 * 4));
    }
}
#endif

#include "engine/kernels/vector/matmul_bytes.h"

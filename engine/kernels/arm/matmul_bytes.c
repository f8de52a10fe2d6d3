/* matmul_bytes.c - products with packed bytes for NEON, alone or with dot products of bytes
 * (KERNELS_DOT).
 *
 * A dot product takes bytes of one sign: weights of Q8 become u - 128, and 128 times the sum of x
 * is added.  Without dot products, bytes become words: 256 hi + lo of x, and the four channels of
 * a group part into vectors of 16 outputs. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

#if KERNELS_DOT
#define NAME(name) name##_neondot
#else
#define NAME(name) name##_neon
#endif

enum { TILE_ROWS = 4 };
typedef int32x4x2_t ints;

INLINE ints ints_plus(ints x, int32_t i)
{
    return (ints){{vaddq_s32(x.val[0], vdupq_n_s32(i)), vaddq_s32(x.val[1], vdupq_n_s32(i))}};
}

/* One block of R rows: their bytes, and without dot products their words 256 hi + lo, or
 * hi. */
struct block {
    const int8_t *q;
    size_t ld;
    bool hi_alone;
    int16x8_t words[TILE_ROWS][QBLOCK / 8];
};

INLINE void prepare(struct block *x, const int R, const int bits)
{
    (void)bits;
    UNROLL
    for (int i = 0; i < R * 4 && !KERNELS_DOT; i++) {
        const int8_t *q = x->q + (size_t)(i / 4) * x->ld + i % 4 * 8;
        int16x8_t hi = vmovl_s8(vld1_s8(q));
        if (!x->hi_alone)
            hi = vaddw_s8(vshlq_n_s16(hi, 8), vld1_s8(q + QBLOCK));
        x->words[i / 4][i % 4] = hi;
    }
}

/* Where bits < 8: the bits above the lowest four of group g, in their places, of bytes that have
 * those of the groups of this row of bits. */
INLINE uint8x16_t high_bits(uint8x16_t bytes, const int g, const int bits)
{
    const int n_high = bits - 4, at = g * n_high % 8;
    uint8x16_t high = vshlq_u8(bytes, vdupq_n_s8((int8_t)(4 - at)));
    return vandq_u8(high, vdupq_n_u8(n_high == 2 ? 0x30 : 0x10));
}

#if KERNELS_DOT
/* Group g of 8 for the outputs 4 i .. 4 i + 3, as signed bytes. */
INLINE int8x16_t load_group(const uint8_t *w, int g, const int i, const int bits)
{
    if (bits == 8)
        return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(w + g * 64 + i * 16), vdupq_n_u8(128)));
    uint8x16_t two = vld1q_u8(w + g / 2 * 64 + i * 16);
    uint8x16_t low = g % 2 ? vshrq_n_u8(two, 4) : vandq_u8(two, vdupq_n_u8(15));
    if (bits > 4)
        low = vorrq_u8(low,
                       high_bits(vld1q_u8(w + 256 + g * (bits - 4) / 8 * 64 + i * 16), g, bits));
    return vreinterpretq_s8_u8(low);
}

/* sum += dot products of the groups [g0, g1), a multiple of 4, with the bytes from `at` on. */
INLINE void dot_bytes(int32x4_t sum[TILE_ROWS][4], const uint8_t *w, const struct block *x, int at,
                      const int R, const int bits, const int g0, const int g1)
{
#define GROUP(l)                                                                                   \
    UNROLL                                                                                         \
    for (int i = 0; i < 4; i++) {                                                                  \
        int8x16_t u = load_group(w, g + l, i, bits);                                               \
        UNROLL                                                                                     \
        for (int r = 0; r < R; r++)                                                                \
            sum[r][i] = vdotq_laneq_s32(sum[r][i], u, b[r], l);                                    \
    }
    UNROLL
    for (int g = g0; g < g1; g += 4) {
        int8x16_t b[TILE_ROWS];
        UNROLL
        for (int r = 0; r < R; r++)
            b[r] = vld1q_s8(x->q + (size_t)r * x->ld + at + g * 4);
        GROUP(0)
        GROUP(1)
        GROUP(2)
        GROUP(3)
    }
#undef GROUP
}

/* The sum of the bytes of the groups [g0, g1). */
INLINE int32_t sum_bytes(const int8_t *q, const int g0, const int g1)
{
    int32x4_t sum = vdupq_n_s32(0);
    UNROLL
    for (int g = g0; g < g1; g += 4)
        sum = vdotq_s32(sum, vld1q_s8(q + g * 4), vdupq_n_s8(1));
    return vaddvq_s32(sum);
}

INLINE void dot_fours(int32x4_t sum[TILE_ROWS][4], const uint8_t *w, const struct block *x,
                      const int R, const int bits, const int g0, const int g1)
{
    dot_bytes(sum, w, x, 0, R, bits, g0, g1);
    if (!x->hi_alone) {
        UNROLL
        for (int i = 0; i < 4 * R; i++)
            sum[i / 4][i % 4] = vshlq_n_s32(sum[i / 4][i % 4], 8);
        dot_bytes(sum, w, x, QBLOCK, R, bits, g0, g1);
    }
    UNROLL
    for (int r = 0; r < R && bits == 8; r++) {
        const int8_t *q = x->q + (size_t)r * x->ld;
        int32_t all = sum_bytes(q, g0, g1);
        if (!x->hi_alone)
            all = 256 * all + sum_bytes(q + QBLOCK, g0, g1);
        UNROLL
        for (int i = 0; i < 4; i++)
            sum[r][i] = vaddq_s32(sum[r][i], vdupq_n_s32(128 * all));
    }
}
#else
/* The 8 channels from 8 p on: 16 outputs of each. */
INLINE void load_channels(uint8x16_t u[8], const uint8_t *w, int p, const int bits)
{
    uint8x16x4_t a = vld4q_u8(w + (bits < 8 ? p : 2 * p) * 64), b = a, high = a;
    if (bits == 8)
        b = vld4q_u8(w + (2 * p + 1) * 64);
    else if (bits > 4)
        high = vld4q_u8(w + 256 + 2 * p * (bits - 4) / 8 * 64);
    UNROLL
    for (int c = 0; c < 4; c++) {
        u[c] = bits < 8 ? vandq_u8(a.val[c], vdupq_n_u8(15)) : a.val[c];
        u[4 + c] = bits < 8 ? vshrq_n_u8(b.val[c], 4) : b.val[c];
        if (bits == 5 || bits == 6) {
            u[c] = vorrq_u8(u[c], high_bits(high.val[c], 2 * p, bits));
            u[4 + c] = vorrq_u8(u[4 + c], high_bits(high.val[c], 2 * p + 1, bits));
        }
    }
}

INLINE void dot_fours(int32x4_t sum[TILE_ROWS][4], const uint8_t *w, const struct block *x,
                      const int R, const int bits, const int g0, const int g1)
{
#define CHANNEL(l)                                                                                 \
    {                                                                                              \
        int16x8_t a = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(u[l])));                          \
        int16x8_t b = vreinterpretq_s16_u16(vmovl_high_u8(u[l]));                                  \
        UNROLL                                                                                     \
        for (int r = 0; r < R; r++) {                                                              \
            int16x8_t y = x->words[r][p];                                                          \
            sum[r][0] = vmlal_laneq_s16(sum[r][0], vget_low_s16(a), y, l);                         \
            sum[r][1] = vmlal_high_laneq_s16(sum[r][1], a, y, l);                                  \
            sum[r][2] = vmlal_laneq_s16(sum[r][2], vget_low_s16(b), y, l);                         \
            sum[r][3] = vmlal_high_laneq_s16(sum[r][3], b, y, l);                                  \
        }                                                                                          \
    }
    UNROLL
    for (int p = g0 / 2; p < g1 / 2; p++) {
        uint8x16_t u[8];
        load_channels(u, w, p, bits);
        CHANNEL(0)
        CHANNEL(1)
        CHANNEL(2)
        CHANNEL(3)
        CHANNEL(4)
        CHANNEL(5)
        CHANNEL(6)
        CHANNEL(7)
    }
#undef CHANNEL
}
#endif

INLINE void dot_panel(ints sum[TILE_ROWS][2], const uint8_t *w, const struct block *x, const int R,
                      const int bits, const int g0, const int g1)
{
    int32x4_t fours[TILE_ROWS][4];
    UNROLL
    for (int i = 0; i < 4 * R; i++)
        fours[i / 4][i % 4] = vdupq_n_s32(0);
    dot_fours(fours, w, x, R, bits, g0, g1);
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = (ints){{fours[i / 2][i % 2 * 2], fours[i / 2][i % 2 * 2 + 1]}};
}

#include "engine/kernels/vector/matmul_bytes.h"

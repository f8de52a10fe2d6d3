/* matmul_bytes.c - products with packed bytes for NEON, with or without int8 dot-product
 * instructions (KERNELS_DOT).
 *
 * A dot-product instruction needs bytes of equal signedness: Q8 weights become u - 128, and 128
 * times the sum of x is added. Without it, bytes become 16-bit words: 256 hi + lo of x, or hi. The
 * four channels of a group become separate vectors of 16 outputs. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

#if KERNELS_DOT
#define NAME(name) name##_neondot
#else
#define NAME(name) name##_neon
#endif

enum { TILE_ROWS = 4 };

INLINE ints ints_plus(ints x, int32_t i)
{
    return (ints){{vaddq_s32(x.val[0], vdupq_n_s32(i)), vaddq_s32(x.val[1], vdupq_n_s32(i))}};
}

/* For bits < 8: returns the bits above the lowest four of group g, in place. `bytes` has the high
 * bits of the groups of this row of bits. */
INLINE uint8x16_t high_bits(uint8x16_t bytes, const int g, const int bits)
{
    const int n_high = bits - 4, at = g * n_high % 8;
    uint8x16_t high = vshlq_u8(bytes, vdupq_n_s8((int8_t)(4 - at)));
    return vandq_u8(high, vdupq_n_u8(n_high == 2 ? 0x30 : 0x10));
}

#if KERNELS_DOT
/* Returns group g of 8 for the outputs 4 i .. 4 i + 3, as signed bytes. */
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

enum { READY_BYTES = 512, READY_X = 80, SIGNS = 1 };
#define READY_ROWS(signs) (signs)

INLINE void ready_bytes(uint8_t *to, const uint8_t *w, const int bits)
{
    UNROLL
    for (int i = 0; i < 32; i++)
        vst1q_s8((int8_t *)to + i * 16, load_group(w, i / 4, i % 4, bits));
}

/* Returns 128 times the sum of x over the groups [g0, g1) of the block at q. */
INLINE int32_t sum_signs(const int8_t *q, bool hi_alone, const int g0, const int g1)
{
    const int8x16_t ones = vdupq_n_s8(1);
    int32x4_t hi = vdupq_n_s32(0), lo = hi;
    UNROLL
    for (int g = g0; g < g1; g += 4) {
        hi = vdotq_s32(hi, vld1q_s8(q + g * 4), ones);
        if (!hi_alone)
            lo = vdotq_s32(lo, vld1q_s8(q + QBLOCK + g * 4), ones);
    }
    return 128 * vaddvq_s32(hi_alone ? hi : vaddq_s32(vshlq_n_s32(hi, 8), lo));
}

/* Copies a block of x and appends 128 times its sums, for signed weights: of its halves and of the
 * block. */
INLINE void ready_block(int8_t *to, const int8_t *q, bool hi_alone)
{
    memcpy(to, q, hi_alone ? QBLOCK : 2 * QBLOCK);
    int32_t first = sum_signs(q, hi_alone, 0, 4), second = sum_signs(q, hi_alone, 4, 8);
    int32_t sums[4] = {first, second, first + second, 0};
    memcpy(to + 2 * QBLOCK, sums, sizeof sums);
}

/* sum += dot products of the groups [g0, g1), a multiple of 4, of an unpacked block with R rows. */
INLINE void dot_bytes(int32x4_t sum[TILE_ROWS][4], const uint8_t *w, const int8_t *x, size_t ld,
                      const int R, const int g0, const int g1)
{
#define GROUP(l)                                                                                   \
    UNROLL                                                                                         \
    for (int i = 0; i < 4; i++) {                                                                  \
        int8x16_t u = vld1q_s8((const int8_t *)w + (g + l) * 64 + i * 16);                         \
        UNROLL                                                                                     \
        for (int r = 0; r < R; r++)                                                                \
            sum[r][i] = vdotq_laneq_s32(sum[r][i], u, b[r], l);                                    \
    }
    ROLLED
    for (int g = g0; g < g1; g += 4) {
        int8x16_t b[TILE_ROWS];
        UNROLL
        for (int r = 0; r < R; r++)
            b[r] = vld1q_s8(x + (size_t)r * ld + g * 4);
        GROUP(0)
        GROUP(1)
        GROUP(2)
        GROUP(3)
    }
#undef GROUP
}

INLINE void dot_fours(int32x4_t sum[TILE_ROWS][4], const uint8_t *w, const int8_t *x, size_t ld,
                      bool hi_alone, const int R, const int signs, const int g0, const int g1)
{
    dot_bytes(sum, w, x, ld, R, g0, g1);
    if (!hi_alone) {
        UNROLL
        for (int i = 0; i < 4 * R; i++)
            sum[i / 4][i % 4] = vshlq_n_s32(sum[i / 4][i % 4], 8);
        READ_AGAIN(w);
        dot_bytes(sum, w, x + QBLOCK, ld, R, g0, g1);
    }
    const int part = g1 - g0 == 8 ? 2 : g0 / 4;
    UNROLL
    for (int r = 0; r < R && signs; r++) {
        int32x4_t add = vld1q_dup_s32(
            (const int32_t *)(const void *)(x + (size_t)r * ld + 2 * QBLOCK) + part);
        UNROLL
        for (int i = 0; i < 4; i++)
            sum[r][i] = vaddq_s32(sum[r][i], add);
    }
}

/* hi_alone: a compile-time constant */
INLINE void dot_row_of(ints sum[2], const uint8_t *w, const int8_t *q, const bool hi_alone,
                       const int bits, const int g0, const int g1)
{
    READ_AGAIN(q);
    const int32x4_t add = vdupq_n_s32(bits == 8 ? sum_signs(q, hi_alone, g0, g1) : 0);
#define GROUP(l)                                                                                   \
    {                                                                                              \
        int8x16_t u = load_group(w, g + l, i, bits);                                               \
        hi = vdotq_laneq_s32(hi, u, b, l);                                                         \
        if (!hi_alone)                                                                             \
            lo = vdotq_laneq_s32(lo, u, c, l);                                                     \
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        int32x4_t hi = vdupq_n_s32(0), lo = add;
        UNROLL
        for (int g = g0; g < g1; g += 4) {
            int8x16_t b = vld1q_s8(q + g * 4), c = hi_alone ? b : vld1q_s8(q + QBLOCK + g * 4);
            GROUP(0)
            GROUP(1)
            GROUP(2)
            GROUP(3)
        }
        sum[i / 2].val[i % 2] = vaddq_s32(hi_alone ? hi : vshlq_n_s32(hi, 8), lo);
    }
#undef GROUP
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

/* Loads the 8 channels from 8 p on, 16 outputs of each. */
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

/* Unpacks channels to words: [32 channels][16 outputs]. */
INLINE void ready_bytes(uint8_t *to, const uint8_t *w, const int bits)
{
    for (int p = 0; p < 4; p++) {
        uint8x16_t u[8];
        load_channels(u, w, p, bits);
        UNROLL
        for (int c = 0; c < 8; c++) {
            uint16_t *at = (uint16_t *)(void *)to + (p * 8 + c) * PANEL;
            vst1q_u16(at, vmovl_u8(vget_low_u8(u[c])));
            vst1q_u16(at + 8, vmovl_high_u8(u[c]));
        }
    }
}

/* Returns 256 hi + lo, or with hi_alone hi, of the channels 8 p .. 8 p + 7. */
INLINE int16x8_t eight_words(const int8_t *q, bool hi_alone, int p)
{
    int16x8_t hi = vmovl_s8(vld1_s8(q + p * 8));
    return hi_alone ? hi : vaddw_s8(vshlq_n_s16(hi, 8), vld1_s8(q + QBLOCK + p * 8));
}

INLINE void ready_block(int8_t *to, const int8_t *q, bool hi_alone)
{
    UNROLL
    for (int p = 0; p < 4; p++)
        vst1q_s16((int16_t *)(void *)to + p * 8, eight_words(q, hi_alone, p));
}

/* sum += u times lane l of y, for 16 outputs. */
#define ADD_CHANNEL(sum, u0, u1, y, l)                                                             \
    do {                                                                                           \
        (sum)[0] = vmlal_laneq_s16((sum)[0], vget_low_s16(u0), y, l);                              \
        (sum)[1] = vmlal_high_laneq_s16((sum)[1], u0, y, l);                                       \
        (sum)[2] = vmlal_laneq_s16((sum)[2], vget_low_s16(u1), y, l);                              \
        (sum)[3] = vmlal_high_laneq_s16((sum)[3], u1, y, l);                                       \
    } while (0)
#define EIGHT_CHANNELS                                                                             \
    CHANNEL(0) CHANNEL(1) CHANNEL(2) CHANNEL(3) CHANNEL(4) CHANNEL(5) CHANNEL(6) CHANNEL(7)

INLINE void dot_fours(int32x4_t sum[TILE_ROWS][4], const uint8_t *w, const int8_t *x, size_t ld,
                      bool hi_alone, const int R, const int signs, const int g0, const int g1)
{
    (void)hi_alone, (void)signs;
#define CHANNEL(l)                                                                                 \
    {                                                                                              \
        const int16_t *at = (const int16_t *)(const void *)w + (p * 8 + l) * PANEL;                \
        int16x8_t u0 = vld1q_s16(at), u1 = vld1q_s16(at + 8);                                      \
        UNROLL                                                                                     \
        for (int r = 0; r < R; r++)                                                                \
            ADD_CHANNEL(sum[r], u0, u1, y[r], l);                                                  \
    }
    ROLLED
    for (int p = g0 / 2; p < g1 / 2; p++) {
        int16x8_t y[TILE_ROWS];
        UNROLL
        for (int r = 0; r < R; r++)
            y[r] = vld1q_s16((const int16_t *)(const void *)(x + (size_t)r * ld) + p * 8);
        EIGHT_CHANNELS
    }
#undef CHANNEL
}

INLINE void dot_row(ints sum[2], const uint8_t *w, const int8_t *q, bool hi_alone, const int bits,
                    const int g0, const int g1)
{
    READ_AGAIN(q);
    int32x4_t fours[4];
#define CHANNEL(l)                                                                                 \
    ADD_CHANNEL(fours, vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(u[l]))),                         \
                vreinterpretq_s16_u16(vmovl_high_u8(u[l])), y, l);
    UNROLL
    for (int i = 0; i < 4; i++)
        fours[i] = vdupq_n_s32(0);
    UNROLL
    for (int p = g0 / 2; p < g1 / 2; p++) {
        uint8x16_t u[8];
        int16x8_t y = eight_words(q, hi_alone, p);
        load_channels(u, w, p, bits);
        EIGHT_CHANNELS
    }
#undef CHANNEL
    sum[0] = (ints){{fours[0], fours[1]}};
    sum[1] = (ints){{fours[2], fours[3]}};
}
#endif

INLINE void dot_tile(ints sum[TILE_ROWS][2], const uint8_t *w, const int8_t *x, size_t ld,
                     bool hi_alone, const int R, const int signs, const int g0, const int g1)
{
    int32x4_t fours[TILE_ROWS][4];
    UNROLL
    for (int i = 0; i < 4 * R; i++)
        fours[i / 4][i % 4] = vdupq_n_s32(0);
    dot_fours(fours, w, x, ld, hi_alone, R, signs, g0, g1);
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = (ints){{fours[i / 2][i % 2 * 2], fours[i / 2][i % 2 * 2 + 1]}};
}

#include "engine/kernels/vector/matmul_bytes.h"

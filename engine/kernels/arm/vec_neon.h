/* vec_neon.h - the NEON part of vec.h. Two registers of 4 floats form one vector, so that sums have
 * the same order as with AVX2. */
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "engine/kernels/vector/unroll.h"

#define ISA(name) name##_neon
enum { W = 8 };
typedef struct {
    float32x4_t lo, hi;
} vec;
typedef struct {
    float64x2_t lo, hi;
} wide;
typedef int32x4x2_t ints;
typedef int lanes; /* number of leading lanes */
typedef struct {
    uint64x2_t lo, hi;
} wide_bits; /* W / 2 of 64 bits */

#define NEON_EACH(name, op)                                                                        \
    INLINE vec name(vec a, vec b)                                                                  \
    {                                                                                              \
        return (vec){op(a.lo, b.lo), op(a.hi, b.hi)};                                              \
    }
NEON_EACH(v_add, vaddq_f32)
NEON_EACH(v_sub, vsubq_f32)
NEON_EACH(v_mul, vmulq_f32)
NEON_EACH(v_div, vdivq_f32)
NEON_EACH(v_max, vmaxnmq_f32) /* a number wins over NaN */
NEON_EACH(v_min, vminnmq_f32)
#undef NEON_EACH

INLINE vec v_set(float x)
{
    return (vec){vdupq_n_f32(x), vdupq_n_f32(x)};
}

INLINE vec v_zero(void)
{
    return v_set(0);
}

INLINE vec v_load(const float *p)
{
    return (vec){vld1q_f32(p), vld1q_f32(p + 4)};
}

INLINE void v_store(float *p, vec x)
{
    vst1q_f32(p, x.lo);
    vst1q_f32(p + 4, x.hi);
}

/* a b + c, rounded once */
INLINE vec v_fma(vec a, vec b, vec c)
{
    return (vec){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

/* c - a b, rounded once */
INLINE vec v_fnma(vec a, vec b, vec c)
{
    return (vec){vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
}

INLINE int32x4x2_t v_numbers(void)
{
    static const int32_t number[W] = {0, 1, 2, 3, 4, 5, 6, 7};
    return (int32x4x2_t){{vld1q_s32(number), vld1q_s32(number + 4)}};
}

INLINE vec ints_to_floats(int32x4x2_t x)
{
    return (vec){vcvtq_f32_s32(x.val[0]), vcvtq_f32_s32(x.val[1])};
}

INLINE vec v_index(void)
{
    return ints_to_floats(v_numbers());
}

/* Returns from, from - 1, .. */
INLINE vec v_count_down(int from)
{
    int32x4x2_t x = v_numbers();
    int32x4_t first = vdupq_n_s32(from);
    return (vec){vcvtq_f32_s32(vsubq_s32(first, x.val[0])),
                 vcvtq_f32_s32(vsubq_s32(first, x.val[1]))};
}

/* Selects the first `left` lanes; all if left >= W. */
INLINE lanes first_lanes(int left)
{
    return left;
}

INLINE uint32x4x2_t lane_mask(lanes in)
{
    int32x4x2_t x = v_numbers();
    int32x4_t end = vdupq_n_s32(in);
    return (uint32x4x2_t){{vcgtq_s32(end, x.val[0]), vcgtq_s32(end, x.val[1])}};
}

/* Returns x where all bits of the mask are set, otherwise 0. */
INLINE vec v_masked(uint32x4x2_t in, vec x)
{
    return (vec){vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x.lo), in.val[0])),
                 vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x.hi), in.val[1]))};
}

/* Returns x in the lanes `in`, 0 elsewhere. */
INLINE vec v_only(lanes in, vec x)
{
    return in >= W ? x : v_masked(lane_mask(in), x);
}

/* Loads the weights at p of entries with a position of at most t; 0 elsewhere. */
INLINE vec v_load_seen(const float *p, const int32_t *pos, int32_t t)
{
    const int32x4_t last = vdupq_n_s32(t);
    return v_masked(
        (uint32x4x2_t){{vcleq_s32(vld1q_s32(pos), last), vcleq_s32(vld1q_s32(pos + 4), last)}},
        v_load(p));
}

INLINE vec v_load_or(vec other, lanes in, const float *p)
{
    if (in >= W)
        return v_load(p);
    float x[W];
    v_store(x, other);
    for (int i = 0; i < in; i++)
        x[i] = p[i];
    return v_load(x);
}

INLINE vec v_load_in(lanes in, const float *p)
{
    return in >= W ? v_load(p) : v_load_or(v_zero(), in, p);
}

INLINE void v_store_in(lanes in, float *p, vec x)
{
    if (in >= W) {
        v_store(p, x);
        return;
    }
    float y[W];
    v_store(y, x);
    for (int i = 0; i < in; i++)
        p[i] = y[i];
}

/* Access the first `left` entries; loads give 0 elsewhere. left >= 1, a compile-time constant for
 * full vectors. */
#define v_load_first(p, left) v_load_in(left, p)
#define v_store_first(p, left, x) v_store_in(left, p, x)

/* sum + x, and sum - x y, in the lanes `in` */
INLINE vec v_add_in(lanes in, vec sum, vec x)
{
    return v_add(sum, v_only(in, x));
}

INLINE vec v_fnma_in(lanes in, vec x, vec y, vec sum)
{
    return v_fnma(v_only(in, x), y, sum);
}

/* Returns x where sign >= 0, otherwise 0. */
INLINE vec v_keep(vec sign, vec x)
{
    return v_masked((uint32x4x2_t){{vcgezq_f32(sign.lo), vcgezq_f32(sign.hi)}}, x);
}

INLINE vec v_load_half(const uint16_t *p)
{
    float16x8_t x = vreinterpretq_f16_u16(vld1q_u16(p));
    return (vec){vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
}

/* Loads W bf16 numbers. */
INLINE vec v_load_brain(const uint16_t *p)
{
    uint16x8_t x = vld1q_u16(p);
    return (vec){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)),
                 vreinterpretq_f32_u32(vshll_high_n_u16(x, 16))};
}

/* Loads W 8-bit integers. */
INLINE vec v_load_bytes(const int8_t *p)
{
    int16x8_t x = vmovl_s8(vld1_s8(p));
    return (vec){vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))), vcvtq_f32_s32(vmovl_high_s16(x))};
}

/* Sets all lanes to one f16 number. */
INLINE vec v_set_half(uint16_t h)
{
    float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
    return (vec){x, x};
}

INLINE void v_store_half(uint16_t *p, vec x)
{
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.lo), x.hi)));
}

INLINE wide v_low(vec x)
{
    return (wide){vcvt_f64_f32(vget_low_f32(x.lo)), vcvt_high_f64_f32(x.lo)};
}

INLINE wide v_high(vec x)
{
    return (wide){vcvt_f64_f32(vget_low_f32(x.hi)), vcvt_high_f64_f32(x.hi)};
}

INLINE wide wide_set(double x)
{
    return (wide){vdupq_n_f64(x), vdupq_n_f64(x)};
}

INLINE wide wide_zero(void)
{
    return wide_set(0);
}

INLINE wide wide_load(const double *p)
{
    return (wide){vld1q_f64(p), vld1q_f64(p + 2)};
}

INLINE void wide_store(double *p, wide x)
{
    vst1q_f64(p, x.lo);
    vst1q_f64(p + 2, x.hi);
}

INLINE wide wide_sum(wide a, wide b)
{
    return (wide){vaddq_f64(a.lo, b.lo), vaddq_f64(a.hi, b.hi)};
}

INLINE wide wide_fma(wide a, wide b, wide c)
{
    return (wide){vfmaq_f64(c.lo, a.lo, b.lo), vfmaq_f64(c.hi, a.hi, b.hi)};
}

INLINE float v_total(vec v)
{
    float32x4_t x = vaddq_f32(v.lo, v.hi);
    float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
}

INLINE double wide_total(wide v)
{
    float64x2_t x = vaddq_f64(v.lo, v.hi);
    return vgetq_lane_f64(x, 0) + vgetq_lane_f64(x, 1);
}

INLINE wide_bits bits_zero(void)
{
    return (wide_bits){vdupq_n_u64(0), vdupq_n_u64(0)};
}

/* Adds the bits of x, as integers, to W / 2 sums. */
INLINE wide_bits bits_add(wide_bits sum, wide x)
{
    return (wide_bits){vaddq_u64(sum.lo, vreinterpretq_u64_f64(x.lo)),
                       vaddq_u64(sum.hi, vreinterpretq_u64_f64(x.hi))};
}

INLINE uint64_t bits_total(wide_bits sum)
{
    return vaddvq_u64(vaddq_u64(sum.lo, sum.hi));
}

INLINE float v_top(vec v)
{
    return vmaxnmvq_f32(vmaxnmq_f32(v.lo, v.hi));
}

INLINE vec v_round(vec x)
{
    return (vec){vrndnq_f32(x.lo), vrndnq_f32(x.hi)};
}

INLINE vec v_floor(vec x)
{
    return (vec){vrndmq_f32(x.lo), vrndmq_f32(x.hi)};
}

/* ints: W integers of 32 bits, or pairs of 16 bits. */
INLINE ints i_zero(void)
{
    return (ints){{vdupq_n_s32(0), vdupq_n_s32(0)}};
}

INLINE ints i_load(const void *p)
{
    const int32_t *from = p;
    return (ints){{vld1q_s32(from), vld1q_s32(from + 4)}};
}

/* Sets all lanes to one pair. */
INLINE ints i_pair(const int16_t *p)
{
    int32_t both;
    memcpy(&both, p, sizeof both);
    return (ints){{vdupq_n_s32(both), vdupq_n_s32(both)}};
}

INLINE int32x4_t dot_four(int32x4_t sum, int32x4_t x, int32x4_t y)
{
    int16x8_t a = vreinterpretq_s16_s32(x), b = vreinterpretq_s16_s32(y);
    int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(a, b)));
}

/* sum + a b + c d of pairs (a, c) and (b, d) */
INLINE ints i_dot(ints sum, ints x, ints y)
{
    return (ints){
        {dot_four(sum.val[0], x.val[0], y.val[0]), dot_four(sum.val[1], x.val[1], y.val[1])}};
}

/* Groups of four bytes as words: bytes 0 and 2 of each group, and bytes 1 and 3. */
typedef struct {
    ints even, odd;
} quads;

/* Shift words by 8 bits: words_up moves even bytes to the place of odd ones; the down versions
 * shift back, with or without sign extension. */
INLINE int32x4_t words_up(int32x4_t x)
{
    return vreinterpretq_s32_s16(vshlq_n_s16(vreinterpretq_s16_s32(x), 8));
}

INLINE int32x4_t words_down(int32x4_t x)
{
    return vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(x), 8));
}

INLINE int32x4_t words_down_unsigned(int32x4_t x)
{
    return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(x), 8));
}

INLINE quads signed_quads(ints x)
{
    return (quads){{{words_down(words_up(x.val[0])), words_down(words_up(x.val[1]))}},
                   {{words_down(x.val[0]), words_down(x.val[1])}}};
}

/* Returns the initial sums of a query with numbers of this sum. */
INLINE ints i_begin_keys(int32_t sum)
{
    (void)sum;
    return i_zero();
}

INLINE quads quads_of_keys(const void *p)
{
    return signed_quads(i_load(p));
}

#define quads_of_values quads_of_keys

/* Set all lanes to one group: signed for queries, unsigned for weights. */
INLINE quads quads_of_query(const void *p)
{
    return signed_quads(i_pair(p));
}

INLINE quads quads_of_weights(const void *p)
{
    int32x4_t x = i_pair(p).val[0];
    int32x4_t even = words_down_unsigned(words_up(x)), odd = words_down_unsigned(x);
    return (quads){{{even, even}}, {{odd, odd}}};
}

/* sum + the four products of groups */
INLINE ints i_dot_quads(ints sum, quads x, quads y)
{
    return i_dot(i_dot(sum, x.even, y.even), x.odd, y.odd);
}

INLINE ints i_max(ints x, ints y)
{
    return (ints){{vmaxq_s32(x.val[0], y.val[0]), vmaxq_s32(x.val[1], y.val[1])}};
}

INLINE int32_t i_top(ints x)
{
    return vmaxvq_s32(vmaxq_s32(x.val[0], x.val[1]));
}

#define i_to_vec ints_to_floats

INLINE int32x4_t half_of_four(int32x4_t x, int odd)
{
    return vshrq_n_s32(odd ? x : vshlq_n_s32(x, 16), 16);
}

/* Returns the first numbers of the pairs, or with odd the second ones. */
INLINE vec i_half(ints x, int odd)
{
    return i_to_vec((ints){{half_of_four(x.val[0], odd), half_of_four(x.val[1], odd)}});
}

INLINE int32x4_t byte_of_four(int32x4_t x, int which)
{
    return vshrq_n_s32(vshlq_s32(x, vdupq_n_s32(24 - 8 * which)), 24);
}

/* Returns byte `which` of each group of four, signed. */
INLINE vec i_byte(ints x, int which)
{
    return i_to_vec((ints){{byte_of_four(x.val[0], which), byte_of_four(x.val[1], which)}});
}

/* Returns the bits of x without signs. */
INLINE ints v_size(vec x)
{
    const int32x4_t mask = vdupq_n_s32(0x7fffffff);
    return (ints){{vandq_s32(vreinterpretq_s32_f32(x.lo), mask),
                   vandq_s32(vreinterpretq_s32_f32(x.hi), mask)}};
}

INLINE int16x8_t words_of(vec x)
{
    int16x4_t low = vmovn_s32(vcvtnq_s32_f32(x.lo));
    return vcombine_s16(low, vmovn_s32(vcvtnq_s32_f32(x.hi)));
}

/* Stores x and y rounded to the nearest integers, ties to even; magnitudes must be below 2^15. */
INLINE void v_store_words(int16_t *p, vec x, vec y)
{
    vst1q_s16(p, words_of(x));
    vst1q_s16(p + 8, words_of(y));
}

/* Stores numbers rounded to the nearest integers, ties to even, clamped to 0 .. 255; 0 for NaN. */
INLINE void v_store_bytes(uint8_t *p, vec a, vec b, vec c, vec d)
{
    vst1q_u8(p, vcombine_u8(vqmovun_s16(words_of(a)), vqmovun_s16(words_of(b))));
    vst1q_u8(p + 16, vcombine_u8(vqmovun_s16(words_of(c)), vqmovun_s16(words_of(d))));
}

INLINE float32x4_t double_four(float32x4_t p, float32x4_t n)
{
    int32x4_t power = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), power));
}

/* p 2^n for integer n; p and the result are normal */
INLINE vec v_double(vec p, vec n)
{
    return (vec){double_four(p.lo, n.lo), double_four(p.hi, n.hi)};
}

INLINE float32x4_t power_of_two(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

INLINE float32x4_t scale_four(float32x4_t p, float32x4_t n)
{
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    p = vmulq_f32(p, power_of_two(half));
    return vmulq_f32(p, power_of_two(vsubq_s32(whole, half)));
}

/* p 2^n for integer n, with two factors, because 2^n is subnormal below 2^-126. */
INLINE vec v_scale(vec p, vec n)
{
    return (vec){scale_four(p.lo, n.lo), scale_four(p.hi, n.hi)};
}

INLINE float32x4_t rotate_two(float32x4_t v, float32x4_t cs)
{
    static const float minus_plus[4] = {-1, 1, -1, 1};
    float32x4_t other = vmulq_f32(vrev64q_f32(v), vtrn2q_f32(cs, cs));
    return vfmaq_f32(vmulq_f32(other, vld1q_f32(minus_plus)), v, vtrn1q_f32(cs, cs));
}

/* Rotates pairs (a, b) by pairs (c, s): (a c - b s, b c + a s). The first product is not
 * rounded. */
INLINE vec v_rotate(vec v, vec cs)
{
    return (vec){rotate_two(v.lo, cs.lo), rotate_two(v.hi, cs.hi)};
}

/* Flushes subnormal numbers to 0 until flush_end, as the other instruction sets do. */
INLINE uint64_t flush_begin(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
    __asm__ volatile("msr fpcr, %0" ::"r"(mode | 1u << 24) : "memory");
    return mode;
}

INLINE void flush_end(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(mode) : "memory");
}

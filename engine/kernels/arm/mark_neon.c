/* mark_neon.c - marks the members of a selected set, 8 at a time. */
#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* Returns the mask of members for 4 entries; before: lanes in which ties are excluded. */
INLINE uint32x4_t members(float32x4_t x, float32x4_t cut, uint32x4_t before)
{
    return vbslq_u32(before, vcgtq_f32(x, cut), vcgeq_f32(x, cut));
}

/* Returns one bit for each of 4 lanes of a mask. */
INLINE uint64_t bits_of(uint32x4_t m)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}

void member_bits_neon(uint64_t *bits, size_t ld, const float *p, int n, const struct row_cut *cut,
                      int n_cuts)
{
    int whole = n / 64 * 64;
    for (int c = 0; c < n_cuts; c++, bits += ld) {
        const float32x4_t threshold = vdupq_n_f32(cut[c].threshold);
        for (int i = 0; i < whole; i += 64) {
            uint64_t word = 0;
            for (int k = 0; k < 64; k += W) {
                vec x = v_load(p + i + k);
                uint32x4x2_t before = lane_mask(cut[c].first_tie - i - k);
                word |= bits_of(members(x.lo, threshold, before.val[0])) << k;
                word |= bits_of(members(x.hi, threshold, before.val[1])) << (k + 4);
            }
            bits[i / 64] = word;
        }
        struct row_cut rest = cut[c];
        rest.first_tie -= whole;
        member_bits_ref(bits + whole / 64, 0, p + whole, n - whole, &rest, 1);
    }
}

void mark_neon(void *last, int width, const float *p, int n, const struct row_cut *cut, uint32_t t)
{
    const float32x4_t threshold = vdupq_n_f32(cut->threshold);
    int i = 0;
    for (; i + W <= n; i += W) {
        vec x = v_load(p + i);
        uint32x4x2_t before = lane_mask(cut->first_tie - i);
        uint32x4_t lo = members(x.lo, threshold, before.val[0]);
        uint32x4_t hi = members(x.hi, threshold, before.val[1]);
        if (width == 4) {
            uint32_t *to = (uint32_t *)last + i;
            vst1q_u32(to, vbslq_u32(lo, vdupq_n_u32(t), vld1q_u32(to)));
            vst1q_u32(to + 4, vbslq_u32(hi, vdupq_n_u32(t), vld1q_u32(to + 4)));
            continue;
        }
        uint16_t *to = (uint16_t *)last + i;
        uint16x8_t in = vcombine_u16(vmovn_u32(lo), vmovn_u32(hi));
        vst1q_u16(to, vbslq_u16(in, vdupq_n_u16((uint16_t)t), vld1q_u16(to)));
    }
    struct row_cut rest = *cut;
    rest.first_tie -= i;
    mark_ref((char *)last + (size_t)i * (size_t)width, width, p + i, n - i, &rest, t);
}

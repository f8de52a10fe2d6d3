/* choice_neon.c - kernels that select entries, for NEON. */
#include <arm_neon.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/sets.h"

#define CHOICE(name) name##_neon
#include "engine/kernels/choice_rows.h"

int next_low_neon(const float *score, const int32_t *pos, int i, int n, int32_t from, int32_t to,
                  float bar)
{
    const float32x4_t top = vdupq_n_f32(bar);
    const int32x4_t lo = vdupq_n_s32(from), hi = vdupq_n_s32(to);
    for (; i + 4 <= n; i += 4) {
        uint32x4_t low = vmvnq_u32(vcgtq_f32(vld1q_f32(score + i), top));
        if (pos) {
            int32x4_t p = vld1q_s32(pos + i);
            low = vandq_u32(low, vandq_u32(vcgeq_s32(p, lo), vcltq_s32(p, hi)));
        }
        uint64_t lanes = vget_lane_u64(vreinterpret_u64_u16(vmovn_u32(low)), 0); /* 16 bits each */
        if (lanes)
            return i + __builtin_ctzll(lanes) / 16;
    }
    return next_low_ref(score, pos, i, n, from, to, bar);
}

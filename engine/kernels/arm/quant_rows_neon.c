/* quant_rows_neon.c - quantises rows to bytes. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

/* Quantises 8 values to hi and lo bytes, or to one byte each; returns their sum. */
INLINE int32_t quant8(int8_t *hi, vec x, float inverse, float most, bool hi_alone)
{
    x = v_max(v_mul(x, v_set(inverse)), v_set(-most));
    x = v_min(x, v_set(most));
    int32x4_t a = vcvtnq_s32_f32(x.lo), b = vcvtnq_s32_f32(x.hi);
    int16x8_t q = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
    int8x8_t low = vmovn_s16(q);
    if (hi_alone) {
        vst1_s8(hi, low);
    } else {
        vst1_s8(hi + QBLOCK, low);
        vst1_s8(hi, vshrn_n_s16(vsubw_s8(q, low), 8));
    }
    return vaddlvq_s16(q);
}

INLINE float largest(const float *x)
{
    float32x4_t top = vdupq_n_f32(0);
    UNROLL
    for (int i = 0; i < QBLOCK; i += 4)
        top = vmaxnmq_f32(top, vabsq_f32(vld1q_f32(x + i)));
    return vmaxnmvq_f32(top);
}

void quant_rows_neon(struct qrows *out, const float *x, int T, int K)
{
    const float most = out->hi_alone ? QROWS_MAX_8 : QROWS_MAX;
    size_t n_blocks = (size_t)T * (size_t)K / QBLOCK;
    for (size_t b = 0; b < n_blocks; b++, x += QBLOCK) {
        int8_t *hi = out->q + b * qrows_bytes(out);
        float max = largest(x);
        if (!(max >= QROWS_TINY))
            max = 0;
        float inverse = max > 0 ? most / max : 0;
        int32_t sum[2] = {0, 0};
        UNROLL
        for (int i = 0; i < QBLOCK; i += 8)
            sum[i / 16] += quant8(hi + i, v_load(x + i), inverse, most, out->hi_alone);
        out->scale[b] = max / most;
        qrows_sums(out, b, sum[0], sum[1]);
    }
}

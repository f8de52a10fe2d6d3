/* matmul_words.c - products of 16-bit integers for NEON. The two channels of a pair become separate
 * vectors of 8 outputs. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"
#include "engine/kernels/words.h"

#define NAME(name) name##_neon

enum { TILE_ROWS = 4 };
typedef int32x4x2_t ints;

/* sum[i] += channel times lane l of y, for 4 outputs each: u has 8 outputs and v the next 8. */
#define ADD_CHANNEL(sum, u, v, y, l)                                                               \
    sum[0] = vmlal_laneq_s16(sum[0], vget_low_s16(u), y, l);                                       \
    sum[1] = vmlal_high_laneq_s16(sum[1], u, y, l);                                                \
    sum[2] = vmlal_laneq_s16(sum[2], vget_low_s16(v), y, l);                                       \
    sum[3] = vmlal_high_laneq_s16(sum[3], v, y, l)

/* Adds pair p of the four pairs at w. */
#define ADD_PAIR(p)                                                                                \
    {                                                                                              \
        int16x8x2_t u = vld2q_s16(w + p * 32), v = vld2q_s16(w + p * 32 + 16);                     \
        UNROLL                                                                                     \
        for (int r = 0; r < R; r++) {                                                              \
            ADD_CHANNEL(sum[r], u.val[0], v.val[0], y[r], 2 * p);                                  \
            ADD_CHANNEL(sum[r], u.val[1], v.val[1], y[r], 2 * p + 1);                              \
        }                                                                                          \
    }

INLINE void add_four_pairs(int32x4_t sum[TILE_ROWS][4], const int16_t *w, const int16_t *q,
                           size_t ld, const int R)
{
    int16x8_t y[TILE_ROWS];
    UNROLL
    for (int r = 0; r < R; r++)
        y[r] = vld1q_s16(q + (size_t)r * ld);
    ADD_PAIR(0)
    ADD_PAIR(1)
    ADD_PAIR(2)
    ADD_PAIR(3)
}

INLINE void dot_panel(ints sum[TILE_ROWS][2], const uint8_t *block, const int16_t *q, size_t ld,
                      const int R)
{
    const int16_t *w = (const int16_t *)(const void *)block;
    int32x4_t fours[TILE_ROWS][4];
    UNROLL
    for (int i = 0; i < 4 * R; i++)
        fours[i / 4][i % 4] = vdupq_n_s32(0);
    UNROLL
    for (int k = 0; k < WBLOCK; k += 8)
        add_four_pairs(fours, w + k * PANEL, q + k, ld, R);
    UNROLL
    for (int i = 0; i < 2 * R; i++)
        sum[i / 2][i % 2] = (ints){{fours[i / 2][i % 2 * 2], fours[i / 2][i % 2 * 2 + 1]}};
}

#include "engine/kernels/vector/matmul_words.h"

/* packed.h - weight matrices repacked once at load for the matmul kernels.
 *
 * Rows of the matrix (output channels) are grouped into panels of 16, padded
 * with zero rows.  Within a panel, input channels advance in blocks of 32.
 *
 * Quantised kinds are affine and unsigned: w = d * u + m with one f16 d and one
 * f16 m per (row, block), which covers the file types without loss:
 *     Q4_1: u = q (0..15), d, m as stored       Q4_0: u = q, m = -8 d
 *     Q8_0: u = q + 128,   m = -128 d
 * Then  sum_k w x = d s_x sum(u q_x) + m s_x sum(q_x)  for activations
 * x = s_x q_x, q_x = 256 hi + lo: an exact integer dot product, unsigned by
 * signed bytes.  |sum(u q_x)| <= 32 * 255 * 32639 < 2^31.
 *
 * Layout of one (panel, block) of a quantised matrix, all 64-byte aligned:
 *     Q8: 8 groups g of [16 rows][4 channels 4g..4g+3] u8     512 bytes
 *     Q4: 4 groups g of 64 bytes; byte [row*4 + c] holds channel 8g + c in its
 *         low and channel 8g + 4 + c in its high nibble         256 bytes
 * and beside it scale[panel][block][2][16] f16: 16 d, then 16 m.
 * Float kinds: data[panel][k][16] of f32, f16 or bf16. */
#ifndef KVF_ENGINE_PACKED_H
#define KVF_ENGINE_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

enum { PANEL = 16, QBLOCK = 32 };

enum packed_kind { PACK_Q4, PACK_Q8, PACK_F32, PACK_F16, PACK_BF16 };

struct packed {
    enum packed_kind kind;
    int N, K;        /* rows (outputs) and columns (inputs) of the matrix */
    int n_panels;    /* ceil(N / 16) */
    int n_blocks;    /* K / 32 for quantised kinds, else 0 */
    uint8_t *data;   /* owned */
    uint16_t *scale; /* owned; NULL for float kinds */
    size_t bytes;    /* of data and scale together */
};

/* Source element types: values of GGUF's type field. */
enum weight_type {
    WEIGHT_F32 = 0,
    WEIGHT_F16 = 1,
    WEIGHT_Q4_0 = 2,
    WEIGHT_Q4_1 = 3,
    WEIGHT_Q8_0 = 8,
    WEIGHT_BF16 = 30
};

/* Bytes of n consecutive elements of a type; 0 when the type is not supported
 * or n is not a multiple of its block (32 for Q*, 1 otherwise). */
size_t weight_bytes(enum weight_type type, size_t n);
const char *weight_type_name(unsigned type); /* "Q4_1"; "type 12" style for unknown ones */

/* Dequantises n elements at src into f32. */
void weight_dequant(float *out, const void *src, enum weight_type type, size_t n);

/* One source matrix [n_rows, K] of a packed matrix that may join several (QKV,
 * gate and up); all share K. */
struct pack_source {
    const void *data;
    enum weight_type type;
    int n_rows;
};

/* Packs the sources one below the other.  exact: always PACK_F32.  Otherwise
 * Q4_0/Q4_1 -> Q4 and Q8_0 -> Q8 when all sources have a kind in common and
 * K % 32 == 0; F16 and BF16 keep 16 bits; anything mixed becomes F32.
 * KVF_OK or KVF_E_NOMEM; on failure *ret is zeroed. */
int packed_build(const struct pack_source *src, int n_src, int K, int exact, struct packed *ret);
void packed_finish(struct packed *p); /* accepts zeroed */

/* Activations quantised for matmul_q: x = scale * (256 hi + lo), 16 bits as two
 * signed bytes, so that integer products of bytes serve (8 bits alone would cost
 * 3e-3 nats per token on a model of 135M weights, docs/reference/parity.md). */
struct qrows {
    int8_t *q;    /* [T][K/32][2][32]: hi, then lo */
    float *scale; /* [T][K/32] */
    float *sum;   /* [T][K/32] scale * sum of (256 hi + lo) over the block */
    int K;
};

/* Largest |256 hi + lo|; blocks whose largest |x| is below QROWS_TINY count as 0. */
#define QROWS_MAX 32512.0f
#define QROWS_TINY 1e-30f

float half_to_float(uint16_t h);
uint16_t float_to_half(float f); /* round to nearest even */

#endif

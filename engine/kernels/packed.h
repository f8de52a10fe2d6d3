/* packed.h - weight matrices repacked once at load for the matmul kernels.
 *
 * Rows of the matrix (output channels) are grouped into panels of 16, padded
 * with zero rows.  Within a panel, input channels advance in blocks of 32.
 *
 * Quantised kinds are affine and unsigned: w = d * u + m, in two forms.  Where m is a power of two
 * times d, minus 2 to 128 for a whole matrix, it is not stored: it is exact as a product of floats.
 *
 * Plain: one f16 d, and one f16 m unless it follows from d, per (row, block of 32), which covers
 * these file types without loss:
 *     Q4_1: u = q (0..15), d, m as stored       Q4_0: u = q, m = -8 d
 *     Q5_1: u = q (0..31), d, m as stored       Q5_0: u = q, m = -16 d
 *     Q8_0: u = q + 128,   m = -128 d           IQ4_NL: u = value + 128, m = -128 d
 * Fine: scales are products of two numbers, d = d' s and m = m' n, exact in f32: d' and m'
 * are f16 of a super-block, 256 channels, s and n signed bytes of 32 channels (n_fine 1) or
 * of each 16 of them (n_fine 2):
 *     Q4_K, Q5_K: n_fine 1   IQ4_XS: n_fine 1, u = value + 128, m' = -128 d', n = s
 *     Q2_K: n_fine 2         Q3_K, Q6_K: n_fine 2, u = q + 4, q + 32, m' = -4 d', -32 d', n = s
 * Sources of different forms meet in the finer one, then with d' and m' for each 32 channels.
 *
 * Then  sum_k w x = d s_x sum(u q_x) + m s_x sum(q_x)  for activations
 * x = s_x q_x, q_x = 256 hi + lo: an exact integer dot product, unsigned by
 * signed bytes.  |sum(u q_x)| <= 32 * 255 * 32639 < 2^31.
 *
 * Bits per weight here and in the file, of types that have a matrix for themselves:
 *     Q4_0, Q4_1      4.5, 5  (4.5, 5)     Q4_K        4.625  (4.5)
 *     Q5_0, Q5_1      5.5, 6  (5.5, 6)     Q5_K        5.625  (5.5)
 *     Q8_0            8.5     (8.5)        Q6_K        6.5625 (6.5625)
 *     IQ4_NL          8.5     (4.5)        Q2_K, Q3_K  5.125, 4.5625 (2.625, 3.4375)
 *     F16, BF16, F32  16, 16, 32           IQ4_XS      8.3125 (4.25)
 *
 * Layout of one (panel, block) of a quantised matrix of B bits, 64 B bytes, 64-byte aligned:
 *     8 groups g of [16 rows][4 channels 4g..4g+3], byte [row*4 + c]: of Q8 64 bytes each; of the
 *     others the low nibbles, groups 2i and 2i + 1 in the low and high halves of 64 bytes, and
 *     behind them 64 bytes for each bit above the fourth: the bytes of a place have the high bits
 *     of all 8 groups one after the other, from the lowest bit of the first byte on.
 * and beside it scale[panel][block / super][2][16] f16: 16 d, then 16 m; and in the fine form
 * fine[panel][block][n_fine][2][16] int8: 16 s, then 16 n.  Without m, [16] d and [16] s alone.
 * Float kinds: data[panel][k][16] of f32, f16 or bf16.
 *
 * Words (I16): weights of floats as integers of 16 bits, w = d u, with one bf16 d per (row, block
 * of 64), which meet activations x = s_x q_x of 16 bits in blocks of 64 (struct wrows):
 *     sum_k w x = d s_x sum(u q_x),
 * 16.25 bits per weight.  K that is no multiple of 64 ends in a block with zeros behind.
 *     data[panel][block][32 pairs][16 rows][2 channels] int16      2048 bytes of a block
 *     scale[panel][block][16] bf16
 * Every sum of products of a block, of all channels or some, in any order, fits in 32 bits: by
 * Cauchy and Schwarz |sum(u q)| <= |u| |q|, where |.| is the root of the sum of squares, and
 *     |q| <= 32767:  s_x is |x| / 32762 but for some 1e-7 of it, so |x / s_x| < 32762.1, and
 *                    rounding each of 64 numbers by at most 1/2 adds at most sqrt(64) / 2 = 4;
 *     |u| <= 65535:  d is |w| / 65530 at least, in the same way, and rounded up to bf16;
 *     65535 * 32767 = 2147385345 < 2^31.
 * Each number fits in 16 bits: |q_k| <= |q| <= 32767, and d is max|w| / 32766 at least, too.
 * A weight is off by d / 2 at most, an activation by s_x / 2.  Blocks with |.| below WORDS_TINY
 * count as 0.  A block that holds an infinity or no number has a scale that is no number, and so
 * has every sum that it is part of. */
#ifndef KVF_ENGINE_PACKED_H
#define KVF_ENGINE_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kvf/err.h>

enum { PANEL = 16, QBLOCK = 32, WBLOCK = 64 };

/* Quantised kinds first, the more bits the later. */
enum packed_kind { PACK_Q4, PACK_Q5, PACK_Q6, PACK_Q8, PACK_F32, PACK_F16, PACK_BF16, PACK_I16 };

struct packed {
    enum packed_kind kind;
    int N, K;        /* rows (outputs) and columns (inputs) of the matrix */
    int n_panels;    /* ceil(N / 16) */
    int n_blocks;    /* K / 32 for quantised kinds, K / 64 rounded up for I16, else 0 */
    uint8_t *data;   /* owned */
    uint16_t *scale; /* owned; f16, of I16 bf16; NULL for float kinds */
    int8_t *fine;    /* owned; NULL unless n_fine */
    int n_fine;      /* 0: plain; 1, 2: pairs (s, n) of a block */
    int super;       /* blocks that share d and m: 1, or 8 in the fine form */
    int lowest;      /* m = lowest d, and is not stored; 0: it is */
    size_t bytes;    /* of data, scale and fine together */
    bool lent;       /* the three lie in a room, which owns them */
};

/* Source element types: values of GGUF's type field. */
enum weight_type {
    WEIGHT_F32 = 0,
    WEIGHT_F16 = 1,
    WEIGHT_Q4_0 = 2,
    WEIGHT_Q4_1 = 3,
    WEIGHT_Q5_0 = 6,
    WEIGHT_Q5_1 = 7,
    WEIGHT_Q8_0 = 8,
    WEIGHT_Q2_K = 10,
    WEIGHT_Q3_K = 11,
    WEIGHT_Q4_K = 12,
    WEIGHT_Q5_K = 13,
    WEIGHT_Q6_K = 14,
    WEIGHT_IQ4_NL = 20,
    WEIGHT_IQ4_XS = 23,
    WEIGHT_BF16 = 30
};

/* Bytes of n consecutive elements of a type; 0 when the type is not read or n is not a
 * multiple of its block. */
size_t weight_bytes(enum weight_type type, size_t n);
/* Elements of a block: 256 of Q2_K to Q6_K and IQ4_XS, 32 of other quantised types, 1 of
 * floats; 0 when the type is not read. */
int weight_block(unsigned type);
const char *weight_type_name(unsigned type); /* "Q4_1"; "unknown" */
/* The i-th type that has a name; false behind the last.  Of a type that is not read weight_block
 * is 0. */
bool weight_type_at(size_t i, enum weight_type *ret);
/* The names of all types that are read, "F32, F16 and Q8_0" style.  out: [cap], always ended. */
void weight_types_read(char *out, size_t cap);

/* Dequantises n elements at src, whole blocks, into f32: to the bit what the published formula
 * of the type gives when it is evaluated in f32. */
void weight_dequant(float *out, const void *src, enum weight_type type, size_t n);

/* One source matrix [n_rows, K] of a packed matrix that may join several (QKV,
 * gate and up); all share K. */
struct pack_source {
    const void *data;
    enum weight_type type;
    int n_rows;
};

static inline bool packed_quantised(const struct packed *w)
{
    return w->kind <= PACK_Q8;
}

/* Of a quantised kind: 4 to 8. */
static inline int packed_bits(enum packed_kind kind)
{
    return kind == PACK_Q8 ? 8 : 4 + (int)kind;
}

/* PACK_AS_STORED: quantised sources become the least quantised kind that all fit in; F16 and
 * BF16 keep 16 bits; floats beside quantised or other floats become F32, and so does a source with
 * scales that no model has (32 d or 128 d over f16's largest number).  PACK_EXACT: always F32.
 * PACK_WORDS: as stored, but what were F16, BF16 or F32 becomes I16. */
enum pack_how { PACK_AS_STORED, PACK_EXACT, PACK_WORDS };

/* Packs the sources one below the other.  KVF_OK or KVF_E_NOMEM; on failure *ret is zeroed. */
int packed_build(const struct pack_source *src, int n_src, int K, enum pack_how how,
                 struct packed *ret);
/* The bytes of what packed_build makes of the sources.  Data may be NULL, and then no scale of that
 * source counts as too large for f16. */
size_t packed_bytes(const struct pack_source *src, int n_src, int K, enum pack_how how);
/* The panels [p0, p0 + n) as a matrix of their own, borrowed from w. */
struct packed packed_part(const struct packed *w, int p0, int n);
void packed_finish(struct packed *p); /* accepts zeroed */

/* Activations quantised for matmul_q: x = scale * q, q = 256 hi + lo, 16 bits as two
 * signed bytes, so that integer products of bytes serve.  Rows of 8 bits have one byte,
 * q = hi.  They cost 3e-3 nats per token on a model of 135M weights (docs/reference/parity.md).
 * There m = lowest d spares a product of floats:
 *     sum_k w x = d s_x (sum(u q_x) + lowest sum(q_x)),
 * an exact integer below 2^24, so that the rows are made for matrices of one `lowest`. */
struct qrows {
    int8_t *q;    /* [T][K/32][2][32]: hi, then lo; of 8 bits [T][K/32][32] */
    float *scale; /* [T][K/32] */
    /* [T][K/32] scale * sum of q over the block, and [T][K/32][2] the same over its channels
     * 0..15 and 16..31; where qrows_low, lowest * sum of q. */
    union {
        float *sum;
        int32_t *low;
    };
    union {
        float *half;
        int32_t *half_low;
    };
    int K;
    bool hi_alone; /* 8 bits; quant_rows reads it, and lowest */
    int lowest;    /* of the matrix */
};
struct qrows qrows_from(const struct qrows *q, size_t t); /* rows from t on, borrowed */
/* Bytes of q of a row and a block. */
static inline size_t qrows_bytes(const struct qrows *q)
{
    return q->hi_alone ? QBLOCK : 2 * QBLOCK;
}
/* Whether the sums are whole numbers. */
static inline bool qrows_low(const struct qrows *q)
{
    return q->hi_alone && q->lowest;
}

/* Sets the sums of block b, whose scale is there, from those of q over its halves. */
static inline void qrows_sums(struct qrows *q, size_t b, int sum0, int sum1)
{
    if (qrows_low(q)) {
        q->low[b] = q->lowest * (sum0 + sum1);
        q->half_low[2 * b] = q->lowest * sum0;
        q->half_low[2 * b + 1] = q->lowest * sum1;
        return;
    }
    q->sum[b] = q->scale[b] * (float)(sum0 + sum1);
    q->half[2 * b] = q->scale[b] * (float)sum0;
    q->half[2 * b + 1] = q->scale[b] * (float)sum1;
}

/* Largest |q| of 16 and of 8 bits; blocks whose largest |x| is below QROWS_TINY count as 0. */
#define QROWS_MAX 32512.0f
#define QROWS_MAX_8 127.0f
#define QROWS_TINY 1e-30f

/* Activations as integers of 16 bits for matmul_words: x = scale * q, as said above. */
struct wrows {
    int16_t *q;   /* [T][blocks][64], zeros behind the last of K */
    float *scale; /* [T][blocks] */
    int K;
};
static inline size_t words_blocks(int K)
{
    return ((size_t)K + WBLOCK - 1) / WBLOCK;
}
struct wrows wrows_from(const struct wrows *q, size_t t); /* rows from t on, borrowed */

#define WORDS_NORM_X 32762.0
#define WORDS_NORM_W 65530.0
#define WORDS_MOST_W 32766.0f
#define WORDS_TINY 1e-30

float half_to_float(uint16_t h);
uint16_t float_to_half(float f);               /* round to nearest even */
static inline float brain_to_float(uint16_t h) /* of bf16 */
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

#endif
